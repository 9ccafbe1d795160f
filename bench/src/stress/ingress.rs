//! What one ingress thread does: its callers send requests, take answers, hold permits, and leave early.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::RngExt;
use tollgate::{Admission, Engine, Permit, Rejected, Request};

use super::allocations;
use super::books::Book;
use super::load::{Arrivals, Load, Random, random};
use super::seats::Ready;

/// How long nothing may happen after the last request, besides service, before the rest counts as lost. Guessed: far above what a busy
/// machine takes to run a thread.
const PATIENCE: Duration = Duration::from_secs(30);
/// A thread sleeps until so long before it is needed \[ns\], and then spins. Guessed: what a wake-up takes.
const EARLY: u64 = 60_000;
/// A thread looks at least so often whether the load is over \[ns\].
const LOOK: u64 = 50_000_000;
/// Longest time that latencies tell apart \[ns\]: an hour.
const LONGEST: u64 = 3_600_000_000_000;

/// Latencies \[ns\], exact to 0.1 %.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are valid")
}

/// The time of a run that is measured \[ns since its start\].
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) start: Instant,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Window {
    pub(super) fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn contains(&self, at: u64) -> bool {
        (self.from..self.to).contains(&at)
    }
}

/// What one thread counts for others to watch, on a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Progress(AtomicU64);

impl Progress {
    pub(super) fn get(&self) -> u64 {
        // Relaxed: a count, which publishes nothing.
        self.0.load(Ordering::Relaxed)
    }

    /// One more. Only one thread may.
    pub(super) fn add_one(&self) {
        // Relaxed: as above.
        self.0.store(self.get() + 1, Ordering::Relaxed);
    }
}

/// What a thread has seen.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) book: Book,
    /// Permits that came inside the window, and the tokens that they cost.
    pub(super) permits: u64,
    pub(super) tokens: u64,
    /// Requests sent inside the window, and what the thread allocated meanwhile.
    pub(super) sent: u64,
    pub(super) allocated: u64,
    /// Requests meant for the window that found no caller free until its end.
    pub(super) unsent: u64,
    /// From the intended time of a request to its permit \[ns\], of requests meant for the window.
    pub(super) latency: Histogram<u64>,
    /// From the intended time of a request to its `admit` \[ns\], of the same.
    pub(super) lateness: Histogram<u64>,
}

/// A caller.
#[derive(Debug, Default)]
struct Seat {
    admission: Option<Admission>,
    class: usize,
    /// When its request was meant to be sent \[ns since the start of the run\].
    intended: u64,
    /// Requests that it has sent.
    round: u64,
}

/// A permit that is held.
#[derive(Debug)]
struct Serving {
    until: u64,
    seat: u32,
    permit: Permit,
}

/// An ingress thread.
pub(super) struct Ingress<'a> {
    load: &'a Load,
    thread: u64,
    engine: Engine,
    window: Window,
    progress: &'a Progress,
    /// Everything that belongs to the window has been read.
    over: &'a AtomicBool,
    /// Names of the classes: of its own, so that threads do not share a counter of owners.
    names: Vec<Arc<str>>,
    random: Random,
    arrivals: Option<Arrivals>,
    ready: Arc<Ready>,
    wakers: Vec<Waker>,
    seats: Vec<Seat>,
    free: Vec<u32>,
    /// By the end of their service, which is as long for each.
    serving: VecDeque<Serving>,
    /// Callers who leave as soon as the thread looks at them again, and which of their requests that is about.
    leaving: Vec<(u32, u64)>,
    /// Callers whose request nobody has looked at since it was sent.
    fresh: Vec<u32>,
    /// Room for those that have news.
    news: Vec<u32>,
    measuring: Measuring,
    seen: Seen,
}

/// Where the window is, as far as the thread has noticed.
#[derive(Clone, Copy, Debug)]
enum Measuring {
    Before,
    /// What the thread had allocated when it began.
    Since(u64),
    Over,
}

