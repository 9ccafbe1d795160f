//! What a sweep can set: fields of classes, and numbers of the fleet.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tollgate::policy::{ClassKind, ClassSpec, PolicySpec, Profile, QueuePolicy};

use super::super::sim::Fleet;

/// A field and the values that it takes: `CLASS.FIELD=V,V,…` or `NAME=V,V,…`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Classes: a name, a family, or `*`; `None` for the fleet.
    class: Option<String>,
    field: Field,
    /// As written.
    pub values: Vec<Value>,
}

/// A value as written, and what it means.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    text: String,
    parsed: Parsed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Parsed {
    /// The field is left out.
    None,
    Number(f64),
    Whole(u64),
    Order(QueuePolicy),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Quantum,
    Threshold,
    ThresholdFrac,
    Ratio,
    RequestLimit,
    RawLimit,
    CachedLimit,
    QueueTime,
    Ageing,
    Order,
    Workers,
    Slots,
    Permits,
}

/// The names in a policy file, and of the command line.
const FIELDS: [(&str, Field); 13] = [
    ("quantum", Field::Quantum),
    ("prefill_busy_threshold", Field::Threshold),
    ("prefill_busy_threshold_frac", Field::ThresholdFrac),
    ("busy_worker_ratio", Field::Ratio),
    ("request_queue_limit_per_worker", Field::RequestLimit),
    ("raw_isl_token_queue_limit_per_worker", Field::RawLimit),
    ("cached_token_queue_limit_per_worker", Field::CachedLimit),
    ("max_queue_time_ms", Field::QueueTime),
    ("aging_tokens_per_second", Field::Ageing),
    ("queue_policy", Field::Order),
    ("workers", Field::Workers),
    ("slots", Field::Slots),
    ("permits", Field::Permits),
];

impl Field {
    fn is_of_fleet(self) -> bool {
        matches!(self, Self::Workers | Self::Slots | Self::Permits)
    }

    fn parse(self, text: &str) -> Option<Parsed> {
        match self {
            Self::Quantum => text.parse().ok().map(Parsed::Whole),
            Self::Workers | Self::Slots => {
                text.parse().ok().filter(|n| (1..=1_000_000).contains(n)).map(Parsed::Whole)
            }
            Self::Order => match text {
                "fcfs" => Some(Parsed::Order(QueuePolicy::Fcfs)),
                "wspt" => Some(Parsed::Order(QueuePolicy::Wspt)),
                "aged_wspt" => Some(Parsed::Order(QueuePolicy::AgedWspt)),
                _ => None,
            },
            _ if text == "none" => Some(Parsed::None),
            Self::Permits => {
                text.parse().ok().filter(|n| (1..=u64::from(u32::MAX)).contains(n)).map(Parsed::Whole)
            }
            Self::ThresholdFrac | Self::Ratio | Self::QueueTime | Self::Ageing => {
                text.parse().ok().filter(|v: &f64| (0.0..1e15).contains(v)).map(Parsed::Number)
            }
            _ => text.parse().ok().map(Parsed::Whole),
        }
    }
}

impl FromStr for Setting {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (target, values) =
            text.split_once('=').ok_or_else(|| format!("{text:?} is no CLASS.FIELD=VALUE,…"))?;
        // Names of classes may have dots, fields have none.
        let (class, name) = match target.trim().rsplit_once('.') {
            Some((class, field)) => (Some(class.to_owned()), field),
            None => (None, target.trim()),
        };
        let known = |of_fleet| {
            let fields = FIELDS.iter().filter(move |(_, field)| field.is_of_fleet() == of_fleet);
            fields.map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        };
        let found = FIELDS.iter().find(|(known, _)| *known == name).map(|(_, field)| *field);
        let field = match (found, &class) {
            (Some(field), None) if field.is_of_fleet() => field,
            (Some(field), Some(_)) if !field.is_of_fleet() => field,
            (_, None) => {
                return Err(format!(
                    "{name:?} is not one of {}; fields of classes are CLASS.FIELD, or *.FIELD",
                    known(true)
                ));
            }
            (_, Some(_)) => return Err(format!("{name:?} is not one of {}", known(false))),
        };
        let values = values.split(',').map(|text| {
            let text = text.trim();
            let parsed = field.parse(text).ok_or_else(|| format!("{name}: {text:?} is no value for it"))?;
            Ok(Value { text: text.to_owned(), parsed })
        });
        Ok(Self { class, field, values: values.collect::<Result<_, String>>()? })
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FIELDS.iter().find(|(_, field)| *field == self.field).map_or("", |(name, _)| name);
        match &self.class {
            Some(class) => write!(f, "{class}.{name}"),
            None => name.fmt(f),
        }
    }
}

impl Setting {
    /// Sets the field to one of its values.
    ///
    /// # Errors
    /// No class has the name.
    pub fn apply(&self, value: &Value, spec: &mut PolicySpec, fleet: &mut Fleet) -> Result<(), String> {
        let whole = match value.parsed {
            Parsed::Whole(n) => Some(n),
            _ => None,
        };
        let small = whole.and_then(|n| u32::try_from(n).ok());
        match (self.field, small) {
            (Field::Workers, Some(n)) => fleet.workers = n,
            (Field::Slots, Some(n)) => fleet.model.slots = n,
            (Field::Permits, n) => fleet.permits = n,
            _ => {}
        }
        let Some(wanted) = &self.class else { return Ok(()) };
        let mut any = false;
        for class in spec.classes.iter_mut().filter(|class| is_meant(wanted, class)) {
            any = true;
            self.apply_to(class, value.parsed, whole);
        }
        let names = || spec.classes.iter().map(|class| class.name.as_str()).collect::<Vec<_>>();
        if any {
            Ok(())
        } else {
            Err(format!("{self}: no class or family {wanted:?}, there are {:?}", names()))
        }
    }

