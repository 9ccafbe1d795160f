//! A class: its lanes' heads in order, what waits in it, and how much may.

use std::time::Duration;

use super::exact::Exact;
use super::key::Order;
use super::kind::Kind;
use super::lane::{Lane, LaneId};
use super::pool::{GateId, ViewId};
use super::slab::{NIL, Slab};
use crate::error::{LimitKind, LimitReached};
use crate::policy::{BusyRule, ClassSpec, LimitsPerWorker};
use crate::request::{Snapshot, Usual};
use crate::sync::DataArc;
use crate::time::Timestamp;

/// What waits in a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests.
    pub requests: u64,
    /// Their raw ISL tokens; more than `u64::MAX` reads as that.
    pub raw_isl_tokens: u64,
    /// Their cached tokens; more than `u64::MAX` reads as that.
    pub cached_tokens: u64,
}

/// A sum of 128 bits \[tokens\], of which usual requests touch the lower half only.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Sum {
    low: u64,
    high: u64,
}

impl Sum {
    const ZERO: Self = Self { low: 0, high: 0 };

    #[inline(always)]
    fn add(&mut self, tokens: u64) {
        let (low, carry) = self.low.overflowing_add(tokens);
        self.low = low;
        if carry {
            self.carry(1);
        }
    }

    /// The same tokens were added before.
    #[inline(always)]
    fn subtract(&mut self, tokens: u64) {
        let (low, borrow) = self.low.overflowing_sub(tokens);
        self.low = low;
        if borrow {
            self.carry(u64::MAX);
        }
    }

    #[cold]
    fn carry(&mut self, by: u64) {
        self.high = self.high.wrapping_add(by);
    }

    fn saturated(self) -> u64 {
        if self.high == 0 { self.low } else { u64::MAX }
    }
}

/// What usual requests do not touch.
#[derive(Clone, Debug)]
pub(super) struct About {
    pub(super) name: DataArc<str>,
    pub(super) busy: BusyRule,
    limits: LimitsPerWorker,
}

impl About {
    fn new(name: DataArc<str>, spec: &ClassSpec) -> Box<Self> {
        Box::new(Self { name, busy: spec.busy, limits: spec.limits })
    }
}

/// Whether a class has no limit at all, neither of what waits nor of how long.
fn is_plain(spec: &ClassSpec) -> bool {
    spec.limits == LimitsPerWorker::default() && spec.max_queue_time.is_none()
}

/// One class: two cache lines. Most requests touch the first one and the beginning of the second.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Class {
    raw: Sum,
    cached: Sum,
    requests: u64,
    pub(super) order: Order,
    /// Whether there is no limit at all, neither of what waits nor of how long.
    plain: bool,
    /// Whether the scheduler's list of constrained heads has this class.
    pub(super) listed: bool,
    /// Whether requests still come to this class; if not, it drains.
    pub(super) active: bool,
    pub(super) max_queue_time: Option<Duration>,
    /// Its exact lanes, if it ever had one.
    pub(super) exact: Option<Box<Exact>>,
    /// Requests that did not come in order, in that of their enqueueing.
    pub(super) ages: Ages,
    pub(super) view: ViewId,
    pub(super) gate: GateId,
    pub(super) about: Box<About>,
}

impl Class {
    /// An empty class; its view and gate are still to be set.
    pub(super) fn new(spec: &ClassSpec) -> Self {
        let about = About::new(spec.name.as_str().into(), spec);
        Self {
            plain: is_plain(spec),
            about,
            order: Order::of(spec),
            view: ViewId(u32::MAX),
            gate: GateId(u32::MAX),
            exact: None,
            listed: false,
            max_queue_time: spec.max_queue_time,
            active: true,
            ages: Ages::EMPTY,
            requests: 0,
            raw: Sum::ZERO,
            cached: Sum::ZERO,
        }
    }

    /// Takes over new settings; what waits stays.
    pub(super) fn reconfigure(&mut self, spec: &ClassSpec) {
        self.order = Order::of(spec);
        self.about = About::new(self.about.name.clone(), spec);
        self.plain = is_plain(spec);
        self.max_queue_time = spec.max_queue_time;
        self.active = true;
    }

    pub(super) fn usage(&self) -> Usage {
        Usage {
            requests: self.requests,
            raw_isl_tokens: self.raw.saturated(),
            cached_tokens: self.cached.saturated(),
        }
    }

