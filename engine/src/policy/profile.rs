//! A validated profile: the classes of one model, and which of them a request belongs to.

use rustc_hash::FxHashMap;

use super::draft::Draft;
use super::error::Faults;
use super::validate::validate;
use super::{ClassKind, ClassSpec, PolicyErrors, PolicySpec, QueuePolicy};

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
///
/// Validation happens once, here; [`classify`](Self::classify) only reads tables made at construction.
#[derive(Clone, Debug)]
pub struct Profile {
    spec: PolicySpec,
    /// Every class by its name.
    by_name: FxHashMap<Box<str>, ClassId>,
    /// What a requested name means. A name that is not here means `fallback`.
    targets: FxHashMap<Box<str>, Target>,
    fallback: Target,
    /// Bucket floors, strictly rising from 0 \[uncached tokens\].
    floors: Box<[u64]>,
    /// Classes by family, then bucket: `families × floors`.
    matrix: Box<[ClassId]>,
}

/// What a requested name stands for.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// An explicit class.
    Class(ClassId),
    /// A family; the value is the start of its row in [`Profile::matrix`].
    Family(usize),
}

impl Profile {
    /// Validates `spec`.
    ///
    /// With explicit classes only there need not be a default family: requests that name no class then go to
    /// the first one.
    ///
    /// # Errors
    /// Every fault found, not only the first.
    pub fn new(spec: PolicySpec) -> Result<Self, PolicyErrors> {
        let mut faults = Faults::default();
        validate(&Draft::of(&spec), &mut faults);
        faults.into_result()?;
        Ok(Self::build(spec))
    }

    /// The one-class profile `default` of a router without a policy file: quantum 1.
    pub fn synthetic(threshold_tokens: Option<u64>, order: QueuePolicy) -> Self {
        let mut class = ClassSpec::explicit("default", 1);
        class.order = order;
        class.busy.threshold_tokens = threshold_tokens;
        Self::build(PolicySpec { classes: vec![class], ..PolicySpec::default() })
    }

    /// The tables for a spec without faults.
    pub(super) fn build(spec: PolicySpec) -> Self {
        let width = spec.buckets.len();
        let bucket_index: FxHashMap<&str, usize> =
            spec.buckets.iter().enumerate().map(|(i, bucket)| (bucket.name.as_str(), i)).collect();
        let mut by_name = FxHashMap::default();
        let mut targets: FxHashMap<Box<str>, Target> = FxHashMap::default();
        let mut matrix = Vec::new();
        for (i, class) in spec.classes.iter().enumerate() {
            let id = ClassId(i as u32); // validated: positions fit
            by_name.insert(class.name.as_str().into(), id);
            match &class.kind {
                ClassKind::Explicit => {
                    targets.insert(class.name.as_str().into(), Target::Class(id));
                }
                ClassKind::Matrix { family, bucket } => {
                    let target = targets.entry(family.as_str().into()).or_insert_with(|| {
                        let row = matrix.len();
                        // Validated: every place of the row is overwritten by the class it belongs to.
                        matrix.resize(row + width, id);
                        Target::Family(row)
                    });
                    if let Target::Family(row) = *target {
                        matrix[row + bucket_index[bucket.as_str()]] = id;
                    }
                }
            }
        }
        let fallback = spec
            .default_family
            .as_deref()
            .and_then(|family| targets.get(family).copied())
            .unwrap_or(Target::Class(ClassId(0)));
        let floors = spec.buckets.iter().map(|bucket| bucket.min_tokens).collect();
        Self { by_name, targets, fallback, floors, matrix: matrix.into(), spec }
    }

    /// The spec this profile was made of.
    pub fn spec(&self) -> &PolicySpec {
        &self.spec
    }

    /// Classes in ring order; never empty.
    pub fn classes(&self) -> &[ClassSpec] {
        &self.spec.classes
    }

    /// The class with this name, explicit or not.
    pub fn class_id(&self, name: &str) -> Option<ClassId> {
        self.by_name.get(name).copied()
    }

    /// The class of a request that asks for `requested` and has `uncached` uncached tokens.
    ///
    /// The name of an explicit class is that class, whatever the bucket. The name of a family is that family,
    /// and anything else the default family: nothing, an unknown name, also the name of a matrix class. Of the
    /// family it is the class for the last bucket that starts at or below `uncached`.
    ///
    /// Without families, everything that does not name a class goes to the first class.
    ///
    /// ```
    /// use tollgate::policy::{BucketSpec, ClassSpec, PolicySpec, Profile};
    ///
    /// let profile = Profile::new(PolicySpec {
    ///     default_family: Some("regular".into()),
    ///     buckets: vec![
    ///         BucketSpec { min_tokens: 0, name: "short".into() },
    ///         BucketSpec { min_tokens: 4096, name: "long".into() },
    ///     ],
    ///     classes: vec![
    ///         ClassSpec::matrix("regular_short", "regular", "short", 512),
    ///         ClassSpec::matrix("regular_long", "regular", "long", 256),
    ///         ClassSpec::explicit("health", 64),
    ///     ],
    /// })?;
    /// let name = |requested, uncached| &profile.classes()[profile.classify(requested, uncached).index()].name;
    ///
    /// assert_eq!(name(Some("regular"), 4095), "regular_short");
    /// assert_eq!(name(None, 4096), "regular_long");
    /// assert_eq!(name(Some("health"), 1_000_000), "health");
    /// # Ok::<(), tollgate::policy::PolicyErrors>(())
    /// ```
    pub fn classify(&self, requested: Option<&str>, uncached: u64) -> ClassId {
        let target = requested.and_then(|name| self.targets.get(name).copied()).unwrap_or(self.fallback);
        match target {
            Target::Class(id) => id,
            Target::Family(row) => {
                // Validated: the first floor is 0, so at least one is at or below any number.
                let bucket = self.floors.partition_point(|&floor| floor <= uncached) - 1;
                self.matrix[row + bucket]
            }
        }
    }
}

const _: () = {
    const fn shared<T: Clone + Send + Sync>() {}
    shared::<Profile>();
};
