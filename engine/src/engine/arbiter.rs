//! The arbiter: the one thread that owns the scheduler. Each turn it takes what has come in, bounded, and dispatches
//! what can go, bounded; it sleeps when there is nothing. With [`Idle::Assist`] callers run its turns while it sleeps, one
//! at a time.
//!
//! The bounds keep the classes' shares when the arbiter itself is the bottleneck. Before every [`BATCH`] dispatches,
//! each class is topped up from its ingress queue to at least [`BATCH`] waiting requests, as far as it has them: so it
//! always has as much in its lanes as deficit round robin could give it, and no class's backlog stands in front of
//! another's. What goes beyond that is taken in by turns, [`INTAKE`] requests at most, so that a flood on many classes
//! does not keep the arbiter from dispatching. Only a queue limit may ask for more: before it refuses a request,
//! everything that can go is dispatched.

use std::collections::VecDeque;
use std::time::Duration;

use super::Idle;
use super::admission::{Answer, Item, Pending, asked, waiting_place};
use super::contain::contained;
use super::counts::{Counts, EngineSnapshot, Turns};
use super::endpoints::Endpoints;
use super::guard::ClassChoice;
use super::marks::Marks;
use super::observe::{Fate, Observers};
use super::permit::Permit;
use super::shared::{Phase, Route, Routes, Shared};
use super::span::RequestSpan;
use crate::error::Reason;
use crate::policy::{ClassId, Profile};
use crate::request::{Request, Snapshot};
use crate::scheduler::{Booking, Dispatch, Expired, Picked, Refused, Scheduler};
use crate::sync::clock::Clock;
use crate::sync::ingress::{ABANDONED, Consumer, Queued};
use crate::sync::lend::{Desk as Lent, Look};
use crate::sync::sleep::Sleeper;
use crate::sync::snapshot::Reader;
use crate::sync::{Arc, DataArc, Step, patience, point, spin_loop};
use crate::time::Timestamp;
use crate::worker::WorkerSnapshot;

/// Requests taken from one class, and dispatches made, per turn. Guessed: some 50 µs of work.
const BATCH: usize = 256;
/// Requests per turn that classes get taken in beyond a batch of waiting ones. Guessed: as long as the dispatches.
const INTAKE: usize = 4 * BATCH;
/// Answers of a turn that go by one look at the clock: some 2 µs.
const PER_LOOK: u32 = 8;
/// Fruitless time before the arbiter sleeps: about what a wake-up costs where it is slow. The longer one counts while work
/// keeps coming in that time, so that a stream of requests does not wake it again and again. Guessed.
const PATIENCE: [Duration; 2] = [Duration::from_micros(50), Duration::from_micros(200)];

/// The state of the arbiter thread.
#[derive(Debug)]
pub(super) struct Arbiter {
    pub(super) shared: Arc<Shared>,
    pub(super) desk: Desk,
    /// The arbiter's side of each class, by number; `None` for numbers of nobody.
    pub(super) classes: Vec<Option<Queue>>,
    pub(super) marks: Marks<ClassId>,
    /// Classes whose ingress queue may hold something, in the order of their news.
    pub(super) fresh: VecDeque<ClassId>,
    pub(super) ingress_capacity: usize,
    pub(super) turns: Turns,
    workers: Reader<WorkerSnapshot>,
    profile: Reader<Profile>,
    /// Those of the profile that it works with.
    pub(super) routes: DataArc<Routes>,
    idle: Idle,
    /// The ingress is closed and what waits is being finished.
    draining: bool,
    /// A turn has come to a bound: there is more to do.
    more: bool,
    /// What the arbiter's sleep goes by.
    alarm: Alarm,
    /// The next turn is for the arbiter's own thread.
    alone: bool,
    /// A turn has panicked.
    died: bool,
}

/// When a sleep ends by itself, and the end of the drain that it has taken into account.
#[derive(Clone, Copy, Debug)]
struct Alarm {
    at: Option<Timestamp>,
    drained_by: Timestamp,
}

/// The consuming end of a class's ingress, and the way to the other one.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) consumer: Consumer<Item>,
    pub(super) route: Route,
    /// The class is in [`Arbiter::fresh`].
    pub(super) listed: bool,
}

