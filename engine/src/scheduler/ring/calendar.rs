//! When each class of a group can pay for its candidate, counted in passes of the sweep.
//!
//! A group is the classes that are granted together: those behind one pool gate, or those that need none. The sweep of
//! grants passes the places of the ring in order, again and again, and grants each class that it passes one quantum.
//! So the class at place *p* has been granted `round + [p < cursor]` times, and a class that needs *n* more grants now can
//! pay when that number, its **due**, is *n* higher. Nothing has to be done to a class that the sweep passes. Those that
//! are due in this round or the next are bits, found by find-first-set; later ones are in a tournament. A class that is alone
//! in its group is in neither: there is nothing to search.
//!
//! While its gate is closed a group is not granted anything, and its own sweep stands still. When the gate opens the
//! common sweep may stand elsewhere: then some places are behind it that it did not really pass, and have **missed** a
//! grant. Missed grants are kept as a sum over ranges of places, so that a gate that flips touches no class. They make a
//! class due later than its bit says; that is found out when the bit is.

use std::ops::Range;

use super::bits::{Bits, NEXT, SOON};
use super::later::{HORIZON, Later};
use super::place::{Note, Place};
use crate::scheduler::slab::NIL;
use crate::sync::prefetch;

/// So many classes ahead of the sweep are looked at, if there are as many.
const LEAD: u32 = 8;

/// The group of the classes that have a candidate whether their gate is open or not.
pub(super) const ALWAYS: u32 = 0;

/// The calendar of one group.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    /// Whether the group takes part.
    pub(super) open: bool,
    /// Position in the ring's list of groups that take part and have somebody noted.
    pub(super) listed: u32,
    /// Where the common sweep stood when the group was closed.
    closed_at: usize,
    /// How often the sweep has passed the end of the ring, modulo 2⁶⁴, while somebody was noted.
    round: u64,
    /// The places of the group; no list if it is every place of the ring.
    members: Box<[u32]>,
    /// How many these are.
    size: usize,
    /// The only place that is noted, or [`NIL`]: then they are bits or due later.
    alone: u32,
    /// Places that are bits.
    pub(super) near: usize,
    bits: Bits,
    /// Apart from what every decision needs.
    later: Box<Later>,
    /// Passes that places have missed; empty while none has. A Fenwick tree of differences.
    missed: Vec<u64>,
    /// Words, nodes and places looked at.
    pub(super) steps: u64,
}

impl Calendar {
    /// A calendar for every place of a ring of so many, nobody noted.
    pub(super) fn of_all(places: usize) -> Self {
        Self::new(Box::default(), places)
    }

    /// A calendar for these places, in order, of a ring of so many, nobody noted.
    pub(super) fn of(members: Vec<u32>, places: usize) -> Self {
        let size = members.len();
        Self::new(if size == places { Box::default() } else { members.into() }, size)
    }

    fn new(members: Box<[u32]>, size: usize) -> Self {
        Self {
            open: true,
            listed: NIL,
            closed_at: 0,
            round: 0,
            members,
            size,
            alone: NIL,
            near: 0,
            bits: Bits::new(size),
            later: Box::new(Later::new(size)),
            missed: Vec::new(),
            steps: 0,
        }
    }

