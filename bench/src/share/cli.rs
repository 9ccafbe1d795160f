//! The command line of the experiment.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tollgate::MAX_BOOKED_TOKENS;

use super::arms::{Arm, ArmError, built_in};
use super::error::RunError;
use super::http::{Router, Target};
use super::run::{Run, Workload};
use super::worker::WorkerSpec;
use super::{Measured, plot, report, table};

/// Ends the help.
pub const EXIT_CODES: &str = "\
Exit code: 0 if every run of which a range is known is inside it, 1 if one is outside or the experiment
failed, 2 if the command line or a policy is wrong.";

/// Exit code for a wrong command line or policy.
const USAGE: u8 = 2;

/// Options of the experiment.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Policy file to use instead of the built-in arms; may be repeated, one arm each
    #[arg(long, value_name = "FILE")]
    policy: Vec<PathBuf>,
    /// Model whose profile in the policy files is used, where they have one
    #[arg(long, value_name = "NAME", requires = "policy")]
    model: Option<String>,
    /// Families or explicit classes that the requests ask for
    #[arg(long, value_name = "NAME,…", default_value = "premium,regular", value_parser = classes)]
    classes: Classes,
    /// Requests of each class
    #[arg(long, value_name = "N", default_value_t = 320, value_parser = count(1_000_000))]
    requests: u64,
    /// Uncached prompt of each request, in tokens
    #[arg(long, value_name = "TOKENS", default_value_t = 512,
        value_parser = clap::value_parser!(u64).range(1..=MAX_BOOKED_TOKENS))]
    cost: u64,
    /// Requests that the worker serves at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = count(1_024))]
    slots: u64,
    /// Time that a slot takes for a request, in milliseconds [default: 3, over HTTP 20]
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    service_ms: Option<Duration>,
    /// Send the requests over HTTP: `spawn` starts the router example with one built-in worker for each arm; a URL is that
    /// of a router which runs with one such worker and with the policy that is given
    #[arg(long, value_name = "spawn|URL")]
    http: Option<Target>,
    /// Ingress threads
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = count(1_024))]
    threads: u64,
    /// Runs of each arm
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = count(1_000))]
    runs: u64,
    /// Print one JSON document instead of the table
    #[arg(long)]
    json: bool,
    /// Where to write the plot [default: target/share.svg, else in the directory for temporary files]
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Names of classes, at least one, none twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes(Vec<Arc<str>>);

fn classes(text: &str) -> Result<Classes, String> {
    let mut names: Vec<Arc<str>> = Vec::new();
    for name in text.split(',').map(str::trim) {
        if name.is_empty() {
            return Err("a name is empty".into());
        }
        if names.iter().any(|known| **known == *name) {
            return Err(format!("{name:?} is there twice"));
        }
        names.push(name.into());
    }
    Ok(Classes(names))
}

fn count(most: u64) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=most)
}

/// Up to an hour.
fn milliseconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=3_600_000.0).contains(&value) {
        Ok(Duration::from_secs_f64(value / 1_000.0))
    } else {
        Err("not in 0..=3600000".into())
    }
}

impl Args {
    fn workload(&self) -> Workload {
        Workload {
            classes: self.classes.0.clone(),
            requests: self.requests as usize,
            cost: self.cost,
            threads: self.threads as usize,
            worker: WorkerSpec { slots: self.slots as usize, service: self.service() },
            http: self.http.is_some(),
        }
    }

    fn service(&self) -> Duration {
        // Over HTTP the answers of four slots are read in their order only if they are some time apart.
        self.service_ms.unwrap_or(Duration::from_millis(if self.http.is_some() { 20 } else { 3 }))
    }

