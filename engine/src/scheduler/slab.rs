//! Where waiting requests live: one stable slot each, what ordering touches apart from what it does not.

use super::Picked;
use super::heap::Positions;
use super::key::OrderKey;
use super::kind::Kind;
use super::{masks, ring};
use crate::policy::ClassId;
use crate::request::{Pin, Rare, Snapshot, Usual};
use crate::sync::{prefetch, prefetch_of};
use crate::time::Timestamp;

/// No slot, no position, no lane.
pub(super) const NIL: u32 = u32::MAX;

/// A waiting request but for its payload and what is rare: one cache line, and all that most decisions touch of it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Hot {
    pub(super) usual: Usual,
    /// Its place in the order of its class, smaller first.
    pub(super) policy: u64,
    /// Enqueue sequence.
    pub(super) sequence: u64,
    /// The slot before in the run or behind the leader; unused by a leader and by the first of the run.
    pub(super) before: u32,
    /// The slot behind in the run or behind the leader. On the free list: the next free slot.
    pub(super) next: u32,
    /// Lane that the request waits in, or waited in last.
    pub(super) lane: u32,
    pub(super) kind: Kind,
    /// Counts those who have left the slot, so that a key to one of them is recognised.
    generation: u32,
}

/// A request that comes to a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comer {
    pub(super) usual: Usual,
    pub(super) policy: u64,
    /// The last of the lane.
    pub(super) before: u32,
    pub(super) lane: u32,
    pub(super) kind: Kind,
}

impl Comer {
    /// One whose lane is still to be found.
    #[inline(always)]
    pub(super) fn new(usual: Usual, policy: u64, kind: Kind) -> Self {
        Self { usual, policy, before: NIL, lane: NIL, kind }
    }
}

/// What arrival and departure touch, and nothing in between.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aside {
    /// Position in the heap of expiries, if the request is there.
    pub(super) expiry_at: u32,
    /// Of requests that did not come in order: the slots of those of the class that were enqueued before and after this one.
    pub(super) older: u32,
    pub(super) newer: u32,
}

/// What matters of the head of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) slot: u32,
    /// Cost \[tokens\].
    pub(super) cost: u64,
    pub(super) next: u32,
    pub(super) kind: Kind,
}

impl Head {
    /// Nothing waits.
    pub(super) const NONE: Self = Self { slot: NIL, cost: ring::NONE, next: NIL, kind: Kind::USUAL };

    #[inline(always)]
    pub(super) fn of(slot: u32, hot: &Hot) -> Self {
        Self { slot, cost: hot.usual.cost(), next: hot.next, kind: hot.kind }
    }

    /// The head, if it has no constraints.
    #[inline(always)]
    pub(super) fn as_usual(self) -> Option<Self> {
        (self.kind.mask() == masks::NO_MASK).then_some(self)
    }
}

impl Hot {
    /// What nobody has had yet.
    const VACANT: Self = Self {
        usual: Usual { raw: 0, cached: 0, arrival: Timestamp::ZERO },
        policy: 0,
        sequence: 0,
        before: NIL,
        next: NIL,
        lane: NIL,
        kind: Kind::USUAL,
        generation: 0,
    };
}

impl Aside {
    /// What is not used is not reset.
    const NOTHING: Self = Self { expiry_at: NIL, older: NIL, newer: NIL };
}

/// Names a waiting request; it never names another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// Room for a payload; a small one lies in one cache line.
#[derive(Clone, Debug)]
#[repr(align(16))]
struct Seat<T>(Option<T>);

