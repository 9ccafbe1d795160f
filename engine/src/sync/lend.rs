//! A sleeper that lends its work: who has news for it while it sleeps does the work instead of waking it.
//!
//! The work, a [`Desk`], has one owner at a time, and the state word says who:
//!
//! | state | owner |
//! |---|---|
//! | `AWAKE` | the sleeper's thread |
//! | `ASLEEP` | nobody; who swaps it for something else has it |
//! | `ASLEEP` and `WANTED` | the sleeper's thread, which has just taken it |
//! | `ASSISTED` | a notifier |
//!
//! Three bits say more. `LEAVING`: the owner is about to lay the desk down, and looks for work once more. Who has
//! news takes the bit away, and the owner goes on. `WANTED`: the sleeper's time limit is over; the notifier that has the
//! desk hands it over. `QUIET`: nothing waited on the desk at the owner's last look, so room is no news while nobody has
//! it, and while a notifier has it, it will soon be free.
//!
//! Laying down has the shape of going to sleep: announce, fence, look again, and only then, by an exchange that fails if
//! anybody has objected, give up. The look is the owner's, who may touch the desk. A notifier that finds another owner at
//! work does nothing: that one looks again.

use std::any::TypeId;
use std::ptr::{self, NonNull};
use std::time::Duration;

use super::sleep::{ASLEEP, AWAKE, LEAVING, News, Shared};
use crate::time::Timestamp;

use super::{
    HELPS, Ordering, Step, UnsafeCell, fence, panicking, park, park_timeout, point, spin_loop, spins,
};

const ASSISTED: u32 = 2;
const WANTED: u32 = 8;
const QUIET: u32 = 16;
const ASLEEP_QUIET: u32 = ASLEEP | QUIET;

/// Times that a notifier goes on because there is more to do, before it leaves the desk to the sleeper: some 300 µs when two
/// threads do nothing but admit. A quarter of it cost a fifth of their throughput, for what waking the sleeper takes;
/// without a bound they gain 3 %. In a model, enough for each way out.
const ROUNDS: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 128 };

/// Looks at a desk that another notifier has, before a visitor goes away.
const LOOKS: u32 = 8;
/// Pauses between two looks: some 2 µs here, up to 5 where a pause is long. A visit takes a tenth of that where the one before
/// was on the same core, and some times as much where it was not, for the lines that come over: so whoever is there had better
/// stay for some visits.
const PAUSES: u32 = 100;

/// Work that can be lent.
pub trait Desk: Send + 'static {
    /// Does some of what there is to do, for a bounded time; `now` is from a moment ago, if given. Returns whether it
    /// can be laid down; if not, it goes to the sleeper.
    fn assist(&mut self, now: Option<Timestamp>) -> bool;

    /// Looks whether there is something to do.
    fn look(&mut self) -> Look;
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Something.
    pub work: bool,
    /// Something waits, for which room would be news.
    pub waits: bool,
}

/// The desk, while it is lent.
#[derive(Debug)]
pub(super) struct Lent(UnsafeCell<Option<Lending>>);

#[derive(Clone, Copy, Debug)]
struct Lending {
    desk: NonNull<dyn Desk>,
    /// The type of the desk.
    kind: TypeId,
}

// SAFETY: only the owner by the table above looks into the cell, and the transitions order one owner after the other.
// What it points to is `Send`, and borrowed mutably by the sleeper's thread as long as the cell names it.
unsafe impl Sync for Lent {}
// SAFETY: as above.
unsafe impl Send for Lent {}

// What a panic leaves behind at the desk is the engine's affair, which ends then.
impl std::panic::UnwindSafe for Lent {}
impl std::panic::RefUnwindSafe for Lent {}

impl Default for Lent {
    fn default() -> Self {
        Self(UnsafeCell::new(None))
    }
}

impl Lent {
    /// # Safety
    /// The caller is the owner.
    unsafe fn with<R>(&self, f: impl FnOnce(&mut dyn Desk) -> R) -> R {
        self.0.with_mut(|lending| {
            // SAFETY: the caller's promise: nobody else is in the cell or at the desk, which `lend` keeps borrowed.
            let desk = unsafe { (*lending).expect("it is lent").desk.as_mut() };
            f(desk)
        })
    }

