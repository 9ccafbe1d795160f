//! Deficit round robin over the classes: who is next, and what it is charged.
//!
//! With few classes a scan over dense arrays decides. With many an index does, in O(log n) for each distinct busy rule,
//! and makes the same decisions: `tree` and `index`.
//!
//! The ring knows of each class only its quantum, its deficit, and the cost of its candidate. A class may have
//! two candidates, one for when its pool gate is open and one for when it is closed (then only pinned and
//! constrained requests may go); a gate that flips changes one bit here and touches no class.
//!
//! The cursor is where the sweep of grants stands: every class before it has had its grant of this round, every class
//! behind it has not. It moves when a class is passed with a grant and at no other time, so over any interval the
//! grants of two classes that always had a candidate differ by at most one, however the requests are picked.

mod index;
mod tree;

use super::pool::GateId;
use super::slab::NIL;
use crate::policy::ClassId;

use index::Index;

/// Classes from which on the index decides. Measured: below it the scan is faster.
const INDEX_FROM: usize = 64;

/// Cost of a candidate that is not there. Real costs are at least 1.
const NONE: u64 = 0;

/// Most credit that a class may keep when its requests leave or its quantum changes: `best` is the cost of its best
/// head, `None` if nothing waits.
pub(super) fn most_credit(quantum: u64, best: Option<u64>) -> u64 {
    best.map_or(0, |cost| cost.max(quantum))
}

/// The state of the arbitration \[deficits, quanta and costs in tokens\].
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    quantum: Vec<u64>,
    deficit: Vec<u64>,
    /// Cost of the candidate while the gate is open, and while it is closed.
    candidate: [Vec<u64>; 2],
    gate: Vec<GateId>,
    open: Vec<bool>,
    cursor: usize,
    carry: Option<usize>,
    /// The class at each place of the ring, and the place of each class.
    class_at: Vec<ClassId>,
    place_of: Vec<u32>,
    index: Option<Index>,
    /// Places, by gate, whose candidates with an open and with a closed gate differ (and others that were so).
    mixed: Vec<Vec<u32>>,
    is_mixed: Vec<bool>,
    /// Places that scans have visited.
    visited: u64,
}

/// What the ring needs to know of a class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    pub(super) class: ClassId,
    pub(super) quantum: u64,
    pub(super) gate: GateId,
    /// Most credit that the class may bring along.
    pub(super) most: u64,
}

impl Ring {
    /// A ring of `members` in this order, without candidates. Classes that were in this ring bring their credit
    /// along, and the sweep of grants goes on where it stood.
    pub(super) fn rebuilt(&self, members: &[Member], gates: usize, always_index: bool) -> Self {
        let n = members.len();
        let classes = members.iter().map(|m| m.class.index() + 1).max().unwrap_or(0);
        let mut ring = Self {
            quantum: members.iter().map(|m| m.quantum).collect(),
            deficit: members.iter().map(|m| self.credit(m.class).min(m.most)).collect(),
            candidate: [vec![NONE; n], vec![NONE; n]],
            gate: members.iter().map(|m| m.gate).collect(),
            open: vec![true; gates],
            cursor: 0,
            carry: None,
            class_at: members.iter().map(|m| m.class).collect(),
            place_of: vec![NIL; classes],
            index: None,
            mixed: vec![Vec::new(); gates],
            is_mixed: vec![false; n],
            visited: self.visited,
        };
        if always_index || n >= INDEX_FROM {
            let gate: Vec<_> = members.iter().map(|m| m.gate.0).collect();
            ring.index = Some(Index::new(&gate, gates));
        }
        for (place, member) in (0u32..).zip(members) {
            ring.place_of[member.class.index()] = place;
        }
        let onwards = self.class_at[self.cursor..].iter().chain(&self.class_at[..self.cursor]);
        ring.cursor = onwards.filter_map(|&class| ring.find(class)).next().unwrap_or(0);
        ring.carry = self.carry.and_then(|k| ring.find(self.class_at[k]));
        ring
    }

    /// Classes in ring order.
    pub(super) fn classes(&self) -> &[ClassId] {
        &self.class_at
    }

    fn find(&self, class: ClassId) -> Option<usize> {
        self.place_of.get(class.index()).filter(|&&place| place != NIL).map(|&place| place as usize)
    }

