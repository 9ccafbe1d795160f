//! The threaded layer: queues, clocks and wake-ups around a [`Scheduler`](crate::Scheduler). It decides nothing.
//!
//! A request goes [`Engine::admit`] → its class's ingress queue → `arbiter` → scheduler → [`Admission`] →
//! [`Permit`], and its load goes back from the permit through `endpoints` to the scheduler.

mod admission;
mod arbiter;
mod assist;
mod builder;
mod contain;
mod cores;
mod counts;
mod desk;
mod endpoints;
mod guard;
mod marks;
mod monitor;
mod observe;
mod permit;
mod picture;
mod reload;
mod shared;
mod span;

use std::fmt;
use std::time::Duration;

pub use admission::Admission;
pub use builder::{EngineBuilder, StartError};
pub use cores::CorePinning;
pub use counts::{ArbiterStatus, ClassStatus, EndpointStatus, EngineSnapshot, Refused};
pub use guard::{ClassChoice, ClassGuard, ClassTable};
pub use monitor::Monitor;
pub use observe::{Observed, Observer};
pub use permit::Permit;

use crate::error::{Reason, Rejected, WaitCause};
use crate::policy::{ClassId, Profile};
use crate::request::Request;
use crate::scheduler::Booked;
use crate::sync::ingress::PushError;
use crate::sync::ticket::{Asker, ticket_with};
use crate::sync::{Arc, DataArc, JoinHandle, Mutex};
use crate::time::Timestamp;
use crate::worker::{Endpoint, WorkerSnapshot};
use admission::{Answer, Asked, Handle, Outside, Submission};
use arbiter::Arbiter;
use assist::{Visit, Visited};
use counts::count;
use shared::{Entry, Phase, Shared};
use span::RequestSpan;

/// What the arbiter does when there is nothing to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Idle {
    /// Looks again a few times, then sleeps until it is woken.
    #[default]
    Backoff,
    /// Looks again for ever: for a core that the arbiter has for itself.
    Spin,
    /// Sleeps at once and lets callers do its work: whoever has news for a sleeping arbiter runs its turns itself, a
    /// bounded number of them, instead of waking another thread. Most requests that can go at once have their answer
    /// when `admit` returns; if nothing waits in any class, it has cost no allocation.
    ///
    /// What that costs: any call to the engine, also the drop of a [`Permit`] or an [`Admission`], may take as long as
    /// some turns. The selector, observers and wakers run on callers' threads, so nobody may call the engine while
    /// holding a lock that one of those takes. A thread that is suspended in the middle of a turn holds up all that
    /// wait for an answer until it goes on, though nobody who admits, cancels or releases. A thread that unwinds runs
    /// no turns.
    Assist,
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
pub struct Engine {
    handle: Arc<Handle>,
    owner: Arc<Owner>,
}

/// The last clone of an engine drops this.
struct Owner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Clone for Engine {
    /// Another owner of the same engine. Threads that admit requests each by a clone of their own do not share a
    /// counter of owners.
    fn clone(&self) -> Self {
        let handle = Arc::new(Handle { shared: self.owner.shared.clone() });
        Self { handle, owner: self.owner.clone() }
    }
}

impl Engine {
    /// Builds an engine for the classes of `profile`.
    pub fn builder(profile: impl Into<DataArc<Profile>>) -> EngineBuilder {
        EngineBuilder::new(profile.into())
    }

    fn new(shared: Arc<Shared>, thread: JoinHandle<()>) -> Self {
        let handle = Arc::new(Handle { shared: shared.clone() });
        Self { handle, owner: Arc::new(Owner { shared, thread: Mutex::new(Some(thread)) }) }
    }

