//! Hooks: whoever wants to hear what becomes of each request, on the arbiter's thread.

use std::fmt;
use std::time::Duration;

use super::contain::contained;
use crate::error::Reason;
use crate::policy::ClassId;
use crate::request::Snapshot;
use crate::sync::DataArc;
use crate::time::Timestamp;
use crate::worker::Endpoint;

/// Hears what becomes of every request that [`Engine::admit`](crate::Engine::admit) has taken, one call for each, after its
/// caller has been answered; just before, if it was answered at once ([`Idle::Assist`](crate::Idle::Assist)). Of what is
/// turned away there its caller learns at once, and counters have it: [`Engine::snapshot`](crate::Engine::snapshot).
///
/// Hooks run on the arbiter's thread, between two decisions: one that takes long holds up everybody, and one that
/// blocks stops the engine. One that panics costs nobody anything: its panic is
/// [counted](crate::ArbiterStatus::hook_panics) and it is called again with the next request.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use tollgate::policy::{ClassSpec, PolicySpec, Profile};
/// use tollgate::{Endpoint, Engine, Observed, Observer, Request, Worker, WorkerSnapshot};
///
/// /// Counts what was computed again although some worker had it cached.
/// struct Recomputed(Arc<AtomicU64>);
///
/// impl Observer for Recomputed {
///     fn dispatched(&mut self, request: &Observed<'_>, endpoint: Endpoint) {
///         let missed = request.snapshot.prefill_on(endpoint.worker) - request.snapshot.uncached_tokens();
///         self.0.fetch_add(missed, Ordering::Relaxed);
///     }
/// }
///
/// let classes = vec![ClassSpec::explicit("only", 1)];
/// let profile = Profile::new(PolicySpec { classes, ..PolicySpec::default() })?;
/// let missed = Arc::new(AtomicU64::new(0));
/// let engine = Engine::builder(profile)
///     .workers(WorkerSnapshot::new(1, vec![Worker::new(1)])?)
///     .observer(Recomputed(missed.clone()))
///     .start()?;
/// // A hundred tokens are cached, but on a worker that is gone.
/// let request = Request { cached_on: Some([].into()), ..Request::new(400, 100) };
/// let permit = engine.admit(request)?.wait()?;
/// engine.snapshot(); // the hook may still be running when the caller has its permit, but not after this
/// assert_eq!(missed.load(Ordering::Relaxed), 100);
/// # drop(permit);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Observer: Send {
    /// Which classes there are, those that drain after a reload included: before anything else, and after each
    /// reload.
    fn classes(&mut self, classes: &[(ClassId, DataArc<str>)]) {
        let _ = classes;
    }

    /// A request got its permit for `endpoint`.
    fn dispatched(&mut self, request: &Observed<'_>, endpoint: Endpoint) {
        let _ = (request, endpoint);
    }

    /// A request is gone without a permit: for the reason that its caller got, or `None` if its caller has left.
    fn left(&mut self, request: &Observed<'_>, reason: Option<&Reason>) {
        let _ = (request, reason);
    }
}

/// A request as an [`Observer`] sees it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Observed<'a> {
    /// Number of its class.
    pub class: ClassId,
    /// Name of its class.
    pub name: &'a DataArc<str>,
    /// What was frozen at its arrival.
    pub snapshot: &'a Snapshot,
    /// Time from its arrival until now: of a dispatched one, what its permit says.
    pub waited: Duration,
}

/// The observers of an engine. Without any, an event is one branch.
#[derive(Default)]
pub(super) struct Observers {
    observers: Vec<Box<dyn Observer>>,
    /// By number of the class; kept only for observers.
    names: Vec<Option<DataArc<str>>>,
    panics: u64,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub(super) enum Fate {
    Dispatched(Endpoint),
    /// `None`: its caller has left.
    Left(Option<Reason>),
}

impl Observers {
    pub(super) fn add(&mut self, observer: Box<dyn Observer>) {
        self.observers.push(observer);
    }

    /// Whether anybody listens: then what is told is worth preparing.
    #[inline]
    pub(super) fn any(&self) -> bool {
        !self.observers.is_empty()
    }

    /// How often one panicked.
    pub(super) fn panics(&self) -> u64 {
        self.panics
    }

    /// There are new classes.
    pub(super) fn classes<'a>(&mut self, classes: impl Iterator<Item = (ClassId, &'a DataArc<str>)>) {
        if !self.any() {
            return;
        }
        let classes: Vec<_> = classes.map(|(id, name)| (id, name.clone())).collect();
        let highest = classes.iter().map(|(id, _)| id.index() + 1).max().unwrap_or(0);
        self.names.clear();
        self.names.resize(highest, None);
        classes.iter().for_each(|(id, name)| self.names[id.index()] = Some(name.clone()));
        for observer in &mut self.observers {
            let told = contained(|| observer.classes(&classes));
            self.panics += u64::from(told.is_none());
        }
    }

    /// A request has met its fate.
    #[cold]
    pub(super) fn tell(&mut self, class: ClassId, snapshot: &Snapshot, waited: Duration, fate: &Fate) {
        // Every class with requests is in the list.
        let Some(Some(name)) = self.names.get(class.index()) else { return };
        let request = Observed { class, name, snapshot, waited };
        for observer in &mut self.observers {
            let told = contained(|| match fate {
                Fate::Dispatched(endpoint) => observer.dispatched(&request, *endpoint),
                Fate::Left(reason) => observer.left(&request, reason.as_ref()),
            });
            self.panics += u64::from(told.is_none());
        }
    }

    /// A request has left at `now`, without a permit.
    #[cold]
    pub(super) fn left(&mut self, class: ClassId, snapshot: &Snapshot, now: Timestamp, why: Option<Reason>) {
        let waited = now.saturating_since(snapshot.arrival());
        self.tell(class, snapshot, waited, &Fate::Left(why));
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observers").field("observers", &self.observers.len()).finish_non_exhaustive()
    }
}