/// The slots.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    hot: Vec<Hot>,
    payloads: Vec<Seat<T>>,
    /// Position of each leader in the heap of its lane: dense, because a heap that is sifted writes many.
    positions: Vec<u32>,
    aside: Vec<Aside>,
    /// Only of requests that have something rare.
    rare: Vec<Rare>,
    free: u32,
    /// Requests that were put in so far, and those that were taken out again.
    inserted: u64,
    removed: u64,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self {
            hot: Vec::new(),
            payloads: Vec::new(),
            positions: Vec::new(),
            aside: Vec::new(),
            rare: Vec::new(),
            free: NIL,
            inserted: 0,
            removed: 0,
        }
    }

    /// Puts a request into a free slot and returns its name. What is rare about it is still to be
    /// [set](Self::set_rare).
    ///
    /// # Panics
    /// With 2³² − 1 requests waiting.
    #[inline(always)]
    pub(super) fn insert(&mut self, comer: Comer, payload: T) -> RequestKey {
        if self.free == NIL {
            self.add_slot();
        }
        let Comer { usual, policy, before, lane, kind } = comer;
        let (slot, sequence) = (self.free, self.inserted);
        // Whoever a panic has left there stays whole.
        let Seat(seat) = &mut self.payloads[slot as usize];
        assert!(seat.is_none(), "slot {slot} is not free");
        *seat = Some(payload);
        let hot = &mut self.hot[slot as usize];
        let generation = hot.generation;
        self.free = hot.next;
        *hot = Hot { usual, policy, sequence, before, next: NIL, lane, kind, generation };
        self.inserted += 1;
        RequestKey { slot, generation }
    }

    /// What is rare about the request that was put into a slot.
    pub(super) fn set_rare(&mut self, slot: u32, rare: Rare) {
        self.rare[slot as usize] = rare;
    }

    /// Makes a slot and lists it as free, for there is no other.
    #[inline(never)]
    fn add_slot(&mut self) {
        let slot = self.hot.len() as u32;
        assert!(slot < NIL, "more requests wait than a slot number can name");
        self.hot.push(Hot::VACANT);
        self.payloads.push(Seat(None));
        self.positions.push(NIL);
        self.aside.push(Aside::NOTHING);
        self.rare.push(Rare::NONE);
        self.free = slot;
    }

    /// Gives a slot back, but for the request that is still in it.
    #[inline(always)]
    pub(super) fn vacate(&mut self, slot: u32) {
        let hot = &mut self.hot[slot as usize];
        (hot.generation, hot.next) = (hot.generation.wrapping_add(1), self.free);
        self.free = slot;
        self.removed += 1;
    }

    /// Takes the request, which is one of `class` and pinned as `pin` says, out of a slot that was given back.
    // What is known here is written straight to where the caller wants it, and only then: that nobody is pinned, that
    // nothing is rare. As values, in one piece, they would go by way of the stack.
    #[inline(always)]
    pub(super) fn take(
        &mut self,
        slot: u32,
        class: ClassId,
        pin: impl FnOnce() -> Option<Pin>,
    ) -> Option<Picked<T>> {
        if self.hot[slot as usize].kind.is_rare() {
            return self.take_rare(slot, class, pin());
        }
        let payload = self.payloads[slot as usize].0.take()?;
        let Usual { raw, cached, arrival } = self.hot[slot as usize].usual;
        let usual = Usual { raw, cached, arrival };
        Some(Picked { class, snapshot: Snapshot { usual, pin: pin(), rare: Rare::none() }, payload })
    }

    #[inline(never)]
    fn take_rare(&mut self, slot: u32, class: ClassId, pin: Option<Pin>) -> Option<Picked<T>> {
        let payload = self.payloads[slot as usize].0.take()?;
        let usual = self.hot[slot as usize].usual;
        let rare = std::mem::replace(&mut self.rare[slot as usize], Rare::NONE);
        Some(Picked { class, snapshot: Snapshot { usual, pin, rare }, payload })
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> u64 {
        self.inserted - self.removed
    }

    /// Whether `key` names a request that is still here. One of another slab may name somebody, or a slot that is vacant.
    pub(super) fn contains(&self, key: RequestKey) -> bool {
        let slot = key.slot as usize;
        self.hot.get(slot).is_some_and(|h| h.generation == key.generation) && self.payloads[slot].0.is_some()
    }

    /// Asks for a slot to be brought near, if there is one of this number.
    #[inline(always)]
    pub(super) fn prefetch(&self, slot: u32) {
        if let Some(hot) = self.hot.get(slot as usize) {
            prefetch(hot);
            prefetch_of(&self.payloads, slot as usize);
        }
    }

    /// Asks for what is behind a head to be brought near: it will be the next one.
    #[inline]
    pub(super) fn prefetch_behind(&self, head: &Head) {
        self.prefetch(head.next);
        if !head.kind.in_run() {
            self.prefetch_aside(head.slot, head.next);
        }
    }

    #[inline(never)]
    fn prefetch_aside(&self, slot: u32, next: u32) {
        // The neighbours in age of the head itself: they are written when it goes.
        let Aside { older, newer, .. } = self.aside[slot as usize];
        for near in [next, older, newer].into_iter().filter_map(|slot| self.aside.get(slot as usize)) {
            prefetch(near);
        }
    }

    /// What is in a slot that may not be there. Of a vacant one it is what was in it last, but for `next`.
    #[inline(always)]
    pub(super) fn get(&self, slot: u32) -> Option<&Hot> {
        self.hot.get(slot as usize)
    }

    pub(super) fn hot(&self, slot: u32) -> &Hot {
        &self.hot[slot as usize]
    }

    pub(super) fn hot_mut(&mut self, slot: u32) -> &mut Hot {
        &mut self.hot[slot as usize]
    }

    /// Position of a leader in the heap of its lane.
    pub(super) fn position(&self, slot: u32) -> u32 {
        self.positions[slot as usize]
    }

    pub(super) fn aside(&self, slot: u32) -> &Aside {
        &self.aside[slot as usize]
    }

    pub(super) fn aside_mut(&mut self, slot: u32) -> &mut Aside {
        &mut self.aside[slot as usize]
    }

    /// What is rare about the request in a slot.
    pub(super) fn rare(&self, slot: u32) -> &Rare {
        if self.hot(slot).kind.is_rare() { &self.rare[slot as usize] } else { &Rare::NONE }
    }

    /// Where the request in a slot belongs.
    #[inline]
    pub(super) fn key(&self, slot: u32) -> OrderKey {
        let Hot { policy, sequence, kind, .. } = *self.hot(slot);
        if kind.are_ranked(kind) { self.ranked_key(slot) } else { OrderKey::usual(policy, sequence) }
    }

    #[inline(never)]
    fn ranked_key(&self, slot: u32) -> OrderKey {
        let Hot { policy, sequence, .. } = *self.hot(slot);
        OrderKey::new(self.rare(slot), policy, sequence)
    }

    /// Whether the request in slot `a` goes before that in slot `b`.
    #[inline]
    pub(super) fn is_before(&self, a: u32, b: u32) -> bool {
        let (x, y) = (self.hot(a), self.hot(b));
        if x.kind.are_ranked(y.kind) {
            return self.is_ranked_before(a, b);
        }
        let key = |hot: &Hot| u128::from(hot.policy) << 64 | u128::from(hot.sequence);
        key(x) < key(y)
    }

    #[inline(never)]
    fn is_ranked_before(&self, a: u32, b: u32) -> bool {
        let key = |slot| {
            let Hot { policy, sequence, .. } = *self.hot(slot);
            OrderKey::new(self.rare(slot), policy, sequence)
        };
        key(a).is_before(&key(b))
    }

    /// Whether the request in `slot`, which has this policy key and is of this kind, goes before one that was enqueued
    /// earlier. Most do not, and that is soon told.
    #[inline(always)]
    pub(super) fn overtakes(&self, slot: u32, policy: u64, kind: Kind, earlier: u32) -> bool {
        let hot = self.hot(earlier);
        if kind.are_ranked(hot.kind) { self.is_ranked_before(slot, earlier) } else { policy < hot.policy }
    }

    /// What was frozen of the request in a slot, which is pinned so.
    pub(super) fn snapshot(&self, slot: u32, pin: Option<Pin>) -> Snapshot {
        Snapshot { usual: self.hot(slot).usual, pin, rare: self.rare(slot).clone() }
    }

    /// The payload of a request that is still here.
    pub(super) fn payload(&self, key: RequestKey) -> Option<&T> {
        if self.contains(key) { self.payloads[key.slot as usize].0.as_ref() } else { None }
    }

    /// Every request that waits, in no order. Those of a lane are pinned as `pin_of` says.
    pub(super) fn iter(
        &self,
        pin_of: impl Fn(u32) -> Option<Pin>,
    ) -> impl Iterator<Item = (RequestKey, Snapshot, &T)> {
        (0..).zip(self.hot.iter().zip(&self.payloads)).filter_map(move |(slot, (hot, Seat(payload)))| {
            let payload = payload.as_ref()?;
            Some((
                RequestKey { slot, generation: hot.generation },
                self.snapshot(slot, pin_of(hot.lane)),
                payload,
            ))
        })
    }

    /// Empties every slot. Those of a lane are of the class and pinned as `of` says. The slab is unusable then.
    pub(super) fn take_all(
        &mut self,
        of: impl Fn(u32) -> (ClassId, Option<Pin>),
    ) -> impl Iterator<Item = Picked<T>> {
        (0..self.hot.len() as u32).filter_map(move |slot| {
            self.payloads[slot as usize].0.as_ref()?;
            let (class, pin) = of(self.hot(slot).lane);
            self.take(slot, class, || pin)
        })
    }
}

