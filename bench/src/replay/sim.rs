//! The event loop: the real [`Scheduler`] on virtual time, with modelled workers.
//!
//! There are three kinds of events: the end of a worker's steps, the expiry of a waiting request, an arrival. All events of
//! an instant are taken in this order, then everything is dispatched that can go, then the workers that were touched decide
//! what they do next. That is the order of a turn of the engine's arbiter. Equal seeds give equal results, bit by bit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use tollgate::policy::Profile;
use tollgate::{
    Booking, Dispatch, Pin, Reason, Refused, Request, Scheduler, Timestamp, Worker as PublishedWorker,
    WorkerError, WorkerId, WorkerSnapshot,
};

use super::cache::Caches;
use super::classify::{Rules, Seen, draw};
use super::conserve::Conservation;
use super::ledger::Ledger;
use super::stats::Outcome;
use super::trace::{Arrival, TraceError};
use super::worker::{Flight, Progress, Worker, WorkerModel};

/// The workers, all alike, numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fleet {
    /// How many.
    pub workers: u32,
    /// What they are like.
    pub model: WorkerModel,
    /// Permits that the scheduler may give out for each (`max_active_requests`); `None` is no bound.
    pub permits: Option<u32>,
    /// Blocks that a worker's prefix cache holds.
    pub cache_blocks: usize,
    /// Tokens of a block.
    pub block_tokens: u64,
}

/// Everything that a run depends on, but the traffic.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The policy.
    pub profile: Arc<Profile>,
    /// The workers.
    pub fleet: Fleet,
    /// Which class a request asks for.
    pub classes: Rules,
    /// Groups of the report.
    pub groups: Rules,
    /// Names of the traces, for rules.
    pub sources: Vec<String>,
    /// Of the shares in rules.
    pub seed: u64,
}

/// Something that happened to a request, by its place in the traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It came, and went to a class.
    Arrived(u64, usize),
    /// It was sent to a worker.
    Dispatched(u64, u32),
    /// It had its first token.
    FirstToken(u64),
    /// It was finished.
    Done(u64),
    /// It was refused, expired, or failed.
    Lost(u64),
}

/// What the scheduler keeps with a waiting request.
#[derive(Debug)]
struct Job {
    place: u64,
    class: u32,
    output: u64,
    group: u32,
    blocks: Box<[u64]>,
}

/// A request that was sent to a worker.
#[derive(Debug)]
struct Flying {
    place: u64,
    booking: Booking,
    arrival: u64,
    class: u32,
    group: u32,
    worker: u32,
    raw: u64,
    cached: u64,
    blocks: Box<[u64]>,
}

/// No group.
const NONE: u32 = u32::MAX;

/// Replays `arrivals`, which come in order, and tells `observe` what happens when \[ns\].
///
/// # Errors
/// The first error of `arrivals`, or of the fleet.
pub fn simulate(
    setup: &Setup,
    arrivals: impl IntoIterator<Item = Result<Arrival, TraceError>>,
    mut observe: impl FnMut(u64, Event),
) -> Result<Outcome, SimError> {
    let mut floor = Floor::new(setup, &mut observe);
    let mut scheduler = Scheduler::new(&setup.profile);
    scheduler.set_workers(published(&setup.fleet)?.into());
    let mut arrivals = arrivals.into_iter();
    let mut next = arrivals.next().transpose()?;
    let mut place = 0;
    loop {
        let end = floor.next_end();
        let arrival = next.as_ref().map(|a| a.at);
        let expiry = scheduler.next_expiry().map(Timestamp::as_nanos);
        let Some(now) = [end, arrival, expiry].into_iter().flatten().min() else { break };
        floor.advance(now, &scheduler);
        floor.ends(&mut scheduler);
        floor.expiries(&mut scheduler);
        while let Some(arrival) = next.take_if(|a| a.at <= now) {
            floor.ledger.outcome.arrivals_span = now;
            floor.arrive(&mut scheduler, place, arrival);
            place += 1;
            next = arrivals.next().transpose()?;
        }
        while let Some(dispatch) = scheduler.dispatch() {
            floor.launch(dispatch);
        }
        floor.settle();
    }
    Ok(floor.close(&scheduler))
}

