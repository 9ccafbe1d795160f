//! The command line of the experiments.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;
use tollgate_bench::{compare, share, stress};

#[global_allocator]
static ALLOCATOR: stress::Counting<MiMalloc> = stress::Counting(MiMalloc);

/// Experiments with the tollgate scheduler. Without a subcommand: `share`.
#[derive(Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = share::EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    experiment: Option<Experiment>,
    #[command(flatten)]
    share: share::Args,
}

#[derive(Subcommand)]
enum Experiment {
    /// How policy classes share one saturated worker.
    #[command(after_help = share::EXIT_CODES)]
    Share(share::Args),
    /// The peer and this scheduler side by side; needs the feature `peer`.
    #[command(after_help = compare::EXIT_CODES)]
    Compare(compare::Args),
    /// Sustained load through the whole engine: throughput, latency, shares, and whether the books balance.
    #[command(after_help = stress::EXIT_CODES)]
    Stress(stress::Args),
}

fn main() -> ExitCode {
    let Cli { experiment, share } = Cli::parse();
    match experiment.unwrap_or(Experiment::Share(share)) {
        Experiment::Share(args) => share::main(&args),
        Experiment::Compare(args) => compare::main(&args),
        Experiment::Stress(args) => stress::main(&args),
    }
}
