//! Who needs how many grants, indexed, so that a decision among many classes does not look at each of them.
//!
//! A class with a candidate of cost *c*, credit *d* and quantum *q* needs ⌈(*c* − *d*) / *q*⌉ grants. A scan of the ring
//! looks for the first class from the cursor that needs one at most, and gives each class that it passes one: a
//! subtraction from a range. Bulk credit subtracts from all. What a class has been granted since its leaf was set is
//! the difference, so its credit is worked out when it is asked for, and not before.
//!
//! Classes that may go only while their pool gate is open are in a tree of their gate's own, which is not asked while
//! the gate is closed: a pool that flips between busy and free touches no class.

use super::tree::{NOBODY, Tree};

/// Where a place's leaf is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seat {
    /// The class has no candidate.
    None,
    /// It has one whether its gate is open or not.
    Always,
    /// It has one only while its gate is open.
    Gated,
}

/// The leaves of all places of the ring.
#[derive(Clone, Debug)]
pub(super) struct Index {
    always: Tree,
    gated: Vec<Gated>,
    /// By place.
    seats: Vec<Seat>,
    /// What the leaf of each place was set to.
    set_to: Vec<u64>,
    gate: Vec<u32>,
    /// Number of each place among those of its gate.
    member: Vec<u32>,
    /// Leaves whose number of grants is the one that stands for nobody.
    pub(super) uncountable: usize,
}

/// The places of one gate.
#[derive(Clone, Debug)]
struct Gated {
    places: Vec<u32>,
    tree: Tree,
}

impl Gated {
    /// Members at the places `from..to`.
    fn members(&self, from: usize, to: usize) -> (usize, usize) {
        let at = |place: usize| self.places.partition_point(|&p| (p as usize) < place);
        (at(from), at(to))
    }
}

impl Index {
    /// An index of places with these gates, nobody having a candidate.
    pub(super) fn new(gate: &[u32], gates: usize) -> Self {
        let mut places = vec![Vec::new(); gates];
        let mut member = Vec::with_capacity(gate.len());
        for (place, &gate) in (0u32..).zip(gate) {
            member.push(places[gate as usize].len() as u32);
            places[gate as usize].push(place);
        }
        let gated = places.into_iter().map(|places| Gated { tree: Tree::new(places.len()), places });
        Self {
            always: Tree::new(gate.len()),
            gated: gated.collect(),
            seats: vec![Seat::None; gate.len()],
            set_to: vec![NOBODY; gate.len()],
            gate: gate.to_vec(),
            member,
            uncountable: 0,
        }
    }

    /// Sets the grants that the class at `place` needs: `None` without a candidate. `gated` tells whether it has one
    /// only while its gate is open.
    pub(super) fn set(&mut self, place: usize, needs: Option<u64>, gated: bool) {
        let seat = match needs {
            None => Seat::None,
            Some(_) if gated => Seat::Gated,
            Some(_) => Seat::Always,
        };
        let is_uncountable = |needs: Option<u64>| usize::from(needs == Some(NOBODY));
        let old = (self.seats[place] != Seat::None).then_some(self.set_to[place]);
        self.uncountable = self.uncountable + is_uncountable(needs) - is_uncountable(old);
        let needs = needs.unwrap_or(NOBODY);
        if self.seats[place] != seat {
            self.put(place, NOBODY);
            self.seats[place] = seat;
        }
        self.put(place, needs);
        self.set_to[place] = needs;
    }

    fn put(&mut self, place: usize, needs: u64) {
        match self.seats[place] {
            Seat::None => {}
            Seat::Always => self.always.set(place, needs),
            Seat::Gated => {
                let gated = &mut self.gated[self.gate[place] as usize];
                gated.tree.set(self.member[place] as usize, needs);
            }
        }
    }

    /// What the class at `place` was granted since its leaf was set.
    pub(super) fn granted(&self, place: usize) -> u64 {
        match self.needs(place) {
            NOBODY => 0,
            needs => self.set_to[place] - needs,
        }
    }

    /// The same, to be counted once: it starts anew. With it, what the class still needs.
    pub(super) fn take_granted(&mut self, place: usize) -> (u64, u64) {
        let (granted, needs) = (self.granted(place), self.needs(place));
        if granted > 0 {
            self.uncountable -= usize::from(self.set_to[place] == NOBODY);
            self.set_to[place] = needs;
        }
        (granted, needs)
    }

    fn needs(&self, place: usize) -> u64 {
        match self.seats[place] {
            Seat::None => NOBODY,
            Seat::Always => self.always.get(place),
            Seat::Gated => self.gated[self.gate[place] as usize].tree.get(self.member[place] as usize),
        }
    }

    /// The fewest grants that a class with a candidate needs.
    pub(super) fn least(&self, open: &[bool]) -> Option<u64> {
        let gated = self.gated.iter().zip(open).filter(|(_, open)| **open).map(|(gated, _)| gated.tree.min());
        gated.chain([self.always.min()]).min().filter(|&least| least != NOBODY)
    }

    /// The first of the places `from..to` whose class has a candidate and needs at most `most` grants for it.
    pub(super) fn first(&mut self, from: usize, to: usize, most: u64, open: &[bool]) -> Option<usize> {
        let mut first = self.always.first(from, to, most);
        for (gated, open) in self.gated.iter_mut().zip(open) {
            if *open && gated.tree.min() <= most {
                let (from, to) = gated.members(from, first.unwrap_or(to));
                if let Some(member) = gated.tree.first(from, to, most) {
                    first = Some(gated.places[member] as usize);
                }
            }
        }
        first
    }

    /// Grants one quantum to each class with a candidate at the places `from..to`.
    pub(super) fn grant(&mut self, from: usize, to: usize, open: &[bool]) {
        self.always.subtract(from, to, 1);
        for (gated, open) in self.gated.iter_mut().zip(open) {
            if *open && gated.tree.min() != NOBODY {
                let (from, to) = gated.members(from, to);
                gated.tree.subtract(from, to, 1);
            }
        }
    }

    /// Grants `grants` quanta to each class with a candidate.
    pub(super) fn grant_all(&mut self, grants: u64, open: &[bool]) {
        self.always.subtract_all(grants);
        for (gated, open) in self.gated.iter_mut().zip(open) {
            if *open {
                gated.tree.subtract_all(grants);
            }
        }
    }

    /// Nodes visited.
    pub(super) fn steps(&self) -> u64 {
        self.always.steps + self.gated.iter().map(|gated| gated.tree.steps).sum::<u64>()
    }
}
