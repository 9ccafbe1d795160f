//! The table of all lanes: found by class and pin, and by the endpoint whose load they depend on.

use std::hash::{Hash, Hasher};
use std::ops::{Index, IndexMut};

use rustc_hash::FxHashMap;

use super::exact::LaneRanks;
use super::lane::{Lane, LaneId, SHARED, is_shared, shared_of};
use super::pool::{EndpointIndex, Pool};
use super::ring::Ring;
use super::slab::NIL;
use super::untold::Places;
use crate::policy::ClassId;
use crate::request::Pin;
use crate::sync::prefetch;
use crate::worker::WorkerId;

/// All lanes. Shared lanes stay; exact lanes come with their first request and go with the last.
#[derive(Clone, Debug, Default)]
pub(super) struct Lanes {
    /// By class.
    shared: Vec<Lane>,
    exact: Vec<Lane>,
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
    /// Each with the place of its class in the ring, and in that order.
    pub(super) lanes: Vec<(u32, LaneId)>,
    /// The same places.
    pub(super) places: Places,
    /// Whether they depend on more than one endpoint.
    pub(super) several: bool,
}

impl List {
    /// Where the lane of the class at a place is, or belongs.
    fn find(&self, place: usize) -> Result<usize, usize> {
        self.lanes.binary_search_by_key(&(place as u32), |&(place, _)| place)
    }
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
    /// Adds the shared lane of the class with the next number.
    ///
    /// # Panics
    /// With 2³¹ classes.
    pub(super) fn add_shared(&mut self) {
        let class = self.shared.len() as u32;
        assert!(class < SHARED, "more classes than a lane can name");
        self.shared.push(Lane::new(class, None));
    }

    /// The shared lane of a class.
    #[inline(always)]
    pub(super) fn shared(&mut self, class: ClassId) -> &mut Lane {
        &mut self.shared[class.index()]
    }

    /// A lane, if there is one of this name.
    #[inline(always)]
    pub(super) fn get(&self, id: LaneId) -> Option<&Lane> {
        if is_shared(id) { self.shared.get((id - SHARED) as usize) } else { self.exact.get(id as usize) }
    }

    /// What the requests of a lane are pinned to. Of one that is gone this is still told, until another one takes its place.
    #[inline(always)]
    pub(super) fn pin(&self, id: LaneId) -> Option<Pin> {
        if is_shared(id) { None } else { self.exact[id as usize].pin }
    }

    /// An exact lane, and the positions of all of them.
    pub(super) fn with_ranks(&mut self, id: LaneId) -> (&Lane, &mut LaneRanks) {
        (&self.exact[id as usize], &mut self.ranks)
    }

    /// The positions of all exact lanes.
    pub(super) fn ranks(&mut self) -> &mut LaneRanks {
        &mut self.ranks
    }

    /// The exact lane of a class for a pin, made if need be.
    #[inline]
    pub(super) fn exact(&mut self, class: u32, pin: Pin, pool: &Pool, ring: &Ring) -> LaneId {
        match self.by_pin.get(&Owner { class, pin }) {
            Some(&id) => id,
            None => self.add_exact(class, pin, pool, ring),
        }
    }

    #[inline(never)]
    fn add_exact(&mut self, class: u32, pin: Pin, pool: &Pool, ring: &Ring) -> LaneId {
        let id = match self.free.pop() {
            Some(id) => {
                // The old lane was emptied before it was freed; its heap keeps its memory.
                let lane = &mut self.exact[id as usize];
                (lane.class, lane.pin) = (class, Some(pin));
                id
            }
            None => {
                let id = self.exact.len() as LaneId;
                assert!(!is_shared(id), "more lanes than can be named");
                self.exact.push(Lane::new(class, Some(pin)));
                self.ranks.add();
                id
            }
        };
        self.by_pin.insert(Owner { class, pin }, id);
        if let Some((list, place)) = self.anchor(id, pin, pool, ring) {
            let (Ok(at) | Err(at)) = list.find(place);
            list.lanes.insert(at, (place as u32, id));
        }
        id
    }

    /// Drops an exact lane that has emptied.
    pub(super) fn drop_exact(&mut self, id: LaneId, ring: &Ring) {
        let Lane { class, pin, list, .. } = self.exact[id as usize];
        let pin = pin.expect("only exact lanes are dropped");
        self.by_pin.remove(&Owner { class, pin });
        self.exact[id as usize].list = NIL;
        if let Some(list) = self.anchored.get_mut(list as usize) {
            let place = ring.place(ClassId(class));
            let at = list.find(place).expect("the lane is in its list");
            list.lanes.remove(at);
            list.places.remove(place);
        }
        self.free.push(id);
    }

    /// Empties every lane, whatever is in it.
    pub(super) fn forget_all(&mut self) {
        self.shared.iter_mut().chain(&mut self.exact).for_each(Lane::forget_all);
    }

    /// All lanes that have requests of a class.
    pub(super) fn of_class(&self, class: ClassId) -> Vec<LaneId> {
        (0..self.exact.len() as LaneId)
            .chain([shared_of(class)])
            .filter(|&id| self[id].class == class.0 && !self[id].is_empty())
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
            if let Some((list, place)) = self.anchor(id, pin, pool, ring) {
                list.lanes.push((place as u32, id));
            }
        }
        self.anchored.iter_mut().for_each(|list| list.lanes.sort_unstable());
        exact.into_iter().map(|(_, id)| id).collect()
    }

    /// Notes which endpoints the pin of a lane means; returns the list in which it is still to be put, and its place there,
    /// if there are any.
    fn anchor(&mut self, id: LaneId, pin: Pin, pool: &Pool, ring: &Ring) -> Option<(&mut List, usize)> {
        let lane = &mut self.exact[id as usize];
        let mut endpoints = pool.pinned(pin);
        (lane.endpoints, lane.list) = ((endpoints.start as u32, endpoints.end as u32), NIL);
        let first = endpoints.next()?;
        lane.list = if pin.rank.is_some() { first as u32 } else { self.worker_lists[first] };
        let (list, place) = (&mut self.anchored[lane.list as usize], ring.place(ClassId(lane.class)));
        list.places.insert(place, ring.classes().len());
        Some((list, place))
    }

    /// The lane of the class at a place in a list that has one.
    pub(super) fn of_list(&self, list: usize, place: usize) -> LaneId {
        let list = &self.anchored[list];
        list.lanes[list.find(place).expect("the class has a lane there")].1
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
        prefetch(&self.exact[id as usize]);
        self.ranks.prefetch(id);
    }
}

impl Index<LaneId> for Lanes {
    type Output = Lane;

    fn index(&self, id: LaneId) -> &Lane {
        if is_shared(id) { &self.shared[(id - SHARED) as usize] } else { &self.exact[id as usize] }
    }
}

impl IndexMut<LaneId> for Lanes {
    fn index_mut(&mut self, id: LaneId) -> &mut Lane {
        if is_shared(id) { &mut self.shared[(id - SHARED) as usize] } else { &mut self.exact[id as usize] }
    }
}
