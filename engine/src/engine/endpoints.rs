//! The arbiter's side of the endpoints' loads: which counters belong to which endpoint, and what releases did.

use rustc_hash::FxHashMap;

use super::marks::Marks;
use crate::scheduler::{Booked, EndpointIndex, Scheduler};
use crate::sync::load::{EndpointLoad, Releases};
use crate::sync::{Arc, DataArc};
use crate::worker::{Endpoint, WorkerSnapshot};

/// One process behind an endpoint: the endpoint and its incarnation.
type Life = (Endpoint, u64);

/// Whom a mark belongs to.
#[derive(Clone, Copy, Debug)]
enum Owner {
    /// An endpoint of the current snapshot.
    Present(EndpointIndex),
    /// An endpoint that is not in the snapshot, but still holds permits and may come back.
    Departed(Life),
}

/// The counters of one life and the mark that its releases leave.
#[derive(Clone, Debug)]
struct Counted {
    load: Arc<EndpointLoad>,
    mark: u32,
}

/// The loads of all endpoints that are in the snapshot or still hold permits.
#[derive(Debug)]
pub(super) struct Endpoints {
    lives: FxHashMap<Life, Counted>,
    by_index: Vec<Arc<EndpointLoad>>,
    marks: Marks<Owner>,
    releases: Arc<Releases>,
}

impl Endpoints {
    pub(super) fn new(releases: Arc<Releases>) -> Self {
        Self { lives: FxHashMap::default(), by_index: Vec::new(), marks: Marks::new(), releases }
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
        self.marks.any()
    }

    /// Tells the scheduler what has been released, and returns whether anything was.
    pub(super) fn take_releases<T>(&mut self, scheduler: &mut Scheduler<T>) -> bool {
        let mut any = false;
        let mut over = None;
        self.marks.sweep(|mark, owner| {
            any = true;
            match owner {
                Owner::Present(index) => {
                    scheduler.set_booked(index, booked(&self.by_index[index.index()]));
                }
                Owner::Departed(life) if booked(&self.lives[&life].load).permits == 0 => {
                    self.lives.remove(&life);
                    over.get_or_insert_with(Vec::new).push(mark);
                }
                Owner::Departed(_) => {}
            }
        });
        for mark in over.into_iter().flatten() {
            self.marks.give_back(mark);
        }
        any
    }

    /// Gives the scheduler a new snapshot, with the bookings of endpoints that stay the same process.
    pub(super) fn set_workers<T>(&mut self, snapshot: DataArc<WorkerSnapshot>, scheduler: &mut Scheduler<T>) {
        scheduler.set_workers_with(snapshot, |endpoint, incarnation| {
            self.lives.get(&(endpoint, incarnation)).map(|c| booked(&c.load)).unwrap_or_default()
        });
        let mut departed = std::mem::take(&mut self.lives);
        self.by_index.clear();
        let workers = scheduler.workers().workers();
        let incarnations = workers.iter().flat_map(|w| std::iter::repeat_n(w.incarnation, w.ranks as usize));
        for ((index, endpoint), incarnation) in scheduler.endpoints().zip(incarnations) {
            let life = (endpoint, incarnation);
            let owner = Owner::Present(index);
            let counted = match departed.remove(&life) {
                Some(counted) => {
                    self.marks.set_owner(counted.mark, owner);
                    counted
                }
                None => {
                    let mark = self.marks.take(owner);
                    let load = EndpointLoad::new(mark.page, mark.bit, self.releases.clone());
                    Counted { load: Arc::new(load), mark: mark.id }
                }
            };
            self.by_index.push(counted.load.clone());
            self.lives.insert(life, counted);
        }
        for (life, counted) in departed {
            let replaced = workers
                .binary_search_by_key(&life.0.worker, |w| w.id)
                .is_ok_and(|at| workers[at].incarnation != life.1);
            if replaced || booked(&counted.load).permits == 0 {
                counted.load.retire();
                self.marks.give_back(counted.mark);
            } else {
                self.marks.set_owner(counted.mark, Owner::Departed(life));
                self.lives.insert(life, counted);
            }
        }
    }
}

/// The same for who is not the arbiter.
pub(super) fn seen(load: &EndpointLoad) -> Booked {
    let (tokens, permits) = load.seen();
    Booked { tokens, permits }
}

/// What is booked by the counters of an endpoint.
pub(super) fn booked(load: &EndpointLoad) -> Booked {
    let (tokens, permits) = load.booked();
    Booked { tokens, permits }
}
