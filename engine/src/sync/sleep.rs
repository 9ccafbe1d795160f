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
//!
//! A sleeper may also lend its work to its notifiers while it sleeps: see [`lend`](super::lend).

use std::time::Duration;

use super::lend::{Desk, Here, Lent};
use super::{Arc, AtomicU32, CachePadded, Ordering, Step, Thread, current, fence, park, park_timeout, point};
use crate::time::Timestamp;

pub(super) const AWAKE: u32 = 0;
pub(super) const ASLEEP: u32 = 1;
/// Whoever has the work is about to lay it down, and looks once more; only where it is lent.
pub(super) const LEAVING: u32 = 4;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: CachePadded<AtomicU32>,
    pub(super) thread: Thread,
    /// What notifiers may do while the sleeper sleeps, if it lends it.
    pub(super) lent: Option<Lent>,
}

/// The side that sleeps: there is one.
#[derive(Debug)]
pub struct Sleeper(Arc<Shared>);

/// The side that wakes it.
#[derive(Clone, Debug)]
pub struct Notifier(Arc<Shared>);

/// Both sides for the calling thread, which is the one that will sleep.
pub fn sleep() -> (Notifier, Sleeper) {
    pair(None)
}

/// The same for a sleeper that [lends](Sleeper::lend) its work.
pub fn lending_sleep() -> (Notifier, Sleeper) {
    pair(Some(Lent::default()))
}

fn pair(lent: Option<Lent>) -> (Notifier, Sleeper) {
    let shared = Arc::new(Shared { state: CachePadded::new(AtomicU32::new(AWAKE)), thread: current(), lent });
    (Notifier(shared.clone()), Sleeper(shared))
}

/// What a notifier has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// There is something to do, and it is so late, if the notifier knows.
    Work(Option<Timestamp>),
    /// There is room for what waits.
    Room,
}

impl Notifier {
    /// Wakes the sleeper if it sleeps, or does its work. The caller has made its work visible before.
    pub fn notify(&self) {
        self.tell(News::Work(None));
    }

    /// The same by who has just looked at the clock, to spare another look.
    pub fn notify_at(&self, now: Timestamp) {
        self.tell(News::Work(Some(now)));
    }

    /// The same where the work is nothing but room for what waits.
    pub fn notify_of_room(&self) {
        self.tell(News::Room);
    }

    /// Whether a [visit](Self::visit) would most probably find the desk free.
    pub fn is_quiet(&self) -> bool {
        self.0.lent.is_some() && self.0.is_quiet()
    }

    /// Does `first` at the desk, in place of the sleeper, if that has lent it, nobody has it, and nothing waits on it. `first`
    /// says whether the desk can be laid down then; if not, it goes to the sleeper. News that comes meanwhile is seen to
    /// before this returns.
    ///
    /// # Panics
    /// If the desk is of another kind.
    pub fn visit<D: Desk>(&self, first: impl FnOnce(&mut D) -> bool) {
        if self.0.lent.is_some() {
            self.0.visit(first);
        }
    }

    fn tell(&self, news: News) {
        // SeqCst: orders the caller's work before the look at the announcement; partner: the fence in `sleep` or `leave`.
        fence(Ordering::SeqCst);
        point(Step::NotifyFenced);
        // Relaxed: the fences order it.
        let seen = self.0.state.load(Ordering::Relaxed);
        if seen & (ASLEEP | LEAVING) != 0 {
            point(Step::NotifySeen);
            self.react(seen, news);
        }
    }

    #[cold]
    fn react(&self, seen: u32, news: News) {
        if self.0.lent.is_some() { self.0.borrow(seen, news) } else { self.0.thread.unpark() }
    }

    /// Whether the calling thread is the sleeper's, or does its work just now.
    pub fn is_here(&self) -> bool {
        self.0.thread.id() == current().id() || self.0.is_lent_here()
    }
}

impl Sleeper {
    /// Says that the calling thread, which is the sleeper's own, does no work for other sleepers, as long as this lives.
    pub(crate) fn here(&self) -> Here {
        Here::at(&self.0)
    }

    /// Sleeps until notified, at most for `limit`, unless `work` says that there is some. It may also wake for
    /// nothing. Returns whether it slept.
    ///
    /// Must be called on the thread that called [`sleep`]; elsewhere it would sleep until its limit.
    pub fn sleep(&mut self, limit: Option<Duration>, work: impl FnOnce() -> bool) -> bool {
        let state = &self.0.state;
        // Relaxed: the fence orders it.
        state.store(ASLEEP, Ordering::Relaxed);
        // SeqCst: orders the announcement before the look for work; partner: the fence in `tell`.
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

    /// Lends `desk` to the notifiers and sleeps until it is given back, or `limit` is over, unless there is something
    /// to do at once. Returns whether it slept.
    ///
    /// Must be called on the thread that called [`lending_sleep`].
    ///
    /// # Panics
    /// If this sleeper does not lend.
    pub fn lend<T: Desk + 'static>(&mut self, desk: &mut T, limit: Option<Duration>) -> bool {
        self.0.lend(desk, limit)
    }
}
