//! The `Scheduler` alone, on a clock of your own: the decisions of the engine, without a thread, in no time.
//!
//! Two classes offer more than one worker can serve, for a minute: who is served, and who waits how long?
//!
//! `cargo run -p tollgate --example simulate`

use std::error::Error;

use tollgate::policy::{ClassSpec, PolicySpec, Profile};
use tollgate::{Request, Scheduler, Timestamp, Worker, WorkerSnapshot};

const MILLISECOND: u64 = 1_000_000;
/// The worker computes this many prompt tokens per millisecond.
const SPEED: u64 = 10;
const MINUTE: u64 = 60_000 * MILLISECOND;

/// What a class got.
#[derive(Debug)]
pub struct Service {
    /// Its name.
    pub class: String,
    /// Requests served.
    pub served: u64,
    /// Their mean waiting time \[ms\].
    pub mean_wait: u64,
}

/// Simulates a minute.
pub fn run() -> Result<Vec<Service>, Box<dyn Error>> {
    let quanta = [("premium", 4_000), ("regular", 1_000)];
    let classes = quanta.map(|(name, quantum)| {
        let mut class = ClassSpec::explicit(name, quantum);
        class.busy.threshold_tokens = Some(0); // one prefill at a time
        class
    });
    let profile = Profile::new(PolicySpec { classes: classes.into(), ..PolicySpec::default() })?;
    let mut scheduler = Scheduler::new(&profile);
    scheduler.set_workers(WorkerSnapshot::new(1, vec![Worker::new(1)])?.into());

    let mut waits = [(0, 0); 2];
    let (mut now, mut next_arrival) = (0, 0);
    // What is on the worker, and until when.
    let mut running = None;
    while now < MINUTE {
        if now == next_arrival {
            for class in 0..2u64 {
                // Every 75 ms a prompt of each class, 1,000 tokens: more than the worker can do.
                let request = Request::new(500, 0).snapshot(Timestamp::from_nanos(now))?;
                let id = profile.class_id(quanta[class as usize].0).expect("it is there");
                scheduler.enqueue(id, request, class).expect("no limit");
            }
            next_arrival += 75 * MILLISECOND;
        }
        if let Some((_, booking)) = running.take_if(|(until, _)| *until == now) {
            scheduler.release(booking);
        }
        if let Some(dispatch) = scheduler.dispatch() {
            let (served, waited) = &mut waits[dispatch.request.payload as usize];
            *served += 1;
            *waited += now - dispatch.request.snapshot.arrival().as_nanos();
            let until = now + dispatch.request.snapshot.cost() / SPEED * MILLISECOND;
            running = Some((until, dispatch.outcome?));
        }
        now = running.as_ref().map_or(next_arrival, |(until, _)| next_arrival.min(*until));
    }
    let service = |((class, _), (served, waited)): ((&str, _), (u64, u64))| Service {
        class: class.to_owned(),
        served,
        mean_wait: waited / served.max(1) / MILLISECOND,
    };
    Ok(quanta.into_iter().zip(waits).map(service).collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    for Service { class, served, mean_wait } in run()? {
        println!("{class}: {served} served, {mean_wait} ms mean wait");
    }
    Ok(())
}
