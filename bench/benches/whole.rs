//! The whole way, admit → permit → release, through a running engine: so many ingress threads × so many workers.
//!
//! * `blocking`: each thread has one request at a time and waits for it.
//! * `tokio`: a runtime of so many threads, and 16 tasks for each of them, each with one request at a time.
//!
//! Each with an arbiter that looks again for a while, which is the default, and with callers that assist.
//!
//! Criterion reports the throughput. A second pass records every single latency and prints its percentiles. Both count
//! at the end that the engine has dispatched as much as was asked for, and that nothing is left booked.

mod common;

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use common::{group, profile, sizes, testing, workers};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use hdrhistogram::Histogram;
use tokio::runtime::Runtime;
use tollgate::{Booked, Engine, Idle, Permit, Rejected, Request};

const TASKS: usize = 16;
const COST: u64 = 512;

fn engine(count: usize, idle: Idle) -> Engine {
    let engine = Engine::builder(profile([COST], |_| ())).workers(workers(1, count)).idle(idle);
    engine.start().expect("there is a thread to be had")
}

/// The engine has dispatched `requests`, and everything is given back.
fn check(engine: &Engine, requests: u64) {
    let picture = engine.snapshot();
    let class = &picture.classes[0];
    assert_eq!((class.submitted, class.dispatched, class.ended()), (requests, requests, requests));
    assert!(
        picture.endpoints.iter().all(|endpoint| endpoint.booked == Booked::default()),
        "permits are left"
    );
}

fn release(permit: Result<Permit, Rejected>) {
    let mut permit = permit.expect("there are workers");
    permit.prefill_complete();
}

/// Latencies \[ns\], if they are recorded.
type Record = Option<Histogram<u64>>;

fn recorder(record: bool) -> Record {
    record.then(|| Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("the bounds are valid"))
}

fn record(latencies: &mut Record, since: Option<Instant>) {
    if let (Some(latencies), Some(since)) = (latencies, since) {
        latencies.saturating_record(since.elapsed().as_nanos() as u64);
    }
}

fn merged(all: impl Iterator<Item = Record>) -> Record {
    all.reduce(|sum, more| {
        let mut sum = sum?;
        sum.add(more?).expect("the bounds are the same");
        Some(sum)
    })?
}

/// Each thread does `each` round trips. Returns the time that all took, and the latencies.
fn blocking(engine: &Engine, threads: usize, each: u64, recorded: bool) -> (Duration, Record) {
    let gate = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                let (engine, gate) = (engine.clone(), &gate);
                scope.spawn(move || {
                    let mut latencies = recorder(recorded);
                    gate.wait();
                    for _ in 0..each {
                        let start = recorded.then(Instant::now);
                        let admission = engine.admit(Request::new(COST, 0)).expect("there is room");
                        let permit = admission.wait();
                        record(&mut latencies, start);
                        release(permit);
                    }
                    latencies
                })
            })
            .collect();
        gate.wait();
        let start = Instant::now();
        let latencies: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect();
        (start.elapsed(), merged(latencies.into_iter()))
    })
}

/// The same with tasks.
fn on_tokio(
    runtime: &Runtime,
    engine: &Engine,
    tasks: usize,
    each: u64,
    recorded: bool,
) -> (Duration, Record) {
    runtime.block_on(async {
        let start = Instant::now();
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                let engine = engine.clone();
                tokio::spawn(async move {
                    let mut latencies = recorder(recorded);
                    for _ in 0..each {
                        let start = recorded.then(Instant::now);
                        let permit = engine.admit(Request::new(COST, 0)).expect("there is room").await;
                        record(&mut latencies, start);
                        release(permit);
                    }
                    latencies
                })
            })
            .collect();
        let mut latencies = Vec::new();
        for task in tasks {
            latencies.push(task.await.expect("it does not panic"));
        }
        (start.elapsed(), merged(latencies.into_iter()))
    })
}

/// One way of asking with one size: times it, then prints its latencies.
fn bench(
    c: &mut Criterion,
    name: &str,
    idle: Idle,
    (threads, workers): (usize, usize),
    callers: usize,
    mut round_trips: impl FnMut(&Engine, u64, bool) -> (Duration, Record),
) {
    let mut group = group(c, &format!("whole/{name}/{idle:?}/{threads} threads"));
    group.throughput(Throughput::Elements(1));
    let mut running = None;
    group.bench_function(BenchmarkId::new("workers", workers), |b| {
        let (engine, requests) = running.get_or_insert_with(|| (engine(workers, idle), 0));
        b.iter_custom(|iterations| {
            let each = iterations.div_ceil(callers as u64);
            *requests += each * callers as u64;
            round_trips(engine, each, false).0.mul_f64(iterations as f64 / (each * callers as u64) as f64)
        });
        check(engine, *requests);
    });
    group.finish();
    // None, if this one was not asked for.
    if let Some((engine, mut requests)) = running {
        let each = if testing() { 10 } else { 40_000 / callers as u64 };
        requests += each * callers as u64;
        let latencies = round_trips(&engine, each, true).1.expect("they were recorded");
        check(&engine, requests);
        assert_eq!(latencies.len(), each * callers as u64);
        let of = |(name, p)| format!("{name} {:.1} µs", latencies.value_at_percentile(p) as f64 / 1e3);
        let percentiles = [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)];
        println!("    latency of {}: {}\n", latencies.len(), percentiles.map(of).join(", "));
    }
}

fn whole(c: &mut Criterion) {
    for threads in sizes([1, 2, 4, 16], 2) {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(threads).build().expect("there are threads to be had");
        let tasks = TASKS * threads;
        for workers in sizes([1, 8, 128, 1_024, 10_000], 128) {
            for idle in [Idle::Backoff, Idle::Assist] {
                bench(c, "blocking", idle, (threads, workers), threads, |engine, each, recorded| {
                    blocking(engine, threads, each, recorded)
                });
                bench(c, "tokio", idle, (threads, workers), tasks, |engine, each, recorded| {
                    on_tokio(&runtime, engine, tasks, each, recorded)
                });
            }
        }
    }
}

criterion_group!(benches, whole);
criterion_main!(benches);
