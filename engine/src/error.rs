//! Why a request was not dispatched.

use std::fmt;
use std::time::Duration;

use crate::request::{InvalidRequest, Pin, Request};
use crate::sync::DataArc;

/// Why a request was not dispatched, with what is needed to tell the client.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Reason {
    /// The request makes no sense.
    Invalid(InvalidRequest),
    /// No worker, or none that the allow-list names, is in the current snapshot.
    NoEndpoint {
        /// Workers in the snapshot.
        workers: usize,
    },
    /// Every worker that could serve the request is overloaded.
    AllOverloaded {
        /// Endpoints that could serve it.
        endpoints: usize,
    },
    /// The pinned worker is overloaded.
    PinOverloaded {
        /// The pin.
        pin: Pin,
    },
    /// The pinned worker is not in the request's own allow-list.
    PinNotAllowed {
        /// The pin.
        pin: Pin,
    },
    /// The pinned worker is not in the snapshot.
    PinUnavailable {
        /// The pin.
        pin: Pin,
    },
    /// The pinned worker has no such rank.
    PinRankOutOfRange {
        /// The pin.
        pin: Pin,
        /// First rank of the worker.
        first_rank: u32,
        /// Number of its ranks.
        ranks: u32,
    },
    /// No allowed worker (or not the pinned one) has all required taints.
    TaintsUnsatisfiable {
        /// The required taints.
        required: Vec<DataArc<str>>,
    },
    /// Too much waits in the class already.
    QueueLimit(LimitReached),
    /// Requests come faster than the arbiter takes them in.
    IngressFull {
        /// The class.
        class: DataArc<str>,
        /// Requests that its ingress queue holds.
        capacity: usize,
    },
    /// The deadline, or the longest waiting time of the class, passed before dispatch.
    DeadlineExceeded {
        /// Time since arrival.
        waited: Duration,
        /// What it was waiting for.
        cause: WaitCause,
    },
    /// The selector panicked, or chose an endpoint that is not eligible.
    SelectorFailed {
        /// What it said.
        message: DataArc<str>,
    },
    /// The engine was closed.
    Closed {
        /// Why, if it was not asked to.
        cause: Option<DataArc<str>>,
    },
}

/// Whether asking again can help, without anything else changing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Retry {
    /// The same request will be rejected again.
    Never,
    /// Load may have gone by then: wait a little, here or at another router.
    Later,
    /// Not here, but another router may take it.
    Elsewhere,
}