    /// The exact lane with the best head of those that may go.
    #[inline]
    pub(super) fn best_open(&self) -> Option<LaneId> {
        self.exact.as_ref()?.best_open()
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.requests > 0
    }

    /// Counts a request as waiting.
    #[inline(always)]
    pub(super) fn add(&mut self, usual: &Usual) {
        self.requests += 1;
        self.raw.add(usual.raw);
        self.cached.add(usual.cached);
    }

    /// Counts it as waiting no more.
    #[inline(always)]
    pub(super) fn subtract(&mut self, usual: &Usual) {
        self.requests -= 1;
        self.raw.subtract(usual.raw);
        self.cached.subtract(usual.cached);
    }

    /// Puts the request in `slot` into its lane, one of this class, where it [has come](Slab::insert) behind the last one;
    /// returns whether it is the head there now.
    #[inline(always)]
    pub(super) fn put_in_lane<T>(
        &mut self,
        slot: u32,
        policy: u64,
        kind: Kind,
        lane: &mut Lane,
        slab: &mut Slab<T>,
    ) -> bool {
        let (is_head, in_run) = lane.push(slot, policy, kind, self.order.repeats(), slab);
        if !in_run {
            self.ages.push(slot, slab);
        }
        is_head
    }

    /// When a request that comes to this class expires.
    #[inline(always)]
    pub(super) fn expiry(&self, snapshot: &Snapshot) -> Option<Timestamp> {
        let deadline = snapshot.deadline();
        let Some(most) = self.max_queue_time else { return deadline };
        let latest = snapshot.arrival().saturating_add(most);
        Some(deadline.map_or(latest, |deadline| deadline.min(latest)))
    }

    /// Counts nothing as waiting any more.
    pub(super) fn forget_all(&mut self) {
        (self.requests, self.raw, self.cached, self.ages) = (0, Sum::ZERO, Sum::ZERO, Ages::EMPTY);
    }

    /// Whether there is no limit at all, neither of what waits nor of how long.
    pub(super) fn is_plain(&self) -> bool {
        self.plain
    }

    /// The first limit that what waits now has reached. The request that crosses a limit was still accepted.
    pub(super) fn limit_reached(&self, workers: usize) -> Option<LimitReached> {
        let About { name, limits, .. } = &*self.about;
        let usage = self.usage();
        let checks = [
            (LimitKind::Requests, usage.requests, limits.requests),
            (LimitKind::RawIslTokens, usage.raw_isl_tokens, limits.raw_isl_tokens),
            (LimitKind::CachedTokens, usage.cached_tokens, limits.cached_tokens),
        ];
        checks.into_iter().find_map(|(kind, current, per_worker)| {
            let limit = per_worker?.saturating_mul(workers as u64);
            (current >= limit).then(|| LimitReached { class: name.clone(), kind, current, limit })
        })
    }
}

/// The ends of the list of a class's requests that are in no run, in the order of their enqueueing; the links are in the slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ages {
    oldest: u32,
    newest: u32,
}

impl Ages {
    pub(super) const EMPTY: Self = Self { oldest: NIL, newest: NIL };

    /// The slot of the request that was enqueued first.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NIL).then_some(self.oldest)
    }

    pub(super) fn push<T>(&mut self, slot: u32, slab: &mut Slab<T>) {
        let aside = slab.aside_mut(slot);
        (aside.older, aside.newer) = (self.newest, NIL);
        match self.newest {
            NIL => self.oldest = slot,
            newest => slab.aside_mut(newest).newer = slot,
        }
        self.newest = slot;
    }

    pub(super) fn remove<T>(&mut self, slot: u32, slab: &mut Slab<T>) {
        let super::slab::Aside { older, newer, .. } = *slab.aside(slot);
        match older {
            NIL => self.oldest = newer,
            older => slab.aside_mut(older).newer = newer,
        }
        match newer {
            NIL => self.newest = older,
            newer => slab.aside_mut(newer).older = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_beyond_64_bits_comes_back() {
        let mut sum = Sum::ZERO;
        let parts = [u64::MAX, 1, u64::MAX, 7, 0];
        for part in parts {
            sum.add(part);
            assert_eq!(sum.saturated(), u64::MAX);
        }
        for (part, left) in parts.into_iter().zip([u64::MAX, u64::MAX, 7, 0, 0]) {
            sum.subtract(part);
            assert_eq!(sum.saturated(), left, "without {part}");
        }
    }

    #[test]
    fn a_class_is_two_cache_lines() {
        assert_eq!(size_of::<Class>(), 128);
    }
}
