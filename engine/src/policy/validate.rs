//! The rules a profile must follow, whether it comes from a file or from code.

use std::collections::{BTreeMap, BTreeSet};

use super::draft::{Draft, DraftBucket, DraftClass, Slot, bucket_field, class_field, field};
use super::error::Faults;
use super::{Location, Place, PolicyFault, PolicyFaultKind as Kind, QueuePolicy};

/// Positions of classes and buckets are `u32`.
const MAX_ENTRIES: usize = u32::MAX as usize;

/// Notes in `faults` everything that is wrong with `draft`.
pub(super) fn validate(draft: &Draft, faults: &mut Faults) {
    let mut rules = Rules { place: &draft.place, faults };
    let classes = match &draft.classes {
        Slot::Given(classes, at) if classes.is_empty() => {
            rules.profile(field::CLASSES, *at, Kind::NoClasses);
            &[][..]
        }
        Slot::Given(classes, at) => {
            rules.count(field::CLASSES, *at, classes.len(), MAX_ENTRIES);
            &classes[..]
        }
        Slot::Absent => {
            rules.profile(field::CLASSES, draft.at, Kind::Missing);
            &[][..]
        }
        Slot::Faulty => &[][..],
    };
    if let Slot::Given(buckets, at) = &draft.buckets {
        rules.count(field::BUCKETS, *at, buckets.len(), MAX_ENTRIES);
        rules.buckets(buckets);
    }
    for (i, class) in classes.iter().enumerate() {
        rules.class(i, class);
    }
    rules.class_names(classes);
    rules.matrix(draft, classes);
    rules.default_family(draft, classes);
}

struct Rules<'a> {
    place: &'a Place,
    faults: &'a mut Faults,
}

