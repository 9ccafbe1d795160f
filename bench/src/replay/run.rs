//! Several runs over the same traffic, on all cores.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::options::Traffic;
use super::sim::{Setup, SimError, simulate};
use super::stats::Outcome;

/// How often the bar moves.
const TICK: Duration = Duration::from_millis(100);

/// Simulates every setup and returns the outcomes in their order. Each run reads the traffic for itself, so that memory
/// does not depend on its length.
///
/// # Errors
/// The error of the first setup that has one; traffic without any request.
pub fn run_all(
    setups: &[Setup],
    traffic: &Traffic,
    threads: usize,
    quiet: bool,
) -> Result<Vec<Outcome>, SimError> {
    let progress = Arc::new(AtomicU64::new(0));
    let total: u64 = traffic.sources.iter().map(|source| source.size()).sum();
    let bar = bar(total * setups.len() as u64, quiet);
    let next = AtomicUsize::new(0);
    let (sender, results) = channel();
    let mut outcomes: Vec<Option<Result<Outcome, SimError>>> = setups.iter().map(|_| None).collect();
    thread::scope(|scope| {
        for _ in 0..threads.clamp(1, setups.len().max(1)) {
            let (sender, next, progress) = (sender.clone(), &next, &progress);
            scope.spawn(move || {
                loop {
                    // Relaxed: a number for each, nothing else is shared.
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(setup) = setups.get(i) else { return };
                    let run = || simulate(setup, traffic.open(progress)?, |_, _| {});
                    if sender.send((i, run())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        loop {
            match results.recv_timeout(TICK) {
                Ok((i, result)) => outcomes[i] = Some(result),
                Err(RecvTimeoutError::Timeout) => bar.set_position(progress.load(Ordering::Relaxed)),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    bar.finish_and_clear();
    let outcomes = outcomes.into_iter().map(|result| result.expect("every setup was run"));
    outcomes
        .map(|outcome| outcome.and_then(|o| if o.all.arrived > 0 { Ok(o) } else { Err(SimError::Empty) }))
        .collect()
}

/// Threads to use when nobody says.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A bar on standard error, if that is a terminal.
fn bar(total: u64, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {elapsed}, {eta} left");
    ProgressBar::new(total).with_style(style.expect("the template is right"))
}
