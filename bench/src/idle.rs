//! What the arbiter does when there is nothing to do, as an option of a command.

use std::fmt;

/// [`tollgate::Idle`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Idle {
    /// It looks again for a short time, then sleeps
    Backoff,
    /// It looks again for ever, on a core of its own
    Spin,
    /// It sleeps, and callers run its turns
    Assist,
}

impl From<Idle> for tollgate::Idle {
    fn from(idle: Idle) -> Self {
        match idle {
            Idle::Backoff => Self::Backoff,
            Idle::Spin => Self::Spin,
            Idle::Assist => Self::Assist,
        }
    }
}

impl fmt::Display for Idle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Backoff => "backoff",
            Self::Spin => "spin",
            Self::Assist => "assist",
        })
    }
}
