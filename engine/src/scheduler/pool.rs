//! The endpoints: who they are, how loaded, and for whom busy.

use std::ops::Range;

use fixedbitset::FixedBitSet;
use rustc_hash::FxHashMap;

use super::masks::{Masks, NO_MASK, Workers};
use super::view::{Thresholds, View};
use crate::policy::BusyRule;
use crate::request::{Pin, Snapshot};
use crate::sync::DataArc;
use crate::worker::{DEFAULT_MAX_NUM_BATCHED_TOKENS, Endpoint, WorkerSnapshot};

/// A booking counts at most this many tokens on its endpoint, so that no sum of bookings can wrap around: far
/// above any prompt, and 2²⁴ permits of it still fit.
pub const MAX_BOOKED_TOKENS: u64 = 1 << 40;

/// Number of an endpoint in the current worker snapshot, by worker id and rank. The next snapshot renumbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointIndex(pub(super) u32);

impl EndpointIndex {
    /// The number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Number of a threshold view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ViewId(pub(super) u32);

/// Number of a pool gate: a threshold view with a busy-worker ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GateId(pub(super) u32);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Gate {
    view: ViewId,
    ratio: Option<f64>,
}

/// Prefill tokens and permits that this scheduler has booked on an endpoint and not seen released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Booked {
    /// Prefill tokens.
    pub tokens: u64,
    /// Permits.
    pub permits: u32,
}

#[derive(Clone, Debug)]
struct State {
    endpoint: Endpoint,
    incarnation: u64,
    external: u64,
    booked: Booked,
    max_permits: u32,
    overloaded: bool,
}

impl State {
    fn active(&self) -> u64 {
        self.external.saturating_add(self.booked.tokens)
    }

    /// Nothing may be placed here, whatever the class.
    fn closed(&self) -> bool {
        self.overloaded || self.booked.permits >= self.max_permits
    }
}

/// One process behind an endpoint: the endpoint and its incarnation.
pub(super) type Life = (Endpoint, u64);

/// The endpoints of the current snapshot with their loads.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    workers: Workers,
    states: Vec<State>,
    /// Bookings on endpoints that are not in the snapshot just now, but may come back with the same incarnation.
    departed: FxHashMap<Life, Booked>,
    /// Endpoints that are not overloaded.
    serving: FixedBitSet,
    serving_count: u32,
    views: Vec<View>,
    gates: Vec<Gate>,
    gates_of: Vec<Vec<GateId>>,
    masks: Masks,
    /// Views for which the last load change made an endpoint free or busy.
    flipped: Vec<ViewId>,
    stale_releases: u64,
}

impl Pool {
    pub(super) fn new() -> Self {
        Self {
            workers: Workers::default(),
            states: Vec::new(),
            departed: FxHashMap::default(),
            serving: FixedBitSet::new(),
            serving_count: 0,
            views: Vec::new(),
            gates: Vec::new(),
            gates_of: Vec::new(),
            masks: Masks::new(),
            flipped: Vec::new(),
            stale_releases: 0,
        }
    }

    /// The view and the gate of a class with this rule; equal rules share them.
    fn gate_for(&mut self, rule: &BusyRule) -> (ViewId, GateId) {
        let thresholds = Thresholds { tokens: rule.threshold_tokens, frac: rule.threshold_frac };
        let view = find_or_push(&mut self.views, |v| v.rule == thresholds, || View::new(thresholds));
        let gate = Gate { view: ViewId(view), ratio: rule.worker_ratio };
        let id = GateId(find_or_push(&mut self.gates, |g| *g == gate, || gate));
        self.gates_of.resize(self.views.len(), Vec::new());
        if !self.gates_of[view as usize].contains(&id) {
            self.gates_of[view as usize].push(id);
        }
        (ViewId(view), id)
    }

    pub(super) fn views(&self) -> impl Iterator<Item = ViewId> + use<> {
        (0..self.views.len() as u32).map(ViewId)
    }

