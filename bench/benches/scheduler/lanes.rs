//! Exact lanes: requests that are pinned to one endpoint each, some of which may be busy.

use std::cell::OnceCell;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion};
use tollgate::policy::ClassId;
use tollgate::{Pin, Request, Scheduler, Snapshot, WorkerId};

use crate::common::{arrival, cost, group, profile, scheduler, sizes};

/// Requests that wait in each lane.
const DEPTH: usize = 4;

/// Which endpoints are busy.
#[derive(Clone, Copy, PartialEq)]
enum Blocked {
    None,
    Half,
    All,
}

impl Blocked {
    fn is(self, endpoint: usize) -> bool {
        match self {
            Self::None => false,
            Self::Half => endpoint % 2 == 1,
            Self::All => true,
        }
    }
}

fn pinned(i: usize, worker: usize) -> Snapshot {
    let mut request = Request::new(cost(i), 0);
    request.pin = Some(Pin { worker: WorkerId(worker as u64), rank: Some(0) });
    request.snapshot(arrival(i)).expect("a valid request")
}

/// One class, a lane for each worker. Requests are pinned to the worker that their number says.
fn standing(workers: usize, blocked: Blocked) -> Scheduler<usize> {
    let profile = profile([1_024], |class| class.busy.threshold_tokens = Some(0));
    let mut scheduler = scheduler(&profile, workers);
    let endpoints: Vec<_> = scheduler.endpoints().map(|(index, _)| index).collect();
    for (i, &endpoint) in endpoints.iter().enumerate() {
        scheduler.set_external(endpoint, u64::from(blocked.is(i)));
    }
    for i in 0..DEPTH * workers {
        scheduler.enqueue(ClassId(0), pinned(i, i % workers), i).expect("no limits");
    }
    scheduler
}

/// What may go goes, in the order of arrival, and nothing else.
fn check(workers: usize, blocked: Blocked) {
    let mut scheduler = standing(workers, blocked);
    let expected: Vec<_> = (0..DEPTH * workers).filter(|i| !blocked.is(i % workers)).collect();
    let served: Vec<_> =
        std::iter::from_fn(|| scheduler.next_request()).map(|picked| picked.payload).collect();
    assert!(served == expected, "of {} that may go, {} did", expected.len(), served.len());
    assert_eq!(scheduler.waiting() as usize, DEPTH * workers - served.len(), "something is lost");
}

pub(crate) fn exact_lanes(c: &mut Criterion) {
    let mut group = group(c, "exact lanes");
    for (name, blocked) in [("none", Blocked::None), ("half", Blocked::Half), ("all", Blocked::All)] {
        for workers in sizes([8, 128, 1_024, 10_000], 128) {
            let (mut lanes, mut next) = (OnceCell::new(), DEPTH * workers);
            group.bench_function(BenchmarkId::new(format!("{name} blocked/workers"), workers), |b| {
                lanes.get_or_init(|| {
                    check(workers, blocked);
                    standing(workers, blocked)
                });
                let scheduler = lanes.get_mut().expect("just made");
                if blocked == Blocked::All {
                    b.iter(|| black_box(scheduler.next_request()).is_none());
                } else {
                    b.iter(|| {
                        let picked = scheduler.next_request().expect("some may go");
                        let worker = picked.payload % workers;
                        // The next number that is pinned to the same worker.
                        let i = next + (worker + workers - next % workers) % workers;
                        scheduler.enqueue(ClassId(0), pinned(i, worker), i).expect("no limits");
                        next += 1;
                    });
                }
                assert_eq!(scheduler.waiting() as usize, DEPTH * workers, "the backlog stands");
            });
        }
    }
    group.finish();
}
