//! From a YAML tree to drafts: which fields there are, and of which types.

use std::collections::BTreeMap;

use super::draft::{Draft, DraftBucket, DraftClass, Slot, bucket_field, class_field, field};
use super::error::Faults;
use super::fault::shown;
use super::tree::{Node, Value};
use super::{Location, Place, PolicyFault, PolicyFaultKind as Kind, QueuePolicy};

/// Sections of a Dynamo file that are about something else than queueing.
const IGNORED: [&str; 3] = ["router", "worker_selection", "request_classifier"];

const PROFILE_FIELDS: [&str; 3] = [field::DEFAULT_FAMILY, field::BUCKETS, field::CLASSES];
const BUCKET_FIELDS: [&str; 2] = [field::MIN_TOKENS, field::BUCKET];
const CLASS_FIELDS: [&str; 13] = [
    field::NAME,
    field::FAMILY,
    field::CACHE_BUCKET,
    field::QUEUE_POLICY,
    field::AGING,
    field::MAX_QUEUE_TIME,
    field::QUANTUM,
    field::THRESHOLD,
    field::THRESHOLD_FRAC,
    field::RATIO,
    field::LIMIT_REQUESTS,
    field::LIMIT_RAW,
    field::LIMIT_CACHED,
];

/// What a file says, as far as it could be understood.
#[derive(Debug, Default)]
pub(super) struct Drafts {
    pub(super) root: Option<Draft>,
    pub(super) models: Vec<(String, Draft)>,
    /// Ignored sections that are present, with their lines.
    pub(super) ignored: Vec<(&'static str, Option<Location>)>,
}

/// Reads the document, noting what is not of the right shape.
pub(super) fn drafts(text: &str, document: &Node, faults: &mut Faults) -> Drafts {
    let scope = Scope { place: Place::Root, parent: Parent::Profile };
    let mut reader = Reader { text, faults };
    let mut drafts = Drafts::default();
    if document.is_null() {
        let kind = Kind::EmptyDocument;
        let location = document.at;
        reader.faults.push(PolicyFault { place: Place::File, class: None, field: None, location, kind });
        return drafts;
    }
    let known = [&PROFILE_FIELDS[..], &IGNORED[..], &[field::MODELS]].concat();
    let Some(fields) = reader.fields(&scope, document, None, &known) else { return drafts };
    if PROFILE_FIELDS.iter().any(|name| fields.contains_key(name)) {
        drafts.root = Some(reader.profile(Place::Root, document, &fields));
    }
    if let Some(models) = fields.get(field::MODELS) {
        reader.models(models, &mut drafts);
    }
    for name in IGNORED {
        if let Some(section) = fields.get(name) {
            reader.no_duplicates(&scope, &mut vec![name], section);
            drafts.ignored.push((name, section.at));
        }
    }
    // What is wrong with a file that says something wrong is that, and not that it says nothing.
    let nothing = drafts.root.is_none() && drafts.models.is_empty() && drafts.ignored.is_empty();
    if nothing && reader.faults.is_empty() {
        let kind = Kind::EmptyDocument;
        let location = document.at;
        reader.faults.push(PolicyFault { place: Place::File, class: None, field: None, location, kind });
    }
    drafts
}

/// Whose fields are read, for the faults.
struct Scope<'n> {
    place: Place,
    parent: Parent<'n>,
}

enum Parent<'n> {
    Profile,
    Bucket(usize),
    Class(usize, Option<&'n str>),
}

type Fields<'n> = BTreeMap<&'static str, &'n Node>;

struct Reader<'a> {
    /// The file, for values as they were written.
    text: &'a str,
    faults: &'a mut Faults,
}

impl<'a> Reader<'a> {
    fn push(&mut self, scope: &Scope<'_>, field: Option<&str>, location: Option<Location>, kind: Kind) {
        let (class, field) = match (&scope.parent, field) {
            (Parent::Profile, field) => (None, field.map(str::to_owned)),
            (Parent::Bucket(i), Some(field)) => (None, Some(bucket_field(*i, field))),
            (Parent::Bucket(i), None) => (None, Some(format!("{}[{i}]", field::BUCKETS))),
            (Parent::Class(i, name), Some(field)) => {
                let (class, field) = class_field(*i, *name, field);
                (class, Some(field))
            }
            (Parent::Class(i, _), None) => (None, Some(format!("{}[{i}]", field::CLASSES))),
        };
        self.faults.push(PolicyFault { place: scope.place.clone(), class, field, location, kind });
    }

    fn wrong_type(&mut self, scope: &Scope<'_>, field: Option<&str>, node: &Node, expected: &'static str) {
        let found = node.describe(self.text);
        self.push(scope, field, node.at, Kind::WrongType { expected, found });
    }

