//! YAML as a tree that remembers where everything was, so that all faults of a file can be reported at once.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::{DuplicateKeyPolicy, Error, NonFiniteFloatPolicy, Options, Spanned};

use super::error::Faults;
use super::fault::{quoted, shown};
use super::{Location, Place, PolicyFault, PolicyFaultKind};

/// Longest text that is parsed \[bytes\]: some ten thousand classes. Guessed.
pub(super) const MAX_BYTES: usize = 4 << 20;

/// Longest scalar \[bytes\]. An alias repeats a scalar as often as the bounds on aliases allow, so this also
/// bounds what a short file can make of itself. Guessed.
const MAX_SCALAR_BYTES: usize = 16 << 10;

/// How [`Node`] says so, through an error type that is not ours.
const LONG_SCALAR: &str = "a scalar is longer than 16384 bytes";

/// A value and where it is.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) at: Option<Location>,
    /// Bytes of the text it was written with, if it is a scalar.
    span: Option<(usize, usize)>,
}

#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Unsigned(u64),
    /// Below 0.
    Signed(i64),
    /// Also an integer that fits into neither of the two above.
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Node, Node)>),
}

impl Node {
    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// A scalar as it was written.
    pub(super) fn written<'t>(&self, text: &'t str) -> Option<&'t str> {
        let (start, end) = self.span?;
        text.get(start..end).map(str::trim)
    }

    /// What this is, for the second half of "must be a list, found …".
    pub(super) fn describe(&self, text: &str) -> String {
        let or = |value: String| self.written(text).map_or(value, shown);
        match &self.value {
            Value::Null => "null".into(),
            Value::Bool(value) => or(value.to_string()),
            Value::Unsigned(value) => or(value.to_string()),
            Value::Signed(value) => or(value.to_string()),
            Value::Float(value) => or(value.to_string()),
            Value::Text(value) => format!("the string {}", quoted(value)),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a mapping".into(),
        }
    }
}

/// Parses one document. A document without content is null.
pub(super) fn parse(text: &str, faults: &mut Faults) -> Option<Node> {
    let mut fail = |location, kind| {
        faults.push(PolicyFault { place: Place::File, class: None, field: None, location, kind });
        None
    };
    if text.len() > MAX_BYTES {
        return fail(None, PolicyFaultKind::TooLong { limit: MAX_BYTES });
    }
    match serde_saphyr::from_str_with_options(text, options()) {
        Ok(node) => Some(node),
        Err(error) => fail(error.location().and_then(place), kind_of(&error)),
    }
}

/// Readings as strict as those of the reference, and bounds far above any policy but harmless for a router: a
/// file that breaks them is refused within milliseconds.
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 32,
            flow_nesting_limit: 32,
            max_events: 400_000,
            max_nodes: 150_000,
            max_documents: 1,
            max_aliases: 10_000,
            max_anchors: 10_000,
            max_merge_keys: 10_000,
            max_recorded_anchor_events: 100_000,
            max_recorded_anchor_bytes: 1 << 20,
            max_total_scalar_bytes: MAX_BYTES,
            // One template for all classes is how anchors are used here.
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 10_000,
            max_replay_stack_depth: 8,
        },
        // Reported by the reader, together with everything else that is wrong.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        // `on` and `no` are names, and 0755 and 1_000 are no numbers: one reading for each value.
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        emit_comments: false,
        with_snippet: false,
    }
}

fn place(location: serde_saphyr::Location) -> Option<Location> {
    let clamp = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let known = location.line() > 0;
    known.then(|| Location { line: clamp(location.line()), column: clamp(location.column()) })
}

fn kind_of(error: &Error) -> PolicyFaultKind {
    let too_complex = |what: &str| PolicyFaultKind::TooComplex { message: what.into() };
    match error.without_snippet() {
        Error::AliasError { error, .. } => kind_of(error),
        Error::MultipleDocuments { .. } => PolicyFaultKind::MultipleDocuments,
        Error::Message { msg, .. } if msg == LONG_SCALAR => too_complex(LONG_SCALAR),
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Documents { .. } => PolicyFaultKind::MultipleDocuments,
            BudgetBreach::Depth { .. } => too_complex("nested too deeply"),
            BudgetBreach::Events { .. } | BudgetBreach::Nodes { .. } => too_complex("too many values"),
            BudgetBreach::ScalarBytes { .. } => too_complex("too much text"),
            _ => too_complex("too many anchors, aliases or merge keys"),
        },
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => too_complex("aliases expand to too many values"),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            PolicyFaultKind::Syntax { message: "an alias inside its own anchor".into() }
        }
        error => PolicyFaultKind::Syntax { message: message(error) },
    }
}

/// What the parser says: on one line, short, and without the location, which the fault has.
fn message(error: &Error) -> String {
    use serde_saphyr::MessageFormatter as _;
    let message = serde_saphyr::DefaultMessageFormatter.format_message(error);
    let line = message.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.trim_end_matches('.').chars().filter(|c| !c.is_control()).take(300).collect();
    line
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, referenced, defined } = Spanned::<Value>::deserialize(deserializer)?;
        let bytes = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok());
        let span = match &value {
            Value::List(_) | Value::Map(_) => None,
            _ => bytes(defined.span().byte_offset()).zip(bytes(defined.span().byte_len())),
        };
        let span = span.map(|(start, len)| (start, start.saturating_add(len)));
        let written = span.map_or(0, |(start, end)| end - start);
        let read = if let Value::Text(text) = &value { text.len() } else { 0 };
        if written.max(read) > MAX_SCALAR_BYTES {
            return Err(D::Error::custom(LONG_SCALAR));
        }
        Ok(Self { value, at: place(referenced), span })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(u64::try_from(value).map_or(Value::Signed(value), Value::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = access.next_element()? {
            nodes.push(node);
        }
        Ok(Value::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = access.next_key::<Node>()? {
            entries.push((key, access.next_value()?));
        }
        Ok(Value::Map(entries))
    }
}
