//! Where waiting requests live: one stable slot each, what ordering touches apart from what it does not.

use super::Picked;
use super::heap::Positions;
use super::key::OrderKey;
use super::{masks, ring};
use crate::sync::{prefetch, prefetch_of};

/// No slot, no position, no lane.
pub(super) const NIL: u32 = u32::MAX;

/// How a request is kept in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the run.
    Run = 0,
    /// In front of the run, in the same list.
    Front,
    /// In the heap, perhaps with members behind it.
    Leader,
    /// Behind a leader.
    Member,
}

/// What is unusual about a request, in one number so that one look tells that nothing is: its mask, whether it expires,
/// and its [`Place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind(u32);

impl Kind {
    /// In the run of its lane, without constraints, never expiring.
    pub(super) const USUAL: Self = Self(0);
    const PLACE: u32 = 0b11;
    const EXPIRES: u32 = 0b100;
    const MASK: u32 = Self::EXPIRES.trailing_zeros() + 1;

    /// A request in the run.
    ///
    /// # Panics
    /// With 2²⁹ constraint sets or more.
    #[inline(always)]
    pub(super) fn new(mask: u32, expires: bool) -> Self {
        assert!(mask >> (u32::BITS - Self::MASK) == 0, "more constraint sets than a request can name");
        Self(mask << Self::MASK | if expires { Self::EXPIRES } else { 0 })
    }

    /// The same in another place.
    pub(super) fn at(self, place: Place) -> Self {
        Self(self.0 & !Self::PLACE | place as u32)
    }

    pub(super) fn place(self) -> Place {
        match self.0 & Self::PLACE {
            0 => Place::Run,
            1 => Place::Front,
            2 => Place::Leader,
            _ => Place::Member,
        }
    }

    /// Whether the request is in the run of its lane.
    #[inline(always)]
    pub(super) fn in_run(self) -> bool {
        self.0 & Self::PLACE == Place::Run as u32
    }

    /// Whether the request is in the heap of expiries.
    pub(super) fn expires(self) -> bool {
        self.0 & Self::EXPIRES != 0
    }

    /// Interned constraints, [`NO_MASK`](masks::NO_MASK) without any.
    pub(super) fn mask(self) -> u32 {
        self.0 >> Self::MASK
    }
}

/// What moving a request around in its lane touches: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Hot {
    pub(super) key: OrderKey,
    /// Cost \[tokens\], ≥ 1.
    pub(super) cost: u64,
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

/// What a request brings along into its lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comer {
    pub(super) key: OrderKey,
    /// Cost \[tokens\], ≥ 1.
    pub(super) cost: u64,
    pub(super) lane: u32,
    pub(super) kind: Kind,
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
        Self { slot, cost: hot.cost, next: hot.next, kind: hot.kind }
    }

    /// The head, if it has no constraints.
    #[inline(always)]
    pub(super) fn as_usual(self) -> Option<Self> {
        (self.kind.mask() == masks::NO_MASK).then_some(self)
    }
}

impl Hot {
    /// Makes it that of a request that has come, behind `before` and in front of nobody.
    #[inline(always)]
    pub(super) fn begin(&mut self, comer: Comer, before: u32) {
        let Comer { key, cost, lane, kind } = comer;
        (self.key, self.cost, self.lane, self.kind) = (key, cost, lane, kind);
        (self.before, self.next) = (before, NIL);
    }

    /// What nobody has had yet.
    const VACANT: Self = Self {
        key: OrderKey::LAST,
        cost: 0,
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

/// Room for a request. With one word for the caller it is 96 bytes, and lies in two cache lines and never in three.
#[derive(Clone, Debug)]
#[repr(align(32))]
struct Seat<T>(Option<Picked<T>>);

/// The slots.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    hot: Vec<Hot>,
    /// Position of each leader in the heap of its lane: dense, because a heap that is sifted writes many.
    positions: Vec<u32>,
    aside: Vec<Aside>,
    /// As dispatch hands them out, so that each is moved once in and once out.
    requests: Vec<Seat<T>>,
    free: u32,
    /// Requests that were put in so far, and those that were taken out again.
    inserted: u64,
    removed: u64,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self {
            hot: Vec::new(),
            positions: Vec::new(),
            aside: Vec::new(),
            requests: Vec::new(),
            free: NIL,
            inserted: 0,
            removed: 0,
        }
    }

    /// Puts a request into a free slot and returns its name. Its [`Hot`] is still to be set.
    ///
    /// # Panics
    /// With 2³² − 1 requests waiting.
    #[inline(always)]
    pub(super) fn insert(&mut self, request: Picked<T>) -> RequestKey {
        // Nothing that could panic comes before this: so the request can be made in its slot, and is not copied there.
        match self.requests.get_mut(self.free as usize) {
            Some(Seat(vacant @ None)) => *vacant = Some(request),
            _ => self.insert_behind(request),
        }
        let slot = self.free;
        let hot = &self.hot[slot as usize];
        self.free = hot.next;
        self.inserted += 1;
        RequestKey { slot, generation: hot.generation }
    }

