//! Telling classes of load changes: before the ring looks at them, or at once.

use super::Scheduler;
use super::lanes::List;
use super::pool::EndpointIndex;
use super::untold::Seen;

impl<T> Scheduler<T> {
    /// After a load change of an endpoint: gates and exact lanes, for the views in which it flipped.
    pub(super) fn load_changed(&mut self, index: EndpointIndex) {
        if self.pool.flipped().is_empty() {
            return;
        }
        if !self.constrained.is_empty() {
            for view in self.pool.flipped() {
                if !self.flipped.contains(view) {
                    self.flipped.push(*view);
                }
            }
        }
        for &view in self.pool.flipped() {
            for &gate in self.pool.gates_of(view) {
                self.ring.set_gate(gate, self.pool.gate_open(gate));
            }
        }
        for list in self.lanes.lists_of(index) {
            let List { lanes, places, several } = self.lanes.listed(list);
            match lanes.len() {
                0 => {}
                lanes if self.untold.is_better_told(list, lanes) => self.tell_few(list),
                _ => self.untold.change(list, places, *several, self.pool.flipped()),
            }
        }
        // Only now: a noted list that is told how its endpoints are must know of this change.
        while let Some(list) = self.untold.too_many() {
            self.tell_at_once(list);
        }
    }

    /// Tells every class that the ring would look at in the next pick, and has not been told everything. The sweep must not
    /// stop at such a class, nor pass it; so its way is looked at first, as often as somebody on it is told.
    #[inline(never)]
    pub(super) fn tell_who_may_be_next(&mut self) {
        if let Some(k) = self.ring.carry() {
            self.untold.seen.at_carry += u64::from(self.tell(k));
            if self.ring.carried().is_some() {
                return;
            }
        }
        for (next_round, mut way) in [false, true].into_iter().zip(self.ring.ways()) {
            loop {
                let stop = self.ring.stop(next_round, way.clone());
                let k = self.untold.first(way.start, way.end.min(stop + 1));
                if k > stop {
                    return;
                }
                if k == way.end {
                    break;
                }
                self.untold.seen.ahead[usize::from(next_round)] += u64::from(self.tell(k));
                // Nobody before it can go.
                way.start = k;
            }
        }
    }

    /// Tells the class at a place all that it has not been told; returns whether that was anything.
    fn tell(&mut self, place: usize) -> bool {
        let class = self.ring.classes()[place];
        let mut told = std::mem::take(&mut self.told);
        let Self { lanes, untold, .. } = self;
        // All of them are found before the first one is ranked: so they come near at the same time.
        untold.take(place, |list| {
            let lane = lanes.of_list(list, place);
            lanes.prefetch(lane);
            told.push(lane);
        });
        untold.seen.lanes += told.len() as u64;
        let any = !told.is_empty();
        let mut best_changed = false;
        while let Some(lane) = told.pop() {
            if let Some(&next) = told.last() {
                self.slab.prefetch(self.lanes[next].first());
            }
            best_changed |= self.rank_lane(lane);
        }
        self.told = told;
        if best_changed {
            self.refresh_candidate(class);
        }
        any
    }

    /// Tells the classes of the views that have just flipped of a list, which is not noted.
    #[inline(never)]
    pub(super) fn tell_few(&mut self, list: usize) {
        for i in 0..self.lanes.listed(list).lanes.len() {
            let (place, lane) = self.lanes.listed(list).lanes[i];
            let class = self.ring.classes()[place as usize];
            if self.pool.flipped().contains(&self.classes[class.index()].view) {
                self.untold.seen.lanes += 1;
                if self.rank_lane(lane) {
                    self.refresh_candidate(class);
                }
            }
        }
    }

    /// Tells the classes that are left of a list, which is noted no more.
    #[inline(never)]
    pub(super) fn tell_at_once(&mut self, list: usize) {
        for i in 0..self.lanes.listed(list).lanes.len() {
            self.bring_near(list, i);
            let (place, lane) = self.lanes.listed(list).lanes[i];
            if self.untold.is_told_at_once(place as usize) {
                self.untold.seen.lanes += 1;
                if self.rank_lane(lane) {
                    self.refresh_candidate(self.ring.classes()[place as usize]);
                }
            }
        }
    }

    /// Asks for the lanes behind the `i`-th of a list, and for their heads, to be brought near. Their classes are: each list
    /// has the same ones.
    fn bring_near(&self, list: usize, i: usize) {
        let List { lanes, .. } = self.lanes.listed(list);
        if let Some(&(_, lane)) = lanes.get(i + 4) {
            self.lanes.prefetch(lane);
        }
        if let Some(&(_, lane)) = lanes.get(i + 2) {
            self.slab.prefetch(self.lanes[lane].first());
        }
    }

    /// What exact lanes have been told so far.
    #[doc(hidden)]
    pub fn seen(&self) -> Seen {
        self.untold.seen
    }

    /// Lets so many changes wait until they are asked for, if more than a few lanes depend on each.
    #[doc(hidden)]
    pub fn set_untold(&mut self, most: usize, few: usize) {
        self.untold.set(most, few);
    }
}
