//! A permit: the right to prefill on an endpoint, and what it has booked there.

use std::time::Duration;

use super::span::RequestSpan;
use crate::policy::ClassId;
use crate::sync::Arc;
use crate::sync::load::EndpointLoad;
use crate::worker::Endpoint;

/// A dispatched request's place on an endpoint.
///
/// Its prefill tokens count as load there until [`prefill_complete`](Self::prefill_complete), its slot until it is
/// dropped: each is given back exactly once, whatever happens.
///
/// ```compile_fail
/// let forged = tollgate::Permit { }; // only the engine makes permits
/// ```
#[derive(Debug)]
#[must_use = "dropping a permit gives its place away"]
pub struct Permit {
    pub(super) load: Arc<EndpointLoad>,
    pub(super) tokens: u64,
    pub(super) endpoint: Endpoint,
    pub(super) class: ClassId,
    pub(super) waited: Duration,
    pub(super) cost: u64,
    pub(super) span: RequestSpan,
}

impl Permit {
    /// The same, followed by `span`.
    pub(super) fn within(mut self, span: RequestSpan) -> Self {
        self.span = span;
        self
    }

    /// Where the request goes.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Number of the class that paid for it. The number of a class that is gone after a reload is nobody's for long.
    pub fn class(&self) -> ClassId {
        self.class
    }

    /// Time from arrival to dispatch.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// What the class paid \[tokens\].
    pub fn cost(&self) -> u64 {
        self.cost
    }

    /// Prefill tokens that are still booked.
    pub fn booked_tokens(&self) -> u64 {
        self.tokens
    }

    /// Gives back the prefill tokens: the first output token is there. Further calls change nothing.
    pub fn prefill_complete(&mut self) {
        let tokens = std::mem::take(&mut self.tokens);
        if tokens > 0 {
            self.load.release(tokens, 0);
        }
    }

    /// The same in two steps, for who holds a lock: what the returned function does may run callbacks of the engine.
    #[cfg(feature = "tower")]
    pub(crate) fn take_prefill(&mut self) -> impl FnOnce() + use<> {
        let (load, tokens) = (self.load.clone(), std::mem::take(&mut self.tokens));
        move || {
            if tokens > 0 {
                load.release(tokens, 0);
            }
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.load.release(self.tokens, 1);
    }
}
