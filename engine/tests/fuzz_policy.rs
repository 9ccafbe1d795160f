//! Random and hostile policy files: no panic, and memory in proportion to the text.
//!
//! ```text
//! TOLLGATE_FUZZ_SECONDS=600 cargo test --release -p tollgate --test fuzz_policy -- --nocapture
//! ```
#![cfg(feature = "yaml")]

#[path = "../fuzz/bodies/driver.rs"]
mod driver;
#[path = "../fuzz/bodies/policy.rs"]
mod policy;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are allocated, and the most there were since somebody looked.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most that a file of at most 64 KiB may take while it is read \[bytes\].
const BOUND: usize = 64 << 20;

const WORDS: [&str; 44] = [
    "default_policy_family",
    "uncached_isl_buckets",
    "policy_classes",
    "models",
    "name",
    "quantum",
    "min_tokens",
    "bucket",
    "policy_family",
    "cache_bucket",
    "busy_worker_ratio",
    "prefill_busy_threshold",
    "queue_policy",
    "router",
    "<<",
    ": ",
    ":\n",
    "\n",
    "\n  ",
    "\n  - ",
    "{",
    "}",
    "[",
    "]",
    ", ",
    "? ",
    "~",
    "0",
    "-1",
    "1e309",
    ".nan",
    "18446744073709551616",
    "\"",
    "'",
    "|",
    ">",
    "&a ",
    "*a",
    "!!int ",
    "!!binary ",
    "---\n",
    "%YAML 1.2\n",
    "\u{feff}",
    "\u{2028}",
];

#[test]
fn any_bytes_are_a_policy_or_a_fault_and_take_little_memory() {
    driver::pass("policy", &WORDS, 1_000, |data| {
        let before = LIVE.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        policy::run(data);
        let most = MOST.load(Ordering::Relaxed).saturating_sub(before);
        assert!(most < BOUND, "{most} bytes for a file of {}", data.len());
    });
}
