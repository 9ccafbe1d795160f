//! Deficit round robin over the classes: who is next, and what it is charged.
//!
//! The cursor is where the sweep of grants stands: every class before it has had its grant of this round, every class
//! behind it has not. It moves when a class is passed with a grant and at no other time, so over any interval the
//! grants of two classes that always had a candidate differ by at most one, however the requests are picked.
//!
//! Grants are not handed out one by one. A class is asked how many it needs when its candidate changes, and noted in the
//! `calendar` for the round in which it will have had them; the credit is worked out when it is asked for. So the next
//! class is the next bit of a set, whatever the size of the request, and it takes one step to get past all classes
//! that have nothing to send.
//!
//! The ring knows of each class only its quantum, its deficit, and the cost of its candidate. A class may have
//! two candidates, one for when its pool gate is open and one for when it is closed (then only pinned and
//! constrained requests may go); a gate that flips touches only the classes whose candidates differ and that have both.

mod bits;
mod calendar;

use super::heap::Positions;
use super::pool::GateId;
use super::slab::NIL;
use crate::policy::ClassId;

use calendar::{Calendar, Note, Places};

/// Cost of a candidate that is not there. Real costs are at least 1.
pub(super) const NONE: u64 = 0;

/// Most credit that a class may keep when its requests leave or its quantum changes: `best` is the cost of its best
/// head, `None` if nothing waits.
pub(super) fn most_credit(quantum: u64, best: Option<u64>) -> u64 {
    best.map_or(0, |cost| cost.max(quantum))
}

/// One class in the ring \[deficit, quantum and costs in tokens\].
#[derive(Clone, Debug)]
struct Place {
    deficit: u64,
    quantum: u64,
    /// Cost of the candidate while the gate is open, and while it is closed.
    candidate: [u64; 2],
    /// Their slots.
    slots: [u32; 2],
    /// Grants up to which the deficit is worked out.
    settled: u128,
    /// Grants after which the class can pay for its candidate.
    due: u128,
    class: ClassId,
    gate: GateId,
    /// Number of the place among those of its gate.
    member: u32,
    note: Note,
    /// The class is noted among those that have a candidate whether their gate is open or not.
    always: bool,
    /// The place is in the list of its gate's mixed ones.
    listed: bool,
}

impl Place {
    /// Group in whose calendar the class is noted.
    fn group(&self) -> usize {
        if self.always { 0 } else { 1 + self.gate.0 as usize }
    }
}

/// The places as a calendar sees them.
#[derive(Clone, Debug, Default)]
struct Ledger(Vec<Place>);

impl Positions for Ledger {
    fn place(&mut self, item: u32, at: u32) {
        self.0[item as usize].note = Note::Later(at);
    }
}

impl Places for Ledger {
    fn member(&self, place: usize) -> usize {
        self.0[place].member as usize
    }

    fn due(&self, place: usize) -> u128 {
        self.0[place].due
    }

    fn note(&mut self, place: usize) -> &mut Note {
        &mut self.0[place].note
    }
}

/// The state of the arbitration.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    places: Ledger,
    /// The classes that have a candidate whether their gate is open or not, then the others, by gate.
    groups: Vec<Calendar>,
    cursor: usize,
    /// The place of the last dispatch, while it has credit left.
    carry: Option<usize>,
    class_at: Vec<ClassId>,
    /// By class number.
    place_of: Vec<u32>,
    /// Places, by gate, whose candidates with an open and with a closed gate differ (and others that were so).
    mixed: Vec<Vec<u32>>,
    /// Steps of calendars that are gone.
    steps: u64,
}

