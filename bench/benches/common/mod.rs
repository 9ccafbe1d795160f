//! What the benches share: sizes, workloads, and a naive scheduler to check decisions against.

#![allow(dead_code, reason = "no bench uses all of it")]

use std::collections::VecDeque;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion};
use tollgate::policy::{ClassSpec, PolicySpec, Profile, QueuePolicy};
use tollgate::{Request, Scheduler, Snapshot, Timestamp, Worker, WorkerSnapshot};

/// Whether the benches are only to show that they work, once each: `cargo bench -- --test`, or `cargo test --benches`.
pub(crate) fn testing() -> bool {
    let mut args = std::env::args();
    !args.any(|arg| arg == "--bench") || std::env::args().any(|arg| arg == "--test")
}

/// The sizes to measure; of the large ones none in a test.
pub(crate) fn sizes<const N: usize>(
    all: [usize; N],
    most_in_test: usize,
) -> impl Iterator<Item = usize> + Clone {
    all.into_iter().filter(move |size| *size <= most_in_test || !testing())
}

/// A group of short measurements: there are many.
pub(crate) fn group<'a>(c: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = c.benchmark_group(name);
    group.sample_size(20).warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    group
}

/// A number below 2^53 that looks random, the same for the same `i`.
pub(crate) fn mix(i: usize) -> u64 {
    (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11
}

/// A cost from 1 to 2048 tokens.
pub(crate) fn cost(i: usize) -> u64 {
    1 + mix(i) % 2_048
}

/// What the aged classes give for a second of waiting \[tokens/s\].
pub(crate) const AGING: u64 = 1_000;

/// Classes of these quanta, adjusted by `edit`.
pub(crate) fn profile(quanta: impl IntoIterator<Item = u64>, edit: impl Fn(&mut ClassSpec)) -> Profile {
    let class = |(i, quantum)| {
        let mut class = ClassSpec::explicit(format!("class{i}"), quantum);
        edit(&mut class);
        class
    };
    let classes = quanta.into_iter().enumerate().map(class).collect();
    Profile::new(PolicySpec { classes, ..PolicySpec::default() }).expect("a valid policy")
}

/// Sets the order of a class.
pub(crate) fn set_order(class: &mut ClassSpec, order: QueuePolicy) {
    class.order = order;
    class.aging_tokens_per_second = (order == QueuePolicy::AgedWspt).then_some(AGING as f64);
}

/// So many workers with one rank each.
pub(crate) fn workers(version: u64, workers: usize) -> WorkerSnapshot {
    let workers = (0..workers as u64).map(Worker::new).collect();
    WorkerSnapshot::new(version, workers).expect("valid workers")
}

/// A scheduler with so many workers.
pub(crate) fn scheduler<T>(profile: &Profile, endpoints: usize) -> Scheduler<T> {
    let mut scheduler = Scheduler::new(profile);
    scheduler.set_workers(workers(1, endpoints).into());
    scheduler
}

/// When request `i` arrives: some way after the one before.
pub(crate) fn arrival(i: usize) -> Timestamp {
    // So that no two requests are equal to an aged class: 1,009 is prime.
    Timestamp::from_nanos(i as u64 * 1_009)
}

/// Request number `i`, of this cost.
pub(crate) fn costing(i: usize, cost: u64) -> Snapshot {
    Request::new(cost, 0).snapshot(arrival(i)).expect("a valid request")
}

/// Deficit round robin as docs/algorithm.md has it, by plain lists and full scans, for requests that all may go.
pub(crate) struct Naive {
    quanta: Vec<u64>,
    deficits: Vec<u64>,
    /// Requests by class, in their order: number and cost.
    waiting: Vec<VecDeque<(usize, u64)>>,
    cursor: usize,
    carry: Option<usize>,
}

impl Naive {
    /// With all requests waiting: number, class and cost of each.
    pub(crate) fn new(
        quanta: Vec<u64>,
        order: QueuePolicy,
        requests: impl Iterator<Item = (usize, usize, u64)>,
    ) -> Self {
        let mut waiting = vec![Vec::new(); quanta.len()];
        for (number, class, cost) in requests {
            let nanos = u128::from(arrival(number).as_nanos());
            let key = match order {
                QueuePolicy::Wspt => u128::from(cost),
                QueuePolicy::AgedWspt => u128::from(cost) * 1_000_000_000 + u128::from(AGING) * nanos,
                _ => nanos,
            };
            waiting[class].push((key, number, cost));
        }
        let sorted = waiting.into_iter().map(|mut requests| {
            requests.sort_unstable();
            requests.into_iter().map(|(_, number, cost)| (number, cost)).collect()
        });
        let deficits = vec![0; quanta.len()];
        Self { waiting: sorted.collect(), deficits, quanta, cursor: 0, carry: None }
    }

    /// The number of the next request, and its class.
    pub(crate) fn next(&mut self) -> Option<(usize, usize)> {
        let classes = self.quanta.len();
        if let Some(class) = self.carry.filter(|class| self.affordable(*class)) {
            return self.take(class);
        }
        let ring = (self.cursor..classes).chain(0..self.cursor);
        for class in ring.clone() {
            if self.affordable(class) {
                self.cursor = class;
                return self.take(class);
            }
            if !self.waiting[class].is_empty() {
                self.deficits[class] += self.quanta[class];
                if self.affordable(class) {
                    self.cursor = (class + 1) % classes;
                    return self.take(class);
                }
            }
        }
        let rounds = |class: &usize| {
            let (_, cost) = self.waiting[*class].front()?;
            Some((cost - self.deficits[*class]).div_ceil(self.quanta[*class]))
        };
        let least = ring.clone().filter_map(|class| rounds(&class)).min()?;
        for class in ring.clone().filter(|class| !self.waiting[*class].is_empty()).collect::<Vec<_>>() {
            self.deficits[class] += least * self.quanta[class];
        }
        let winner = ring.clone().find(|class| self.affordable(*class))?;
        self.take(winner)
    }

    fn affordable(&self, class: usize) -> bool {
        self.waiting[class].front().is_some_and(|(_, cost)| *cost <= self.deficits[class])
    }

    fn take(&mut self, class: usize) -> Option<(usize, usize)> {
        let (number, cost) = self.waiting[class].pop_front()?;
        self.deficits[class] -= cost;
        if self.waiting[class].is_empty() {
            self.deficits[class] = 0;
        }
        self.carry = (self.deficits[class] > 0).then_some(class);
        Some((number, class))
    }
}
