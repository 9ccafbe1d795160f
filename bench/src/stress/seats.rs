//! The callers of one ingress thread, and how it learns which of them has an answer.
//!
//! Each caller has a waker of its own, made once. The arbiter wakes it, and so puts the number of the caller on a stack,
//! which the thread takes as a whole. Nothing is allocated, and the thread is woken only when the stack was empty: what
//! the arbiter does for the callers is some atomic operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::thread::Thread;

const NOBODY: u32 = u32::MAX;

/// The callers that have news.
#[derive(Debug)]
pub(super) struct Ready {
    head: AtomicU32,
    seats: Box<[Seat]>,
    owner: Thread,
}

#[derive(Debug)]
struct Seat {
    next: AtomicU32,
    /// In the stack, so that a waker that comes late does not put it there twice.
    listed: AtomicBool,
}

struct SeatWaker {
    ready: Arc<Ready>,
    seat: u32,
}

impl Ready {
    /// So many callers of the thread `owner`, and the waker of each.
    pub(super) fn new(seats: u32, owner: Thread) -> (Arc<Self>, Vec<Waker>) {
        let seat = || Seat { next: AtomicU32::new(NOBODY), listed: AtomicBool::new(false) };
        let list = std::iter::repeat_with(seat).take(seats as usize).collect();
        let ready = Arc::new(Self { head: AtomicU32::new(NOBODY), seats: list, owner });
        let waker = |seat| Waker::from(Arc::new(SeatWaker { ready: ready.clone(), seat }));
        let wakers = (0..seats).map(waker).collect();
        (ready, wakers)
    }

    fn put(&self, number: u32) {
        let seat = &self.seats[number as usize];
        // AcqRel: whoever finds it listed has its news seen by the thread, which clears it before it looks (Release),
        // and only one lists it; partner: the swap in `take`.
        if seat.listed.swap(true, Ordering::AcqRel) {
            return;
        }
        // Relaxed: compared and stored, never followed.
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // Relaxed: the exchange publishes it.
            seat.next.store(head, Ordering::Relaxed);
            // Release: the link becomes visible to the thread; partner: the swap of `head` in `take`.
            match self.head.compare_exchange_weak(head, number, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => head = now,
            }
        }
        if head == NOBODY {
            self.owner.unpark();
        }
    }

    /// Moves the numbers of all callers that have news to `into`. Only `owner` may.
    pub(super) fn take(&self, into: &mut Vec<u32>) {
        // Relaxed: only to skip the swap.
        if self.head.load(Ordering::Relaxed) == NOBODY {
            return;
        }
        // Acquire: makes the links visible; partner: the exchange in `put`.
        let mut number = self.head.swap(NOBODY, Ordering::Acquire);
        while number != NOBODY {
            let seat = &self.seats[number as usize];
            into.push(number);
            // Read before it may be listed again.
            number = seat.next.load(Ordering::Relaxed);
            // AcqRel: what a waker found listed is visible from here on, and the link has been read before; partner:
            // the swap in `put`.
            seat.listed.swap(false, Ordering::AcqRel);
        }
    }
}

impl Wake for SeatWaker {
    fn wake(self: Arc<Self>) {
        self.ready.put(self.seat);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.put(self.seat);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_caller_that_was_woken_comes_out_once() {
        let (ready, wakers) = Ready::new(3, std::thread::current());
        let taken = || {
            let mut taken = Vec::new();
            ready.take(&mut taken);
            taken
        };
        assert!(taken().is_empty());
        wakers[2].wake_by_ref();
        wakers[0].wake_by_ref();
        wakers[2].wake_by_ref();
        assert_eq!(taken(), [0, 2]);
        assert!(taken().is_empty());
        wakers[2].wake_by_ref();
        assert_eq!(taken(), [2]);
    }

    #[test]
    fn no_news_is_lost_between_threads() {
        const SEATS: u32 = 8;
        let (ready, wakers) = Ready::new(SEATS, std::thread::current());
        let rounds = 2_000;
        let told = AtomicU32::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds {
                    wakers.iter().for_each(Waker::wake_by_ref);
                    while told.load(Ordering::Acquire) != (round + 1) * SEATS {
                        std::thread::yield_now();
                    }
                }
            });
            let mut taken = Vec::new();
            for _ in 0..rounds {
                while taken.len() < SEATS as usize {
                    ready.take(&mut taken);
                    if taken.len() < SEATS as usize {
                        std::thread::park_timeout(std::time::Duration::from_secs(10));
                    }
                }
                taken.sort_unstable();
                assert!(taken.drain(..).eq(0..SEATS));
                told.fetch_add(SEATS, Ordering::Release);
            }
        });
    }
}
