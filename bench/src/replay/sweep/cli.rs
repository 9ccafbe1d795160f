//! The command line of `sweep`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::cli::{create, policies, print, usage, write};
use super::super::options::{FleetArgs, TrafficArgs};
use super::super::report::chart::{self, Point};
use super::super::report::digits;
use super::super::run::{cores, run_all};
use super::metric::{Metric, pareto};
use super::setting::{Setting, combinations, combine, label};

/// Ends the help.
pub const EXIT_CODES: &str = "\
Exit code: 0 if every combination was replayed, 1 if a request waited that could have gone or the results cannot be
written, 2 if the command line, the policy or a trace is wrong.";

/// Combinations at most.
const MOST: usize = 100_000;

/// Options of a sweep.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Policy file to start from
    #[arg(long, value_name = "FILE")]
    policy: PathBuf,
    /// Model whose profile in the policy file is used, if it has one
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// What to set: a field of a class, a family or all classes (*.FIELD), or workers, slots, permits; may be repeated,
    /// every combination is a run
    #[arg(long, value_name = "CLASS.FIELD=V,…", required = true)]
    set: Vec<Setting>,
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    /// First number that a run is judged by, as waited_p99 or first_token_p99:CLASS
    #[arg(long, value_name = "METRIC", default_value = "busy_while_waiting", help_heading = "Results")]
    x: Metric,
    /// Second number
    #[arg(long, value_name = "METRIC", default_value = "first_token_p99", help_heading = "Results")]
    y: Metric,
    /// Further numbers for the table
    #[arg(long, value_name = "METRIC", help_heading = "Results")]
    also: Vec<Metric>,
    /// Runs at the same time [default: as many as there are cores]
    #[arg(long, value_name = "N", help_heading = "Results", value_parser = clap::value_parser!(u32).range(1..=4_096))]
    threads: Option<u32>,
    /// Print one JSON document instead of the table
    #[arg(long, help_heading = "Results")]
    json: bool,
    /// Write the chart of the trade-off as SVG
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    svg: Option<PathBuf>,
}

/// Runs every combination and prints what came of it.
pub fn main(args: &Args) -> ExitCode {
    match sweep(args) {
        Ok(code) | Err(code) => code,
    }
}

fn sweep(args: &Args) -> Result<ExitCode, ExitCode> {
    let policy = policies(std::slice::from_ref(&args.policy), args.model.as_deref())?.remove(0);
    let traffic = args.traffic.traffic().map_err(usage)?;
    let fleet = args.fleet.fleet().map_err(usage)?;
    let count = args.set.iter().map(|setting| setting.values.len()).product::<usize>();
    if count > MOST {
        return Err(usage(format_args!("{count} combinations are too many, {MOST} are possible")));
    }
    let chosen = combinations(&args.set);
    let mut setups = Vec::with_capacity(chosen.len());
    for chosen in &chosen {
        let (profile, fleet) = combine(&args.set, chosen, &policy.profile, &fleet).map_err(usage)?;
        setups.push(traffic.setup(Arc::new(profile), fleet));
    }
    let svg = create(args.svg.as_ref())?;
    let threads = args.threads.map_or_else(cores, |n| n as usize);
    let outcomes = run_all(&setups, &traffic, threads, args.json).map_err(usage)?;

    let metrics: Vec<_> = [&args.x, &args.y].into_iter().chain(&args.also).collect();
    let mut table = Vec::new();
    for outcome in &outcomes {
        let row: Result<Vec<_>, _> = metrics.iter().map(|metric| metric.of(outcome)).collect();
        table.push(row.map_err(usage)?);
    }
    // A run in which nothing was measured is no point.
    let measured: Vec<_> = (0..table.len()).filter_map(|i| Some((i, (table[i][0]?, table[i][1]?)))).collect();
    let points: Vec<_> = measured.iter().map(|(_, point)| *point).collect();
    let mut best = vec![false; table.len()];
    for ((i, _), front) in
        measured.iter().zip(pareto(&points, (args.x.less_is_better(), args.y.less_is_better())))
    {
        best[*i] = front;
    }

    let unconserved = outcomes.iter().any(|outcome| outcome.unconserved > 0);
    print(&match args.json {
        true => format!("{:#}\n", document(args, &policy.name, &chosen, &table, &best)),
        false => text(args, &policy.name, &chosen, &table, &best, unconserved),
    })?;
    write(svg, || {
        let several = args.set.len() > 1;
        let names: Vec<_> = match several {
            true => args.set[0].values.iter().map(ToString::to_string).collect(),
            false => Vec::new(),
        };
        let points: Vec<_> = measured
            .iter()
            .map(|&(i, at)| {
                let first = usize::from(several);
                let label = label(&args.set[first..], &chosen[i][first..]);
                let series = if several { chosen[i][0] } else { 0 };
                Point { label, series, at, pareto: best[i] }
            })
            .collect();
        let rest = &args.set[usize::from(several)..];
        let rest: Vec<_> = rest.iter().map(ToString::to_string).collect();
        let colours = if several { format!("; colours: {}", args.set[0]) } else { String::new() };
        let title = format!("{}{colours}; labels: {}", policy.name, rest.join(", "));
        chart::tradeoff(&title, (&args.x.to_string(), &args.y.to_string()), &names, &points)
    })?;
    Ok(if unconserved { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn text(
    args: &Args,
    policy: &str,
    chosen: &[Vec<usize>],
    table: &[Vec<Option<f64>>],
    best: &[bool],
    unconserved: bool,
) -> String {
    let metrics = [&args.x, &args.y].into_iter().chain(&args.also);
    let mut rows: Vec<Vec<String>> = Vec::new();
    let header = args.set.iter().map(ToString::to_string).chain(metrics.map(ToString::to_string));
    rows.push(header.chain([String::new()]).collect());
    for ((chosen, numbers), best) in chosen.iter().zip(table).zip(best) {
        let values = args.set.iter().zip(chosen).map(|(setting, &i)| setting.values[i].to_string());
        let numbers = numbers.iter().map(|number| number.map_or("–".into(), digits));
        let mark = if *best { "best" } else { "" };
        rows.push(values.chain(numbers).chain([mark.to_owned()]).collect());
    }
    let width = |i: usize| rows.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..rows[0].len()).map(width).collect();
    let mut text = format!("{policy}: {} combinations\n\n", chosen.len());
    for row in &rows {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}")).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text += "\nbest: no other is better in one of the first two numbers without being worse in the other\n";
    if unconserved {
        text += "REQUESTS WAITED THAT COULD HAVE GONE: see them with replay\n";
    }
    text
}

fn document(
    args: &Args,
    policy: &str,
    chosen: &[Vec<usize>],
    table: &[Vec<Option<f64>>],
    best: &[bool],
) -> Value {
    let metrics: Vec<_> = [&args.x, &args.y].into_iter().chain(&args.also).map(ToString::to_string).collect();
    let runs = chosen.iter().zip(table).zip(best).map(|((chosen, numbers), best)| {
        let set = args
            .set
            .iter()
            .zip(chosen)
            .map(|(setting, &i)| (setting.to_string(), Value::from(setting.values[i].to_string())));
        let numbers = metrics.iter().cloned().zip(numbers.iter().map(|number| json!(number)));
        json!({ "set": set.collect::<Map<_, _>>(), "metrics": numbers.collect::<Map<_, _>>(), "best": best })
    });
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "policy": policy,
        "x": args.x.to_string(),
        "y": args.y.to_string(),
        "runs": runs.collect::<Value>(),
    })
}
