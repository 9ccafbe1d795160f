//! The scheduler against a naive one, step by step, over random policies, requests, workers and operations.
//!
//! `TOLLGATE_ORACLE_CASES=n` runs n cases instead of 2,000, `TOLLGATE_ORACLE_SEED=s` replays one. A failure prints
//! the seed.

#[path = "../fuzz/bodies/driver.rs"]
mod driver;
mod oracle;

use std::collections::HashMap;
use std::env;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use oracle::{Coverage, Dispatched, Oracle, Rng, World};
use tollgate::policy::{ClassId, Profile};
use tollgate::{
    Booking, Dispatch, Endpoint, Expired, LimitReached, Picked, Refused, Request, RequestKey, Scheduler,
    Snapshot, Timestamp, WorkerSnapshot,
};

const CASES: u64 = 2_000;
const OPERATIONS: usize = 300;
/// Every event must happen this often in a default run.
const OFTEN_ENOUGH: u64 = 50;

#[derive(Clone, Debug)]
enum Op {
    Enqueue {
        class: usize,
        request: Request,
        arrival: u64,
    },
    Submit {
        class: usize,
        request: Request,
        arrival: u64,
        release_at_once: bool,
    },
    /// Past the queues, or into them if it cannot go at once.
    Bypass {
        class: usize,
        request: Request,
        arrival: u64,
        now: u64,
    },
    Next,
    NextSelectBook,
    Dispatch,
    /// Selection for a request that never waited, so that the answer does not depend on arbitration.
    Select {
        class: usize,
        request: Request,
    },
    Cancel {
        id: u64,
    },
    /// All that is due.
    Expire {
        now: u64,
    },
    Reload(Box<Profile>),
    PrefillComplete {
        id: u64,
    },
    Release {
        id: u64,
    },
    SetExternal {
        endpoint: Endpoint,
        tokens: u64,
    },
    SetWorkers(WorkerSnapshot),
}

/// How a case is driven.
struct Mix {
    most_waiting: usize,
    /// Weights of operations.
    arrive: u64,
    dispatch: u64,
    finish: u64,
    cancel: u64,
    external: u64,
    workers: u64,
    expire: u64,
    reload: u64,
    /// Load changes that the scheduler may keep from exact lanes, if there are more than a few of them.
    untold: [usize; 2],
}

impl Mix {
    fn new(rng: &mut Rng) -> Self {
        Self {
            most_waiting: rng.pick(&[4, 12, 30, 60]),
            arrive: rng.pick(&[40, 80, 120]),
            dispatch: rng.pick(&[20, 40, 80]),
            finish: rng.pick(&[10, 40, 80]),
            cancel: rng.pick(&[0, 2, 15]),
            external: rng.pick(&[0, 2, 15, 150]),
            workers: rng.pick(&[1, 3, 15]),
            expire: rng.pick(&[0, 5, 20]),
            reload: rng.pick(&[0, 1, 3, 15]),
            untold: rng.pick(&[[0, 0], [1, 0], [3, 0], [64, 0], [64, 0], [64, 2]]),
        }
    }

    fn draw(&self, world: &mut World, oracle: &Oracle, ids: u64) -> Op {
        let waiting: Vec<_> = oracle.waiting().collect();
        let booked: Vec<_> = oracle.bookings().collect();
        let one_of = |rng: &mut Rng, ids: &[u64]| (!ids.is_empty()).then(|| rng.pick(ids));
        let class = world.rng.pick(oracle.open());
        let kinds = [
            self.arrive,
            self.dispatch,
            self.finish,
            self.cancel,
            self.external,
            self.workers,
            2,
            self.expire,
            self.reload,
        ];
        let mut at = world.rng.below(kinds.iter().sum());
        let kind = kinds.iter().position(|n| at.checked_sub(*n).map(|rest| at = rest).is_none());
        let op = match kind.expect("below the sum") {
            0 if waiting.len() < self.most_waiting => {
                let (request, arrival) = world.request();
                let release_at_once = world.rng.percent(20);
                Some(match world.rng.below(10) {
                    0..=2 => Op::Submit { class, request, arrival, release_at_once },
                    3..=5 => Op::Bypass { class, request, arrival, now: world.now() },
                    _ => Op::Enqueue { class, request, arrival },
                })
            }
            2 => one_of(&mut world.rng, &booked).map(|id| match world.rng.percent(30) {
                true => Op::PrefillComplete { id },
                false => Op::Release { id },
            }),
            // Now and then one that waits no more, or never did.
            3 if world.rng.percent(10) => Some(Op::Cancel { id: world.rng.below(ids + 1) }),
            3 => one_of(&mut world.rng, &waiting).map(|id| Op::Cancel { id }),
            4 => world.endpoint().map(|endpoint| Op::SetExternal { endpoint, tokens: world.load() }),
            5 => Some(Op::SetWorkers(world.workers())),
            6 => Some(Op::Select { class, request: world.request().0 }),
            7 => Some(Op::Expire { now: world.now() }),
            8 => Some(Op::Reload(Box::new(world.next_profile()))),
            _ => None,
        };
        op.unwrap_or_else(|| match world.rng.below(20) {
            0 => Op::Next,
            1..=4 => Op::Dispatch,
            _ => Op::NextSelectBook,
        })
    }
}

