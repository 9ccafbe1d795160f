//! Another load of an endpoint, other workers, another policy, while requests wait.

use std::sync::Arc;

use criterion::{BenchmarkId, Criterion};
use tollgate::policy::{ClassId, Profile};
use tollgate::{Pin, Request, Scheduler, Worker, WorkerId, WorkerSnapshot};

use crate::common::{arrival, costing, group, profile, scheduler, sizes, workers};

/// Classes with a lane for each worker, all of which are busy.
fn lanes(classes: usize, workers: usize) -> Scheduler<usize> {
    let profile = profile((0..classes).map(|_| 2_048), |class| class.busy.threshold_tokens = Some(0));
    let mut scheduler = scheduler(&profile, workers);
    let endpoints: Vec<_> = scheduler.endpoints().map(|(index, _)| index).collect();
    for endpoint in endpoints {
        scheduler.set_external(endpoint, 1);
    }
    for i in 0..classes * workers {
        let mut request = Request::new(2_048, 0);
        request.pin = Some(Pin { worker: WorkerId((i / classes) as u64), rank: Some(0) });
        let snapshot = request.snapshot(arrival(i)).expect("a valid request");
        scheduler.enqueue(ClassId((i % classes) as u32), snapshot, i).expect("no limits");
    }
    assert!(scheduler.next_request().is_none(), "everything is busy");
    scheduler
}

/// One endpoint becomes free and busy again; a request waits for it in every class.
pub(crate) fn load_change(c: &mut Criterion) {
    const CLASSES: usize = 64;
    let mut group = group(c, "load change, 64 classes with a lane each");
    for workers in sizes([8, 128, 1_024, 10_000], 128) {
        let (mut standing, mut next) = (None, 0_usize);
        group.bench_function(BenchmarkId::new("workers", workers), |b| {
            let (scheduler, endpoints) = standing.get_or_insert_with(|| {
                check_load_change(workers);
                let scheduler = lanes(CLASSES, workers);
                let endpoints: Vec<_> = scheduler.endpoints().map(|(index, _)| index).collect();
                (scheduler, endpoints)
            });
            b.iter(|| {
                let endpoint = endpoints[next * 381_683 % endpoints.len()];
                scheduler.set_external(endpoint, 0);
                scheduler.set_external(endpoint, 1);
                next += 1;
            });
            assert!(scheduler.next_request().is_none(), "everything is busy again");
            assert_eq!(scheduler.waiting() as usize, CLASSES * workers, "the backlog stands");
        });
    }
    group.finish();
}

/// Of the endpoint that becomes free all requests go, and no other.
fn check_load_change(workers: usize) {
    const CLASSES: usize = 4;
    let mut scheduler = lanes(CLASSES, workers);
    let (endpoint, at) = scheduler.endpoints().last().expect("there are workers");
    scheduler.set_external(endpoint, 0);
    for _ in 0..CLASSES {
        let pin = scheduler.next_request().expect("it is free").snapshot.pin().expect("all are pinned");
        assert_eq!(pin.worker, at.worker);
    }
    assert!(scheduler.next_request().is_none(), "the others are busy");
}

/// A whole new worker snapshot with other loads, while in every class requests are pinned to up to 128 of the workers.
pub(crate) fn new_workers(c: &mut Criterion) {
    const CLASSES: usize = 64;
    let mut group = group(c, "new workers, 64 classes");
    for count in sizes([8, 1_024, 10_000], 1_024) {
        let mut standing = None;
        let mut turn = 0;
        group.bench_function(BenchmarkId::new("workers", count), |b| {
            let (scheduler, snapshots) = standing.get_or_insert_with(|| {
                let mut scheduler = lanes(CLASSES, count.min(128));
                scheduler.set_workers(workers(2, count).into());
                (scheduler, [loaded(count, 1), loaded(count, 2)])
            });
            b.iter(|| {
                turn ^= 1;
                scheduler.set_workers(snapshots[turn].clone());
            });
            let endpoints: Vec<_> = scheduler.endpoints().map(|(index, _)| index).collect();
            assert_eq!(endpoints.len(), count);
            assert!(
                endpoints.iter().all(|&e| scheduler.external(e) == turn as u64 + 1),
                "loads are the last ones"
            );
            assert_eq!(scheduler.waiting() as usize, CLASSES * count.min(128), "nothing is lost");
        });
    }
    group.finish();
}

fn loaded(workers: usize, load: u64) -> Arc<WorkerSnapshot> {
    let worker = |id| Worker { external_load: vec![load], ..Worker::new(id) };
    WorkerSnapshot::new(1, (0..workers as u64).map(worker).collect()).expect("valid workers").into()
}

/// A policy with other quanta and all classes the other way round, while something waits in each of them.
pub(crate) fn reload(c: &mut Criterion) {
    let mut group = group(c, "reload");
    for classes in sizes([1, 64, 1_024, 10_000], 64) {
        let mut standing = None;
        let mut turn = false;
        group.bench_function(BenchmarkId::new("classes", classes), |b| {
            let (scheduler, there, back) = standing.get_or_insert_with(|| {
                let there = profile((1..=classes).map(|i| i as u64), |_| ());
                let mut spec = there.spec().clone();
                spec.classes.reverse();
                let back = Profile::new(spec).expect("a valid policy");
                let mut scheduler = scheduler(&there, 1);
                for i in 0..10 * classes {
                    let class = ClassId((i % classes) as u32);
                    scheduler.enqueue(class, costing(i, 100), i).expect("no limits");
                }
                (scheduler, there, back)
            });
            b.iter(|| {
                turn = !turn;
                scheduler.reload(if turn { back } else { there });
            });
            assert_eq!(scheduler.waiting() as usize, 10 * classes, "nothing is lost");
            let first = scheduler.classes().next().map(|(_, name)| name.to_string());
            assert_eq!(
                first,
                Some(format!("class{}", if turn { classes - 1 } else { 0 })),
                "the ring is turned"
            );
        });
    }
    group.finish();
}
