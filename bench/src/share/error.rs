//! Why a run has no result.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tollgate::{StartError, WorkerError};

/// Why there is no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The engine did not start.
    Engine(StartError),
    /// The worker list is wrong.
    Worker(WorkerError),
    /// The system gave no thread, process, file or connection.
    System(io::Error),
    /// A connection to the router broke.
    Http(hyper::Error),
    /// The router was not built.
    NoRouter {
        /// Where it should be.
        program: PathBuf,
    },
    /// The router did not start, or cannot be spoken to.
    Router {
        /// What it said.
        message: String,
    },
    /// Nothing happened for too long.
    Stalled {
        /// Requests that were neither completed nor refused.
        missing: usize,
        /// How long nothing happened.
        after: Duration,
    },
}

impl From<StartError> for RunError {
    fn from(error: StartError) -> Self {
        Self::Engine(error)
    }
}

impl From<WorkerError> for RunError {
    fn from(error: WorkerError) -> Self {
        Self::Worker(error)
    }
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl From<hyper::Error> for RunError {
    fn from(error: hyper::Error) -> Self {
        Self::Http(error)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => write!(f, "the engine did not start: {error}"),
            Self::Worker(error) => error.fmt(f),
            Self::System(error) => error.fmt(f),
            Self::Http(error) => write!(f, "the connection to the router broke: {error}"),
            Self::NoRouter { program } => write!(
                f,
                "there is no {}: build it with `cargo build{} -p tollgate --example router`",
                program.display(),
                if cfg!(debug_assertions) { "" } else { " --release" },
            ),
            Self::Router { message } => write!(f, "the router: {message}"),
            Self::Stalled { missing, after } => {
                write!(f, "{missing} requests got no answer: nothing happened for {after:?}")
            }
        }
    }
}

impl std::error::Error for RunError {}