    pub(super) fn gates(&self) -> impl Iterator<Item = GateId> + use<> {
        (0..self.gates.len() as u32).map(GateId)
    }

    pub(super) fn gates_of(&self, view: ViewId) -> &[GateId] {
        &self.gates_of[view.0 as usize]
    }

    pub(super) fn workers(&self) -> &WorkerSnapshot {
        &self.workers.snapshot
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    /// Takes the bookings out of the current endpoints, to be given back to those that stay.
    pub(super) fn take_bookings(&mut self) -> FxHashMap<Life, Booked> {
        let current =
            self.states.iter_mut().map(|s| ((s.endpoint, s.incarnation), std::mem::take(&mut s.booked)));
        let mut lives = std::mem::take(&mut self.departed);
        lives.extend(current.filter(|(_, booked)| *booked != Booked::default()));
        lives
    }

    /// Keeps bookings of endpoints that are gone. Those of a worker that is back as a new process are history.
    pub(super) fn keep_departed(&mut self, mut lives: FxHashMap<Life, Booked>) {
        let workers = self.workers.snapshot.workers();
        lives.retain(|(endpoint, incarnation), _| {
            let at = workers.binary_search_by_key(&endpoint.worker, |w| w.id);
            at.is_err() || at.is_ok_and(|at| workers[at].incarnation == *incarnation)
        });
        self.departed = lives;
    }

    /// Replaces the workers. External loads are taken from the snapshot, bookings from `booked`.
    pub(super) fn set_workers(
        &mut self,
        snapshot: DataArc<WorkerSnapshot>,
        mut booked: impl FnMut(Endpoint, u64) -> Booked,
    ) {
        self.states.clear();
        for w in snapshot.workers() {
            for (i, rank) in (w.first_rank..=w.first_rank + (w.ranks - 1)).enumerate() {
                let endpoint = Endpoint { worker: w.id, rank };
                self.states.push(State {
                    endpoint,
                    incarnation: w.incarnation,
                    external: w.external_load.get(i).copied().unwrap_or(0),
                    booked: booked(endpoint, w.incarnation),
                    max_permits: w.max_active_requests.unwrap_or(u32::MAX),
                    overloaded: w.overloaded,
                });
            }
        }
        self.workers = Workers { index: snapshot.index(), endpoints: self.states.len(), snapshot };
        self.serving.clear();
        self.serving.grow(self.states.len());
        for (i, s) in self.states.iter().enumerate() {
            self.serving.set(i, !s.overloaded);
        }
        self.serving_count = self.serving.count_ones(..) as u32;
        self.reset_views();
        self.masks.rebuild(&self.workers);
    }

    /// Computes every view from the start.
    fn reset_views(&mut self) {
        let batch_sizes = || {
            self.workers.snapshot.workers().iter().flat_map(|w| {
                let size = w.max_num_batched_tokens.unwrap_or(DEFAULT_MAX_NUM_BATCHED_TOKENS);
                std::iter::repeat_n(size, w.ranks as usize)
            })
        };
        for view in &mut self.views {
            view.reset(batch_sizes());
            for (i, s) in self.states.iter().enumerate() {
                view.set(i as u32, s.active(), s.closed());
            }
        }
    }

    /// Drops all views and gates and makes those of `rules`, the busy rules of the classes.
    pub(super) fn set_rules<'r>(
        &mut self,
        rules: impl Iterator<Item = &'r BusyRule>,
    ) -> Vec<(ViewId, GateId)> {
        self.views.clear();
        self.gates.clear();
        self.gates_of.clear();
        let ids = rules.map(|rule| self.gate_for(rule)).collect();
        self.reset_views();
        ids
    }

