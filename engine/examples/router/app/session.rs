//! Sessions: requests that name the same one go to the same worker, until it has been idle for a while.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use tollgate::WorkerId;

/// Most sessions that a model remembers; the one that was idle for longest is forgotten first.
const MOST: NonZeroUsize = NonZeroUsize::new(65_536).unwrap();

#[derive(Clone, Copy, Debug)]
struct Bound {
    worker: WorkerId,
    used: Instant,
}

/// Where the sessions of a model are.
#[derive(Debug)]
pub(crate) struct Sessions {
    bound: Mutex<LruCache<Arc<str>, Bound>>,
    ttl: Duration,
}

impl Sessions {
    pub(crate) fn new(ttl: Duration) -> Self {
        // Not with room for all from the start.
        let mut bound = LruCache::unbounded();
        bound.resize(MOST);
        Self { bound: Mutex::new(bound), ttl }
    }

    /// The worker of a session, which is in use from now on.
    pub(crate) fn worker(&self, session: &str, now: Instant) -> Option<WorkerId> {
        let mut all = self.bound.lock();
        let bound = all.get_mut(session)?;
        if now.saturating_duration_since(bound.used) >= self.ttl {
            all.pop(session);
            return None;
        }
        bound.used = bound.used.max(now);
        Some(bound.worker)
    }

    /// The session is used on this worker: it stays where it is already, if that is another one.
    pub(crate) fn used(&self, session: &Arc<str>, worker: WorkerId, now: Instant) {
        let mut all = self.bound.lock();
        let bound = all.get_or_insert_mut(session.clone(), || Bound { worker, used: now });
        bound.used = bound.used.max(now);
    }

    /// The session must find another worker, if it is still at this one.
    pub(crate) fn leave(&self, session: &str, worker: WorkerId) {
        let mut all = self.bound.lock();
        if all.peek(session).is_some_and(|bound| bound.worker == worker) {
            all.pop(session);
        }
    }

    /// Sessions that are remembered.
    pub(crate) fn len(&self) -> usize {
        self.bound.lock().len()
    }
}
