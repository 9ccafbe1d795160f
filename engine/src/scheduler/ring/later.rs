//! Who is due in a round to come, the soonest first.
//!
//! A tournament: each place has a leaf of its own, and each node knows the soonest of those below. Nobody has to be looked
//! for when a leaf changes, and who is met on the way to the top is known before anything is compared, so the processor
//! reads all of it at once; in a heap each step has to wait for the one before. The soonest few have been taken out of
//! the tournament and stand in a row. So who comes next is known some decisions ahead and can be brought near, and
//! a decision does not wait for the tournament at all.

use crate::scheduler::slab::NIL;
use crate::sync::prefetch;

/// Most rounds that a place is noted ahead. What is due later is looked at again then.
pub(super) const HORIZON: u64 = 1 << 62;

/// Places in the row.
const ROW: usize = 8;

const ARITY: usize = 4;

/// A place and when it is due, in rounds from the base on.
#[derive(Clone, Copy, Debug)]
struct Due {
    round: u64,
    /// Number of the place in the group.
    number: u32,
}

impl Due {
    const NOBODY: Self = Self { round: u64::MAX, number: NIL };

    /// The sooner of two. Which it is cannot be predicted.
    #[inline]
    fn sooner(self, other: Self) -> Self {
        let first = self.round <= other.round;
        Self {
            round: select_unpredictable(first, self.round, other.round),
            number: select_unpredictable(first, self.number, other.number),
        }
    }
}

use std::hint::select_unpredictable;

/// A node and those beside it: one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Siblings([Due; ARITY]);

/// The places that are due in a round to come.
#[derive(Clone, Debug)]
pub(super) struct Later {
    /// Rounds are counted from here, so that they can be compared as they are.
    base: u64,
    /// The soonest few, in order; nobody behind them.
    row: [Due; ROW],
    /// The others. The top is the last of the first four; the parent of node *i* is node *i* / 4 + 2.
    nodes: Box<[Siblings]>,
    /// The node of the place with number 0.
    leaves: usize,
}

const TOP: usize = ARITY - 1;

impl Later {
    /// For places with numbers below `size`, nobody noted.
    pub(super) fn new(size: usize) -> Self {
        let (mut first, mut width) = (1, 1);
        while width * ARITY < size {
            (first, width) = (first + width, width * ARITY);
        }
        Self {
            base: 0,
            row: [Due::NOBODY; ROW],
            nodes: vec![Siblings([Due::NOBODY; ARITY]); first + size.div_ceil(ARITY)].into(),
            leaves: first * ARITY,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.row[0].number == NIL
    }

    /// The one that is in so many places before it due: its round and its number.
    #[inline]
    pub(super) fn get(&self, at: usize) -> Option<(u64, u32)> {
        let Due { round, number } = self.row[at];
        (number != NIL).then(|| (self.base.wrapping_add(round), number))
    }

    /// Number of the last of the soonest few.
    #[inline]
    pub(super) fn last_of_row(&self) -> u32 {
        self.row[ROW - 1].number
    }

    /// Notes a place, which is not noted, for so many rounds, at most [`HORIZON`], after `now`.
    #[inline]
    pub(super) fn insert(&mut self, now: u64, rounds: u64, number: u32) {
        if now.wrapping_sub(self.base) > HORIZON {
            self.rebase(now);
        }
        let due = Due { round: now.wrapping_sub(self.base) + rounds, number };
        if due.round < self.row[ROW - 1].round {
            return self.insert_in_row(due);
        }
        self.enter(due);
    }

    /// Notes a place no more.
    pub(super) fn remove(&mut self, number: u32) {
        if self.row[0].number == number {
            return self.remove_first();
        }
        if let Some(at) = self.row.iter().position(|due| due.number == number) {
            self.remove_from_row(at);
        } else {
            self.leave(number);
        }
    }

    /// Notes the soonest no more.
    #[inline]
    pub(super) fn remove_first(&mut self) {
        self.remove_from_row(0);
    }

    #[inline]
    fn remove_from_row(&mut self, at: usize) {
        self.row.copy_within(at + 1.., at);
        let next = self.nodes[0].0[TOP];
        self.row[ROW - 1] = next;
        if next.number != NIL {
            self.leave(next.number);
        }
    }

    #[cold]
    #[inline(never)]
    fn insert_in_row(&mut self, due: Due) {
        let last = self.row[ROW - 1];
        let at = self.row.iter().position(|other| due.round < other.round).unwrap_or(ROW - 1);
        self.row.copy_within(at..ROW - 1, at + 1);
        self.row[at] = due;
        if last.number != NIL {
            self.enter(last);
        }
    }

    /// Lets a place enter the tournament.
    #[inline]
    fn enter(&mut self, due: Due) {
        let mut at = self.leaves + due.number as usize;
        self.nodes[at / ARITY].0[at % ARITY] = due;
        while at > TOP {
            at = at / ARITY + 2;
            let node = &mut self.nodes[at / ARITY].0[at % ARITY];
            if node.round <= due.round {
                break;
            }
            *node = due;
        }
    }

    /// Takes a place out of the tournament.
    #[inline]
    fn leave(&mut self, number: u32) {
        let mut at = self.leaves + number as usize;
        let mut least = Due::NOBODY;
        while at > TOP {
            let siblings = &mut self.nodes[at / ARITY].0;
            let [a, b, c] = [1, 2, 3].map(|other| siblings[(at % ARITY) ^ other]);
            siblings[at % ARITY] = least;
            least = a.sooner(b).sooner(c).sooner(least);
            at = at / ARITY + 2;
        }
        self.nodes[0].0[TOP] = least;
        // It is the next to leave.
        let mut at = self.leaves + least.number as usize;
        for _ in 0..3 {
            if let Some(siblings) = self.nodes.get(at / ARITY) {
                prefetch(siblings);
            }
            at = at / ARITY + 2;
        }
    }

    #[cold]
    #[inline(never)]
    fn rebase(&mut self, now: u64) {
        let passed = now.wrapping_sub(self.base);
        self.base = now;
        for due in self.row.iter_mut().chain(self.nodes.iter_mut().flat_map(|siblings| &mut siblings.0)) {
            if due.number != NIL {
                due.round = due.round.saturating_sub(passed);
            }
        }
    }
}
