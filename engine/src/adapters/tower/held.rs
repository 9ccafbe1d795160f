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
        if let Some(permit) = &mut *self.0.permit.lock() {
            permit.prefill_complete();
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