    /// Whether nobody is noted.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.alone == NIL && self.near == 0 && self.later.is_empty()
    }

    /// Whether the group takes part with somebody.
    #[inline]
    pub(super) fn is_live(&self) -> bool {
        self.open && !self.is_empty()
    }

    /// Number of a place in the group.
    #[inline]
    fn number(&self, k: usize, place: &Place) -> usize {
        if self.members.is_empty() { k } else { place.member as usize }
    }

    /// The place that has a number.
    #[inline]
    fn place(&self, number: usize) -> usize {
        if self.members.is_empty() { number } else { self.members[number] as usize }
    }

    /// Number of the first place of the group from `k` on.
    #[inline]
    fn number_from(&self, k: usize) -> usize {
        if self.members.is_empty() {
            k
        } else {
            self.members.partition_point(|&member| (member as usize) < k)
        }
    }

    /// Grants that the class at place `k` has been given so far, from some beginning on; `cursor` is where the common
    /// sweep stands.
    #[inline]
    pub(super) fn passes(&self, k: usize, cursor: usize, place: &Place) -> u64 {
        self.passes_while_open(k, if self.open { cursor } else { self.closed_at }, place)
    }

    /// The same of a group that takes part.
    #[inline]
    pub(super) fn passes_while_open(&self, k: usize, cursor: usize, place: &Place) -> u64 {
        self.round.wrapping_add(u64::from(k < cursor)).wrapping_sub(self.missed(k, place))
    }

    /// Rounds until the class at a place is due: 1, or 0, if it is so when the sweep passes it in this one.
    #[inline]
    fn rounds(&self, k: usize, place: &Place) -> u64 {
        self.rounds_to(place.due.wrapping_add(self.missed(k, place)))
    }

    #[inline(always)]
    pub(super) fn rounds_to(&self, due: u64) -> u64 {
        due.wrapping_sub(self.round)
    }

    /// Notes a place whose credit is worked out by what it lacks, if it was noted and that takes no more than a bit;
    /// returns whether it did.
    #[inline(always)]
    pub(super) fn note_quickly(&mut self, k: usize, place: &mut Place) -> bool {
        if !matches!(place.note, Note::Alone | Note::Soon) {
            return false;
        }
        let grants = place.grants();
        place.due = place.settled.wrapping_add(grants);
        if place.note == Note::Alone {
            return grants < HORIZON;
        }
        if grants > 1 || !self.missed.is_empty() {
            return false;
        }
        if self.rounds_to(place.due) == 2 {
            self.bits.postpone(self.number(k, place));
            place.note = Note::Next;
        }
        true
    }

    /// Notes a place whose credit is worked out by what it lacks, wherever it was noted before.
    pub(super) fn note(&mut self, k: usize, places: &mut [Place]) {
        let place = &mut places[k];
        let grants = place.grants();
        place.due = place.settled.wrapping_add(grants);
        // It has been passed in this round or not. The sum may be 2⁶⁴, which is beyond the horizon as well.
        let passed = place.settled.wrapping_add(self.missed(k, place)).wrapping_sub(self.round);
        let rounds = passed.saturating_add(grants);
        if place.note == Note::Later && rounds > 2 {
            self.steps += 1;
            let number = self.number(k, place);
            self.later.remove(number);
            return self.later.insert(number, rounds, self.round);
        }
        self.forget(k, places);
        if self.is_empty() && rounds < HORIZON {
            (self.alone, places[k].note) = (k as u32, Note::Alone);
            return;
        }
        if self.alone != NIL {
            let other = std::mem::replace(&mut self.alone, NIL) as usize;
            self.put(other, self.rounds(other, &places[other]), places);
        }
        self.put(k, rounds, places);
    }

    fn put(&mut self, k: usize, rounds: u64, places: &mut [Place]) {
        self.steps += 1;
        let place = &mut places[k];
        let number = self.number(k, place);
        if rounds <= 2 {
            (place.note, self.near) = (if rounds == 2 { Note::Next } else { Note::Soon }, self.near + 1);
            self.bits.insert(if rounds == 2 { NEXT } else { SOON }, number);
        } else {
            place.note = Note::Later;
            self.later.insert(number, rounds, self.round);
        }
    }

    /// Notes a place no more.
    #[inline]
    pub(super) fn forget(&mut self, k: usize, places: &mut [Place]) {
        let place = &mut places[k];
        let number = self.number(k, place);
        match std::mem::replace(&mut place.note, Note::None) {
            Note::None => {}
            Note::Alone => self.alone = NIL,
            Note::Soon | Note::Next => {
                self.bits.remove(number);
                self.near -= 1;
            }
            Note::Later => self.later.remove(number),
        }
    }

    /// Whether the bits tell who is due: none of the group has missed a grant.
    #[inline(always)]
    pub(super) fn is_simple(&self) -> bool {
        self.missed.is_empty()
    }

    /// The first place from `from` on that is due when the sweep passes it in this round, in a [simple](Self::is_simple)
    /// group where somebody is near.
    #[inline(always)]
    pub(super) fn next_due(&mut self, from: usize) -> Option<usize> {
        self.steps += 1;
        self.first_due(from)
    }

    #[inline(always)]
    fn first_due(&self, from: usize) -> Option<usize> {
        self.bits.first(self.number_from(from)).map(|number| self.place(number))
    }

    /// The next place that is due in this round behind `frontier`, or, if that is not ahead of `k`, [`LEAD`] behind `k`;
    /// [`NIL`] if there is none.
    #[inline(always)]
    pub(super) fn due_ahead(&self, k: usize, frontier: u32) -> u32 {
        if frontier == NIL || frontier as usize <= k {
            return self.first_ahead(k);
        }
        self.first_due(frontier as usize + 1).map_or(NIL, |next| next as u32)
    }

    #[inline(never)]
    fn first_ahead(&self, k: usize) -> u32 {
        (0..LEAD).try_fold(k, |k, _| self.first_due(k + 1)).map_or(NIL, |next| next as u32)
    }

    /// The first of the places `from..to` that is due when the sweep passes it in this round; `to` if none is.
    #[inline]
    pub(super) fn first(&mut self, from: usize, to: usize, places: &mut [Place]) -> usize {
        self.steps += 1;
        while self.near > 0 {
            let Some(number) = self.bits.first(self.number_from(from)) else { return to };
            let k = self.place(number);
            if k >= to {
                return to;
            }
            let rounds = if self.missed.is_empty() { 0 } else { self.rounds(k, &places[k]) };
            if rounds < 2 {
                return k;
            }
            self.bits.remove(number);
            self.near -= 1;
            self.put(k, rounds, places);
        }
        self.alone().filter(|k| (from..to).contains(k) && self.rounds(*k, &places[*k]) < 2).unwrap_or(to)
    }

    /// The first of the places `from..to`, which the sweep has passed in this round, that is due when it passes it in the
    /// next one; `to` if none is.
    pub(super) fn first_of_next(&mut self, from: usize, to: usize, places: &mut [Place]) -> usize {
        self.steps += 1;
        while self.near > 0 {
            let Some(number) = self.bits.first_of_both(self.number_from(from)) else { return to };
            let k = self.place(number);
            if k >= to {
                return to;
            }
            let rounds = if self.missed.is_empty() { 0 } else { self.rounds(k, &places[k]) };
            if rounds <= 2 {
                return k;
            }
            self.bits.remove(number);
            self.near -= 1;
            self.put(k, rounds, places);
        }
        self.alone().filter(|k| (from..to).contains(k) && self.rounds(*k, &places[*k]) <= 2).unwrap_or(to)
    }

    /// The only place that is noted, if it is known to be that.
    #[inline(always)]
    pub(super) fn alone(&self) -> Option<usize> {
        (self.alone != NIL).then_some(self.alone as usize)
    }

    /// Lets as many rounds pass as the nearest place needs and works out its credit, if nobody else will be due by then:
    /// the place, and another that will soon be the nearest, or [`NIL`].
    #[inline]
    pub(super) fn leap(&mut self, cursor: usize, places: &mut [Place]) -> Option<(usize, u32)> {
        if self.near > 0 { None } else { self.leap_to_the_least(cursor, places) }
    }

    #[inline(never)]
    fn leap_to_the_least(&mut self, cursor: usize, places: &mut [Place]) -> Option<(usize, u32)> {
        self.steps += 1;
        let (round, number) = self.later.first()?;
        let k = self.place(number as usize);
        let place = &mut places[k];
        if self.round.wrapping_add(self.rounds(k, place)) != round
            || self.later.second().is_some_and(|(second, _)| second.wrapping_sub(round) <= 2)
        {
            return None;
        }
        // It stays there until its next candidate is noted.
        self.rounds_pass(place.due.wrapping_sub(self.passes_while_open(k, cursor, place)));
        place.settle(place.due);
        let [soon, later] = self.later.ahead().map(|number| number.map(|number| self.place(number)));
        if let Some(later) = later {
            prefetch(&places[later]);
        }
        Some((k, soon.map_or(NIL, |soon| soon as u32)))
    }

    /// Moves the sweep to the class at place `k`, the only one that has a candidate: nobody needs to be searched. The ring
    /// has `end` places, and none of the group has missed a grant. Returns the credit that the class has then.
    #[inline(always)]
    pub(super) fn sweep_on(&mut self, k: usize, place: &mut Place, cursor: &mut usize, end: usize) -> u64 {
        let passed = u64::from(k < *cursor);
        let grants = self.rounds_to(place.due) - passed;
        if grants < 2 {
            self.rounds_pass(passed);
            *cursor = k + grants as usize;
            if *cursor == end {
                *cursor = 0;
                self.rounds_pass(1);
            }
        } else {
            self.rounds_pass(grants);
        }
        let credit = place.credit(place.due);
        place.settled = place.due;
        credit
    }

    /// A number of rounds, 2 or more, that must pass until any place is due that is not due in this one.
    pub(super) fn least(&mut self, places: &[Place]) -> Option<u64> {
        self.steps += 1;
        if let Some(k) = self.alone() {
            return Some(self.rounds(k, &places[k]));
        }
        if self.bits.has_next() {
            return Some(2);
        }
        self.later.first().map(|(round, _)| round.wrapping_sub(self.round))
    }

    /// Lets so many rounds pass, nobody coming near by them.
    #[inline(always)]
    pub(super) fn rounds_pass(&mut self, rounds: u64) {
        self.round = self.round.wrapping_add(rounds);
    }

    /// Lets so many rounds pass.
    #[inline]
    pub(super) fn advance(&mut self, rounds: u64, places: &mut [Place]) {
        self.rounds_pass(rounds);
        if self.alone == NIL && rounds > 0 {
            self.turn(places);
        }
    }

    /// Makes bits of what has come near in the new round.
    fn turn(&mut self, places: &mut [Place]) {
        self.steps += 1;
        if self.bits.has_next() {
            self.steps += self.bits.absorb();
        }
        while let Some((round, number)) = self.later.first() {
            if round.wrapping_sub(self.round) > 2 {
                return;
            }
            self.later.remove_first();
            let k = self.place(number as usize);
            self.put(k, self.rounds(k, &places[k]), places);
        }
    }

    /// Takes the group out of the sweep, which stands at `cursor`, or lets it take part again.
    pub(super) fn set_open(&mut self, open: bool, cursor: usize, places: &mut [Place]) {
        self.open = open;
        if !open {
            self.closed_at = cursor;
        } else if self.is_empty() {
            // Credit is counted from where a place was noted.
        } else if self.closed_at < cursor {
            self.miss(self.closed_at..cursor);
        } else if cursor < self.closed_at {
            // What lies between has been passed in this round: for it another one begins, which the others miss.
            self.advance(1, places);
            self.miss(0..cursor);
            self.miss(self.closed_at..usize::MAX);
        }
    }

    fn miss(&mut self, places: Range<usize>) {
        self.missed.resize(self.size + 1, 0);
        for (place, difference) in [(places.start, 1), (places.end, u64::MAX)] {
            let mut at = self.number_from(place).saturating_add(1);
            while at < self.missed.len() {
                self.steps += 1;
                self.missed[at] = self.missed[at].wrapping_add(difference);
                at += at & at.wrapping_neg();
            }
        }
    }

    #[inline]
    fn missed(&self, k: usize, place: &Place) -> u64 {
        if self.missed.is_empty() { 0 } else { self.missed_by(self.number(k, place)) }
    }

    #[cold]
    #[inline(never)]
    fn missed_by(&self, number: usize) -> u64 {
        let (mut sum, mut at) = (0u64, number + 1);
        while at > 0 {
            sum = sum.wrapping_add(self.missed[at]);
            at &= at - 1;
        }
        sum
    }
}
