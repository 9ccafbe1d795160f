//! Who is due in a round to come, the soonest first.
//!
//! A tournament (Knuth, "The Art of Computer Programming", vol. 3, §5.4.1): each place has a leaf of its own, and each node
//! knows the soonest of those below. So who is met on the way from a leaf to the top is known before anything is compared,
//! and the processor reads all of it at once; in a heap each step waits for the one before.
//!
//! The soonest few have been taken out of the tournament and stand in a row. So it is known some decisions ahead whom to
//! bring near, and no decision waits for the tournament.

use std::hint::select_unpredictable;

use crate::scheduler::slab::NIL;
use crate::sync::prefetch;

/// Most rounds that a place is noted ahead. What is due later is looked at again then. So rounds that are compared differ by
/// less than 2⁶³, and the count of rounds may wrap.
pub(super) const HORIZON: u64 = 1 << 62;

/// Places in the row.
const ROW: usize = 8;
/// The place in the row to look ahead at: its class is near by then, and what waits in it will be in time.
const AHEAD: usize = 5;

/// Four nodes are one cache line.
const ARITY: usize = 4;
/// The node above all others.
const TOP: usize = ARITY - 1;

/// A place and when it is due.
#[derive(Clone, Copy, Debug)]
struct Due {
    /// In rounds from the base on.
    round: u64,
    /// Number of the place in the group.
    number: u32,
}

impl Due {
    const NOBODY: Self = Self { round: u64::MAX, number: NIL };

    /// The sooner of two. Which it is cannot be predicted. Places that are due at the same time are found by their bits
    /// in the end: no need to order them here.
    #[inline]
    fn sooner(self, other: Self) -> Self {
        let first = self.round <= other.round;
        Self {
            round: select_unpredictable(first, self.round, other.round),
            number: select_unpredictable(first, self.number, other.number),
        }
    }
}

#[derive(Clone, Debug)]
#[repr(align(64))]
struct Siblings([Due; ARITY]);

/// The places that are due in a round to come.
#[derive(Clone, Debug)]
pub(super) struct Later {
    /// Rounds are counted from here, so that they can be compared as they are.
    base: u64,
    /// The soonest few, in order, and nobody behind them.
    row: [Due; ROW],
    /// All others. The first four are the top and nobody; the parent of node *i* is node ⌊*i* / 4⌋ + 2.
    nodes: Box<[Siblings]>,
    /// The node of the place with number 0.
    leaves: usize,
}

fn parent(node: usize) -> usize {
    node / ARITY + 2
}