/// Where requests are answered: the scheduler, the endpoints' loads, and what is counted.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) scheduler: Scheduler<Pending>,
    pub(super) endpoints: Endpoints,
    /// By class number.
    pub(super) counts: Vec<Counts>,
    pub(super) decisions: u64,
    pub(super) observers: Observers,
    /// About when the last answer of this turn was given.
    answered: LastAnswer,
    abandoned: Consumer<Item, ABANDONED>,
    shared: Arc<Shared>,
}

impl Arbiter {
    #[expect(clippy::too_many_arguments, reason = "the builder gives each part once")]
    pub(super) fn new(
        shared: Arc<Shared>,
        scheduler: Scheduler<Pending>,
        mut observers: Observers,
        queues: Vec<Queue>,
        marks: Marks<ClassId>,
        abandoned: Consumer<Item, ABANDONED>,
        idle: Idle,
        ingress_capacity: usize,
    ) -> Self {
        observers.classes(scheduler.classes());
        let desk = Desk {
            scheduler,
            endpoints: Endpoints::new(shared.releases.clone()),
            counts: queues.iter().map(|queue| Counts::at(queue.route.door.clone())).collect(),
            decisions: 0,
            observers,
            answered: LastAnswer::default(),
            abandoned,
            shared: shared.clone(),
        };
        let mut arbiter = Self {
            desk,
            fresh: VecDeque::with_capacity(queues.len()),
            classes: queues.into_iter().map(Some).collect(),
            marks,
            ingress_capacity,
            turns: Turns::new(),
            workers: shared.workers.reader(),
            profile: shared.profile.reader(),
            routes: shared.routes.load(),
            idle,
            draining: false,
            more: false,
            alarm: Alarm { at: None, drained_by: shared.drained_by() },
            alone: false,
            died: false,
            shared,
        };
        arbiter.set_workers(arbiter.shared.workers.load());
        arbiter
    }

    /// Runs until the engine is closed or has drained, then answers everything that still waits.
    pub(super) fn run(mut self, mut sleeper: Sleeper) {
        let _here = sleeper.here();
        // After a panic nothing of the arbiter is used again but its requests and its numbers.
        self.died |= contained(|| self.turns(&mut sleeper)).is_none();
        let cause: Option<DataArc<str>> = self.died.then(|| "the arbiter panicked".into());
        if let Some(cause) = &cause {
            self.shared.fail(cause.clone());
        }
        self.shared.enter(Phase::Closed);
        let now = self.shared.clock.now();
        let Desk { scheduler, counts, observers, .. } = &mut self.desk;
        let mut close = |request: Picked<Pending>, counts: &mut Counts| {
            let closed = Reason::Closed { cause: cause.clone() };
            end(request, closed, now, observers, &mut counts.closed, &mut counts.cancelled);
        };
        for ((class, queue), counts) in (0..).map(ClassId).zip(&mut self.classes).zip(&mut *counts) {
            let Some(queue) = queue else { continue };
            queue.consumer.close(|item| {
                counts.taken_in();
                let mut payload = Pending::new(item);
                let snapshot = payload.take_snapshot().expect("nobody has taken it yet");
                close(Picked { class, snapshot, payload }, counts);
            });
        }
        // Looking at what a panic left may panic as well; a request that is dropped says that the engine is closed.
        let _ = contained(|| {
            for request in scheduler.take_all() {
                let counts = &mut counts[request.class.index()];
                close(request, counts);
            }
        });
        self.desk.abandoned.close(|item| {
            let _ = contained(|| drop(item));
        });
        let _ = contained(|| self.desk.endpoints.take_releases(&mut self.desk.scheduler));
        let last = contained(|| self.picture()).unwrap_or_else(EngineSnapshot::empty);
        self.shared.wanted.finish(last);
    }

    fn turns(&mut self, sleeper: &mut Sleeper) {
        let (mut idle_since, mut pays) = (None, false);
        while !self.is_over() {
            let started = self.shared.clock.now();
            if self.timed_turn(started, true) {
                pays |= idle_since.take().is_some();
            } else if self.idle == Idle::Spin
                || self.idle == Idle::Backoff
                    && started.saturating_since(*idle_since.get_or_insert(started))
                        < patience(PATIENCE[usize::from(pays)])
            {
                spin_loop();
            } else {
                (idle_since, pays) = (None, false);
                self.sleep(sleeper);
            }
        }
    }

