//! Rules that give requests a class, or a group for the report.
//!
//! A rule is `NAME:CONDITION,CONDITION,…`; it applies when all its conditions hold. The first rule that applies names the
//! class. A request that none applies to keeps the class of its trace.
//!
//! | condition | holds for |
//! |---|---|
//! | `tokens>=N`, also `>`, `<`, `<=`, `=` | prompts of so many tokens |
//! | `output…`, `cached…`, `uncached…` | the same for the answer, and the prompt's cached and other tokens |
//! | `share=F` | a share of the requests for which the other conditions hold, at random |
//! | `source=NAME` | requests of this trace: its file name without extension |
//! | `class=NAME`, `label=NAME` | what the trace calls the request |
//!
//! Each request draws one number, from the seed and its place in the traffic; so the same requests are in the same class
//! whatever the policy. Shares of rules after one another add up: `premium:share=0.2` and `batch:share=0.3` are a fifth and
//! three tenths of all, never of the rest.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::trace::Arrival;

/// One rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What the requests are called that it applies to.
    pub name: Arc<str>,
    conditions: Vec<Condition>,
    /// Share of the requests for which the conditions hold.
    share: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
enum Condition {
    Amount(Field, Compare, u64),
    Source(String),
    Class(String),
    Label(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Tokens,
    Output,
    Cached,
    Uncached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    AtLeast,
    AtMost,
    Above,
    Below,
    Equal,
}

impl Compare {
    /// In this order: longer signs first.
    const ALL: [(&str, Self); 5] = [
        (">=", Self::AtLeast),
        ("<=", Self::AtMost),
        (">", Self::Above),
        ("<", Self::Below),
        ("=", Self::Equal),
    ];

    fn holds(self, a: u64, b: u64) -> bool {
        match self {
            Self::AtLeast => a >= b,
            Self::AtMost => a <= b,
            Self::Above => a > b,
            Self::Below => a < b,
            Self::Equal => a == b,
        }
    }
}

/// What a rule looks at.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The request.
    pub arrival: &'a Arrival,
    /// Prompt tokens that the best worker has cached.
    pub cached: u64,
    /// Names of the traces.
    pub sources: &'a [String],
    /// The request's number from [`draw`], in 0..1.
    pub drawn: f64,
}

impl Condition {
    fn holds(&self, seen: &Seen<'_>) -> bool {
        let arrival = seen.arrival;
        match self {
            Self::Amount(field, compare, than) => {
                let cached = seen.cached.min(arrival.input);
                let amount = match field {
                    Field::Tokens => arrival.input,
                    Field::Output => arrival.output,
                    Field::Cached => cached,
                    Field::Uncached => arrival.input - cached,
                };
                compare.holds(amount, *than)
            }
            Self::Source(name) => seen.sources.get(arrival.source as usize).is_some_and(|s| s == name),
            Self::Class(name) => arrival.class.as_deref() == Some(name),
            Self::Label(name) => arrival.label.as_deref() == Some(name),
        }
    }
}

impl std::str::FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, conditions) =
            text.split_once(':').ok_or_else(|| format!("{text:?} is no NAME:CONDITION,…"))?;
        let name = name.trim();
        if name.is_empty() {
            return Err("the name is empty".into());
        }
        let mut rule = Self { name: name.into(), conditions: Vec::new(), share: None };
        for text in conditions.split(',').map(str::trim).filter(|text| !text.is_empty()) {
            let found = Compare::ALL.iter().find_map(|(sign, compare)| {
                text.split_once(sign).map(|(field, value)| (field.trim(), *compare, value.trim()))
            });
            let (field, compare, value) =
                found.ok_or_else(|| format!("{text:?} is no condition: it has none of >= <= > < ="))?;
            let amount = |field| {
                let than = value.parse().map_err(|_| format!("{text}: {value:?} is no number of tokens"))?;
                Ok::<_, String>(Condition::Amount(field, compare, than))
            };
            let condition = match (field, compare) {
                ("tokens", _) => amount(Field::Tokens)?,
                ("output", _) => amount(Field::Output)?,
                ("cached", _) => amount(Field::Cached)?,
                ("uncached", _) => amount(Field::Uncached)?,
                ("source", Compare::Equal) => Condition::Source(value.into()),
                ("class", Compare::Equal) => Condition::Class(value.into()),
                ("label", Compare::Equal) => Condition::Label(value.into()),
                ("share", Compare::Equal) => {
                    let share = value.parse().ok().filter(|share| (0.0..=1.0).contains(share));
                    let share = share.ok_or_else(|| format!("{text}: {value:?} is not from 0 to 1"))?;
                    if rule.share.replace(share).is_some() {
                        return Err(format!("{text}: share is there twice"));
                    }
                    continue;
                }
                ("source" | "class" | "label" | "share", _) => {
                    return Err(format!("{text}: {field} takes ="));
                }
                _ => {
                    return Err(format!(
                        "{text}: {field:?} is not one of tokens, output, cached, uncached, share, source, class, label"
                    ));
                }
            };
            rule.conditions.push(condition);
        }
        Ok(rule)
    }
}

/// Rules in their order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules(Vec<Rule>);

impl Rules {
    /// Rules in this order.
    ///
    /// # Errors
    /// Shares of rules without other conditions that are more than everything.
    pub fn new(rules: Vec<Rule>) -> Result<Self, RulesError> {
        let whole = rules.iter().filter(|rule| rule.conditions.is_empty());
        let sum: f64 = whole.filter_map(|rule| rule.share).sum();
        if sum > 1.0 + 1e-9 {
            return Err(RulesError(format!("the shares of all requests add up to {sum}, above 1")));
        }
        Ok(Self(rules))
    }

