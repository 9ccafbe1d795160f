//! What differs between two policies on the same traffic.

use super::super::stats::{Counts, Outcome};
use super::{digits, rows};

/// A number before and after.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Class, group, or `all`.
    pub row: String,
    /// What was measured.
    pub metric: &'static str,
    /// With the first policy.
    pub before: f64,
    /// With the other.
    pub after: f64,
    /// Whether less is better.
    pub less_is_better: bool,
}

/// Which way a number went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// By less than a fiftieth.
    Same,
    /// The good way.
    Better,
    /// The bad way.
    Worse,
}

impl Difference {
    /// Which way it went.
    pub fn verdict(&self) -> Verdict {
        let change = self.after - self.before;
        // Also nothing: times below a tenth of a millisecond, counts below 1.
        if change.abs() <= 0.02 * self.before.abs().max(self.after.abs()) || change.abs() < 0.1 {
            Verdict::Same
        } else if (change < 0.0) == self.less_is_better {
            Verdict::Better
        } else {
            Verdict::Worse
        }
    }

    /// The number after, with the change and a mark.
    pub fn text(&self) -> String {
        let mark = match self.verdict() {
            Verdict::Same => return format!("{}        =", digits(self.after)),
            Verdict::Better => "better",
            Verdict::Worse => "worse",
        };
        let change = match self.before {
            0.0 => "new".into(),
            before => {
                let change = (self.after / before - 1.0) * 100.0;
                match change {
                    900.0.. => format!("×{}", digits(self.after / before)),
                    _ => format!("{}{} %", if change > 0.0 { "+" } else { "−" }, digits(change.abs())),
                }
            }
        };
        format!("{} {change} {mark}", digits(self.after))
    }
}

/// Every number of both, for the rows that both have.
pub fn differences(before: &Outcome, after: &Outcome) -> Vec<Difference> {
    let others = rows(after);
    let mut list = Vec::new();
    for (row, a) in rows(before) {
        let Some((_, b)) = others.iter().find(|(name, _)| *name == row) else { continue };
        type Read = fn(&Counts) -> Option<f64>;
        let metrics: [(&'static str, Read, bool); 8] = [
            ("waited p50 [ms]", |c| c.waited.quantile(0.5), true),
            ("waited p99 [ms]", |c| c.waited.quantile(0.99), true),
            ("first token p50 [ms]", |c| c.first_token.quantile(0.5), true),
            ("first token p99 [ms]", |c| c.first_token.quantile(0.99), true),
            ("longest wait [ms]", |c| Some(c.longest_wait as f64 / 1e6), true),
            ("refused", |c| Some(c.refused() as f64), true),
            ("late", |c| Some(c.missed() as f64), true),
            ("completed", |c| Some(c.completed as f64), false),
        ];
        for (metric, read, less_is_better) in metrics {
            // Another policy may leave other prompts cached, and so other requests in a group.
            if metric == "completed" && a.arrived != b.arrived {
                continue;
            }
            if let (Some(before), Some(after)) = (read(a), read(b)) {
                list.push(Difference { row: row.clone(), metric, before, after, less_is_better });
            }
        }
    }
    type ReadAll = fn(&Outcome) -> f64;
    let whole: [(&'static str, ReadAll); 3] = [
        ("prompt tokens per s", Outcome::prefill_rate),
        ("of the prompts cached [%]", |o| o.hit_rate() * 100.0),
        ("busy while something waits [%]", |o| o.busy_while_waiting() * 100.0),
    ];
    for (metric, read) in whole {
        let (before, after) = (read(before), read(after));
        list.push(Difference { row: "workers".into(), metric, before, after, less_is_better: false });
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_a_direction_and_small_ones_have_none() {
        let of = |before, after, less_is_better| Difference {
            row: "a".into(),
            metric: "m",
            before,
            after,
            less_is_better,
        };
        assert_eq!(of(100.0, 50.0, true).verdict(), Verdict::Better);
        assert_eq!(of(100.0, 50.0, false).verdict(), Verdict::Worse);
        assert_eq!(of(100.0, 101.0, true).verdict(), Verdict::Same);
        assert_eq!(of(100.0, 50.0, true).text(), "50 −50 % better");
        assert_eq!(of(10.0, 500.0, true).text(), "500 ×50 worse");
        assert_eq!(of(0.0, 7.0, true).text(), "7 new worse");
    }
}
