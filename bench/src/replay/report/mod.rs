//! The results, for people and for programs.
//!
//! | file | |
//! |---|---|
//! | `text` | tables |
//! | `compare` | what differs between policies |
//! | `json` | one document with everything |
//! | `chart` | pictures |
//! | `html` | one page with tables and pictures |

pub(super) mod chart;
mod compare;
mod html;
mod json;
mod text;

pub use compare::{Difference, Verdict, differences};
pub use html::html;
pub use json::json;
pub use text::text;

use super::options::Traffic;
use super::sim::Fleet;
use super::stats::{Counts, Outcome};
use crate::shown::grouped;

/// A policy with its outcome.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Name of the policy.
    pub name: String,
    /// What became of the traffic.
    pub outcome: Outcome,
}

/// What all outcomes of a report have in common.
#[derive(Clone, Debug)]
pub struct Context {
    /// The traffic.
    pub traffic: Traffic,
    /// The workers.
    pub fleet: Fleet,
}

impl Context {
    /// The traces and their speed.
    pub(super) fn traffic_name(&self) -> String {
        let [traffic, _] = self.head();
        traffic
    }

    /// The traces and the workers in two lines.
    fn head(&self) -> [String; 2] {
        let names: Vec<_> = self.traffic.sources.iter().map(ToString::to_string).collect();
        let mut traffic = names.join(" + ");
        if self.traffic.cut.speed != 1.0 {
            traffic += &format!(" at {}× speed", self.traffic.cut.speed);
        }
        let Fleet { workers, model, permits, .. } = self.fleet;
        let permits = match permits {
            Some(permits) => format!(" and {permits} permits"),
            None => String::new(),
        };
        let time = model.time;
        let workers = format!(
            "{workers} workers of {} slots{permits}; steps of {} tokens take {} ms + {} µs per prompt token + {} µs per \
             decoding request",
            model.slots,
            model.step_tokens,
            digits(time.base / 1e6),
            digits(time.prefill / 1e3),
            digits(time.decode / 1e3),
        );
        [traffic, workers]
    }
}

/// Rows of a report: classes, groups, and all, by their names in it.
fn rows(outcome: &Outcome) -> Vec<(String, &Counts)> {
    let classes = outcome.classes.iter().map(|class| (class.name.to_string(), &class.counts));
    let groups = outcome.groups.iter().map(|group| (format!("group {}", group.name), &group.counts));
    let mut rows: Vec<_> = classes.collect();
    if rows.len() > MOST_ROWS {
        // The busiest; nobody reads ten thousand lines.
        rows.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.served));
        rows.truncate(MOST_ROWS);
    }
    rows.extend(groups);
    rows.push(("all".into(), &outcome.all));
    rows
}

/// Classes at most in a table.
const MOST_ROWS: usize = 24;

/// A number with about three digits, with separators from 1,000 on.
pub(super) fn digits(value: f64) -> String {
    let places = match value.abs() {
        v if v == 0.0 || v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 0.1 => 2,
        v => (1 - v.log10().floor() as i32).clamp(0, 9) as usize,
    };
    let text = format!("{value:.places$}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |rest| ("-", rest));
    let fraction = fraction.trim_end_matches('0');
    let point = if fraction.is_empty() { "" } else { "." };
    format!("{sign}{}{point}{fraction}", grouped(whole))
}

/// A whole number with separators.
pub(super) fn whole(value: u64) -> String {
    // Exact beyond 2⁵³ too.
    grouped(&value.to_string())
}

/// A number, or a dash where there is none.
fn optional(value: Option<f64>) -> String {
    value.map_or("–".into(), digits)
}

/// A share in percent.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", digits((share * 1e3).round() / 10.0))
}

/// A duration as a person says it.
pub(super) fn span(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        ..120.0 => format!("{} s", digits(seconds)),
        ..7_200.0 => format!("{} min", digits(seconds / 60.0)),
        _ => format!("{} h", digits(seconds / 3_600.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_about_three_digits_and_separators() {
        let shown =
            [0.0, 0.00123, 0.5, 1.234, 12.0, 12.34, 99.96, 1_234.5, 1_234_567.0, -1_500.0].map(digits);
        let wanted = ["0", "0.0012", "0.5", "1.23", "12", "12.3", "100", "1,234", "1,234,567", "-1,500"];
        assert_eq!(shown.to_vec(), wanted);
        assert_eq!(whole(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!([span(1_500_000_000), span(600_000_000_000)], ["1.5 s", "10 min"]);
        assert_eq!(percent(0.1234), "12.3 %");
    }
}