/// The class that goes next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Winner {
    /// Its place in the ring.
    pub(super) place: usize,
    pub(super) class: ClassId,
    /// Slot of its candidate, and what that costs \[tokens\].
    pub(super) slot: u32,
    pub(super) cost: u64,
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
    pub(super) fn rebuilt(&self, members: &[Member], gates: usize) -> Self {
        let n = members.len();
        let classes = members.iter().map(|m| m.class.index() + 1).max().unwrap_or(0);
        let mut of_gate = vec![Vec::new(); gates];
        for (place, member) in (0u32..).zip(members) {
            of_gate[member.gate.0 as usize].push(place);
        }
        let place = |m: &Member| Place {
            deficit: self.deficit(m.class).min(m.most),
            quantum: m.quantum,
            candidate: [NONE; 2],
            slots: [NIL; 2],
            settled: 0,
            due: 0,
            class: m.class,
            gate: m.gate,
            member: 0,
            note: Note::None,
            always: true,
            listed: false,
        };
        let mut ring = Self {
            places: Ledger(members.iter().map(place).collect()),
            groups: vec![Calendar::of_all(n)],
            cursor: 0,
            carry: None,
            class_at: members.iter().map(|m| m.class).collect(),
            place_of: vec![NIL; classes],
            mixed: vec![Vec::new(); gates],
            steps: self.steps(),
        };
        for (place, member) in (0u32..).zip(members) {
            ring.place_of[member.class.index()] = place;
        }
        for places in of_gate {
            for (number, &place) in (0u32..).zip(&places) {
                ring.places.0[place as usize].member = number;
            }
            ring.groups.push(Calendar::of(places, n));
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

    /// Credit of a class \[tokens\]; 0 for a class that is not in the ring.
    pub(super) fn deficit(&self, class: ClassId) -> u64 {
        self.find(class).map_or(0, |k| self.credit(k, self.passes(k)))
    }

    /// Credit per grant \[tokens\]; 0 for a class that is not in the ring.
    pub(super) fn quantum(&self, class: ClassId) -> u64 {
        self.find(class).map_or(0, |k| self.places.0[k].quantum)
    }

    /// Grants that the class at a place has had by now, from some beginning on.
    fn passes(&self, k: usize) -> u128 {
        self.groups[self.places.0[k].group()].passes(k, self.cursor, &self.places)
    }

    /// The credit of the class at a place after so many grants. It saturates.
    fn credit(&self, k: usize, passes: u128) -> u64 {
        let place = &self.places.0[k];
        if place.note == Note::None || passes == place.settled {
            return place.deficit;
        }
        let granted = u64::try_from(passes - place.settled).unwrap_or(u64::MAX);
        place.deficit.saturating_add(granted.saturating_mul(place.quantum))
    }

    /// Works out the credit of the class at a place; returns the grants that it has had.
    fn settle(&mut self, k: usize) -> u128 {
        let passes = self.passes(k);
        self.places.0[k].deficit = self.credit(k, passes);
        self.places.0[k].settled = passes;
        passes
    }

    /// Notes the class at a place by its credit and candidates.
    fn renote(&mut self, k: usize) {
        let mut passes = self.settle(k);
        let Self { places, groups, mixed, cursor, .. } = self;
        let place = &mut places.0[k];
        let [open, closed] = place.candidate;
        let gate = place.gate.0;
        let always = closed != NONE;
        let cost = if always && !groups[1 + gate as usize].open { closed } else { open };
        if cost == NONE {
            groups[place.group()].forget(k, places);
            return;
        }
        if place.always != always {
            groups[place.group()].forget(k, places);
            places.0[k].always = always;
            passes = groups[places.0[k].group()].passes(k, *cursor, places);
        }
        let place = &mut places.0[k];
        place.settled = passes;
        let lacking = cost.saturating_sub(place.deficit);
        // A division costs more than all the rest, and is needed by requests larger than their quantum only.
        let grants = match lacking {
            0 => 0,
            _ if lacking <= place.quantum => 1,
            _ => lacking.div_ceil(place.quantum),
        };
        place.due = passes + u128::from(grants);
        if always && open != closed && !std::mem::replace(&mut place.listed, true) {
            mixed[gate as usize].push(k as u32);
        }
        groups[place.group()].note(k, places);
    }

    fn gate_is_open(&self, k: usize) -> bool {
        self.groups[1 + self.places.0[k].gate.0 as usize].open
    }

    pub(super) fn set_gate(&mut self, gate: GateId, open: bool) {
        let gate = gate.0 as usize;
        let Self { groups, places, cursor, .. } = self;
        if groups[1 + gate].open == open {
            return;
        }
        groups[1 + gate].set_open(open, *cursor, places);
        for i in (0..self.mixed[gate].len()).rev() {
            let k = self.mixed[gate][i] as usize;
            let [open, closed] = self.places.0[k].candidate;
            if closed == NONE || open == closed {
                self.places.0[k].listed = false;
                self.mixed[gate].swap_remove(i);
            } else {
                self.renote(k);
            }
        }
    }

    /// Sets the slot and the cost of the class's candidate for an open and for a closed gate, [`NONE`] without one.
    pub(super) fn set_candidate(&mut self, class: ClassId, slots: [u32; 2], cost: [u64; 2]) {
        let k = self.place(class);
        (self.places.0[k].slots, self.places.0[k].candidate) = (slots, cost);
        self.renote(k);
    }

    /// Picks the class whose candidate goes next and grants the credit that this takes; `None`, and nothing
    /// changed, if no class has a candidate. The caller must [`charge`](Self::charge) the class.
    pub(super) fn pick(&mut self) -> Option<Winner> {
        let place = match self.carried() {
            Some(place) => place,
            None => {
                let place = self.scan().or_else(|| self.bulk())?;
                self.settle(place);
                place
            }
        };
        let Place { class, slots, candidate, .. } = self.places.0[place];
        let gate = usize::from(!self.gate_is_open(place));
        Some(Winner { place, class, slot: slots[gate], cost: candidate[gate] })
    }

    /// Books a dispatch of the picked class, whose candidate cost `cost`. A new candidate must be set before the next
    /// pick.
    pub(super) fn charge(&mut self, place: usize, cost: u64, still_waiting: bool) {
        let deficit = &mut self.places.0[place].deficit;
        debug_assert!(cost <= *deficit, "place {place} was picked without the credit for it");
        *deficit = if still_waiting { *deficit - cost } else { 0 };
        self.carry = (*deficit > 0).then_some(place);
    }

    /// Takes all credit away.
    pub(super) fn forget_credit(&mut self) {
        for place in &mut self.places.0 {
            (place.deficit, place.note) = (0, Note::None);
        }
    }

    /// Cuts the credit of a class that a request left without being dispatched: `best` is the cost of the best
    /// head that remains in it, `None` if nothing waits.
    pub(super) fn cut(&mut self, class: ClassId, best: Option<u64>) {
        let k = self.place(class);
        self.settle(k);
        let place = &mut self.places.0[k];
        place.deficit = place.deficit.min(most_credit(place.quantum, best));
        self.renote(k);
    }

    /// Words, nodes and places that decisions have looked at so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps + self.groups.iter().map(|group| group.steps).sum::<u64>()
    }

    /// The last dispatch's class, while its credit lasts: one grant can be spent on a burst.
    fn carried(&self) -> Option<usize> {
        self.carry.filter(|&k| {
            let place = &self.places.0[k];
            let cost = place.candidate[usize::from(!self.gate_is_open(k))];
            // Its credit was worked out when it was charged, and nothing has been granted since.
            cost != NONE && cost <= place.deficit
        })
    }

    /// Once around: the first class that can pay with one grant at most. What is left of this round, then the next one
    /// up to the cursor. `None` has granted one to each, if any class has a candidate.
    fn scan(&mut self) -> Option<usize> {
        let end = self.places.0.len();
        if let Some(k) = self.first(self.cursor, end) {
            self.sweep_to(k);
            return Some(k);
        }
        if self.groups.iter().all(|group| !group.open || group.is_empty()) {
            return None;
        }
        self.advance(1);
        let k = self.first(0, self.cursor)?;
        self.sweep_to(k);
        Some(k)
    }

    /// All rounds that the nearest class still needs, at once, for every class with a candidate: the first that can pay
    /// then. The sweep stays where it is.
    fn bulk(&mut self) -> Option<usize> {
        let end = self.places.0.len();
        loop {
            // Who is still before the sweep and lacks only the grant of this round gets it with the next whole round.
            if let Some(k) = self.first(self.cursor, end) {
                self.advance(1);
                return Some(k);
            }
            let open = self.groups.iter_mut().filter(|group| group.open);
            let rounds = open.filter_map(Calendar::least).min()?;
            self.advance(rounds - 1);
            if let Some(k) = self.first(0, self.cursor) {
                return Some(k);
            }
        }
    }

    /// Moves the sweep to a class that it picks. One that needs no grant is still owed that of this round, so the
    /// sweep waits at it.
    fn sweep_to(&mut self, k: usize) {
        self.cursor = k;
        if self.groups[self.places.0[k].group()].needs_this_pass(k, &self.places) {
            self.cursor = k + 1;
            if self.cursor == self.places.0.len() {
                self.cursor = 0;
                self.advance(1);
            }
        }
    }

    /// The first of the places `from..to` that can pay when the sweep passes it in this round.
    fn first(&mut self, from: usize, to: usize) -> Option<usize> {
        let Self { groups, places, .. } = self;
        let mut first = None;
        for group in groups.iter_mut().filter(|group| group.open && !group.is_empty()) {
            first = group.first(from, first.unwrap_or(to), places).or(first);
        }
        first
    }

    /// Lets rounds pass for all who take part.
    fn advance(&mut self, rounds: u128) {
        let Self { groups, places, .. } = self;
        for group in groups.iter_mut().filter(|group| group.open) {
            group.advance(rounds, places);
        }
    }
}