/// One case. What it does when dropped in a panic is to say how to see it again.
struct Case {
    seed: u64,
    at: usize,
    op: Option<Op>,
    real: Scheduler<u64>,
    oracle: Oracle,
    /// Of every request that was ever enqueued.
    keys: HashMap<u64, (RequestKey, Snapshot)>,
    bookings: HashMap<u64, Booking>,
    /// Requests so far.
    ids: u64,
    /// Number in the real scheduler of each class of the oracle that it had in the ring at the last reload.
    numbers: Vec<Option<ClassId>>,
}

impl Case {
    fn run(seed: u64, operations: usize) -> Coverage {
        Self::drawn(seed, Rng::new(seed), operations)
    }

    fn drawn(seed: u64, rng: Rng, operations: usize) -> Coverage {
        let mut world = World::new(rng);
        let profile = world.profile();
        let mix = Mix::new(&mut world.rng);
        let mut case = Self::new(seed, &profile);
        let [most, few] = mix.untold;
        case.real.set_untold(most, few);
        let first = Op::SetWorkers(world.workers());
        // Some start without workers.
        if !world.rng.percent(10) {
            case.step(first);
        }
        while case.at < operations {
            let op = mix.draw(&mut world, &case.oracle, case.ids);
            case.step(op);
        }
        std::mem::take(&mut case.oracle.coverage)
    }

    fn new(seed: u64, profile: &Profile) -> Self {
        Self {
            seed,
            at: 0,
            op: None,
            real: Scheduler::new(profile),
            oracle: Oracle::new(profile),
            keys: HashMap::new(),
            bookings: HashMap::new(),
            ids: 0,
            numbers: (0..profile.classes().len() as u32).map(|i| Some(ClassId(i))).collect(),
        }
    }

