//! What is booked on one endpoint: the arbiter books, whoever holds a permit gives back. Each has counters of its own, which
//! only rise, so that the arbiter, who is alone with his, needs no read-modify-write.
//!
//! A release gives back first and marks the endpoint afterwards; the arbiter sweeps the marks first and reads the
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
    /// Ever booked, modulo 2⁶⁴; written by the arbiter.
    booked_tokens: AtomicU64,
    /// Ever given back.
    returned_tokens: AtomicU64,
    /// Ever booked, modulo 2³²; written by the arbiter.
    booked_permits: AtomicU32,
    /// Ever given back.
    returned_permits: AtomicU32,
    retired: AtomicBool,
    page: Arc<DirtyBitmap>,
    bit: usize,
    releases: Arc<Releases>,
}

impl EndpointLoad {
    /// An endpoint without load, whose releases mark `bit` of `page`.
    pub fn new(page: Arc<DirtyBitmap>, bit: usize, releases: Arc<Releases>) -> Self {
        Self {
            booked_tokens: AtomicU64::new(0),
            returned_tokens: AtomicU64::new(0),
            booked_permits: AtomicU32::new(0),
            returned_permits: AtomicU32::new(0),
            retired: AtomicBool::new(false),
            page,
            bit,
            releases,
        }
    }

    /// Adds a permit with `tokens` prefill tokens. Arbiter only.
    pub fn book(&self, tokens: u64) {
        // Relaxed: only the arbiter writes these; the permit itself travels through its ticket.
        let all = self.booked_tokens.load(Ordering::Relaxed).wrapping_add(tokens);
        self.booked_tokens.store(all, Ordering::Relaxed);
        // Relaxed: as above.
        let all = self.booked_permits.load(Ordering::Relaxed).wrapping_add(1);
        self.booked_permits.store(all, Ordering::Relaxed);
    }

    /// Gives `tokens` prefill tokens and `permits` permits back, and tells the arbiter.
    pub fn release(&self, tokens: u64, permits: u32) {
        if tokens > 0 {
            // Release: who sees these tokens given back sees them booked; partner: the load in `booked`.
            self.returned_tokens.fetch_add(tokens, Ordering::Release);
        }
        point(Step::ReleasedTokens);
        if permits > 0 {
            // Release: who sees these permits given back sees them booked; partner: the load in `booked`.
            self.returned_permits.fetch_add(permits, Ordering::Release);
        }
        point(Step::Released);
        // Relaxed: a release that races with the retirement may count either way.
        if self.retired.load(Ordering::Relaxed) {
            self.releases.stale.fetch_add(u64::from(permits), Ordering::Relaxed);
            return;
        }
        self.page.mark(self.bit);
        self.releases.notifier.notify_of_room();
    }

    /// Booked prefill tokens and permits. Whoever must not miss a release has swept its mark before.
    pub fn booked(&self) -> (u64, u32) {
        // Acquire: with what was given back, that it was booked; partner: the first `fetch_add` in `release`.
        let returned = self.returned_tokens.load(Ordering::Acquire);
        // Relaxed: the acquire orders it.
        let tokens = self.booked_tokens.load(Ordering::Relaxed).wrapping_sub(returned);
        // Acquire: with what was given back, that it was booked; partner: the second `fetch_add` in `release`.
        let returned = self.returned_permits.load(Ordering::Acquire);
        // Relaxed: the acquire orders it.
        let permits = self.booked_permits.load(Ordering::Relaxed).wrapping_sub(returned);
        (tokens, permits)
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
