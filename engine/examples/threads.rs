//! Plain threads: each waits for its permit, and gives it back by dropping it.
//!
//! `cargo run -p tollgate --example threads`

use std::collections::BTreeMap;
use std::error::Error;
use std::thread;
use std::time::Duration;

use tollgate::policy::{ClassSpec, PolicySpec, Profile};
use tollgate::{Engine, Rejected, Request, Worker, WorkerSnapshot};

/// One client: five requests, one after the other. Returns the prompt tokens that were served.
fn client(engine: Engine, class: &str) -> Result<u64, Rejected> {
    let mut served = 0;
    for _ in 0..5 {
        // 2,000 prompt tokens, 1,500 of them cached: 500 to compute.
        let request = Request::new(2_000, 1_500).with_class(class);
        let mut permit = engine.admit(request)?.wait()?;
        served += permit.cost();
        // Here the request goes to `permit.endpoint()`, until the first token is there …
        thread::sleep(Duration::from_millis(1));
        permit.prefill_complete();
        // … and then the rest of them: the permit is dropped with the last.
    }
    Ok(served)
}

/// Runs sixteen clients; returns the prompt tokens served by class.
pub fn run() -> Result<BTreeMap<&'static str, u64>, Box<dyn Error>> {
    let busy_above = |mut class: ClassSpec| {
        class.busy.threshold_tokens = Some(1_000);
        class
    };
    let classes = [ClassSpec::explicit("premium", 4_096), ClassSpec::explicit("regular", 1_024)];
    let profile =
        Profile::new(PolicySpec { classes: classes.map(busy_above).into(), ..PolicySpec::default() })?;
    let workers = WorkerSnapshot::new(1, vec![Worker::new(1), Worker::new(2)])?;
    let engine = Engine::builder(profile).workers(workers).start()?;

    let mut served = BTreeMap::new();
    let clients: Vec<_> = ["premium", "regular"]
        .repeat(8)
        .into_iter()
        .map(|class| {
            // A clone for each thread: then they share no counter of owners.
            let engine = engine.clone();
            (class, thread::spawn(move || client(engine, class)))
        })
        .collect();
    for (class, client) in clients {
        *served.entry(class).or_default() += client.join().expect("no client panics")?;
    }
    // Nothing new comes in, and what waits is finished: nothing does.
    engine.drain(Duration::from_secs(1));
    engine.join();
    Ok(served)
}

fn main() -> Result<(), Box<dyn Error>> {
    for (class, tokens) in run()? {
        println!("{class}: {tokens} tokens");
    }
    Ok(())
}
