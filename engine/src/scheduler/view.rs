//! Which endpoints are busy for all classes that share a threshold, kept up to date change by change.

use fixedbitset::FixedBitSet;

use super::heap::{HeapKey, IndexedHeap};
use super::slab::NIL;

impl HeapKey for u128 {
    fn item(self) -> u32 {
        self as u32
    }

    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        self < other
    }
}

/// Load above which an endpoint is busy: one rule, shared by all classes that state it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Thresholds {
    /// Active prefill tokens.
    pub(super) tokens: Option<u64>,
    /// Share of the endpoint's `max_num_batched_tokens`.
    pub(super) frac: Option<f64>,
}

impl Thresholds {
    /// The load \[tokens\] above which an endpoint with this batch size is busy.
    pub(super) fn of_endpoint(self, max_num_batched_tokens: u64) -> u64 {
        // A whole number is above a real one exactly when it is above its floor. `as` saturates.
        let frac = self.frac.map_or(u64::MAX, |f| (f * max_num_batched_tokens as f64).floor() as u64);
        self.tokens.unwrap_or(u64::MAX).min(frac)
    }
}

/// The endpoints through the eyes of one threshold rule.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) rule: Thresholds,
    /// Load \[tokens\] above which each endpoint is busy.
    threshold: Vec<u64>,
    /// Endpoints that are neither overloaded nor busy.
    free: FixedBitSet,
    free_count: u32,
    /// The free ones by load, then by number: `load << 32 | endpoint`.
    by_load: IndexedHeap<u128>,
    position: Vec<u32>,
}

impl View {
    pub(super) fn new(rule: Thresholds) -> Self {
        Self {
            rule,
            threshold: Vec::new(),
            free: FixedBitSet::new(),
            free_count: 0,
            by_load: IndexedHeap::default(),
            position: Vec::new(),
        }
    }

    /// Starts over with endpoints of these batch sizes \[tokens\], none of them free.
    pub(super) fn reset(&mut self, batch_sizes: impl Iterator<Item = u64>) {
        self.threshold.clear();
        self.threshold.extend(batch_sizes.map(|b| self.rule.of_endpoint(b)));
        let n = self.threshold.len();
        self.free = FixedBitSet::with_capacity(n);
        self.free_count = 0;
        self.by_load.clear();
        self.position.clear();
        self.position.resize(n, NIL);
    }

    /// Notes the load of an endpoint; `closed` endpoints (overloaded, or all permits taken) are never free.
    /// Returns whether the endpoint went from free to not free or back.
    pub(super) fn set(&mut self, endpoint: u32, active: u64, closed: bool) -> bool {
        let at = self.position[endpoint as usize];
        let free = !closed && active <= self.threshold[endpoint as usize];
        let key = u128::from(active) << 32 | u128::from(endpoint);
        match (at != NIL, free) {
            (false, false) => return false,
            (true, true) => {
                self.by_load.update(at, key, &mut self.position[..]);
                return false;
            }
            (false, true) => {
                self.by_load.push(key, &mut self.position[..]);
                self.free_count += 1;
            }
            (true, false) => {
                self.by_load.remove(at, &mut self.position[..]);
                self.position[endpoint as usize] = NIL;
                self.free_count -= 1;
            }
        }
        self.free.set(endpoint as usize, free);
        true
    }

    /// Whether a load is above the threshold of an endpoint.
    pub(super) fn is_over(&self, endpoint: u32, active: u64) -> bool {
        active > self.threshold[endpoint as usize]
    }

    /// Endpoints that are neither overloaded nor busy.
    pub(super) fn free(&self) -> &FixedBitSet {
        &self.free
    }

    pub(super) fn free_count(&self) -> u32 {
        self.free_count
    }

    /// The free endpoint with the least load, the first of them.
    pub(super) fn least_loaded(&self) -> Option<u32> {
        self.by_load.peek().map(HeapKey::item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_strictly_above_the_lower_of_both_thresholds() {
        let rule = |tokens, frac| Thresholds { tokens, frac };
        assert_eq!(rule(None, None).of_endpoint(1000), u64::MAX);
        assert_eq!(rule(Some(700), Some(0.5)).of_endpoint(1000), 500);
        assert_eq!(rule(Some(300), Some(0.5)).of_endpoint(1000), 300);
        assert_eq!(rule(None, Some(0.9999)).of_endpoint(1000), 999);
        assert_eq!(rule(None, Some(1e300)).of_endpoint(1000), u64::MAX);

        let mut view = View::new(rule(Some(10), None));
        view.reset([0, 0].into_iter());
        assert!(view.set(0, 10, false));
        assert!(view.set(0, 11, false));
        assert!(!view.set(0, 12, false));
        assert!(!view.set(1, 0, true));
        assert_eq!((view.free_count(), view.least_loaded()), (0, None));
    }

    #[test]
    fn the_least_loaded_of_equals_is_the_first() {
        let mut view = View::new(Thresholds { tokens: None, frac: None });
        view.reset([0; 3].into_iter());
        for endpoint in [2, 1, 0] {
            view.set(endpoint, 5, false);
        }
        assert_eq!(view.least_loaded(), Some(0));
        view.set(0, 6, false);
        assert_eq!(view.least_loaded(), Some(1));
        view.set(1, 5, true);
        assert_eq!(view.least_loaded(), Some(2));
        assert_eq!(view.free().ones().collect::<Vec<_>>(), [0, 2]);
    }
}
