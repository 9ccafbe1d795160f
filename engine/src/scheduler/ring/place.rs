//! What the ring keeps of one class.

use super::{Member, NONE};
use crate::policy::ClassId;
use crate::scheduler::pool::GateId;
use crate::scheduler::slab::NIL;

/// Where a class is noted in the calendar of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// As the only one of its group, whenever it is due.
    Alone,
    /// By a bit: due when the sweep passes it in this round, or before.
    Soon,
    /// By a bit: due one round later. Since then that round may have begun.
    Next,
    /// In the tournament: due later still.
    Later,
    /// Nowhere: it has no candidate.
    None,
}

/// One class in the ring \[deficit, quantum and cost in tokens\]: one cache line.
///
/// Passes of the sweep are counted modulo 2⁶⁴. No class needs more than 2⁶⁴ − 1 of them, so `settled` ≤ passes now
/// ≤ `due` ≤ `settled` + 2⁶⁴ − 1 while it is noted, and differences are exact.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Place {
    pub(super) deficit: u64,
    pub(super) quantum: u64,
    /// Cost of the candidate, [`NONE`] without one.
    pub(super) cost: u64,
    /// Passes up to which the deficit is worked out, but for a class between its pick and its charge.
    pub(super) settled: u64,
    /// Passes after which the class can pay for its candidate.
    pub(super) due: u64,
    /// Slot of the candidate.
    pub(super) slot: u32,
    /// Number of the place among those of its gate.
    pub(super) member: u32,
    /// Group in whose calendar the class is noted.
    pub(super) group: u32,
    pub(super) gate: GateId,
    pub(super) class: ClassId,
    pub(super) note: Note,
    /// The place is in the list of its gate's mixed ones.
    pub(super) listed: bool,
}

impl Place {
    /// A class without a candidate.
    pub(super) fn new(member: &Member, deficit: u64, number: u32, group: u32) -> Self {
        let Member { class, quantum, gate, .. } = *member;
        Self {
            deficit,
            quantum,
            cost: NONE,
            settled: 0,
            due: 0,
            slot: NIL,
            member: number,
            group,
            gate,
            class,
            note: Note::None,
            listed: false,
        }
    }

    /// The credit of the class after so many passes. It saturates.
    #[inline(always)]
    pub(super) fn credit(&self, passes: u64) -> u64 {
        if self.note == Note::None || passes == self.settled {
            return self.deficit;
        }
        self.credit_if_noted(passes)
    }

    /// The same of a class that is noted.
    #[inline(always)]
    fn credit_if_noted(&self, passes: u64) -> u64 {
        let granted = passes.wrapping_sub(self.settled);
        self.deficit.saturating_add(granted.saturating_mul(self.quantum))
    }

    /// Works out the credit that the class, which is noted, has when it is due.
    #[inline(always)]
    pub(super) fn settle_as_due(&mut self) {
        debug_assert_ne!(self.note, Note::None);
        self.deficit = self.credit_if_noted(self.due);
        self.settled = self.due;
    }

    /// Works out the credit of the class.
    #[inline(always)]
    pub(super) fn settle(&mut self, passes: u64) {
        self.deficit = self.credit(passes);
        self.settled = passes;
    }

    /// Grants that the class needs until it can pay for its candidate.
    #[inline(always)]
    pub(super) fn grants(&self) -> u64 {
        let lacking = self.cost.saturating_sub(self.deficit);
        // A division costs more than all the rest, and is needed by requests larger than their quantum only.
        match lacking {
            0 => 0,
            _ if lacking <= self.quantum => 1,
            _ => lacking.div_ceil(self.quantum),
        }
    }
}
