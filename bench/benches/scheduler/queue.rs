//! Into the queue and out again, with a standing backlog.

use std::cell::OnceCell;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion};
use tollgate::Scheduler;
use tollgate::policy::{ClassId, QueuePolicy};

use crate::common::{Naive, cost, costing, group, mix, profile, scheduler, sizes};

/// Decisions that are compared with the naive scheduler.
const CHECKED: usize = 2_000;

/// What request `i` costs \[tokens\].
type Cost = fn(usize) -> u64;

/// One scheduler to measure.
#[derive(Clone, Copy)]
struct Case {
    classes: usize,
    order: QueuePolicy,
    /// Requests that wait, over all classes.
    backlog: usize,
    quantum: fn(usize) -> u64,
    cost: Cost,
}

impl Case {
    /// The scheduler with its backlog; requests are numbered in the order of arrival.
    fn scheduler(self) -> Scheduler<usize> {
        let quanta = (0..self.classes).map(self.quantum);
        let profile = profile(quanta, |class| crate::common::set_order(class, self.order));
        let mut scheduler = scheduler(&profile, 1);
        for i in 0..self.backlog {
            self.put(&mut scheduler, i);
        }
        scheduler
    }

    fn put(self, scheduler: &mut Scheduler<usize>, i: usize) {
        let class = ClassId((i % self.classes) as u32);
        scheduler.enqueue(class, costing(i, (self.cost)(i)), i).expect("no limits");
    }

    /// The same decisions as the naive scheduler, and afterwards everything comes once.
    fn check(self) {
        let mut scheduler = self.scheduler();
        let requests = (0..self.backlog).map(|i| (i, i % self.classes, (self.cost)(i)));
        let mut naive = Naive::new((0..self.classes).map(self.quantum).collect(), self.order, requests);
        let mut served = vec![false; self.backlog];
        for decision in 0.. {
            let Some(picked) = scheduler.next_request() else { break };
            if decision < CHECKED {
                let expected = naive.next().expect("as many");
                assert_eq!((picked.payload, picked.class.index()), expected, "decision {decision}");
            }
            assert!(!std::mem::replace(&mut served[picked.payload], true), "{} came twice", picked.payload);
        }
        assert!(served.into_iter().all(|served| served), "something is lost");
    }

    /// The scheduler, checked before.
    fn checked(self) -> Scheduler<usize> {
        self.check();
        self.scheduler()
    }
}

pub(crate) fn enqueue_and_next(c: &mut Criterion) {
    let mut group = group(c, "enqueue+next");
    let orders = [("fcfs", QueuePolicy::Fcfs), ("wspt", QueuePolicy::Wspt), ("aged", QueuePolicy::AgedWspt)];
    for (name, order) in orders {
        for classes in sizes([1, 4, 64, 1_024, 10_000], 64) {
            for backlog in sizes([1_000, 100_000, 1_000_000], 1_000) {
                // With fewer requests than classes most of them are idle: that is measured too, and on purpose.
                let case = Case { classes, order, backlog, quantum: |_| 1_024, cost };
                let (mut standing, mut next) = (OnceCell::new(), backlog);
                group.bench_function(BenchmarkId::new(format!("{name}/{classes} classes"), backlog), |b| {
                    standing.get_or_init(|| case.checked());
                    let scheduler = standing.get_mut().expect("just made");
                    b.iter(|| {
                        case.put(scheduler, next);
                        next += 1;
                        black_box(scheduler.next_request())
                    });
                    assert_eq!(scheduler.waiting(), backlog as u64, "the backlog stands");
                });
            }
        }
    }
    group.finish();
}

/// Requests come and go one by one, each into the class that the last one left.
fn come_and_go(scheduler: &mut Scheduler<usize>, next: &mut usize, cost: impl Fn(usize) -> u64) {
    let picked = scheduler.next_request().expect("something waits");
    scheduler.enqueue(picked.class, costing(*next, cost(*next)), *next).expect("no limits");
    *next += 1;
}

pub(crate) fn one_active_class(c: &mut Criterion) {
    const QUANTUM: u64 = 2_048;
    const BACKLOG: usize = 1_000;
    let mut group = group(c, "one active class");
    for classes in sizes([64, 1_024, 10_000], 1_024) {
        let (mut standing, mut next) = (OnceCell::new(), BACKLOG);
        group.bench_function(BenchmarkId::new("of", classes), |b| {
            standing.get_or_init(|| {
                let mut scheduler = scheduler(&profile((0..classes).map(|_| QUANTUM), |_| ()), 1);
                for i in 0..BACKLOG {
                    let class = ClassId(classes as u32 / 2);
                    scheduler.enqueue(class, costing(i, QUANTUM), i).expect("no limits");
                }
                scheduler
            });
            let scheduler = standing.get_mut().expect("just made");
            b.iter(|| come_and_go(scheduler, &mut next, |_| QUANTUM));
            assert_eq!(scheduler.waiting(), BACKLOG as u64, "the backlog stands");
        });
    }
    group.finish();
}

/// Heads that need up to 10^12 rounds of credit.
pub(crate) fn oversized_heads(c: &mut Criterion) {
    let mut group = group(c, "oversized heads");
    let costs: [(&str, Cost); 3] = [
        ("10^6", |i| 1_000_000 + mix(i) % 1_000_000),
        ("10^9", |i| 1_000_000_000 + mix(i) % 1_000_000_000),
        ("10^12", |i| 1_000_000_000_000 + mix(i) % 1_000_000_000_000),
    ];
    for (name, cost) in costs {
        for classes in sizes([1, 64, 1_024, 10_000], 64) {
            let backlog = 10 * classes;
            let order = QueuePolicy::Fcfs;
            let case = Case { classes, order, backlog, quantum: |i| 1 + i as u64 % 64, cost };
            let (mut standing, mut next) = (OnceCell::new(), backlog);
            group.bench_function(BenchmarkId::new(format!("{name} tokens/classes"), classes), |b| {
                standing.get_or_init(|| case.checked());
                let scheduler = standing.get_mut().expect("just made");
                b.iter(|| come_and_go(scheduler, &mut next, cost));
                assert_eq!(scheduler.waiting(), backlog as u64, "the backlog stands");
            });
        }
    }
    group.finish();
}
