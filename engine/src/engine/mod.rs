//! The threaded layer: queues, clocks and wake-ups around a [`Scheduler`](crate::Scheduler). It decides nothing.
//!
//! A request goes [`Engine::admit`] → its class's ingress queue → `arbiter` → scheduler → [`Admission`] →
//! [`Permit`], and its load goes back from the permit through `endpoints` to the scheduler.

mod admission;
mod arbiter;
mod builder;
mod cores;
mod endpoints;
mod permit;

use std::fmt;

pub use admission::Admission;
pub use builder::{EngineBuilder, StartError};
pub use cores::CorePinning;
pub use permit::Permit;

use crate::error::{Reason, Rejected, WaitCause};
use crate::policy::{ClassId, Profile};
use crate::request::Request;
use crate::scheduler::Booked;
use crate::sync::clock::Clock;
use crate::sync::dirty::DirtyBitmap;
use crate::sync::ingress::{Producer, PushError};
use crate::sync::load::{EndpointLoad, Releases};
use crate::sync::sleep::Notifier;
use crate::sync::snapshot::SnapshotCell;
use crate::sync::{Arc, AtomicBool, DataArc, JoinHandle, Mutex, Ordering, current};
use crate::worker::{Endpoint, WorkerSnapshot};
use admission::Item;

/// What the arbiter does when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idle {
    /// Looks again a few times, then sleeps until it is woken.
    #[default]
    Backoff,
    /// Looks again for ever: for a core that the arbiter has for itself.
    Spin,
}

/// What callers and the arbiter share.
#[derive(Debug)]
struct Shared {
    profile: DataArc<Profile>,
    producers: Vec<Producer<Item>>,
    /// Classes with news in their ingress queue.
    fresh: DirtyBitmap,
    notifier: Notifier,
    workers: SnapshotCell<WorkerSnapshot>,
    releases: Arc<Releases>,
    /// The endpoints of the snapshot that the arbiter works with.
    loads: SnapshotCell<Vec<(Endpoint, Arc<EndpointLoad>)>>,
    clock: Clock,
    closed: AtomicBool,
    /// Why the engine closed by itself. Off the request path.
    cause: Mutex<Option<DataArc<str>>>,
}

impl Shared {
    fn new(
        profile: DataArc<Profile>,
        workers: WorkerSnapshot,
        producers: Vec<Producer<Item>>,
        notifier: Notifier,
    ) -> Self {
        Self {
            fresh: DirtyBitmap::new(producers.len()),
            producers,
            profile,
            workers: SnapshotCell::new(DataArc::new(workers)),
            releases: Arc::new(Releases::new(notifier.clone())),
            notifier,
            loads: SnapshotCell::new(DataArc::new(Vec::new())),
            clock: Clock::start(),
            closed: AtomicBool::new(false),
            cause: Mutex::new(None),
        }
    }

    fn close(&self) {
        // Relaxed: `notify` orders it before the look at the arbiter's sleep.
        self.closed.store(true, Ordering::Relaxed);
        self.notifier.notify();
    }

    #[cold]
    fn closed_reason(&self) -> Reason {
        Reason::Closed { cause: self.cause.lock().clone() }
    }
}

/// The scheduler engine of one worker pool. Clones share it; the last one closes it.
///
/// ```
/// use tollgate::policy::{ClassSpec, PolicySpec, Profile};
/// use tollgate::{Engine, Request, Worker, WorkerSnapshot};
///
/// let profile = Profile::new(PolicySpec {
///     classes: vec![ClassSpec::explicit("premium", 512), ClassSpec::explicit("regular", 128)],
///     ..PolicySpec::default()
/// })?;
/// let engine = Engine::builder(profile)
///     .workers(WorkerSnapshot::new(1, vec![Worker::new(1), Worker::new(2)])?)
///     .start()?;
///
/// let mut permit = engine.admit(Request::new(2_000, 1_500).with_class("premium"))?.wait()?;
/// // … send the request to `permit.endpoint()`; with the first token:
/// permit.prefill_complete();
/// // … and with the last one:
/// drop(permit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Engine(Arc<Owner>);

