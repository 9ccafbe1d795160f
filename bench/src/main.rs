//! The command line of the experiments.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mimalloc::MiMalloc;
use tollgate_bench::{compare, replay, share, stress};

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
    /// What a policy would do with recorded traffic: the real scheduler on virtual time.
    #[command(after_help = replay::EXIT_CODES)]
    Replay(replay::Args),
    /// One policy with many settings on recorded traffic, and which of them are best.
    #[command(after_help = replay::sweep::EXIT_CODES)]
    Sweep(replay::sweep::Args),
    /// Sustained load through the whole engine: throughput, latency, shares, and whether the books balance.
    #[command(after_help = stress::EXIT_CODES)]
    Stress(stress::Args),
}

fn main() -> ExitCode {
    let Cli { experiment, share } = Cli::parse();
    match experiment.unwrap_or(Experiment::Share(share)) {
        Experiment::Share(args) => share::main(&args),
        Experiment::Compare(args) => compare::main(&args),
        Experiment::Replay(args) => replay::main(&args),
        Experiment::Sweep(args) => replay::sweep::main(&args),
        Experiment::Stress(args) => stress::main(&args),
    }
}
