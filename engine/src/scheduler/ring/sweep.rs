//! The sweep of grants: from the last dispatch to the next class that can pay.

use std::ops::Range;

use super::Ring;
use super::place::Note;
use crate::policy::ClassId;
use crate::scheduler::slab::NIL;

/// So many classes are served so often that what is asked for comes too late.
const FEW: usize = 8;
/// What is brought near of so many classes is still near when the sweep comes round again.
const SEVERAL: usize = 256;

impl Ring {
    /// Whether there are so many classes that those behind their heads are not asked for as deep.
    #[inline(always)]
    pub(in crate::scheduler) fn is_wide(&self) -> bool {
        self.places.len() > SEVERAL
    }

    /// The last dispatch's class, while its credit lasts: one grant can be spent on a burst.
    #[inline(always)]
    pub(in crate::scheduler) fn carried(&self) -> Option<usize> {
        let place = self.places.get(self.carry as usize)?;
        // Its credit was worked out when it was charged, and nothing has been granted since.
        let goes = (1..=place.deficit).contains(&place.cost) && self.groups[place.group as usize].open;
        goes.then_some(self.carry as usize)
    }

    /// Once around: the first class that can pay with one grant at most. What is left of this round, then the next one up to
    /// the cursor. Its place, `usize::MAX` if there is no such class, and its credit, which its deficit need not show.
    #[inline(always)]
    pub(super) fn scan(&mut self) -> (usize, u64) {
        // Nearly always: one group, and nobody in it has missed a grant.
        if let Some(calendar) = self.groups.get_mut(self.sole as usize)
            && calendar.is_simple()
        {
            if let Some(k) = calendar.alone() {
                let end = self.places.len();
                return (k, calendar.sweep_on(k, &mut self.places[k], &mut self.cursor, end));
            }
            // Nearly always again: somebody is left in this round.
            if calendar.near > 0
                && let Some(k) = calendar.next_due(self.cursor)
            {
                let grants = calendar.rounds_to(self.places[k].due);
                if calendar.near > SEVERAL {
                    self.frontier = calendar.due_ahead(k, self.frontier);
                    self.ahead = self.frontier;
                } else if calendar.near > FEW {
                    // The last class is done for this round.
                    self.ahead = std::mem::replace(&mut self.frontier, k as u32);
                }
                self.sweep_to(k, grants);
                return (k, self.places[k].deficit);
            }
        }
        let k = self.search().unwrap_or(usize::MAX);
        (k, self.places.get(k).map_or(0, |place| place.deficit))
    }

    /// Grants, picks and charges a class for a request of this cost that is the only one in all classes: as if it had
    /// been noted. Nobody is, so that no rounds need to be counted; only the cursor stays.
    pub(in crate::scheduler) fn serve_alone(&mut self, class: ClassId, cost: u64) {
        debug_assert!(self.live.is_empty(), "somebody else has a candidate");
        let k = self.place(class);
        let place = &self.places[k];
        debug_assert_eq!(place.deficit, 0, "nothing waits in place {k}");
        self.carry = NIL;
        // One that needs more gets all its rounds at once, and the sweep stays where it is.
        if cost <= place.quantum {
            self.cursor = if k + 1 == self.places.len() { 0 } else { k + 1 };
        }
    }

    #[inline(never)]
    fn search(&mut self) -> Option<usize> {
        if let Some(calendar) = self.groups.get_mut(self.sole as usize)
            && let Some((k, next)) = calendar.leap(self.cursor, &mut self.places)
        {
            (self.ahead, self.scattered) = (next, next);
            return Some(k);
        }
        let end = self.places.len();
        let mut k = self.first(self.cursor, end);
        if k == end {
            if self.live.is_empty() {
                return None;
            }
            self.advance(1);
            k = self.first(0, self.cursor);
            if k == self.cursor {
                // Now each has been granted one.
                return self.bulk();
            }
        }
        let place = &self.places[k];
        let passes = self.groups[place.group as usize].passes_while_open(k, k, place);
        self.sweep_to(k, place.due.wrapping_sub(passes));
        Some(k)
    }

    /// All rounds that the nearest class still needs, at once, for every class with a candidate: the first that can pay
    /// then. The sweep stays where it is.
    fn bulk(&mut self) -> Option<usize> {
        let end = self.places.len();
        let k = loop {
            // Who is still before the sweep and lacks only the grant of this round gets it with the next whole round.
            let k = self.first(self.cursor, end);
            if k < end {
                self.advance(1);
                break k;
            }
            let Self { groups, live, places, .. } = self;
            let rounds = live.iter().filter_map(|&group| groups[group as usize].least(places)).min()?;
            self.advance(rounds - 1);
            let k = self.first(0, self.cursor);
            if k < self.cursor {
                break k;
            }
        };
        self.settle(k);
        Some(k)
    }

    /// Moves the sweep to a class that it picks and that needs so many grants, one or none. One that needs none is still
    /// owed that of this round, so the sweep waits at it.
    #[inline(always)]
    fn sweep_to(&mut self, k: usize, grants: u64) {
        let place = &mut self.places[k];
        place.settle_as_due();
        if place.note == Note::Next {
            place.note = Note::Soon;
        }
        self.cursor = k + grants as usize;
        if self.cursor == self.places.len() {
            self.cursor = 0;
            self.advance(1);
        }
    }

    /// Where the sweep would stop on its way through this round or the next one; the end of the way if nowhere. Nothing is
    /// granted by asking.
    pub(in crate::scheduler) fn stop(&mut self, next_round: bool, way: Range<usize>) -> usize {
        if !next_round {
            return self.first(way.start, way.end);
        }
        let Self { groups, live, places, .. } = self;
        let mut first = way.end;
        for &group in &*live {
            first = groups[group as usize].first_of_next(way.start, first, places);
        }
        first
    }

    /// The first of the places `from..to` that can pay when the sweep passes it in this round; `to` if none can.
    #[inline]
    fn first(&mut self, from: usize, to: usize) -> usize {
        let Self { groups, live, places, .. } = self;
        let mut first = to;
        for &group in &*live {
            first = groups[group as usize].first(from, first, places);
        }
        first
    }

    /// Lets rounds pass for all who take part.
    #[inline(never)]
    fn advance(&mut self, rounds: u64) {
        let Self { groups, live, places, .. } = self;
        for &group in &*live {
            groups[group as usize].advance(rounds, places);
        }
    }
}