impl<'a> Ingress<'a> {
    /// On the thread that it is for.
    pub(super) fn new(
        load: &'a Load,
        thread: u64,
        engine: Engine,
        window: Window,
        progress: &'a Progress,
        over: &'a AtomicBool,
    ) -> Self {
        allocations::apart();
        let (ready, wakers) = Ready::new(load.seats, thread::current());
        let seats = load.seats as usize;
        let arrivals = load.rate.map(|rate| Arrivals::new(load.spread, rate, thread, load.threads));
        Self {
            load,
            thread,
            engine,
            window,
            progress,
            over,
            names: super::run::class_names(load).map(Arc::from).collect(),
            random: random(load.seed, thread),
            arrivals,
            ready,
            wakers,
            seats: std::iter::repeat_with(Seat::default).take(seats).collect(),
            free: (0..load.seats).rev().collect(),
            serving: VecDeque::with_capacity(seats),
            // A caller may be in each of these more than once, with an earlier request.
            leaving: Vec::with_capacity(2 * seats),
            fresh: Vec::with_capacity(3 * seats),
            news: Vec::with_capacity(3 * seats),
            measuring: Measuring::Before,
            seen: Seen {
                book: Book::new(load.quanta.len()),
                permits: 0,
                tokens: 0,
                sent: 0,
                allocated: 0,
                unsent: 0,
                latency: histogram(),
                lateness: histogram(),
            },
        }
    }

    /// Until the load is over and every caller has an answer.
    pub(super) fn run(mut self) -> Seen {
        let patience = (PATIENCE + 2 * self.load.service).as_nanos() as u64;
        let mut last = 0;
        loop {
            let now = self.window.now();
            let open = self.is_open(now);
            self.measure(now);
            let mut busy = self.take_answers();
            busy |= self.end_service(now);
            busy |= self.leave();
            busy |= open && self.send(now, now);
            if busy {
                last = now;
            } else if !open && self.free.len() == self.seats.len() {
                break;
            } else if !open && now - last > patience {
                for seat in self.seats.iter().filter(|seat| seat.admission.is_some()) {
                    self.seen.book.classes[seat.class].unanswered += 1;
                }
                break;
            } else {
                self.wait(now);
            }
        }
        self.seen
    }

    /// Whether requests are still sent: a schedule is that of the window; a closed load has to go on until whoever looks
    /// at its end has looked.
    fn is_open(&self, now: u64) -> bool {
        // Relaxed: only says that it is over.
        if self.arrivals.is_some() { now < self.window.to } else { !self.over.load(Ordering::Relaxed) }
    }

    fn measure(&mut self, now: u64) {
        // Both at once, if the thread slept all the time between.
        if let Measuring::Before = self.measuring
            && now >= self.window.from
        {
            self.measuring = Measuring::Since(allocations::here());
        }
        if let Measuring::Since(before) = self.measuring
            && now >= self.window.to
        {
            self.seen.allocated = allocations::here() - before;
            self.measuring = Measuring::Over;
            self.send_overdue(now);
        }
    }

    /// Looks at every caller that has news.
    fn take_answers(&mut self) -> bool {
        let mut news = std::mem::replace(&mut self.fresh, std::mem::take(&mut self.news));
        self.ready.take(&mut news);
        let any = !news.is_empty();
        for number in news.drain(..) {
            self.look(number);
        }
        self.news = news;
        any
    }

    /// Looks whether a caller has an answer; if not, it will be woken when there is one.
    fn look(&mut self, number: u32) {
        let seat = &mut self.seats[number as usize];
        // A waker may come late, when its caller has left or sent another request.
        let Some(admission) = &mut seat.admission else { return };
        let mut cx = Context::from_waker(&self.wakers[number as usize]);
        let Poll::Ready(answer) = Pin::new(admission).poll(&mut cx) else { return };
        seat.admission = None;
        let (class, intended) = (seat.class, seat.intended);
        match answer {
            Ok(permit) => self.serve(number, class, intended, permit),
            Err(Rejected { reason, .. }) => {
                self.seen.book.rejected(class, &reason);
                self.done(number);
            }
        }
    }

    fn serve(&mut self, seat: u32, class: usize, intended: u64, mut permit: Permit) {
        let now = self.window.now();
        let seen = &mut self.seen;
        seen.book.classes[class].fates.dispatched += 1;
        if self.window.contains(now) {
            seen.permits += 1;
            seen.tokens += permit.cost();
        }
        if self.window.contains(intended) {
            seen.latency.saturating_record(now.saturating_sub(intended));
        }
        self.progress.add_one();
        permit.prefill_complete();
        if self.load.service.is_zero() {
            drop(permit);
            self.done(seat);
        } else {
            let until = now + self.load.service.as_nanos() as u64;
            self.serving.push_back(Serving { until, seat, permit });
        }
    }

    /// Ends the service of permits whose time is over.
    fn end_service(&mut self, now: u64) -> bool {
        let mut any = false;
        while self.serving.front().is_some_and(|serving| serving.until <= now) {
            let Some(Serving { seat, permit, .. }) = self.serving.pop_front() else { break };
            drop(permit);
            self.done(seat);
            any = true;
        }
        any
    }