    fn step(&mut self, op: Op) {
        self.at += 1;
        self.op = Some(op.clone());
        let (seen, coverage) = (self.real.seen(), self.oracle.coverage.clone());
        self.apply(op);
        self.oracle.coverage.told([seen, self.real.seen()], &coverage);
        self.compare();
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Enqueue { class, request, arrival } => {
                let (id, snapshot) = self.arrive(&request, arrival);
                let real = self.real.enqueue(self.number(class), snapshot.clone(), id);
                let naive = self.oracle.enqueue(id, class, request, arrival);
                self.compare_arrival(real, naive, id, snapshot);
            }
            Op::Submit { class, request, arrival, release_at_once } => {
                self.submit(class, request, arrival, release_at_once);
            }
            Op::Bypass { class, request, arrival, now } => self.bypass(class, request, arrival, now),
            Op::Next => {
                self.next();
            }
            Op::NextSelectBook => self.next_select_book(),
            Op::Dispatch => {
                let real = self.real.dispatch();
                let naive = self.oracle.dispatch();
                let real = real.map(|dispatch| {
                    let Picked { payload, snapshot, .. } = &dispatch.request;
                    assert_eq!(*snapshot, self.keys[payload].1);
                    self.keep(dispatch)
                });
                assert_eq!(real, naive);
            }
            Op::Select { class, request } => {
                let snapshot = snapshot(&request, 0);
                let real = self.real.select(self.number(class), &snapshot);
                let real = real.map(|index| self.endpoint(index.index()));
                assert_eq!(real, self.oracle.select(class, &request));
            }
            Op::Cancel { id } => {
                let real = self.keys.get(&id).and_then(|(key, _)| self.real.cancel(*key));
                let naive = self.oracle.cancel(id);
                let real = real.map(|p| (p.payload, of_number(&self.numbers, p.class), p.snapshot));
                assert_eq!(real, naive.map(|w| (w.id, w.class, self.keys[&id].1.clone())));
            }
            Op::Expire { now } => {
                while self.expire(now) {
                    self.compare();
                }
            }
            Op::Reload(profile) => self.reload(&profile),
            Op::PrefillComplete { id } => {
                self.real.prefill_complete(self.bookings.get_mut(&id).expect("booked"));
                self.oracle.prefill_complete(id);
            }
            Op::Release { id } => {
                self.real.release(self.bookings.remove(&id).expect("booked"));
                self.oracle.release(id);
            }
            Op::SetExternal { endpoint, tokens } => {
                // The generator may know of a snapshot that the case never got.
                if let Some(index) = self.real.find(endpoint) {
                    self.real.set_external(index, tokens);
                    self.oracle.set_external(endpoint, tokens);
                }
            }
            Op::SetWorkers(workers) => {
                self.oracle.set_workers(&workers);
                self.real.set_workers(workers.into());
            }
        }
    }

    /// Whether one was due.
    fn expire(&mut self, now: u64) -> bool {
        let due = self.oracle.expired(now);
        let Some(Expired { request: Picked { class, snapshot, payload: id }, cause }) =
            self.real.expire(Timestamp::from_nanos(now))
        else {
            assert_eq!(due, [], "due by {now}");
            return false;
        };
        assert!(due.contains(&id), "{id} goes before {due:?}");
        let (w, naive) = self.oracle.expire(id, now);
        assert_eq!((of_number(&self.numbers, class), cause), (w.class, naive));
        assert_eq!(snapshot, self.keys[&id].1);
        true
    }

    /// A class keeps its number while it is in the ring.
    fn reload(&mut self, profile: &Profile) {
        let numbers = self.real.reload(profile);
        let before = self.oracle.ring().to_vec();
        self.oracle.reload(profile);
        let ring = self.oracle.ring();
        let mut now = vec![None; self.oracle.classes().len()];
        for &k in before.iter().filter(|k| ring.contains(k)) {
            now[k] = self.numbers[k];
        }
        assert_eq!(numbers.len(), self.oracle.open().len());
        for (&k, number) in self.oracle.open().iter().zip(numbers) {
            assert!(now[k].is_none_or(|before| before == number), "{} was {:?}", self.oracle.name(k), now[k]);
            assert!(!now.contains(&Some(number)) || now[k].is_some(), "{number:?} twice");
            now[k] = Some(number);
        }
        self.numbers = now;
    }

    /// Of a class that takes requests.
    fn number(&self, class: usize) -> ClassId {
        self.numbers[class].expect("open")
    }

    fn arrive(&mut self, request: &Request, arrival: u64) -> (u64, Snapshot) {
        self.ids += 1;
        (self.ids - 1, snapshot(request, arrival))
    }

    fn compare_arrival(
        &mut self,
        real: Result<RequestKey, Refused<u64>>,
        naive: Result<(), LimitReached>,
        id: u64,
        snapshot: Snapshot,
    ) {
        match real {
            Ok(key) => {
                assert_eq!(Ok(()), naive);
                self.keys.insert(id, (key, snapshot));
            }
            Err(refused) => {
                assert_eq!(Err(refused.limit), naive);
                assert_eq!((refused.payload, refused.snapshot), (id, snapshot), "it comes back untouched");
            }
        }
    }

    fn submit(&mut self, class: usize, request: Request, arrival: u64, release_at_once: bool) {
        let (id, snapshot) = self.arrive(&request, arrival);
        let (mut went, mut frozen, numbers) = (Vec::new(), Vec::new(), &self.numbers);
        let real =
            self.real.submit(numbers[class].expect("open"), snapshot.clone(), id, &mut |real, dispatch| {
                went.push(seen(real, numbers, &dispatch));
                let Dispatch { request: Picked { payload: id, snapshot, .. }, outcome } = dispatch;
                frozen.push((id, snapshot));
                if let Ok(booking) = outcome {
                    if release_at_once {
                        real.release(booking);
                    } else {
                        self.bookings.insert(id, booking);
                    }
                }
            });
        let mut naive_went = Vec::new();
        let naive = self.oracle.submit(id, class, request, arrival, &mut |oracle, dispatched| {
            if release_at_once && dispatched.outcome.is_ok() {
                oracle.release(dispatched.id);
            }
            naive_went.push(dispatched);
        });
        assert_eq!(went, naive_went);
        self.compare_arrival(real, naive, id, snapshot);
        for (id, snapshot) in frozen {
            assert_eq!(snapshot, self.keys[&id].1);
        }
    }

    /// One that goes past the queues goes as one that is enqueued and dispatched.
    fn bypass(&mut self, class: usize, request: Request, arrival: u64, now: u64) {
        let (id, snapshot) = self.arrive(&request, arrival);
        let number = self.number(class);
        let passed = self.oracle.may_bypass(class, &request, arrival, now);
        match self.real.bypass(number, &snapshot, Timestamp::from_nanos(now)) {
            None => {
                assert!(!passed, "nothing waits, and it could go");
                let real = self.real.enqueue(number, snapshot.clone(), id);
                let naive = self.oracle.enqueue(id, class, request, arrival);
                self.compare_arrival(real, naive, id, snapshot);
            }
            Some(outcome) => {
                assert!(passed, "it has to wait, or its time is over");
                self.oracle.enqueue(id, class, request, arrival).expect("no limit binds it");
                let request = Picked { class: number, snapshot, payload: id };
                let real = self.keep(Dispatch { request, outcome });
                assert_eq!(Some(real), self.oracle.dispatch());
            }
        }
    }

    fn next(&mut self) -> Option<(ClassId, Snapshot, oracle::Waiting)> {
        let real = self.real.next_request();
        let naive = self.oracle.next();
        assert_eq!(
            real.as_ref().map(|picked| (picked.payload, of_number(&self.numbers, picked.class))),
            naive.as_ref().map(|w| (w.id, w.class)),
        );
        let picked = real?;
        assert_eq!(picked.snapshot, self.keys[&picked.payload].1);
        Some((picked.class, picked.snapshot, naive?))
    }

    fn next_select_book(&mut self) {
        let Some((class, snapshot, w)) = self.next() else { return };
        let real = self.real.select(class, &snapshot);
        let naive = self.oracle.select(w.class, &w.request);
        assert_eq!(real.clone().map(|index| self.endpoint(index.index())), naive);
        if let (Ok(index), Ok(endpoint)) = (real, naive) {
            let booking = self.real.book(index, &snapshot);
            assert_eq!(booking.endpoint(), endpoint);
            self.oracle.book(w.id, endpoint, &w.request);
            self.bookings.insert(w.id, booking);
        }
    }

    fn keep(&mut self, dispatch: Dispatch<u64>) -> Dispatched {
        let seen = seen(&self.real, &self.numbers, &dispatch);
        if let Ok(booking) = dispatch.outcome {
            self.bookings.insert(dispatch.request.payload, booking);
        }
        seen
    }

    fn endpoint(&self, index: usize) -> Endpoint {
        self.real.endpoints().nth(index).expect("in the snapshot").1
    }

    /// All that can be read.
    fn compare(&self) {
        let Self { real, oracle, .. } = self;
        let ring = oracle.ring().iter().map(|&k| (self.numbers[k].expect("in the ring"), oracle.name(k)));
        assert!(
            real.classes().map(|(id, name)| (id, &**name)).eq(ring.clone()),
            "ring {:?} {:?}",
            real.classes().collect::<Vec<_>>(),
            ring.collect::<Vec<_>>()
        );
        for class in oracle.classes() {
            let (id, name) = (self.numbers[class], oracle.name(class));
            if !oracle.ring().contains(&class) {
                assert_eq!(real.class_id(name), None, "{name} is gone");
                continue;
            }
            assert_eq!(real.class_id(name), id, "number of {name}");
            let id = id.expect("in the ring");
            assert_eq!(real.deficit(id), oracle.deficit(class), "deficit of {name}");
            assert_eq!(real.quantum(id), oracle.quantum(class), "quantum of {name}");
            assert_eq!(real.usage(id), oracle.usage(class), "usage of {name}");
            let oldest = real.oldest_arrival(id).map(Timestamp::as_nanos);
            assert_eq!(oldest, oracle.oldest_arrival(class), "oldest of {name}");
        }
        assert_eq!(real.next_expiry().map(Timestamp::as_nanos), oracle.next_expiry(), "next expiry");
        let mut waiting = Vec::new();
        for (key, snapshot, id) in real.iter() {
            assert_eq!((key, &snapshot), (self.keys[id].0, &self.keys[id].1), "request {id}, shown");
            waiting.push(*id);
        }
        waiting.sort_unstable();
        let mut naive: Vec<_> = oracle.waiting().collect();
        naive.sort_unstable();
        assert_eq!(waiting, naive, "waiting requests");
        assert_eq!(real.waiting(), naive.len() as u64);
        for (id, (key, _)) in &self.keys {
            let waits = naive.binary_search(id).is_ok().then_some(id);
            assert_eq!(real.get(*key), waits, "request {id} by its key");
        }
        assert!(real.endpoints().map(|(_, e)| e).eq(oracle.endpoints()), "endpoints");
        for (index, endpoint) in real.endpoints() {
            let booked = real.booked(index);
            assert_eq!((booked.tokens, booked.permits), oracle.booked(endpoint), "booked on {endpoint}");
            assert_eq!(real.external(index), oracle.external(endpoint), "external load of {endpoint}");
            assert_eq!(real.active(index), oracle.active(endpoint), "active tokens of {endpoint}");
            assert_eq!(real.find(endpoint), Some(index));
            assert_eq!(real.waiting_for(index), oracle.waiting_for(endpoint), "waiting for {endpoint}");
        }
        assert_eq!(real.stale_releases(), oracle.stale_releases(), "stale releases");
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("seed {}, operation {}: {:?}", self.seed, self.at, self.op);
            eprintln!(
                "replay: TOLLGATE_ORACLE_SEED={} cargo test -p tollgate --test against_oracle",
                self.seed
            );
        }
    }
}

