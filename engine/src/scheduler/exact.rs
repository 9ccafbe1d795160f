//! The exact lanes of a class by their heads: which of those that may go is the best, and which of all.
//!
//! A load change opens or blocks a lane, often to and fro within a single dispatch. So an open lane is not taken out from
//! among the blocked ones: its entry stays, perhaps with an outdated key, and counts again as soon as the lane is blocked
//! again. Who asks for the best of the blocked lanes drops the entries in front of it that do not count.

use super::heap::{HeapKey, IndexedHeap, Positions};
use super::key::{OrderKey, ShortKey};
use super::lane::LaneId;
use super::slab::NIL;
use crate::sync::prefetch;

/// Position of each exact lane among its like, [`NIL`] for none, and the key that it has there. Apart, because a heap that
/// is sifted writes many positions and reads hardly a key.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranks {
    at: Vec<u32>,
    keys: Vec<OrderKey>,
}

impl Ranks {
    fn add(&mut self) {
        self.at.push(NIL);
        self.keys.push(OrderKey::LAST);
    }
}

impl Positions for Ranks {
    #[inline]
    fn place(&mut self, item: u32, at: u32) {
        self.at[item as usize] = at;
    }

    #[inline]
    fn is_before(&self, a: u32, b: u32) -> bool {
        self.keys[a as usize].is_before(&self.keys[b as usize])
    }
}

/// The positions of all exact lanes in the heaps of their classes.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneRanks {
    open: Ranks,
    blocked: Ranks,
}

impl LaneRanks {
    /// Makes room for one more lane, which is nowhere.
    pub(super) fn add(&mut self) {
        self.open.add();
        self.blocked.add();
    }

    /// Asks for what is kept of a lane to be brought near.
    pub(super) fn prefetch(&self, lane: LaneId) {
        for Ranks { at, keys } in [&self.open, &self.blocked] {
            prefetch(&at[lane as usize]);
            prefetch(&keys[lane as usize]);
        }
    }
}

/// Heads of the exact lanes of a class, each naming its lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Exact {
    open: IndexedHeap<ShortKey>,
    /// Every blocked lane, and open ones that do not count.
    blocked: IndexedHeap<ShortKey>,
}

impl Exact {
    /// The lane with the best head of those that may go.
    pub(super) fn best_open(&self) -> Option<LaneId> {
        self.open.peek().map(HeapKey::item)
    }

    /// The lane with the best head of those that may not go.
    pub(super) fn best_blocked(&mut self, ranks: &mut LaneRanks) -> Option<LaneId> {
        loop {
            let lane = self.blocked.peek()?.item();
            if ranks.open.at[lane as usize] == NIL {
                return Some(lane);
            }
            self.blocked.remove(0, &mut ranks.blocked);
            ranks.blocked.at[lane as usize] = NIL;
        }
    }

    /// Every lane, some perhaps twice, in no order.
    pub(super) fn lanes(&self) -> impl Iterator<Item = LaneId> + '_ {
        self.open.iter().chain(self.blocked.iter()).map(HeapKey::item)
    }

    /// Notes the key of a lane's head and whether it may go; returns whether another head may be the best of the open ones
    /// now.
    pub(super) fn note(&mut self, lane: LaneId, key: OrderKey, open: bool, ranks: &mut LaneRanks) -> bool {
        let best = self.best_open();
        if open {
            put(&mut self.open, lane, key, &mut ranks.open);
        } else {
            drop_from(&mut self.open, lane, &mut ranks.open);
            put(&mut self.blocked, lane, key, &mut ranks.blocked);
        }
        let now = self.best_open();
        now != best || now == Some(lane)
    }

    /// Forgets a lane that has emptied; returns the same.
    pub(super) fn forget(&mut self, lane: LaneId, ranks: &mut LaneRanks) -> bool {
        let best = self.best_open();
        drop_from(&mut self.open, lane, &mut ranks.open);
        drop_from(&mut self.blocked, lane, &mut ranks.blocked);
        self.best_open() != best
    }
}

/// Puts a lane where its head belongs.
fn put(heap: &mut IndexedHeap<ShortKey>, lane: LaneId, key: OrderKey, ranks: &mut Ranks) {
    let (at, before) = (ranks.at[lane as usize], std::mem::replace(&mut ranks.keys[lane as usize], key));
    if at == NIL {
        heap.push(ShortKey::new(key, lane), ranks);
    } else if key != before {
        heap.update(at, ShortKey::new(key, lane), ranks);
    }
}

fn drop_from(heap: &mut IndexedHeap<ShortKey>, lane: LaneId, ranks: &mut Ranks) {
    let at = std::mem::replace(&mut ranks.at[lane as usize], NIL);
    if at != NIL {
        heap.remove(at, ranks);
    }
}