/// What the scheduler is told of the fleet.
fn published(fleet: &Fleet) -> Result<WorkerSnapshot, WorkerError> {
    let workers = (0..fleet.workers).map(|id| PublishedWorker {
        max_num_batched_tokens: Some(fleet.model.step_tokens),
        max_active_requests: fleet.permits,
        ..PublishedWorker::new(u64::from(id))
    });
    WorkerSnapshot::new(1, workers.collect())
}

/// Everything but the scheduler.
struct Floor<'a, O> {
    setup: &'a Setup,
    observe: &'a mut O,
    workers: Vec<Worker>,
    idle: u32,
    /// Announced ends of steps: time, worker, epoch. Those of an earlier epoch are not true any more.
    agenda: BinaryHeap<Reverse<(u64, u32, u32)>>,
    /// Workers that have to decide what to do next.
    touched: Vec<u32>,
    flights: Vec<Option<Flying>>,
    free: Vec<Flight>,
    caches: Caches,
    conservation: Conservation,
    marks: Vec<Progress>,
    ledger: Ledger,
}

impl<'a, O: FnMut(u64, Event)> Floor<'a, O> {
    fn new(setup: &'a Setup, observe: &'a mut O) -> Self {
        let Fleet { workers, model, permits, cache_blocks, block_tokens } = setup.fleet;
        let permits = permits.unwrap_or(u32::MAX);
        Self {
            observe,
            workers: (0..workers).map(|_| Worker::new()).collect(),
            idle: workers,
            agenda: BinaryHeap::new(),
            touched: Vec::new(),
            flights: Vec::new(),
            free: Vec::new(),
            caches: Caches::new(workers, cache_blocks, block_tokens),
            conservation: Conservation::new(&setup.profile, workers, model.step_tokens, permits),
            marks: Vec::new(),
            ledger: Ledger::new(setup),
            setup,
        }
    }

    /// When the next steps end.
    fn next_end(&mut self) -> Option<u64> {
        while let Some(Reverse((at, worker, epoch))) = self.agenda.peek().copied() {
            if self.workers[worker as usize].epoch == epoch {
                return Some(at);
            }
            self.agenda.pop();
        }
        None
    }

    /// Goes on to time `now`, with everything as the last instant left it.
    fn advance(&mut self, now: u64, scheduler: &Scheduler<Job>) {
        debug_assert_eq!(self.ledger.waiting(), scheduler.waiting());
        self.ledger.advance(now, self.idle, self.conservation.violated());
    }

    /// Ends the steps that end now.
    fn ends(&mut self, scheduler: &mut Scheduler<Job>) {
        while self.next_end() == Some(self.ledger.now) {
            let Some(Reverse((_, number, _))) = self.agenda.pop() else { return };
            let worker = &mut self.workers[number as usize];
            let before = worker.work.busy;
            let mut marks = std::mem::take(&mut self.marks);
            worker.finish(|progress| marks.push(progress));
            let ran = worker.work.busy - before;
            self.ledger.worked(ran);
            self.idle += 1;
            for mark in marks.drain(..) {
                match mark {
                    Progress::FirstToken(flight) => self.first_token(flight, scheduler),
                    Progress::Done(flight) => self.done(flight, scheduler),
                }
            }
            self.marks = marks;
            self.touched.push(number);
        }
    }

    fn first_token(&mut self, flight: Flight, scheduler: &mut Scheduler<Job>) {
        let flying = self.flights[flight as usize].as_mut().expect("in flight");
        let tokens = flying.booking.tokens() as i64;
        scheduler.prefill_complete(&mut flying.booking);
        self.conservation.load(flying.worker, -tokens, 0);
        if !flying.blocks.is_empty() {
            self.caches.insert(flying.worker, &flying.blocks);
        }
        let time = self.ledger.now - flying.arrival;
        let (class, group, place) = (flying.class, flying.group, flying.place);
        self.ledger.count(class, group, |counts| counts.first_token.record(time));
        (self.observe)(self.ledger.now, Event::FirstToken(place));
    }