fn snapshot(request: &Request, arrival: u64) -> Snapshot {
    let snapshot = request.snapshot(Timestamp::from_nanos(arrival)).expect("finite jump");
    assert_eq!((snapshot.cost(), snapshot.cached_tokens()), (oracle::cost(request), oracle::cached(request)));
    snapshot
}

/// What stands for a class in the oracle.
fn of_number(numbers: &[Option<ClassId>], class: ClassId) -> usize {
    numbers.iter().position(|number| *number == Some(class)).expect("a class of the ring")
}

fn seen(real: &Scheduler<u64>, numbers: &[Option<ClassId>], dispatch: &Dispatch<u64>) -> Dispatched {
    let Dispatch { request, outcome } = dispatch;
    let outcome = outcome.as_ref().map(|booking| {
        assert_eq!(real.find(booking.endpoint()), Some(booking.index()));
        booking.endpoint()
    });
    let class = of_number(numbers, request.class);
    Dispatched { id: request.payload, class, outcome: outcome.map_err(Clone::clone) }
}

/// A case that a fuzzer writes: the first byte is the seed, the rest decides the draws.
pub(crate) fn run(script: &[u8]) {
    if let [seed, script @ ..] = script {
        let seed = u64::from(*seed);
        Case::drawn(seed, Rng::scripted(seed, script), OPERATIONS);
    }
}

