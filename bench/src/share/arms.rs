//! The arms of the experiment: a policy each, and what is expected of it.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tollgate::policy::{ClassKind, PolicyFile, PolicyFileError, Profile};

use super::run::{Run, Workload};

/// One policy under test.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Name in the results.
    pub name: String,
    /// The policy.
    pub profile: Arc<Profile>,
    /// The policy file.
    pub policy: String,
    /// Quantum of the class that serves each class of the workload \[tokens\].
    pub quanta: Vec<u64>,
    /// Where its runs should be, if that is known.
    pub expected: Option<Expected>,
}

/// Where the runs of an arm should be, for 320 requests of 512 tokens in two classes and four slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Whose numbers these are.
    pub source: &'static str,
    /// Completions of each class among the first 320.
    pub first: [RangeInclusive<usize>; 2],
    /// Requests of the second class that are left when the first finishes.
    pub left: RangeInclusive<usize>,
}

impl Expected {
    /// Whether the run is inside.
    pub fn holds(&self, run: &Run) -> bool {
        let first = run.first();
        self.first.len() == first.len()
            && self.first.iter().zip(&first).all(|(range, count)| range.contains(count))
            && run.left(1).is_some_and(|left| self.left.contains(&left))
    }
}

/// A policy whose shares are known.
struct Known {
    name: &'static str,
    policy: &'static str,
    expected: Expected,
}

const KNOWN: [Known; 3] = [
    Known {
        name: "equal",
        policy: include_str!("../../policies/equal_share.yaml"),
        expected: Expected { source: "published", first: [159..=161, 159..=161], left: 0..=3 },
    },
    Known {
        name: "weighted",
        policy: include_str!("../../policies/premium_4x.yaml"),
        expected: Expected { source: "published", first: [254..=257, 63..=66], left: 237..=240 },
    },
    Known {
        name: "burst",
        policy: include_str!("../../policies/premium_burst.yaml"),
        // 256 ± one turn of premium (8 requests); the published program falls back to about 1 : 1 here.
        expected: Expected { source: "ours", first: [248..=264, 56..=72], left: 230..=250 },
    },
];

impl Known {
    fn profile(&self) -> Arc<Profile> {
        let file = PolicyFile::parse(self.policy).expect("a built-in policy is valid");
        file.root().expect("a built-in policy has a root profile").clone()
    }
}

/// The equal, the weighted and the burst arm.
///
/// # Errors
/// The workload has a class that they have not.
pub fn built_in(load: &Workload) -> Result<Vec<Arm>, ArmError> {
    KNOWN
        .iter()
        .map(|known| Arm::new(known.name.into(), known.profile(), known.policy.into(), load))
        .collect()
}

impl Arm {
    /// An arm with this policy.
    ///
    /// # Errors
    /// The workload has a class that the policy has not.
    pub fn new(
        name: String,
        profile: Arc<Profile>,
        policy: String,
        load: &Workload,
    ) -> Result<Self, ArmError> {
        let known = requestable(&profile);
        let unknown = load.classes.iter().filter(|class| !known.contains(&&***class));
        let unknown: Vec<_> = unknown.map(|class| class.to_string()).collect();
        if !unknown.is_empty() {
            let known = known.into_iter().map(str::to_owned).collect();
            return Err(ArmError::Classes { arm: name, unknown, known });
        }
        let quantum =
            |class: &Arc<str>| profile.classes()[profile.classify(Some(class), load.cost).index()].quantum;
        let quanta = load.classes.iter().map(quantum).collect();
        let expected = expected(&profile, load);
        Ok(Self { name, profile, policy, quanta, expected })
    }

    /// The policy in a file, with the profile for `model`; also what the operator should know about the file.
    ///
    /// # Errors
    /// The file cannot be used, or the workload has a class that it has not.
    pub fn from_file(
        path: &Path,
        model: Option<&str>,
        load: &Workload,
    ) -> Result<(Self, Vec<String>), ArmError> {
        let file = PolicyFile::read(path)?;
        let text = std::fs::read_to_string(path)
            .map_err(|source| PolicyFileError::Read { path: path.to_owned(), source })?;
        let own = model.and_then(|model| file.models().find(|(name, _)| *name == model).map(|(_, p)| p));
        let Some(profile) = own.or(file.root()) else {
            let models = file.models().map(|(name, _)| name.to_owned()).collect();
            return Err(ArmError::Model { path: path.to_owned(), models });
        };
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        let warnings = file.warnings().iter().map(|warning| format!("{}: {warning}", path.display()));
        Ok((Self::new(name, profile.clone(), text, load)?, warnings.collect()))
    }
}