    /// The fields of a mapping that are known and not null; anything else in it is a fault.
    fn fields<'n>(
        &mut self,
        scope: &Scope<'_>,
        node: &'n Node,
        name: Option<&str>,
        known: &[&'static str],
    ) -> Option<Fields<'n>> {
        let Value::Map(entries) = &node.value else {
            self.wrong_type(scope, name, node, "a mapping");
            return None;
        };
        let mut fields = Fields::new();
        let mut seen: BTreeMap<&str, Option<Location>> = BTreeMap::new();
        for (key, value) in entries {
            let Value::Text(name) = &key.value else {
                self.wrong_type(scope, None, key, "the name of a field");
                continue;
            };
            if let Some(&first) = seen.get(name.as_str()) {
                self.push(scope, Some(name), key.at, Kind::DuplicateField { first });
                continue;
            }
            seen.insert(name, key.at);
            match known.iter().find(|known| *known == name) {
                None => self.push(scope, Some(name), key.at, Kind::UnknownField),
                Some(_) if value.is_null() => {}
                Some(known) => {
                    fields.insert(known, value);
                }
            }
        }
        Some(fields)
    }

    fn models(&mut self, node: &Node, drafts: &mut Drafts) {
        let root = Scope { place: Place::Root, parent: Parent::Profile };
        let Value::Map(entries) = &node.value else {
            return self.wrong_type(&root, Some(field::MODELS), node, "a mapping");
        };
        let mut seen: BTreeMap<&str, Option<Location>> = BTreeMap::new();
        for (key, value) in entries {
            let Value::Text(name) = &key.value else {
                self.wrong_type(&root, Some(field::MODELS), key, "the name of a model (a string)");
                continue;
            };
            if name.is_empty() {
                self.push(&root, Some(field::MODELS), key.at, Kind::EmptyModelName);
            }
            let place = Place::Model(name.clone());
            let scope = Scope { place: place.clone(), parent: Parent::Profile };
            if let Some(&first) = seen.get(name.as_str()) {
                self.push(&scope, None, key.at, Kind::DuplicateField { first });
                continue;
            }
            seen.insert(name, key.at);
            if value.is_null() {
                self.push(&scope, None, key.at, Kind::Missing);
            } else if let Some(fields) = self.fields(&scope, value, None, &PROFILE_FIELDS) {
                drafts.models.push((name.clone(), self.profile(place, value, &fields)));
            }
        }
    }

    fn profile(&mut self, place: Place, node: &Node, fields: &Fields<'_>) -> Draft {
        let scope = Scope { place: place.clone(), parent: Parent::Profile };
        let default_family = self.text(&scope, fields, field::DEFAULT_FAMILY);
        let buckets =
            self.list(&scope, fields, field::BUCKETS, |reader, i, node| reader.bucket(&place, i, node));
        let classes =
            self.list(&scope, fields, field::CLASSES, |reader, i, node| reader.class(&place, i, node));
        Draft { at: node.at, default_family, buckets, classes, place }
    }

    fn list<'n, T>(
        &mut self,
        scope: &Scope<'_>,
        fields: &Fields<'n>,
        name: &'static str,
        mut entry: impl FnMut(&mut Self, usize, &'n Node) -> T,
    ) -> Slot<Vec<T>> {
        let Some(node) = fields.get(name) else { return Slot::Absent };
        let Value::List(nodes) = &node.value else {
            self.wrong_type(scope, Some(name), node, "a list");
            return Slot::Faulty;
        };
        Slot::Given(nodes.iter().enumerate().map(|(i, node)| entry(self, i, node)).collect(), node.at)
    }

    fn bucket(&mut self, place: &Place, i: usize, node: &Node) -> DraftBucket {
        let scope = Scope { place: place.clone(), parent: Parent::Bucket(i) };
        let Some(fields) = self.fields(&scope, node, None, &BUCKET_FIELDS) else {
            return DraftBucket::faulty();
        };
        DraftBucket {
            at: node.at,
            min_tokens: self.integer(&scope, &fields, field::MIN_TOKENS),
            name: self.text(&scope, &fields, field::BUCKET),
        }
    }

    fn class(&mut self, place: &Place, i: usize, node: &Node) -> DraftClass {
        let scope = Scope { place: place.clone(), parent: Parent::Class(i, name_of(node)) };
        let Some(fields) = self.fields(&scope, node, None, &CLASS_FIELDS) else {
            return DraftClass::faulty();
        };
        DraftClass {
            at: node.at,
            name: self.text(&scope, &fields, field::NAME),
            family: self.text(&scope, &fields, field::FAMILY),
            bucket: self.text(&scope, &fields, field::CACHE_BUCKET),
            order: self.order(&scope, &fields),
            aging: self.number(&scope, &fields, field::AGING),
            max_queue_time: self.integer(&scope, &fields, field::MAX_QUEUE_TIME),
            quantum: self.integer(&scope, &fields, field::QUANTUM),
            threshold_tokens: self.integer(&scope, &fields, field::THRESHOLD),
            threshold_frac: self.number(&scope, &fields, field::THRESHOLD_FRAC),
            worker_ratio: self.number(&scope, &fields, field::RATIO),
            limit_requests: self.integer(&scope, &fields, field::LIMIT_REQUESTS),
            limit_raw_isl_tokens: self.integer(&scope, &fields, field::LIMIT_RAW),
            limit_cached_tokens: self.integer(&scope, &fields, field::LIMIT_CACHED),
        }
    }

    fn text(&mut self, scope: &Scope<'_>, fields: &Fields<'_>, name: &'static str) -> Slot<String> {
        let Some(node) = fields.get(name) else { return Slot::Absent };
        if let Value::Text(text) = &node.value {
            return Slot::Given(text.clone(), node.at);
        }
        self.wrong_type(scope, Some(name), node, "a string");
        Slot::Faulty
    }

    fn order(&mut self, scope: &Scope<'_>, fields: &Fields<'_>) -> Slot<QueuePolicy> {
        match self.text(scope, fields, field::QUEUE_POLICY) {
            Slot::Absent => Slot::Absent,
            Slot::Faulty => Slot::Faulty,
            Slot::Given(text, at) => match text.as_str() {
                "fcfs" => Slot::Given(QueuePolicy::Fcfs, at),
                "wspt" => Slot::Given(QueuePolicy::Wspt, at),
                "aged_wspt" => Slot::Given(QueuePolicy::AgedWspt, at),
                _ => {
                    let kind = Kind::UnknownQueuePolicy { value: text };
                    self.push(scope, Some(field::QUEUE_POLICY), at, kind);
                    Slot::Faulty
                }
            },
        }
    }

    fn integer(&mut self, scope: &Scope<'_>, fields: &Fields<'_>, name: &'static str) -> Slot<u64> {
        let Some(node) = fields.get(name) else { return Slot::Absent };
        let written = node.written(self.text).unwrap_or_default();
        let kind = match node.value {
            Value::Unsigned(value) => return Slot::Given(value, node.at),
            Value::Signed(_) => Kind::Negative { value: shown(written) },
            // Beyond 64 bits the parser has nothing else than a float.
            Value::Float(value) if is_integer(written) && value < 0.0 => {
                Kind::Negative { value: shown(written) }
            }
            Value::Float(_) if is_integer(written) => Kind::TooLarge { value: shown(written) },
            _ => {
                self.wrong_type(scope, Some(name), node, "an integer");
                return Slot::Faulty;
            }
        };
        self.push(scope, Some(name), node.at, kind);
        Slot::Faulty
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a fraction above 2^53 is no less wrong for being rounded"
    )]
    fn number(&mut self, scope: &Scope<'_>, fields: &Fields<'_>, name: &'static str) -> Slot<f64> {
        let Some(node) = fields.get(name) else { return Slot::Absent };
        match node.value {
            Value::Float(value) => Slot::Given(value, node.at),
            Value::Unsigned(value) => Slot::Given(value as f64, node.at),
            Value::Signed(value) => Slot::Given(value as f64, node.at),
            _ => {
                self.wrong_type(scope, Some(name), node, "a number");
                Slot::Faulty
            }
        }
    }

    /// An ignored section is read by nobody here, but a field given twice is a mistake all the same.
    fn no_duplicates<'n>(&mut self, scope: &Scope<'_>, path: &mut Vec<&'n str>, node: &'n Node)
    where
        'a: 'n,
    {
        match &node.value {
            Value::List(nodes) => {
                for node in nodes {
                    self.no_duplicates(scope, path, node);
                }
            }
            Value::Map(entries) => {
                let mut seen: BTreeMap<&str, Option<Location>> = BTreeMap::new();
                for (key, value) in entries {
                    let name = match &key.value {
                        Value::Text(name) => name,
                        // Lists and mappings as keys are not compared.
                        _ => key.written(self.text).unwrap_or_default(),
                    };
                    path.push(name);
                    if let (Some(&first), false) = (seen.get(name), name.is_empty()) {
                        self.push(scope, Some(&path.join(".")), key.at, Kind::DuplicateField { first });
                    }
                    self.no_duplicates(scope, path, value);
                    path.pop();
                    seen.entry(name).or_insert(key.at);
                }
            }
            _ => {}
        }
    }
}

/// The name in a class entry, read ahead so that the faults of all its fields can give it.
fn name_of(node: &Node) -> Option<&str> {
    let Value::Map(entries) = &node.value else { return None };
    entries.iter().find_map(|(key, value)| match (&key.value, &value.value) {
        (Value::Text(key), Value::Text(name)) if key == field::NAME => Some(name.as_str()),
        _ => None,
    })
}

fn is_integer(written: &str) -> bool {
    let digits = written.strip_prefix(['-', '+']).unwrap_or(written);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}