    /// Hands a request to the arbiter: lock-free, one allocation, from any thread. With [`Idle::Assist`] it may be answered
    /// at once, without that allocation.
    ///
    /// # Errors
    /// The request makes no sense, its deadline is over, its class's ingress queue is full, or the engine is closed or
    /// draining. The request comes back with the reason.
    pub fn admit(&self, request: Request) -> Result<Admission, Rejected> {
        let shared = &*self.handle.shared;
        // A look at the clock is a tenth of an answer at once, which does not need it.
        let is_timed = request.deadline.is_some() || shared.guard.is_some() || !shared.notifier.is_quiet();
        let mut arrival = is_timed.then(|| shared.clock.now());
        let span = RequestSpan::open();
        if let Err(reason) = shared.check(&request) {
            span.refused(&reason);
            return Err(Rejected { reason, request });
        }
        let mut entry = Entry::new(&request, arrival);
        shared.choose(&request, &mut entry);
        let mut visited = Visited::default();
        if !entry.snapshot.is_late() {
            shared.notifier.visit(|arbiter: &mut Arbiter| {
                arbiter.admit_at_once(Visit {
                    request: &request,
                    entry: &mut entry,
                    arrival: &mut arrival,
                    wants_name: span.is_heard(),
                    outcome: &mut visited,
                })
            });
        }
        let Some(answer) = visited.answer else {
            let arrival = shared.arrival(&mut entry.snapshot, &mut arrival);
            // What is asked goes into the ticket here: wherever else it went first, it would be copied.
            let (asker, queued) = ticket_with(Submission::blank);
            let mut outside = Outside::new(queued);
            outside.question_mut().fill(request, entry);
            return self.admit_by_queue(asker, outside, arrival, visited.was_there, span);
        };
        // Who hears of it is the caller's, and comes when the desk is laid down.
        if let Some(class) = visited.class {
            span.classified(&class, entry.snapshot.cost());
        }
        if entry.choice.is_clamped() {
            count(&shared.door.clamped);
        }
        Ok(Admission::answered(answer.map_err(|reason| Box::new(Rejected { reason, request })), span))
    }

    #[inline(never)]
    fn admit_by_queue(
        &self,
        asker: Asker<Submission, Answer>,
        mut outside: Outside,
        arrival: Timestamp,
        was_there: bool,
        span: RequestSpan,
    ) -> Result<Admission, Rejected> {
        let asked = Asked::new(asker, self.handle.clone());
        loop {
            let reason;
            (outside, reason) = match self.push(outside, arrival, was_there, &span) {
                Ok(()) => return Ok(Admission::asked(asked, span)),
                Err(refused) => refused,
            };
            if let Some(reason) = reason.or_else(|| self.look_again(&mut outside, arrival).err()) {
                span.refused(&reason);
                return Err(asked.reject(outside, reason));
            }
        }
    }

    /// Freezes anew what the policy may have changed.
    #[cold]
    fn look_again(&self, outside: &mut Outside, arrival: Timestamp) -> Result<(), Reason> {
        let shared = &*self.handle.shared;
        let request = outside.question().request();
        shared.check(request)?;
        let mut entry = Entry::new(request, Some(arrival));
        shared.choose(request, &mut entry);
        outside.question_mut().renew(entry);
        Ok(())
    }

    /// Pushes a request into the queue of its class. It comes back with the reason, or with none if the class went between
    /// the look at the policy and that.
    fn push(
        &self,
        outside: Outside,
        arrival: Timestamp,
        was_there: bool,
        span: &RequestSpan,
    ) -> Result<(), (Outside, Option<Reason>)> {
        let shared = &*self.handle.shared;
        shared.routes.with(|routes| {
            let submission = outside.question();
            let snapshot = submission.snapshot().expect("the arbiter takes it");
            let position = routes.profile.classify(submission.class(), snapshot.uncached_tokens());
            let route = &routes.classes[position.index()];
            span.classified(&routes.profile.classes()[position.index()].name, snapshot.cost());
            if snapshot.is_late() {
                count(&route.door.late);
                let reason = Reason::DeadlineExceeded { waited: Duration::ZERO, cause: WaitCause::Late };
                return Err((outside, Some(reason)));
            }
            let is_clamped = submission.is_clamped();
            match route.producer.push(outside.into_queued()) {
                Ok(()) => {
                    route.mark.mark();
                    // A visit and a guard take as long as they take.
                    if was_there || shared.guard.is_some() {
                        shared.notifier.notify();
                    } else {
                        shared.notifier.notify_at(arrival);
                    }
                    if is_clamped {
                        count(&shared.door.clamped);
                    }
                    Ok(())
                }
                Err(PushError::Full(queued)) => {
                    count(&route.door.full);
                    let class = routes.profile.classes()[position.index()].name.as_str().into();
                    let reason = Reason::IngressFull { class, capacity: route.producer.capacity() };
                    Err((Outside::new(queued), Some(reason)))
                }
                Err(PushError::Closed(queued)) => Err((Outside::new(queued), None)),
            }
        })
    }

