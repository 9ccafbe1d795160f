//! The threaded engine, given the same arrivals and releases one by one, dispatches the same requests to the same workers
//! in the same order.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin as Pinned;
use std::task::{Context, Poll, Waker};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tollgate::policy::{ClassSpec, PolicySpec, Profile, QueuePolicy};
use tollgate::{Admission, Engine, Permit, Pin, Request, Worker, WorkerId, WorkerSnapshot};
use tollgate_bench::replay::{Arrival, Event, simulate};

use super::{one_by_one, setup};

const REQUESTS: usize = 1_500;
const CLASSES: [&str; 3] = ["gold", "silver", "bulk"];

fn profile() -> Profile {
    let class = |name: &str, quantum, order| ClassSpec { order, ..ClassSpec::explicit(name, quantum) };
    let classes = vec![
        class(CLASSES[0], 4_000, QueuePolicy::Fcfs),
        class(CLASSES[1], 1_000, QueuePolicy::Wspt),
        class(CLASSES[2], 50, QueuePolicy::Fcfs),
    ];
    Profile::new(PolicySpec { classes, ..PolicySpec::default() }).unwrap()
}

/// Somewhat more than the workers can do, so that queues grow and all rules matter.
fn arrivals(seed: u64, workers: u32) -> Vec<Arrival> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut at = 0;
    (0..REQUESTS)
        .map(|_| {
            // In nanoseconds, so that hardly ever two things happen at the same time.
            at += rng.random_range(1..900 / u64::from(workers)) * 1_000 + rng.random_range(1..999);
            Arrival {
                at,
                input: rng.random_range(1..1_000),
                output: 1,
                class: Some(CLASSES[rng.random_range(0..CLASSES.len())].into()),
                priority: u32::from(rng.random_range(0..20) == 0),
                pin: (rng.random_range(0..5) == 0).then(|| rng.random_range(0..u64::from(workers))),
                ..Arrival::default()
            }
        })
        .collect()
}

/// The engine with what it has been given.
struct Driven {
    engine: Engine,
    waiting: BTreeMap<u64, Admission>,
    permits: BTreeMap<u64, Permit>,
}

impl Driven {
    fn admit(&mut self, place: u64, arrival: &Arrival) {
        let request = Request {
            class: arrival.class.clone(),
            strict_priority: arrival.priority,
            pin: arrival.pin.map(|worker| Pin { worker: WorkerId(worker), rank: None }),
            ..Request::new(arrival.input, 0)
        };
        self.waiting.insert(place, self.engine.admit(request).unwrap());
    }

    /// Lets the engine come to rest, and returns what it has dispatched: the request, and where to.
    fn dispatched(&mut self) -> Vec<(u64, u64)> {
        // Taken by the arbiter behind everything that it was told before.
        self.engine.snapshot();
        let mut context = Context::from_waker(Waker::noop());
        let mut ready = Vec::new();
        self.waiting.retain(|&place, admission| match Pinned::new(admission).poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready(answer) => {
                ready.push((place, answer.unwrap()));
                false
            }
        });
        let found = ready.iter().map(|(place, permit)| (*place, permit.endpoint().worker.0)).collect();
        self.permits.extend(ready);
        found
    }
}

#[test]
fn the_engine_dispatches_in_the_same_order() {
    for (seed, workers) in [(1, 1), (2, 3), (3, 8)] {
        let arrivals = arrivals(seed, workers);
        let mut log = Vec::new();
        let setup = setup(profile(), one_by_one(workers));
        let all = arrivals.iter().cloned().map(Ok);
        let outcome = simulate(&setup, all, |now, event| log.push((now, event))).unwrap();
        assert_eq!(outcome.all.completed, REQUESTS as u64);
        let waited = outcome.classes.iter().filter(|class| class.queue_most > 2).count();
        assert_eq!(waited, CLASSES.len(), "every class has a queue");

        let published = (0..u64::from(workers))
            .map(|id| Worker { max_active_requests: Some(1), ..Worker::new(id) })
            .collect();
        let engine = Engine::builder(profile()).workers(WorkerSnapshot::new(1, published).unwrap());
        let mut driven =
            Driven { engine: engine.start().unwrap(), waiting: BTreeMap::new(), permits: BTreeMap::new() };
        for instant in log.chunk_by(|a, b| a.0 == b.0) {
            let (mut expected, mut told) = (Vec::new(), 0);
            for (_, event) in instant {
                match *event {
                    Event::Arrived(place, _) => driven.admit(place, &arrivals[place as usize]),
                    Event::Done(place) => drop(driven.permits.remove(&place).unwrap()),
                    Event::Dispatched(place, worker) => {
                        expected.push((place, u64::from(worker)));
                        continue;
                    }
                    _ => continue,
                }
                told += 1;
            }
            assert_eq!(told, 1, "one thing at a time, or the engine may decide between two");
            assert_eq!(driven.dispatched(), expected, "seed {seed}, at {} ns", instant[0].0);
        }
        assert!(driven.waiting.is_empty() && driven.permits.is_empty());
    }
}