    fn done(&mut self, flight: Flight, scheduler: &mut Scheduler<Job>) {
        let flying = self.flights[flight as usize].take().expect("in flight");
        self.free.push(flight);
        scheduler.release(flying.booking);
        self.conservation.load(flying.worker, 0, -1);
        let time = self.ledger.now - flying.arrival;
        self.ledger.count(flying.class, flying.group, |counts| {
            counts.completed += 1;
            counts.last_token.record(time);
        });
        (self.observe)(self.ledger.now, Event::Done(flying.place));
    }

    /// Ends what has waited too long.
    fn expiries(&mut self, scheduler: &mut Scheduler<Job>) {
        while let Some(expired) = scheduler.expire(Timestamp::from_nanos(self.ledger.now)) {
            let request = expired.request;
            let waited = self.ledger.now - request.snapshot.arrival().as_nanos();
            let (class, job) = (request.class.0, request.payload);
            self.leaves(class, request.snapshot.pin());
            self.ledger.count(class, job.group, |counts| {
                counts.expired += 1;
                counts.wait(waited);
            });
            self.lost(job.place);
        }
    }

    fn lost(&mut self, place: u64) {
        self.ledger.lost();
        (self.observe)(self.ledger.now, Event::Lost(place));
    }

    /// Takes in a request as the engine does.
    fn arrive(&mut self, scheduler: &mut Scheduler<Job>, place: u64, arrival: Arrival) {
        let setup = self.setup;
        let cached_on = match arrival.blocks.is_empty() {
            true => None,
            false => Some(self.caches.prefixes(&arrival.blocks, arrival.input)),
        };
        let best = cached_on.iter().flatten().map(|cached| cached.tokens).max().unwrap_or(0);
        let cached = arrival.cached.max(best);
        let drawn = match setup.classes.has_shares() || setup.groups.has_shares() {
            true => draw(setup.seed, place),
            false => 0.0,
        };
        let seen = Seen { arrival: &arrival, cached, sources: &setup.sources, drawn };
        let class = setup.classes.name(&seen).or(arrival.class.as_ref()).cloned();
        let group = setup.groups.first(&seen).map_or(NONE, |group| group as u32);
        let pin = arrival.pin.map(|worker| Pin { worker: WorkerId(worker), rank: None });
        let request = Request {
            cached_on: cached_on.map(Into::into),
            class,
            strict_priority: arrival.priority,
            priority_jump: arrival.jump,
            pin,
            deadline: arrival.deadline,
            ..Request::new(arrival.input, cached)
        };
        let snapshot = match request.snapshot(Timestamp::from_nanos(arrival.at)) {
            Ok(snapshot) => snapshot,
            Err(invalid) => {
                let class = setup.profile.classify(request.class.as_deref(), 0).0;
                self.ledger.count(class, group, |counts| {
                    (counts.arrived, counts.failed) = (counts.arrived + 1, counts.failed + 1)
                });
                self.ledger.outcome.fail(&Reason::Invalid(invalid));
                return self.lost(place);
            }
        };
        let id = setup.profile.classify(request.class.as_deref(), snapshot.uncached_tokens());
        let job = Job { place, class: id.0, output: arrival.output, group, blocks: arrival.blocks };
        (self.observe)(self.ledger.now, Event::Arrived(place, id.index()));
        self.ledger.count(id.0, group, |counts| counts.arrived += 1);
        if request.deadline == Some(Duration::ZERO) {
            self.ledger.count(id.0, group, |counts| counts.late += 1);
            return self.lost(place);
        }
        self.conservation.waiting(id.index(), pin.map(|pin| pin.worker.0), true);
        self.ledger.enters(id.0);
        if let Err(Refused { limit, .. }) =
            scheduler.submit(id, snapshot, job, &mut |_, dispatch| self.launch(dispatch))
        {
            self.leaves(id.0, pin);
            self.ledger.count(id.0, group, |counts| counts.refuse(limit.kind));
            self.lost(place);
        }
    }

