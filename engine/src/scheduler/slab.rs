//! Where waiting requests live: one stable slot each, what ordering touches apart from what it does not.

use super::heap::Positions;
use super::key::OrderKey;
use crate::request::Snapshot;

/// No slot, no position, no lane.
pub(super) const NIL: u32 = u32::MAX;

/// How a request is kept in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the run.
    Run,
    /// In the heap, perhaps with members behind it.
    Leader,
    /// Behind a leader.
    Member,
}

/// What moving a request around in its lane touches: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct Hot {
    pub(super) key: OrderKey,
    /// Cost \[tokens\], ≥ 1.
    pub(super) cost: u64,
    /// The slot before in the run or behind the leader; unused by a leader.
    pub(super) before: u32,
    /// The slot behind in the run or behind the leader. On the free list: the next free slot.
    pub(super) next: u32,
    /// Lane that the request waits in; [`NIL`] on the free list.
    pub(super) lane: u32,
    /// Interned constraints, 0 for none.
    pub(super) mask: u32,
    /// Counts the tenants of the slot, so that a key to an earlier one is recognised.
    pub(super) generation: u32,
    pub(super) place: Place,
    /// Whether the request is in the heap of expiries.
    pub(super) expires: bool,
}

/// What arrival and departure touch, and nothing in between.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aside {
    /// Position in the heap of expiries, if the request is there.
    pub(super) expiry_at: u32,
    /// Of requests in heaps: the slots of those of the class that were enqueued before and after this one.
    pub(super) older: u32,
    pub(super) newer: u32,
}

impl Aside {
    /// What is not used is not reset.
    const NOTHING: Self = Self { expiry_at: NIL, older: NIL, newer: NIL };
}

/// What only dispatch touches.
#[derive(Clone, Debug)]
pub(super) struct Cold<T> {
    pub(super) snapshot: Snapshot,
    pub(super) payload: T,
}

/// Names a waiting request; it never names another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

/// The slots.
#[derive(Clone, Debug)]
pub(super) struct Slab<T> {
    hot: Vec<Hot>,
    /// Position of each leader in the heap of its lane: dense, because a heap that is sifted writes many.
    positions: Vec<u32>,
    aside: Vec<Aside>,
    cold: Vec<Option<Cold<T>>>,
    free: u32,
    len: u64,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self {
            hot: Vec::new(),
            positions: Vec::new(),
            aside: Vec::new(),
            cold: Vec::new(),
            free: NIL,
            len: 0,
        }
    }

    /// Takes a slot; `hot` gets the slot and its generation and makes what goes in.
    ///
    /// # Panics
    /// With 2³² − 1 requests waiting.
    pub(super) fn insert(
        &mut self,
        cold: Cold<T>,
        hot: impl FnOnce(u32, u32, &Cold<T>) -> Hot,
    ) -> RequestKey {
        self.len += 1;
        let slot = if self.free == NIL {
            let slot = self.hot.len() as u32;
            assert!(slot < NIL, "more requests wait than a slot number can name");
            self.hot.push(hot(slot, 0, &cold));
            self.positions.push(NIL);
            self.aside.push(Aside::NOTHING);
            self.cold.push(Some(cold));
            slot
        } else {
            let slot = self.free;
            let old = self.hot[slot as usize];
            self.free = old.next;
            self.hot[slot as usize] = hot(slot, old.generation.wrapping_add(1), &cold);
            self.cold[slot as usize] = Some(cold);
            slot
        };
        self.key_of(slot)
    }

    /// Gives a slot back.
    ///
    /// # Panics
    /// If nobody has it.
    pub(super) fn remove(&mut self, slot: u32) -> Cold<T> {
        let cold = self.cold[slot as usize].take().expect("a slot in a lane has a request");
        self.len -= 1;
        let hot = &mut self.hot[slot as usize];
        hot.lane = NIL;
        hot.next = self.free;
        self.free = slot;
        cold
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether `key` names a request that is still here.
    pub(super) fn contains(&self, key: RequestKey) -> bool {
        self.hot.get(key.slot as usize).is_some_and(|h| h.lane != NIL && h.generation == key.generation)
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
    pub(super) fn cold(&self, slot: u32) -> &Cold<T> {
        self.cold[slot as usize].as_ref().expect("a slot in a lane has a request")
    }

    /// Names the request in a slot.
    pub(super) fn key_of(&self, slot: u32) -> RequestKey {
        RequestKey { slot, generation: self.hot[slot as usize].generation }
    }

    /// Every request that waits, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (RequestKey, &Cold<T>)> {
        let keys = self.hot.iter().zip(0u32..).map(|(h, slot)| RequestKey { slot, generation: h.generation });
        keys.zip(&self.cold).filter_map(|(key, cold)| Some((key, cold.as_ref()?)))
    }

    /// Empties every slot: the lane of each request, and the request. The slab is unusable then.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = (u32, Cold<T>)> + '_ {
        let requests = self.hot.iter().zip(&mut self.cold);
        requests.filter_map(|(hot, cold)| Some((hot.lane, cold.take()?)))
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
    fn place(&mut self, item: u32, at: u32) {
        self.positions[item as usize] = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ordering_touches_is_one_cache_line() {
        assert_eq!(size_of::<Hot>(), 64);
    }
}
