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

use calendar::{ALWAYS, Calendar, Note, Noted, Places};

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
    noted: Noted,
    gate: GateId,
    /// The place is in the list of its gate's mixed ones.
    listed: bool,
}

/// The group of the other classes behind a gate.
fn group_of(gate: GateId) -> u32 {
    1 + gate.0
}

impl Place {
    /// The credit of the class after so many grants. It saturates.
    #[inline]
    fn credit(&self, passes: u128) -> u64 {
        if self.noted.note == Note::None || passes == self.settled {
            return self.deficit;
        }
        let granted = u64::try_from(passes - self.settled).unwrap_or(u64::MAX);
        self.deficit.saturating_add(granted.saturating_mul(self.quantum))
    }

    /// Grants that the class needs until it can pay `cost`.
    #[inline]
    fn grants(&self, cost: u64) -> u128 {
        let lacking = cost.saturating_sub(self.deficit);
        // A division costs more than all the rest, and is needed by requests larger than their quantum only.
        let grants = match lacking {
            0 => 0,
            _ if lacking <= self.quantum => 1,
            _ => lacking.div_ceil(self.quantum),
        };
        u128::from(grants)
    }

    /// Works out the credit of the class.
    #[inline]
    fn settle(&mut self, passes: u128) {
        self.deficit = self.credit(passes);
        self.settled = passes;
    }
}

/// The places as a calendar sees them.
#[derive(Clone, Debug, Default)]
struct Ledger {
    all: Vec<Place>,
    /// Position of each in the heap of its calendar: dense, because a heap that is sifted writes many.
    positions: Vec<u32>,
}

impl Positions for Ledger {
    fn place(&mut self, item: u32, at: u32) {
        self.positions[item as usize] = at;
    }
}

impl Places for Ledger {
    #[inline]
    fn noted(&mut self, place: usize) -> &mut Noted {
        &mut self.all[place].noted
    }

    fn position(&self, place: usize) -> u32 {
        self.positions[place]
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
    pub(super) place: u32,
    /// Slot of its candidate.
    pub(super) slot: u32,
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
            noted: Noted::NOWHERE,
            gate: m.gate,
            listed: false,
        };
        let mut ring = Self {
            places: Ledger { all: members.iter().map(place).collect(), positions: vec![NIL; n] },
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
                ring.places.all[place as usize].noted.member = number;
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
        self.find(class).map_or(0, |k| self.places.all[k].credit(self.passes(k)))
    }

    /// Credit per grant \[tokens\]; 0 for a class that is not in the ring.
    pub(super) fn quantum(&self, class: ClassId) -> u64 {
        self.find(class).map_or(0, |k| self.places.all[k].quantum)
    }

    /// Grants that the class at a place has had by now, from some beginning on.
    #[inline]
    fn passes(&self, k: usize) -> u128 {
        let place = &self.places.all[k];
        self.groups[place.noted.group as usize].passes(k, self.cursor, &place.noted)
    }

    /// Works out the credit of the class at a place.
    #[inline]
    fn settle(&mut self, k: usize) {
        let passes = self.passes(k);
        self.places.all[k].settle(passes);
    }

    /// Notes the class at a place, whose credit is worked out, by that and its candidates.
    #[inline(always)]
    fn renote(&mut self, k: usize) {
        let Self { places, groups, .. } = self;
        let place = &mut places.all[k];
        let [open, closed] = place.candidate;
        if closed != NONE || place.noted.group == ALWAYS {
            return self.renote_unusual(k);
        }
        let group = &mut groups[place.noted.group as usize];
        if open == NONE {
            return group.forget(k, places);
        }
        place.noted.due = place.settled + place.grants(open);
        group.note(k, places);
    }

    /// The same for a class that has a candidate even if its gate is closed, or had one.
    #[inline(never)]
    fn renote_unusual(&mut self, k: usize) {
        let Self { places, groups, mixed, cursor, .. } = self;
        let place = &mut places.all[k];
        let [open, closed] = place.candidate;
        let always = closed != NONE;
        let cost = if always && !groups[group_of(place.gate) as usize].open { closed } else { open };
        if cost == NONE {
            return groups[place.noted.group as usize].forget(k, places);
        }
        let group = if always { ALWAYS } else { group_of(place.gate) };
        if place.noted.group != group {
            groups[place.noted.group as usize].forget(k, places);
            let place = &mut places.all[k];
            place.noted.group = group;
            place.settled = groups[group as usize].passes(k, *cursor, &place.noted);
        }
        let place = &mut places.all[k];
        place.noted.due = place.settled + place.grants(cost);
        if always && open != closed && !std::mem::replace(&mut place.listed, true) {
            mixed[place.gate.0 as usize].push(k as u32);
        }
        groups[group as usize].note(k, places);
    }

