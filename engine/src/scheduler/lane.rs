//! A lane: the waiting requests of one class with one pin, or with none, in order.
//!
//! Requests that come in order, which is what FCFS traffic does, form the **run**, a list through the slab:
//! appending, taking the first and removing any is O(1). So is putting one in **front** of it, which is what a request does
//! that overtakes all of the run. The others go to a heap. The head is the smaller of both.
//!
//! Where ranks repeat, as costs do, the heap holds one **leader** for each rank and the others of that rank wait behind it
//! in a list: the heap is as large as there are ranks, and taking a leader that has somebody behind it is O(1).

use rustc_hash::FxHashMap;

use super::heap::{HeapKey, IndexedHeap};
use super::key::{Rank, ShortKey};
use super::kind::{Kind, Place};
use super::slab::{Hot, NIL, Slab};
use crate::policy::ClassId;
use crate::request::Pin;

/// Names a lane: the number of an exact one, or [`SHARED`] and the number of the class.
pub(super) type LaneId = u32;

/// Bit of the shared lanes.
pub(super) const SHARED: LaneId = 1 << 31;

/// The shared lane of a class.
pub(super) fn shared_of(class: ClassId) -> LaneId {
    SHARED | class.0
}

/// Whether it is a shared lane.
pub(super) fn is_shared(lane: LaneId) -> bool {
    lane & SHARED != 0
}

/// Requests that came neither in order nor before all that did.
#[derive(Clone, Debug, Default)]
struct Others {
    heap: IndexedHeap<ShortKey>,
    /// The last of each rank in the heap, if they are gathered.
    tails: Option<FxHashMap<Rank, u32>>,
}

/// One lane: one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Lane {
    first: u32,
    last: u32,
    /// The last of those that were put in front of the run.
    front: u32,
    /// How many wait, if they are pinned.
    pub(super) pinned: u32,
    others: Option<Box<Others>>,
    /// Class that owns the lane.
    pub(super) class: u32,
    /// What the lane's requests are pinned to; `None` for the shared lane.
    pub(super) pin: Option<Pin>,
    /// The endpoints that the pin means, in the current worker snapshot.
    pub(super) endpoints: (u32, u32),
    /// The list of the lane table that has the lane; [`NIL`] if the pin names no endpoint of the snapshot, or there is none.
    pub(super) list: u32,
}

impl Lane {
    pub(super) fn new(class: u32, pin: Option<Pin>) -> Self {
        Self {
            class,
            pin,
            endpoints: (0, 0),
            list: NIL,
            first: NIL,
            last: NIL,
            front: NIL,
            pinned: 0,
            others: None,
        }
    }

    /// The slot of the best request in the heap.
    #[inline]
    fn top(&self) -> Option<u32> {
        self.others.as_ref()?.heap.peek().map(HeapKey::item)
    }

    /// The slot of the head.
    #[inline]
    pub(super) fn head<T>(&self, slab: &Slab<T>) -> Option<u32> {
        match (self.first, self.top()) {
            (NIL, top) => top,
            (first, None) => Some(first),
            (first, Some(top)) => Some(if slab.is_before(top, first) { top } else { first }),
        }
    }

    /// Adds the request in `slot`, which has this policy key, is of this kind, and knows the last one as the one before;
    /// returns whether it is the head now, and whether it is in the run. If ranks `repeat`, requests that come out of order
    /// are gathered by rank.
    #[inline(always)]
    pub(super) fn push<T>(
        &mut self,
        slot: u32,
        policy: u64,
        kind: Kind,
        repeat: bool,
        slab: &mut Slab<T>,
    ) -> (bool, bool) {
        let last = self.last;
        if last != NIL && slab.overtakes(slot, policy, kind, last) {
            return (self.push_to_heap(slot, repeat, slab), false);
        }
        self.last = slot;
        if last != NIL {
            slab.hot_mut(last).next = slot;
            return (false, true);
        }
        self.first = slot;
        (self.others.is_none() || self.beats_heap(slot, slab), true)
    }

    /// Whether the request in `slot` goes before all that are in the heap.
    #[inline(never)]
    fn beats_heap<T>(&self, slot: u32, slab: &Slab<T>) -> bool {
        self.top().is_none_or(|top| slab.is_before(slot, top))
    }