    fn place(&self, class: ClassId) -> usize {
        self.find(class).expect("the class is in the ring")
    }

    fn credit(&self, class: ClassId) -> u64 {
        self.find(class).map_or(0, |k| {
            let granted = self.index.as_ref().map_or(0, |index| index.granted(k));
            self.with_grants(k, granted)
        })
    }

    /// The credit of the class at a place with that many more grants. It saturates.
    fn with_grants(&self, k: usize, grants: u64) -> u64 {
        self.deficit[k].saturating_add(grants.saturating_mul(self.quantum[k]))
    }

    /// Brings the credit of the class at a place up to date; returns the grants that it still needs by the index.
    fn settle(&mut self, k: usize) -> Option<u64> {
        let (granted, needs) = self.index.as_mut()?.take_granted(k);
        self.deficit[k] = self.with_grants(k, granted);
        Some(needs)
    }

    /// Sets the leaf of a place by its credit and candidates.
    fn reseat(&mut self, k: usize) {
        if self.settle(k).is_none() {
            return;
        }
        let [open, closed] = [self.candidate[0][k], self.candidate[1][k]];
        let gated = closed == NONE;
        let cost = if gated { open } else { self.candidate(k) };
        let needs = (cost != NONE).then(|| cost.saturating_sub(self.deficit[k]).div_ceil(self.quantum[k]));
        if let Some(index) = &mut self.index {
            index.set(k, needs, gated);
        }
        if !gated && open != closed && !std::mem::replace(&mut self.is_mixed[k], true) {
            self.mixed[self.gate[k].0 as usize].push(k as u32);
        }
    }

    pub(super) fn deficit(&self, class: ClassId) -> u64 {
        self.credit(class)
    }

    /// Credit of a class per grant; 0 for a class that is not in the ring.
    pub(super) fn quantum(&self, class: ClassId) -> u64 {
        self.find(class).map_or(0, |k| self.quantum[k])
    }

    pub(super) fn is_open(&self, class: ClassId) -> bool {
        self.open[self.gate[self.place(class)].0 as usize]
    }

    pub(super) fn set_gate(&mut self, gate: GateId, open: bool) {
        let gate = gate.0 as usize;
        if std::mem::replace(&mut self.open[gate], open) == open || self.index.is_none() {
            return;
        }
        for i in (0..self.mixed[gate].len()).rev() {
            let k = self.mixed[gate][i] as usize;
            let [open, closed] = [self.candidate[0][k], self.candidate[1][k]];
            if closed == NONE || open == closed {
                self.is_mixed[k] = false;
                self.mixed[gate].swap_remove(i);
            } else {
                self.reseat(k);
            }
        }
    }

    /// Sets the cost of the class's candidate for an open and for a closed gate.
    pub(super) fn set_candidate(&mut self, class: ClassId, cost: [Option<u64>; 2]) {
        let k = self.place(class);
        for (candidate, cost) in self.candidate.iter_mut().zip(cost) {
            candidate[k] = cost.unwrap_or(NONE);
        }
        self.reseat(k);
    }

    /// Picks the class whose candidate goes next and grants the credit that this takes; `None`, and nothing
    /// changed, if no class has a candidate. The caller must [`charge`](Self::charge) the class.
    pub(super) fn pick(&mut self) -> Option<ClassId> {
        let winner = self.carried().or_else(|| match &self.index {
            None => self.scan().or_else(|| self.bulk()),
            Some(index) if index.uncountable == 0 => self.by_index(),
            Some(_) => self.despite_index(),
        })?;
        Some(self.class_at[winner])
    }

    /// Books a dispatch from `class`, whose candidate cost `cost`. A new candidate must be set before the next pick.
    pub(super) fn charge(&mut self, class: ClassId, cost: u64, still_waiting: bool) {
        let k = self.place(class);
        debug_assert!(cost <= self.deficit[k], "{class:?} was picked without the credit for it");
        self.deficit[k] = if still_waiting { self.deficit[k] - cost } else { 0 };
        self.carry = (self.deficit[k] > 0).then_some(k);
    }

    /// Takes all credit away.
    pub(super) fn forget_credit(&mut self) {
        self.deficit.fill(0);
        self.index = None;
    }

