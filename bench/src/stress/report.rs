//! The results as JSON and as text.

use std::fmt::Write;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::load::Load;
use super::run::{Measured, Served};
use super::system::Switches;
use crate::shown;

/// Classes that the text shows; the rest is in the JSON document.
const SHOWN: usize = 16;

const PERCENTILES: [(&str, f64); 6] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99), ("max", 100.0)];

impl Measured {
    /// Whether every invariant holds.
    pub(super) fn holds(&self) -> bool {
        self.checks.iter().all(|check| check.faults.is_empty())
    }

    /// Something per second of the window.
    fn per_second(&self, what: u64) -> f64 {
        what as f64 / self.window.as_secs_f64()
    }

    /// Something per request that was sent in the window.
    fn per_request(&self, what: u64) -> f64 {
        what as f64 / self.sent.max(1) as f64
    }

    /// The largest distance of a class from its promised share.
    fn largest_error(&self) -> f64 {
        self.classes.iter().map(|class| (class.share - class.promised).abs()).fold(0.0, f64::max)
    }
}

/// A number that may have too many digits.
fn round(value: f64, digits: i32) -> f64 {
    let unit = 10_f64.powi(digits);
    (value * unit).round() / unit
}

fn percentiles(histogram: &Histogram<u64>) -> Value {
    let values = PERCENTILES.map(|(name, p)| (name.to_owned(), json!(histogram.value_at_percentile(p))));
    let counted = [("count".to_owned(), json!(histogram.len()))];
    Value::Object(counted.into_iter().chain(values).collect())
}

fn options(load: &Load) -> Value {
    let milliseconds = |time: Duration| round(time.as_secs_f64() * 1e3, 6);
    json!({
        "loop": if load.rate.is_some() { "open" } else { "closed" },
        "rate": load.rate,
        "arrivals": load.rate.map(|_| format!("{:?}", load.spread).to_lowercase()),
        "in_flight": load.callers(),
        "threads": load.threads,
        "classes": load.quanta.len(),
        "order": format!("{:?}", load.order).to_lowercase(),
        "workers": load.workers,
        "slots": load.slots,
        "service_ms": milliseconds(load.service),
        "cost": load.cost.to_string(),
        "cancel": load.cancel,
        "deadline": load.deadline,
        "deadline_ms": milliseconds(load.within),
        "publish": load.publish,
        "warm_up_ms": milliseconds(load.warm_up),
        "duration_ms": milliseconds(load.duration),
        "idle": load.idle.to_string(),
        "seed": load.seed,
    })
}

/// One document.
pub(super) fn json(load: &Load, measured: &Measured) -> Value {
    let class = |class: &Served| {
        json!({
            "name": class.name,
            "quantum": class.quantum,
            "tokens": class.tokens,
            "share": round(class.share, 6),
            "promised": round(class.promised, 6),
            "error": round(class.share - class.promised, 6),
            "waited_ns": percentiles(&class.waits),
        })
    };
    let switches =
        |Switches { voluntary, involuntary }| json!({ "voluntary": voluntary, "involuntary": involuntary });
    let total = measured.book.total();
    let fates: Map<_, _> =
        total.fates.named().map(|(name, count)| (name.to_owned(), json!(count))).into_iter().collect();
    let check = |check: &super::books::Check| json!({ "invariant": check.what, "holds": check.faults.is_empty(), "faults": check.faults });
    json!({
        "machine": shown::machine(),
        "options": options(load),
        "permits_per_s": round(measured.per_second(measured.permits), 1),
        "tokens_per_s": round(measured.per_second(measured.tokens), 1),
        "latency_ns": percentiles(&measured.latency),
        "sent_late_ns": percentiles(&measured.lateness),
        "always_backlogged": load.saturates(),
        "largest_share_error": round(measured.largest_error(), 6),
        "classes": measured.classes.iter().map(class).collect::<Vec<_>>(),
        "requests": { "sent": total.requests, "ended": fates, "unanswered": total.unanswered, "unsent": measured.unsent, "reasons": measured.book.reasons },
        "allocations": measured.allocated.map(|(ingress, arbiter)| json!({
            "requests": measured.sent,
            "ingress": ingress,
            "arbiter": arbiter,
            "ingress_per_request": round(measured.per_request(ingress), 6),
            "arbiter_per_request": round(measured.per_request(arbiter), 6),
        })),
        "context_switches": measured.switches.map(|(ingress, arbiter)| json!({
            "ingress": switches(ingress),
            "arbiter": switches(arbiter),
        })),
        "resident_bytes": measured.resident.map(|(first, last)| json!({ "first": first, "last": last })),
        "arbiter": {
            "turns": measured.turns,
            "decisions": measured.decisions,
            "sleeps": measured.sleeps,
            "longest_turn_ns": measured.longest_turn.as_nanos() as u64,
        },
        "published": measured.published,
        "invariants": measured.checks.iter().map(check).collect::<Vec<_>>(),
        "holds": measured.holds(),
    })
}

/// A number in groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    shown::grouped(&number.to_string())
}

