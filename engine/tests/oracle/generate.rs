//! Random requests and workers. What is fixed for a case is drawn once, in [`World::new`]: cases differ
//! in kind and not only in numbers.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{CachedList, CachedOn, Constraints, Endpoint, Pin, Request, Worker, WorkerId, WorkerSnapshot};

use super::Rng;
use super::policies::Policies;

const WORKERS: [u64; 7] = [0, 1, 2, 3, 5, 8, u64::MAX];
const TAINTS: [&str; 3] = ["gpu", "spot", "zone-a"];
/// A far-away clock \[ns\]: beyond what an `i64` holds.
const LATE: u64 = i64::MAX as u64 + 10;
/// A deadline after which the clock still has not ended, even from there.
const LONG: Duration = Duration::from_secs(1 << 33);

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) rng: Rng,
    /// A common prompt length \[tokens\]; thresholds and quanta are drawn around it.
    pub(super) unit: u64,
    /// Percent of requests that are exactly `unit` long, so that loads hit thresholds exactly.
    equal_costs: u64,
    pins: u64,
    constraints: u64,
    lists: u64,
    tiers: u64,
    /// Percent of requests that have a deadline.
    deadlines: u64,
    /// Percent of odd numbers: empty, huge, far away.
    extremes: u64,
    pub(super) policies: Policies,
    clock: u64,
    most_workers: u64,
    workers: Vec<Worker>,
    /// Of each of [`WORKERS`]; a number never comes back.
    incarnations: [u64; WORKERS.len()],
    version: u64,
}

impl World {
    pub(crate) fn new(mut rng: Rng) -> Self {
        Self {
            unit: rng.pick(&[1, 2, 10, 512, 512, 4096, 1 << 39, 1 << 62]),
            equal_costs: rng.pick(&[0, 50, 100]),
            pins: rng.pick(&[0, 10, 30, 80]),
            constraints: rng.pick(&[0, 0, 10, 50]),
            lists: rng.pick(&[0, 20, 80]),
            tiers: rng.pick(&[0, 10, 50]),
            deadlines: rng.pick(&[0, 10, 50]),
            extremes: rng.pick(&[0, 1, 10]),
            policies: Policies::default(),
            clock: 0,
            most_workers: rng.within(1..=WORKERS.len() as u64),
            workers: Vec::new(),
            incarnations: [0; WORKERS.len()],
            version: 0,
            rng,
        }
    }

    /// Around `unit`: a little below it up to some times as much.
    fn tokens(&mut self) -> u64 {
        let Self { unit, rng, .. } = self;
        if rng.percent(self.extremes) {
            return rng.pick(&[0, 1, 1 << 40, (1 << 40) + 1, u64::MAX / 2, u64::MAX - 1, u64::MAX]);
        }
        if rng.percent(self.equal_costs) {
            return *unit;
        }
        rng.within(0..=unit.saturating_mul(rng.clone().pick(&[1, 2, 2, 30])))
    }

    // --- requests --------------------------------------------------------------------------------------------

    /// A request and its arrival \[ns\].
    pub(crate) fn request(&mut self) -> (Request, u64) {
        let raw = self.tokens();
        let mut request = Request::new(raw, 0);
        if self.rng.percent(30) {
            request.cached_tokens = self.rng.pick(&[raw / 2, raw.saturating_sub(1), raw, raw / 7, u64::MAX]);
        }
        if self.rng.percent(self.lists) {
            request.cached_on = Some(self.cached_on(raw));
        }
        if self.rng.percent(self.tiers) {
            request.strict_priority = self.rng.pick(&[1, 1, 2, u32::MAX]);
        }
        if self.rng.percent(self.tiers) {
            request.priority_jump =
                self.rng.pick(&[-5.0, -0.0, 0.0, 7e-10, 1.6e-9, 2e-9, 0.4, 0.9, 3.0, 1e10, 1e308, f64::MAX]);
        }
        if self.rng.percent(self.deadlines) {
            request.deadline = Some(self.rng.pick(&[
                Duration::ZERO,
                Duration::from_nanos(3),
                Duration::from_secs(1),
                Duration::from_secs(2),
                LONG,
            ]));
        }
        if self.rng.percent(self.pins) {
            request.pin = Some(self.pin());
        }
        if self.rng.percent(self.constraints) {
            let allowed = self.rng.percent(70).then(|| self.some_workers());
            request.constraints = Some(Arc::new(Constraints::new(allowed, self.taints(40))));
        }
        // Most arrive with the clock, which often stands still; some came in by another thread.
        self.clock += self.rng.pick(&[0, 0, 1, 400_000_000]);
        let arrival = match self.rng.below(10) {
            0 => self.rng.within(0..=self.clock),
            1 if self.rng.percent(self.extremes) => LATE,
            _ => self.clock,
        };
        (request, arrival)
    }

    /// The clock when somebody looks at it \[ns\].
    pub(crate) fn now(&mut self) -> u64 {
        if self.rng.percent(self.extremes) {
            return self.rng.pick(&[0, LATE, u64::MAX - 1, u64::MAX]);
        }
        self.clock += self.rng.pick(&[0, 0, 1, 1_000_000_000]);
        self.clock
    }

