//! Pictures of an engine for those who do not own it.

use std::fmt;

use super::Engine;
use super::counts::{EngineSnapshot, read};
use super::shared::Shared;
use crate::sync::Arc;
use crate::sync::ticket::ticket;

/// Takes pictures of an engine without keeping it open: for exporters, which live as long as the process.
///
/// ```
/// use tollgate::Engine;
/// use tollgate::policy::{Profile, QueuePolicy};
///
/// let engine = Engine::builder(Profile::synthetic(None, QueuePolicy::Fcfs)).start()?;
/// let monitor = engine.monitor();
/// drop(engine.admit(tollgate::Request::new(1, 0))?);
/// drop(engine); // the last clone: it closes
/// assert_eq!(monitor.snapshot().classes[0].ended(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Monitor {
    shared: Arc<Shared>,
}

impl Monitor {
    /// As [`Engine::snapshot`]; of an engine that has ended, how it ended.
    ///
    /// # Panics
    /// In a waker, a selector or an observer, which run on the arbiter's own thread: it would wait for itself.
    pub fn snapshot(&self) -> EngineSnapshot {
        picture(&self.shared)
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").finish_non_exhaustive()
    }
}

impl Engine {
    /// What takes pictures of this engine and does not keep it open.
    pub fn monitor(&self) -> Monitor {
        Monitor { shared: self.owner.shared.clone() }
    }

    /// A picture of the whole engine, taken by the arbiter between two turns, O(classes + endpoints): the caller waits
    /// for the next turn. An engine that has ended shows how it ended.
    ///
    /// # Panics
    /// In a waker, a selector or an observer, which run on the arbiter's own thread: it would wait for itself.
    pub fn snapshot(&self) -> EngineSnapshot {
        picture(&self.handle.shared)
    }
}

fn picture(shared: &Shared) -> EngineSnapshot {
    assert!(!shared.notifier.is_here(), "the arbiter cannot wait for its own picture");
    let (asker, question) = ticket(());
    let last = shared.wanted.ask(question);
    let mut picture = last.unwrap_or_else(|| {
        shared.notifier.notify();
        asker.wait().0
    });
    // What callers count themselves goes on after the end.
    picture.invalid = read(&shared.door.invalid);
    picture.turned_away = read(&shared.door.closed);
    picture.clamped = read(&shared.door.clamped);
    picture.stale_releases = shared.releases.stale();
    picture.completed()
}
