//! The exact lanes of a class by their heads: which of those that may go is the best, and which of all.
//!
//! A load change opens or blocks one lane in every class, often to and fro within a single dispatch. So an open lane is
//! not taken out from among the blocked ones: its entry stays, perhaps with an outdated key, and counts again as soon as
//! the lane is blocked again. Who asks for the best of the blocked lanes drops the entries in front of it that do not
//! count.

use super::heap::{HeapKey, IndexedHeap, Positions};
use super::key::OrderKey;
use super::lane::LaneId;
use super::slab::NIL;

/// Position of each exact lane among its like, [`NIL`] for none. Dense, because a heap that is sifted writes many.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks(Vec<u32>);

impl Positions for Ranks {
    fn place(&mut self, item: u32, at: u32) {
        self.0[item as usize] = at;
    }
}

/// The positions of all lanes in the heaps of their classes.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneRanks {
    open: Ranks,
    blocked: Ranks,
}

impl LaneRanks {
    /// Makes room for one more lane, which is nowhere.
    pub(super) fn add(&mut self) {
        self.open.0.push(NIL);
        self.blocked.0.push(NIL);
    }
}

/// Heads of the exact lanes of a class, each naming its lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Exact {
    open: IndexedHeap<OrderKey>,
    /// Every blocked lane, and open ones that do not count.
    blocked: IndexedHeap<OrderKey>,
}

impl Exact {
    /// Whether no lane may go.
    pub(super) fn none_open(&self) -> bool {
        self.open.is_empty()
    }

    /// The lane with the best head of those that may go.
    pub(super) fn best_open(&self) -> Option<LaneId> {
        self.open.peek().map(OrderKey::item)
    }

    /// The lane with the best head of those that may not go.
    pub(super) fn best_blocked(&mut self, ranks: &mut LaneRanks) -> Option<LaneId> {
        loop {
            let lane = self.blocked.peek()?.item();
            if ranks.open.0[lane as usize] == NIL {
                return Some(lane);
            }
            self.blocked.remove(0, &mut ranks.blocked);
            ranks.blocked.0[lane as usize] = NIL;
        }
    }

    /// Every lane, some perhaps twice, in no order.
    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.open.iter().chain(self.blocked.iter()).map(HeapKey::item)
    }

    /// Notes the head of a lane, whose key names the lane, and whether it may go; returns whether another head is the
    /// best of the open ones now.
    pub(super) fn note(&mut self, key: OrderKey, open: bool, ranks: &mut LaneRanks) -> bool {
        let (best, lane) = (self.open.peek(), key.item());
        if open {
            put(&mut self.open, key, &mut ranks.open);
        } else {
            drop_from(&mut self.open, lane, &mut ranks.open);
            put(&mut self.blocked, key, &mut ranks.blocked);
        }
        self.open.peek() != best
    }

    /// Forgets a lane that has emptied; returns the same.
    pub(super) fn forget(&mut self, lane: LaneId, ranks: &mut LaneRanks) -> bool {
        let best = self.open.peek();
        drop_from(&mut self.open, lane, &mut ranks.open);
        drop_from(&mut self.blocked, lane, &mut ranks.blocked);
        self.open.peek() != best
    }
}

/// Puts a lane where its head belongs.
fn put(heap: &mut IndexedHeap<OrderKey>, key: OrderKey, ranks: &mut Ranks) {
    match ranks.0[key.item() as usize] {
        NIL => heap.push(key, ranks),
        at if heap.at(at) == key => {}
        at => heap.update(at, key, ranks),
    }
}

fn drop_from(heap: &mut IndexedHeap<OrderKey>, lane: LaneId, ranks: &mut Ranks) {
    let at = std::mem::replace(&mut ranks.0[lane as usize], NIL);
    if at != NIL {
        heap.remove(at, ranks);
    }
}