/// What a request can ask for: families and explicit classes, in the order of the policy.
fn requestable(profile: &Profile) -> Vec<&str> {
    let mut names = Vec::new();
    for class in profile.classes() {
        let name = match &class.kind {
            ClassKind::Explicit => &class.name,
            ClassKind::Matrix { family, .. } => family,
        };
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

/// What is known of this very policy under this very workload.
fn expected(profile: &Profile, load: &Workload) -> Option<Expected> {
    let names: Vec<_> = load.classes.iter().map(|class| &**class).collect();
    if names != ["premium", "regular"] || (load.requests, load.cost, load.worker.slots) != (320, 512, 4) {
        return None;
    }
    KNOWN.iter().find(|known| known.profile().spec() == profile.spec()).map(|known| known.expected.clone())
}

/// Why a policy is no arm.
#[derive(Debug)]
#[non_exhaustive]
pub enum ArmError {
    /// The file cannot be read or has faults.
    File(PolicyFileError),
    /// The file has profiles for single models only, and not for the one asked for.
    Model {
        /// The file.
        path: PathBuf,
        /// The models.
        models: Vec<String>,
    },
    /// The policy lacks classes of the workload.
    Classes {
        /// Name of the arm.
        arm: String,
        /// Classes of the workload that it has not.
        unknown: Vec<String>,
        /// Those it has.
        known: Vec<String>,
    },
}

impl From<PolicyFileError> for ArmError {
    fn from(error: PolicyFileError) -> Self {
        Self::File(error)
    }
}

impl fmt::Display for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Model { path, models } => {
                write!(f, "{}: no profile but for the models {models:?}: choose with --model", path.display())
            }
            Self::Classes { arm, unknown, known } => {
                write!(
                    f,
                    "policy {arm}: no family or explicit class {unknown:?}; it has {known:?}: choose with --classes"
                )
            }
        }
    }
}

impl std::error::Error for ArmError {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hdrhistogram::Histogram;

    use super::super::worker::WorkerSpec;
    use super::*;

    fn load() -> Workload {
        Workload {
            classes: vec!["premium".into(), "regular".into()],
            requests: 320,
            cost: 512,
            threads: 8,
            worker: WorkerSpec { slots: 4, service: Duration::ZERO },
            http: false,
        }
    }

    #[test]
    fn the_built_in_arms_have_their_quanta_and_ranges() {
        let arms = built_in(&load()).unwrap();
        let shapes: Vec<_> = arms.iter().map(|arm| (arm.name.as_str(), &arm.quanta[..])).collect();
        assert_eq!(shapes, [("equal", &[512, 512][..]), ("weighted", &[512, 128]), ("burst", &[4096, 1024])]);
        assert!(arms.iter().all(|arm| arm.expected.is_some()));
    }

    #[test]
    fn the_ranges_are_for_the_published_workload_only() {
        let others = [
            Workload { requests: 321, ..load() },
            Workload { cost: 511, ..load() },
            Workload { worker: WorkerSpec { slots: 3, ..load().worker }, ..load() },
            Workload { classes: vec!["regular".into(), "premium".into()], ..load() },
        ];
        for other in others {
            assert!(built_in(&other).unwrap().iter().all(|arm| arm.expected.is_none()), "{other:?}");
        }
    }

    #[test]
    fn a_run_is_inside_only_if_every_number_is() {
        let expected = Expected { source: "test", first: [2..=3, 1..=2], left: 1..=1 };
        let holds = |completions: &[usize]| {
            expected.holds(&Run {
                completions: completions.to_vec(),
                requests: 4,
                waited: vec![Histogram::new(3).unwrap(), Histogram::new(3).unwrap()],
                refused: vec![0, 0],
                elapsed: Duration::from_secs(1),
            })
        };
        assert!(holds(&[0, 0, 1, 0, 1, 1, 0, 1]));
        assert!(!holds(&[0, 0, 0, 0, 1, 1, 1, 1]), "first of premium");
        assert!(!holds(&[0, 0, 1, 0, 1, 1, 1, 0]), "left");
        assert!(!holds(&[1, 1, 1, 1]), "premium never finishes");
    }

    #[test]
    fn a_name_that_requests_cannot_ask_for_is_no_class() {
        let classes = vec!["premium_any".into(), "regular".into()];
        let error = built_in(&Workload { classes, ..load() }).unwrap_err();
        assert_eq!(
            error.to_string(),
            "policy equal: no family or explicit class [\"premium_any\"]; it has [\"premium\", \"regular\"]: \
             choose with --classes"
        );
    }
}
