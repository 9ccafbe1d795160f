//! The arbiter's sleep, and how it is woken.
//!
//! 1. The sleeper announces that it sleeps.
//! 2. It looks at every source of work once more.
//! 3. It parks, and takes the announcement back when it wakes.
//!
//! A notifier first makes its work visible, then looks for the announcement, and unparks the sleeper if it finds it.
//! Both sides write, then read what the other writes, so both need a SeqCst fence in between: with less, the sleeper
//! could miss the work and the notifier the announcement. While the arbiter is awake, a notification is a fence and a
//! load of a line that nobody writes. While it wakes, several notifiers may unpark it: the first makes the system call.
//! None relies on another, so one that is suspended anywhere holds up nobody.

use std::time::Duration;

use super::{Arc, AtomicU32, CachePadded, Ordering, Step, Thread, current, fence, park, park_timeout, point};

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
        point(Step::NotifyFenced);
        // Relaxed: the fences order it.
        if self.0.state.load(Ordering::Relaxed) == ASLEEP {
            point(Step::NotifySeen);
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        self.0.thread.unpark();
    }
}

impl Sleeper {
    /// Sleeps until notified, at most for `limit`, unless `work` says that there is some. It may also wake for
    /// nothing. Returns whether it slept.
    ///
    /// Must be called on the thread that called [`sleep`]; elsewhere it would sleep until its limit.
    pub fn sleep(&mut self, limit: Option<Duration>, work: impl FnOnce() -> bool) -> bool {
        let state = &self.0.state;
        // Relaxed: the fence orders it.
        state.store(ASLEEP, Ordering::Relaxed);
        // SeqCst: orders the announcement before the look for work; partner: the fence in `notify`.
        fence(Ordering::SeqCst);
        point(Step::Announced);
        let sleeps = !work();
        point(Step::Rechecked);
        if sleeps {
            match limit {
                None => park(),
                Some(limit) => park_timeout(limit),
            }
        }
        point(Step::Woken);
        // Relaxed: a notifier that still reads the announcement unparks once too often.
        state.store(AWAKE, Ordering::Relaxed);
        sleeps
    }
}
