//! The arbiter: the one thread that owns the scheduler. Each turn it takes what has come in, bounded, and dispatches
//! what can go, bounded; it sleeps when there is nothing.
//!
//! The bounds keep the classes' shares when the arbiter itself is the bottleneck. Every class's ingress queue is
//! drained by up to [`BATCH`] requests before the next [`BATCH`] dispatches, so a class always has as much in its
//! lanes as deficit round robin could give it, and no class's backlog stands in front of another's. One turn takes
//! in at most [`INTAKE`] requests, so that a flood on many classes cannot keep the arbiter from dispatching.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::admission::{Item, Pending};
use super::endpoints::Endpoints;
use super::permit::Permit;
use super::{Idle, Shared};
use crate::error::Reason;
use crate::policy::ClassId;
use crate::scheduler::{Dispatch, Scheduler};
use crate::sync::ingress::{Consumer, Queued};
use crate::sync::sleep::Sleeper;
use crate::sync::snapshot::Reader;
use crate::sync::{Arc, DataArc, Ordering, spin_loop, spins};
use crate::worker::WorkerSnapshot;

/// Requests taken from one class, and dispatches made, per turn. Guessed: some 50 µs of work.
const BATCH: usize = 256;
/// Requests taken in altogether per turn. Derived: with up to four classes in flood each gets its whole batch.
const INTAKE: usize = 4 * BATCH;
/// Fruitless turns before the arbiter sleeps. Guessed: some 10 µs, a third of what a wake-up costs.
const FRUITLESS_TURNS: u32 = 64;

/// The state of the arbiter thread.
#[derive(Debug)]
pub(super) struct Arbiter {
    shared: Arc<Shared>,
    scheduler: Scheduler<Pending>,
    endpoints: Endpoints,
    workers: Reader<WorkerSnapshot>,
    queues: Vec<Queue>,
    /// Classes whose ingress queue may hold something, in the order of their news.
    fresh: VecDeque<ClassId>,
    sleeper: Sleeper,
    idle: Idle,
}

/// The consuming end of a class's ingress.
#[derive(Debug)]
pub(super) struct Queue {
    consumer: Consumer<Item>,
    /// The class is in [`Arbiter::fresh`].
    listed: bool,
}

impl Queue {
    pub(super) fn new(consumer: Consumer<Item>) -> Self {
        Self { consumer, listed: false }
    }
}

impl Arbiter {
    pub(super) fn new(
        shared: Arc<Shared>,
        scheduler: Scheduler<Pending>,
        queues: Vec<Queue>,
        sleeper: Sleeper,
        idle: Idle,
    ) -> Self {
        let workers = shared.workers.reader();
        let mut arbiter = Self {
            endpoints: Endpoints::new(shared.releases.clone()),
            scheduler,
            workers,
            fresh: VecDeque::with_capacity(queues.len()),
            queues,
            sleeper,
            idle,
            shared,
        };
        arbiter.set_workers(arbiter.shared.workers.load());
        arbiter
    }

    /// Runs until the engine is closed, then answers everything that still waits.
    pub(super) fn run(mut self) {
        // Nothing of the arbiter is used again after a panic but its requests.
        let died = catch_unwind(AssertUnwindSafe(|| self.turns())).err();
        let cause: Option<DataArc<str>> = died.map(|_| DataArc::from("the arbiter panicked"));
        if let Some(cause) = &cause {
            *self.shared.cause.lock() = Some(cause.clone());
        }
        // Relaxed: a hint to callers; the queues themselves say for certain that they are closed.
        self.shared.closed.store(true, Ordering::Relaxed);
        let closed = || Err(Reason::Closed { cause: cause.clone() });
        for queue in &mut self.queues {
            queue.consumer.close(|item| Pending::new(item).answer(closed()));
        }
        for pending in self.scheduler.into_payloads() {
            pending.answer(closed());
        }
    }

