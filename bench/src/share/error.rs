//! Why a run has no result.

use std::fmt;
use std::io;
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
    /// The system gave no thread.
    Thread(io::Error),
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
        Self::Thread(error)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => write!(f, "the engine did not start: {error}"),
            Self::Worker(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
            Self::Stalled { missing, after } => {
                write!(f, "{missing} requests got no answer: nothing happened for {after:?}")
            }
        }
    }
}

impl std::error::Error for RunError {}