    fn gate_is_open(&self, gate: GateId) -> bool {
        self.groups[group_of(gate) as usize].open
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
            let [open, closed] = self.places.all[k].candidate;
            if closed == NONE || open == closed {
                self.places.all[k].listed = false;
                self.mixed[gate].swap_remove(i);
            } else {
                self.settle(k);
                self.renote(k);
            }
        }
    }

    /// Sets the slot and the cost of the class's candidate for an open and for a closed gate, [`NONE`] without one.
    pub(super) fn set_candidate(&mut self, class: ClassId, slots: [u32; 2], cost: [u64; 2]) {
        let k = self.place(class);
        self.settle(k);
        (self.places.all[k].slots, self.places.all[k].candidate) = (slots, cost);
        self.renote(k);
    }

    /// Picks the class whose candidate goes next and grants the credit that this takes; `None`, and nothing
    /// changed, if no class has a candidate. The caller must [`charge`](Self::charge) the class.
    #[inline]
    pub(super) fn pick(&mut self) -> Option<Winner> {
        let place = match self.carried() {
            Some(place) => place,
            None => self.scan()?,
        };
        let slot = self.places.all[place].slots[self.side(place)];
        Some(Winner { place: place as u32, slot })
    }

    /// Which candidate of the class at a place counts: that for an open gate, or that for a closed one.
    #[inline]
    fn side(&self, k: usize) -> usize {
        let place = &self.places.all[k];
        // A class in the group of its gate has no other.
        usize::from(place.noted.group == ALWAYS && !self.gate_is_open(place.gate))
    }

    /// Books a dispatch of the picked class, whose candidate cost `cost`. A new candidate must be set before the next
    /// pick.
    #[inline]
    pub(super) fn charge(&mut self, place: u32, cost: u64, still_waiting: bool) {
        let place = place as usize;
        let deficit = &mut self.places.all[place].deficit;
        debug_assert!(cost <= *deficit, "place {place} was picked without the credit for it");
        *deficit = if still_waiting { *deficit - cost } else { 0 };
        self.carry = (*deficit > 0).then_some(place);
    }

    /// The same with the next candidate of the class, its slot and cost, if that depends on the gate only.
    #[inline(never)]
    pub(super) fn serve(
        &mut self,
        place: u32,
        cost: u64,
        still_waiting: bool,
        (next, next_cost): (u32, u64),
    ) {
        self.charge(place, cost, still_waiting);
        let k = place as usize;
        debug_assert_eq!(self.places.all[k].settled, self.passes(k), "a class is settled when it is picked");
        let place = &mut self.places.all[k];
        (place.slots, place.candidate) = ([next, NIL], [next_cost, NONE]);
        self.renote(k);
    }

    /// Takes all credit away.
    pub(super) fn forget_credit(&mut self) {
        for place in &mut self.places.all {
            (place.deficit, place.noted.note) = (0, Note::None);
        }
    }

    /// Cuts the credit of a class that a request left without being dispatched: `best` is the cost of the best
    /// head that remains in it, `None` if nothing waits.
    pub(super) fn cut(&mut self, class: ClassId, best: Option<u64>) {
        let k = self.place(class);
        self.settle(k);
        let place = &mut self.places.all[k];
        place.deficit = place.deficit.min(most_credit(place.quantum, best));
        self.renote(k);
    }

    /// Words, nodes and places that decisions have looked at so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps + self.groups.iter().map(|group| group.steps).sum::<u64>()
    }

    /// The last dispatch's class, while its credit lasts: one grant can be spent on a burst.
    #[inline]
    fn carried(&self) -> Option<usize> {
        self.carry.filter(|&k| {
            let place = &self.places.all[k];
            let cost = place.candidate[usize::from(!self.gate_is_open(place.gate))];
            // Its credit was worked out when it was charged, and nothing has been granted since.
            cost != NONE && cost <= place.deficit
        })
    }

    /// Once around: the first class that can pay with one grant at most, its credit worked out. What is left of this
    /// round, then the next one up to the cursor.
    #[inline(never)]
    fn scan(&mut self) -> Option<usize> {
        let end = self.places.all.len();
        let k = match self.first(self.cursor, end) {
            Some(k) => k,
            None => {
                if self.groups.iter().all(|group| !group.open || group.is_empty()) {
                    return None;
                }
                self.advance(1);
                match self.first(0, self.cursor) {
                    Some(k) => k,
                    // Now each has been granted one.
                    None => return self.bulk(),
                }
            }
        };
        self.sweep_to(k);
        Some(k)
    }

    /// All rounds that the nearest class still needs, at once, for every class with a candidate: the first that can pay
    /// then. The sweep stays where it is.
    fn bulk(&mut self) -> Option<usize> {
        let end = self.places.all.len();
        let k = loop {
            // Who is still before the sweep and lacks only the grant of this round gets it with the next whole round.
            if let Some(k) = self.first(self.cursor, end) {
                self.advance(1);
                break k;
            }
            let open = self.groups.iter_mut().filter(|group| group.open);
            let rounds = open.filter_map(Calendar::least).min()?;
            self.advance(rounds - 1);
            if let Some(k) = self.first(0, self.cursor) {
                break k;
            }
        };
        self.settle(k);
        Some(k)
    }

    /// Moves the sweep to a class that it picks. One that needs no grant is still owed that of this round, so the
    /// sweep waits at it.
    fn sweep_to(&mut self, k: usize) {
        self.cursor = k;
        let place = &mut self.places.all[k];
        let group = &self.groups[place.noted.group as usize];
        let passes = group.passes(k, k, &place.noted);
        if passes >= place.noted.due {
            place.settle(passes);
        } else {
            place.settle(passes + 1);
            self.cursor = k + 1;
            if self.cursor == self.places.all.len() {
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