    /// The same for a desk of a certain kind.
    ///
    /// # Safety
    /// The caller is the owner.
    ///
    /// # Panics
    /// If the desk is of another kind.
    unsafe fn with_kind<D: Desk, R>(&self, f: impl FnOnce(&mut D) -> R) -> R {
        self.0.with_mut(|lending| {
            // SAFETY: the caller's promise: nobody else is in the cell.
            let Lending { desk, kind } = unsafe { *lending }.expect("it is lent");
            assert!(kind == TypeId::of::<D>(), "a desk of this kind");
            // SAFETY: the caller's promise: nobody else is at the desk, which `lend` keeps borrowed. It is a `D`.
            f(unsafe { desk.cast::<D>().as_mut() })
        })
    }

    /// # Safety
    /// The caller is the owner.
    unsafe fn set(&self, to: Option<Lending>) {
        // SAFETY: the caller's promise: nobody else is in the cell.
        self.0.with_mut(|lending| unsafe { *lending = to });
    }
}

/// How an owner's attempt to lay the desk down ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// It has no owner any more.
    Free,
    /// There is something to do.
    Work,
    /// The sleeper wants it.
    Wanted,
}

/// A notifier's ownership of the desk. Dropped, it is the sleeper's.
struct Borrowed<'a>(&'a Shared);

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        // Release: what was done at the desk; partner: the `fetch_or` in `lend`.
        self.0.state.swap(AWAKE, Ordering::Release);
        point(Step::HandedOver);
        self.0.thread.unpark();
    }
}

/// Says that the calling thread works for a sleeper, as long as this lives.
pub(crate) struct Here;

impl Here {
    pub(super) fn at(shared: &Shared) -> Self {
        HELPS.with(|helps| helps.set(ptr::from_ref(shared).addr()));
        Self
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        HELPS.with(|helps| helps.set(0));
    }
}

impl Shared {
    fn lent(&self) -> &Lent {
        self.lent.as_ref().expect("a sleeper that lends")
    }

    /// The calling thread does the sleeper's work.
    pub(super) fn is_lent_here(&self) -> bool {
        HELPS.with(|helps| helps.get()) == ptr::from_ref(self).addr()
    }