impl Rules<'_> {
    fn push(&mut self, class: Option<String>, field: String, at: Option<Location>, kind: Kind) {
        let place = self.place.clone();
        self.faults.push(PolicyFault { place, class, field: Some(field), location: at, kind });
    }

    /// A fault of a field of the profile itself.
    fn profile(&mut self, field: &str, at: Option<Location>, kind: Kind) {
        self.push(None, field.to_owned(), at, kind);
    }

    /// A fault of a field of a class.
    fn of_class(&mut self, i: usize, class: &DraftClass, field: &str, at: Option<Location>, kind: Kind) {
        let (name, field) = class_field(i, class.name.value().map(String::as_str), field);
        self.push(name, field, at, kind);
    }

    fn count(&mut self, field: &str, at: Option<Location>, count: usize, limit: usize) {
        if count > limit {
            self.profile(field, at, Kind::TooMany { count, limit });
        }
    }

    fn buckets(&mut self, buckets: &[DraftBucket]) {
        let mut names: BTreeMap<&str, Option<Location>> = BTreeMap::new();
        let mut previous = None;
        for (i, bucket) in buckets.iter().enumerate() {
            match &bucket.min_tokens {
                Slot::Given(floor, at) => {
                    let kind = match previous {
                        None if i == 0 && *floor != 0 => Some(Kind::FirstFloorNotZero { min_tokens: *floor }),
                        Some(previous) if *floor <= previous => {
                            Some(Kind::FloorNotRising { min_tokens: *floor, previous })
                        }
                        _ => None,
                    };
                    if let Some(kind) = kind {
                        self.push(None, bucket_field(i, field::MIN_TOKENS), *at, kind);
                    }
                    previous = Some(*floor);
                }
                Slot::Absent => {
                    self.push(None, bucket_field(i, field::MIN_TOKENS), bucket.at, Kind::Missing);
                }
                Slot::Faulty => {}
            }
            match &bucket.name {
                Slot::Given(name, at) => {
                    if !is_identifier(name) {
                        let kind = Kind::InvalidName { name: name.clone() };
                        self.push(None, bucket_field(i, field::BUCKET), *at, kind);
                    }
                    if let Some(&first) = names.get(name.as_str()) {
                        let kind = Kind::DuplicateName { name: name.clone(), first };
                        self.push(None, bucket_field(i, field::BUCKET), *at, kind);
                    } else {
                        names.insert(name, *at);
                    }
                }
                Slot::Absent => self.push(None, bucket_field(i, field::BUCKET), bucket.at, Kind::Missing),
                Slot::Faulty => {}
            }
        }
    }

    /// What can be told from one class alone.
    fn class(&mut self, i: usize, class: &DraftClass) {
        match &class.name {
            Slot::Given(name, at) if !is_identifier(name) => {
                self.of_class(i, class, field::NAME, *at, Kind::InvalidName { name: name.clone() });
            }
            Slot::Absent => self.of_class(i, class, field::NAME, class.at, Kind::Missing),
            _ => {}
        }
        match &class.quantum {
            Slot::Given(0, at) => self.of_class(i, class, field::QUANTUM, *at, Kind::ZeroQuantum),
            Slot::Absent => self.of_class(i, class, field::QUANTUM, class.at, Kind::Missing),
            _ => {}
        }
        if let Some((family, at)) = class.family.given() {
            if !is_identifier(family) {
                self.of_class(i, class, field::FAMILY, at, Kind::InvalidName { name: family.clone() });
            }
            if class.bucket.is_absent() {
                let kind = Kind::HalfMatrix { given: field::FAMILY, absent: field::CACHE_BUCKET };
                self.of_class(i, class, field::FAMILY, at, kind);
            }
        }
        if let (Slot::Absent, Some((_, at))) = (&class.family, class.bucket.given()) {
            let kind = Kind::HalfMatrix { given: field::CACHE_BUCKET, absent: field::FAMILY };
            self.of_class(i, class, field::CACHE_BUCKET, at, kind);
        }
        self.busy_rule(i, class);
        self.waiting(i, class);
    }

    /// What a class says of waiting time.
    fn waiting(&mut self, i: usize, class: &DraftClass) {
        if let Some((0, at)) = class.max_queue_time.given() {
            self.of_class(i, class, field::MAX_QUEUE_TIME, at, Kind::ZeroTime);
        }
        let aged = class.order.given().filter(|(order, _)| **order == QueuePolicy::AgedWspt);
        match (aged, class.aging.given()) {
            (Some((_, at)), None) if class.aging.is_absent() => {
                self.of_class(i, class, field::AGING, at, Kind::AgingWithoutRate);
            }
            (None, Some((_, at))) if !class.order.is_faulty() => {
                self.of_class(i, class, field::AGING, at, Kind::RateWithoutAging);
            }
            _ => {}
        }
        if let Some((&value, at)) = class.aging.given() {
            if !value.is_finite() {
                self.of_class(i, class, field::AGING, at, Kind::NotFinite { value });
            } else if value <= 0.0 {
                self.of_class(i, class, field::AGING, at, Kind::NotPositive { value });
            }
        }
    }

    fn busy_rule(&mut self, i: usize, class: &DraftClass) {
        if let Some((&value, at)) = class.threshold_frac.given() {
            if !value.is_finite() {
                self.of_class(i, class, field::THRESHOLD_FRAC, at, Kind::NotFinite { value });
            } else if value < 0.0 {
                let kind = Kind::Negative { value: value.to_string() };
                self.of_class(i, class, field::THRESHOLD_FRAC, at, kind);
            }
        }
        if let Some((&value, at)) = class.worker_ratio.given() {
            // Written so that NaN fails it.
            if !(value > 0.0 && value <= 1.0) {
                self.of_class(i, class, field::RATIO, at, Kind::RatioOutOfRange { value });
            }
            if class.threshold_tokens.is_absent() && class.threshold_frac.is_absent() {
                self.of_class(i, class, field::RATIO, at, Kind::RatioWithoutThreshold);
            }
        }
    }

    /// Names are unique, and those of explicit classes are no families.
    fn class_names(&mut self, classes: &[DraftClass]) {
        let families: BTreeSet<&str> =
            classes.iter().filter_map(|class| class.family.value()).map(String::as_str).collect();
        let mut names: BTreeMap<&str, Option<Location>> = BTreeMap::new();
        for (i, class) in classes.iter().enumerate() {
            let Some((name, at)) = class.name.given() else { continue };
            if let Some(&first) = names.get(name.as_str()) {
                let kind = Kind::DuplicateName { name: name.clone(), first };
                self.of_class(i, class, field::NAME, at, kind);
            } else {
                names.insert(name, at);
            }
            if !class.is_matrix() && families.contains(name.as_str()) {
                self.of_class(i, class, field::NAME, at, Kind::NameIsFamily { name: name.clone() });
            }
        }
    }

    /// Every family has exactly one class for every bucket.
    fn matrix(&mut self, draft: &Draft, classes: &[DraftClass]) {
        let buckets = match &draft.buckets {
            Slot::Given(buckets, _) => &buckets[..],
            Slot::Absent => &[][..],
            // Nothing is known about the buckets, so nothing can be said about those who refer to them.
            Slot::Faulty => return,
        };
        if buckets.is_empty() {
            let refers = |c: &DraftClass| c.family.value().is_some() || c.bucket.value().is_some();
            if classes.iter().any(refers) {
                let at = draft.buckets.given().map_or(draft.at, |(_, at)| at);
                self.profile(field::BUCKETS, at, Kind::NoBuckets);
            }
            return;
        }
        // One of the names that could not be read may be the one that a class means.
        let all_names_known = buckets.iter().all(|bucket| bucket.name.value().is_some());
        let mut index: BTreeMap<&str, usize> = BTreeMap::new();
        for (i, name) in buckets.iter().enumerate().filter_map(|(i, b)| Some((i, b.name.value()?))) {
            index.entry(name).or_insert(i);
        }
        let mut families: BTreeMap<&str, Family> = BTreeMap::new();
        for (i, class) in classes.iter().enumerate() {
            let bucket = class.bucket.given();
            let found = bucket.and_then(|(name, _)| index.get(name.as_str()).copied());
            if let (Some((name, at)), None, true) = (bucket, found, all_names_known) {
                let kind = Kind::UnknownBucket { bucket: name.clone() };
                self.of_class(i, class, field::CACHE_BUCKET, at, kind);
            }
            let Some((name, at)) = class.family.given() else { continue };
            let family = families.entry(name).or_insert_with(|| Family { first: at, ..Family::default() });
            family.unsure |= class.bucket.is_faulty();
            let Some(found) = found else { continue };
            if !family.has.insert(found) {
                let bucket = class.bucket.value().cloned().unwrap_or_default();
                let kind = Kind::DuplicateClass { family: name.clone(), bucket };
                self.of_class(
                    i,
                    class,
                    field::CACHE_BUCKET,
                    class.bucket.given().and_then(|(_, at)| at),
                    kind,
                );
            }
        }
        let unsure = classes.iter().any(|class| class.family.is_faulty());
        for (name, family) in families.iter().filter(|(_, family)| !family.unsure && !unsure) {
            if self.faults.is_full() {
                // Families times buckets can be huge: only counted from here on.
                self.faults.omit(index.len() - family.has.len());
                continue;
            }
            for (i, bucket) in buckets.iter().enumerate().filter_map(|(i, b)| Some((i, b.name.value()?))) {
                if index[bucket.as_str()] == i && !family.has.contains(&i) {
                    let kind = Kind::MissingClass { family: (*name).to_owned(), bucket: bucket.clone() };
                    self.profile(field::CLASSES, family.first, kind);
                }
            }
        }
    }

    fn default_family(&mut self, draft: &Draft, classes: &[DraftClass]) {
        match &draft.default_family {
            Slot::Given(family, at) => {
                if !is_identifier(family) {
                    self.profile(field::DEFAULT_FAMILY, *at, Kind::InvalidName { name: family.clone() });
                }
                let known = classes.iter().any(|class| class.family.value() == Some(family));
                // Classes that could not be read may have this family.
                let unsure =
                    draft.classes.is_faulty() || classes.iter().any(|class| class.family.is_faulty());
                if !known && !unsure {
                    self.profile(field::DEFAULT_FAMILY, *at, Kind::UnknownFamily { family: family.clone() });
                }
            }
            Slot::Absent if classes.iter().any(|class| class.family.value().is_some()) => {
                self.profile(field::DEFAULT_FAMILY, draft.at, Kind::NoDefaultFamily);
            }
            Slot::Absent | Slot::Faulty => {}
        }
    }
}