    #[inline(never)]
    fn push_to_heap<T>(&mut self, slot: u32, repeat: bool, slab: &mut Slab<T>) -> bool {
        if slab.is_before(slot, self.first) {
            let first = std::mem::replace(&mut self.first, slot);
            slab.hot_mut(first).before = slot;
            let hot = slab.hot_mut(slot);
            (hot.before, hot.next, hot.kind) = (NIL, first, hot.kind.at(Place::Front));
            if self.front == NIL {
                self.front = slot;
            }
            return self.beats_heap(slot, slab);
        }
        let Others { heap, tails } = &mut **self.others.get_or_insert_default();
        if repeat {
            let tail = tails.get_or_insert_default().insert(slab.key(slot).rank(), slot);
            if let Some(tail) = tail {
                slab.hot_mut(tail).next = slot;
                let hot = slab.hot_mut(slot);
                (hot.before, hot.next, hot.kind) = (tail, NIL, hot.kind.at(Place::Member));
                return false;
            }
        }
        let hot = slab.hot_mut(slot);
        (hot.next, hot.kind) = (NIL, hot.kind.at(Place::Leader));
        heap.push(ShortKey::new(slab.key(slot), slot), slab);
        false
    }

    /// Takes the request in `slot`, which is `hot`, out of the order; the slab keeps it.
    pub(super) fn unlink<T>(&mut self, slot: u32, hot: &Hot, slab: &mut Slab<T>) {
        match hot.kind.place() {
            Place::Leader | Place::Member => {
                self.unlink_from_heap(slot, slab);
            }
            Place::Run | Place::Front => {
                let is_first = self.first == slot;
                if self.front == slot {
                    self.front = if is_first { NIL } else { hot.before };
                }
                if is_first {
                    self.unlink_first(hot.next);
                } else {
                    self.unlink_from_run(hot, slab);
                }
            }
        }
    }

    /// The same of the first of the run, or of what is in front of it; `next` is the one behind.
    #[inline(always)]
    pub(super) fn unlink_first(&mut self, next: u32) {
        self.first = next;
        if next == NIL {
            self.last = NIL;
        }
    }

    /// The same of another one of these.
    fn unlink_from_run<T>(&mut self, Hot { before, next, .. }: &Hot, slab: &mut Slab<T>) {
        slab.hot_mut(*before).next = *next;
        match *next {
            NIL => self.last = *before,
            next => slab.hot_mut(next).before = *before,
        }
    }

    /// Whether nothing waits outside of the run and what is in front of it.
    #[inline]
    pub(super) fn is_run(&self) -> bool {
        self.top().is_none()
    }

    #[inline(never)]
    fn unlink_from_heap<T>(&mut self, slot: u32, slab: &mut Slab<T>) {
        let Hot { before, next, kind, .. } = *slab.hot(slot);
        let Others { heap, tails } = &mut **self.others.as_mut().expect("the request is among them");
        if kind.place() == Place::Member {
            slab.hot_mut(before).next = next;
            if next == NIL {
                let tails = tails.as_mut().expect("who is behind a leader was gathered");
                tails.insert(slab.key(slot).rank(), before);
            } else {
                slab.hot_mut(next).before = before;
            }
            return;
        }
        let at = slab.position(slot);
        if next == NIL {
            heap.remove(at, slab);
            if let Some(tails) = tails {
                tails.remove(&slab.key(slot).rank());
            }
        } else {
            let hot = slab.hot_mut(next);
            hot.kind = hot.kind.at(Place::Leader);
            heap.replace(at, ShortKey::new(slab.key(next), next), slab);
        }
    }

    /// Takes all requests out, in no order.
    pub(super) fn take_all<T>(&mut self, slab: &Slab<T>) -> Vec<u32> {
        let list = |first: u32| {
            let next = |&slot: &u32| Some(slab.hot(slot).next).filter(|&s| s != NIL);
            std::iter::successors(Some(first).filter(|&s| s != NIL), next)
        };
        let leaders = self.others.iter().flat_map(|others| others.heap.iter()).map(HeapKey::item);
        let slots = list(self.first).chain(leaders.flat_map(list)).collect();
        self.clear();
        slots
    }

    /// Empties the lane for good, without looking into it.
    pub(super) fn forget_all(&mut self) {
        self.pinned = 0;
        self.clear();
    }

    fn clear(&mut self) {
        (self.first, self.last, self.front) = (NIL, NIL, NIL);
        self.others = None;
    }

    /// The request that was enqueued first of those in the run, which is in that order too, and not in front of it.
    pub(super) fn oldest_of_run<T>(&self, slab: &Slab<T>) -> Option<u32> {
        let oldest = if self.front == NIL { self.first } else { slab.hot(self.front).next };
        (oldest != NIL).then_some(oldest)
    }

    /// The slot of the first of the run, or [`NIL`].
    pub(super) fn first(&self) -> u32 {
        self.first
    }

    /// Another one is the first of the run: the one behind it.
    #[inline(always)]
    pub(super) fn set_first(&mut self, slot: u32) {
        self.first = slot;
    }

    /// The slot of the last of the run, or [`NIL`].
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first == NIL && self.top().is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_one_cache_line() {
        assert_eq!(size_of::<Lane>(), 64);
    }
}