    /// Sends a dispatched request to its worker.
    fn launch(&mut self, Dispatch { request, outcome }: Dispatch<Job>) {
        self.ledger.outcome.decisions += 1;
        let (class, snapshot, job) = (request.class.0, request.snapshot, request.payload);
        let (arrival, cost) = (snapshot.arrival().as_nanos(), snapshot.cost());
        let waited = self.ledger.now - arrival;
        self.ledger.serve(class, cost);
        self.leaves(class, snapshot.pin());
        let booking = match outcome {
            Ok(booking) => booking,
            Err(reason) => {
                self.ledger.count(class, job.group, |counts| counts.failed += 1);
                self.ledger.outcome.fail(&reason);
                return self.lost(job.place);
            }
        };
        self.ledger.dispatched(class, job.group, cost, waited);
        let worker = booking.endpoint().worker.0 as u32;
        self.conservation.load(worker, booking.tokens() as i64, 1);
        (self.observe)(self.ledger.now, Event::Dispatched(job.place, worker));
        let flight = self.free.pop().unwrap_or_else(|| {
            self.flights.push(None);
            (self.flights.len() - 1) as Flight
        });
        self.flights[flight as usize] = Some(Flying {
            place: job.place,
            booking,
            arrival,
            class,
            group: job.group,
            worker,
            raw: snapshot.raw_isl_tokens(),
            cached: snapshot.cached_tokens(),
            blocks: job.blocks,
        });
        self.workers[worker as usize].send(flight, job.output);
        self.touched.push(worker);
    }

    /// Ends an instant: what waits from now on competes, and workers decide what to do next.
    fn settle(&mut self) {
        self.ledger.settle();
        let model = &self.setup.fleet.model;
        for number in self.touched.drain(..) {
            let worker = &mut self.workers[number as usize];
            let was_idle = worker.is_idle();
            let stats = &mut self.ledger.outcome.workers[number as usize];
            let end = worker.plan(self.ledger.now, model, |flight| {
                let flying = self.flights[flight as usize].as_ref().expect("in flight");
                let hit = match flying.blocks.is_empty() {
                    true => flying.cached,
                    false => self.caches.touch(number, &flying.blocks, flying.raw),
                };
                stats.prompts += flying.raw;
                stats.hits += hit;
                flying.raw - hit
            });
            if let Some(end) = end {
                self.agenda.push(Reverse((end, number, worker.epoch)));
            }
            self.idle -= u32::from(was_idle && !worker.is_idle());
        }
    }

    /// A request waits no more.
    fn leaves(&mut self, class: u32, pin: Option<Pin>) {
        self.conservation.waiting(class as usize, pin.map(|pin| pin.worker.0), false);
        self.ledger.leaves(class);
    }

    /// The end: nothing can happen any more.
    fn close(mut self, scheduler: &Scheduler<Job>) -> Outcome {
        for (_, snapshot, job) in scheduler.iter() {
            let waited = self.ledger.now - snapshot.arrival().as_nanos();
            self.ledger.count(job.class, job.group, |counts| {
                counts.stuck += 1;
                counts.wait(waited);
            });
        }
        let mut outcome = self.ledger.close();
        for (stats, worker) in outcome.workers.iter_mut().zip(&self.workers) {
            stats.work = worker.work;
        }
        outcome
    }
}

/// Why a run gave no result.
#[derive(Debug)]
pub enum SimError {
    /// The traffic.
    Trace(TraceError),
    /// The fleet.
    Workers(WorkerError),
    /// There is no request in the traffic, or in the part of it that was asked for.
    Empty,
}

impl From<TraceError> for SimError {
    fn from(error: TraceError) -> Self {
        Self::Trace(error)
    }
}

impl From<WorkerError> for SimError {
    fn from(error: WorkerError) -> Self {
        Self::Workers(error)
    }
}

impl std::fmt::Display for SimError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Trace(error) => error.fmt(f),
            Self::Workers(error) => error.fmt(f),
            Self::Empty => f.write_str("no request to replay: the traces, or the part of them, are empty"),
        }
    }
}

impl std::error::Error for SimError {}
