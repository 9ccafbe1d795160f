//! Policy files in YAML.

use crate::sync::DataArc;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::draft::Draft;
use super::error::Faults;
use super::read::drafts;
use super::tree::{MAX_BYTES, parse};
use super::validate::validate;
use super::{PolicyErrors, Profile};

/// A policy file: a profile for the root, profiles for single models, or both.
#[derive(Clone, Debug, Default)]
pub struct PolicyFile {
    root: Option<DataArc<Profile>>,
    models: BTreeMap<String, DataArc<Profile>>,
    warnings: Vec<String>,
}

impl PolicyFile {
    /// Parses and validates the text of a policy file.
    ///
    /// The sections `router`, `worker_selection` and `request_classifier` of a Dynamo file are ignored, which
    /// [`warnings`](Self::warnings) says.
    ///
    /// # Errors
    /// Every fault of the text, not only the first; a text that is not YAML, or is larger or more deeply nested
    /// than any policy, has that one fault.
    ///
    /// ```
    /// use tollgate::policy::PolicyFile;
    ///
    /// let file = PolicyFile::parse(
    ///     "
    /// default_policy_family: regular
    /// uncached_isl_buckets:
    ///   - {min_tokens: 0, bucket: any}
    /// policy_classes:
    ///   - {name: premium_any, policy_family: premium, cache_bucket: any, quantum: 512}
    ///   - {name: regular_any, policy_family: regular, cache_bucket: any, quantum: 128}
    /// ",
    /// )?;
    /// let profile = file.root().unwrap();
    /// assert_eq!(profile.classify(Some("premium"), 1_000), profile.class_id("premium_any").unwrap());
    ///
    /// let errors = PolicyFile::parse("policy_classes:\n  - {name: premium, quantum: 0}").unwrap_err();
    /// assert_eq!(errors.to_string(), "2:30: root: class \"premium\": quantum: must be greater than 0");
    /// # Ok::<(), tollgate::policy::PolicyErrors>(())
    /// ```
    pub fn parse(text: &str) -> Result<Self, PolicyErrors> {
        let mut faults = Faults::default();
        let drafts = parse(text, &mut faults).map(|document| drafts(text, &document, &mut faults));
        let drafts = drafts.unwrap_or_default();
        for draft in drafts.root.iter().chain(drafts.models.iter().map(|(_, draft)| draft)) {
            validate(draft, &mut faults);
        }
        faults.into_result()?;

        let build = |draft: Draft| draft.into_spec().map(Profile::build).map(DataArc::new);
        let warnings = match &drafts.ignored[..] {
            [] => vec![],
            ignored => {
                let list: Vec<_> = ignored
                    .iter()
                    .map(|(name, at)| match at {
                        Some(at) => format!("{name} (line {})", at.line),
                        None => (*name).to_owned(),
                    })
                    .collect();
                vec![format!("ignored, because not about queueing: {}", list.join(", "))]
            }
        };
        Ok(Self {
            root: drafts.root.and_then(build),
            models: drafts
                .models
                .into_iter()
                .filter_map(|(name, draft)| Some((name, build(draft)?)))
                .collect(),
            warnings,
        })
    }

    /// Reads, parses and validates a policy file.
    ///
    /// # Errors
    /// The file cannot be read or is not UTF-8, or what [`parse`](Self::parse) says; all name the path.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, PolicyFileError> {
        let path = path.as_ref();
        let text =
            read_text(path).map_err(|source| PolicyFileError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|errors| PolicyFileError::Invalid { path: path.to_owned(), errors })
    }

    /// The profile for `model`: its own, else that of the root, else what `synthetic` makes.
    ///
    /// A model's own profile replaces the root whole; nothing is merged.
    pub fn profile(&self, model: Option<&str>, synthetic: impl FnOnce() -> Profile) -> DataArc<Profile> {
        model
            .and_then(|name| self.models.get(name))
            .or(self.root.as_ref())
            .map_or_else(|| DataArc::new(synthetic()), DataArc::clone)
    }

    /// The profile of the root, if there is one.
    pub fn root(&self) -> Option<&DataArc<Profile>> {
        self.root.as_ref()
    }

    /// The profiles of single models, by name.
    pub fn models(&self) -> impl ExactSizeIterator<Item = (&str, &DataArc<Profile>)> {
        self.models.iter().map(|(name, profile)| (name.as_str(), profile))
    }

    /// What an operator should know although it is no fault: at most one line, about ignored sections.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// The text of a file, up to one byte more than is ever parsed, so that an endless one ends.
fn read_text(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_BYTES {
        // The cut may be inside a character. The length alone is what will be reported.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// A policy file that could not be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum PolicyFileError {
    /// The file could not be read.
    Read {
        /// The path as given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file has faults.
    Invalid {
        /// The path as given.
        path: PathBuf,
        /// All of them.
        errors: PolicyErrors,
    },
}

impl PolicyFileError {
    /// The path as given.
    pub fn path(&self) -> &Path {
        match self {
            Self::Read { path, .. } | Self::Invalid { path, .. } => path,
        }
    }
}

/// One line per fault, each starting with the path.
impl fmt::Display for PolicyFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, source } => write!(f, "{}: {source}", path.display()),
            Self::Invalid { path, errors } => {
                for (i, line) in errors.to_string().lines().enumerate() {
                    let end = if i > 0 { "\n" } else { "" };
                    write!(f, "{end}{}:{line}", path.display())?;
                }
                Ok(())
            }
        }
    }
}

// No source: the line already says it all, and a chain of causes would say it twice.
impl std::error::Error for PolicyFileError {}
