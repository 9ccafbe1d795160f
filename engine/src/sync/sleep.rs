//! The arbiter's sleep, and how it is woken.
//!
//! 1. The sleeper announces that it sleeps.
//! 2. It looks at every source of work once more.
//! 3. It parks until somebody takes the announcement back.
//!
//! A notifier first makes its work visible, then looks for the announcement; the first who finds it takes it back
//! and unparks. Both sides write, then read what the other writes, so both need a SeqCst fence in between: with
//! less, the sleeper could miss the work and the notifier the announcement. While the arbiter is awake, a
//! notification is a fence and a load of a line that nobody writes.

use std::time::Duration;

use super::{Arc, AtomicU32, CachePadded, Ordering, Thread, current, fence, park, park_timeout};

const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;

#[derive(Debug)]
struct Shared {
    state: CachePadded<AtomicU32>,
    thread: Thread,
}

/// The side that sleeps: there is one.
#[derive(Debug)]
pub struct Sleeper(Arc<Shared>);

/// The side that wakes it.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Shared>);

/// Both sides for the calling thread, which is the one that will sleep.
pub fn sleep() -> (Notifier, Sleeper) {
    let shared = Arc::new(Shared { state: CachePadded::new(AtomicU32::new(AWAKE)), thread: current() });
    (Notifier(shared.clone()), Sleeper(shared))
}

impl Notifier {
    /// Wakes the sleeper if it sleeps. The caller has made its work visible before.
    pub fn notify(&self) {
        // SeqCst: orders the caller's work before the look at the announcement; partner: the fence in `sleep`.
        fence(Ordering::SeqCst);
        // Relaxed: the fences order it.
        if self.0.state.load(Ordering::Relaxed) == ASLEEP {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        // Relaxed: the exchange picks the one notifier that unparks; the work itself is published by its source.
        let taken = self.0.state.compare_exchange(ASLEEP, AWAKE, Ordering::Relaxed, Ordering::Relaxed);
        if taken.is_ok() {
            self.0.thread.unpark();
        }
    }
}

impl Sleeper {
    /// Sleeps until notified, at most for `limit`, unless `work` says that there is some. Returns whether it slept.
    ///
    /// Must be called on the thread that called [`sleep`]; elsewhere it would sleep until its limit.
    pub fn sleep(&mut self, limit: Option<Duration>, work: impl FnOnce() -> bool) -> bool {
        let state = &self.0.state;
        // Relaxed: the fence orders it.
        state.store(ASLEEP, Ordering::Relaxed);
        // SeqCst: orders the announcement before the look for work; partner: the fence in `notify`.
        fence(Ordering::SeqCst);
        if work() {
            state.store(AWAKE, Ordering::Relaxed);
            return false;
        }
        // Relaxed: what the notifier has done is read from its source, behind orderings of its own.
        while state.load(Ordering::Relaxed) == ASLEEP {
            match limit {
                None => park(),
                Some(limit) => {
                    park_timeout(limit);
                    state.store(AWAKE, Ordering::Relaxed);
                }
            }
        }
        true
    }
}
