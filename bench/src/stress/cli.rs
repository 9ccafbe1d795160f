//! The command line of the stress test.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::load::{Cost, Load, Order, Spread};
use super::{report, run};
use crate::idle::Idle;

/// Ends the help.
pub const EXIT_CODES: &str = "\
Exit code: 0 if every invariant holds, 1 if one does not or the run failed, 2 if the command line is wrong.";

/// Exit code for a wrong command line.
const USAGE: u8 = 2;

/// Callers of all threads together, unless told otherwise, at least and at most in a closed loop, and in an open one.
const CALLERS: (u64, u64) = (256, 65_536);
const OPEN_CALLERS: u64 = 65_536;
/// Callers of all threads together, at most: some 100 bytes each.
const MOST_CALLERS: u64 = 16_777_216;

/// Options of the stress test.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Time to measure, in seconds
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    duration: Duration,
    /// Time to run before, in seconds
    #[arg(long, value_name = "S", default_value = "1", value_parser = seconds_or_none)]
    warm_up: Duration,
    /// Ingress threads
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = count(1_024))]
    threads: u64,
    /// Policy classes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = count(10_000))]
    classes: u64,
    /// Quanta of the classes, in tokens; repeated for further classes
    #[arg(long, value_name = "TOKENS,…", default_value = "4096,2048,1024,512", value_delimiter = ',',
        value_parser = count(u64::MAX))]
    quanta: Vec<u64>,
    /// Order inside each class
    #[arg(long, value_enum, default_value_t)]
    order: Order,
    /// Workers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = count(100_000))]
    workers: u64,
    /// Requests that a worker serves at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    slots: u32,
    /// Time that a request takes on its worker, in microseconds
    #[arg(long, value_name = "US", default_value = "0", value_parser = microseconds)]
    service_us: Duration,
    /// Uncached tokens of each request: fixed:N, uniform:A-B or lognormal:MEDIAN,SIGMA
    #[arg(long, value_name = "COST", default_value = "uniform:1-2048")]
    cost: Cost,
    /// Share of the requests whose caller leaves before the answer
    #[arg(long, value_name = "0..1", default_value = "0", value_parser = share)]
    cancel: f64,
    /// Share of the requests that have a deadline
    #[arg(long, value_name = "0..1", default_value = "0", value_parser = share)]
    deadline: f64,
    /// That deadline, in milliseconds from arrival
    #[arg(long, value_name = "MS", default_value = "1", value_parser = milliseconds)]
    deadline_ms: Duration,
    /// Worker snapshots published per second
    #[arg(long, value_name = "N", default_value = "10", value_parser = rate_or_none)]
    publish: f64,
    /// Requests per second, by a schedule that does not wait for the engine [default: as many as it takes]
    #[arg(long, value_name = "N", value_parser = rate)]
    rate: Option<f64>,
    /// How these are spread over time
    #[arg(long, value_enum, default_value_t, requires = "rate")]
    arrivals: Spread,
    /// Requests in flight, over all threads; with --rate at most so many [default: enough that every class always has
    /// some waiting, 256 to 65,536; with --rate 65,536]
    #[arg(long, value_name = "N", value_parser = count(MOST_CALLERS))]
    in_flight: Option<u64>,
    /// What the arbiter does when it has nothing to do
    #[arg(long, value_enum, default_value_t = Idle::Backoff)]
    idle: Idle,
    /// Seed of costs, arrivals, cancels, deadlines and external loads
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print one JSON document and nothing else
    #[arg(long)]
    json: bool,
}

fn count(most: u64) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=most)
}

/// A number from `low` to `high`.
fn number(text: &str, low: f64, high: f64) -> Result<f64, String> {
    let value: f64 = text.trim().parse().map_err(|_| "not a number".to_owned())?;
    if (low..=high).contains(&value) { Ok(value) } else { Err(format!("not in {low}..={high}")) }
}

/// Up to a day.
fn seconds(text: &str) -> Result<Duration, String> {
    number(text, 1e-3, 86_400.0).map(Duration::from_secs_f64)
}