    /// Replaces the worker snapshot by a newer one; lock-free, from any thread. Bookings stay with the incarnation
    /// of the worker that they were made on.
    ///
    /// # Errors
    /// The version is not above the current one, which stays.
    pub fn publish(&self, snapshot: WorkerSnapshot) -> Result<(), StaleSnapshot> {
        let offered = snapshot.version();
        let shared = &self.handle.shared;
        shared
            .workers
            .replace_if(DataArc::new(snapshot), |current| current.version() < offered)
            .map_err(|current| StaleSnapshot { offered, current: current.version() })?;
        shared.notifier.notify();
        Ok(())
    }

    /// Replaces the policy; lock-free, from any thread. The arbiter takes it over in its next turn, the last one if
    /// there are several. Classes are matched by name: see [`Scheduler::reload`](crate::Scheduler::reload) for what
    /// becomes of what waits. A profile is valid, so there is nothing to refuse.
    pub fn reload(&self, profile: impl Into<DataArc<Profile>>) {
        let shared = &self.handle.shared;
        shared.profile.replace(profile.into());
        shared.notifier.notify();
    }

    /// Takes nothing in any more, and closes as soon as nothing waits, but after `limit` in any case. From any thread,
    /// any number of times, the shortest limit counts; returns at once. See [`join`](Self::join).
    pub fn drain(&self, limit: Duration) {
        let shared = &self.handle.shared;
        shared.drain(shared.clock.now().saturating_add(limit));
    }

    /// Ends everything that waits with [`Reason::Closed`], and everything that comes later. Permits stay valid. From
    /// any thread, any number of times; returns at once. See [`join`](Self::join).
    pub fn close(&self) {
        self.handle.shared.enter(Phase::Closed);
    }

    /// Blocks until the engine has ended, which takes a [`drain`](Self::drain) or a [`close`](Self::close). Every
    /// request has its answer then. On the arbiter's own thread, in a waker, a selector or an observer, it returns at once.
    pub fn join(&self) {
        self.owner.join();
    }

    /// The policy that requests are admitted by.
    pub fn profile(&self) -> DataArc<Profile> {
        self.handle.shared.routes.with(|routes| routes.profile.clone())
    }

    /// Name of a class of the current policy.
    pub fn class_name(&self, class: ClassId) -> Option<DataArc<str>> {
        self.handle.shared.routes.with(|routes| {
            let position = routes.classes.iter().position(|route| route.class == class)?;
            Some(routes.profile.classes()[position].name.as_str().into())
        })
    }

    /// What this engine has booked on each endpoint of the snapshot that the arbiter works with.
    pub fn booked(&self) -> Vec<(Endpoint, Booked)> {
        self.handle
            .shared
            .loads
            .with(|loads| loads.iter().map(|(endpoint, load)| (*endpoint, endpoints::seen(load))).collect())
    }

    /// Permits that were released after their worker's incarnation had changed.
    pub fn stale_releases(&self) -> u64 {
        self.handle.shared.releases.stale()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("classes", &self.profile().classes().len())
            .field("booked", &self.booked())
            .finish_non_exhaustive()
    }
}

