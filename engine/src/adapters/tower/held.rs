//! A permit that a request's extensions and its response's body hold together.

use std::time::Duration;

use crate::engine::Permit;
use crate::policy::ClassId;
use crate::sync::{Arc, Mutex};
use crate::worker::Endpoint;

/// The permit of a request behind a [`PermitService`](super::PermitService), in the request's extensions. Keeping it
/// does not keep its place: that ends with the response.
#[derive(Clone, Debug)]
pub struct HeldPermit(Arc<Held>);

#[derive(Debug)]
struct Held {
    endpoint: Endpoint,
    class: ClassId,
    waited: Duration,
    cost: u64,
    /// Until it is given back.
    permit: Mutex<Option<Permit>>,
}

impl HeldPermit {
    pub(super) fn new(permit: Permit) -> Self {
        Self(Arc::new(Held {
            endpoint: permit.endpoint(),
            class: permit.class(),
            waited: permit.waited(),
            cost: permit.cost(),
            permit: Mutex::new(Some(permit)),
        }))
    }

    /// Where the request goes.
    pub fn endpoint(&self) -> Endpoint {
        self.0.endpoint
    }

    /// As [`Permit::class`].
    pub fn class(&self) -> ClassId {
        self.0.class
    }

    /// Time from arrival to dispatch.
    pub fn waited(&self) -> Duration {
        self.0.waited
    }

    /// What the class paid \[tokens\].
    pub fn cost(&self) -> u64 {
        self.0.cost
    }

    /// As [`Permit::prefill_complete`], for a service that knows it before the first byte of its response.
    pub fn prefill_complete(&self) {
        let release = self.0.permit.lock().as_mut().map(Permit::take_prefill);
        // Not under the lock: it may run callbacks of the engine, and they may look here.
        if let Some(release) = release {
            release();
        }
    }

    /// As [`Permit::span`], to be entered by what is done for the request; the span of nobody once the response has
    /// ended. A clone keeps the span open.
    #[cfg(feature = "tracing")]
    pub fn span(&self) -> tracing::Span {
        let permit = self.0.permit.lock();
        permit.as_ref().map_or_else(tracing::Span::none, |permit| permit.span().clone())
    }

    /// Whether its place is given back: the response has ended.
    pub fn is_released(&self) -> bool {
        self.0.permit.lock().is_none()
    }
}

/// Gives a permit back when it is dropped, whoever else holds it.
#[derive(Debug)]
pub(super) struct Releases(pub(super) HeldPermit);

impl Drop for Releases {
    fn drop(&mut self) {
        let permit = self.0.0.permit.lock().take();
        drop(permit);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::policy::{ClassSpec, PolicySpec, Profile};
    use crate::worker::{Worker, WorkerSnapshot};
    use crate::{Engine, Idle, Request};

    /// Looks at a permit when it is woken, as an executor may that polls at once.
    struct Looks(HeldPermit);

    impl Wake for Looks {
        fn wake(self: std::sync::Arc<Self>) {
            assert!(!self.0.is_released());
        }
    }

    #[test]
    fn a_waker_may_look_at_the_permit_whose_prefill_makes_room() {
        let mut class = ClassSpec::explicit("only", 1);
        class.busy.threshold_tokens = Some(0);
        let profile = Profile::new(PolicySpec { classes: vec![class], ..PolicySpec::default() }).unwrap();
        let workers = WorkerSnapshot::new(1, vec![Worker::new(1)]).unwrap();
        let engine = Engine::builder(profile).workers(workers).idle(Idle::Assist).start().unwrap();
        for _ in 0..20 {
            let held = HeldPermit::new(engine.admit(Request::new(5, 0)).unwrap().wait().unwrap());
            let mut next = engine.admit(Request::new(5, 0)).unwrap();
            let waker = Waker::from(std::sync::Arc::new(Looks(held.clone())));
            assert!(std::pin::pin!(&mut next).poll(&mut Context::from_waker(&waker)).is_pending());
            // The arbiter goes to sleep, most probably: then this thread does the turn, and wakes.
            std::thread::sleep(Duration::from_millis(1));
            held.prefill_complete();
            drop(next.wait().unwrap());
            drop(Releases(held));
        }
    }
}
