//! When each class of a group can pay for its candidate, counted in passes of the sweep.
//!
//! A group is the classes that are granted together: those behind one pool gate, or those that need none. The sweep of
//! grants passes the places of the ring in order, again and again, and grants each class that it passes one quantum.
//! So the class at place *p* has been granted `round + [p < cursor]` times, and a class that needs *n* more grants now can
//! pay when that number, its **due**, is *n* higher. Nothing has to be done to a class that the sweep passes. Those that
//! are due in this round or the next are bits, found by find-first-set; later ones are in a heap.
//!
//! While its gate is closed a group is not granted anything, and its own sweep stands still. When the gate opens the
//! common sweep may stand elsewhere: then some places are behind it that it did not really pass, and have **missed** a
//! grant. Missed grants are kept as a sum over ranges of places, so that a gate that flips touches no class. They make a
//! class due later than its bit says; that is found out when the bit is.

use std::ops::Range;

use super::bits::Bits;
use crate::scheduler::heap::{HeapKey, IndexedHeap, Positions};

/// Far from 0, so that missed passes can always be taken off, and far from the end: 2⁶⁴ rounds pass at once at most.
const FIRST_ROUND: u128 = 1 << 100;

/// A place that is due in a round to come.
#[derive(Clone, Copy, Debug)]
struct Later {
    due: u128,
    place: u32,
}

impl HeapKey for Later {
    #[inline]
    fn item(self) -> u32 {
        self.place
    }

    /// Places that are due at the same time are found by their bits in the end: no need to order them here.
    #[inline]
    fn is_before(&self, other: &Self) -> bool {
        self.due < other.due
    }
}

/// Where a place is noted in the calendar of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// Nowhere: the class has no candidate.
    None,
    /// Due when the sweep passes it in this round, or before.
    Soon,
    /// Due one round later.
    Next,
    /// Due later still: in the heap.
    Later,
}

/// The group of the classes that have a candidate whether their gate is open or not.
pub(super) const ALWAYS: u32 = 0;

/// What the calendar keeps of each place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Noted {
    /// Passes after which the class can pay for its candidate, missed ones not counted.
    pub(super) due: u128,
    /// Number of the place among those of its gate.
    pub(super) member: u32,
    /// Group in whose calendar the class is noted.
    pub(super) group: u32,
    pub(super) note: Note,
}

impl Noted {
    pub(super) const NOWHERE: Self = Self { due: 0, member: 0, group: ALWAYS, note: Note::None };
}

/// The places, owned by the ring.
pub(super) trait Places: Positions {
    fn noted(&mut self, place: usize) -> &mut Noted;
    /// Position of a place in the heap.
    fn position(&self, place: usize) -> u32;
}

