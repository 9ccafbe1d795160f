//! A scheduler engine that LLM routers embed: policy classes share workers by deficit round robin over uncached prompt
//! tokens.
//!
//! Ingress threads push snapshotted requests into lock-free queues, one per class; one pinned thread, the arbiter,
//! decides which goes next and where; its caller gets a [`Permit`].
//!
//! ```
//! use tollgate::policy::{ClassSpec, PolicySpec, Profile};
//! use tollgate::{Engine, Request, Worker, WorkerSnapshot};
//!
//! let profile = Profile::new(PolicySpec {
//!     classes: vec![ClassSpec::explicit("premium", 512), ClassSpec::explicit("regular", 128)],
//!     ..PolicySpec::default()
//! })?;
//! let workers = WorkerSnapshot::new(1, vec![Worker::new(1)])?;
//! let engine = Engine::builder(profile).workers(workers).start()?;
//!
//! let mut permit = engine.admit(Request::new(512, 0).with_class("premium"))?.wait()?;
//! assert_eq!(permit.endpoint().worker.0, 1);
//! permit.prefill_complete();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`policy`] | policy files, their validation, and which class a request belongs to |
//! | `request`, `worker`, `error` | what callers and watchers say, and what they hear |
//! | `scheduler` | every decision, without threads and clocks: [`Scheduler`] |
//! | `engine` | threads, queues and wake-ups around it: [`Engine`] |
//! | `metrics` | Prometheus and OpenMetrics, with the feature of that name |
//! | `tower` | a layer in front of any HTTP service, with the feature of that name |
//! | `sync` | what threads share, and the switch to a model checker |

#[cfg(not(any(loom, shuttle)))]
mod adapters;
mod engine;
mod error;
pub mod policy;
mod request;
mod scheduler;
#[doc(hidden)]
pub mod sync;
mod time;
mod worker;

#[cfg(all(feature = "metrics", not(any(loom, shuttle))))]
pub use adapters::metrics;
#[cfg(all(feature = "tower", not(any(loom, shuttle))))]
pub use adapters::tower;
pub use engine::{
    Admission, ArbiterStatus, ClassChoice, ClassGuard, ClassStatus, ClassTable, CorePinning, EndpointStatus,
    Engine, EngineBuilder, EngineSnapshot, Idle, Monitor, Observed, Observer, Permit,
    Refused as RefusedCounts, StaleSnapshot, StartError,
};
pub use error::{LimitKind, LimitReached, Reason, Rejected, Retry, WaitCause};
pub use request::{CachedList, CachedOn, Constraints, InvalidRequest, Pin, Request, Snapshot};
#[doc(hidden)]
pub use scheduler::Seen;
pub use scheduler::{
    Booked, Booking, Candidate, Candidates, Dispatch, EndpointIndex, Expired, LeastLoaded, MAX_BOOKED_TOKENS,
    Picked, Refused, RequestKey, Scheduler, Selector, Usage,
};
pub use time::Timestamp;
pub use worker::{DEFAULT_MAX_NUM_BATCHED_TOKENS, Endpoint, Worker, WorkerError, WorkerId, WorkerSnapshot};

#[cfg(all(doctest, feature = "yaml"))]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(all(doctest, feature = "metrics"))]
#[doc = include_str!("../../docs/metrics.md")]
struct MetricsPage;

#[cfg(all(doctest, feature = "yaml"))]
#[doc = include_str!("../../docs/embedding.md")]
struct EmbeddingPage;

#[cfg(doctest)]
#[doc = include_str!("../../docs/tuning.md")]
struct TuningPage;