    fn turns(&mut self) {
        let mut fruitless = 0;
        // Relaxed: nothing is published with the flag; before it sleeps, the arbiter looks again behind a fence.
        while !self.shared.closed.load(Ordering::Relaxed) {
            if self.turn() {
                fruitless = 0;
            } else if self.idle == Idle::Spin || fruitless < spins(FRUITLESS_TURNS) {
                fruitless += 1;
                spin_loop();
            } else {
                fruitless = 0;
                self.sleep();
            }
        }
    }

    fn sleep(&mut self) {
        let Self { sleeper, shared, endpoints, workers, .. } = self;
        sleeper.sleep(None, || {
            shared.fresh.any()
                || endpoints.has_releases()
                || workers.has_newer()
                || shared.closed.load(Ordering::Relaxed)
        });
    }

    /// One turn; returns whether there was anything to do.
    fn turn(&mut self) -> bool {
        let mut busy = false;
        if let Some(snapshot) = self.workers.newer() {
            self.set_workers(snapshot);
            busy = true;
        }
        busy |= self.endpoints.take_releases(&mut self.scheduler);
        busy |= self.take_in();
        busy |= self.dispatch();
        busy
    }

    fn set_workers(&mut self, snapshot: DataArc<WorkerSnapshot>) {
        self.endpoints.set_workers(snapshot, &mut self.scheduler);
        let loads = self.scheduler.endpoints().map(|(_, endpoint)| endpoint);
        let loads = loads.zip(self.endpoints.loads().iter().cloned()).collect();
        let replaced = self.shared.loads.replace_if(DataArc::new(loads), |_| true);
        debug_assert!(replaced.is_ok(), "every value is accepted");
    }

    /// Moves a bounded number of requests from the ingress queues into their lanes.
    fn take_in(&mut self) -> bool {
        let Self { shared, scheduler, endpoints, queues, fresh, .. } = self;
        shared.fresh.sweep(|class| {
            if !std::mem::replace(&mut queues[class].listed, true) {
                fresh.push_back(ClassId(class as u32));
            }
        });
        let mut budget = INTAKE;
        for _ in 0..fresh.len() {
            if budget == 0 {
                break;
            }
            let Some(class) = fresh.pop_front() else { break };
            let queue = &mut queues[class.index()];
            let most = BATCH.min(budget);
            let taken = queue.consumer.drain(most, |item| submit(shared, scheduler, endpoints, class, item));
            budget -= taken;
            if taken == most {
                fresh.push_back(class);
            } else {
                queue.listed = false;
            }
        }
        budget < INTAKE
    }

    /// Dispatches a bounded number of requests.
    fn dispatch(&mut self) -> bool {
        let Self { shared, scheduler, endpoints, .. } = self;
        for done in 0..BATCH {
            let Some(dispatch) = scheduler.dispatch() else { return done > 0 };
            answer(shared, endpoints, dispatch);
        }
        true
    }
}

/// Puts one request into its lane, or refuses it.
fn submit(
    shared: &Shared,
    scheduler: &mut Scheduler<Pending>,
    endpoints: &Endpoints,
    class: ClassId,
    item: Queued<Item>,
) {
    let mut pending = Pending::new(item);
    if pending.is_abandoned() {
        return;
    }
    let snapshot = pending.take_snapshot().expect("the arbiter takes the snapshot once");
    let refused = scheduler.submit(class, snapshot, pending, &mut |_, d| answer(shared, endpoints, d)).err();
    if let Some(refused) = refused {
        refused.payload.answer(Err(Reason::QueueLimit(refused.limit)));
    }
}

/// Books a dispatched request and answers its caller.
fn answer(shared: &Shared, endpoints: &Endpoints, dispatch: Dispatch<Pending>) {
    let request = dispatch.request;
    let answer = dispatch.outcome.map(|booking| {
        let load = endpoints.load(booking.index()).clone();
        load.book(booking.tokens());
        Permit {
            load,
            tokens: booking.tokens(),
            endpoint: booking.endpoint(),
            class: request.class,
            waited: shared.clock.now().saturating_since(request.snapshot.arrival()),
            cost: request.snapshot.cost(),
        }
    });
    request.payload.answer(answer);
}
