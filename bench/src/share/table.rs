//! The results as text.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::path::Path;

use super::arms::Expected;
use super::report::{Machine, VERSION, percentiles};
use super::run::{Run, Workload};
use super::{Arm, Measured};

/// Everything that a person wants to know.
pub(super) fn text(load: &Workload, results: &[Measured], plot: &Path) -> String {
    let mut lines = head(load);
    lines.push(String::new());
    lines.extend(layout(&rows(load, results)));
    lines.push(String::new());
    lines.extend(refusals(load, results));
    lines.extend(verdict(results));
    lines.push(format!("plot: {}", plot.display()));
    lines.join("\n") + "\n"
}

fn head(load: &Workload) -> Vec<String> {
    let Workload { classes, requests, cost, threads, worker, http } = load;
    let by = if *http { "over HTTP".to_owned() } else { format!("by {}", count(*threads, "thread")) };
    let offered: Vec<_> = classes.iter().map(|class| format!("{requests} {class}")).collect();
    let Machine { cores, os } = Machine::this();
    vec![
        format!("{} requests of {cost} tokens, released at once {by}", offered.join(" + "),),
        format!(
            "one worker, {}, {:?} per request; the first requests fill it, then the others are released",
            count(worker.slots, "slot"),
            worker.service,
        ),
        format!("{}, {os}, tollgate-bench {VERSION}", count(cores, "core")),
    ]
}

/// `1 slot`, `4 slots`.
fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A line of the table.
enum Row {
    /// Free text.
    Title(String),
    /// One text per column.
    Cells(Vec<String>),
}

fn rows(load: &Workload, results: &[Measured]) -> Vec<Row> {
    let per_class = |text: &str| vec![text.to_owned(); load.classes.len()];
    let names: Vec<_> = load.classes.iter().map(|class| class.to_string()).collect();
    let others = &names[1..];
    let columns =
        |start: [&str; 2], first: Vec<String>, left: Vec<String>, rate: &str, waited: Vec<String>| {
            let start = start.map(str::to_owned);
            Row::Cells([&start[..], &first, &left, &[rate.to_owned()], &waited].concat())
        };
    let first = per_class(&format!("first {}", load.requests));
    let left = vec!["left".to_owned(); others.len()];
    let mut rows = vec![
        columns([""; 2], first, left, "requests", per_class("p50 / p99 ms")),
        columns([""; 2], names.clone(), others.to_vec(), "per s", names.clone()),
    ];
    for measured in results {
        let Arm { name, quanta, expected, .. } = &measured.arm;
        let quanta: Vec<_> = quanta.iter().map(u64::to_string).collect();
        rows.push(Row::Title(format!("{name}  {}", quanta.join(" : "))));
        if let Some(Expected { source, first, left }) = expected {
            let first = first.iter().map(span).collect();
            rows.push(columns([&format!("  {source}"), ""], first, vec![span(left)], "", per_class("")));
        }
        for (i, run) in measured.runs.iter().enumerate() {
            let inside = match measured.inside(run) {
                Some(true) => "inside",
                Some(false) => "OUTSIDE",
                None => "",
            };
            let first = run.first().iter().map(usize::to_string).collect();
            let left = (1..load.classes.len()).map(|class| left_of(run, class)).collect();
            let start = format!("  run {}", i + 1);
            rows.push(columns([&start, inside], first, left, &format!("{:.0}", run.rate()), waits(run)));
        }
    }
    rows
}

fn span(range: &RangeInclusive<usize>) -> String {
    format!("{}–{}", range.start(), range.end())
}

fn left_of(run: &Run, class: usize) -> String {
    run.left(class).map_or("–".into(), |left| left.to_string())
}

fn waits(run: &Run) -> Vec<String> {
    let text = |p: Option<(f64, f64)>| p.map_or("–".into(), |(p50, p99)| format!("{p50:.1} / {p99:.1}"));
    run.waited.iter().map(|waited| text(percentiles(waited))).collect()
}

/// Columns as wide as their widest cell; the first two to the left, the others to the right.
fn layout(rows: &[Row]) -> Vec<String> {
    let mut widths = Vec::new();
    for row in rows {
        if let Row::Cells(cells) = row {
            widths.resize(cells.len(), 0);
            for (width, cell) in widths.iter_mut().zip(cells) {
                *width = cell.chars().count().max(*width);
            }
        }
    }
    let line = |row: &Row| match row {
        Row::Title(title) => title.clone(),
        Row::Cells(cells) => {
            let mut line = String::new();
            for (i, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let gap = if i > 0 { "  " } else { "" };
                let written = match i {
                    0 | 1 => write!(line, "{gap}{cell:<width$}"),
                    _ => write!(line, "{gap}{cell:>width$}"),
                };
                written.expect("a string takes everything");
            }
            line.trim_end().to_owned()
        }
    };
    rows.iter().map(line).collect()
}

/// What the policies refused, if anything.
fn refusals(load: &Workload, results: &[Measured]) -> Vec<String> {
    let mut lines = Vec::new();
    for Measured { arm, runs } in results {
        for (class, name) in load.classes.iter().enumerate() {
            let refused: usize = runs.iter().map(|run| run.refused[class]).sum();
            if refused > 0 {
                lines.push(format!(
                    "{}: {refused} requests of {name} refused in {} runs",
                    arm.name,
                    runs.len()
                ));
            }
        }
    }
    lines
}

/// How many runs are where they should be, if that is known of any.
fn verdict(results: &[Measured]) -> Option<String> {
    let judged: Vec<_> = results.iter().flat_map(|m| m.runs.iter().filter_map(|run| m.inside(run))).collect();
    let inside = judged.iter().filter(|&&inside| inside).count();
    (!judged.is_empty()).then(|| format!("{inside} of {} inside", count(judged.len(), "run")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_characters() {
        let cells = |texts: [&str; 4]| Row::Cells(texts.map(str::to_owned).to_vec());
        let rows = [
            cells(["", "", "premium", "left"]),
            Row::Title("equal  512 : 512".into()),
            cells(["  run 1", "inside", "159–161", "3"]),
            cells(["  run 10", "", "7", ""]),
        ];
        assert_eq!(
            layout(&rows),
            [
                "                  premium  left",
                "equal  512 : 512",
                "  run 1   inside  159–161     3",
                "  run 10                7",
            ]
        );
    }
}
