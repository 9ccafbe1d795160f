//! Tollgate.

mod engine;
mod error;
pub mod policy;
mod request;
mod scheduler;
#[doc(hidden)]
pub mod sync;
mod time;
mod worker;

pub use engine::{
    Admission, ArbiterStatus, ClassChoice, ClassGuard, ClassStatus, ClassTable, CorePinning, EndpointStatus,
    Engine, EngineBuilder, EngineSnapshot, Idle, Permit, Refused as RefusedCounts, StaleSnapshot, StartError,
};
pub use error::{LimitKind, LimitReached, Reason, Rejected, Retry, WaitCause};
pub use request::{CachedOn, Constraints, InvalidRequest, Pin, Request, Snapshot};
pub use scheduler::{
    Booked, Booking, Candidate, Candidates, Dispatch, EndpointIndex, Expired, LeastLoaded, MAX_BOOKED_TOKENS,
    Picked, Refused, RequestKey, Scheduler, Selector, Usage,
};
pub use time::Timestamp;
pub use worker::{DEFAULT_MAX_NUM_BATCHED_TOKENS, Endpoint, Worker, WorkerError, WorkerId, WorkerSnapshot};