/// A time with three digits and its unit.
fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..=999 => return format!("{ns} ns"),
        1_000..=999_999 => (ns as f64 / 1e3, "µs"),
        1_000_000..=999_999_999 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    match value {
        ..10.0 => format!("{value:.2} {unit}"),
        ..100.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// For people.
pub(super) fn text(load: &Load, measured: &Measured) -> String {
    let mut text = String::new();
    let mut line = |name: &str, rest: String| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{}", format!("{name:<22}{rest}").trim_end());
    };
    let kind = match load.rate {
        Some(rate) => {
            format!("open, {} requests/s, {:?} arrivals", grouped(rate as u64), load.spread).to_lowercase()
        }
        None => format!("closed, {} requests in flight", grouped(load.callers())),
    };
    line(
        "load",
        format!(
            "{kind}, {} threads, {} classes, {} workers × {} slots",
            load.threads,
            load.quanta.len(),
            load.workers,
            load.slots
        ),
    );
    let late = match load.deadline {
        0.0 => String::new(),
        share => format!(", {} % with {:?} to wait", share * 100.0, load.within),
    };
    let leave = match load.cancel {
        0.0 => String::new(),
        share => format!(", {} % cancelled", share * 100.0),
    };
    line("requests", format!("{} tokens, {:?} of service{leave}{late}", load.cost, load.service));
    line(
        "throughput",
        format!(
            "{} permits/s, {} tokens/s over {:?}",
            grouped(measured.per_second(measured.permits) as u64),
            grouped(measured.per_second(measured.tokens) as u64),
            measured.window
        ),
    );
    let of = |histogram: &Histogram<u64>| {
        PERCENTILES.map(|(name, p)| format!("{name} {}", time(histogram.value_at_percentile(p)))).join("  ")
    };
    line("latency", of(&measured.latency));
    if load.rate.is_some() {
        line("  of which sent late", of(&measured.lateness));
        if measured.unsent > 0 {
            let unsent = grouped(measured.unsent);
            line(
                "",
                format!(
                    "{unsent} found no caller free, and count with the time that they were late at the end"
                ),
            );
        }
    }
    line("", String::new());
    line(
        "class",
        format!(
            "{:>9} {:>18} {:>9} {:>9} {:>9}   {:>9} {:>9}",
            "quantum", "tokens", "share", "promised", "error", "wait p50", "p99"
        ),
    );
    for class in measured.classes.iter().take(SHOWN) {
        let waited = |p| time(class.waits.value_at_percentile(p));
        let percent = |share: f64| format!("{:.3} %", share * 100.0);
        let error = format!("{:+.3} %", (class.share - class.promised) * 100.0);
        line(
            &class.name,
            format!(
                "{:>9} {:>18} {:>9} {:>9} {:>9}   {:>9} {:>9}",
                class.quantum,
                grouped(class.tokens),
                percent(class.share),
                percent(class.promised),
                error,
                waited(50.0),
                waited(99.0)
            ),
        );
    }
    if measured.classes.len() > SHOWN {
        line(
            "…",
            format!(
                "{} more; the largest error of all is {:.3} %",
                measured.classes.len() - SHOWN,
                measured.largest_error() * 100.0
            ),
        );
    }
    if !load.saturates() {
        line(
            "",
            "shares follow quanta only while every class has requests waiting: not forced here".to_owned(),
        );
    }
    line("", String::new());
    let total = measured.book.total();
    let fates = total.fates.named().map(|(name, count)| format!("{name} {}", grouped(count))).join(", ");
    line("ended", format!("{fates}; of {} sent", grouped(total.requests)));
    for (code, count) in &measured.book.reasons {
        line(&format!("  {code}"), grouped(*count));
    }
    let unknown = || "not available".to_owned();
    line("allocations", measured.allocated.map_or_else(unknown, |(ingress, arbiter)| {
        format!("{:.4} per request at ingress, {:.4} in the arbiter ({} for {} requests and {} worker snapshots)",
            measured.per_request(ingress), measured.per_request(arbiter), grouped(arbiter), grouped(measured.sent), measured.published)
    }));
    let switches =
        |Switches { voluntary, involuntary }| format!("{} + {}", grouped(voluntary), grouped(involuntary));
    line(
        "context switches",
        measured.switches.map_or_else(unknown, |(ingress, arbiter)| {
            format!("voluntary + involuntary: ingress {}, arbiter {}", switches(ingress), switches(arbiter))
        }),
    );
    line(
        "resident memory",
        measured.resident.map_or_else(unknown, |(first, last)| {
            format!("{} KiB, in the end {} KiB", grouped(first / 1024), grouped(last / 1024))
        }),
    );
    line(
        "arbiter",
        format!(
            "{} decisions in {} turns, slept {} times, longest turn {}",
            grouped(measured.decisions),
            grouped(measured.turns),
            grouped(measured.sleeps),
            time(measured.longest_turn.as_nanos() as u64)
        ),
    );
    line("", String::new());
    for check in &measured.checks {
        line(if check.faults.is_empty() { "holds" } else { "BROKEN" }, check.what.to_owned());
        check.faults.iter().for_each(|fault| line("", fault.clone()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_counts_separators() {
        assert_eq!(
            [0, 999, 1_234, 56_789, 1_234_567_890].map(time),
            ["0 ns", "999 ns", "1.23 µs", "56.8 µs", "1.23 s"]
        );
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
