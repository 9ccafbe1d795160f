//! The one source of everything that threads share.

/// Shared data that never changes: no protocol, so no model of it.
pub(crate) use std::sync::Arc as DataArc;
