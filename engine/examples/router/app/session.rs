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

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);
    const ONE: WorkerId = WorkerId(1);
    const TWO: WorkerId = WorkerId(2);

    #[test]
    fn a_session_ends_when_it_was_idle_for_its_time_and_every_use_starts_that_anew() {
        let (sessions, start) = (Sessions::new(TTL), Instant::now());
        let name: Arc<str> = "a".into();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(sessions.worker("a", at(0)), None);
        sessions.used(&name, ONE, at(0));
        assert_eq!(sessions.worker("a", at(9)), Some(ONE));
        assert_eq!(sessions.worker("a", at(18)), Some(ONE));
        sessions.used(&name, ONE, at(27));
        assert_eq!(sessions.worker("a", at(36)), Some(ONE));
        assert_eq!(sessions.worker("a", at(46)), None);
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn the_first_worker_stays_until_the_session_leaves_that_very_one() {
        let (sessions, now) = (Sessions::new(TTL), Instant::now());
        let name: Arc<str> = "a".into();
        sessions.used(&name, ONE, now);
        sessions.used(&name, TWO, now);
        sessions.leave("a", TWO);
        assert_eq!(sessions.worker("a", now), Some(ONE));
        sessions.leave("a", ONE);
        sessions.used(&name, TWO, now);
        assert_eq!(sessions.worker("a", now), Some(TWO));
    }

    #[test]
    fn above_the_most_the_longest_idle_session_is_forgotten() {
        let (sessions, now) = (Sessions::new(TTL), Instant::now());
        for i in 0..=MOST.get() {
            sessions.used(&i.to_string().into(), ONE, now);
        }
        assert_eq!(sessions.len(), MOST.get());
        assert_eq!((sessions.worker("0", now), sessions.worker("1", now)), (None, Some(ONE)));
    }
}
