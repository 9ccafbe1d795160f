//! Builders that keep the tests of single rules short.

#![allow(dead_code, reason = "no test file needs all of them")]

use std::sync::Arc;

use tollgate::policy::{ClassId, ClassSpec, PolicySpec, Profile};
use tollgate::{
    Constraints, Endpoint, Pin, Request, RequestKey, Scheduler, Snapshot, Timestamp, Worker, WorkerId,
    WorkerSnapshot,
};

pub(crate) const A: ClassId = ClassId(0);
pub(crate) const B: ClassId = ClassId(1);

pub(crate) fn class(quantum: u64) -> ClassSpec {
    ClassSpec::explicit("", quantum)
}

/// A class for which an endpoint is busy above `threshold` tokens.
pub(crate) fn gated(quantum: u64, threshold: u64) -> ClassSpec {
    let mut spec = class(quantum);
    spec.busy.threshold_tokens = Some(threshold);
    spec
}

/// Classes that get the names `a`, `b`, … and these workers.
pub(crate) fn scheduler<T>(classes: Vec<ClassSpec>, workers: Vec<Worker>) -> Scheduler<T> {
    let named = ('a'..).zip(classes).map(|(name, class)| named(&name.to_string(), class));
    let mut scheduler = Scheduler::new(&profile(named.collect()));
    scheduler.set_workers(snapshot(1, workers));
    scheduler
}

pub(crate) fn named(name: &str, class: ClassSpec) -> ClassSpec {
    ClassSpec { name: name.into(), ..class }
}

/// Classes that have their names.
pub(crate) fn profile(classes: Vec<ClassSpec>) -> Profile {
    Profile::new(PolicySpec { classes, ..PolicySpec::default() }).expect("valid")
}

pub(crate) fn snapshot(version: u64, workers: Vec<Worker>) -> Arc<WorkerSnapshot> {
    Arc::new(WorkerSnapshot::new(version, workers).expect("valid"))
}

/// Workers 0, 1, … with one rank each.
pub(crate) fn workers(n: u64) -> Vec<Worker> {
    (0..n).map(Worker::new).collect()
}

pub(crate) fn tokens(n: u64) -> Request {
    Request::new(n, 0)
}

pub(crate) fn at(nanos: u64, request: Request) -> Snapshot {
    request.snapshot(Timestamp::from_nanos(nanos)).expect("valid")
}

pub(crate) fn now(request: Request) -> Snapshot {
    at(0, request)
}

pub(crate) fn pinned(worker: u64, rank: Option<u32>, request: Request) -> Request {
    Request { pin: Some(Pin { worker: WorkerId(worker), rank }), ..request }
}

pub(crate) fn constrained(allowed: Option<&[u64]>, taints: &[&str], request: Request) -> Request {
    let allowed = allowed.map(|ids| ids.iter().copied().map(WorkerId).collect());
    let taints = taints.iter().map(|t| Arc::from(*t)).collect();
    Request { constraints: Some(Arc::new(Constraints::new(allowed, taints))), ..request }
}

pub(crate) fn put<T: std::fmt::Debug>(
    scheduler: &mut Scheduler<T>,
    class: ClassId,
    snapshot: Snapshot,
    payload: T,
) -> RequestKey {
    scheduler.enqueue(class, snapshot, payload).expect("no limit")
}

pub(crate) fn fill<T: Clone + std::fmt::Debug>(
    scheduler: &mut Scheduler<T>,
    class: ClassId,
    cost: u64,
    times: usize,
    payload: T,
) {
    for _ in 0..times {
        put(scheduler, class, now(tokens(cost)), payload.clone());
    }
}

/// Payloads in the order of arbitration, until nothing more may go.
pub(crate) fn order<T>(scheduler: &mut Scheduler<T>) -> Vec<T> {
    std::iter::from_fn(|| scheduler.next_request()).map(|picked| picked.payload).collect()
}

pub(crate) fn endpoint(worker: u64, rank: u32) -> Endpoint {
    Endpoint { worker: WorkerId(worker), rank }
}

pub(crate) fn load<T>(scheduler: &mut Scheduler<T>, worker: u64, tokens: u64) {
    let index = scheduler.find(endpoint(worker, 0)).expect("in the snapshot");
    scheduler.set_external(index, tokens);
}
