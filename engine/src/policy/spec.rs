//! What a policy says, before it is validated: plain data, built by hand or read from a file.

use std::time::Duration;

/// One policy profile as written: the input of [`Profile::new`](super::Profile::new).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicySpec {
    /// Family that serves requests which name no known family. Needed as soon as there is a matrix class.
    pub default_family: Option<String>,
    /// Cache buckets, floors strictly rising from 0.
    pub buckets: Vec<BucketSpec>,
    /// Physical classes in ring order.
    pub classes: Vec<ClassSpec>,
}

/// A cache bucket: requests with at least `min_tokens` uncached tokens, up to the next floor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSpec {
    /// Floor of the bucket \[uncached tokens\].
    pub min_tokens: u64,
    /// Name that classes refer to.
    pub name: String,
}

/// One physical policy class.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassSpec {
    /// Unique name, safe as a metric label.
    pub name: String,
    /// How requests come to this class.
    pub kind: ClassKind,
    /// Order of requests of equal strict priority and deadline.
    pub order: QueuePolicy,
    /// What a second of waiting is worth \[tokens/s\], finite and > 0: for [`QueuePolicy::AgedWspt`], and only then.
    pub aging_tokens_per_second: Option<f64>,
    /// Longest time that a request may wait, > 0; `None` is no bound. Unlike a request's own deadline it does not
    /// change the order.
    pub max_queue_time: Option<Duration>,
    /// Credit per round \[uncached tokens\], > 0.
    pub quantum: u64,
    /// When an endpoint, and when the whole pool, counts as busy for this class.
    pub busy: BusyRule,
    /// How much may wait, per worker of the current snapshot.
    pub limits: LimitsPerWorker,
}

impl ClassSpec {
    /// An explicit FCFS class without thresholds or limits.
    pub fn explicit(name: impl Into<String>, quantum: u64) -> Self {
        Self {
            name: name.into(),
            kind: ClassKind::Explicit,
            order: QueuePolicy::Fcfs,
            aging_tokens_per_second: None,
            max_queue_time: None,
            quantum,
            busy: BusyRule::default(),
            limits: LimitsPerWorker::default(),
        }
    }

    /// A matrix class: requests of `family` whose uncached tokens fall into `bucket`.
    pub fn matrix(
        name: impl Into<String>,
        family: impl Into<String>,
        bucket: impl Into<String>,
        quantum: u64,
    ) -> Self {
        Self {
            kind: ClassKind::Matrix { family: family.into(), bucket: bucket.into() },
            ..Self::explicit(name, quantum)
        }
    }
}

/// How requests come to a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassKind {
    /// By its own name, whatever the bucket.
    Explicit,
    /// By family and cache bucket.
    Matrix {
        /// Policy family.
        family: String,
        /// Cache bucket, one of [`PolicySpec::buckets`].
        bucket: String,
    },
}

/// Order inside a class, after strict priority and deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QueuePolicy {
    /// First come, first served, by arrival minus priority jump.
    #[default]
    Fcfs,
    /// Weighted shortest processing time: larger `(1 + jump) / cost` first. Under overload the dearest starve.
    Wspt,
    /// Shortest first, but not for ever: smaller `cost + rate × (arrival - jump)` first, the rate being
    /// [`ClassSpec::aging_tokens_per_second`]. A request of cost c is never passed by one that arrives more than
    /// `c / rate` seconds after it.
    AgedWspt,
}

/// When an endpoint is busy for a class (either threshold suffices), and when the pool is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BusyRule {
    /// Busy above this many active prefill tokens.
    pub threshold_tokens: Option<u64>,
    /// Busy above this fraction of the endpoint's `max_num_batched_tokens`; finite, ≥ 0.
    pub threshold_frac: Option<f64>,
    /// The pool is busy once this share of the eligible endpoints is; in (0, 1], needs a threshold.
    pub worker_ratio: Option<f64>,
}

/// Bounds on the waiting work of a class, each times the number of workers; `None` is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitsPerWorker {
    /// Waiting requests per worker.
    pub requests: Option<u64>,
    /// Raw ISL tokens of waiting requests per worker.
    pub raw_isl_tokens: Option<u64>,
    /// Cached tokens of waiting requests per worker.
    pub cached_tokens: Option<u64>,
}