    /// Lets those leave who shall.
    fn leave(&mut self) -> bool {
        let all = self.leaving.len();
        for i in 0..all {
            let (number, round) = self.leaving[i];
            let seat = &mut self.seats[number as usize];
            // The request may have its answer already.
            if seat.round == round
                && let Some(admission) = seat.admission.take()
            {
                admission.cancel();
                self.seen.book.classes[seat.class].fates.cancelled += 1;
                self.done(number);
            }
        }
        // Those who were sent meanwhile are looked at next time.
        self.leaving.drain(..all);
        all > 0
    }

    /// A caller is done with its request. If the load is closed it sends the next one at once, so that a thread never
    /// has more than one caller that is about to.
    fn done(&mut self, number: u32) {
        let now = self.window.now();
        if self.arrivals.is_none() && self.is_open(now) {
            self.send_one(number, now, now);
        } else {
            self.free.push(number);
        }
    }

    /// Sends what was meant for the window and was not sent in it, as far as callers are free. What then is left counts
    /// with the time that it is late by now: more cannot be known of it.
    fn send_overdue(&mut self, now: u64) {
        if self.arrivals.is_none() {
            return;
        }
        self.send(self.window.to - 1, now);
        let Self { arrivals: Some(arrivals), seen, random, window, .. } = self else { return };
        while arrivals.next() < window.to {
            if window.contains(arrivals.next()) {
                let late = now - arrivals.next();
                seen.latency.saturating_record(late);
                seen.lateness.saturating_record(late);
                seen.unsent += 1;
            }
            arrivals.advance(random);
        }
    }

    /// Sends what was meant to be sent until `by`, as far as callers are free. If the load is closed, each of those
    /// sends.
    fn send(&mut self, by: u64, now: u64) -> bool {
        let mut left = self.free.len();
        let before = left;
        while left > 0 {
            let intended = self.arrivals.as_ref().map_or(now, Arrivals::next);
            if intended > by {
                break;
            }
            // An arrival that finds no caller free stays in the schedule, and is late.
            let number = self.free.pop().expect("there are some left");
            if let Some(arrivals) = &mut self.arrivals {
                arrivals.advance(&mut self.random);
            }
            self.send_one(number, intended, now);
            left -= 1;
        }
        left < before
    }

    fn send_one(&mut self, number: u32, intended: u64, now: u64) {
        let Self { load, random, .. } = self;
        let class = match load.rate {
            Some(_) => random.random_range(0..load.quanta.len()),
            None => load.class_of(self.thread, number),
        };
        let cost = load.cost.draw(random);
        let mut request = Request::new(cost, 0).with_class(self.names[class].clone());
        if load.deadline > 0.0 && random.random_bool(load.deadline) {
            request.deadline = Some(load.within);
        }
        let leaves = load.cancel > 0.0 && random.random_bool(load.cancel);

        let seen = &mut self.seen;
        let asked = &mut seen.book.classes[class];
        asked.requests += 1;
        asked.dearest = asked.dearest.max(cost);
        if let Measuring::Since(_) = self.measuring {
            seen.sent += 1;
        }
        if self.window.contains(intended) {
            seen.lateness.saturating_record(now.saturating_sub(intended));
        }
        match self.engine.admit(request) {
            Ok(admission) => {
                let seat = &mut self.seats[number as usize];
                *seat = Seat { admission: Some(admission), class, intended, round: seat.round + 1 };
                self.fresh.push(number);
                if leaves {
                    self.leaving.push((number, seat.round));
                }
            }
            Err(Rejected { reason, .. }) => {
                seen.book.rejected(class, &reason);
                self.free.push(number);
            }
        }
    }

    /// Sleeps until there is something to do: a permit's service ends, a request arrives, or the arbiter has news.
    fn wait(&self, now: u64) {
        let ends = self.serving.front().map(|serving| serving.until);
        let arrives = match &self.arrivals {
            Some(arrivals) if now < self.window.to && !self.free.is_empty() => Some(arrivals.next()),
            _ => None,
        };
        let edge = [self.window.from, self.window.to].into_iter().find(|edge| *edge > now);
        let next = ends.into_iter().chain(arrives).chain(edge).min();
        let left = next.map_or(LOOK, |next| next.saturating_sub(now).min(LOOK));
        if left > EARLY {
            thread::park_timeout(Duration::from_nanos(left - EARLY));
        } else {
            thread::yield_now();
        }
    }
}
