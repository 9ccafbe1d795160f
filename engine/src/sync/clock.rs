//! The engine's clock: monotonic, counted from its own start.

use crate::time::Timestamp;

/// A monotonic clock.
#[cfg(not(loom))]
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
}

#[cfg(not(loom))]
impl Clock {
    /// A clock that starts at 0 now.
    pub fn start() -> Self {
        Self { start: std::time::Instant::now() }
    }

    /// Time since the start.
    pub fn now(&self) -> Timestamp {
        Timestamp::ZERO.saturating_add(self.start.elapsed())
    }
}

/// A clock that stands still: each execution of a model must go the same way.
#[cfg(loom)]
#[derive(Clone, Copy, Debug)]
pub struct Clock;

#[cfg(loom)]
impl Clock {
    /// A clock that starts, and stays, at 0.
    pub fn start() -> Self {
        Self
    }

    /// 0.
    pub fn now(&self) -> Timestamp {
        Timestamp::ZERO
    }
}
