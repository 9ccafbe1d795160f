//! §4 and §7: workers, load, busy endpoints, selection and booking.

use tollgate::policy::BusyRule;
use tollgate::{
    DEFAULT_MAX_NUM_BATCHED_TOKENS, Endpoint, MAX_BOOKED_TOKENS, Reason, Request, Worker, WorkerId,
    WorkerSnapshot,
};

use super::{Booked, Event, Oracle, matches_pin, prefill};

impl Oracle {
    // --- §4 Workers and load ---------------------------------------------------------------------------------

    /// A new snapshot replaces the workers and the external loads, and never touches the bookings, unless their
    /// worker is another one now.
    pub(crate) fn set_workers(&mut self, snapshot: &WorkerSnapshot) {
        let before = self.endpoints();
        self.workers = snapshot.workers().to_vec();
        self.external.clear();
        for w in &self.workers {
            let loads = (0..).zip(&w.external_load);
            let endpoint = |i| Endpoint { worker: w.id, rank: w.first_rank + i };
            self.external.extend(loads.map(|(i, &load)| (endpoint(i), load)));
        }
        for b in &mut self.booked {
            let now = self.workers.iter().find(|w| w.id == b.endpoint.worker);
            b.stale |= now.is_some_and(|w| w.incarnation != b.incarnation);
        }
        let came_back = |e: &Endpoint| !before.contains(e) && self.booked(*e).1 > 0;
        if self.endpoints().iter().any(came_back) {
            self.coverage.saw(Event::BookingsComeBack);
        }
    }

    pub(crate) fn set_external(&mut self, endpoint: Endpoint, tokens: u64) {
        self.external.retain(|(e, _)| *e != endpoint);
        self.external.push((endpoint, tokens));
    }

    pub(crate) fn endpoints(&self) -> Vec<Endpoint> {
        let ranks = |w: &Worker| {
            let (worker, first_rank) = (w.id, w.first_rank);
            (0..w.ranks).map(move |i| Endpoint { worker, rank: first_rank + i })
        };
        self.workers.iter().flat_map(ranks).collect()
    }

    fn worker(&self, id: WorkerId) -> Option<&Worker> {
        self.workers.iter().find(|w| w.id == id)
    }

    /// A worker without a load sample is empty.
    pub(crate) fn external(&self, endpoint: Endpoint) -> u64 {
        self.external.iter().find(|(e, _)| *e == endpoint).map_or(0, |(_, tokens)| *tokens)
    }

    /// Tokens and permits.
    pub(crate) fn booked(&self, endpoint: Endpoint) -> (u64, u32) {
        let mine = || self.booked.iter().filter(|b| b.endpoint == endpoint && !b.stale);
        (mine().map(|b| b.tokens).sum(), mine().count() as u32)
    }

    pub(crate) fn active(&self, endpoint: Endpoint) -> u64 {
        self.external(endpoint).saturating_add(self.booked(endpoint).0)
    }

    // --- §4 Busy ---------------------------------------------------------------------------------------------

    fn busy(&self, class: usize, endpoint: Endpoint) -> bool {
        let worker = self.worker(endpoint.worker).expect("eligible");
        let BusyRule { threshold_tokens, threshold_frac, .. } = self.classes[class].busy;
        let active = self.active(endpoint);
        let batch = worker.max_num_batched_tokens.unwrap_or(DEFAULT_MAX_NUM_BATCHED_TOKENS);
        let above_threshold = threshold_tokens.is_some_and(|threshold| active > threshold);
        let above_frac = threshold_frac.is_some_and(|frac| active > (frac * batch as f64).floor() as u64);
        let no_permit_left = worker.max_active_requests.is_some_and(|max| self.booked(endpoint).1 >= max);
        above_threshold || above_frac || no_permit_left
    }

    // --- §4 Eligible -----------------------------------------------------------------------------------------

    fn allowed(request: &Request, worker: &Worker) -> bool {
        let list = request.constraints.as_ref().and_then(|c| c.allowed());
        list.is_none_or(|ids| ids.contains(&worker.id))
    }

    fn tolerated(request: &Request, worker: &Worker) -> bool {
        request.constraints.as_ref().is_none_or(|c| c.taints().iter().all(|t| worker.taints.contains(t)))
    }

    fn eligible(&self, request: &Request) -> Vec<Endpoint> {
        let mut endpoints = self.endpoints();
        endpoints.retain(|e| {
            let worker = self.worker(e.worker).expect("in the snapshot");
            Self::allowed(request, worker)
                && Self::tolerated(request, worker)
                && !worker.overloaded
                && request.pin.is_none_or(|pin| matches_pin(pin, *e))
        });
        endpoints
    }

