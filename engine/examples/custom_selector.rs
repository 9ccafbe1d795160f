//! A selector of your own: which endpoint serves the request that arbitration has picked.
//!
//! `cargo run -p tollgate --example custom_selector`

use std::error::Error;

use tollgate::policy::{Profile, QueuePolicy};
use tollgate::{
    CachedOn, Candidate, Candidates, EndpointIndex, Engine, Permit, Rejected, Request, Selector, Worker,
    WorkerId, WorkerSnapshot,
};

/// Values a cached token more than the default does, which only saves its computation: its memory is spared, too.
struct Affinity {
    /// What a cached token is worth, in tokens to compute.
    weight: f64,
}

impl Selector for Affinity {
    // Runs on the arbiter's thread: it may keep state, but not wait for anything. A panic fails this one request.
    fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
        let raw = candidates.snapshot().raw_isl_tokens();
        let cost = |c: &Candidate| {
            let cached = raw - c.prefill;
            c.active as f64 + c.prefill as f64 - self.weight * cached as f64
        };
        // Endpoints that are busy for the class are among them under a ratio rule.
        let open = candidates.iter().filter(|c| !c.busy);
        let best = open.min_by(|a, b| cost(a).total_cmp(&cost(b)));
        best.map(|c| c.index).or_else(|| candidates.least_loaded())
    }
}

/// The workers that two requests go to: with weight 0, and with weight 1.
pub fn run() -> Result<Vec<u64>, Box<dyn Error>> {
    let start = |selector: Affinity| -> Result<Engine, Box<dyn Error>> {
        let workers = WorkerSnapshot::new(1, (1..=3).map(Worker::new).collect())?;
        let profile = Profile::synthetic(None, QueuePolicy::Fcfs);
        Ok(Engine::builder(profile).workers(workers).selector(selector).start()?)
    };
    // 1,000 tokens, of which worker 2 has 400 cached; it is busy with 500 others.
    let cached = [CachedOn { worker: WorkerId(2), tokens: 400 }];
    let request = || Request { cached_on: Some(cached.into()), ..Request::new(1_000, 400) };
    let serve = |engine: &Engine, request| -> Result<Permit, Rejected> { engine.admit(request)?.wait() };

    let mut chosen = Vec::new();
    for weight in [0.0, 1.0] {
        let engine = start(Affinity { weight })?;
        let only_there = tollgate::Pin { worker: WorkerId(2), rank: None };
        let _others = serve(&engine, Request { pin: Some(only_there), ..Request::new(500, 0) })?;
        chosen.push(serve(&engine, request())?.endpoint().worker.0);
    }
    Ok(chosen)
}

fn main() -> Result<(), Box<dyn Error>> {
    let [indifferent, faithful] = run()?[..] else { unreachable!() };
    println!("weight 0: worker {indifferent}; weight 1: worker {faithful}");
    Ok(())
}
