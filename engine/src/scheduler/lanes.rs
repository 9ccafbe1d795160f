//! The table of all lanes: found by class and pin, and by the endpoint whose load they depend on.

use std::hash::{Hash, Hasher};
use std::ops::{Index, IndexMut};

use rustc_hash::FxHashMap;

use super::exact::LaneRanks;
use super::lane::{Anchor, Lane, LaneId};
use super::pool::{EndpointIndex, Pool};
use super::ring::Ring;
use super::untold::Places;
use crate::policy::ClassId;
use crate::request::Pin;
use crate::sync::prefetch;
use crate::worker::{Endpoint, WorkerId};

/// All lanes. Shared lanes come first and stay; exact lanes come with their first request and go with the last.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    ranks: LaneRanks,
    free: Vec<LaneId>,
    by_pin: FxHashMap<Owner, LaneId>,
    /// Exact lanes by what they wait for: one list per endpoint, then one per worker for pins without a rank.
    anchored: Vec<List>,
    /// By endpoint, the list of its worker.
    worker_lists: Vec<u32>,
}

/// Exact lanes that depend on the same endpoints, one of each class at most.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    /// In no order.
    pub(super) lanes: Vec<LaneId>,
    /// The places of their classes in the ring.
    pub(super) places: Places,
    /// Whether they depend on more than one endpoint.
    pub(super) several: bool,
}

/// Whose exact lane it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    class: u32,
    pin: Pin,
}

impl Hash for Owner {
    /// In two words: a hasher takes one at a time.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Pin { worker: WorkerId(worker), rank } = self.pin;
        state.write_u64(worker);
        state.write_u64(u64::from(self.class) << 32 | u64::from(rank.unwrap_or(u32::MAX)));
    }
}

impl Lanes {
    /// Adds the shared lane of a class.
    pub(super) fn add_shared(&mut self, class: u32) -> LaneId {
        self.add(Lane::new(class, None))
    }

    fn add(&mut self, lane: Lane) -> LaneId {
        self.lanes.push(lane);
        self.ranks.add();
        (self.lanes.len() - 1) as LaneId
    }

    /// A lane, and the positions of all.
    pub(super) fn with_ranks(&mut self, id: LaneId) -> (&Lane, &mut LaneRanks) {
        (&self.lanes[id as usize], &mut self.ranks)
    }

    /// The positions of all lanes.
    pub(super) fn ranks(&mut self) -> &mut LaneRanks {
        &mut self.ranks
    }

    /// The exact lane of a class for a pin, made if need be.
    pub(super) fn exact(&mut self, class: u32, pin: Pin, pool: &Pool, ring: &Ring) -> LaneId {
        if let Some(&id) = self.by_pin.get(&Owner { class, pin }) {
            return id;
        }
        let id = match self.free.pop() {
            Some(id) => {
                // The old lane was emptied before it was freed; its heap keeps its memory.
                let lane = &mut self.lanes[id as usize];
                (lane.class, lane.pin) = (class, Some(pin));
                id
            }
            None => self.add(Lane::new(class, Some(pin))),
        };
        self.by_pin.insert(Owner { class, pin }, id);
        self.anchor(id, pin, pool, ring);
        id
    }

    /// Drops an exact lane that has emptied.
    pub(super) fn drop_exact(&mut self, id: LaneId, ring: &Ring) {
        let Lane { class, pin, anchor, .. } = self.lanes[id as usize];
        let pin = pin.expect("only exact lanes are dropped");
        self.by_pin.remove(&Owner { class, pin });
        self.lanes[id as usize].anchor = Anchor::NOWHERE;
        if let Some(list) = self.anchored.get_mut(anchor.list as usize) {
            list.places.remove(ring.place(ClassId(class)));
            list.lanes.swap_remove(anchor.at as usize);
            if let Some(&moved) = list.lanes.get(anchor.at as usize) {
                self.lanes[moved as usize].anchor.at = anchor.at;
            }
        }
        self.free.push(id);
    }

    /// Empties every lane, whatever is in it.
    pub(super) fn forget_all(&mut self) {
        self.lanes.iter_mut().for_each(Lane::forget_all);
    }

    /// All lanes that have requests of a class.
    pub(super) fn of_class(&self, class: u32) -> Vec<LaneId> {
        (0..self.lanes.len() as LaneId)
            .filter(|&id| self.lanes[id as usize].class == class && !self.lanes[id as usize].is_empty())
            .collect()
    }

    /// Lists every exact lane anew for the endpoints of a new snapshot and returns them all.
    pub(super) fn anchor_all(&mut self, pool: &Pool, ring: &Ring) -> Vec<LaneId> {
        self.anchored.clear();
        self.anchored.resize_with(pool.len(), List::default);
        self.worker_lists.clear();
        for worker in pool.workers().workers() {
            let list = self.anchored.len() as u32;
            self.worker_lists.extend(std::iter::repeat_n(list, worker.ranks as usize));
            self.anchored.push(List { several: worker.ranks > 1, ..List::default() });
        }
        let exact: Vec<_> = self.by_pin.iter().map(|(owner, &id)| (owner.pin, id)).collect();
        for &(pin, id) in &exact {
            self.anchor(id, pin, pool, ring);
        }
        exact.into_iter().map(|(_, id)| id).collect()
    }

    fn anchor(&mut self, id: LaneId, pin: Pin, pool: &Pool, ring: &Ring) {
        let lane = &mut self.lanes[id as usize];
        let mut endpoints = pool.pinned(pin);
        lane.endpoints = (endpoints.start as u32, endpoints.end as u32);
        lane.anchor = match (endpoints.next(), pin.rank) {
            (None, _) => Anchor::NOWHERE,
            (Some(first), rank) => {
                let list = if rank.is_some() { first } else { self.worker_lists[first] as usize };
                let List { lanes, places, .. } = &mut self.anchored[list];
                places.insert(ring.place(ClassId(lane.class)), ring.classes().len());
                lanes.push(id);
                Anchor { list: list as u32, at: (lanes.len() - 1) as u32 }
            }
        };
    }

    /// The lane of a class in a list that has one.
    pub(super) fn of_list(&self, class: ClassId, list: usize, pool: &Pool) -> LaneId {
        let pin = match list.checked_sub(pool.len()) {
            None => {
                let Endpoint { worker, rank } = pool.endpoint(EndpointIndex(list as u32));
                Pin { worker, rank: Some(rank) }
            }
            Some(worker) => Pin { worker: pool.workers().workers()[worker].id, rank: None },
        };
        self.by_pin[&Owner { class: class.0, pin }]
    }

    /// The lists of the exact lanes whose heads may depend on the load of `endpoint`: its own, and that of its worker.
    pub(super) fn lists_of(&self, endpoint: EndpointIndex) -> [usize; 2] {
        [endpoint.index(), self.worker_lists[endpoint.index()] as usize]
    }

    /// How many lists there are.
    pub(super) fn lists(&self) -> usize {
        self.anchored.len()
    }

    /// The lanes of a list.
    pub(super) fn listed(&self, list: usize) -> &List {
        &self.anchored[list]
    }

    /// Asks for a lane and its positions to be brought near.
    pub(super) fn prefetch(&self, id: LaneId) {
        prefetch(&self.lanes[id as usize]);
        self.ranks.prefetch(id);
    }
}

impl Index<LaneId> for Lanes {
    type Output = Lane;

    fn index(&self, id: LaneId) -> &Lane {
        &self.lanes[id as usize]
    }
}

impl IndexMut<LaneId> for Lanes {
    fn index_mut(&mut self, id: LaneId) -> &mut Lane {
        &mut self.lanes[id as usize]
    }
}
