//! What a request costs in the scheduler: into the queue and out again, with a standing backlog; and what it costs to
//! cancel one, to let one expire, to change the load of an endpoint, and to reload the policy.
//!
//! Every case first proves that it serves what it should, then is timed.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, criterion_group, criterion_main};
use tollgate::policy::{BusyRule, ClassId, ClassSpec, PolicySpec, Profile, QueuePolicy};
use tollgate::{Pin, Request, RequestKey, Scheduler, Snapshot, Timestamp, Worker, WorkerId, WorkerSnapshot};

/// One scheduler to measure.
#[derive(Clone, Copy)]
struct Case {
    classes: u32,
    order: QueuePolicy,
    /// Requests that wait, over all classes.
    backlog: usize,
}

impl Case {
    /// The scheduler with its backlog; requests are numbered in the order of arrival.
    fn scheduler(self) -> Scheduler<usize> {
        let class = |i| ClassSpec { order: self.order, ..ClassSpec::explicit(format!("class{i}"), 1_024) };
        let classes = (0..self.classes).map(class).collect();
        let profile = Profile::new(PolicySpec { classes, ..PolicySpec::default() }).expect("a valid policy");
        let workers = WorkerSnapshot::new(1, vec![Worker::new(1)]).expect("a valid worker");
        let mut scheduler = Scheduler::new(&profile);
        scheduler.set_workers(workers.into());
        for i in 0..self.backlog {
            scheduler.enqueue(self.class(i), request(i), i).expect("no limits");
        }
        scheduler
    }

    fn class(self, request: usize) -> ClassId {
        ClassId(request as u32 % self.classes)
    }

    /// Drains a scheduler: everything comes once, and in each class in the right order.
    fn check(self) {
        let mut scheduler = self.scheduler();
        let mut last = vec![None; self.classes as usize];
        let mut served = vec![false; self.backlog];
        while let Some(picked) = scheduler.next_request() {
            assert!(!std::mem::replace(&mut served[picked.payload], true), "{} came twice", picked.payload);
            assert_eq!(picked.class, self.class(picked.payload));
            let position = match self.order {
                QueuePolicy::Wspt => (picked.snapshot.cost(), picked.payload),
                _ => (0, picked.payload),
            };
            let before = last[picked.class.index()].replace(position);
            assert!(before < Some(position), "{position:?} came after {before:?}");
        }
        assert!(served.into_iter().all(|s| s), "something is lost");
    }
}

/// Request number `i`: costs from 1 to 2048 tokens, spread.
fn request(i: usize) -> Snapshot {
    let cost = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53;
    let arrival = Timestamp::from_nanos(i as u64);
    Request::new(cost + 1, 0).snapshot(arrival).expect("a valid request")
}

fn group<'a>(c: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    group
}

fn enqueue_and_next(c: &mut Criterion) {
    let mut group = group(c, "enqueue+next");
    for (name, order) in [("fcfs", QueuePolicy::Fcfs), ("wspt", QueuePolicy::Wspt)] {
        for classes in [1, 64] {
            for backlog in [1_000, 100_000] {
                let case = Case { classes, order, backlog };
                case.check();
                let mut scheduler = case.scheduler();
                let mut next = backlog;
                let id = BenchmarkId::new(format!("{name}/{classes} classes"), backlog);
                group.bench_function(id, |b| {
                    b.iter(|| {
                        scheduler.enqueue(case.class(next), request(next), next).expect("no limits");
                        next += 1;
                        black_box(scheduler.next_request())
                    });
                });
                assert_eq!(scheduler.waiting(), backlog as u64, "the backlog stands");
            }
        }
    }
    group.finish();
}

const MANY: u32 = 10_000;

/// Classes of these quanta, busy above `threshold`, and so many workers.
fn scheduler(quanta: impl Iterator<Item = u64>, threshold: Option<u64>, workers: u64) -> Scheduler<usize> {
    let mut scheduler = Scheduler::new(&profile(quanta, threshold));
    let workers = (0..workers).map(Worker::new).collect();
    scheduler.set_workers(WorkerSnapshot::new(1, workers).expect("valid workers").into());
    scheduler
}

fn profile(quanta: impl Iterator<Item = u64>, threshold: Option<u64>) -> Profile {
    let class = |(i, quantum)| ClassSpec {
        busy: BusyRule { threshold_tokens: threshold, ..BusyRule::default() },
        ..ClassSpec::explicit(format!("class{i}"), quantum)
    };
    let classes = quanta.enumerate().map(class).collect();
    Profile::new(PolicySpec { classes, ..PolicySpec::default() }).expect("a valid policy")
}

fn costing(i: usize, cost: u64) -> Snapshot {
    Request::new(cost, 0).snapshot(Timestamp::from_nanos(i as u64)).expect("a valid request")
}

/// Requests come and go one by one, each into the class that the last one left.
fn come_and_go(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    mut scheduler: Scheduler<usize>,
    cost: impl Fn(usize) -> u64,
) {
    let (backlog, mut next) = (scheduler.waiting(), scheduler.waiting() as usize);
    group.bench_function(name, |b| {
        b.iter(|| {
            let picked = scheduler.next_request().expect("something waits");
            scheduler.enqueue(picked.class, costing(next, cost(next)), next).expect("no limits");
            next += 1;
        });
    });
    assert_eq!(scheduler.waiting(), backlog, "the backlog stands");
}

