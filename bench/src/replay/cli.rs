//! The command line of `replay`.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use super::options::{FleetArgs, Policy, TrafficArgs};
use super::report::{self, Context, Measured, chart};
use super::run::{cores, run_all};

/// Ends the help.
pub const EXIT_CODES: &str = "\
Exit code: 0 if the traffic was replayed, 1 if a request waited that could have gone or the results cannot be written, 2 if
the command line, a policy or a trace is wrong.";

/// Exit code for wrong input.
const USAGE: u8 = 2;

/// Options of a replay.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Policy file; may be repeated, the others are compared with the first
    #[arg(long, value_name = "FILE", required = true)]
    policy: Vec<PathBuf>,
    /// Model whose profile in the policy files is used, where they have one
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    #[command(flatten)]
    traffic: TrafficArgs,
    #[command(flatten)]
    fleet: FleetArgs,
    /// Print one JSON document instead of tables
    #[arg(long, help_heading = "Results")]
    json: bool,
    /// Write a page with tables and charts
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    html: Option<PathBuf>,
    /// Write one chart as SVG: of a single policy its timeline, of several their times to first token
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    svg: Option<PathBuf>,
}

/// Reads policies; every fault of all of them is printed.
pub(super) fn policies(paths: &[PathBuf], model: Option<&str>) -> Result<Vec<Policy>, ExitCode> {
    let (mut policies, mut wrong) = (Vec::new(), false);
    for path in paths {
        match Policy::read(path, model) {
            Ok((mut policy, warnings)) => {
                warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
                // Of files with the same name in several places, the later ones have their whole path.
                if policies.iter().any(|known: &Policy| known.name == policy.name) {
                    policy.name = path.display().to_string();
                }
                policies.push(policy);
            }
            Err(error) => {
                eprintln!("{error}");
                wrong = true;
            }
        }
    }
    if wrong { Err(ExitCode::from(USAGE)) } else { Ok(policies) }
}

/// Opens a file for results before the work begins.
pub(super) fn create(path: Option<&PathBuf>) -> Result<Option<(PathBuf, File)>, ExitCode> {
    let Some(path) = path else { return Ok(None) };
    match File::create(path) {
        Ok(file) => Ok(Some((path.clone(), file))),
        Err(error) => Err(usage(format_args!("{}: {error}", path.display()))),
    }
}

/// Writes a result into its file.
pub(super) fn write(
    file: Option<(PathBuf, File)>,
    content: impl FnOnce() -> crate::shown::Picture,
) -> Result<(), ExitCode> {
    let Some((path, mut file)) = file else { return Ok(()) };
    let written = content().and_then(|text| Ok(file.write_all(text.as_bytes())?));
    written.map_err(|error| {
        eprintln!("{}: {error}", path.display());
        ExitCode::FAILURE
    })
}

/// Prints a result.
pub(super) fn print(text: &str) -> Result<(), ExitCode> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("{error}");
            Err(ExitCode::FAILURE)
        }
        _ => Ok(()),
    }
}

pub(super) fn usage(error: impl std::fmt::Display) -> ExitCode {
    eprintln!("{error}");
    ExitCode::from(USAGE)
}

/// Replays the traffic and prints what came of it.
pub fn main(args: &Args) -> ExitCode {
    match replay(args) {
        Ok(code) | Err(code) => code,
    }
}

fn replay(args: &Args) -> Result<ExitCode, ExitCode> {
    let policies = policies(&args.policy, args.model.as_deref())?;
    let traffic = args.traffic.traffic().map_err(usage)?;
    let fleet = args.fleet.fleet().map_err(usage)?;
    for policy in &policies {
        for name in traffic.unknown(&policy.profile) {
            eprintln!(
                "warning: {}: no family or explicit class {name:?}: its requests go by default",
                policy.name
            );
        }
    }
    let (html, svg) = (create(args.html.as_ref())?, create(args.svg.as_ref())?);
    let setups: Vec<_> = policies.iter().map(|p| traffic.setup(p.profile.clone(), fleet)).collect();
    let outcomes = run_all(&setups, &traffic, cores(), args.json).map_err(usage)?;
    let names = policies.into_iter().map(|policy| policy.name);
    let results: Vec<_> = names.zip(outcomes).map(|(name, outcome)| Measured { name, outcome }).collect();
    let context = Context { traffic, fleet };
    print(&match args.json {
        true => format!("{:#}\n", report::json(&context, &results)),
        false => report::text(&context, &results),
    })?;
    write(html, || report::html(&context, &results))?;
    write(svg, || match &results[..] {
        [only] => chart::timeline(&chart::title(&context, only), &only.outcome),
        several => chart::spread(&format!("Time to first token: {}", context.traffic_name()), several),
    })?;
    let conserved = results.iter().all(|measured| measured.outcome.unconserved == 0);
    Ok(if conserved { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
