//! What can be read of a scheduler at any time.

use std::fmt;

use super::Scheduler;
use super::class::Usage;
use super::lane::shared_of;
use super::pool::{Booked, EndpointIndex};
use super::slab::RequestKey;
use crate::policy::ClassId;
use crate::request::Snapshot;
use crate::sync::DataArc;
use crate::time::Timestamp;
use crate::worker::{Endpoint, WorkerSnapshot};

impl<T> Scheduler<T> {
    /// Credit of a class \[tokens\].
    pub fn deficit(&self, class: ClassId) -> u64 {
        self.ring.deficit(class)
    }

    /// Credit that a class earns per round \[tokens\]; 0 for one that is not in the ring.
    pub fn quantum(&self, class: ClassId) -> u64 {
        self.ring.quantum(class)
    }

    /// Number of the class of this name, draining ones included.
    pub fn class_id(&self, name: &str) -> Option<ClassId> {
        let found = self.ring.classes().iter().find(|id| *self.classes[id.index()].about.name == *name);
        found.copied()
    }

    /// Classes in ring order, with those that are gone from the policy and had something waiting at the last reload.
    pub fn classes(&self) -> impl Iterator<Item = (ClassId, &DataArc<str>)> {
        self.ring.classes().iter().map(|&id| (id, &self.classes[id.index()].about.name))
    }

    /// Arrival of the waiting request of a class that was enqueued first, O(pins that requests of the class wait for).
    pub fn oldest_arrival(&self, class: ClassId) -> Option<Timestamp> {
        let state = &self.classes[class.index()];
        let lanes = state.exact.iter().flat_map(|exact| exact.lanes()).chain([shared_of(class)]);
        let runs = lanes.filter_map(|lane| self.lanes[lane].oldest_of_run(&self.slab));
        let slot = runs.chain(state.ages.oldest()).min_by_key(|&slot| self.slab.hot(slot).sequence)?;
        Some(self.slab.hot(slot).usual.arrival)
    }

    /// What waits in a class.
    pub fn usage(&self, class: ClassId) -> Usage {
        self.classes[class.index()].usage()
    }

    /// Requests that wait in all classes.
    pub fn waiting(&self) -> u64 {
        self.slab.len()
    }

    /// The requests that wait, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (RequestKey, Snapshot, &T)> {
        self.slab.iter(|lane| self.lanes[lane].pin)
    }

    /// What the caller attached to a request that still waits.
    pub fn get(&self, key: RequestKey) -> Option<&T> {
        self.slab.payload(key)
    }

    /// Whether an endpoint is busy for a class: over its thresholds, or out of permits for everybody.
    pub fn is_busy(&self, class: ClassId, index: EndpointIndex) -> bool {
        self.pool.is_busy(self.classes[class.index()].view, index)
    }

    /// Classes that share a busy rule, with the endpoints that are busy for them: O(classes + endpoints × rules).
    pub(crate) fn busy_by_rule(&self) -> Vec<(Vec<ClassId>, Vec<EndpointIndex>)> {
        let endpoints = || (0..self.pool.len() as u32).map(EndpointIndex);
        let busy = |view| endpoints().filter(|&e| self.pool.is_busy(view, e)).collect();
        let mut rules: Vec<_> = self.pool.views().map(|view| (Vec::new(), busy(view))).collect();
        for (class, _) in self.classes() {
            rules[self.classes[class.index()].view.0 as usize].0.push(class);
        }
        rules
    }

    /// Requests that wait for an endpoint in particular, or for its worker.
    pub fn waiting_for(&self, index: EndpointIndex) -> u64 {
        let lists = self.lanes.lists_of(index).into_iter();
        lists
            .flat_map(|list| &self.lanes.listed(list).lanes)
            .map(|&(_, lane)| u64::from(self.lanes[lane].pinned))
            .sum()
    }

    /// The workers.
    pub fn workers(&self) -> &WorkerSnapshot {
        self.pool.workers()
    }

    /// Endpoints of the current worker snapshot, in the order of their indices.
    pub fn endpoints(&self) -> impl Iterator<Item = (EndpointIndex, Endpoint)> {
        (0..self.pool.len() as u32).map(|e| (EndpointIndex(e), self.pool.endpoint(EndpointIndex(e))))
    }

    /// Number of an endpoint in the current worker snapshot.
    pub fn find(&self, endpoint: Endpoint) -> Option<EndpointIndex> {
        self.pool.find(endpoint)
    }

    /// Active prefill tokens of an endpoint: booked here and by others.
    pub fn active(&self, index: EndpointIndex) -> u64 {
        self.pool.active(index)
    }

    /// Active prefill tokens of an endpoint that others have booked.
    pub fn external(&self, index: EndpointIndex) -> u64 {
        self.pool.external(index)
    }

    /// What this scheduler has booked on an endpoint.
    pub fn booked(&self, index: EndpointIndex) -> Booked {
        self.pool.booked(index)
    }

    /// Releases that came after their worker's incarnation had changed.
    pub fn stale_releases(&self) -> u64 {
        self.pool.stale_releases()
    }
}

impl<T> fmt::Debug for Scheduler<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = self.classes().map(|(id, name)| (name, self.usage(id), self.deficit(id)));
        f.debug_struct("Scheduler")
            .field("classes", &classes.collect::<Vec<_>>())
            .field("endpoints", &self.pool.len())
            .finish_non_exhaustive()
    }
}
