//! Constraint sets as bitsets over endpoints, one per distinct set that is in use.

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use crate::request::Constraints;
use crate::sync::DataArc;
use crate::worker::{WorkerId, WorkerRanks, WorkerSnapshot};

/// The mask of a request without constraints.
pub(super) const NO_MASK: u32 = 0;

/// Unused masks kept for the next request with the same constraints. Guessed: routers use few distinct sets.
const IDLE_MASKS: usize = 256;

#[derive(Clone, Debug)]
struct Mask {
    constraints: Option<DataArc<Constraints>>,
    uses: usize,
    idle: bool,
    /// Endpoints whose worker is allowed and has all required taints, overloaded or not.
    endpoints: FixedBitSet,
}

/// The interned constraint sets.
#[derive(Clone, Debug)]
pub(super) struct Masks {
    masks: Vec<Mask>,
    ids: FxHashMap<DataArc<Constraints>, u32>,
    idle: Vec<u32>,
    free: Vec<u32>,
}

impl Masks {
    pub(super) fn new() -> Self {
        // Number 0 stands for "no constraints" and is never looked up.
        let nothing = Mask { constraints: None, uses: 1, idle: false, endpoints: FixedBitSet::new() };
        Self { masks: vec![nothing], ids: FxHashMap::default(), idle: Vec::new(), free: Vec::new() }
    }

    /// The mask of `constraints`, counted as in use until [`release`](Self::release).
    pub(super) fn acquire(&mut self, constraints: &DataArc<Constraints>, workers: &Workers) -> u32 {
        if let Some(&id) = self.ids.get(constraints) {
            self.masks[id as usize].uses += 1;
            return id;
        }
        let mut endpoints = FixedBitSet::new();
        fill(&mut endpoints, constraints, workers);
        let mask = Mask { constraints: Some(constraints.clone()), uses: 1, idle: false, endpoints };
        let id = match self.free.pop() {
            Some(id) => {
                self.masks[id as usize] = mask;
                id
            }
            None => {
                self.masks.push(mask);
                (self.masks.len() - 1) as u32
            }
        };
        self.ids.insert(constraints.clone(), id);
        id
    }

    /// The mask of `constraints` that are in use.
    pub(super) fn find(&self, constraints: &DataArc<Constraints>) -> u32 {
        self.ids[constraints]
    }

    /// One use less.
    pub(super) fn release(&mut self, id: u32) {
        debug_assert_ne!(id, NO_MASK);
        let mask = &mut self.masks[id as usize];
        mask.uses -= 1;
        if mask.uses == 0 && !mask.idle {
            mask.idle = true;
            self.idle.push(id);
            if self.idle.len() > IDLE_MASKS {
                self.evict();
            }
        }
    }

    fn evict(&mut self) {
        for id in self.idle.drain(..) {
            let mask = &mut self.masks[id as usize];
            mask.idle = false;
            if mask.uses == 0 {
                let constraints = mask.constraints.take().expect("an idle mask has constraints");
                self.ids.remove(&constraints);
                mask.endpoints = FixedBitSet::new();
                self.free.push(id);
            }
        }
    }

    /// The endpoints that a mask allows; `None` for no constraints.
    pub(super) fn endpoints(&self, id: u32) -> Option<&FixedBitSet> {
        (id != NO_MASK).then(|| &self.masks[id as usize].endpoints)
    }

    /// Recomputes every mask for new workers.
    pub(super) fn rebuild(&mut self, workers: &Workers) {
        for mask in &mut self.masks {
            if let Some(constraints) = &mask.constraints {
                fill(&mut mask.endpoints, constraints, workers);
            }
        }
    }
}

/// A snapshot with the place of each worker's endpoints.
#[derive(Clone, Debug, Default)]
pub(super) struct Workers {
    pub(super) snapshot: DataArc<WorkerSnapshot>,
    pub(super) index: FxHashMap<WorkerId, WorkerRanks>,
    pub(super) endpoints: usize,
}

fn fill(endpoints: &mut FixedBitSet, constraints: &Constraints, workers: &Workers) {
    endpoints.clear();
    endpoints.grow(workers.endpoints);
    let mut allow = |position: usize| {
        let worker = &workers.snapshot.workers()[position];
        if constraints.tolerates(&worker.taints) {
            let first = workers.index[&worker.id].first_endpoint as usize;
            endpoints.insert_range(first..first + worker.ranks as usize);
        }
    };
    match constraints.allowed() {
        None => (0..workers.snapshot.workers().len()).for_each(allow),
        Some(ids) => {
            for id in ids {
                if let Ok(position) = workers.snapshot.workers().binary_search_by_key(id, |w| w.id) {
                    allow(position);
                }
            }
        }
    }
}
