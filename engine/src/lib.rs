//! Tollgate.

pub mod policy;