impl Reason {
    /// A name for machines that stays the same over versions.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid_request",
            Self::NoEndpoint { .. } => "no_endpoint",
            Self::AllOverloaded { .. } => "all_workers_overloaded",
            Self::PinOverloaded { .. } => "pinned_worker_overloaded",
            Self::PinNotAllowed { .. } => "pinned_worker_not_allowed",
            Self::PinUnavailable { .. } => "pinned_worker_unavailable",
            Self::PinRankOutOfRange { .. } => "pinned_rank_out_of_range",
            Self::TaintsUnsatisfiable { .. } => "taints_unsatisfiable",
            Self::QueueLimit(limit) => match limit.kind {
                LimitKind::Requests => "queue_limit_requests",
                LimitKind::RawIslTokens => "queue_limit_raw_isl_tokens",
                LimitKind::CachedTokens => "queue_limit_cached_tokens",
            },
            Self::IngressFull { .. } => "ingress_full",
            Self::DeadlineExceeded { .. } => "deadline_exceeded",
            Self::SelectorFailed { .. } => "selector_failed",
            Self::Closed { .. } => "closed",
        }
    }

    /// Whether asking again can help.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Invalid(_) | Self::PinNotAllowed { .. } | Self::PinRankOutOfRange { .. } => Retry::Never,
            Self::NoEndpoint { .. }
            | Self::AllOverloaded { .. }
            | Self::PinOverloaded { .. }
            | Self::PinUnavailable { .. }
            | Self::TaintsUnsatisfiable { .. }
            | Self::QueueLimit(_)
            | Self::IngressFull { .. }
            | Self::DeadlineExceeded { .. } => Retry::Later,
            Self::SelectorFailed { .. } | Self::Closed { .. } => Retry::Elsewhere,
        }
    }

    /// The HTTP status that an LLM router's client would expect.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::Invalid(_) | Self::PinNotAllowed { .. } | Self::PinRankOutOfRange { .. } => 400,
            Self::QueueLimit(_) | Self::IngressFull { .. } => 529,
            Self::DeadlineExceeded { .. } => 504,
            Self::SelectorFailed { .. } => 500,
            Self::NoEndpoint { .. }
            | Self::AllOverloaded { .. }
            | Self::PinOverloaded { .. }
            | Self::PinUnavailable { .. }
            | Self::TaintsUnsatisfiable { .. }
            | Self::Closed { .. } => 503,
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(error) => write!(f, "invalid request: {error}"),
            Self::NoEndpoint { workers } => write!(f, "no eligible endpoint among {workers} workers"),
            Self::AllOverloaded { endpoints } => {
                write!(f, "all {endpoints} eligible endpoints are overloaded")
            }
            Self::PinOverloaded { pin } => write!(f, "pinned worker {pin} is overloaded"),
            Self::PinNotAllowed { pin } => write!(f, "pinned worker {pin} is not in the allow-list"),
            Self::PinUnavailable { pin } => write!(f, "pinned worker {pin} is not available"),
            Self::PinRankOutOfRange { pin, first_rank, ranks } => {
                write!(f, "pinned endpoint {pin}: the worker has {ranks} ranks from {first_rank}")
            }
            Self::TaintsUnsatisfiable { required } => {
                write!(f, "no eligible worker has all of the taints {required:?}")
            }
            Self::QueueLimit(limit) => limit.fmt(f),
            Self::IngressFull { class, capacity } => {
                write!(f, "class {class:?}: ingress queue full ({capacity} requests)")
            }
            Self::DeadlineExceeded { waited, cause } => {
                write!(f, "deadline exceeded after {waited:?}: {cause}")
            }
            Self::SelectorFailed { message } => write!(f, "selector failed: {message}"),
            Self::Closed { cause: None } => write!(f, "engine closed"),
            Self::Closed { cause: Some(cause) } => write!(f, "engine closed: {cause}"),
        }
    }
}

impl std::error::Error for Reason {}

/// What a request was waiting for when its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitCause {
    /// Its deadline was over when it came.
    Late,
    /// Every endpoint that could serve it was busy, or more of them than its class's ratio allows.
    PoolBusy,
    /// The pinned endpoint was busy.
    PinBusy {
        /// The pin.
        pin: Pin,
    },
    /// There was no worker.
    NoWorker,
    /// An endpoint was free, and others went first.
    Others,
}

impl fmt::Display for WaitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Late => f.write_str("it was over on arrival"),
            Self::PoolBusy => f.write_str("all eligible workers were busy"),
            Self::PinBusy { pin } => write!(f, "pinned worker {pin} was busy"),
            Self::NoWorker => f.write_str("there was no worker"),
            Self::Others => f.write_str("others went first"),
        }
    }
}

/// What a queue limit bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LimitKind {
    /// Waiting requests.
    Requests,
    /// Raw ISL tokens of waiting requests.
    RawIslTokens,
    /// Cached tokens of waiting requests.
    CachedTokens,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requests => "requests",
            Self::RawIslTokens => "raw_isl_tokens",
            Self::CachedTokens => "cached_tokens",
        })
    }
}

/// A queue limit that a class had reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitReached {
    /// The class.
    pub class: DataArc<str>,
    /// The limit.
    pub kind: LimitKind,
    /// What waits now \[requests or tokens\].
    pub current: u64,
    /// The limit per worker times the number of workers \[requests or tokens\].
    pub limit: u64,
}

impl fmt::Display for LimitReached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { class, kind, current, limit } = self;
        write!(f, "class {class:?}: queue limit reached for {kind} (current {current}, limit {limit})")
    }
}

impl std::error::Error for LimitReached {}

/// A request that was not dispatched, given back with the reason.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// Why.
    pub reason: Reason,
    /// The request as it was given.
    pub request: Request,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for Rejected {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            Reason::Invalid(error) => Some(error),
            Reason::QueueLimit(limit) => Some(limit),
            _ => None,
        }
    }
}