    fn cached_on(&mut self, raw: u64) -> CachedList {
        let mut entry = || CachedOn {
            worker: WorkerId(self.rng.pick(&WORKERS)),
            tokens: self.rng.pick(&[0, raw / 2, raw / 2, raw, u64::MAX]),
        };
        [entry(), entry(), entry()].into_iter().collect()
    }

    fn pin(&mut self) -> Pin {
        let worker = match self.workers.len() {
            n @ 1.. if self.rng.percent(85) => self.workers[self.rng.below(n as u64) as usize].clone(),
            _ => Worker::new(self.rng.pick(&WORKERS)),
        };
        let rank = self.rng.percent(60).then(|| {
            let rank = u64::from(worker.first_rank) + self.rng.below(u64::from(worker.ranks) + 1);
            u32::try_from(rank).unwrap_or(0)
        });
        Pin { worker: worker.id, rank }
    }

    fn some_workers(&mut self) -> Vec<WorkerId> {
        (0..self.rng.below(4)).map(|_| WorkerId(self.rng.pick(&WORKERS))).collect()
    }

    fn taints(&mut self, percent: u64) -> Vec<Arc<str>> {
        TAINTS.into_iter().filter(|_| self.rng.percent(percent)).map(Arc::from).collect()
    }

    // --- workers ---------------------------------------------------------------------------------------------

    /// The next snapshot: the workers of the last one with a change or two.
    pub(crate) fn workers(&mut self) -> WorkerSnapshot {
        if self.version == 0 {
            (0..self.most_workers).for_each(|_| self.add_worker());
        }
        for _ in 0..self.rng.pick(&[0, 1, 1, 1, 2, 3]) {
            self.change_workers();
        }
        for i in 0..self.workers.len() {
            let ranks = u64::from(self.workers[i].ranks);
            self.workers[i].external_load = match self.rng.below(3) {
                0 => (0..self.rng.within(0..=ranks)).map(|_| self.load()).collect(),
                _ => Vec::new(),
            };
        }
        self.version += 1;
        WorkerSnapshot::new(self.version, self.workers.clone()).expect("valid workers")
    }

    fn change_workers(&mut self) {
        let Some(last) = (self.workers.len() as u64).checked_sub(1) else {
            return self.add_worker();
        };
        let at = self.rng.within(0..=last) as usize;
        let mut worker = self.workers[at].clone();
        match self.rng.below(10) {
            0 | 1 => return self.add_worker(),
            2 if self.rng.percent(10) => return self.workers.clear(),
            2 => drop(self.workers.swap_remove(at)),
            3 => worker.incarnation = self.incarnation(worker.id, 100),
            4 => self.set_ranks(&mut worker),
            5 => worker.overloaded ^= true,
            6 => worker.taints = self.taints(50),
            7 => worker.max_active_requests = self.permits(),
            8 => worker.max_num_batched_tokens = self.batch(),
            _ => return,
        }
        if let Some(w) = self.workers.iter_mut().find(|w| w.id == worker.id) {
            *w = worker;
        }
    }

    fn add_worker(&mut self) {
        let id = self.rng.pick(&WORKERS);
        if self.workers.len() as u64 >= self.most_workers || self.workers.iter().any(|w| w.id.0 == id) {
            return;
        }
        let mut worker = Worker::new(id);
        worker.incarnation = self.incarnation(worker.id, 30);
        worker.overloaded = self.rng.percent(10);
        worker.taints = self.taints(50);
        worker.max_active_requests = self.permits();
        worker.max_num_batched_tokens = self.batch();
        self.set_ranks(&mut worker);
        self.workers.push(worker);
    }

    /// Of a process that is a new one in `percent` of 100 cases.
    fn incarnation(&mut self, id: WorkerId, percent: u64) -> u64 {
        let at = WORKERS.iter().position(|w| *w == id.0).expect("one of them");
        self.incarnations[at] += u64::from(self.rng.percent(percent));
        self.incarnations[at]
    }

    fn set_ranks(&mut self, worker: &mut Worker) {
        worker.first_rank = self.rng.pick(&[0, 0, 0, 1, 2, u32::MAX - 3]);
        worker.ranks = self.rng.pick(&[1, 1, 2, 3, 4]);
    }

    fn permits(&mut self) -> Option<u32> {
        self.rng.pick(&[None, None, None, Some(0), Some(1), Some(2), Some(u32::MAX)])
    }

    fn batch(&mut self) -> Option<u64> {
        self.rng.pick(&[None, Some(0), Some(self.unit), Some(3 * (self.unit / 2)), Some(u64::MAX)])
    }

    /// What others have booked somewhere \[tokens\].
    pub(crate) fn load(&mut self) -> u64 {
        if self.rng.percent(30) { 0 } else { self.tokens() }
    }

    /// An endpoint of the current workers.
    pub(crate) fn endpoint(&mut self) -> Option<Endpoint> {
        let worker = self.workers.get(self.rng.below(self.workers.len().max(1) as u64) as usize)?;
        let rank = worker.first_rank + self.rng.below(u64::from(worker.ranks)) as u32;
        Some(Endpoint { worker: worker.id, rank })
    }
}
