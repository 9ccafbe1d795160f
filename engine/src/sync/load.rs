//! What is booked on one endpoint: the arbiter adds, whoever holds a permit subtracts.
//!
//! A release subtracts first and marks the endpoint afterwards; the arbiter sweeps the marks first and reads the
//! counters afterwards. So after the last release it has seen everything, however many there were in between.

use super::dirty::DirtyBitmap;
use super::sleep::Notifier;
use super::{Arc, AtomicBool, AtomicU32, AtomicU64, Ordering, Step, point};

/// Where the releases of many endpoints meet the arbiter.
#[derive(Debug)]
pub struct Releases {
    notifier: Notifier,
    stale: AtomicU64,
}

impl Releases {
    /// Releases that wake the arbiter through `notifier`.
    pub fn new(notifier: Notifier) -> Self {
        Self { notifier, stale: AtomicU64::new(0) }
    }

    /// Releases that came after their worker's incarnation had changed.
    pub fn stale(&self) -> u64 {
        // Relaxed: a count, which publishes nothing.
        self.stale.load(Ordering::Relaxed)
    }
}

/// Booked prefill tokens and permits of one life of an endpoint.
#[derive(Debug)]
pub struct EndpointLoad {
    tokens: AtomicU64,
    permits: AtomicU32,
    retired: AtomicBool,
    page: Arc<DirtyBitmap>,
    bit: usize,
    releases: Arc<Releases>,
}

impl EndpointLoad {
    /// An endpoint without load, whose releases mark `bit` of `page`.
    pub fn new(page: Arc<DirtyBitmap>, bit: usize, releases: Arc<Releases>) -> Self {
        Self {
            tokens: AtomicU64::new(0),
            permits: AtomicU32::new(0),
            retired: AtomicBool::new(false),
            page,
            bit,
            releases,
        }
    }

    /// Adds a permit with `tokens` prefill tokens. Arbiter only.
    pub fn book(&self, tokens: u64) {
        // Relaxed: counters; the permit itself travels through its ticket.
        self.tokens.fetch_add(tokens, Ordering::Relaxed);
        self.permits.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes away `tokens` prefill tokens and `permits` permits, and tells the arbiter.
    pub fn release(&self, tokens: u64, permits: u32) {
        // Relaxed: counters; `mark` publishes them.
        self.tokens.fetch_sub(tokens, Ordering::Relaxed);
        point(Step::ReleasedTokens);
        self.permits.fetch_sub(permits, Ordering::Relaxed);
        point(Step::Released);
        // Relaxed: a release that races with the retirement may count either way.
        if self.retired.load(Ordering::Relaxed) {
            self.releases.stale.fetch_add(u64::from(permits), Ordering::Relaxed);
            return;
        }
        self.page.mark(self.bit);
        self.releases.notifier.notify_of_room();
    }

    /// Booked prefill tokens and permits.
    pub fn booked(&self) -> (u64, u32) {
        // Relaxed: whoever must not miss a release has swept its mark before.
        (self.tokens.load(Ordering::Relaxed), self.permits.load(Ordering::Relaxed))
    }

    /// This life of the endpoint is over: later releases are only counted.
    pub fn retire(&self) {
        // Relaxed: a release that races with this may count either way.
        self.retired.store(true, Ordering::Relaxed);
    }

    /// The bit that releases mark.
    pub fn bit(&self) -> usize {
        self.bit
    }
}
