//! One fault of a policy: what is wrong, and where.

use std::fmt;

/// Characters of a quoted name or value shown in a message. Guessed: a long identifier still fits.
const MAX_SHOWN: usize = 64;

/// Position in a policy file, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    /// Line.
    pub line: u32,
    /// Column \[characters\].
    pub column: u32,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The part of a policy that a fault belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// The file as a whole: it could not be read as one YAML document.
    File,
    /// The root profile, or a spec built in code.
    Root,
    /// The profile of this model.
    Model(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("file"),
            Self::Root => f.write_str("root"),
            Self::Model(name) => write!(f, "model {}", Quoted(name)),
        }
    }
}

/// One thing that is wrong with a policy.
///
/// Displays as one line, such as `3:12: root: class "premium": quantum: must be greater than 0`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PolicyFault {
    /// Profile with the fault.
    pub place: Place,
    /// Class with the fault, if it is in a class that has a name.
    pub class: Option<String>,
    /// Field with the fault: a plain name inside a named class and at the top of a profile, otherwise a path
    /// such as `uncached_isl_buckets[1].min_tokens`.
    pub field: Option<String>,
    /// Where in the file; `None` for a spec built in code.
    pub location: Option<Location>,
    /// What is wrong.
    pub kind: PolicyFaultKind,
}

impl fmt::Display for PolicyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = self.location {
            write!(f, "{location}: ")?;
        }
        write!(f, "{}: ", self.place)?;
        if let Some(class) = &self.class {
            write!(f, "class {}: ", Quoted(class))?;
        }
        if let Some(field) = &self.field {
            write!(f, "{}: ", Plain(field))?;
        }
        self.kind.fmt(f)
    }
}

/// The kinds of faults, each with the wrong value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum PolicyFaultKind {
    /// The text is not YAML.
    Syntax {
        /// What the parser says.
        message: String,
    },
    /// The document nests, repeats or expands more than any policy needs.
    TooComplex {
        /// Which bound was hit.
        message: String,
    },
    /// The text is longer than any policy needs.
    TooLong {
        /// Most that is read \[bytes\].
        limit: usize,
    },
    /// Nothing in the document, or only absent sections.
    EmptyDocument,
    /// A second document after the first.
    MultipleDocuments,
    /// A field of a name that does not exist here.
    UnknownField,
    /// The same field twice.
    DuplicateField {
        /// Where it was first.
        first: Option<Location>,
    },
    /// A value of another type.
    WrongType {
        /// What belongs here, with its article.
        expected: &'static str,
        /// What is here.
        found: String,
    },
    /// A number below 0.
    Negative {
        /// As written.
        value: String,
    },
    /// An integer above `u64::MAX`.
    TooLarge {
        /// As written.
        value: String,
    },
    /// A queue policy that does not exist.
    UnknownQueuePolicy {
        /// As written.
        value: String,
    },
    /// A required field is absent or null.
    Missing,
    /// A profile without classes.
    NoClasses,
    /// More classes, or more buckets, than can be numbered.
    TooMany {
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A model with an empty name.
    EmptyModelName,
    /// A name that is not safe in a metric label.
    InvalidName {
        /// The name.
        name: String,
    },
    /// A class name, or a bucket name, that was used before.
    DuplicateName {
        /// The name.
        name: String,
        /// Where it was first.
        first: Option<Location>,
    },
    /// A quantum of 0.
    ZeroQuantum,
    /// A waiting time of 0, which would refuse every request.
    ZeroTime,
    /// Ageing without the rate that it goes by.
    AgingWithoutRate,
    /// A rate of ageing in a class that does not age.
    RateWithoutAging,
    /// A number that is 0 or below where it must be above.
    NotPositive {
        /// The value.
        value: f64,
    },
    /// A family without a bucket, or a bucket without a family.
    HalfMatrix {
        /// The field that is there.
        given: &'static str,
        /// The field that is not.
        absent: &'static str,
    },
    /// Matrix classes in a profile without buckets.
    NoBuckets,
    /// A bucket that no entry of `uncached_isl_buckets` defines.
    UnknownBucket {
        /// The name that was looked up.
        bucket: String,
    },
    /// No class for this family and bucket.
    MissingClass {
        /// The family.
        family: String,
        /// The bucket.
        bucket: String,
    },
    /// A second class for this family and bucket.
    DuplicateClass {
        /// The family.
        family: String,
        /// The bucket.
        bucket: String,
    },
    /// The first bucket does not start at 0.
    FirstFloorNotZero {
        /// Where it starts \[uncached tokens\].
        min_tokens: u64,
    },
    /// A bucket does not start above the one before it.
    FloorNotRising {
        /// Where it starts \[uncached tokens\].
        min_tokens: u64,
        /// Where the one before it starts \[uncached tokens\].
        previous: u64,
    },
    /// Matrix classes in a profile without a default family.
    NoDefaultFamily,
    /// The default family is not the family of any class.
    UnknownFamily {
        /// The name that was looked up.
        family: String,
    },
    /// An explicit class has the name of a family, so that requests by that name would be ambiguous.
    NameIsFamily {
        /// The name.
        name: String,
    },
    /// A fraction that is NaN or infinite.
    NotFinite {
        /// The value.
        value: f64,
    },
    /// A ratio outside (0, 1].
    RatioOutOfRange {
        /// The value.
        value: f64,
    },
    /// A ratio in a class that never finds an endpoint busy.
    RatioWithoutThreshold,
}