/// The calendar of one group.
#[derive(Clone, Debug)]
pub(super) struct Calendar {
    /// Whether the group takes part.
    pub(super) open: bool,
    /// Where the common sweep stood when the group was closed.
    closed_at: usize,
    /// How often the sweep has passed the end of the ring.
    round: u128,
    /// The places of the group, and their number; no list if it is every place of the ring.
    members: Box<[u32]>,
    size: usize,
    soon: Bits,
    next: Bits,
    later: IndexedHeap<Later>,
    /// Places that are noted.
    noted: usize,
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
            closed_at: 0,
            round: FIRST_ROUND,
            members,
            size,
            soon: Bits::new(size),
            next: Bits::new(size),
            later: IndexedHeap::default(),
            noted: 0,
            missed: Vec::new(),
            steps: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.noted == 0
    }

    /// Number of a place in the group.
    #[inline]
    fn number(&self, place: usize, noted: &Noted) -> usize {
        if self.members.is_empty() { place } else { noted.member as usize }
    }

    /// Number of the first place of the group from `place` on.
    fn number_from(&self, place: usize) -> usize {
        if self.members.is_empty() {
            place
        } else {
            self.members.partition_point(|&member| (member as usize) < place)
        }
    }

    /// Grants that the class at a place has been given so far, from some beginning on; `cursor` is where the common
    /// sweep stands.
    #[inline]
    pub(super) fn passes(&self, place: usize, cursor: usize, noted: &Noted) -> u128 {
        let cursor = if self.open { cursor } else { self.closed_at };
        self.round + u128::from(place < cursor) - self.missed(place, noted)
    }

    /// Passes after which the class at a place can pay.
    #[inline]
    fn due(&self, place: usize, noted: &Noted) -> u128 {
        noted.due + self.missed(place, noted)
    }

    /// Notes a place by what it is due, wherever it was noted before.
    #[inline]
    pub(super) fn note(&mut self, place: usize, places: &mut impl Places) {
        let noted = places.noted(place);
        if noted.note == Note::Soon && self.due(place, noted) <= self.round + 1 {
            return;
        }
        self.forget(place, places);
        self.noted += 1;
        self.put(place, places);
    }

    fn put(&mut self, place: usize, places: &mut impl Places) {
        self.steps += 1;
        let noted = places.noted(place);
        let (number, due) = (self.number(place, noted), self.due(place, noted));
        if due <= self.round + 1 {
            self.soon.insert(number);
            noted.note = Note::Soon;
        } else if due == self.round + 2 {
            self.next.insert(number);
            noted.note = Note::Next;
        } else {
            noted.note = Note::Later;
            self.later.push(Later { due, place: place as u32 }, places);
        }
    }

    /// Notes a place no more.
    #[inline]
    pub(super) fn forget(&mut self, place: usize, places: &mut impl Places) {
        let noted = places.noted(place);
        let number = self.number(place, noted);
        match std::mem::replace(&mut noted.note, Note::None) {
            Note::None => return,
            Note::Soon => self.soon.remove(number),
            Note::Next if self.next.contains(number) => self.next.remove(number),
            // Since then another round has begun.
            Note::Next => self.soon.remove(number),
            Note::Later => {
                self.later.remove(places.position(place), places);
            }
        }
        self.noted -= 1;
    }

    /// The first of the places `from..to` that is due when the sweep passes it in this round.
    #[inline]
    pub(super) fn first(&mut self, from: usize, to: usize, places: &mut impl Places) -> Option<usize> {
        self.steps += 1;
        loop {
            let number = self.soon.first(self.number_from(from))?;
            let place = if self.members.is_empty() { number } else { self.members[number] as usize };
            if place >= to {
                return None;
            }
            if self.missed.is_empty() || self.due(place, places.noted(place)) <= self.round + 1 {
                return Some(place);
            }
            self.soon.remove(number);
            self.put(place, places);
        }
    }

    /// A number of rounds, 2 or more, that must pass until any place is due that is not due in this one.
    pub(super) fn least(&mut self) -> Option<u128> {
        self.steps += 1;
        if !self.next.is_empty() {
            return Some(2);
        }
        self.later.peek().map(|later| later.due - self.round)
    }

    /// Lets so many rounds pass.
    #[inline]
    pub(super) fn advance(&mut self, rounds: u128, places: &mut impl Places) {
        self.round += rounds;
        if self.noted > 0 && rounds > 0 {
            self.turn(places);
        }
    }

    /// Makes bits of what has come near in the new round.
    fn turn(&mut self, places: &mut impl Places) {
        self.steps += 1 + self.soon.absorb(&mut self.next);
        while let Some(later) = self.later.peek().filter(|later| later.due <= self.round + 2) {
            self.later.remove(0, places);
            self.put(later.place as usize, places);
        }
    }

    /// Takes the group out of the sweep, which stands at `cursor`, or lets it take part again.
    pub(super) fn set_open(&mut self, open: bool, cursor: usize, places: &mut impl Places) {
        self.open = open;
        if !open {
            self.closed_at = cursor;
        } else if self.noted == 0 {
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
    fn missed(&self, place: usize, noted: &Noted) -> u128 {
        if self.missed.is_empty() { 0 } else { self.missed_by(self.number(place, noted)) }
    }

    fn missed_by(&self, number: usize) -> u128 {
        let (mut sum, mut at) = (0u64, number + 1);
        while at > 0 {
            sum = sum.wrapping_add(self.missed[at]);
            at &= at - 1;
        }
        u128::from(sum)
    }
}