    /// A turn that counts. On the arbiter's own thread it may `wait` for somebody who is just asking for a picture; else
    /// it leaves him to another turn, and ends, as far as its length is concerned, with its last answer.
    fn timed_turn(&mut self, started: Timestamp, wait: bool) -> bool {
        self.desk.answered = LastAnswer::default();
        let busy = self.turn(started, wait);
        if busy {
            self.turns.turns += 1;
            let ended = self.desk.answered.at.filter(|_| !wait);
            let took = ended.unwrap_or_else(|| self.shared.clock.now()).saturating_since(started);
            self.turns.longest = self.turns.longest.max(took);
        }
        busy
    }

    fn is_over(&self) -> bool {
        match self.shared.phase() {
            _ if self.died => true,
            Phase::Open => false,
            Phase::Draining => {
                self.draining
                    && (self.desk.scheduler.waiting() == 0
                        || self.shared.drained_by() <= self.shared.clock.now())
            }
            Phase::Closed => true,
        }
    }

    fn sleep(&mut self, sleeper: &mut Sleeper) {
        let alarm = self.alarm();
        self.alarm = alarm;
        let limit = alarm.at.map(|at| at.saturating_since(self.shared.clock.now()));
        if limit.is_some_and(|limit| limit.is_zero()) {
            return;
        }
        let slept = match self.idle {
            Idle::Assist => sleeper.lend(self, limit),
            Idle::Backoff | Idle::Spin => sleeper.sleep(limit, || self.has_work(true)),
        };
        self.turns.sleeps += u64::from(slept);
    }

    /// When a sleep that begins now has to end.
    fn alarm(&self) -> Alarm {
        let drained_by = self.shared.drained_by();
        let until = [self.desk.scheduler.next_expiry(), self.draining.then_some(drained_by)];
        Alarm { at: until.into_iter().flatten().min(), drained_by }
    }

    /// The look before a sleep: whether there is something to do. Releases may be nothing to do.
    fn has_work(&mut self, with_releases: bool) -> bool {
        let Self { shared, desk, marks, workers, profile, draining, alarm, .. } = self;
        marks.any()
            || with_releases && desk.endpoints.has_releases()
            || !desk.abandoned.is_empty()
            || workers.has_newer()
            || profile.has_newer()
            || shared.wanted.any()
            || shared.phase() > if *draining { Phase::Draining } else { Phase::Open }
            || shared.drained_by() < alarm.drained_by
    }

    /// One turn; returns whether there was anything to do.
    fn turn(&mut self, now: Timestamp, wait: bool) -> bool {
        // Taken before anything else, so that the picture shows all that its asker has done before.
        let questions = self.shared.wanted.waiting(wait);
        point(Step::Turn);
        #[cfg(test)]
        assert!(!self.shared.fault.load(crate::sync::Ordering::Relaxed), "told to by a test");
        let mut busy = questions.is_some_and(|count| count > 0);
        if let Some(snapshot) = self.workers.newer() {
            self.set_workers(snapshot);
            busy = true;
        }
        if let Some(profile) = self.profile.newer() {
            self.reload(profile);
            if self.draining {
                // New classes came with open queues.
                self.close_ingress();
            }
            busy = true;
        }
        if !self.draining && self.shared.phase() == Phase::Draining {
            self.close_ingress();
            busy = true;
        }
        busy |= self.desk.catch_up(now);
        busy |= self.take_in();
        // Their time may have been over when they were still in front of the arbiter.
        busy |= self.desk.expire(now);
        let dispatched = self.dispatch();
        busy |= dispatched > 0;
        self.more = dispatched == BATCH || !self.fresh.is_empty();
        match questions {
            Some(0) => {}
            Some(count) => self.shared.wanted.answer(count, &self.picture(), wait),
            // He holds a lock: only the arbiter's own thread may wait for him.
            None => self.alone = true,
        }
        busy
    }

