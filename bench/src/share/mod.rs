//! How policy classes share one saturated worker: the published experiment, in one process, on the real engine.
//!
//! Ingress threads release the same number of requests of every class at once. The engine lets a request go to the
//! only worker while that is not busy for the request's class; the worker has a few slots and takes a fixed time
//! per request. What counts is the order of completions: of N requests per class, how many of each class are among
//! the first N, and how many of the others are left when the first class finishes.
//!
//! The first requests, as many as there are slots, arrive one after the other and find the worker idle, as they do
//! over a network; the others are released behind them at once. That matters: of the first four, two are regular
//! whatever the quanta, so that with 512 : 128 exact deficit round robin leaves 239 regular requests when premium
//! finishes. If instead everything waits before the first dispatch, it leaves 241, and the published range ends at 240.
//!
//! | file | what it does |
//! |---|---|
//! | `cli` | the options, and from them to the exit code |
//! | `arms` | the policies, and what is expected of them |
//! | `worker` | the worker with its slots, and the way of a request to it: the engine's wake-ups |
//! | `http` | the same over HTTP, against the router example or any other router |
//! | `run`, `error` | one run and its counts, or why there is none |
//! | `report`, `table`, `plot` | the results as JSON, as text, as a picture |

mod arms;
mod cli;
mod error;
mod http;
mod plot;
mod report;
mod run;
mod table;
mod worker;

pub use arms::{Arm, ArmError, Expected, built_in};
pub use cli::{Args, Classes, EXIT_CODES, main};
pub use error::RunError;
pub use http::Target;
pub use run::{Run, Workload};
pub use worker::{MockWorker, Outcome, Waiter, WorkerSpec};

/// An arm with its runs.
#[derive(Debug)]
pub struct Measured {
    /// The arm.
    pub arm: Arm,
    /// Its runs, in order.
    pub runs: Vec<Run>,
}

impl Measured {
    /// Whether `run` is inside what is expected of the arm; `None` if nothing is.
    pub fn inside(&self, run: &Run) -> Option<bool> {
        self.arm.expected.as_ref().map(|expected| expected.holds(run))
    }

    /// Whether any run is outside.
    pub fn any_outside(&self) -> bool {
        self.runs.iter().any(|run| self.inside(run) == Some(false))
    }
}