    /// What a notifier does that has seen the desk without an owner, or about to be laid down.
    pub(super) fn borrow(&self, mut seen: u32, news: News) {
        loop {
            let to = if seen & LEAVING != 0 {
                seen & !LEAVING
            } else if seen & (ASLEEP | WANTED) != ASLEEP || seen & QUIET != 0 && news == News::Room {
                return;
            } else if panicking() || HELPS.with(|helps| helps.get()) != 0 {
                // A thread that unwinds, or works for another sleeper, shall not do more than it must.
                return self.thread.unpark();
            } else {
                ASSISTED | seen & QUIET
            };
            // Acquire: with `ASLEEP`, what the last owner has done at the desk; partner: the exchange in `leave`.
            // Whose bit it takes away sees its news behind the next fence.
            match self.state.compare_exchange_weak(seen, to, Ordering::Acquire, Ordering::Relaxed) {
                Ok(ASLEEP | ASLEEP_QUIET) => return self.assist(news),
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Works at the desk, which the caller has just taken.
    fn assist(&self, news: News) {
        let mut now = if let News::Work(now) = news { now } else { None };
        // SAFETY: this thread has swapped `ASLEEP` for `ASSISTED`.
        unsafe { self.work(|lent| lent.with(|desk| desk.assist(now.take()))) }
    }

    /// Does some work at the desk, then what else there is to do, and lays it down. `first` returns whether it can be laid
    /// down after that.
    ///
    /// # Safety
    /// The caller is the owner, and is none any more afterwards.
    unsafe fn work(&self, first: impl FnOnce(&Lent) -> bool) {
        let (_here, borrowed) = (Here::at(self), Borrowed(self));
        point(Step::Borrowed);
        let mut can_rest = first(self.lent());
        for _ in 0..ROUNDS {
            if !can_rest {
                break;
            }
            // SAFETY: the caller's promise, and nobody has left since.
            match unsafe { self.leave(ASSISTED) } {
                Left::Free => return std::mem::forget(borrowed),
                // SAFETY: as above.
                Left::Work => can_rest = unsafe { self.lent().with(|desk| desk.assist(None)) },
                Left::Wanted => break,
            }
        }
    }

    /// Whether nobody has the desk and nothing waits on it.
    pub(super) fn is_quiet(&self) -> bool {
        // Relaxed: an exchange says how it is.
        self.state.load(Ordering::Relaxed) == ASLEEP_QUIET
    }

    /// Waits while another notifier has a desk on which nothing waits, a short time and from afar.
    fn stand_back(&self) {
        for _ in 0..spins(LOOKS) {
            // Relaxed: an exchange says how it is.
            if self.state.load(Ordering::Relaxed) & !LEAVING != ASSISTED | QUIET {
                return;
            }
            (0..PAUSES).for_each(|_| spin_loop());
        }
    }

    /// Does `first` at the desk if nobody has it and nothing waits on it; then what has come in meanwhile.
    pub(super) fn visit<D: Desk>(&self, first: impl FnOnce(&mut D) -> bool) {
        if panicking() || HELPS.with(|helps| helps.get()) != 0 {
            return;
        }
        self.stand_back();
        if !self.is_quiet() {
            return;
        }
        point(Step::NotifySeen);
        // Acquire: what the last owner has done at the desk; partner: the exchange in `leave`.
        let taken =
            self.state.compare_exchange(ASLEEP_QUIET, ASSISTED | QUIET, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_ok() {
            // SAFETY: this thread has swapped `ASLEEP` for `ASSISTED`.
            unsafe { self.work(|lent| lent.with_kind(first)) };
        }
    }

    /// Lays the desk down, unless there is something to do.
    ///
    /// # Safety
    /// The caller is the owner, and is none any more if it is free.
    unsafe fn leave(&self, owner: u32) -> Left {
        // Relaxed: the fence orders it.
        let quiet = self.state.fetch_or(LEAVING, Ordering::Relaxed) & QUIET;
        // SeqCst: orders the announcement before the look for work; partner: the fence in `tell`.
        fence(Ordering::SeqCst);
        point(Step::Announced);
        // SAFETY: the caller's promise.
        let look = unsafe { self.lent().with(|desk| desk.look()) };
        if look.work {
            let over = if look.waits { LEAVING | QUIET } else { LEAVING };
            // Relaxed: the owner stays the same.
            self.state.fetch_and(!over, Ordering::Relaxed);
            return Left::Work;
        }
        let free = if look.waits { ASLEEP } else { ASLEEP_QUIET };
        point(Step::Rechecked);
        // Release: what was done at the desk; partner: the exchange in `borrow` and `visit`, and the `fetch_or` in `lend`.
        match self.state.compare_exchange(owner | quiet | LEAVING, free, Ordering::Release, Ordering::Relaxed)
        {
            Ok(_) => Left::Free,
            Err(now) if now & WANTED != 0 => Left::Wanted,
            Err(_) => {
                if look.waits {
                    // Relaxed: the owner stays the same.
                    self.state.fetch_and(!QUIET, Ordering::Relaxed);
                }
                Left::Work
            }
        }
    }

    pub(super) fn lend<T: Desk + 'static>(&self, desk: &mut T, limit: Option<Duration>) -> bool {
        let desk = Lending { desk: NonNull::from(desk), kind: TypeId::of::<T>() };
        // SAFETY: this is the sleeper's thread, which is awake: the desk is its own.
        unsafe { self.lent().set(Some(desk)) };
        // SAFETY: as above.
        let slept = unsafe { self.leave(AWAKE) } == Left::Free;
        if slept {
            match limit {
                None => park(),
                Some(limit) => park_timeout(limit),
            }
            point(Step::Woken);
            // Acquire: what the last owner has done at the desk; partner: the exchange in `leave`, and the swap in the
            // `drop` of who hands it over.
            while self.state.fetch_or(WANTED, Ordering::Acquire) & ASSISTED != 0 {
                park();
            }
            // Relaxed: a notifier that still reads the desk as free fails to take it.
            self.state.store(AWAKE, Ordering::Relaxed);
        }
        // SAFETY: this thread is the owner again, or has not stopped to be it.
        unsafe { self.lent().set(None) };
        slept
    }
}
