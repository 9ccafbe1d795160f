//! Once warm, the arbiter allocates nothing per request.

mod counting;
mod threaded;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use counting::ALLOCATIONS;
use tollgate::metrics::Metrics;
use tollgate::policy::{ClassSpec, PolicySpec, Profile, QueuePolicy};
use tollgate::{
    CachedList, CachedOn, Candidates, Constraints, EndpointIndex, Engine, Pin, Request, Selector, Worker,
    WorkerId, WorkerSnapshot,
};

/// Runs on the arbiter thread, so it can tell what that thread has allocated.
struct Spy(Arc<AtomicU64>);

impl Selector for Spy {
    fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
        self.0.store(ALLOCATIONS.get(), Ordering::Relaxed);
        candidates.least_loaded()
    }
}

/// Plain, pinned, constrained, prioritised, jumping, partly cached requests, FCFS and WSPT, beyond what the workers
/// take at once, so that they really wait.
fn requests() -> Vec<Request> {
    let constraints = Arc::new(Constraints::new(Some(vec![WorkerId(0), WorkerId(2)]), vec![]));
    let cached: CachedList = [CachedOn { worker: WorkerId(1), tokens: 50 }].into();
    (0..2_000u32)
        .map(|i| {
            let mut r = Request::new(100 + u64::from(i * 7919 % 1000), 0);
            r.class = Some(["fcfs", "wspt"][i as usize % 2].into());
            match i % 7 {
                1 => r.pin = Some(Pin { worker: WorkerId(u64::from(i % 4)), rank: Some(0) }),
                2 => r.constraints = Some(constraints.clone()),
                3 => r.strict_priority = i % 3,
                4 => r.priority_jump = f64::from(i % 5),
                5 => (r.cached_tokens, r.cached_on) = (50, Some(cached.clone())),
                _ => {}
            }
            r
        })
        .collect()
}

#[test]
fn a_warm_arbiter_allocates_nothing_per_request() {
    let mut fcfs = ClassSpec::explicit("fcfs", 1000);
    fcfs.busy.threshold_tokens = Some(5_000);
    let wspt = ClassSpec { name: "wspt".into(), order: QueuePolicy::Wspt, quantum: 300, ..fcfs.clone() };
    let profile = Profile::new(PolicySpec { classes: vec![fcfs, wspt], ..PolicySpec::default() }).unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let builder = Engine::builder(profile)
        .workers(WorkerSnapshot::new(1, (0..4).map(Worker::new).collect()).unwrap())
        .selector(Spy(seen.clone()));
    // Nor does counting for the exporter.
    let engine = Metrics::new().start("pool", builder).unwrap();
    let requests = requests();
    let round = || {
        let mut admissions = requests.iter().map(|r| engine.admit(r.clone()).unwrap()).collect();
        threaded::each_answer(&mut admissions, |answer| drop(answer.unwrap()));
        seen.load(Ordering::Relaxed)
    };
    // How much waits at once depends on timing: warm is when nothing has been allocated for some rounds.
    let (mut allocated, mut quiet, mut rounds) = (round(), 0, 1);
    while quiet < 20 {
        let now = round();
        quiet = if now == allocated { quiet + 1 } else { 0 };
        allocated = now;
        rounds += 1;
        assert!(rounds < 500, "still allocating after {rounds} rounds: {allocated} so far");
    }
    assert!(allocated > 0, "the spy runs on the arbiter thread, which allocated its structures");
}
