//! Instructions per operation, by callgrind: the same on a busy machine as on an idle one, so that they can gate
//! changes. What they cannot show is what time is spent on waiting for memory: for that there are the other benches.
//!
//! Each benchmark does [`OPERATIONS`] operations on a state that was made outside of the count, and fails if it takes
//! more than 5 % above what `instructions.baseline` says. docs/performance-quick.md has the commands.

#![allow(missing_docs, reason = "the macros make items that cannot have any")]

mod common;

use std::hint::black_box;
use std::time::Duration;

use common::{cost, costing, mix, profile, scheduler, set_order};
use gungraun::{
    Callgrind, EventKind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use tollgate::policy::{ClassId, QueuePolicy};
use tollgate::sync::ingress::{self, Consumer, Producer, Queued};
use tollgate::sync::ticket::{Answerer, ticket};
use tollgate::{Booking, EndpointIndex, Pin, Request, RequestKey, Scheduler, Snapshot, Timestamp, WorkerId};

/// Operations of each benchmark.
const OPERATIONS: usize = 1_000;

/// What a benchmark may take above the baseline: `count × 21 / 20`.
const ALLOWED: (u64, u64) = (21, 20);

/// Name and instructions of each benchmark, for all its operations; read anew in each run.
const BASELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions.baseline");

/// Fails above the baseline; what is not in it is only shown.
fn limited(name: &str) -> LibraryBenchmarkConfig {
    let mut callgrind = Callgrind::with_args(["--cache-sim=no"]);
    let baseline = std::fs::read_to_string(BASELINE).unwrap_or_else(|error| panic!("{BASELINE}: {error}"));
    let count = baseline.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    if let Some(count) = count {
        let count: u64 =
            count.trim().parse().unwrap_or_else(|_| panic!("{BASELINE}: {name}: {count:?} is no count"));
        callgrind.hard_limits([(EventKind::Ir, count * ALLOWED.0 / ALLOWED.1)]);
    }
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(callgrind);
    config
}

/// A scheduler with a backlog, and the number of the next request.
struct Standing {
    scheduler: Scheduler<usize>,
    next: usize,
    classes: usize,
    cost: fn(usize) -> u64,
}

impl Standing {
    fn put(&mut self) {
        let class = ClassId((self.next % self.classes) as u32);
        let request = costing(self.next, (self.cost)(self.next));
        self.scheduler.enqueue(class, request, self.next).expect("no limits");
        self.next += 1;
    }
}

fn standing(classes: usize, backlog: usize, order: QueuePolicy) -> Standing {
    let profile = profile((0..classes).map(|_| 1_024), |class| set_order(class, order));
    warm(Standing { scheduler: scheduler(&profile, 1), next: 0, classes, cost }, backlog)
}

fn oversized(classes: usize) -> Standing {
    let cost = |i| 1_000_000_000_000 + mix(i) % 1_000_000_000_000;
    let profile = profile((0..classes).map(|i| 1 + i as u64 % 64), |_| ());
    warm(Standing { scheduler: scheduler(&profile, 1), next: 0, classes, cost }, 10 * classes)
}

/// The usual backlog of one class in which a pinned request and one that came out of order have been, and are no more.
fn once_unusual(backlog: usize) -> Standing {
    let mut standing = standing(1, backlog, QueuePolicy::Fcfs);
    let pinned = Request { pin: Some(Pin { worker: WorkerId(0), rank: None }), ..Request::new(1, 0) };
    let unusual =
        [costing(standing.next - backlog / 2, 1), pinned.snapshot(Timestamp::ZERO).expect("a valid request")];
    for snapshot in unusual {
        let key = standing.scheduler.enqueue(ClassId(0), snapshot, 0).expect("no limits");
        standing.scheduler.cancel(key).expect("it waits");
    }
    standing
}

fn warm(mut standing: Standing, backlog: usize) -> Standing {
    (0..backlog).for_each(|_| standing.put());
    for _ in 0..OPERATIONS {
        standing.put();
        standing.scheduler.next_request().expect("something waits");
    }
    standing
}

#[library_benchmark]
#[bench::fcfs_1_class_1_000(args = (1, 1_000, QueuePolicy::Fcfs), setup = standing, config = limited("fcfs_1_class_1_000"))]
#[bench::fcfs_1_class_100_000(args = (1, 100_000, QueuePolicy::Fcfs), setup = standing, config = limited("fcfs_1_class_100_000"))]
#[bench::fcfs_1_class_once_unusual(args = (1_000), setup = once_unusual, config = limited("fcfs_1_class_once_unusual"))]
#[bench::fcfs_64_classes_100_000(args = (64, 100_000, QueuePolicy::Fcfs), setup = standing, config = limited("fcfs_64_classes_100_000"))]
#[bench::fcfs_1_024_classes_100_000(args = (1_024, 100_000, QueuePolicy::Fcfs), setup = standing, config = limited("fcfs_1_024_classes_100_000"))]
#[bench::fcfs_10_000_classes_100_000(args = (10_000, 100_000, QueuePolicy::Fcfs), setup = standing, config = limited("fcfs_10_000_classes_100_000"))]
#[bench::wspt_1_class_100_000(args = (1, 100_000, QueuePolicy::Wspt), setup = standing, config = limited("wspt_1_class_100_000"))]
#[bench::wspt_64_classes_100_000(args = (64, 100_000, QueuePolicy::Wspt), setup = standing, config = limited("wspt_64_classes_100_000"))]
#[bench::aged_1_class_100_000(args = (1, 100_000, QueuePolicy::AgedWspt), setup = standing, config = limited("aged_1_class_100_000"))]
#[bench::oversized_64_classes(args = (64), setup = oversized, config = limited("oversized_64_classes"))]
#[bench::oversized_10_000_classes(args = (10_000), setup = oversized, config = limited("oversized_10_000_classes"))]
fn enqueue_and_next(mut standing: Standing) -> Standing {
    for _ in 0..OPERATIONS {
        standing.put();
        black_box(standing.scheduler.next_request()).expect("something waits");
    }
    standing
}

fn booked(workers: usize) -> (Standing, Vec<Booking>) {
    let profile = profile([1_024], |class| class.busy.threshold_tokens = Some(1 << 20));
    let mut standing = Standing { scheduler: scheduler(&profile, workers), next: 0, classes: 1, cost };
    let mut bookings = Vec::with_capacity(workers + 1);
    for _ in 0..workers {
        standing.put();
        bookings.push(dispatched(&mut standing.scheduler));
    }
    (0..1_000).for_each(|_| standing.put());
    (standing, bookings)
}

fn dispatched(scheduler: &mut Scheduler<usize>) -> Booking {
    scheduler.dispatch().expect("something waits").outcome.expect("there are workers")
}

#[library_benchmark]
#[bench::dispatch_8_workers(args = (8), setup = booked, config = limited("dispatch_8_workers"))]
#[bench::dispatch_1_024_workers(args = (1_024), setup = booked, config = limited("dispatch_1_024_workers"))]
#[bench::dispatch_10_000_workers(args = (10_000), setup = booked, config = limited("dispatch_10_000_workers"))]
fn enqueue_dispatch_and_release(
    (mut standing, mut bookings): (Standing, Vec<Booking>),
) -> (Standing, Vec<Booking>) {
    for i in 0..OPERATIONS {
        standing.put();
        let booking = dispatched(&mut standing.scheduler);
        let oldest = std::mem::replace(&mut bookings[i % 8], booking);
        standing.scheduler.release(oldest);
    }
    (standing, bookings)
}

/// All endpoints busy, and in every class a lane for each.
fn lanes(classes: usize, workers: usize) -> (Scheduler<usize>, Vec<EndpointIndex>) {
    let profile = profile((0..classes).map(|_| 2_048), |class| class.busy.threshold_tokens = Some(0));
    let mut scheduler = scheduler(&profile, workers);
    let endpoints: Vec<_> = scheduler.endpoints().map(|(index, _)| index).collect();
    for &endpoint in &endpoints {
        scheduler.set_external(endpoint, 1);
    }
    for i in 0..classes * workers {
        let mut request = Request::new(2_048, 0);
        request.pin = Some(Pin { worker: WorkerId((i / classes) as u64), rank: Some(0) });
        let snapshot = request.snapshot(common::arrival(i)).expect("a valid request");
        scheduler.enqueue(ClassId((i % classes) as u32), snapshot, i).expect("no limits");
    }
    (scheduler, endpoints)
}

#[library_benchmark]
#[bench::load_change_64_lanes(args = (64, 128), setup = lanes, config = limited("load_change_64_lanes"))]
fn free_and_busy_again(
    (mut scheduler, endpoints): (Scheduler<usize>, Vec<EndpointIndex>),
) -> (Scheduler<usize>, Vec<EndpointIndex>) {
    for i in 0..OPERATIONS {
        let endpoint = endpoints[i * 381_683 % endpoints.len()];
        scheduler.set_external(endpoint, 0);
        scheduler.set_external(endpoint, 1);
    }
    (scheduler, endpoints)
}

/// A request with a deadline, in another order than they arrive.
fn due(i: usize) -> Snapshot {
    let deadline = Some(Duration::from_micros(1 + mix(i) % 1_000_000));
    let request = Request { deadline, ..Request::new(cost(i), 0) };
    request.snapshot(common::arrival(i)).expect("a valid request")
}

fn leaving(backlog: usize, request: fn(usize) -> Snapshot) -> (Scheduler<usize>, Vec<RequestKey>) {
    let mut scheduler = scheduler(&profile([1_024], |_| ()), 1);
    let put = |i| scheduler.enqueue(ClassId(0), request(i), i).expect("no limits");
    let keys = (0..backlog).map(put).collect();
    (scheduler, keys)
}

fn plain(i: usize) -> Snapshot {
    costing(i, cost(i))
}

#[library_benchmark]
#[bench::cancel_of_100_000(args = (100_000, plain), setup = leaving, config = limited("cancel_of_100_000"))]
fn cancel((mut scheduler, keys): (Scheduler<usize>, Vec<RequestKey>)) -> (Scheduler<usize>, Vec<RequestKey>) {
    for i in 0..OPERATIONS {
        black_box(scheduler.cancel(keys[i * 381_683 % keys.len()])).expect("it waits");
    }
    (scheduler, keys)
}

#[library_benchmark]
#[bench::expire_of_100_000(args = (100_000, due), setup = leaving, config = limited("expire_of_100_000"))]
fn expire((mut scheduler, keys): (Scheduler<usize>, Vec<RequestKey>)) -> (Scheduler<usize>, Vec<RequestKey>) {
    for _ in 0..OPERATIONS {
        let at = scheduler.next_expiry().expect("something waits");
        black_box(scheduler.expire(at)).expect("it has expired");
    }
    (scheduler, keys)
}

#[library_benchmark]
#[bench::ingress_push_and_drain(args = (ingress::queue(OPERATIONS)), config = limited("ingress_push_and_drain"))]
fn push_and_drain(
    (producer, mut consumer): (Producer<usize>, Consumer<usize>),
) -> (Producer<usize>, Consumer<usize>) {
    for i in 0..OPERATIONS {
        producer.push(Queued::new(i)).expect("there is room");
    }
    let drained = consumer.drain(OPERATIONS, |item| _ = black_box(*item));
    assert_eq!(drained, OPERATIONS);
    (producer, consumer)
}

#[library_benchmark]
#[bench::ticket_answered(config = limited("ticket_answered"))]
fn answer() {
    for i in 0..OPERATIONS as u64 {
        let (mut asker, queued) = ticket::<(), [u64; 9]>(());
        Answerer::new(queued).answer([i; 9]).expect("the asker is there");
        black_box(asker.try_take()).expect("it has its answer");
    }
}

library_benchmark_group!(
    name = operations,
    benchmarks = [
        enqueue_and_next,
        enqueue_dispatch_and_release,
        free_and_busy_again,
        cancel,
        expire,
        push_and_drain,
        answer
    ]
);
main!(library_benchmark_groups = operations);