    fn set_workers(&mut self, snapshot: DataArc<WorkerSnapshot>) {
        let Desk { scheduler, endpoints, .. } = &mut self.desk;
        endpoints.set_workers(snapshot, scheduler);
        let loads = scheduler.endpoints().map(|(_, endpoint)| endpoint);
        let loads = loads.zip(endpoints.loads().iter().cloned()).collect();
        self.shared.loads.replace(DataArc::new(loads));
    }

    /// Moves a bounded number of requests from the ingress queues into their lanes.
    fn take_in(&mut self) -> bool {
        let Self { desk, classes, fresh, marks, .. } = self;
        marks.sweep(|_, class| {
            if let Some(queue) = &mut classes[class.index()]
                && !std::mem::replace(&mut queue.listed, true)
            {
                fresh.push_back(class);
            }
        });
        let (mut budget, mut total, mut full) = (INTAKE, 0, 0);
        for _ in 0..fresh.len() {
            let Some(class) = fresh.pop_front() else { break };
            let Some(queue) = &mut classes[class.index()] else { continue };
            let lacking = BATCH.saturating_sub(desk.scheduler.usage(class).requests as usize);
            let most = lacking.max(BATCH.min(budget));
            let taken = queue.consumer.drain(most, |item| desk.take_in(class, item));
            total += taken;
            full += usize::from(budget > 0 && taken == most);
            budget = budget.saturating_sub(taken);
            queue.listed = taken == most;
            if queue.listed {
                fresh.push_back(class);
            }
        }
        if budget == 0 {
            // Those who had their turn come last in the next one.
            fresh.rotate_left(full.min(fresh.len()));
        }
        if total > 0 {
            self.turns.intake.record(total);
        }
        total > 0
    }

    /// Dispatches a bounded number of requests; returns how many.
    fn dispatch(&mut self) -> usize {
        let mut done = 0;
        while done < BATCH {
            let Some(dispatch) = self.desk.scheduler.dispatch() else { break };
            self.desk.answer(dispatch);
            done += 1;
        }
        if done > 0 {
            self.turns.dispatches.record(done);
        }
        done
    }

    /// Closes the ingress queues; what is in them still goes into the lanes.
    fn close_ingress(&mut self) {
        self.draining = true;
        for (class, queue) in (0..).map(ClassId).zip(&mut self.classes) {
            if let Some(queue) = queue {
                queue.consumer.close(|item| self.desk.take_in(class, item));
            }
        }
    }
}

impl Arbiter {
    /// Answers a request that need not wait, on its caller's thread, past the queues. Without an answer nothing of the request is
    /// here: it has to go through them. Its arrival is noted if that is needed, and was not. Returns whether the caller can lay the arbiter's work down then.
    pub(super) fn admit_at_once(
        &mut self,
        request: &Request,
        choice: &ClassChoice,
        snapshot: &mut Snapshot,
        arrival: &mut Option<Timestamp>,
        span: &RequestSpan,
        answer: &mut Option<Answer>,
    ) -> bool {
        let done = contained(|| {
            // Who came before goes before, and what is new counts.
            if self.more || self.has_work(false) {
                return;
            }
            if self.desk.observers.any() {
                self.shared.arrival(snapshot, arrival);
            }
            let Routes { profile, numbers, .. } = &*self.routes;
            let position = profile.classify(asked(request, choice), snapshot.uncached_tokens());
            let class = numbers[position.index()];
            self.desk.bring_near(class);
            self.desk.endpoints.take_releases(&mut self.desk.scheduler);
            let now = snapshot.arrival();
            if let Some(outcome) = self.desk.scheduler.bypass(class, snapshot, now) {
                span.classified(&profile.classes()[position.index()].name, snapshot.cost());
                self.desk.answer_at_once(class, snapshot, outcome, answer);
                self.turns.intake.record(1);
                self.turns.dispatches.record(1);
                self.turns.turns += 1;
            }
        });
        if answer.is_none() {
            self.shared.arrival(snapshot, arrival);
        }
        self.died |= done.is_none();
        !self.died
    }
}

