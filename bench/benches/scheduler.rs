//! What a request costs in the scheduler: into the queue and out again, with a standing backlog.
//!
//! Every case first proves that it serves what it should, then is timed.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use tollgate::policy::{ClassId, ClassSpec, PolicySpec, Profile, QueuePolicy};
use tollgate::{Request, Scheduler, Snapshot, Timestamp, Worker, WorkerSnapshot};

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

fn enqueue_and_next(c: &mut Criterion) {
    let mut group = c.benchmark_group("enqueue+next");
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
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

criterion_group!(benches, enqueue_and_next);
criterion_main!(benches);