fn seconds_or_none(text: &str) -> Result<Duration, String> {
    number(text, 0.0, 86_400.0).map(Duration::from_secs_f64)
}

fn milliseconds(text: &str) -> Result<Duration, String> {
    number(text, 0.0, 3.6e6).map(|ms| Duration::from_secs_f64(ms / 1e3))
}

fn microseconds(text: &str) -> Result<Duration, String> {
    number(text, 0.0, 6e7).map(|us| Duration::from_secs_f64(us / 1e6))
}

fn share(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1.0)
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, 1e-3, 1e7)
}

fn rate_or_none(text: &str) -> Result<f64, String> {
    number(text, 0.0, 1e6)
}

impl Args {
    /// The load, or what is wrong with the options together.
    fn load(&self) -> Result<Load, String> {
        let quanta: Vec<_> = self.quanta.iter().copied().cycle().take(self.classes as usize).collect();
        let enough = self.workers.saturating_mul(self.slots.into()).saturating_add(self.threads + 1);
        let closed = || self.classes.saturating_mul(enough).clamp(CALLERS.0, CALLERS.1);
        let default = || if self.rate.is_some() { OPEN_CALLERS } else { closed() };
        let callers = self.in_flight.unwrap_or_else(default).max(self.threads);
        if let Some(given) = self.in_flight
            && given < self.threads
        {
            return Err(format!("--in-flight {given}: {} threads need one each at least", self.threads));
        }
        let seats = callers.div_ceil(self.threads);
        if self.rate.is_none() && seats * self.threads < self.classes {
            return Err(format!(
                "--in-flight {callers}: in a closed loop each caller stays with one class, and there are {} classes",
                self.classes
            ));
        }
        if self.quanta.len() > quanta.len() {
            return Err(format!("--quanta: {} of them for {} classes", self.quanta.len(), self.classes));
        }
        Ok(Load {
            threads: self.threads,
            quanta,
            order: self.order,
            workers: self.workers,
            slots: self.slots,
            service: self.service_us,
            cost: self.cost,
            cancel: self.cancel,
            deadline: self.deadline,
            within: self.deadline_ms,
            publish: self.publish,
            rate: self.rate,
            spread: self.arrivals,
            seats: u32::try_from(seats).map_err(|_| format!("--in-flight {callers}: too many"))?,
            warm_up: self.warm_up,
            duration: self.duration,
            idle: self.idle,
            seed: self.seed,
        })
    }

    /// A bar over the time on standard error, if that is a terminal.
    fn progress(&self, load: &Load) -> ProgressBar {
        if self.json {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{msg:32} {wide_bar} {percent:>3} %  {eta:>4} left");
        ProgressBar::new((load.warm_up + load.duration).as_millis() as u64)
            .with_style(style.expect("the template is right"))
    }
}

/// Runs the stress test and prints its results.
pub fn main(args: &Args) -> ExitCode {
    let load = match args.load() {
        Ok(load) => load,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let bar = args.progress(&load);
    let (mut before, mut permits_before) = (Duration::ZERO, 0);
    let measured = run::run(&load, |elapsed, permits| {
        let rate = (permits - permits_before) as f64 / (elapsed - before).as_secs_f64().max(1e-9);
        (before, permits_before) = (elapsed, permits);
        let phase = match elapsed {
            early if early < load.warm_up => "warming up",
            late if late >= load.warm_up + load.duration => "last answers",
            _ => "measuring",
        };
        bar.set_message(format!("{phase}, {} permits/s", report::grouped(rate as u64)));
        bar.set_position(elapsed.as_millis() as u64);
    });
    bar.finish_and_clear();
    let measured = match measured {
        Ok(measured) => measured,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let text = match args.json {
        true => format!("{:#}\n", report::json(&load, &measured)),
        false => report::text(&load, &measured),
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // Whoever reads has read enough.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        _ if measured.holds() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_outside_their_range_are_refused() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-1", "NaN", "inf", "1e9", "5s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!((share("0"), share("1")), (Ok(0.0), Ok(1.0)));
        for wrong in ["-0.1", "1.01", "NaN", "half"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        assert!(rate("0").is_err() && rate_or_none("0").is_ok());
    }
}
