//! One span for each request, from [`Engine::admit`](super::Engine::admit) until its permit is dropped, or until it is
//! refused or its caller leaves. On the caller's threads only. Without the feature `tracing` there is nothing of it.

#[cfg(not(all(feature = "tracing", not(any(loom, shuttle)))))]
pub(super) use off::RequestSpan;
#[cfg(all(feature = "tracing", not(any(loom, shuttle))))]
pub(super) use on::RequestSpan;

#[cfg(all(feature = "tracing", not(any(loom, shuttle))))]
mod on {
    use tracing::field::{Empty, display};
    use tracing::{Span, info_span};

    use crate::engine::Permit;
    use crate::error::Reason;

    /// The span of a request, or of nobody yet.
    #[derive(Debug)]
    pub(in crate::engine) struct RequestSpan(pub(in crate::engine) Span);

    impl RequestSpan {
        /// Of nobody.
        pub(in crate::engine) fn none() -> Self {
            Self(Span::none())
        }

        pub(in crate::engine) fn open() -> Self {
            Self(info_span!(
                target: "tollgate",
                "request",
                class = Empty,
                cost = Empty,
                waited_seconds = Empty,
                endpoint = Empty,
                outcome = Empty,
            ))
        }

        /// Whether anybody hears of it.
        pub(in crate::engine) fn is_heard(&self) -> bool {
            !self.0.is_disabled()
        }

        pub(in crate::engine) fn classified(&self, class: &str, cost: u64) {
            self.0.record("class", class).record("cost", cost);
        }

        pub(in crate::engine) fn answered(&self, answer: &Result<Permit, Reason>) {
            match answer {
                Ok(permit) => {
                    self.0.record("waited_seconds", permit.waited().as_secs_f64());
                    self.0.record("endpoint", display(permit.endpoint())).record("outcome", "dispatched");
                }
                Err(reason) => self.refused(reason),
            }
        }

        pub(in crate::engine) fn refused(&self, reason: &Reason) {
            if let Reason::DeadlineExceeded { waited, .. } = reason {
                self.0.record("waited_seconds", waited.as_secs_f64());
            }
            self.0.record("outcome", reason.code());
        }

        pub(in crate::engine) fn cancelled(&self) {
            self.0.record("outcome", "cancelled");
        }
    }

    impl Permit {
        /// The span of the request, which ends with the permit: what is done for the request may go into it.
        pub fn span(&self) -> &Span {
            &self.span.0
        }
    }
}

#[cfg(not(all(feature = "tracing", not(any(loom, shuttle)))))]
mod off {
    use crate::engine::Permit;
    use crate::error::Reason;

    /// Nothing.
    #[derive(Debug)]
    pub(in crate::engine) struct RequestSpan;

    const _: () = assert!(size_of::<RequestSpan>() == 0);

    impl RequestSpan {
        pub(in crate::engine) fn none() -> Self {
            Self
        }

        pub(in crate::engine) fn open() -> Self {
            Self
        }

        pub(in crate::engine) fn is_heard(&self) -> bool {
            false
        }

        pub(in crate::engine) fn classified(&self, _: &str, _: u64) {}

        pub(in crate::engine) fn answered(&self, _: &Result<Permit, Reason>) {}

        pub(in crate::engine) fn refused(&self, _: &Reason) {}

        pub(in crate::engine) fn cancelled(&self) {}
    }
}
