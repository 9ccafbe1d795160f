//! The replay: against theory, against the engine, against itself, and from outside.

mod cli;
mod engine;
mod laws;
mod theory;

use std::sync::Arc;

use tollgate::policy::Profile;
use tollgate_bench::replay::{Fleet, Rules, Setup, StepTime, WorkerModel};

/// Workers that serve one request after the other, at a token per microsecond, and have nothing cached.
fn one_by_one(workers: u32) -> Fleet {
    Fleet {
        workers,
        model: WorkerModel {
            slots: 1,
            step_tokens: 1 << 41,
            time: StepTime { base: 0.0, prefill: 1_000.0, decode: 0.0 },
        },
        permits: Some(1),
        cache_blocks: 0,
        block_tokens: 1,
    }
}

fn setup(profile: Profile, fleet: Fleet) -> Setup {
    Setup {
        profile: Arc::new(profile),
        fleet,
        classes: Rules::default(),
        groups: Rules::default(),
        sources: vec!["test".into()],
        seed: 1,
    }
}