/// The last clone of an engine drops this.
struct Owner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Builds an engine for the classes of `profile`.
    pub fn builder(profile: impl Into<DataArc<Profile>>) -> EngineBuilder {
        EngineBuilder::new(profile.into())
    }

    fn new(shared: Arc<Shared>, thread: JoinHandle<()>) -> Self {
        Self(Arc::new(Owner { shared, thread: Mutex::new(Some(thread)) }))
    }

    /// Hands a request to the arbiter: lock-free, one allocation, from any thread.
    ///
    /// # Errors
    /// The request makes no sense, its deadline is over, its class's ingress queue is full, or the engine is closed.
    /// The request comes back with the reason.
    pub fn admit(&self, request: Request) -> Result<Admission, Rejected> {
        let shared = &*self.0.shared;
        // Relaxed: a hint that spares the rest; the queue says for certain.
        if shared.closed.load(Ordering::Relaxed) {
            return Err(Rejected { reason: shared.closed_reason(), request });
        }
        let snapshot = match request.snapshot(shared.clock.now()) {
            Ok(snapshot) => snapshot,
            Err(error) => return Err(Rejected { reason: Reason::Invalid(error), request }),
        };
        if snapshot.deadline().is_some_and(|deadline| deadline <= snapshot.arrival()) {
            let reason =
                Reason::DeadlineExceeded { waited: std::time::Duration::ZERO, cause: WaitCause::Late };
            return Err(Rejected { reason, request });
        }
        let class = shared.profile.classify(request.class.as_deref(), snapshot.uncached_tokens());
        let (admission, queued) = Admission::new(request, snapshot);
        let producer = &shared.producers[class.index()];
        match producer.push(queued) {
            Ok(()) => {
                shared.fresh.mark(class.index());
                shared.notifier.notify();
                Ok(admission)
            }
            Err(PushError::Full(queued)) => {
                let class = self.class_name(class).into();
                let reason = Reason::IngressFull { class, capacity: producer.capacity() };
                Err(admission::reject(admission, queued, reason))
            }
            Err(PushError::Closed(queued)) => {
                Err(admission::reject(admission, queued, shared.closed_reason()))
            }
        }
    }

    /// Replaces the worker snapshot by a newer one; lock-free, from any thread. Bookings stay with the incarnation
    /// of the worker that they were made on.
    ///
    /// # Errors
    /// The version is not above the current one, which stays.
    pub fn publish(&self, snapshot: WorkerSnapshot) -> Result<(), StaleSnapshot> {
        let offered = snapshot.version();
        let workers = &self.0.shared.workers;
        workers
            .replace_if(DataArc::new(snapshot), |current| current.version() < offered)
            .map_err(|current| StaleSnapshot { offered, current: current.version() })?;
        self.0.shared.notifier.notify();
        Ok(())
    }

    /// Ends everything that waits with [`Reason::Closed`], and everything that comes later. Permits stay valid. From
    /// any thread, any number of times; returns at once.
    pub fn close(&self) {
        self.0.shared.close();
    }

    /// The policy profile.
    pub fn profile(&self) -> &Profile {
        &self.0.shared.profile
    }

    /// Name of a class.
    ///
    /// # Panics
    /// If the profile has no such class.
    pub fn class_name(&self, class: ClassId) -> &str {
        &self.0.shared.profile.classes()[class.index()].name
    }

    /// What this engine has booked on each endpoint of the snapshot that the arbiter works with.
    pub fn booked(&self) -> Vec<(Endpoint, Booked)> {
        let booked = |load: &EndpointLoad| {
            let (tokens, permits) = load.booked();
            Booked { tokens, permits }
        };
        self.0.shared.loads.load().iter().map(|(endpoint, load)| (*endpoint, booked(load))).collect()
    }

    /// Permits that were released after their worker's incarnation had changed.
    pub fn stale_releases(&self) -> u64 {
        self.0.shared.releases.stale()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("classes", &self.0.shared.profile.classes().len())
            .field("booked", &self.booked())
            .finish_non_exhaustive()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.close();
        let thread = self.thread.lock().take();
        // A waker or a selector may hold the last clone: the arbiter cannot wait for itself, and ends anyway.
        if let Some(thread) = thread.filter(|t| t.thread().id() != current().id()) {
            drop(thread.join());
        }
    }
}

/// A snapshot that is not newer than the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleSnapshot {
    /// Version of the snapshot that was offered.
    pub offered: u64,
    /// Version of the current one, which stays.
    pub current: u64,
}

impl fmt::Display for StaleSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offered, current } = self;
        write!(f, "worker snapshot version {offered} is not above the current version {current}")
    }
}

impl std::error::Error for StaleSnapshot {}
