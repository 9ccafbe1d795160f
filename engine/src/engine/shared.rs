//! What callers and the arbiter share.

use super::admission::Item;
use super::counts::{ClassDoor, Door, Wanted, count};
use super::guard::{ClassChoice, Guard};
use super::marks::Mark;
use crate::error::Reason;
use crate::policy::{ClassId, Profile};
use crate::request::{Request, Snapshot};
use crate::sync::clock::Clock;
use crate::sync::ingress::{ABANDONED, Producer};
use crate::sync::load::{EndpointLoad, Releases};
use crate::sync::sleep::Notifier;
use crate::sync::snapshot::SnapshotCell;
use crate::sync::{Arc, AtomicU8, AtomicU64, DataArc, Mutex, Ordering};
use crate::time::Timestamp;
use crate::worker::{Endpoint, WorkerSnapshot};

/// Everything that callers and the arbiter share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Where requests go, by the policy that the arbiter works with.
    pub(super) routes: SnapshotCell<Routes>,
    /// The policy that it shall work with.
    pub(super) profile: SnapshotCell<Profile>,
    pub(super) workers: SnapshotCell<WorkerSnapshot>,
    /// The endpoints of the worker snapshot that the arbiter works with.
    pub(super) loads: SnapshotCell<Vec<(Endpoint, Arc<EndpointLoad>)>>,
    /// Requests whose callers have left.
    pub(super) abandoned: Producer<Item, ABANDONED>,
    pub(super) notifier: Notifier,
    pub(super) releases: Arc<Releases>,
    pub(super) wanted: Wanted,
    pub(super) door: Door,
    pub(super) guard: Option<Guard>,
    pub(super) clock: Clock,
    phase: AtomicU8,
    /// When draining ends \[ns of `clock`\].
    drained_by: AtomicU64,
    /// Kills the arbiter.
    #[cfg(test)]
    pub(super) fault: crate::sync::AtomicBool,
    /// Why the engine closed by itself. Off the request path.
    cause: Mutex<Option<DataArc<str>>>,
}

/// One policy in force: which ingress queue belongs to each of its classes.
#[derive(Debug)]
pub(super) struct Routes {
    pub(super) profile: DataArc<Profile>,
    /// By position in the profile.
    pub(super) classes: Vec<Route>,
    /// Their numbers, side by side.
    pub(super) numbers: Vec<ClassId>,
}

impl Routes {
    pub(super) fn new(profile: DataArc<Profile>, classes: Vec<Route>) -> Self {
        let numbers = classes.iter().map(|route| route.class).collect();
        Self { profile, classes, numbers }
    }
}

/// The way to one class.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) class: ClassId,
    pub(super) producer: Producer<Item>,
    /// Says that there is something in the queue.
    pub(super) mark: Mark,
    /// Counts who does not get into it.
    pub(super) door: Arc<ClassDoor>,
}

/// What goes in with a request.
pub(super) struct Entry {
    pub(super) snapshot: Snapshot,
    /// What the class guard made of the class that the request names.
    pub(super) choice: ClassChoice,
}

impl Entry {
    /// Of a request that came in at `arrival`, or at a time that is to be noted.
    // Inlined: else all of it would be copied.
    #[inline(always)]
    pub(super) fn new(request: &Request, arrival: Option<Timestamp>) -> Self {
        let snapshot = request.freeze(arrival.unwrap_or(Timestamp::ZERO));
        Self { snapshot, choice: ClassChoice::AsAsked }
    }
}

/// How far the engine is from its end. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    Open,
    /// Takes nothing in and finishes what waits.
    Draining,
    Closed,
}

impl Shared {
    pub(super) fn new(
        routes: Routes,
        workers: WorkerSnapshot,
        abandoned: Producer<Item, ABANDONED>,
        notifier: Notifier,
        guard: Option<Guard>,
    ) -> Self {
        Self {
            profile: SnapshotCell::new(routes.profile.clone()),
            routes: SnapshotCell::new(DataArc::new(routes)),
            workers: SnapshotCell::new(DataArc::new(workers)),
            loads: SnapshotCell::new(DataArc::new(Vec::new())),
            abandoned,
            releases: Arc::new(Releases::new(notifier.clone())),
            notifier,
            wanted: Wanted::new(),
            door: Door::default(),
            guard,
            clock: Clock::start(),
            phase: AtomicU8::new(Phase::Open as u8),
            drained_by: AtomicU64::new(u64::MAX),
            #[cfg(test)]
            fault: crate::sync::AtomicBool::new(false),
            cause: Mutex::new(None),
        }
    }

    pub(super) fn phase(&self) -> Phase {
        // Relaxed: a hint to callers, for whom the queues say for certain that they are closed. The arbiter looks
        // again behind the fence of its sleep.
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Open,
            1 => Phase::Draining,
            _ => Phase::Closed,
        }
    }

    /// Goes on to `phase`, if it is not there yet.
    pub(super) fn enter(&self, phase: Phase) {
        // Relaxed: `notify` orders it before the look at the arbiter's sleep.
        self.phase.fetch_max(phase as u8, Ordering::Relaxed);
        self.notifier.notify();
    }

    /// Whether a request may come in now.
    ///
    /// # Errors
    /// Why it may not.
    pub(super) fn check(&self, request: &Request) -> Result<(), Reason> {
        if self.phase() != Phase::Open {
            count(&self.door.closed);
            return Err(self.closed());
        }
        request.check().map_err(|error| {
            count(&self.door.invalid);
            Reason::Invalid(error)
        })
    }

    /// Lets the class guard choose, if there is one.
    pub(super) fn choose(&self, request: &Request, entry: &mut Entry) {
        if let Some(guard) = &self.guard
            && request.class.is_some()
        {
            entry.choice = guard.0.choose(request);
        }
    }

    /// When a request came in: now, if that was not noted before.
    pub(super) fn arrival(&self, snapshot: &mut Snapshot, noted: &mut Option<Timestamp>) -> Timestamp {
        *noted.get_or_insert_with(|| {
            let now = self.clock.now();
            snapshot.came_in(now);
            now
        })
    }

    /// Starts to drain, until `limit` at the latest.
    pub(super) fn drain(&self, limit: Timestamp) {
        // Relaxed: `notify` orders both, and an arbiter that sees the phase first looks again.
        self.drained_by.fetch_min(limit.as_nanos(), Ordering::Relaxed);
        self.enter(Phase::Draining);
    }

    /// When draining ends.
    pub(super) fn drained_by(&self) -> Timestamp {
        // Relaxed: see `drain`.
        Timestamp::from_nanos(self.drained_by.load(Ordering::Relaxed))
    }

    /// Closes because something went wrong.
    pub(super) fn fail(&self, cause: DataArc<str>) {
        *self.cause.lock() = Some(cause);
    }

    #[cold]
    pub(super) fn closed(&self) -> Reason {
        Reason::Closed { cause: self.cause.lock().clone() }
    }
}
