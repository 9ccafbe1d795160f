//! A profile on its way to validation: a spec in which values may be absent or wrong, and know their place.

use std::time::Duration;

use super::{
    BucketSpec, BusyRule, ClassKind, ClassSpec, LimitsPerWorker, Location, Place, PolicySpec, QueuePolicy,
};

/// Names of the fields in a policy file; faults of specs built in code use the same names.
pub(super) mod field {
    pub(crate) const DEFAULT_FAMILY: &str = "default_policy_family";
    pub(crate) const BUCKETS: &str = "uncached_isl_buckets";
    pub(crate) const CLASSES: &str = "policy_classes";
    pub(crate) const MODELS: &str = "models";
    pub(crate) const MIN_TOKENS: &str = "min_tokens";
    pub(crate) const BUCKET: &str = "bucket";
    pub(crate) const NAME: &str = "name";
    pub(crate) const FAMILY: &str = "policy_family";
    pub(crate) const CACHE_BUCKET: &str = "cache_bucket";
    pub(crate) const QUEUE_POLICY: &str = "queue_policy";
    pub(crate) const AGING: &str = "aging_tokens_per_second";
    pub(crate) const MAX_QUEUE_TIME: &str = "max_queue_time_ms";
    pub(crate) const QUANTUM: &str = "quantum";
    pub(crate) const THRESHOLD: &str = "prefill_busy_threshold";
    pub(crate) const THRESHOLD_FRAC: &str = "prefill_busy_threshold_frac";
    pub(crate) const RATIO: &str = "busy_worker_ratio";
    pub(crate) const LIMIT_REQUESTS: &str = "request_queue_limit_per_worker";
    pub(crate) const LIMIT_RAW: &str = "raw_isl_token_queue_limit_per_worker";
    pub(crate) const LIMIT_CACHED: &str = "cached_token_queue_limit_per_worker";
}

/// A value that may be absent or wrong.
#[derive(Clone, Debug, Default)]
pub(super) enum Slot<T> {
    /// Not there, or null.
    #[default]
    Absent,
    /// There, but wrong, which has been reported: checks that depend on it say nothing.
    Faulty,
    /// There.
    Given(T, Option<Location>),
}

impl<T> Slot<T> {
    fn plain(value: Option<T>) -> Self {
        value.map_or(Self::Absent, |value| Self::Given(value, None))
    }

    pub(super) fn given(&self) -> Option<(&T, Option<Location>)> {
        match self {
            Self::Given(value, at) => Some((value, *at)),
            _ => None,
        }
    }

    pub(super) fn value(&self) -> Option<&T> {
        self.given().map(|(value, _)| value)
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    pub(super) fn is_faulty(&self) -> bool {
        matches!(self, Self::Faulty)
    }

    fn into_value(self) -> Option<T> {
        match self {
            Self::Given(value, _) => Some(value),
            _ => None,
        }
    }
}

/// One profile.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) place: Place,
    /// Where the profile starts.
    pub(super) at: Option<Location>,
    pub(super) default_family: Slot<String>,
    pub(super) buckets: Slot<Vec<DraftBucket>>,
    pub(super) classes: Slot<Vec<DraftClass>>,
}

/// One cache bucket.
#[derive(Debug, Default)]
pub(super) struct DraftBucket {
    pub(super) at: Option<Location>,
    pub(super) min_tokens: Slot<u64>,
    pub(super) name: Slot<String>,
}

/// One class.
#[derive(Debug, Default)]
pub(super) struct DraftClass {
    pub(super) at: Option<Location>,
    pub(super) name: Slot<String>,
    pub(super) family: Slot<String>,
    pub(super) bucket: Slot<String>,
    pub(super) order: Slot<QueuePolicy>,
    pub(super) aging: Slot<f64>,
    /// \[ms\]
    pub(super) max_queue_time: Slot<u64>,
    pub(super) quantum: Slot<u64>,
    pub(super) threshold_tokens: Slot<u64>,
    pub(super) threshold_frac: Slot<f64>,
    pub(super) worker_ratio: Slot<f64>,
    pub(super) limit_requests: Slot<u64>,
    pub(super) limit_raw_isl_tokens: Slot<u64>,
    pub(super) limit_cached_tokens: Slot<u64>,
}

impl Draft {
    /// A draft of a spec built in code, without locations.
    pub(super) fn of(spec: &PolicySpec) -> Self {
        Self {
            place: Place::Root,
            at: None,
            default_family: Slot::plain(spec.default_family.clone()),
            buckets: Slot::plain(Some(spec.buckets.iter().map(DraftBucket::of).collect())),
            classes: Slot::plain(Some(spec.classes.iter().map(DraftClass::of).collect())),
        }
    }