fn many_classes(c: &mut Criterion) {
    let mut group = group(c, "10,000 classes");
    let spread = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;

    let oversized = |i| 1_000_000 + spread(i) * 60;
    let mut all = scheduler((0..u64::from(MANY)).map(|i| 1 + i % 64), None, 1);
    for i in 0..10 * MANY as usize {
        all.enqueue(ClassId(i as u32 % MANY), costing(i, oversized(i)), i).expect("no limits");
    }
    come_and_go(&mut group, "oversized heads", all, oversized);

    let quantum = 2_048;
    let mut one = scheduler((0..MANY).map(|_| quantum), None, 1);
    for i in 0..1_000 {
        one.enqueue(ClassId(MANY / 2), costing(i, quantum), i).expect("no limits");
    }
    come_and_go(&mut group, "one active", one, |_| quantum);

    let mut all = scheduler((0..MANY).map(|_| quantum), None, 1);
    for i in 0..10 * MANY as usize {
        all.enqueue(ClassId(i as u32 % MANY), costing(i, 1 + spread(i) % quantum), i).expect("no limits");
    }
    come_and_go(&mut group, "all active", all, |i| 1 + spread(i) % quantum);
    group.finish();
}

fn leave(c: &mut Criterion) {
    let mut group = group(c, "leave");
    for backlog in [1_000, 1_000_000] {
        let case = Case { classes: 1, order: QueuePolicy::Fcfs, backlog };
        let mut scheduler = case.scheduler();
        let mut keys: Vec<RequestKey> = scheduler.iter().map(|(key, ..)| key).collect();
        let mut next = backlog;
        group.bench_function(BenchmarkId::new("cancel and enqueue", backlog), |b| {
            b.iter(|| {
                // A stride that comes to all of them.
                let victim = next * 381_683 % backlog;
                scheduler.cancel(keys[victim]).expect("it waits");
                keys[victim] = scheduler.enqueue(ClassId(0), request(next), next).expect("no limits");
                next += 1;
            });
        });
        assert_eq!(scheduler.waiting(), backlog as u64, "the backlog stands");
    }
    for backlog in [1_000, 100_000] {
        let case = Case { classes: 1, order: QueuePolicy::Fcfs, backlog: 0 };
        let mut scheduler = case.scheduler();
        // Deadlines in another order than arrivals.
        let limited = |i: usize| {
            let spread = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
            let limited =
                Request { deadline: Some(Duration::from_micros(1 + spread)), ..Request::new(100, 0) };
            limited.snapshot(Timestamp::from_nanos(i as u64)).expect("a valid request")
        };
        for i in 0..backlog {
            scheduler.enqueue(ClassId(0), limited(i), i).expect("no limits");
        }
        let mut next = backlog;
        group.bench_function(BenchmarkId::new("expire and enqueue", backlog), |b| {
            b.iter(|| {
                let at = scheduler.next_expiry().expect("something waits");
                black_box(scheduler.expire(at)).expect("it has expired");
                scheduler.enqueue(ClassId(0), limited(next), next).expect("no limits");
                next += 1;
            });
        });
        assert_eq!(scheduler.waiting(), backlog as u64, "the backlog stands");
    }
    group.finish();
}

/// One endpoint becomes free and busy again; a request waits for it in every class.
fn load_change(c: &mut Criterion) {
    let mut group = group(c, "load change, 64 classes with a lane each");
    for workers in [8, 1_024] {
        let mut scheduler = scheduler((0..64).map(|_| 2_048), Some(0), workers);
        let endpoints: Vec<_> = scheduler.endpoints().map(|(index, _)| index).collect();
        for &endpoint in &endpoints {
            scheduler.set_external(endpoint, 1);
        }
        for i in 0..64 * workers as usize {
            let mut request = Request::new(2_048, 0);
            request.pin = Some(Pin { worker: WorkerId(i as u64 / 64), rank: Some(0) });
            let snapshot = request.snapshot(Timestamp::from_nanos(i as u64)).expect("a valid request");
            scheduler.enqueue(ClassId(i as u32 % 64), snapshot, i).expect("no limits");
        }
        assert!(scheduler.next_request().is_none(), "everything is busy");
        let mut next = 0;
        group.bench_function(BenchmarkId::new("workers", workers), |b| {
            b.iter(|| {
                let endpoint = endpoints[next * 381_683 % endpoints.len()];
                scheduler.set_external(endpoint, 0);
                scheduler.set_external(endpoint, 1);
                next += 1;
            });
        });
        assert!(scheduler.next_request().is_none(), "everything is busy again");
    }
    group.finish();
}

/// A policy with other quanta and all classes the other way round, while something waits in each of them.
fn reload(c: &mut Criterion) {
    let mut group = group(c, "reload");
    for classes in [64, MANY] {
        let mut scheduler = scheduler((0..classes).map(u64::from).map(|i| 1 + i), None, 1);
        for i in 0..10 * classes as usize {
            scheduler.enqueue(ClassId(i as u32 % classes), costing(i, 100), i).expect("no limits");
        }
        let there = profile((0..classes).map(|i| 1 + u64::from(i)), None);
        let mut spec = there.spec().clone();
        spec.classes.reverse();
        let back = Profile::new(spec).expect("a valid policy");
        let mut turn = false;
        group.bench_function(BenchmarkId::new("classes", classes), |b| {
            b.iter(|| {
                turn = !turn;
                scheduler.reload(if turn { &back } else { &there });
            });
        });
        assert_eq!(scheduler.waiting(), 10 * u64::from(classes), "nothing is lost");
    }
    group.finish();
}

criterion_group!(benches, enqueue_and_next, many_classes, leave, load_change, reload);
criterion_main!(benches);