impl Later {
    /// Nobody noted, for places with numbers below `size`.
    pub(super) fn new(size: usize) -> Self {
        let (mut above, mut width) = (1, 1);
        while width * ARITY < size {
            (above, width) = (above + width, width * ARITY);
        }
        Self {
            base: 0,
            row: [Due::NOBODY; ROW],
            nodes: vec![Siblings([Due::NOBODY; ARITY]); above + size.div_ceil(ARITY)].into(),
            leaves: above * ARITY,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.row[0].number == NIL
    }

    fn in_row(&self, at: usize) -> Option<(u64, u32)> {
        let Due { round, number } = self.row[at];
        (number != NIL).then(|| (self.base.wrapping_add(round), number))
    }

    /// The round and the number of the place that is due first; of several, any.
    #[inline]
    pub(super) fn first(&self) -> Option<(u64, u32)> {
        self.in_row(0)
    }

    /// The same of the one behind it.
    #[inline]
    pub(super) fn second(&self) -> Option<(u64, u32)> {
        self.in_row(1)
    }

    /// Number of a place that will be the first before long, and of one that will be later.
    #[inline]
    pub(super) fn ahead(&self) -> [Option<usize>; 2] {
        [AHEAD, ROW - 1].map(|at| self.in_row(at).map(|(_, number)| number as usize))
    }

    /// Notes a place that is not noted for so many rounds after `now`, or for the [`HORIZON`]. Nobody is due before now.
    #[inline]
    pub(super) fn insert(&mut self, number: usize, rounds: u64, now: u64) {
        if now.wrapping_sub(self.base) > HORIZON {
            self.count_from(now);
        }
        let round = now.wrapping_sub(self.base) + rounds.min(HORIZON);
        let due = Due { round, number: number as u32 };
        if due.round < self.row[ROW - 1].round {
            self.join_row(due);
        } else {
            self.enter(due);
        }
    }

    /// Notes a place no more.
    #[inline]
    pub(super) fn remove(&mut self, number: usize) {
        match self.row.iter().position(|due| due.number == number as u32) {
            Some(at) => self.leave_row(at),
            None => self.leave(number),
        }
    }

    /// Notes the first no more.
    pub(super) fn remove_first(&mut self) {
        self.leave_row(0);
    }

    #[inline]
    fn leave_row(&mut self, at: usize) {
        self.row.copy_within(at + 1.., at);
        let next = self.nodes[0].0[TOP];
        self.row[ROW - 1] = next;
        if next.number != NIL {
            self.leave(next.number as usize);
        }
    }

    #[inline(never)]
    fn join_row(&mut self, due: Due) {
        let last = self.row[ROW - 1];
        let at = self.row.partition_point(|other| other.round <= due.round);
        self.row.copy_within(at..ROW - 1, at + 1);
        self.row[at] = due;
        if last.number != NIL {
            self.enter(last);
        }
    }

    /// Lets a place enter the tournament. Nearly always it wins nothing.
    #[inline]
    fn enter(&mut self, due: Due) {
        let mut node = self.leaves + due.number as usize;
        self.nodes[node / ARITY].0[node % ARITY] = due;
        while node != TOP {
            node = parent(node);
            let known = &mut self.nodes[node / ARITY].0[node % ARITY];
            if known.round <= due.round {
                return;
            }
            *known = due;
        }
    }

    /// Takes a place out of the tournament.
    #[inline]
    fn leave(&mut self, number: usize) {
        let mut node = self.leaves + number;
        let mut soonest = Due::NOBODY;
        while node != TOP {
            let siblings = &mut self.nodes[node / ARITY].0;
            let [a, b, c] = [1, 2, 3].map(|other| siblings[(node % ARITY) ^ other]);
            siblings[node % ARITY] = soonest;
            soonest = a.sooner(b).sooner(c).sooner(soonest);
            node = parent(node);
        }
        self.nodes[0].0[TOP] = soonest;
        // It leaves next. What is higher up is always near.
        let leaf = self.leaves + soonest.number as usize;
        for siblings in [leaf, parent(leaf)].into_iter().filter_map(|node| self.nodes.get(node / ARITY)) {
            prefetch(siblings);
        }
    }

    #[cold]
    #[inline(never)]
    fn count_from(&mut self, now: u64) {
        let passed = now.wrapping_sub(std::mem::replace(&mut self.base, now));
        let nodes = self.nodes.iter_mut().flat_map(|siblings| &mut siblings.0);
        for due in self.row.iter_mut().chain(nodes).filter(|due| due.number != NIL) {
            due.round -= passed;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    fn rounds() -> impl Strategy<Value = u64> {
        prop_oneof![0..10u64, 0..1000u64, any::<u64>(), HORIZON - 2..HORIZON + 2]
    }

    proptest! {
        /// Places come, go, and are the first, while rounds pass beyond all that can be counted.
        #[test]
        fn agrees_with_a_sorted_list(
            size in prop_oneof![1usize..6, 14..19usize, 60..70usize, 250..300usize],
            begin in any::<u64>(),
            ops in prop::collection::vec((0u8..8, any::<u16>(), rounds()), 1..400),
        ) {
            let mut later = Later::new(size);
            // Rounds from the beginning on.
            let (mut now, mut noted) = (0u128, BTreeMap::new());
            let wrapped = |round: u128| begin.wrapping_add(round as u64);
            for (op, number, rounds) in ops {
                let number = usize::from(number) % size;
                let first = later.first().map(|(_, number)| number as usize);
                match (op, first) {
                    (0..5, _) => {
                        if noted.remove(&number).is_some() {
                            later.remove(number);
                        }
                        later.insert(number, rounds, wrapped(now));
                        noted.insert(number, now + u128::from(rounds.min(HORIZON)));
                    }
                    (5, Some(first)) => {
                        noted.remove(&first);
                        later.remove_first();
                    }
                    (6, Some(first)) => now = noted[&first],
                    _ => {
                        if noted.remove(&number).is_some() {
                            later.remove(number);
                        }
                    }
                }
                let mut sorted: Vec<u128> = noted.values().copied().collect();
                sorted.sort();
                prop_assert_eq!(later.is_empty(), sorted.is_empty());
                for at in 0..ROW {
                    let found = later.in_row(at);
                    prop_assert_eq!(found.map(|(round, _)| round), sorted.get(at).map(|&round| wrapped(round)));
                    if let Some((round, number)) = found {
                        prop_assert_eq!(wrapped(noted[&(number as usize)]), round);
                    }
                }
            }
        }
    }

    #[test]
    fn a_place_passes_one_node_for_each_power_of_four() {
        for (size, nodes) in [(1, 1), (4, 1), (5, 2), (16, 2), (17, 3), (10_000, 7), (1 << 20, 10)] {
            let later = Later::new(size);
            for number in [0, size - 1] {
                let way = std::iter::successors(Some(later.leaves + number), |&node| Some(parent(node)));
                assert_eq!(way.take_while(|&node| node != TOP).count(), nodes, "{number} of {size}");
            }
        }
    }
}