    /// Cuts the credit of a class that a request left without being dispatched: `best` is the cost of the best
    /// head that remains in it, `None` if nothing waits.
    pub(super) fn cut(&mut self, class: ClassId, best: Option<u64>) {
        let k = self.place(class);
        self.settle(k);
        self.deficit[k] = self.deficit[k].min(most_credit(self.quantum[k], best));
        self.reseat(k);
    }

    /// Places and nodes that decisions have visited so far.
    pub(super) fn steps(&self) -> u64 {
        self.visited + self.index.as_ref().map_or(0, Index::steps)
    }

    fn candidate(&self, k: usize) -> u64 {
        let closed = !self.open[self.gate[k].0 as usize];
        self.candidate[usize::from(closed)][k]
    }

    /// The last dispatch's class, while its credit lasts: one grant can be spent on a burst.
    fn carried(&self) -> Option<usize> {
        self.carry.filter(|&k| {
            let cost = self.candidate(k);
            cost != NONE && cost <= self.deficit[k]
        })
    }

    /// Once around: the first class that can afford its candidate, with one grant at most. A winner that needed no
    /// grant is still owed the one of this round, so the cursor waits at it.
    fn scan(&mut self) -> Option<usize> {
        let n = self.deficit.len();
        for k in (self.cursor..n).chain(0..self.cursor) {
            self.visited += 1;
            let cost = self.candidate(k);
            if cost == NONE {
                continue;
            }
            if self.deficit[k] >= cost {
                self.cursor = k;
                return Some(k);
            }
            self.deficit[k] = self.deficit[k].saturating_add(self.quantum[k]);
            if self.deficit[k] >= cost {
                self.cursor = if k + 1 == n { 0 } else { k + 1 };
                return Some(k);
            }
        }
        None
    }

    /// All rounds that the nearest class still needs, at once, for every class with a candidate.
    ///
    /// Runs after a fruitless scan: no candidate is affordable.
    fn bulk(&mut self) -> Option<usize> {
        let n = self.deficit.len();
        self.visited += 3 * n as u64;
        let rounds = (0..n)
            .filter(|&k| self.candidate(k) != NONE)
            .map(|k| (self.candidate(k) - self.deficit[k]).div_ceil(self.quantum[k]))
            .min()?;
        for k in 0..n {
            if self.candidate(k) != NONE {
                let credit = rounds.saturating_mul(self.quantum[k]);
                self.deficit[k] = self.deficit[k].saturating_add(credit);
            }
        }
        (self.cursor..n)
            .chain(0..self.cursor)
            .find(|&k| self.candidate(k) != NONE && self.candidate(k) <= self.deficit[k])
    }

    /// Scan, bulk credit and last scan by the index.
    fn by_index(&mut self) -> Option<usize> {
        let (n, cursor) = (self.deficit.len(), self.cursor);
        let Self { index: Some(index), open, .. } = self else { return None };
        let before_end = index.first(cursor, n, 1, open);
        let winner = before_end.or_else(|| index.first(0, cursor, 1, open));
        let Some(k) = winner else {
            // A scan without a winner grants one to each, bulk credit the rest.
            let least = index.least(open)?;
            index.grant_all(least, open);
            let winner = index.first(cursor, n, 0, open).or_else(|| index.first(0, cursor, 0, open));
            self.settle(winner.expect("one needs no grant any more"));
            return winner;
        };
        if before_end.is_some() {
            index.grant(cursor, k, open);
        } else {
            index.grant(cursor, n, open);
            index.grant(0, k, open);
        }
        self.cursor = k;
        if self.settle(k) == Some(1) {
            self.deficit[k] = self.with_grants(k, 1);
            self.cursor = if k + 1 == n { 0 } else { k + 1 };
        }
        Some(k)
    }

    /// The same by scanning, for once: a class needs as many grants as stand for none in the index.
    #[cold]
    fn despite_index(&mut self) -> Option<usize> {
        for k in 0..self.deficit.len() {
            self.settle(k);
        }
        let winner = self.scan().or_else(|| self.bulk());
        for k in 0..self.deficit.len() {
            self.reseat(k);
        }
        winner
    }
}
