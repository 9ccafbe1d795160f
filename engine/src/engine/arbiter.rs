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
use super::admission::{Item, Pending};
use super::contain::contained;
use super::counts::{Counts, EngineSnapshot, Turns};
use super::desk::{Desk, LastAnswer, end};
use super::endpoints::Endpoints;
use super::marks::Marks;
use super::observe::Observers;
use super::shared::{Phase, Route, Routes, Shared};
use crate::error::Reason;
use crate::policy::{ClassId, Profile};
use crate::scheduler::{Picked, Scheduler};
use crate::sync::ingress::{ABANDONED, Consumer};
use crate::sync::sleep::Sleeper;
use crate::sync::snapshot::Reader;
use crate::sync::{Arc, DataArc, Step, patience, point, spin_loop};
use crate::time::Timestamp;
use crate::worker::WorkerSnapshot;

/// Requests taken from one class, and dispatches made, per turn. Guessed: some 50 µs of work.
const BATCH: usize = 256;
/// Requests per turn that classes get taken in beyond a batch of waiting ones. Guessed: as long as the dispatches.
const INTAKE: usize = 4 * BATCH;
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
    pub(super) draining: bool,
    /// A turn has come to a bound: there is more to do.
    pub(super) more: bool,
    /// What the arbiter's sleep goes by.
    pub(super) alarm: Alarm,
    /// The next turn is for the arbiter's own thread.
    pub(super) alone: bool,
    /// A turn has panicked.
    pub(super) died: bool,
}

/// When a sleep ends by itself, and the end of the drain that it has taken into account.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alarm {
    pub(super) at: Option<Timestamp>,
    pub(super) drained_by: Timestamp,
}

/// The consuming end of a class's ingress, and the way to the other one.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) consumer: Consumer<Item>,
    pub(super) route: Route,
    /// The class is in [`Arbiter::fresh`].
    pub(super) listed: bool,
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
        let mut close = |mut request: Picked<Pending>, counts: &mut Counts| {
            let closed = Reason::Closed { cause: cause.clone() };
            end(&mut request, closed, now, observers, &mut counts.closed, &mut counts.cancelled);
        };
        for ((class, queue), counts) in (0..).map(ClassId).zip(&mut self.classes).zip(&mut *counts) {
            let Some(queue) = queue else { continue };
            queue.consumer.close(|item| {
                counts.taken_in();
                let mut payload = Pending::new(item);
                let snapshot = payload.take_snapshot();
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
    pub(super) fn timed_turn(&mut self, started: Timestamp, wait: bool) -> bool {
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

    pub(super) fn is_over(&self) -> bool {
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
    pub(super) fn alarm(&self) -> Alarm {
        let drained_by = self.shared.drained_by();
        let until = [self.desk.scheduler.next_expiry(), self.draining.then_some(drained_by)];
        Alarm { at: until.into_iter().flatten().min(), drained_by }
    }

    /// The look before a sleep: whether there is something to do. Releases may be nothing to do.
    pub(super) fn has_work(&mut self, with_releases: bool) -> bool {
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
            let mut next = self.desk.scheduler.dispatch();
            let Some(dispatch) = &mut next else { break };
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