    /// Carries a change of an endpoint's load into all views and notes those where it flipped.
    fn refresh(&mut self, endpoint: u32) {
        let s = &self.states[endpoint as usize];
        self.flipped.clear();
        for (view, id) in self.views.iter_mut().zip(0u32..) {
            if view.set(endpoint, s.active(), s.closed()) {
                self.flipped.push(ViewId(id));
            }
        }
    }

    pub(super) fn set_external(&mut self, endpoint: EndpointIndex, tokens: u64) {
        self.states[endpoint.index()].external = tokens;
        self.refresh(endpoint.0)
    }

    pub(super) fn set_booked(&mut self, endpoint: EndpointIndex, booked: Booked) {
        self.states[endpoint.index()].booked = booked;
        self.refresh(endpoint.0)
    }

    /// Changes the bookings of one life of an endpoint, which need not be in the snapshot. A life that is over
    /// is only counted: `None`.
    pub(super) fn release(
        &mut self,
        endpoint: Endpoint,
        incarnation: u64,
        tokens: u64,
        permits: u32,
    ) -> Option<EndpointIndex> {
        let less = |b: Booked| Booked {
            tokens: b.tokens.saturating_sub(tokens),
            permits: b.permits.saturating_sub(permits),
        };
        if let Some(index) = self.find(endpoint) {
            let s = &mut self.states[index.index()];
            if s.incarnation == incarnation {
                s.booked = less(s.booked);
                return Some(index);
            }
        }
        match self.departed.get_mut(&(endpoint, incarnation)) {
            Some(booked) => {
                *booked = less(*booked);
                if *booked == Booked::default() {
                    self.departed.remove(&(endpoint, incarnation));
                }
            }
            None => self.stale_releases += u64::from(permits),
        }
        None
    }

    /// Views in which the endpoint of the last load change became free or busy.
    pub(super) fn flipped(&self) -> &[ViewId] {
        &self.flipped
    }

    pub(super) fn stale_releases(&self) -> u64 {
        self.stale_releases
    }

    /// The number of an endpoint of the snapshot.
    pub(super) fn find(&self, endpoint: Endpoint) -> Option<EndpointIndex> {
        let ranks = self.workers.index.get(&endpoint.worker)?;
        let offset = endpoint.rank.checked_sub(ranks.first_rank)?;
        (offset < ranks.ranks).then(|| EndpointIndex(ranks.first_endpoint + offset))
    }

    /// The endpoints that a pin means; empty if there are none.
    pub(super) fn pinned(&self, pin: Pin) -> Range<usize> {
        match pin.rank {
            Some(rank) => match self.find(Endpoint { worker: pin.worker, rank }) {
                Some(e) => e.index()..e.index() + 1,
                None => 0..0,
            },
            None => match self.workers.index.get(&pin.worker) {
                Some(r) => r.first_endpoint as usize..(r.first_endpoint + r.ranks) as usize,
                None => 0..0,
            },
        }
    }

    pub(super) fn endpoint(&self, endpoint: EndpointIndex) -> Endpoint {
        self.states[endpoint.index()].endpoint
    }

    pub(super) fn incarnation(&self, endpoint: EndpointIndex) -> u64 {
        self.states[endpoint.index()].incarnation
    }

    pub(super) fn active(&self, endpoint: EndpointIndex) -> u64 {
        self.states[endpoint.index()].active()
    }

    pub(super) fn external(&self, endpoint: EndpointIndex) -> u64 {
        self.states[endpoint.index()].external
    }

    pub(super) fn booked(&self, endpoint: EndpointIndex) -> Booked {
        self.states[endpoint.index()].booked
    }

    /// Over the thresholds of the view, or out of permits.
    pub(super) fn is_busy(&self, view: ViewId, endpoint: EndpointIndex) -> bool {
        let s = &self.states[endpoint.index()];
        s.booked.permits >= s.max_permits || self.view(view).is_over(endpoint.0, s.active())
    }

    pub(super) fn view(&self, view: ViewId) -> &View {
        &self.views[view.0 as usize]
    }