    /// The spec, if no required value is absent or wrong.
    pub(super) fn into_spec(self) -> Option<PolicySpec> {
        let buckets = self.buckets.into_value().unwrap_or_default();
        let classes = self.classes.into_value().unwrap_or_default();
        Some(PolicySpec {
            default_family: self.default_family.into_value(),
            buckets: buckets.into_iter().map(DraftBucket::into_spec).collect::<Option<_>>()?,
            classes: classes.into_iter().map(DraftClass::into_spec).collect::<Option<_>>()?,
        })
    }
}

impl DraftBucket {
    fn of(spec: &BucketSpec) -> Self {
        Self {
            at: None,
            min_tokens: Slot::plain(Some(spec.min_tokens)),
            name: Slot::plain(Some(spec.name.clone())),
        }
    }

    fn into_spec(self) -> Option<BucketSpec> {
        Some(BucketSpec { min_tokens: self.min_tokens.into_value()?, name: self.name.into_value()? })
    }

    /// An entry of which nothing could be read.
    pub(super) fn faulty() -> Self {
        Self { at: None, min_tokens: Slot::Faulty, name: Slot::Faulty }
    }
}

impl DraftClass {
    fn of(spec: &ClassSpec) -> Self {
        let (family, bucket) = match &spec.kind {
            ClassKind::Explicit => (None, None),
            ClassKind::Matrix { family, bucket } => (Some(family.clone()), Some(bucket.clone())),
        };
        Self {
            at: None,
            name: Slot::plain(Some(spec.name.clone())),
            family: Slot::plain(family),
            bucket: Slot::plain(bucket),
            order: Slot::plain(Some(spec.order)),
            aging: Slot::plain(spec.aging_tokens_per_second),
            // Anything above 0 must not read as 0.
            max_queue_time: Slot::plain(
                spec.max_queue_time
                    .map(|t| u64::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)),
            ),
            quantum: Slot::plain(Some(spec.quantum)),
            threshold_tokens: Slot::plain(spec.busy.threshold_tokens),
            threshold_frac: Slot::plain(spec.busy.threshold_frac),
            worker_ratio: Slot::plain(spec.busy.worker_ratio),
            limit_requests: Slot::plain(spec.limits.requests),
            limit_raw_isl_tokens: Slot::plain(spec.limits.raw_isl_tokens),
            limit_cached_tokens: Slot::plain(spec.limits.cached_tokens),
        }
    }

    fn into_spec(self) -> Option<ClassSpec> {
        Some(ClassSpec {
            name: self.name.into_value()?,
            kind: match (self.family.into_value(), self.bucket.into_value()) {
                (Some(family), Some(bucket)) => ClassKind::Matrix { family, bucket },
                _ => ClassKind::Explicit,
            },
            order: self.order.into_value().unwrap_or_default(),
            aging_tokens_per_second: self.aging.into_value(),
            max_queue_time: self.max_queue_time.into_value().map(Duration::from_millis),
            quantum: self.quantum.into_value()?,
            busy: BusyRule {
                threshold_tokens: self.threshold_tokens.into_value(),
                threshold_frac: self.threshold_frac.into_value(),
                worker_ratio: self.worker_ratio.into_value(),
            },
            limits: LimitsPerWorker {
                requests: self.limit_requests.into_value(),
                raw_isl_tokens: self.limit_raw_isl_tokens.into_value(),
                cached_tokens: self.limit_cached_tokens.into_value(),
            },
        })
    }

    /// An entry of which nothing could be read.
    pub(super) fn faulty() -> Self {
        Self {
            name: Slot::Faulty,
            family: Slot::Faulty,
            bucket: Slot::Faulty,
            quantum: Slot::Faulty,
            ..Self::default()
        }
    }

    /// Whether requests come to the class through a family, as far as that is known.
    pub(super) fn is_matrix(&self) -> bool {
        !self.family.is_absent() || !self.bucket.is_absent()
    }
}

/// The name of a class or a path to it, and the name of a field of it, as faults give them.
pub(super) fn class_field(index: usize, name: Option<&str>, field: &str) -> (Option<String>, String) {
    match name {
        Some(name) => (Some(name.to_owned()), field.to_owned()),
        None => (None, format!("{}[{index}].{field}", field::CLASSES)),
    }
}

/// The path to a field of a bucket.
pub(super) fn bucket_field(index: usize, field: &str) -> String {
    format!("{}[{index}].{field}", field::BUCKETS)
}