    /// The arms, or everything that is wrong with the policies.
    fn arms(&self, load: &Workload) -> Result<Vec<Arm>, Vec<ArmError>> {
        if self.policy.is_empty() {
            return built_in(load).map_err(|error| vec![error]);
        }
        let (mut arms, mut errors) = (Vec::new(), Vec::new());
        for path in &self.policy {
            match Arm::from_file(path, self.model.as_deref(), load) {
                Ok((arm, warnings)) => {
                    warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
                    arms.push(arm);
                }
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(arms) } else { Err(errors) }
    }

    /// Opens the file for the plot before the experiment takes its time.
    fn plot_file(&self) -> io::Result<(PathBuf, File)> {
        if let Some(path) = &self.plot {
            return Ok((path.clone(), File::create(path)?));
        }
        let local = PathBuf::from("target").join("share.svg");
        if std::fs::create_dir_all("target").is_ok()
            && let Ok(file) = File::create(&local)
        {
            return Ok((local, file));
        }
        let temporary = std::env::temp_dir().join("tollgate-share.svg");
        let file = File::create(&temporary)?;
        Ok((temporary, file))
    }

    /// A bar over all requests of all runs on standard error, if that is a terminal.
    fn progress(&self, load: &Workload, arms: usize) -> ProgressBar {
        if self.json {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{msg:24} {wide_bar} {percent:>3} %  {eta:>4} left");
        ProgressBar::new((arms * load.total()) as u64 * self.runs)
            .with_style(style.expect("the template is right"))
    }
}

/// Runs the experiment and prints its results.
pub fn main(args: &Args) -> ExitCode {
    if matches!(args.http, Some(Target::Running(_))) && args.policy.len() != 1 {
        eprintln!("a router that runs has one policy: give it once, with --policy");
        return ExitCode::from(USAGE);
    }
    let load = args.workload();
    let arms = match args.arms(&load) {
        Ok(arms) => arms,
        Err(errors) => {
            errors.iter().for_each(|error| eprintln!("{error}"));
            return ExitCode::from(USAGE);
        }
    };
    let (path, mut file) = match args.plot_file() {
        Ok(opened) => opened,
        Err(error) => {
            let path = args.plot.as_deref().map_or("plot".into(), |path| path.to_string_lossy());
            eprintln!("{path}: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let results = match measure(args, &load, arms) {
        Ok(results) => results,
        Err(error) => return failed(error),
    };
    let drawn = plot::svg(&load, &results).and_then(|svg| Ok(file.write_all(svg.as_bytes())?));
    if let Err(error) = drawn {
        return failed(format_args!("{}: {error}", path.display()));
    }
    let text = match args.json {
        true => format!("{:#}\n", report::json(&load, &results, &path)),
        false => table::text(&load, &results, &path),
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return failed(error),
        _ => {}
    }
    if results.iter().any(Measured::any_outside) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn failed(error: impl std::fmt::Display) -> ExitCode {
    eprintln!("{error}");
    ExitCode::FAILURE
}

fn measure(args: &Args, load: &Workload, arms: Vec<Arm>) -> Result<Vec<Measured>, RunError> {
    let bar = args.progress(load, arms.len());
    let mut results = Vec::with_capacity(arms.len());
    for arm in arms {
        let mut runs = Vec::with_capacity(args.runs as usize);
        let router = args.http.as_ref().map(|target| Router::of(target, &arm, args.model.as_deref(), load));
        let router = router.transpose()?;
        for i in 1..=args.runs {
            bar.set_message(format!("{}, run {i} of {}", arm.name, args.runs));
            runs.push(match &router {
                Some(router) => router.measure(&arm, load, || bar.inc(1))?,
                None => Run::measure(&arm.profile, load, || bar.inc(1))?,
            });
        }
        results.push(Measured { arm, runs });
    }
    bar.finish_and_clear();
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_time_is_a_number_of_milliseconds_that_can_be_waited_for() {
        assert_eq!(milliseconds("0"), Ok(Duration::ZERO));
        assert_eq!(milliseconds("2.5"), Ok(Duration::from_micros(2_500)));
        for wrong in ["", "-1", "-0.001", "NaN", "inf", "1e300", "3ms"] {
            assert!(milliseconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn class_names_are_trimmed_and_none_is_empty_or_twice() {
        let names = classes("premium, regular").unwrap();
        assert_eq!(names.0.iter().map(|n| &**n).collect::<Vec<_>>(), ["premium", "regular"]);
        for wrong in ["", "premium,", "a,b,a"] {
            assert!(classes(wrong).is_err(), "{wrong:?}");
        }
    }
}
