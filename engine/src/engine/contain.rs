//! Other people's code on the arbiter's thread: wakers, selectors, observers, and whatever they panic with.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`; `None` if it panicked. What it panicked with is not dropped: that could panic again.
pub(crate) fn contained<R>(f: impl FnOnce() -> R) -> Option<R> {
    // What `f` leaves half done is its author's, or is not used again.
    catch_unwind(AssertUnwindSafe(f)).map_err(std::mem::forget).ok()
}