impl RequestKey {
    /// The key as a number below `u64::MAX`.
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.slot) << 32 | u64::from(self.generation)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self { slot: (bits >> 32) as u32, generation: bits as u32 }
    }
}

impl<T> Positions for Slab<T> {
    #[inline]
    fn place(&mut self, item: u32, at: u32) {
        self.positions[item as usize] = at;
    }

    fn is_before(&self, a: u32, b: u32) -> bool {
        Slab::is_before(self, a, b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_request_is_one_cache_line() {
        assert_eq!(size_of::<Hot>(), 64);
    }

    /// A panic may come between what gives a slot back and what takes its request out.
    #[test]
    fn a_slot_that_still_has_a_request_is_not_given_out_and_the_request_stays_whole() {
        let comer = |tokens| {
            let usual = Request::new(tokens, 0).snapshot(Timestamp::ZERO).unwrap().usual;
            Comer::new(usual, 0, Kind::USUAL)
        };
        let mut slab = Slab::new();
        slab.insert(comer(7), "first");
        slab.vacate(0);
        catch_unwind(AssertUnwindSafe(|| slab.insert(comer(8), "second"))).unwrap_err();
        let left: Vec<_> = slab.take_all(|_| (ClassId(0), None)).collect();
        assert_eq!(
            left.iter().map(|p| (p.snapshot.raw_isl_tokens(), p.payload)).collect::<Vec<_>>(),
            [(7, "first")]
        );
    }

    /// Of the 2³² tenants that a slot can tell apart, the last and the first one.
    #[test]
    fn a_key_names_one_tenant_also_when_the_count_of_those_who_left_wraps() {
        let request = || {
            let usual = Request::new(1, 0).snapshot(Timestamp::ZERO).unwrap().usual;
            Comer { usual, policy: 0, before: NIL, lane: 0, kind: Kind::USUAL }
        };
        let mut slab = Slab::new();
        slab.insert(request(), ());
        slab.hot_mut(0).generation = u32::MAX;
        let mut before = RequestKey { slot: 0, generation: u32::MAX };
        for _ in 0..3 {
            assert!(slab.contains(before));
            slab.vacate(0);
            assert!(!slab.contains(before));
            assert!(slab.take(0, ClassId(0), || None).is_some());
            let next = slab.insert(request(), ());
            assert!(
                next.slot == 0 && !slab.contains(before) && RequestKey::from_bits(next.to_bits()) == next
            );
            before = next;
        }
        assert_eq!((slab.len(), slab.iter(|_| None).next().unwrap().0), (1, before));
    }
}