/// The classes of a family, seen so far.
#[derive(Default)]
struct Family {
    /// Where it is first named.
    first: Option<Location>,
    /// Positions of its buckets.
    has: BTreeSet<usize>,
    /// Whether the bucket of one of its classes could not be read.
    unsure: bool,
}

/// Whether `name` matches `[A-Za-z_][A-Za-z0-9_.-]*`, which is safe in a metric label.
fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers() {
        for good in ["a", "Z", "_", "_9", "a.b-c_D9", "premium_any"] {
            assert!(is_identifier(good), "{good:?}");
        }
        for bad in ["", "9a", "-a", ".a", "a b", "a/b", "é", "aé", "a\n", "a\"", "a\0"] {
            assert!(!is_identifier(bad), "{bad:?}");
        }
    }

    #[test]
    fn more_entries_than_can_be_numbered() {
        let mut faults = Faults::default();
        let mut rules = Rules { place: &Place::Root, faults: &mut faults };
        rules.count(field::CLASSES, None, 3, 3);
        rules.count(field::CLASSES, None, 4, 3);
        let errors = faults.into_result().unwrap_err();
        assert_eq!(errors.faults().len(), 1);
        assert_eq!(errors.faults()[0].kind, Kind::TooMany { count: 4, limit: 3 });
    }
}
