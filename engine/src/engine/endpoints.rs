//! The arbiter's side of the endpoints' loads: which counters belong to which endpoint, and what releases did.

use rustc_hash::FxHashMap;

use crate::scheduler::{Booked, EndpointIndex, Scheduler};
use crate::sync::dirty::DirtyBitmap;
use crate::sync::load::{EndpointLoad, Releases};
use crate::sync::{Arc, DataArc};
use crate::worker::{Endpoint, WorkerSnapshot};

/// One process behind an endpoint: the endpoint and its incarnation.
type Life = (Endpoint, u64);

/// Whom a bit of the bitmap belongs to.
#[derive(Clone, Copy, Debug)]
enum Owner {
    Nobody,
    /// An endpoint of the current snapshot.
    Present(EndpointIndex),
    /// An endpoint that is not in the snapshot, but still holds permits and may come back.
    Departed(Life),
}

/// The loads of all endpoints that are in the snapshot or still hold permits.
#[derive(Debug)]
pub(super) struct Endpoints {
    lives: FxHashMap<Life, Arc<EndpointLoad>>,
    by_index: Vec<Arc<EndpointLoad>>,
    pages: Vec<Arc<DirtyBitmap>>,
    owners: Vec<Owner>,
    free_bits: Vec<usize>,
    releases: Arc<Releases>,
}

impl Endpoints {
    pub(super) fn new(releases: Arc<Releases>) -> Self {
        Self {
            lives: FxHashMap::default(),
            by_index: Vec::new(),
            pages: Vec::new(),
            owners: Vec::new(),
            free_bits: Vec::new(),
            releases,
        }
    }

    /// The load of an endpoint of the current snapshot.
    pub(super) fn load(&self, index: EndpointIndex) -> &Arc<EndpointLoad> {
        &self.by_index[index.index()]
    }

    /// The loads of the current snapshot, by index.
    pub(super) fn loads(&self) -> &[Arc<EndpointLoad>] {
        &self.by_index
    }

    /// Whether an endpoint has releases that the scheduler does not know yet.
    pub(super) fn has_releases(&self) -> bool {
        self.pages.iter().any(|page| page.any())
    }

    /// Tells the scheduler what has been released, and returns whether anything was.
    pub(super) fn take_releases<T>(&mut self, scheduler: &mut Scheduler<T>) -> bool {
        let mut any = false;
        for (page, first) in self.pages.iter().zip((0..).step_by(DirtyBitmap::LINE_BITS)) {
            page.sweep(|bit| {
                any = true;
                match self.owners[first + bit] {
                    Owner::Nobody => {}
                    Owner::Present(index) => {
                        scheduler.set_booked(index, booked(&self.by_index[index.index()]));
                    }
                    Owner::Departed(life) => {
                        if self.lives.get(&life).is_some_and(|load| booked(load).permits == 0) {
                            self.lives.remove(&life);
                            self.owners[first + bit] = Owner::Nobody;
                            self.free_bits.push(first + bit);
                        }
                    }
                }
            });
        }
        any
    }

    /// Gives the scheduler a new snapshot, with the bookings of endpoints that stay the same process.
    pub(super) fn set_workers<T>(&mut self, snapshot: DataArc<WorkerSnapshot>, scheduler: &mut Scheduler<T>) {
        let lives = &mut self.lives;
        scheduler.set_workers_with(snapshot, |endpoint, incarnation| {
            lives.get(&(endpoint, incarnation)).map(|load| booked(load)).unwrap_or_default()
        });
        let mut departed = std::mem::take(&mut self.lives);
        self.by_index.clear();
        let incarnations = scheduler
            .workers()
            .workers()
            .iter()
            .flat_map(|w| std::iter::repeat_n(w.incarnation, w.ranks as usize));
        for ((index, endpoint), incarnation) in scheduler.endpoints().zip(incarnations) {
            let life = (endpoint, incarnation);
            let load = departed.remove(&life).unwrap_or_else(|| self.new_load());
            self.owners[load.bit()] = Owner::Present(index);
            self.lives.insert(life, load.clone());
            self.by_index.push(load);
        }
        for (life, load) in departed {
            let workers = scheduler.workers().workers();
            let replaced = workers
                .binary_search_by_key(&life.0.worker, |w| w.id)
                .is_ok_and(|at| workers[at].incarnation != life.1);
            if replaced || booked(&load).permits == 0 {
                load.retire();
                self.owners[load.bit()] = Owner::Nobody;
                self.free_bits.push(load.bit());
            } else {
                self.owners[load.bit()] = Owner::Departed(life);
                self.lives.insert(life, load);
            }
        }
    }

    fn new_load(&mut self) -> Arc<EndpointLoad> {
        let bit = self.free_bits.pop().unwrap_or_else(|| {
            let first = self.owners.len();
            self.pages.push(Arc::new(DirtyBitmap::new(DirtyBitmap::LINE_BITS)));
            self.owners.resize(first + DirtyBitmap::LINE_BITS, Owner::Nobody);
            self.free_bits.extend((first + 1..self.owners.len()).rev());
            first
        });
        let page = self.pages[bit / DirtyBitmap::LINE_BITS].clone();
        Arc::new(EndpointLoad::new(page, bit, self.releases.clone()))
    }
}

fn booked(load: &EndpointLoad) -> Booked {
    let (tokens, permits) = load.booked();
    Booked { tokens, permits }
}
