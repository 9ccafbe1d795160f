//! What if: recorded traffic through a policy before it goes live.
//!
//! The real [`Scheduler`](tollgate::Scheduler) decides, on virtual time, over modelled workers: no threads, no clock, and
//! the same seed gives the same bytes.
//!
//! | file | what it does |
//! |---|---|
//! | `trace` | recorded requests, one at a time |
//! | `classify` | which class and group a request is in |
//! | `worker`, `cache` | the model of a worker: steps, slots, prefix cache |
//! | `sim` | the event loop |
//! | `conserve` | whether anybody waits who could go, without asking the scheduler |
//! | `ledger`, `stats`, `timeline` | what is written down, and counted |
//! | `run`, `options`, `cli` | several runs at once, and the command line |
//! | `calibrate` | the time of a step from measured steps |
//! | `report` | tables, JSON, charts, a page |
//! | `sweep` | one policy with many settings |

mod cache;
mod calibrate;
mod classify;
mod cli;
mod conserve;
mod ledger;
mod options;
mod report;
mod run;
mod sim;
mod stats;
pub mod sweep;
mod timeline;
mod trace;
mod worker;

pub use cache::Caches;
pub use calibrate::calibrate;
pub use classify::{Rule, Rules, RulesError, Seen, draw};
pub use cli::{Args, EXIT_CODES, main};
pub use options::{FleetArgs, Permits, Policy, Traffic, TrafficArgs};
pub use report::{Context, Difference, Measured, Verdict, differences, html, json, text};
pub use run::{cores, run_all};
pub use sim::{Event, Fleet, Setup, SimError, simulate};
pub use stats::{ClassStats, Counts, GroupStats, Outcome, REFUSALS, Row, Times, WorkerStats, ratio};
pub use timeline::{BINS, Timeline};
pub use trace::{Amount, Arrival, Cut, Format, Merged, Poisson, Source, Stream, TraceError};
pub use worker::{Flight, Progress, StepTime, Work, Worker, WorkerModel};
