//! What can be wrong with a policy.

/// Every fault of a policy.
#[derive(Clone, Debug)]
pub struct PolicyErrors {}
