//! The results as JSON and as text.

use serde_json::{Value, json};

use super::measure::{Effort, Measured, Spread};
use crate::shown::{self, grouped};

/// What the comparison ran on.
fn machine(effort: Effort) -> Value {
    let mut machine = shown::machine();
    for (name, what) in [("allocator", "mimalloc"), ("peer", "dynamo-kv-router 1.6.1")] {
        machine.insert(name.into(), what.into());
    }
    machine.insert("idle".into(), effort.idle.to_string().into());
    Value::Object(machine)
}

fn decisions(results: &[Measured]) -> u64 {
    results.iter().map(|row| row.decisions).sum()
}

/// One document.
pub(super) fn json(results: &[Measured], effort: Effort) -> Value {
    let rows: Vec<_> = results
        .iter()
        .map(|row| {
            let round = |value: f64| (value * 100.0).round() / 100.0;
            let ratio = row.ratio();
            json!({
                "name": row.name,
                "peer_ns": round(row.peer().median),
                "ours_ns": round(row.ours().median),
                "ratio": round(ratio.median),
                "min": round(ratio.min),
                "max": round(ratio.max),
                "bar": row.bar,
            })
        })
        .collect();
    json!({ "machine": machine(effort), "decisions_checked": decisions(results), "rows": rows })
}

/// A table, and what the rows mean.
pub(super) fn text(results: &[Measured], effort: Effort) -> String {
    let mut lines = vec![["", "peer", "ours", "ratio", "bar", ""].map(str::to_owned)];
    for row in results {
        let met = match (effort.quick, row.met()) {
            (true, _) => "not judged",
            (_, true) => "met",
            (_, false) => "MISSED",
        };
        lines.push([
            row.name.to_owned(),
            time(row.peer()),
            time(row.ours()),
            spread(row.ratio(), 1.0, ""),
            number(row.bar),
            met.to_owned(),
        ]);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..6).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| match i {
            0 | 5 => format!("{cell:width$}"),
            _ => format!("{cell:>width$}"),
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text.push('\n');
    for rows in results.chunk_by(|a, b| a.note == b.note).filter(|rows| !rows[0].note.is_empty()) {
        let names: Vec<_> = rows.iter().map(|row| row.name).collect();
        text += &format!("{}:\n    {}\n", names.join("; "), rows[0].note);
    }
    let machine = machine(effort);
    text += &format!(
        "\ntime per operation, medians of {} alternating samples (min–max); a ratio is peer / ours of the same pair\n\
         {} decisions compared one for one, all equal\n{machine}\n",
        effort.samples,
        decisions(results),
    );
    text
}

/// A duration with its range, in one unit.
fn time(ns: Spread) -> String {
    match ns.median {
        ..1e3 => spread(ns, 1.0, " ns"),
        ..1e6 => spread(ns, 1e3, " µs"),
        ..1e9 => spread(ns, 1e6, " ms"),
        _ => spread(ns, 1e9, " s"),
    }
}

fn spread(Spread { median, min, max }: Spread, unit: f64, name: &str) -> String {
    let [median, min, max] = [median, min, max].map(|value| number(value / unit));
    format!("{median}{name} ({min}–{max})")
}

/// A number with three digits.
fn number(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        ..1e3 => format!("{value:.0}"),
        _ => grouped(&format!("{value:.0}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_separators() {
        assert_eq!(
            ["1.23", "12.3", "123", "1,234", "1,234,568"].map(str::to_owned),
            [number(1.2345), number(12.345), number(123.45), number(1_234.5), number(1_234_567.8)]
        );
        let spread = Spread { median: 1_500.0, min: 900.0, max: 12_345.0 };
        assert_eq!(time(spread), "1.50 µs (0.90–12.3)");
    }
}
