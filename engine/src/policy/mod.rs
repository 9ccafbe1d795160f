//! Policy files: what they may say, what is wrong with one, and which class a request belongs to.
//!
//! A [`PolicySpec`] is plain data. [`Profile::new`] checks it, reports every fault at once, and makes the tables
//! with which [`Profile::classify`] finds the class of a request. With the feature `yaml`, `PolicyFile` reads
//! specs from a file, for the root and for single models, and its faults carry line and column.

#[cfg_attr(not(feature = "yaml"), allow(dead_code, reason = "only files need all of it"))]
mod draft;
mod error;
mod fault;
#[cfg(feature = "yaml")]
mod file;
mod profile;
#[cfg(feature = "yaml")]
mod read;
mod spec;
#[cfg(feature = "yaml")]
mod tree;
mod validate;

pub use error::PolicyErrors;
pub use fault::{Location, Place, PolicyFault, PolicyFaultKind};
#[cfg(feature = "yaml")]
pub use file::{PolicyFile, PolicyFileError};
pub use profile::{ClassId, Profile};
pub use spec::{BucketSpec, BusyRule, ClassKind, ClassSpec, LimitsPerWorker, PolicySpec, QueuePolicy};