impl Lent for Arbiter {
    fn assist(&mut self, now: Option<Timestamp>) -> bool {
        let can_rest = contained(|| {
            if self.is_over() {
                return false;
            }
            // Where a moment counts, the moment it is.
            let now = now.filter(|_| self.desk.scheduler.next_expiry().is_none());
            self.timed_turn(now.unwrap_or_else(|| self.shared.clock.now()), false);
            // The arbiter's thread ends the engine, and sleeps by its own alarm.
            let is_earlier = |at| self.alarm.at.is_none_or(|alarm| at < alarm);
            let now = self.alarm();
            !std::mem::take(&mut self.alone)
                && !self.is_over()
                && now.drained_by >= self.alarm.drained_by
                && !now.at.is_some_and(is_earlier)
        });
        self.died |= can_rest.is_none();
        can_rest.unwrap_or(false)
    }

    fn look(&mut self) -> Look {
        let waits = self.desk.scheduler.waiting() > 0;
        match () {
            () if self.more || self.has_work(waits) => Look::Work,
            () if waits => Look::Waits,
            () => Look::Quiet,
        }
    }
}

impl Desk {
    /// Learns what makes room: releases, requests whose callers have left, and requests whose time is over. Returns
    /// whether there was anything.
    fn catch_up(&mut self, now: Timestamp) -> bool {
        let mut any = self.endpoints.take_releases(&mut self.scheduler);
        // As many as there are now; those that come meanwhile wait for the next time.
        let mut left = self.abandoned.len();
        while left > 0 && self.forget_one() {
            left -= 1;
            any = true;
        }
        self.expire(now) || any
    }

    /// Forgets one request whose caller has left.
    fn forget_one(&mut self) -> bool {
        let mut abandoned = None;
        self.abandoned.drain(1, |item| abandoned = Some(item));
        let Some(item) = abandoned else { return false };
        if let Some(request) = waiting_place(&item).and_then(|key| self.scheduler.cancel(key)) {
            self.counts[request.class.index()].cancelled += 1;
            if self.observers.any() {
                self.observers.left(request.class, &request.snapshot, self.shared.clock.now(), None);
            }
        }
        // The last owner of a ticket drops its waker, which is the caller's code.
        let _ = contained(|| drop(item));
        true
    }

    /// Puts one request into its lane, or refuses it.
    pub(super) fn take_in(&mut self, class: ClassId, item: Queued<Item>) {
        self.take_in_pending(class, Pending::new(item));
    }

    /// The same for a request that was looked at before.
    pub(super) fn take_in_pending(&mut self, class: ClassId, mut pending: Pending) {
        let counts = &mut self.counts[class.index()];
        counts.taken_in();
        let abandoned = pending.is_abandoned();
        let snapshot = pending.take_snapshot().expect("the arbiter takes the snapshot once");
        if abandoned {
            counts.cancelled += 1;
            if self.observers.any() {
                self.observers.left(class, &snapshot, self.shared.clock.now(), None);
            }
            return;
        }
        if self.scheduler.limit_reached(class).is_some() {
            self.catch_up(self.shared.clock.now());
        }
        let Self { scheduler, endpoints, counts, decisions, observers, answered, shared, .. } = self;
        let submitted = scheduler.submit(class, snapshot, pending, &mut |_, dispatch| {
            *decisions += 1;
            answer(endpoints, counts, observers, answered.now(&shared.clock), dispatch);
        });
        match submitted {
            Ok(key) => {
                // It may have gone already, or failed selection: then nobody waits under its key.
                if let Some(pending) = scheduler.get(key) {
                    pending.waits_as(key);
                }
            }
            Err(Refused { limit, snapshot, payload }) => {
                let counts = &mut counts[class.index()];
                let refused = &mut counts.refused[limit.kind as usize];
                let (request, reason) = (Picked { class, snapshot, payload }, Reason::QueueLimit(limit));
                end(request, reason, shared.clock.now(), observers, refused, &mut counts.cancelled);
            }
        }
    }

    /// Ends the requests whose time is over; returns whether there were any.
    fn expire(&mut self, now: Timestamp) -> bool {
        let mut any = false;
        while let Some(Expired { request, cause }) = self.scheduler.expire(now) {
            any = true;
            let waited = now.saturating_since(request.snapshot.arrival());
            let counts = &mut self.counts[request.class.index()];
            let (reason, expired) = (Reason::DeadlineExceeded { waited, cause }, &mut counts.expired);
            end(request, reason, now, &mut self.observers, expired, &mut counts.cancelled);
        }
        any
    }

