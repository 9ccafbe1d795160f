//! Bridges to what routers are built of. Each is behind a feature of its own, uses the public engine only, and decides
//! nothing.

#[cfg(feature = "metrics")]
pub mod metrics;
#[cfg(feature = "tower")]
pub mod tower;
