//! The engine's clock: monotonic, counted from its own start.

use crate::time::Timestamp;

/// A monotonic clock.
#[cfg(not(any(loom, shuttle)))]
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: std::time::Instant,
}

#[cfg(not(any(loom, shuttle)))]
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

/// A clock that goes on by a nanosecond whenever it is read: each execution of a model must go the same way.
#[cfg(any(loom, shuttle))]
#[derive(Debug)]
pub struct Clock {
    /// No atomic of loom's: reading the clock orders nothing.
    reads: std::sync::atomic::AtomicU64,
}

#[cfg(any(loom, shuttle))]
impl Clock {
    /// A clock that starts at 0.
    pub fn start() -> Self {
        Self { reads: std::sync::atomic::AtomicU64::new(0) }
    }

    /// How often it was read.
    pub fn now(&self) -> Timestamp {
        // Relaxed: a count, which publishes nothing.
        Timestamp::from_nanos(self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }
}
