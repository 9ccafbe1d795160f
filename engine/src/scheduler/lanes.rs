//! The table of all lanes: found by class and pin, and by the endpoint whose load they depend on.

use std::hash::{Hash, Hasher};
use std::ops::{Index, IndexMut};

use rustc_hash::FxHashMap;

use super::exact::LaneRanks;
use super::lane::{Anchor, Lane, LaneId};
use super::pool::{EndpointIndex, Pool};
use crate::request::Pin;
use crate::sync::prefetch;
use crate::worker::WorkerId;

/// All lanes. Shared lanes come first and stay; exact lanes come with their first request and go with the last.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    lanes: Vec<Lane>,
    ranks: LaneRanks,
    free: Vec<LaneId>,
    by_pin: FxHashMap<Owner, LaneId>,
    /// Exact lanes by what they wait for: one list per endpoint, then one per worker for pins without a rank.
    anchored: Vec<Vec<LaneId>>,
    endpoints: usize,
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

    /// A lane, if there is one of this number.
    #[inline]
    pub(super) fn get(&self, id: LaneId) -> Option<&Lane> {
        self.lanes.get(id as usize)
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
    pub(super) fn exact(&mut self, class: u32, pin: Pin, pool: &Pool) -> LaneId {
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
        self.anchor(id, pin, pool);
        id
    }

    /// Drops an exact lane that has emptied.
    pub(super) fn drop_exact(&mut self, id: LaneId) {
        let Lane { class, pin, anchor, .. } = self.lanes[id as usize];
        let pin = pin.expect("only exact lanes are dropped");
        self.by_pin.remove(&Owner { class, pin });
        self.lanes[id as usize].anchor = Anchor::NOWHERE;
        if let Some(list) = self.anchored.get_mut(anchor.list as usize) {
            list.swap_remove(anchor.at as usize);
            if let Some(&moved) = list.get(anchor.at as usize) {
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
    pub(super) fn anchor_all(&mut self, pool: &Pool) -> Vec<LaneId> {
        self.endpoints = pool.len();
        self.anchored.iter_mut().for_each(Vec::clear);
        let lists = pool.len() + pool.workers().workers().len();
        self.anchored.resize_with(lists, Vec::new);
        let exact: Vec<_> = self.by_pin.iter().map(|(owner, &id)| (owner.pin, id)).collect();
        for &(pin, id) in &exact {
            self.anchor(id, pin, pool);
        }
        exact.into_iter().map(|(_, id)| id).collect()
    }

    fn anchor(&mut self, id: LaneId, pin: Pin, pool: &Pool) {
        let position = |id| pool.workers().workers().binary_search_by_key(&id, |w| w.id).ok();
        let endpoints = pool.pinned(pin);
        self.lanes[id as usize].endpoints = (endpoints.start as u32, endpoints.end as u32);
        let list = match pin.rank {
            Some(_) => endpoints.clone().next(),
            None => position(pin.worker).map(|w| self.endpoints + w),
        };
        self.lanes[id as usize].anchor = match list {
            None => Anchor::NOWHERE,
            Some(list) => {
                self.anchored[list].push(id);
                Anchor { list: list as u32, at: (self.anchored[list].len() - 1) as u32 }
            }
        };
    }

    /// The lists of the exact lanes whose heads may depend on the load of `endpoint`: its own, and that of its worker.
    pub(super) fn lists_of(&self, endpoint: EndpointIndex, pool: &Pool) -> [usize; 2] {
        let worker = pool.endpoint(endpoint).worker;
        let position = pool.workers().workers().binary_search_by_key(&worker, |w| w.id);
        [endpoint.index(), position.map_or(usize::MAX, |w| self.endpoints + w)]
    }

    /// The lanes of a list, if there is one of this number.
    pub(super) fn listed(&self, list: usize) -> &[LaneId] {
        self.anchored.get(list).map_or(&[], |lanes| lanes)
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