impl fmt::Display for PolicyFaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { message } => write!(f, "not valid YAML: {message}"),
            Self::TooComplex { message } => write!(f, "too complex for a policy: {message}"),
            Self::TooLong { limit } => write!(f, "longer than {limit} bytes"),
            Self::EmptyDocument => f.write_str("configures nothing"),
            Self::MultipleDocuments => f.write_str("must be a single YAML document"),
            Self::UnknownField => f.write_str("is not a known field"),
            Self::DuplicateField { first } => write!(f, "is given twice{}", FirstAt(*first)),
            Self::WrongType { expected, found } => write!(f, "must be {expected}, found {found}"),
            Self::Negative { value } => write!(f, "must not be negative, is {}", Plain(value)),
            Self::TooLarge { value } => write!(f, "must be at most {}, is {}", u64::MAX, Plain(value)),
            Self::UnknownQueuePolicy { value } => {
                write!(f, "must be fcfs, wspt or aged_wspt, is {}", Quoted(value))
            }
            Self::Missing => f.write_str("is missing"),
            Self::NoClasses => f.write_str("must have at least one class"),
            Self::TooMany { count, limit } => write!(f, "has {count} entries, more than {limit}"),
            Self::EmptyModelName => f.write_str("a model name must not be empty"),
            Self::InvalidName { name } => {
                write!(f, "must match [A-Za-z_][A-Za-z0-9_.-]*, is {}", Quoted(name))
            }
            Self::DuplicateName { name, first } => {
                write!(f, "{} is used twice{}", Quoted(name), FirstAt(*first))
            }
            Self::ZeroQuantum | Self::ZeroTime => f.write_str("must be greater than 0"),
            Self::AgingWithoutRate => f.write_str("is missing, and needed because queue_policy is aged_wspt"),
            Self::RateWithoutAging => f.write_str("is only for queue_policy aged_wspt"),
            Self::NotPositive { value } => write!(f, "must be greater than 0, is {value}"),
            Self::HalfMatrix { given, absent } => {
                write!(
                    f,
                    "needs {absent} as well (a class has both, or neither if it is explicit), has {given}"
                )
            }
            Self::NoBuckets => {
                f.write_str("must have at least one bucket, because there are classes with a policy_family")
            }
            Self::UnknownBucket { bucket } => {
                write!(f, "{} is not in uncached_isl_buckets", Quoted(bucket))
            }
            Self::MissingClass { family, bucket } => {
                write!(f, "no class for policy_family {} and cache_bucket {}", Quoted(family), Quoted(bucket))
            }
            Self::DuplicateClass { family, bucket } => write!(
                f,
                "there already is a class for policy_family {} and cache_bucket {}",
                Quoted(family),
                Quoted(bucket)
            ),
            Self::FirstFloorNotZero { min_tokens } => {
                write!(f, "must be 0 in the first bucket, is {min_tokens}")
            }
            Self::FloorNotRising { min_tokens, previous } => {
                write!(f, "must be greater than {previous} of the bucket before, is {min_tokens}")
            }
            Self::NoDefaultFamily => {
                f.write_str("is missing, and needed because there are classes with a policy_family")
            }
            Self::UnknownFamily { family } => {
                write!(f, "{} is not the policy_family of any class", Quoted(family))
            }
            Self::NameIsFamily { name } => {
                write!(f, "{} is also a policy_family, which an explicit class must not be", Quoted(name))
            }
            Self::NotFinite { value } => write!(f, "must be finite, is {value}"),
            Self::RatioOutOfRange { value } => {
                write!(f, "must be greater than 0 and at most 1, is {value}")
            }
            Self::RatioWithoutThreshold => {
                f.write_str("needs prefill_busy_threshold or prefill_busy_threshold_frac")
            }
        }
    }
}

/// Text from the outside in quotes: escaped, so that it stays on its line, and cut, so that it stays short.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", Plain(self.0))
    }
}

/// As [`Quoted`], without the quotes.
struct Plain<'a>(&'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.char_indices().nth(MAX_SHOWN).map_or(self.0.len(), |(at, _)| at);
        write!(f, "{}", self.0[..end].escape_debug())?;
        if end < self.0.len() { f.write_str("…") } else { Ok(()) }
    }
}

/// Text from the outside as messages show it.
#[cfg(feature = "yaml")]
pub(super) fn quoted(text: &str) -> String {
    Quoted(text).to_string()
}

/// As [`quoted`], without the quotes.
#[cfg(feature = "yaml")]
pub(super) fn shown(text: &str) -> String {
    Plain(text).to_string()
}

/// `, first at 3:5`, if that is known.
struct FirstAt(Option<Location>);

impl fmt::Display for FirstAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(location) => write!(f, ", first at {location}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_stays_on_its_line_and_short() {
        let name = "a\nb\u{1b}[31m".repeat(1_000);
        let line = PolicyFaultKind::InvalidName { name }.to_string();
        assert!(!line.contains(['\n', '\u{1b}']) && line.len() < 500, "{line:?}");
    }
}
