//! What is booked on one endpoint: the arbiter books, whoever holds a permit gives back. Each has counters of its own, which
//! only rise, so that the arbiter, who is alone with his, needs no read-modify-write.
//!
//! A release gives back first and marks the endpoint afterwards; the arbiter sweeps the marks first and reads the
//! counters afterwards. So after the last release it has seen everything, however many there were in between.

use super::dirty::DirtyBitmap;
use super::sleep::Notifier;
use super::{Arc, AtomicBool, AtomicU64, Ordering, Step, point, spin_loop};

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

/// Something of which some is booked and given back. Both only rise, modulo 2⁶⁴.
#[derive(Debug)]
struct Account {
    booked: AtomicU64,
    returned: AtomicU64,
}

impl Account {
    fn new() -> Self {
        Self { booked: AtomicU64::new(0), returned: AtomicU64::new(0) }
    }

    /// Arbiter only.
    fn book(&self, amount: u64) {
        // Relaxed: only the arbiter writes it.
        let booked = self.booked.load(Ordering::Relaxed).wrapping_add(amount);
        // Release: who sees this booked sees given back what the arbiter has seen before; partner: the second load in
        // `seen`. The permit itself travels through its ticket.
        self.booked.store(booked, Ordering::Release);
    }

    fn give_back(&self, amount: u64) {
        // Release: who sees this given back sees it booked; partner: the first load in `seen`. `mark` tells the arbiter.
        self.returned.fetch_add(amount, Ordering::Release);
    }

    /// What is booked and not given back, for the arbiter.
    fn now(&self) -> u64 {
        // Relaxed: whoever must not miss a release has swept its mark before.
        self.booked.load(Ordering::Relaxed).wrapping_sub(self.returned.load(Ordering::Relaxed))
    }

    /// The same for anybody, of one moment: again until nothing was given back meanwhile.
    fn seen(&self) -> u64 {
        loop {
            // Acquire: what is given back was booked; partner: the `fetch_add` in `give_back`.
            let returned = self.returned.load(Ordering::Acquire);
            // Acquire: what was given back before this was booked; partner: the store in `book`.
            let booked = self.booked.load(Ordering::Acquire);
            // Relaxed: the acquire before orders it.
            if self.returned.load(Ordering::Relaxed) == returned {
                return booked.wrapping_sub(returned);
            }
            spin_loop();
        }
    }
}

/// Booked prefill tokens and permits of one life of an endpoint.
#[derive(Debug)]
pub struct EndpointLoad {
    tokens: Account,
    permits: Account,
    retired: AtomicBool,
    page: Arc<DirtyBitmap>,
    bit: usize,
    releases: Arc<Releases>,
}

impl EndpointLoad {
    /// An endpoint without load, whose releases mark `bit` of `page`.
    pub fn new(page: Arc<DirtyBitmap>, bit: usize, releases: Arc<Releases>) -> Self {
        Self {
            tokens: Account::new(),
            permits: Account::new(),
            retired: AtomicBool::new(false),
            page,
            bit,
            releases,
        }
    }

    /// Adds a permit with `tokens` prefill tokens. Arbiter only.
    pub fn book(&self, tokens: u64) {
        self.tokens.book(tokens);
        self.permits.book(1);
    }

    /// Gives `tokens` prefill tokens and `permits` permits back, and tells the arbiter.
    pub fn release(&self, tokens: u64, permits: u32) {
        if tokens > 0 {
            self.tokens.give_back(tokens);
        }
        point(Step::ReleasedTokens);
        if permits > 0 {
            self.permits.give_back(permits.into());
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

    /// Booked prefill tokens and permits, for the arbiter: without a release whose mark it has not swept yet, perhaps.
    pub fn booked(&self) -> (u64, u32) {
        (self.tokens.now(), self.permits.now() as u32)
    }

    /// Booked prefill tokens and permits, for anybody: each as it was at some moment of the call.
    pub fn seen(&self) -> (u64, u32) {
        (self.tokens.seen(), self.permits.seen() as u32)
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