#[test]
fn the_scheduler_decides_as_the_naive_one_does_by_changed_scripts() {
    driver::pass("scheduler", &[], 300, run);
}

/// A number from the environment; whatever else stands there is a mistake.
fn number(name: &str) -> Option<u64> {
    let value = env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|e| panic!("{name}={value}: {e}")))
}

#[test]
fn the_scheduler_decides_as_the_naive_one_does() {
    if let Some(seed) = number("TOLLGATE_ORACLE_SEED") {
        Case::run(seed, OPERATIONS);
        return;
    }
    let cases = number("TOLLGATE_ORACLE_CASES").unwrap_or(CASES);
    let next = AtomicU64::new(0);
    let total = Mutex::new(Coverage::default());
    let threads = thread::available_parallelism().map_or(1, |n| n.get().min(8));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut coverage = Coverage::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= cases {
                        break;
                    }
                    coverage.add(&Case::run(seed, OPERATIONS));
                }
                total.lock().expect("no case has failed").add(&coverage);
            });
        }
    });
    let total = total.into_inner().expect("no case has failed");
    let mut weak = Vec::new();
    for (event, times) in total.iter() {
        println!("{event:?}: {times}");
        if times < OFTEN_ENOUGH {
            weak.push(event);
        }
    }
    assert!(cases < CASES || weak.is_empty(), "the comparison has become weak: {weak:?}");
}
