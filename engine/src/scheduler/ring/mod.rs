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
mod later;
mod place;
mod sweep;
#[cfg(test)]
mod tests;

use std::ops::Range;

use super::pool::GateId;
use super::slab::{Head, NIL};
use crate::policy::ClassId;
use crate::sync::prefetch;

use calendar::{ALWAYS, Calendar};
use place::{Note, Place};

/// Cost of a candidate that is not there. Real costs are at least 1.
pub(super) const NONE: u64 = 0;

/// Most credit that a class may keep when its requests leave or its quantum changes: `best` is the cost of its best
/// head, `None` if nothing waits.
pub(super) fn most_credit(quantum: u64, best: Option<u64>) -> u64 {
    best.map_or(0, |cost| cost.max(quantum))
}

/// The group of the classes behind a gate that have no candidate while it is closed.
fn group_of(gate: GateId) -> u32 {
    1 + gate.0
}

/// What a class would send: a request, and what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) slot: u32,
    /// \[tokens\].
    pub(super) cost: u64,
}

impl Offer {
    /// Nothing.
    pub(super) const NONE: Self = Self { slot: NIL, cost: NONE };
}

/// The state of the arbitration.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    places: Vec<Place>,
    /// The classes that have a candidate whether their gate is open or not, then the others, by gate.
    groups: Vec<Calendar>,
    /// Groups that take part and in which somebody is noted.
    live: Vec<u32>,
    /// The only one of these, or [`NIL`].
    sole: u32,
    cursor: usize,
    /// The place of the last dispatch while it has credit left, or [`NIL`].
    carry: u32,
    /// The place to look ahead at, where it pays, or [`NIL`].
    ahead: u32,
    /// The place to go on from when it is looked ahead again, or [`NIL`].
    frontier: u32,
    /// The place to look ahead at, if classes are not picked in the order of the ring, or [`NIL`].
    scattered: u32,
    /// By place, of the classes that have a candidate whether their gate is open or not: for an open gate, and for a closed one.
    offers: Vec<[Offer; 2]>,
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
    pub(super) class: ClassId,
    /// Slot of its candidate.
    pub(super) slot: u32,
    /// What it can spend \[tokens\]; its deficit is still to be set.
    pub(super) credit: u64,
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
        let mut places = Vec::with_capacity(n);
        for (place, m) in (0u32..).zip(members) {
            let others = &mut of_gate[m.gate.0 as usize];
            let deficit = self.deficit(m.class).min(m.most);
            places.push(Place::new(m, deficit, others.len() as u32, group_of(m.gate)));
            others.push(place);
        }
        let of_gate = of_gate.into_iter().map(|places| Calendar::of(places, n));
        let mut ring = Self {
            places,
            groups: [Calendar::of_all(n)].into_iter().chain(of_gate).collect(),
            live: Vec::new(),
            sole: NIL,
            cursor: 0,
            carry: NIL,
            ahead: NIL,
            frontier: NIL,
            scattered: NIL,
            offers: vec![[Offer::NONE; 2]; n],
            class_at: members.iter().map(|m| m.class).collect(),
            place_of: vec![NIL; classes],
            mixed: vec![Vec::new(); gates],
            steps: self.steps(),
        };
        for (place, member) in (0u32..).zip(members) {
            ring.place_of[member.class.index()] = place;
        }
        let onwards = self.class_at[self.cursor..].iter().chain(&self.class_at[..self.cursor]);
        ring.cursor = onwards.filter_map(|&class| ring.find(class)).next().unwrap_or(0);
        let carry = self.class_at.get(self.carry as usize).and_then(|&class| ring.find(class));
        ring.carry = carry.map_or(NIL, |k| k as u32);
        ring
    }

    /// Classes in ring order.
    pub(super) fn classes(&self) -> &[ClassId] {
        &self.class_at
    }

    fn find(&self, class: ClassId) -> Option<usize> {
        self.place_of.get(class.index()).filter(|&&place| place != NIL).map(|&place| place as usize)
    }

    /// Place of a class.
    ///
    /// # Panics
    /// If the class is not in the ring.
    #[inline]
    pub(super) fn place(&self, class: ClassId) -> usize {
        self.find(class).expect("the class is in the ring")
    }

    /// Asks for what is known of a class to be brought near.
    pub(super) fn prefetch(&self, class: ClassId) {
        prefetch(&self.places[self.place(class)]);
    }

    /// Credit of a class \[tokens\]; 0 for a class that is not in the ring.
    pub(super) fn deficit(&self, class: ClassId) -> u64 {
        self.find(class).map_or(0, |k| self.places[k].credit(self.passes(k)))
    }

    /// Credit per grant \[tokens\]; 0 for a class that is not in the ring.
    pub(super) fn quantum(&self, class: ClassId) -> u64 {
        self.find(class).map_or(0, |k| self.places[k].quantum)
    }

    /// Grants that the class at a place has had by now, from some beginning on.
    #[inline]
    fn passes(&self, k: usize) -> u64 {
        let place = &self.places[k];
        self.groups[place.group as usize].passes(k, self.cursor, place)
    }

    /// Works out the credit of the class at a place.
    #[inline]
    fn settle(&mut self, k: usize) {
        let passes = self.passes(k);
        self.places[k].settle(passes);
    }

    /// Notes the class at a place, whose credit is worked out, by that and its candidate.
    #[inline(always)]
    fn note(&mut self, k: usize) {
        let place = &mut self.places[k];
        let group = &mut self.groups[place.group as usize];
        if place.cost == NONE || !group.note_quickly(k, place) {
            self.note_anew(k);
        }
    }

    #[inline(never)]
    fn note_anew(&mut self, k: usize) {
        let Place { group, cost, .. } = self.places[k];
        let calendar = &mut self.groups[group as usize];
        match cost {
            NONE => calendar.forget(k, &mut self.places),
            _ => calendar.note(k, &mut self.places),
        }
        if calendar.is_live() != (calendar.listed != NIL) {
            self.list(group);
        }
    }

    /// Puts a group into the list of live ones or takes it out, if it is not where it belongs.
    fn list(&mut self, group: u32) {
        let Self { groups, live, .. } = self;
        let calendar = &mut groups[group as usize];
        match (calendar.is_live(), calendar.listed) {
            (true, NIL) => {
                calendar.listed = live.len() as u32;
                live.push(group);
            }
            (false, at) if at != NIL => {
                calendar.listed = NIL;
                live.swap_remove(at as usize);
                if let Some(&moved) = live.get(at as usize) {
                    groups[moved as usize].listed = at;
                }
            }
            _ => {}
        }
        self.sole = if let [group] = live[..] { group } else { NIL };
    }

    fn gate_is_open(&self, gate: GateId) -> bool {
        self.groups[group_of(gate) as usize].open
    }

    pub(super) fn set_gate(&mut self, gate: GateId, open: bool) {
        if self.gate_is_open(gate) == open {
            return;
        }
        let group = group_of(gate);
        self.groups[group as usize].set_open(open, self.cursor, &mut self.places);
        self.list(group);
        let gate = gate.0 as usize;
        for i in (0..self.mixed[gate].len()).rev() {
            let k = self.mixed[gate][i] as usize;
            let [open, closed] = self.offers[k];
            if self.places[k].group != ALWAYS || open.slot == closed.slot {
                self.places[k].listed = false;
                self.mixed[gate].swap_remove(i);
            } else {
                self.settle(k);
                self.choose(k);
            }
        }
    }

    /// Sets the candidates of a class for an open and for a closed gate.
    // Two values and no array: so they come in registers.
    pub(super) fn set_candidates(&mut self, class: ClassId, open: Offer, closed: Offer) {
        let k = self.place(class);
        self.settle(k);
        self.set(k, open, closed);
    }

    /// The same for the class at a place, whose credit is worked out.
    #[inline(never)]
    fn set(&mut self, k: usize, open: Offer, closed: Offer) {
        let place = &mut self.places[k];
        if closed.cost != NONE || place.group == ALWAYS {
            return self.set_unusual(k, open, closed);
        }
        (place.slot, place.cost) = (open.slot, open.cost);
        self.note(k);
    }

    /// The same for a class that has a candidate even if its gate is closed, or had one.
    #[inline(never)]
    fn set_unusual(&mut self, k: usize, open: Offer, closed: Offer) {
        self.offers[k] = [open, closed];
        let place = &mut self.places[k];
        if open.cost == NONE && closed.cost == NONE {
            // It stays in its group: a load change often takes a candidate away only to bring it back.
            (place.slot, place.cost) = (NIL, NONE);
            return self.note_anew(k);
        }
        let (before, gate) = (place.group, place.gate);
        let group = if closed.cost != NONE { ALWAYS } else { group_of(gate) };
        if before != group {
            self.groups[before as usize].forget(k, &mut self.places);
            self.list(before);
            self.places[k].group = group;
            self.places[k].settled = self.passes(k);
        }
        if group == ALWAYS && open.slot != closed.slot && !std::mem::replace(&mut self.places[k].listed, true)
        {
            self.mixed[gate.0 as usize].push(k as u32);
        }
        self.choose(k);
    }

    /// Takes the offer that counts: that for an open gate, or that for a closed one.
    fn choose(&mut self, k: usize) {
        let Place { group, gate, .. } = self.places[k];
        let side = usize::from(group == ALWAYS && !self.gate_is_open(gate));
        let Offer { slot, cost } = self.offers[k][side];
        (self.places[k].slot, self.places[k].cost) = (slot, cost);
        self.note(k);
    }

    /// Picks the class whose candidate goes next and grants the credit that this takes; `None`, and nothing
    /// changed, if no class has a candidate. The caller must [`charge`](Self::charge) the class.
    #[inline(always)]
    pub(super) fn pick(&mut self) -> Option<Winner> {
        let (k, credit) = match self.carried() {
            Some(k) => (k, self.places[k].deficit),
            None => self.scan(),
        };
        let Place { class, slot, .. } = *self.places.get(k)?;
        Some(Winner { place: k as u32, class, slot, credit })
    }

    /// The place of the last dispatch, if it may go on with the credit that it has left.
    pub(super) fn carry(&self) -> Option<usize> {
        (self.carry != NIL).then_some(self.carry as usize)
    }

    /// The ways of the sweep to the next class that can pay with one grant at most: through the rest of this round, and
    /// through the next one up to where it stands now.
    pub(super) fn ways(&self) -> [Range<usize>; 2] {
        [self.cursor..self.places.len(), 0..self.cursor]
    }

    /// After a pick: the slot of a candidate that will be picked some time later, so that it and those behind it can be
    /// brought near. `None` if nobody knows, or no other class than last time was picked.
    #[inline(always)]
    pub(super) fn ahead(&mut self) -> Option<u32> {
        if self.ahead == NIL {
            return None;
        }
        let k = std::mem::replace(&mut self.ahead, NIL) as usize;
        self.places.get(k).map(|place| place.slot)
    }

    /// The class of that candidate, if classes are not picked in the order of the ring now: in order, the processor brings
    /// them near by itself.
    #[inline]
    pub(super) fn ahead_of_order(&mut self) -> Option<ClassId> {
        let k = std::mem::replace(&mut self.scattered, NIL) as usize;
        self.class_at.get(k).copied()
    }

    /// Books a dispatch of the picked class, whose candidate cost `cost`. A new candidate must be set before the next
    /// pick.
    #[inline]
    pub(super) fn charge(&mut self, winner: Winner, cost: u64, still_waiting: bool) {
        let Winner { place, credit, .. } = winner;
        debug_assert!(cost <= credit, "place {place} was picked without the credit for it");
        let deficit = if still_waiting { credit - cost } else { 0 };
        self.places[place as usize].deficit = deficit;
        self.carry = if deficit > 0 { place } else { NIL };
    }

    /// After a charge: the next candidate of the class, if that depends on the gate only, or [`Head::NONE`].
    pub(super) fn replace(&mut self, winner: Winner, next: Head) {
        let k = winner.place as usize;
        debug_assert_eq!(self.places[k].settled, self.passes(k), "a class is settled when it is picked");
        self.set(k, Offer { slot: next.slot, cost: next.cost }, Offer::NONE);
    }

    /// Both at once, of a class that has another candidate.
    #[inline(always)]
    pub(super) fn serve(&mut self, winner: Winner, cost: u64, next: Head) {
        self.charge(winner, cost, true);
        let k = winner.place as usize;
        let place = &mut self.places[k];
        (place.slot, place.cost) = (next.slot, next.cost);
        if place.group == ALWAYS || !self.groups[place.group as usize].note_quickly(k, place) {
            self.replace(winner, next);
        }
    }

    /// Takes all credit away.
    pub(super) fn forget_credit(&mut self) {
        for place in &mut self.places {
            (place.deficit, place.note) = (0, Note::None);
        }
    }

    /// Cuts the credit of a class that a request left without being dispatched: `best` is the cost of the best
    /// head that remains in it, `None` if nothing waits.
    pub(super) fn cut(&mut self, class: ClassId, best: Option<u64>) {
        let k = self.place(class);
        self.settle(k);
        let place = &mut self.places[k];
        place.deficit = place.deficit.min(most_credit(place.quantum, best));
        self.note(k);
    }

    /// Words, nodes and places that decisions have looked at so far.
    pub(super) fn steps(&self) -> u64 {
        self.steps + self.groups.iter().map(|group| group.steps).sum::<u64>()
    }
}