    fn apply_to(&self, class: &mut ClassSpec, parsed: Parsed, whole: Option<u64>) {
        let number = match parsed {
            Parsed::Number(v) => Some(v),
            _ => None,
        };
        match self.field {
            Field::Quantum => class.quantum = whole.unwrap_or(0),
            Field::Threshold => class.busy.threshold_tokens = whole,
            Field::ThresholdFrac => class.busy.threshold_frac = number,
            Field::Ratio => class.busy.worker_ratio = number,
            Field::RequestLimit => class.limits.requests = whole,
            Field::RawLimit => class.limits.raw_isl_tokens = whole,
            Field::CachedLimit => class.limits.cached_tokens = whole,
            Field::QueueTime => {
                class.max_queue_time = number.map(|ms| Duration::from_nanos((ms * 1e6) as u64));
            }
            Field::Ageing => class.aging_tokens_per_second = number,
            Field::Order => {
                if let Parsed::Order(order) = parsed {
                    class.order = order;
                }
            }
            Field::Workers | Field::Slots | Field::Permits => {}
        }
    }
}

fn is_meant(wanted: &str, class: &ClassSpec) -> bool {
    wanted == "*"
        || class.name == wanted
        || matches!(&class.kind, ClassKind::Matrix { family, .. } if family == wanted)
}

/// The policy and fleet of one combination.
pub(super) fn combine(
    settings: &[Setting],
    chosen: &[usize],
    profile: &Profile,
    fleet: &Fleet,
) -> Result<(Profile, Fleet), String> {
    let (mut spec, mut fleet) = (profile.spec().clone(), *fleet);
    for (setting, &i) in settings.iter().zip(chosen) {
        setting.apply(&setting.values[i], &mut spec, &mut fleet)?;
    }
    super::super::options::check(&fleet)?;
    let profile = Profile::new(spec).map_err(|errors| format!("{}: {errors}", label(settings, chosen)))?;
    Ok((profile, fleet))
}

/// What a combination is called.
pub(super) fn label(settings: &[Setting], chosen: &[usize]) -> String {
    let values = settings.iter().zip(chosen).map(|(setting, &i)| setting.values[i].to_string());
    values.collect::<Vec<_>>().join(", ")
}

/// All combinations, the last setting changing fastest.
pub(super) fn combinations(settings: &[Setting]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for setting in settings {
        let longer = |chosen: Vec<usize>| {
            (0..setting.values.len()).map(move |i| [&chosen[..], &[i]].concat()).collect::<Vec<_>>()
        };
        all = all.into_iter().flat_map(longer).collect();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::worker::{StepTime, WorkerModel};
    use super::*;

    const FLEET: Fleet = Fleet {
        workers: 2,
        model: WorkerModel {
            slots: 4,
            step_tokens: 100,
            time: StepTime { base: 0.0, prefill: 1.0, decode: 0.0 },
        },
        permits: Some(4),
        cache_blocks: 0,
        block_tokens: 1,
    };

    fn profile() -> Profile {
        let classes = vec![ClassSpec::explicit("a", 10), ClassSpec::explicit("b.c", 20)];
        Profile::new(PolicySpec { classes, ..PolicySpec::default() }).unwrap()
    }

    #[test]
    fn every_combination_is_there_once_and_sets_what_it_says() {
        let settings: Vec<Setting> = ["a.quantum=1,2", "*.prefill_busy_threshold=none,7", "permits=4,8"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let all = combinations(&settings);
        assert_eq!(all.len(), 8);
        assert_eq!(label(&settings, &all[0]), "1, none, 4");
        assert_eq!(label(&settings, &all[7]), "2, 7, 8");
        let (changed, fleet) = combine(&settings, &all[7], &profile(), &FLEET).unwrap();
        assert_eq!(changed.classes().iter().map(|c| c.quantum).collect::<Vec<_>>(), [2, 20]);
        assert!(changed.classes().iter().all(|c| c.busy.threshold_tokens == Some(7)));
        assert_eq!((fleet.model.slots, fleet.permits), (4, Some(8)));
    }

    #[test]
    fn wrong_settings_say_what_is_possible() {
        let wrong = |text: &str| text.parse::<Setting>().unwrap_err();
        assert!(wrong("quantum=5").contains("workers, slots, permits"), "{}", wrong("quantum=5"));
        assert!(wrong("a.color=5").contains("quantum, prefill_busy_threshold"));
        assert!(wrong("a.quantum=x").contains("\"x\""));
        assert!(wrong("workers=0").contains("\"0\""));
        assert!(wrong("a").contains("CLASS.FIELD"));
        let setting: Setting = "z.quantum=1".parse().unwrap();
        let error = combine(&[setting], &[0], &profile(), &FLEET).unwrap_err();
        assert!(error.contains("\"z\"") && error.contains("b.c"), "{error}");
        let setting: Setting = "a.quantum=0".parse().unwrap();
        let error = combine(&[setting], &[0], &profile(), &FLEET).unwrap_err();
        assert!(error.contains("quantum"), "{error}");
        let setting: Setting = "b.c.quantum=3".parse().unwrap();
        assert!(combine(&[setting], &[0], &profile(), &FLEET).is_ok());
    }
}