    /// The rules of a text, one per line; what follows a `#` is a comment.
    ///
    /// # Errors
    /// Everything that is wrong, with the line.
    pub fn parse(path: &Path, text: &str) -> Result<Vec<Rule>, RulesError> {
        let (mut rules, mut faults) = (Vec::new(), Vec::new());
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            match line.parse() {
                _ if line.is_empty() => {}
                Ok(rule) => rules.push(rule),
                Err(fault) => faults.push(format!("{}:{number}: {fault}", path.display())),
            }
        }
        if faults.is_empty() { Ok(rules) } else { Err(RulesError(faults.join("\n"))) }
    }

    /// Position of the first rule that applies.
    pub fn first(&self, seen: &Seen<'_>) -> Option<usize> {
        let mut before = 0.0;
        self.0.iter().position(|rule| {
            if !rule.conditions.iter().all(|condition| condition.holds(seen)) {
                return false;
            }
            let Some(share) = rule.share else { return true };
            let from = before;
            before += share;
            (from..before).contains(&seen.drawn)
        })
    }

    /// What the first rule calls the request that applies to it.
    pub fn name(&self, seen: &Seen<'_>) -> Option<&Arc<str>> {
        self.first(seen).map(|i| &self.0[i].name)
    }

    /// Whether any rule is about a share.
    pub fn has_shares(&self) -> bool {
        self.0.iter().any(|rule| rule.share.is_some())
    }

    /// The rules.
    pub fn rules(&self) -> &[Rule] {
        &self.0
    }
}

/// The number of the request at `place` in the traffic, in 0..1: what shares go by.
pub fn draw(seed: u64, place: u64) -> f64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(place);
    rng.random()
}

/// Rules that make no sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesError(String);

impl fmt::Display for RulesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for RulesError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Rules {
        Rules::new(texts.iter().map(|text| text.parse().unwrap()).collect()).unwrap()
    }

    fn name<'r>(rules: &'r Rules, arrival: &Arrival, cached: u64, drawn: f64) -> Option<&'r str> {
        let sources = ["one".to_owned(), "two".to_owned()];
        rules.name(&Seen { arrival, cached, sources: &sources, drawn }).map(|name| &**name)
    }

    #[test]
    fn the_first_rule_whose_conditions_all_hold_names_the_class() {
        let rules =
            rules(&["a:tokens>=100,output<5", "b:tokens>99", "c:source=two", "d:uncached=7", "e:label=x"]);
        let of = |input, output| Arrival { input, output, ..Arrival::default() };
        assert_eq!(name(&rules, &of(100, 4), 0, 0.0), Some("a"));
        assert_eq!(name(&rules, &of(100, 5), 0, 0.0), Some("b"));
        assert_eq!(name(&rules, &of(99, 0), 0, 0.0), None);
        assert_eq!(name(&rules, &of(20, 0), 13, 0.0), Some("d"));
        assert_eq!(name(&rules, &Arrival { source: 1, ..of(20, 0) }, 13, 0.0), Some("c"));
        assert_eq!(name(&rules, &Arrival { label: Some("x".into()), ..of(1, 0) }, 0, 0.0), Some("e"));
    }

    #[test]
    fn shares_are_of_all_for_which_the_other_conditions_hold() {
        let rules = rules(&["short:share=0.2,tokens<10", "other:share=0.3"]);
        let short = Arrival { input: 5, ..Arrival::default() };
        let long = Arrival { input: 50, ..Arrival::default() };
        let at = |arrival, drawn| name(&rules, arrival, 0, drawn);
        assert_eq!([0.1, 0.3, 0.6].map(|d| at(&short, d)), [Some("short"), Some("other"), None]);
        assert_eq!([0.1, 0.3, 0.6].map(|d| at(&long, d)), [Some("other"), None, None]);
    }

    #[test]
    fn draws_are_uniform_and_the_same_for_the_same_seed() {
        let draws: Vec<_> = (0..10_000).map(|place| draw(7, place)).collect();
        let below = |limit| draws.iter().filter(|d| **d < limit).count();
        // Binomial: four standard deviations are at most 200.
        for share in [0.1, 0.5, 0.9] {
            let expected = share * 1e4;
            assert!((below(share) as f64 - expected).abs() < 200.0, "{share}: {}", below(share));
        }
        assert_eq!(draws[123], draw(7, 123));
        assert_ne!(draws[123], draw(8, 123));
    }

    #[test]
    fn wrong_rules_say_what_is_wrong_and_where() {
        let path = Path::new("rules.txt");
        let text = "# fine\na:tokens>5 # too\n\nb\nc:size>4\nd:tokens>x\ne:share=2\nf:source>g\n:x=1\ng:h";
        let error = Rules::parse(path, text).unwrap_err().to_string();
        let lines: Vec<_> = error.lines().collect();
        let starts = ["4", "5", "6", "7", "8", "9", "10"].map(|n| format!("rules.txt:{n}: "));
        assert_eq!(lines.len(), starts.len(), "{error}");
        assert!(lines.iter().zip(&starts).all(|(line, start)| line.starts_with(start)), "{error}");
        let halves = ["a:share=0.6", "b:share=0.5"].map(|t| t.parse().unwrap());
        assert!(Rules::new(halves.to_vec()).unwrap_err().to_string().contains("1.1"));
    }
}
