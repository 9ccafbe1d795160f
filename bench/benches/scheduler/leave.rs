//! Leaving without being served: cancelled, and expired.

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion};
use tollgate::policy::ClassId;
use tollgate::{Request, RequestKey, Scheduler, Snapshot};

use crate::common::{arrival, cost, costing, group, mix, profile, scheduler, sizes};

/// A class of which nothing can go, as large as wanted.
struct Standing {
    scheduler: Scheduler<usize>,
    keys: Vec<RequestKey>,
}

impl Standing {
    fn new(backlog: usize, request: impl Fn(usize) -> Snapshot) -> Self {
        let mut scheduler = scheduler(&profile([1_024], |_| ()), 1);
        let mut put = |i| scheduler.enqueue(ClassId(0), request(i), i).expect("no limits");
        let keys = (0..backlog).map(&mut put).collect();
        Self { scheduler, keys }
    }
}

/// The victim of step `i`: a stride that comes to all of them.
fn victim(i: usize, backlog: usize) -> usize {
    i * 381_683 % backlog
}

pub(crate) fn cancel(c: &mut Criterion) {
    let mut group = group(c, "cancel and enqueue");
    for backlog in sizes([1_000, 100_000, 1_000_000], 1_000) {
        let (mut standing, mut next) = (None, backlog);
        group.bench_function(BenchmarkId::new("backlog", backlog), |b| {
            let Standing { scheduler, keys } = standing.get_or_insert_with(|| {
                check_cancel(backlog.min(10_000));
                Standing::new(backlog, |i| costing(i, cost(i)))
            });
            b.iter(|| {
                let victim = victim(next, backlog);
                scheduler.cancel(keys[victim]).expect("it waits");
                let request = costing(next, cost(next));
                keys[victim] = scheduler.enqueue(ClassId(0), request, next).expect("no limits");
                next += 1;
            });
            assert_eq!(scheduler.waiting(), backlog as u64, "the backlog stands");
        });
    }
    group.finish();
}

/// Of a class of which every other request was cancelled, the others come, in order.
fn check_cancel(backlog: usize) {
    let Standing { mut scheduler, keys } = Standing::new(backlog, |i| costing(i, cost(i)));
    for i in (0..backlog).map(|i| victim(i, backlog)).filter(|i| i % 2 == 0) {
        let cancelled = scheduler.cancel(keys[i]).expect("it waits");
        assert_eq!(cancelled.payload, i);
        assert!(scheduler.cancel(keys[i]).is_none(), "it waits no more");
    }
    let served = std::iter::from_fn(|| scheduler.next_request()).map(|picked| picked.payload);
    assert!(served.eq((0..backlog).filter(|i| i % 2 == 1)), "the others come in order");
}

/// A request with a deadline, in another order than they arrive.
fn limited(i: usize) -> Snapshot {
    let deadline = Some(Duration::from_micros(1 + mix(i) % 1_000_000));
    let request = Request { deadline, ..Request::new(cost(i), 0) };
    request.snapshot(arrival(i)).expect("a valid request")
}

pub(crate) fn expire(c: &mut Criterion) {
    let mut group = group(c, "expire and enqueue");
    for backlog in sizes([1_000, 100_000, 1_000_000], 1_000) {
        let (mut standing, mut next) = (None, backlog);
        group.bench_function(BenchmarkId::new("backlog", backlog), |b| {
            let Standing { scheduler, .. } = standing.get_or_insert_with(|| {
                check_expire(backlog.min(10_000));
                Standing::new(backlog, limited)
            });
            b.iter(|| {
                let at = scheduler.next_expiry().expect("something waits");
                black_box(scheduler.expire(at)).expect("it has expired");
                scheduler.enqueue(ClassId(0), limited(next), next).expect("no limits");
                next += 1;
            });
            assert_eq!(scheduler.waiting(), backlog as u64, "the backlog stands");
        });
    }
    group.finish();
}

/// All expire, each at its time and once.
fn check_expire(backlog: usize) {
    let mut scheduler = Standing::new(backlog, limited).scheduler;
    let (mut last, mut expired) = (None, vec![false; backlog]);
    while let Some(at) = scheduler.next_expiry() {
        assert!(Some(at) >= last, "the earliest comes first");
        let request = scheduler.expire(at).expect("its time is over").request;
        assert_eq!(request.snapshot.deadline(), Some(at));
        assert!(!std::mem::replace(&mut expired[request.payload], true), "{} came twice", request.payload);
        last = Some(at);
    }
    assert!(expired.into_iter().all(|expired| expired), "something is lost");
}
