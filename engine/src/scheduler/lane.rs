//! A lane: the waiting requests of one class with one pin, or with none, in order.
//!
//! Requests that come in order, which is what FCFS traffic does, form the **run**, a list through the slab:
//! appending, taking the first and removing any is O(1). The others go to a heap. The head is the smaller of both.

use super::heap::{HeapKey, IndexedHeap};
use super::key::OrderKey;
use super::slab::{IN_HEAP, NIL, Slab};
use crate::request::Pin;

/// Index of a lane in the lane table.
pub(super) type LaneId = u32;

/// Where the lane table lists an exact lane, so that a load change finds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anchor {
    pub(super) list: u32,
    pub(super) at: u32,
}

impl Anchor {
    /// The pin names no endpoint of the snapshot, or there is no pin.
    pub(super) const NOWHERE: Self = Self { list: NIL, at: NIL };
}

/// One lane.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    /// Class that owns the lane.
    pub(super) class: u32,
    /// What the lane's requests are pinned to; `None` for the shared lane.
    pub(super) pin: Option<Pin>,
    /// Whether the head may go. Of exact lanes only: the shared lane of a class has its pool gate instead.
    pub(super) open: bool,
    /// Position among the open or the blocked exact lanes of the class, [`NIL`] while in neither.
    pub(super) rank_at: u32,
    /// Place in the lane table's index by endpoint.
    pub(super) anchor: Anchor,
    first: u32,
    last: u32,
    heap: IndexedHeap<OrderKey>,
    len: u32,
}

impl Lane {
    pub(super) fn new(class: u32, pin: Option<Pin>) -> Self {
        Self {
            class,
            pin,
            open: false,
            rank_at: NIL,
            anchor: Anchor::NOWHERE,
            first: NIL,
            last: NIL,
            heap: IndexedHeap::default(),
            len: 0,
        }
    }

    /// The slot of the head.
    pub(super) fn head<T>(&self, slab: &Slab<T>) -> Option<u32> {
        match (self.first, self.heap.peek()) {
            (NIL, top) => top.map(OrderKey::item),
            (first, None) => Some(first),
            (first, Some(top)) => Some(slab.hot(first).key.min(top).item()),
        }
    }

    /// Adds the request in `slot`, whose key is already in the slab.
    pub(super) fn push<T>(&mut self, slot: u32, slab: &mut Slab<T>) {
        self.len += 1;
        let key = slab.hot(slot).key;
        if self.last == NIL || slab.hot(self.last).key < key {
            let hot = slab.hot_mut(slot);
            (hot.before, hot.next) = (self.last, NIL);
            match self.last {
                NIL => self.first = slot,
                last => slab.hot_mut(last).next = slot,
            }
            self.last = slot;
        } else {
            slab.hot_mut(slot).next = IN_HEAP;
            self.heap.push(key, slab);
        }
    }

    /// Takes the request in `slot` out of the order; the slab keeps it.
    pub(super) fn unlink<T>(&mut self, slot: u32, slab: &mut Slab<T>) {
        self.len -= 1;
        let (before, next) = (slab.hot(slot).before, slab.hot(slot).next);
        if next == IN_HEAP {
            self.heap.remove(before, slab);
            return;
        }
        match before {
            NIL => self.first = next,
            before => slab.hot_mut(before).next = next,
        }
        match next {
            NIL => self.last = before,
            next => slab.hot_mut(next).before = before,
        }
    }

    /// Takes all requests out, in no order.
    pub(super) fn take_all<T>(&mut self, slab: &Slab<T>) -> Vec<u32> {
        let run = std::iter::successors(Some(self.first).filter(|&s| s != NIL), |&slot| {
            Some(slab.hot(slot).next).filter(|&s| s != NIL)
        });
        let slots = run.chain(self.heap.iter().map(OrderKey::item)).collect();
        self.forget_all();
        slots
    }

    /// Empties the lane without looking into it.
    pub(super) fn forget_all(&mut self) {
        (self.first, self.last, self.len) = (NIL, NIL, 0);
        self.heap.clear();
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }
}