    /// Asks for what a request of a class needs to be brought near.
    fn bring_near(&self, class: ClassId) {
        self.scheduler.prefetch(class);
        self.counts[class.index()].prefetch();
    }

    /// Answers a request that has not waited.
    fn answer_at_once(
        &mut self,
        class: ClassId,
        snapshot: &Snapshot,
        outcome: Result<Booking, Reason>,
        answer: &mut Option<Answer>,
    ) {
        self.decisions += 1;
        let counts = &mut self.counts[class.index()];
        counts.taken_in();
        match outcome {
            Ok(booking) => {
                let (cost, waited) = (snapshot.cost(), Duration::ZERO);
                counts.dispatched_at_once(cost);
                *answer = Some(Ok(permit(&self.endpoints, &booking, class, cost, waited)));
                if self.observers.any() {
                    let fate = Fate::Dispatched(booking.endpoint());
                    self.observers.tell(class, snapshot, waited, &fate);
                }
            }
            Err(reason) => {
                counts.failed += 1;
                if self.observers.any() {
                    self.observers.left(class, snapshot, snapshot.arrival(), Some(reason.clone()));
                }
                *answer = Some(Err(reason));
            }
        }
    }

    fn answer(&mut self, dispatch: Dispatch<Pending>) {
        let Self { shared, endpoints, counts, decisions, observers, answered, .. } = self;
        *decisions += 1;
        answer(endpoints, counts, observers, answered.now(&shared.clock), dispatch);
    }
}

/// A look at the clock for several answers.
#[derive(Clone, Copy, Debug, Default)]
struct LastAnswer {
    at: Option<Timestamp>,
    /// Answers that may still go by it.
    left: u32,
}

impl LastAnswer {
    /// The time of the next answer, from at most [`PER_LOOK`] answers ago.
    fn now(&mut self, clock: &Clock) -> Timestamp {
        match self.at {
            Some(at) if self.left > 0 => {
                self.left -= 1;
                at
            }
            _ => {
                let now = clock.now();
                *self = Self { at: Some(now), left: PER_LOOK - 1 };
                now
            }
        }
    }
}

/// Books a dispatched request and answers its caller.
fn answer(
    endpoints: &Endpoints,
    counts: &mut [Counts],
    observers: &mut Observers,
    now: Timestamp,
    Dispatch { request, outcome }: Dispatch<Pending>,
) {
    let counts = &mut counts[request.class.index()];
    let booking = match outcome {
        Ok(booking) => booking,
        Err(reason) => {
            return end(request, reason, now, observers, &mut counts.failed, &mut counts.cancelled);
        }
    };
    let waited = now.saturating_since(request.snapshot.arrival());
    let cost = request.snapshot.cost();
    let permit = permit(endpoints, &booking, request.class, cost, waited);
    let taken = request.payload.answer(Ok(permit));
    if taken {
        counts.dispatched(cost, waited);
    } else {
        counts.cancelled += 1;
    }
    if observers.any() {
        let fate = if taken { Fate::Dispatched(booking.endpoint()) } else { Fate::Left(None) };
        observers.tell(request.class, &request.snapshot, waited, &fate);
    }
}

/// The permit for what was booked, which counts from now on.
fn permit(endpoints: &Endpoints, booking: &Booking, class: ClassId, cost: u64, waited: Duration) -> Permit {
    let load = endpoints.load(booking.index()).clone();
    let tokens = booking.tokens();
    load.book(tokens);
    Permit { load, tokens, endpoint: booking.endpoint(), class, waited, cost, span: RequestSpan::none() }
}

/// Ends a request without a permit, and counts it by whether anybody took the answer.
fn end(
    Picked { class, snapshot, payload }: Picked<Pending>,
    reason: Reason,
    now: Timestamp,
    observers: &mut Observers,
    taken: &mut u64,
    cancelled: &mut u64,
) {
    let heard = observers.any().then(|| reason.clone());
    let is_taken = payload.answer(Err(reason));
    *(if is_taken { taken } else { cancelled }) += 1;
    if observers.any() {
        observers.left(class, &snapshot, now, heard.filter(|_| is_taken));
    }
}