impl Owner {
    fn join(&self) {
        // A waker, a selector or an observer may do this: the arbiter cannot wait for itself.
        if !self.shared.notifier.is_here() {
            // Held while joining, so that others who join wait as well.
            let mut thread = self.thread.lock();
            if let Some(Err(panic)) = thread.take().map(JoinHandle::join) {
                // A selector may panic when it is dropped. What it panicked with is not: that could panic again.
                std::mem::forget(panic);
            }
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.enter(Phase::Closed);
        self.join();
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::policy::{ClassSpec, PolicySpec};
    use crate::sync::Ordering;
    use crate::worker::Worker;

    #[test]
    fn an_arbiter_that_dies_leaves_nobody_waiting_and_says_why() {
        for idle in [Idle::Backoff, Idle::Assist] {
            dies(idle, |engine| engine.handle.shared.notifier.notify());
        }
    }

    #[test]
    fn a_picture_that_an_arbiter_dies_over_comes_all_the_same() {
        for idle in [Idle::Backoff, Idle::Assist] {
            dies(idle, |engine| assert_eq!(engine.snapshot().classes[0].closed, 10));
        }
    }

    #[test]
    fn who_assists_does_not_wait_for_who_is_just_asking_for_a_picture() {
        let profile = Profile::new(PolicySpec {
            classes: vec![ClassSpec::explicit("only", 1)],
            ..PolicySpec::default()
        });
        let workers = WorkerSnapshot::new(1, vec![Worker::new(1)]).unwrap();
        let engine = Engine::builder(profile.unwrap()).workers(workers).idle(Idle::Assist).start().unwrap();
        for _ in 0..20 {
            // It goes to sleep, most probably: then this thread does the turn, and would wait for itself.
            std::thread::sleep(std::time::Duration::from_millis(1));
            let wanted = &engine.handle.shared.wanted;
            let admission = wanted.while_asking(|| engine.admit(Request::new(1, 0)).unwrap());
            drop(admission.wait().unwrap());
        }
    }

    #[test]
    fn a_notifier_may_be_held_over_a_caught_panic() {
        fn may<T: std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
        may::<crate::sync::sleep::Notifier>();
    }

    /// With [`Idle::Assist`] it may die on this thread, which goes on.
    fn dies(idle: Idle, next: impl Fn(&Engine)) {
        let mut class = ClassSpec::explicit("only", 1);
        class.busy.threshold_tokens = Some(0);
        let profile = Profile::new(PolicySpec { classes: vec![class], ..PolicySpec::default() }).unwrap();
        let workers = WorkerSnapshot::new(1, vec![Worker::new(1)]).unwrap();
        let engine = Engine::builder(profile).workers(workers).idle(idle).start().unwrap();
        let permit = engine.admit(Request::new(5, 0)).unwrap().wait().unwrap();
        let waiting: Vec<_> = (0..10).map(|_| engine.admit(Request::new(6, 0)).unwrap()).collect();
        assert_eq!(engine.snapshot().classes[0].waiting.requests, 10);

        let shared = &engine.handle.shared;
        shared.fault.store(true, Ordering::Relaxed);
        next(&engine);
        let died = Reason::Closed { cause: Some("the arbiter panicked".into()) };
        for admission in waiting {
            let rejected = admission.wait().unwrap_err();
            assert_eq!((rejected.reason, rejected.request.raw_isl_tokens), (died.clone(), 6));
        }
        assert_eq!(engine.admit(Request::new(7, 0)).unwrap_err().reason, died);
        drop(permit);
        engine.join();
        let last = engine.snapshot();
        assert_eq!((last.classes[0].closed, last.classes[0].waiting.requests), (10, 0));
        assert_eq!((last.classes[0].submitted, last.classes[0].ended()), (11, 11));
        assert_eq!(engine.booked()[0].1, Booked::default());
    }
}
