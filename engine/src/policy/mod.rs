//! Policy files: what they may say, what is wrong with one, and which class a request belongs to.

mod error;
mod profile;
mod spec;

pub use error::PolicyErrors;
pub use profile::{ClassId, Profile};
pub use spec::{BucketSpec, BusyRule, ClassKind, ClassSpec, LimitsPerWorker, PolicySpec, QueuePolicy};
