//! What a run is judged by: one number.

use std::fmt;
use std::str::FromStr;

use super::super::stats::{Counts, Outcome};

/// `NAME`, or `NAME:CLASS` for one class or group.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    what: What,
    row: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    Waited(f64),
    FirstToken(f64),
    LastToken(f64),
    MeanWaited,
    MeanFirstToken,
    LongestWait,
    Refused,
    Late,
    Lost,
    Completed,
    Share,
    PrefillRate,
    Busy,
    BusyWhileWaiting,
    Cached,
    Duration,
}

const NAMES: [(&str, What); 22] = [
    ("waited_p50", What::Waited(0.5)),
    ("waited_p90", What::Waited(0.9)),
    ("waited_p99", What::Waited(0.99)),
    ("waited_p999", What::Waited(0.999)),
    ("waited_mean", What::MeanWaited),
    ("first_token_p50", What::FirstToken(0.5)),
    ("first_token_p90", What::FirstToken(0.9)),
    ("first_token_p99", What::FirstToken(0.99)),
    ("first_token_p999", What::FirstToken(0.999)),
    ("first_token_mean", What::MeanFirstToken),
    ("last_token_p50", What::LastToken(0.5)),
    ("last_token_p99", What::LastToken(0.99)),
    ("longest_wait", What::LongestWait),
    ("refused", What::Refused),
    ("late", What::Late),
    ("lost", What::Lost),
    ("completed", What::Completed),
    ("of_its_due", What::Share),
    ("prompt_tokens_per_s", What::PrefillRate),
    ("busy", What::Busy),
    ("busy_while_waiting", What::BusyWhileWaiting),
    ("cached", What::Cached),
];

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, row) = match text.split_once(':') {
            Some((name, row)) => (name, Some(row.to_owned())),
            None => (text, None),
        };
        let found = match name {
            "duration" => Some(What::Duration),
            _ => NAMES.iter().find(|(known, _)| *known == name).map(|(_, what)| *what),
        };
        let what = found.ok_or_else(|| {
            let known: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
            format!("{name:?} is not one of {}, duration", known.join(", "))
        })?;
        let of_all = matches!(
            what,
            What::PrefillRate | What::Busy | What::BusyWhileWaiting | What::Cached | What::Duration
        );
        match (of_all, &row) {
            (true, Some(_)) => Err(format!("{name} is of all requests together")),
            (_, None) if what == What::Share => Err(format!("{name} is of a class: {name}:CLASS")),
            _ => Ok(Self { what, row }),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, what)| *what == self.what).map_or("duration", |(name, _)| name);
        let unit = match self.what {
            What::Waited(_) | What::FirstToken(_) | What::LastToken(_) => " [ms]",
            What::MeanWaited | What::MeanFirstToken | What::LongestWait => " [ms]",
            What::Busy | What::BusyWhileWaiting | What::Cached | What::Share => " [%]",
            What::Duration => " [s]",
            _ => "",
        };
        match &self.row {
            Some(row) => write!(f, "{name} of {row}{unit}"),
            None => write!(f, "{name}{unit}"),
        }
    }
}

impl Metric {
    /// Whether less is better.
    pub fn less_is_better(&self) -> bool {
        !matches!(
            self.what,
            What::Completed
                | What::Share
                | What::PrefillRate
                | What::Busy
                | What::BusyWhileWaiting
                | What::Cached
        )
    }

    /// The number of a run; `None` if nothing was measured.
    ///
    /// # Errors
    /// There is no such class or group.
    pub fn of(&self, outcome: &Outcome) -> Result<Option<f64>, String> {
        let class = |name: &str| outcome.classes.iter().find(|class| *class.name == *name);
        let counts: &Counts = match &self.row {
            None => &outcome.all,
            Some(row) => {
                let group = outcome.groups.iter().find(|group| *group.name == **row).map(|g| &g.counts);
                let found = class(row).map(|class| &class.counts).or(group);
                found.ok_or_else(|| format!("{self}: no class or group {row:?}"))?
            }
        };
        Ok(match self.what {
            What::Waited(q) => counts.waited.quantile(q),
            What::FirstToken(q) => counts.first_token.quantile(q),
            What::LastToken(q) => counts.last_token.quantile(q),
            What::MeanWaited => counts.waited.mean(),
            What::MeanFirstToken => counts.first_token.mean(),
            What::LongestWait => Some(counts.longest_wait as f64 / 1e6),
            What::Refused => Some(counts.refused() as f64),
            What::Late => Some(counts.missed() as f64),
            What::Lost => Some((counts.refused() + counts.missed() + counts.failed + counts.stuck) as f64),
            What::Completed => Some(counts.completed as f64),
            What::Share => {
                self.row.as_deref().and_then(class).and_then(|class| class.share()).map(|s| s * 100.0)
            }
            What::PrefillRate => Some(outcome.prefill_rate()),
            What::Busy => Some(outcome.utilisation() * 100.0),
            What::BusyWhileWaiting => Some(outcome.busy_while_waiting() * 100.0),
            What::Cached => Some(outcome.hit_rate() * 100.0),
            What::Duration => Some(outcome.duration as f64 / 1e9),
        })
    }
}

/// Which points no other beats: better in one number without being worse in the other. `less` says of each number whether
/// less is better.
pub fn pareto(points: &[(f64, f64)], less: (bool, bool)) -> Vec<bool> {
    let cost = |(x, y): (f64, f64)| (if less.0 { x } else { -x }, if less.1 { y } else { -y });
    let costs: Vec<_> = points.iter().map(|point| cost(*point)).collect();
    let beaten = |a: (f64, f64)| costs.iter().any(|b| b.0 <= a.0 && b.1 <= a.1 && (b.0 < a.0 || b.1 < a.1));
    costs.iter().map(|a| !beaten(*a)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_has_the_points_that_no_other_beats() {
        let points = [(1.0, 5.0), (2.0, 3.0), (2.0, 4.0), (3.0, 3.0), (4.0, 1.0), (1.0, 5.0)];
        assert_eq!(pareto(&points, (true, true)), [true, true, false, false, true, true]);
        assert_eq!(pareto(&points, (false, false)), [true, false, true, true, true, true]);
        assert_eq!(pareto(&points, (true, false)), [true, false, false, false, false, true]);
    }

    #[test]
    fn a_metric_is_known_or_says_which_are() {
        assert_eq!("waited_p99:a".parse::<Metric>().unwrap().to_string(), "waited_p99 of a [ms]");
        assert!("duration".parse::<Metric>().unwrap().less_is_better());
        assert!(!"busy".parse::<Metric>().unwrap().less_is_better());
        for wrong in ["", "waited", "busy:a", "of_its_due"] {
            assert!(wrong.parse::<Metric>().is_err(), "{wrong}");
        }
    }
}