    // --- §4 Dispatchable -------------------------------------------------------------------------------------

    /// As the head of its lane.
    pub(super) fn dispatchable(&self, class: usize, request: &Request) -> bool {
        let eligible = self.eligible(request);
        let busy = eligible.iter().filter(|e| self.busy(class, **e)).count();
        if eligible.is_empty() {
            return true;
        }
        if busy == eligible.len() {
            return false;
        }
        match self.classes[class].busy.worker_ratio {
            Some(ratio) if request.pin.is_none() => (busy as f64) < ratio * eligible.len() as f64,
            _ => true,
        }
    }

    /// Not dispatchable though one of its endpoints is not busy.
    pub(super) fn closed_by_ratio(&self, class: usize, request: &Request) -> bool {
        !self.dispatchable(class, request) && self.eligible(request).iter().any(|e| !self.busy(class, *e))
    }

    // --- §7 Selection ----------------------------------------------------------------------------------------

    pub(crate) fn select(&mut self, class: usize, request: &Request) -> Result<Endpoint, Reason> {
        let eligible = self.eligible(request);
        if eligible.is_empty() {
            let reason = self.reason(request);
            self.coverage.saw(Event::of(&reason, request));
            return Err(reason);
        }
        let mut choice: Vec<_> = eligible.iter().copied().filter(|e| !self.busy(class, *e)).collect();
        if choice.is_empty() {
            self.coverage.saw(Event::SelectAmongBusy);
            choice = eligible;
        }
        let load = |e: &Endpoint| u128::from(self.active(*e)) + u128::from(prefill(request, e.worker));
        let best = choice.iter().copied().min_by_key(|e| (load(e), e.worker, e.rank)).expect("not empty");
        if choice.iter().filter(|e| load(e) == load(&best)).count() > 1 {
            self.coverage.saw(Event::SelectorTie);
        }
        Ok(best)
    }

    /// Why there is no eligible endpoint.
    fn reason(&self, request: &Request) -> Reason {
        let taints = || {
            let required = request.constraints.as_ref().expect("without taints all are tolerated").taints();
            Reason::TaintsUnsatisfiable { required: required.to_vec() }
        };
        let Some(pin) = request.pin else {
            let allowed: Vec<_> = self.workers.iter().filter(|w| Self::allowed(request, w)).collect();
            let tolerated = allowed.iter().filter(|w| Self::tolerated(request, w));
            return match tolerated.map(|w| w.ranks as usize).sum() {
                _ if allowed.is_empty() => Reason::NoEndpoint { workers: self.workers.len() },
                0 => taints(),
                endpoints => Reason::AllOverloaded { endpoints },
            };
        };
        let list = request.constraints.as_ref().and_then(|c| c.allowed());
        if list.is_some_and(|ids| !ids.contains(&pin.worker)) {
            return Reason::PinNotAllowed { pin };
        }
        let Some(worker) = self.worker(pin.worker) else {
            return Reason::PinUnavailable { pin };
        };
        let exists = |rank| (0..worker.ranks).any(|i| worker.first_rank + i == rank);
        if !pin.rank.is_none_or(exists) {
            return Reason::PinRankOutOfRange { pin, first_rank: worker.first_rank, ranks: worker.ranks };
        }
        if !Self::tolerated(request, worker) {
            return taints();
        }
        Reason::PinOverloaded { pin }
    }

    // --- §7 Booking ------------------------------------------------------------------------------------------

    pub(crate) fn book(&mut self, id: u64, endpoint: Endpoint, request: &Request) {
        let incarnation = self.worker(endpoint.worker).expect("eligible").incarnation;
        let prefill = prefill(request, endpoint.worker);
        if prefill > MAX_BOOKED_TOKENS {
            self.coverage.saw(Event::BookingCapped);
        }
        let tokens = prefill.min(MAX_BOOKED_TOKENS);
        self.booked.push(Booked { id, endpoint, incarnation, tokens, stale: false });
    }

    /// Tokens go back, the permit stays. Too late, it changes nothing; only the release that follows is counted.
    pub(crate) fn prefill_complete(&mut self, id: u64) {
        let b = self.booked.iter_mut().find(|b| b.id == id).expect("not released");
        b.tokens = 0;
    }

    /// Everything goes back. One that belongs to an earlier incarnation changes nothing and is counted.
    pub(crate) fn release(&mut self, id: u64) {
        let at = self.booked.iter().position(|b| b.id == id).expect("released once");
        let b = self.booked.remove(at);
        if b.stale {
            self.coverage.saw(Event::StaleRelease);
            self.stale_releases += 1;
        } else if !self.endpoints().contains(&b.endpoint) {
            self.coverage.saw(Event::DepartedRelease);
        }
    }
}