    /// Whether any endpoint is not overloaded.
    pub(super) fn serves(&self) -> bool {
        self.serving_count > 0
    }

    pub(super) fn serving(&self) -> &FixedBitSet {
        &self.serving
    }

    #[inline]
    pub(super) fn acquire_mask(&mut self, snapshot: &Snapshot) -> u32 {
        match snapshot.constraints() {
            Some(constraints) => self.masks.acquire(constraints, &self.workers),
            None => NO_MASK,
        }
    }

    /// The mask of a request that is waiting.
    pub(super) fn find_mask(&self, snapshot: &Snapshot) -> u32 {
        snapshot.constraints().map_or(NO_MASK, |constraints| self.masks.find(constraints))
    }

    #[inline]
    pub(super) fn release_mask(&mut self, mask: u32) {
        if mask != NO_MASK {
            self.masks.release(mask);
        }
    }

    /// Endpoints that a mask allows, serving or not; `None` for no constraints.
    #[inline]
    pub(super) fn mask(&self, mask: u32) -> Option<&FixedBitSet> {
        self.masks.endpoints(mask)
    }

    /// Whether a request without pin and constraints may go: semantics of the shared lane for the whole pool.
    pub(super) fn gate_open(&self, gate: GateId) -> bool {
        let gate = &self.gates[gate.0 as usize];
        let free = self.views[gate.view.0 as usize].free_count();
        pool_free(self.serving_count, self.serving_count - free, gate.ratio)
    }

    /// The same for the endpoints that `mask` allows.
    #[inline]
    pub(super) fn shared_open(&self, gate: GateId, mask: u32) -> bool {
        if mask == NO_MASK {
            return self.gate_open(gate);
        }
        self.masked_open(gate, mask)
    }

    fn masked_open(&self, gate: GateId, mask: u32) -> bool {
        let Some(mask) = self.masks.endpoints(mask) else { return self.gate_open(gate) };
        let gate = &self.gates[gate.0 as usize];
        let free = self.views[gate.view.0 as usize].free();
        let (mut eligible, mut busy) = (0, 0);
        for ((m, s), f) in mask.as_slice().iter().zip(self.serving.as_slice()).zip(free.as_slice()) {
            if gate.ratio.is_none() && m & f != 0 {
                return true;
            }
            eligible += (m & s).count_ones();
            busy += (m & s & !f).count_ones();
        }
        pool_free(eligible, busy, gate.ratio)
    }

    /// Whether the head of an exact lane may go: one of its eligible endpoints is free, or it has none at all.
    pub(super) fn exact_open(&self, view: ViewId, pinned: Range<usize>, mask: u32) -> bool {
        let free = self.views[view.0 as usize].free();
        if mask == NO_MASK && pinned.len() == 1 {
            return free.contains(pinned.start) || !self.serving.contains(pinned.start);
        }
        let allowed = self.masks.endpoints(mask);
        let mut eligible =
            pinned.filter(|&e| self.serving.contains(e) && allowed.is_none_or(|m| m.contains(e)));
        let Some(first) = eligible.next() else { return true };
        free.contains(first) || eligible.any(|e| free.contains(e))
    }
}

/// Without a ratio the pool is free while one endpoint is; with one, while fewer than that share are busy. A pool
/// with nobody in it counts as free, so that the request goes on to selection and gets the right error.
fn pool_free(eligible: u32, busy: u32, ratio: Option<f64>) -> bool {
    eligible == 0
        || match ratio {
            None => busy < eligible,
            Some(r) => f64::from(busy) < r * f64::from(eligible),
        }
}

fn find_or_push<X>(list: &mut Vec<X>, is: impl Fn(&X) -> bool, make: impl FnOnce() -> X) -> u32 {
    let at = list.iter().position(is).unwrap_or_else(|| {
        list.push(make());
        list.len() - 1
    });
    at as u32
}