    /// Makes a slot for a request and lists it as free, for there is no other.
    #[inline(never)]
    fn insert_behind(&mut self, request: Picked<T>) {
        assert!(self.free == NIL, "slot {} was free", self.free);
        let slot = self.hot.len() as u32;
        assert!(slot < NIL, "more requests wait than a slot number can name");
        self.hot.push(Hot::VACANT);
        self.positions.push(NIL);
        self.aside.push(Aside::NOTHING);
        self.requests.push(Seat(Some(request)));
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

    /// Takes the request out of a slot that was given back.
    #[inline(always)]
    pub(super) fn take(&mut self, slot: u32) -> Option<Picked<T>> {
        self.requests[slot as usize].0.take()
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> u64 {
        self.inserted - self.removed
    }

    /// Enqueue sequence of the request that is put in next.
    #[inline(always)]
    pub(super) fn sequence(&self) -> u64 {
        self.inserted
    }

    /// Whether `key` names a request that is still here. One of another slab may name somebody, or a slot that is vacant.
    pub(super) fn contains(&self, key: RequestKey) -> bool {
        let slot = key.slot as usize;
        self.hot.get(slot).is_some_and(|h| h.generation == key.generation) && self.requests[slot].0.is_some()
    }

    /// Asks for a slot to be brought near, if there is one of this number.
    #[inline(always)]
    pub(super) fn prefetch(&self, slot: u32) {
        if let Some(hot) = self.hot.get(slot as usize) {
            prefetch(hot);
            prefetch_of(&self.requests, slot as usize);
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

    /// # Panics
    /// If nobody has the slot.
    #[inline(always)]
    pub(super) fn request(&self, slot: u32) -> &Picked<T> {
        self.requests[slot as usize].0.as_ref().expect("a slot in a lane has a request")
    }

    /// Every request that waits, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestKey, &Picked<T>)> {
        let keys = self.hot.iter().zip(0u32..).map(|(h, slot)| RequestKey { slot, generation: h.generation });
        keys.zip(&self.requests).filter_map(|(key, request)| Some((key, request.0.as_ref()?)))
    }

    /// Empties every slot. The slab is unusable then.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Picked<T>> + '_ {
        self.requests.iter_mut().filter_map(|seat| seat.0.take())
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
        self.hot(a).key.is_before(&self.hot(b).key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ClassId;
    use crate::request::Request;
    use crate::time::Timestamp;

    #[test]
    fn what_ordering_touches_is_one_cache_line_and_the_rest_lies_in_two() {
        assert_eq!(size_of::<Hot>(), 64);
        assert_eq!(size_of::<Seat<u64>>(), 96);
    }

    #[test]
    fn a_kind_is_usual_unless_something_is_unusual_and_tells_what_it_was_made_of() {
        let most = (1 << (u32::BITS - Kind::MASK)) - 1;
        for mask in [masks::NO_MASK, 1, 2, most] {
            for expires in [false, true] {
                let kind = Kind::new(mask, expires);
                assert_eq!(kind == Kind::USUAL, mask == masks::NO_MASK && !expires);
                for place in [Place::Front, Place::Leader, Place::Member, Place::Run] {
                    let kind = kind.at(Place::Member).at(place);
                    assert_eq!((kind.mask(), kind.expires(), kind.place()), (mask, expires, place));
                    assert_eq!(kind.in_run(), place == Place::Run);
                    assert!(kind != Kind::USUAL || kind.in_run());
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "more constraint sets")]
    fn a_mask_that_a_kind_cannot_name_is_refused() {
        Kind::new(1 << (u32::BITS - Kind::MASK), false);
    }

    /// Of the 2³² tenants that a slot can tell apart, the last and the first one.
    #[test]
    fn a_key_names_one_tenant_also_when_the_count_of_those_who_left_wraps() {
        let request = || {
            let snapshot = Request::new(1, 0).snapshot(Timestamp::ZERO).unwrap();
            Picked { class: ClassId(0), snapshot, payload: () }
        };
        let mut slab = Slab::new();
        slab.insert(request());
        slab.hot_mut(0).generation = u32::MAX;
        let mut before = RequestKey { slot: 0, generation: u32::MAX };
        for _ in 0..3 {
            assert!(slab.contains(before));
            slab.vacate(0);
            assert!(!slab.contains(before));
            assert!(slab.take(0).is_some());
            let next = slab.insert(request());
            assert!(
                next.slot == 0 && !slab.contains(before) && RequestKey::from_bits(next.to_bits()) == next
            );
            before = next;
        }
        assert_eq!((slab.len(), slab.iter().next().unwrap().0), (1, before));
    }
}
