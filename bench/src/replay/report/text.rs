//! The results as tables.

use super::super::stats::{ClassStats, Counts, Outcome, REFUSALS, ratio};
use super::compare::{Verdict, differences};
use super::{Context, MOST_ROWS, Measured, digits, optional, percent, rows, span, whole};

/// Everything that a person wants to know.
pub fn text(context: &Context, results: &[Measured]) -> String {
    let mut lines = context.head().to_vec();
    for measured in results {
        lines.push(String::new());
        lines.extend(one(context, measured));
    }
    if let [first, others @ ..] = results
        && !others.is_empty()
    {
        lines.push(String::new());
        lines.extend(compared(first, others));
    }
    lines.join("\n") + "\n"
}

fn one(context: &Context, Measured { name, outcome }: &Measured) -> Vec<String> {
    let all = &outcome.all;
    let mut lines = vec![
        format!(
            "{name}: {} request{} in {}, the last one finished after {}",
            whole(all.arrived),
            if all.arrived == 1 { "" } else { "s" },
            span(outcome.arrivals_span),
            span(outcome.duration),
        ),
        format!(
            "workers {} busy, slots {} used, {} prompt tokens per s, {} of the prompts cached",
            percent(outcome.utilisation()),
            percent(outcome.slots_used(context.fleet.model.slots)),
            digits(outcome.prefill_rate()),
            percent(outcome.hit_rate()),
        ),
        String::new(),
    ];
    lines.extend(layout(&service(outcome)));
    lines.push(String::new());
    lines.extend(layout(&times(outcome)));
    if outcome.classes.len() > MOST_ROWS {
        lines.push(format!(
            "the {MOST_ROWS} classes of {} that were served most; --json has all",
            whole(outcome.classes.len() as u64)
        ));
    }
    lines.push(String::new());
    lines.push(conservation(outcome));
    if outcome.backlogged > 0 {
        lines.push(format!(
            "while something waited ({}), {} of the workers worked",
            span(outcome.backlogged),
            percent(outcome.busy_while_waiting()),
        ));
    }
    for class in outcome.classes.iter().filter(|class| class.counts.refused() > 0).take(MOST_ROWS) {
        let kinds = REFUSALS.iter().zip(class.counts.refused).filter(|(_, n)| *n > 0);
        let kinds: Vec<_> = kinds.map(|(kind, n)| format!("{} by {kind}", whole(n))).collect();
        lines.push(format!("refused in {}: {}", class.name, kinds.join(", ")));
    }
    lines.extend(outcome.failures.iter().map(|(code, count)| format!("failed, {code}: {}", whole(*count))));
    lines
}

/// The sentence on work conservation.
pub(super) fn conservation(outcome: &Outcome) -> String {
    match outcome.unconserved {
        0 => "no request waited at any time that could have gone".into(),
        ns => format!("REQUESTS WAITED THAT COULD HAVE GONE, for {}", span(ns)),
    }
}

/// What each class was served, and lost.
pub(super) fn service(outcome: &Outcome) -> Vec<Vec<String>> {
    let total = outcome.all.served as f64;
    let header = [
        "",
        "quantum",
        "requests",
        "tokens",
        "of all",
        "of its due",
        "refused",
        "late",
        "failed",
        "stuck",
        "queue",
        "most",
    ];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    for (name, counts) in rows(outcome) {
        let class = outcome.classes.iter().find(|class| *class.name == *name);
        let of_class = |text: &dyn Fn(&ClassStats) -> String| class.map_or_else(String::new, text);
        let mean = |sum: u128| digits(ratio(sum as f64, outcome.duration as f64));
        table.push(vec![
            name.clone(),
            of_class(&|class| whole(class.quantum)),
            whole(counts.arrived),
            whole(counts.served),
            percent(ratio(counts.served as f64, total)),
            of_class(&|class| class.share().map_or("–".into(), percent)),
            whole(counts.refused()),
            whole(counts.missed()),
            whole(counts.failed),
            whole(counts.stuck),
            of_class(&|class| mean(class.queue_sum)),
            of_class(&|class| whole(class.queue_most)),
        ]);
    }
    drop_empty(table)
}

/// Leaves out columns of losses that nobody had.
fn drop_empty(table: Vec<Vec<String>>) -> Vec<Vec<String>> {
    let keep: Vec<_> = (0..table[0].len())
        .map(|i| {
            let loss = ["refused", "late", "failed", "stuck"].contains(&&*table[0][i]);
            !loss || table[1..].iter().any(|row| row[i] != "0")
        })
        .collect();
    let kept = |row: Vec<String>| row.into_iter().zip(&keep).filter(|(_, keep)| **keep).map(|(cell, _)| cell);
    table.into_iter().map(|row| kept(row).collect()).collect()
}

/// Percentiles of waiting and of the first token.
pub(super) fn times(outcome: &Outcome) -> Vec<Vec<String>> {
    let header =
        ["ms", "waited p50", "p90", "p99", "p99.9", "longest", "first token p50", "p90", "p99", "p99.9"];
    let mut table = vec![header.map(str::to_owned).to_vec()];
    for (name, counts) in rows(outcome) {
        let Counts { waited, first_token, .. } = counts;
        let cells = [
            waited.quantile(0.5),
            waited.quantile(0.9),
            waited.quantile(0.99),
            waited.quantile(0.999),
            (counts.longest_wait > 0 || waited.count() > 0).then_some(counts.longest_wait as f64 / 1e6),
            first_token.quantile(0.5),
            first_token.quantile(0.9),
            first_token.quantile(0.99),
            first_token.quantile(0.999),
        ];
        table.push(std::iter::once(name).chain(cells.map(optional)).collect());
    }
    table
}

fn compared(first: &Measured, others: &[Measured]) -> Vec<String> {
    let all: Vec<_> = others.iter().map(|other| differences(&first.outcome, &other.outcome)).collect();
    let mut header = vec!["against the first".to_owned(), first.name.clone()];
    header.extend(others.iter().map(|other| other.name.clone()));
    let mut table = vec![header];
    for row in &all[0] {
        let cells: Vec<_> =
            all.iter().map(|list| list.iter().find(|d| d.row == row.row && d.metric == row.metric)).collect();
        if cells.iter().flatten().all(|difference| difference.verdict() == Verdict::Same) {
            continue;
        }
        let mut line = vec![format!("{} {}", row.row, row.metric), digits(row.before)];
        line.extend(cells.iter().map(|cell| cell.map_or("–".into(), |cell| cell.text())));
        table.push(line);
    }
    if table.len() == 1 {
        return vec!["no difference".into()];
    }
    layout(&table)
}

/// Columns as wide as their widest cell; the first to the left, the others to the right.
fn layout(table: &[Vec<String>]) -> Vec<String> {
    let width = |i: usize| table.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..table[0].len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| match i {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    table.iter().map(line).collect()
}
