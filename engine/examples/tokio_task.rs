//! Async tasks on tokio; any other runtime does as well. An admission is a future, and dropping it cancels the request.
//!
//! `cargo run -p tollgate --example tokio_task`

use std::error::Error;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tollgate::policy::{Profile, QueuePolicy};
use tollgate::{Engine, Request, Worker, WorkerSnapshot};

/// What became of a request.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    /// Served by this worker.
    Served(u64),
    /// Refused with this HTTP status.
    Refused(u16),
    /// The client had no patience.
    Left,
}

async fn handle(engine: &Engine, request: Request, patience: Duration) -> Outcome {
    let admission = match engine.admit(request) {
        Ok(admission) => admission,
        Err(rejected) => return Outcome::Refused(rejected.reason.http_status()),
    };
    // When time is up, `timeout` drops the admission: the request is out of the queue, wherever it was.
    let mut permit = match timeout(patience, admission).await {
        Ok(Ok(permit)) => permit,
        Ok(Err(rejected)) => return Outcome::Refused(rejected.reason.http_status()),
        Err(_) => return Outcome::Left,
    };
    let worker = permit.endpoint().worker.0;
    sleep(Duration::from_millis(5)).await; // the first token
    permit.prefill_complete();
    sleep(Duration::from_millis(5)).await; // the last one
    Outcome::Served(worker)
}

/// Handles five requests; returns what became of each.
#[tokio::main]
pub async fn run() -> Result<Vec<Outcome>, Box<dyn Error + Send + Sync>> {
    // One class; a worker is busy as long as any prefill runs on it.
    let engine = Engine::builder(Profile::synthetic(Some(0), QueuePolicy::Fcfs))
        .workers(WorkerSnapshot::new(1, vec![Worker::new(7)])?)
        .start()?;
    let mut tasks = Vec::new();
    for patience in [60_000, 60_000, 60_000] {
        let engine = engine.clone();
        tasks.push(tokio::spawn(async move {
            handle(&engine, Request::new(4_000, 0), Duration::from_millis(patience)).await
        }));
    }
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await?);
    }
    // With no worker free, one that will not wait leaves.
    let busy = engine.admit(Request::new(1, 0))?.await?;
    outcomes.push(handle(&engine, Request::new(4_000, 0), Duration::from_millis(1)).await);
    drop(busy);
    engine.close();
    outcomes.push(handle(&engine, Request::new(4_000, 0), Duration::ZERO).await);
    Ok(outcomes)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    for outcome in run()? {
        println!("{outcome:?}");
    }
    Ok(())
}
