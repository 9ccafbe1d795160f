//! A new policy for a running scheduler.

use super::Scheduler;
use rustc_hash::FxHashMap;

use super::class::{Ages, Class};
use super::key::Order;
use super::kind::Place;
use super::ring::{Member, Ring, most_credit};
use super::slab::NIL;
use crate::policy::{ClassId, ClassSpec, Profile};
use crate::sync::DataArc;

/// Numbers that must have become vacant after a number before it is given out again, so that whoever still holds the old
/// one is not told about another class. Guessed: nobody holds it for so many classes.
const QUARANTINE: usize = 1024;

impl<T> Scheduler<T> {
    /// Takes over a new policy, and returns the number of each of its classes, in the order of `profile`.
    ///
    /// Classes are matched by name. What waits stays where it is, with its snapshot and its usage. Credit is kept, but
    /// cut to the larger of the new quantum and the cost of the best head. A changed order sorts what waits anew. A
    /// class that is gone and has something waiting keeps its old settings and its place in the ring, and drains;
    /// enqueueing to it is the caller's mistake. It leaves the ring with the first reload that finds it empty. Waiting times are bounded as at the time of enqueueing.
    pub fn reload(&mut self, profile: &Profile) -> Vec<ClassId> {
        let before = self.ring.classes().to_vec();
        let mut names = Names::default();
        for id in &before {
            let class = &mut self.classes[id.index()];
            class.active = false;
            names.insert(class.about.name.clone(), id.0);
        }
        let ids: Vec<_> = profile.classes().iter().map(|spec| self.adopt(spec, &names)).collect();
        let order = self.ring_with_gone(&ids);
        let gone = |id: &&ClassId| {
            let class = &self.classes[id.index()];
            !class.active && !class.has_waiting()
        };
        self.vacant.extend(before.iter().filter(gone).map(|id| id.0));

        let rules: Vec<_> = order.iter().map(|id| self.classes[id.index()].about.busy).collect();
        for (id, (view, gate)) in order.iter().zip(self.pool.set_rules(rules.iter())) {
            let class = &mut self.classes[id.index()];
            (class.view, class.gate) = (view, gate);
        }
        let quanta: FxHashMap<_, _> =
            ids.iter().copied().zip(profile.classes().iter().map(|spec| spec.quantum)).collect();
        self.rebuild_ring(&order, |ring, class| {
            quanta.get(&class).copied().unwrap_or_else(|| ring.quantum(class))
        });
        ids
    }

    /// Makes the ring anew, of these classes with these quanta.
    pub(super) fn rebuild_ring(&mut self, order: &[ClassId], quantum: impl Fn(&Ring, ClassId) -> u64) {
        let member = |&class: &ClassId| {
            let quantum = quantum(&self.ring, class);
            let best = self.best_head(class).map(|slot| self.slab.hot(slot).usual.cost());
            let gate = self.classes[class.index()].gate;
            Member { class, quantum, gate, most: most_credit(quantum, best) }
        };
        let members: Vec<_> = order.iter().map(member).collect();
        self.ring = self.ring.rebuilt(&members, self.pool.gates().count());
        self.constrained.clear();
        self.classes.iter_mut().for_each(|class| class.listed = false);
        self.workers_changed();
    }

    /// The class of this name with the settings of `spec`; a new one if there is none.
    fn adopt(&mut self, spec: &ClassSpec, names: &Names) -> ClassId {
        if let Some(&id) = names.get(spec.name.as_str()) {
            let class = &mut self.classes[id as usize];
            let reordered = class.order != Order::of(spec);
            class.reconfigure(spec);
            if reordered {
                self.sort_anew(id);
            }
            return ClassId(id);
        }
        let rested = (self.vacant.len() > QUARANTINE).then(|| self.vacant.pop_front());
        let id = match rested.flatten() {
            Some(id) => {
                self.classes[id as usize] = Class::new(spec);
                id
            }
            None => {
                let id = self.classes.len() as u32;
                self.lanes.add_shared();
                self.classes.push(Class::new(spec));
                id
            }
        };
        ClassId(id)
    }

    /// Sorts the lanes of a class by its order, which has changed.
    fn sort_anew(&mut self, class: u32) {
        let order = self.classes[class as usize].order;
        let lanes = self.lanes.of_class(ClassId(class));
        let mut slots: Vec<_> =
            lanes.iter().flat_map(|&lane| self.lanes[lane].take_all(&self.slab)).collect();
        // As if all came again: the run of a lane is in the order of enqueueing.
        slots.sort_unstable_by_key(|&slot| self.slab.hot(slot).sequence);
        self.classes[class as usize].ages = Ages::EMPTY;
        for slot in slots {
            let policy = order.key(&self.slab.hot(slot).usual, self.slab.rare(slot).jump());
            let hot = self.slab.hot_mut(slot);
            let (lane, kind) = (&mut self.lanes[hot.lane], hot.kind.at(Place::Run));
            (hot.policy, hot.kind, hot.before, hot.next) = (policy, kind, lane.last(), NIL);
            self.classes[class as usize].put_in_lane(slot, policy, kind, lane, &mut self.slab);
        }
        for lane in lanes {
            if self.lanes[lane].pin.is_some() {
                self.rank_lane(lane);
            }
        }
    }

    /// The classes of the new policy in its order, and between them those that are gone and not yet drained: each
    /// behind the class that it was behind.
    fn ring_with_gone(&self, ids: &[ClassId]) -> Vec<ClassId> {
        // Gone classes by the class that they follow, `None` for those in front of all others.
        let mut followers: FxHashMap<Option<ClassId>, Vec<ClassId>> = FxHashMap::default();
        let mut behind = None;
        for &class in self.ring.classes() {
            let state = &self.classes[class.index()];
            if state.active {
                behind = Some(class);
            } else if state.has_waiting() {
                followers.entry(behind).or_default().push(class);
            }
        }
        let front = followers.remove(&None).unwrap_or_default();
        let rest = ids
            .iter()
            .flat_map(|&id| std::iter::once(id).chain(followers.remove(&Some(id)).unwrap_or_default()));
        front.into_iter().chain(rest).collect()
    }
}

/// The classes of before, by name.
type Names = FxHashMap<DataArc<str>, u32>;
