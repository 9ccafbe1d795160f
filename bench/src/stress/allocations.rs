//! An allocator that counts, while it is told to, so that allocations per request are measured and not claimed.
//!
//! Threads that say so are counted apart, each in its own thread-local; what any other thread allocates, in a run that
//! is the arbiter alone, goes into one shared counter. Counting is off by default: it would have threads that allocate
//! at the same time share a cache line.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static COUNTING: AtomicBool = AtomicBool::new(false);
static ELSEWHERE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Allocations of this thread, if it is counted apart.
    static HERE: Cell<Option<u64>> = const { Cell::new(None) };
}

/// An allocator around another one. The binary makes it the global one.
#[derive(Debug)]
pub struct Counting<A>(pub A);

fn count() {
    // Relaxed: a switch, and a count, which publish nothing.
    if COUNTING.load(Ordering::Relaxed) {
        match HERE.get() {
            Some(allocations) => HERE.set(Some(allocations + 1)),
            None => _ = ELSEWHERE.fetch_add(1, Ordering::Relaxed),
        }
    }
}

// SAFETY: every call goes to the inner allocator unchanged; counting touches a thread-local without destructor, and
// allocates nothing.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counting<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.0.dealloc(pointer, layout) }
    }
}

/// Starts to count, for as long as the process lives. Returns whether the global allocator does count: in another
/// program than this crate's own it may be any.
pub(super) fn start() -> bool {
    COUNTING.store(true, Ordering::Relaxed);
    let apart = HERE.replace(Some(0));
    // The compiler may leave out an allocation that nobody looks at.
    drop(std::hint::black_box(Box::new(0_u64)));
    let counted = HERE.get() != Some(0);
    HERE.set(apart);
    counted
}

/// Counts the calling thread apart from now on.
pub(super) fn apart() {
    HERE.set(Some(0));
}

/// Allocations of the calling thread since it is counted apart.
pub(super) fn here() -> u64 {
    HERE.get().unwrap_or(0)
}

/// Allocations of all threads that are not counted apart.
pub(super) fn elsewhere() -> u64 {
    // Relaxed: a count, which publishes nothing.
    ELSEWHERE.load(Ordering::Relaxed)
}
