//! Many threads, random delays between the steps of the protocols, and everything at once: admissions, cancels,
//! deadlines, releases, worker snapshots that come, go and restart, policy reloads, pictures, and an end in the middle.
//!
//! Every request ends in exactly one way, the engine's books agree with the callers', what was booked is released, and
//! the memory goes back to where it was. The delays are seeded. `TOLLGATE_STRESS` is the number of requests.
//!
//! ```text
//! TOLLGATE_STRESS=10000000 cargo test --release -p tollgate --test stress -- --nocapture
//! ```

mod threaded;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use threaded::{at_rest, balanced, class, profile};
use tollgate::policy::Profile;
use tollgate::sync::points::{Step, install};
use tollgate::{
    Admission, Engine, EngineSnapshot, Idle, Permit, Pin, Reason, Rejected, Request, Worker, WorkerId,
    WorkerSnapshot,
};

/// Bytes that are allocated just now.
static LIVE: AtomicI64 = AtomicI64::new(0);

struct Counting;

// SAFETY: every call goes to the system allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// xorshift64*: good enough to be unlike the last one, and the same in every run.
struct Random(Cell<u64>);

impl Random {
    const fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    fn seed(&self, seed: u64) {
        self.0.set(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    }

    fn below(&self, bound: u64) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        (x.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32) % bound
    }
}

thread_local! {
    static DELAYS: Random = const { Random::new(0x1234_5678_9ABC_DEF1) };
}

/// Mostly nothing, sometimes the processor is given away between two steps, rarely for a while.
fn delay(_: Step) {
    let _ = DELAYS.try_with(|random| match random.below(1024) {
        0 => thread::sleep(Duration::from_micros(random.below(50))),
        1..8 => thread::yield_now(),
        8..24 => (0..random.below(200)).for_each(|_| std::hint::spin_loop()),
        _ => {}
    });
}

/// What became of requests, as their callers saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ended {
    dispatched: u64,
    /// Given up by the caller, who does not know what it would have been.
    cancelled: u64,
    expired: u64,
    refused: u64,
    failed: u64,
    closed: u64,
    /// Closed before it was queued.
    turned_away: u64,
}

impl Ended {
    fn total(&self) -> u64 {
        let Self { dispatched, cancelled, expired, refused, failed, closed, turned_away } = self;
        dispatched + cancelled + expired + refused + failed + closed + turned_away
    }

    fn add(&mut self, other: Self) {
        self.dispatched += other.dispatched;
        self.cancelled += other.cancelled;
        self.expired += other.expired;
        self.refused += other.refused;
        self.failed += other.failed;
        self.closed += other.closed;
        self.turned_away += other.turned_away;
    }

    fn rejected(&mut self, reason: &Reason) {
        match reason {
            Reason::DeadlineExceeded { .. } => self.expired += 1,
            Reason::QueueLimit(_) | Reason::IngressFull { .. } => self.refused += 1,
            Reason::Closed { cause } => {
                assert!(cause.is_none(), "{cause:?}");
                self.closed += 1;
            }
            Reason::PinUnavailable { .. } | Reason::NoEndpoint { .. } | Reason::AllOverloaded { .. } => {
                self.failed += 1;
            }
            other => panic!("{other}"),
        }
    }
}

/// How many requests there are in all: by default few enough for every day.
fn requests() -> u64 {
    std::env::var("TOLLGATE_STRESS").map_or(300_000, |n| n.parse().expect("TOLLGATE_STRESS is a number"))
}

fn policy(quantum: u64) -> Profile {
    let mut tight = class("tight", quantum);
    tight.busy.threshold_tokens = Some(4_000);
    tight.limits.requests = Some(4);
    profile(vec![tight, class("wide", 100)])
}

/// Some of four workers, which restart now and then.
fn workers(version: u64, random: &Random) -> WorkerSnapshot {
    let worker =
        |id| Worker { incarnation: (version + id) / 5, max_active_requests: Some(8), ..Worker::new(id) };
    // The first is always there.
    let ids = (0..4).filter(|id| *id == 0 || random.below(4) > 0).collect::<Vec<_>>();
    WorkerSnapshot::new(version, ids.into_iter().map(worker).collect()).unwrap()
}

fn request(random: &Random) -> Request {
    let mut request = Request::new(1 + random.below(400), random.below(50))
        .with_class(if random.below(2) == 0 { "tight" } else { "wide" });
    match random.below(16) {
        0 => request.deadline = Some(Duration::from_micros(random.below(300))),
        1 => request.pin = Some(Pin { worker: WorkerId(random.below(4)), rank: None }),
        2 => request.strict_priority = 1,
        _ => {}
    }
    request
}

/// One caller: admits `count` requests, a few at a time, and sees each to its end. It holds no permit while it waits:
/// if everybody did, nobody would get one.
fn caller(engine: &Engine, count: u64, random: &Random, done: &AtomicU64) -> Ended {
    let mut ended = Ended::default();
    let mut held: Vec<Permit> = Vec::new();
    let mut waiting: Vec<((), Admission)> = Vec::new();
    for left in (0..count).rev() {
        done.fetch_add(1, Ordering::Relaxed);
        match engine.admit(request(random)) {
            Ok(admission) => waiting.push(((), admission)),
            Err(Rejected { reason: Reason::Closed { .. }, .. }) => ended.turned_away += 1,
            Err(Rejected { reason, .. }) => ended.rejected(&reason),
        }
        if left > 0 && random.below(3) > 0 {
            continue;
        }
        held.clear();
        while !waiting.is_empty() {
            let how = random.below(8);
            if how == 0 {
                ended.cancelled += 1;
                drop(waiting.pop());
                continue;
            }
            let answer = match waiting.len() {
                1 if how < 4 => waiting.remove(0).1.wait(),
                _ => threaded::next_answer(&mut waiting).1,
            };
            match answer {
                Ok(mut permit) => {
                    ended.dispatched += 1;
                    if how.is_multiple_of(2) {
                        permit.prefill_complete();
                    }
                    if waiting.is_empty() {
                        held.push(permit);
                    }
                }
                Err(Rejected { reason, .. }) => ended.rejected(&reason),
            }
        }
    }
    ended
}

/// The life of one engine: `threads` callers, and others that change everything meanwhile. It ends in the middle.
fn life(threads: u64, idle: Idle, count: u64, seed: u64) -> (Ended, EngineSnapshot) {
    let random = Random::new(1);
    random.seed(seed);
    let engine = Engine::builder(policy(400))
        .workers(workers(1, &random))
        .ingress_capacity(256)
        .idle(idle)
        .start()
        .unwrap();
    let (done, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut total = Ended::default();
    thread::scope(|scope| {
        let (engine, done, over) = (&engine, &done, &over);
        let meanwhile = |offset: u64, body: &dyn Fn(u64, &Random)| {
            DELAYS.with(|delays| delays.seed(seed ^ offset << 32));
            let random = Random::new(1);
            random.seed(seed + offset);
            for turn in 2.. {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                body(turn, &random);
                thread::sleep(Duration::from_micros(200));
            }
        };
        let others = [
            scope.spawn(move || {
                meanwhile(1_001, &|turn, random| engine.publish(workers(turn, random)).unwrap());
            }),
            scope.spawn(move || {
                meanwhile(1_002, &|turn, _| {
                    if turn % 8 == 0 {
                        engine.reload(policy(1 + turn % 7 * 100));
                    }
                });
            }),
            scope.spawn(move || meanwhile(1_003, &|_, _| drop(engine.snapshot()))),
            scope.spawn(move || {
                meanwhile(1_004, &|_, _| {
                    let most = threads * count * 3 / 4;
                    if done.load(Ordering::Relaxed) >= most {
                        if seed.is_multiple_of(2) {
                            engine.close()
                        } else {
                            engine.drain(Duration::from_secs(3600))
                        }
                    }
                });
            }),
        ];
        let callers: Vec<_> = (0..threads)
            .map(|i| {
                scope.spawn(move || {
                    DELAYS.with(|delays| delays.seed(seed ^ i << 40));
                    let random = Random::new(1);
                    random.seed(seed + 7 * i);
                    caller(&engine.clone(), count, &random, done)
                })
            })
            .collect();
        callers.into_iter().for_each(|caller| total.add(caller.join().unwrap()));
        over.store(true, Ordering::Relaxed);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
    engine.close();
    engine.join();
    let picture = engine.snapshot();
    assert!(engine.booked().iter().all(|(_, booked)| (booked.tokens, booked.permits) == (0, 0)));
    (total, picture)
}

/// What the libraries below make for every thread that lives at the same time, and keep for good: a node in arc-swap's
/// list, room in parking_lot's table of sleepers. Made here for more threads than any life has, or a life that is the
/// first to have two of them meet would look like one that leaks.
fn made_for_good() {
    const THREADS: usize = 128;
    let (shared, all) = (arc_swap::ArcSwap::from_pointee(()), Barrier::new(THREADS));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                drop(shared.load());
                let (lock, never) = (parking_lot::Mutex::new(()), parking_lot::Condvar::new());
                never.wait_for(&mut lock.lock(), Duration::from_millis(1));
                all.wait();
            });
        }
    });
}

/// Some lives with `requests` in all, each checked, and the memory at rest after them. What is made once per process is
/// made when it is first needed, which can be in any life: so there are more, up to four times as many, until the memory
/// has stayed where it is for a while. What leaks, however rarely in so many requests, moves it in one life after another.
fn lives(threads: u64, idle: Idle, requests: u64) -> Ended {
    const LIVES: usize = 8;
    let each = requests.div_ceil(LIVES as u64 * threads);
    let mut sum = Ended::default();
    let mut live = Vec::with_capacity(4 * LIVES);
    let is_at_rest = |live: &[i64]| live.windows(2).rev().take(LIVES - 2).all(|pair| pair[0] == pair[1]);
    while live.len() < LIVES || (live.len() < 4 * LIVES && !is_at_rest(&live)) {
        let (ended, picture) = life(threads, idle, each, live.len() as u64);
        check(&ended, &picture, threads * each);
        sum.add(ended);
        drop(picture);
        live.push(LIVE.load(Ordering::Relaxed));
    }
    println!(
        "{threads} threads, {idle:?}, {} requests: {sum:?}; bytes after each life: {live:?}",
        sum.total()
    );
    assert!(is_at_rest(&live), "bytes after each life: {live:?}");
    sum
}

/// Every request has ended once, and the engine says the same as its callers.
fn check(ended: &Ended, picture: &EngineSnapshot, requests: u64) {
    assert_eq!(ended.total(), requests);
    balanced(picture);
    let count = |of: fn(&tollgate::ClassStatus) -> u64| picture.classes.iter().map(of).sum::<u64>();
    assert_eq!(picture.turned_away, ended.turned_away);
    assert_eq!(count(|c| c.submitted) + ended.turned_away, requests);
    // A request that its caller gave up may have been answered by then.
    let surely = [
        (count(|c| c.dispatched), ended.dispatched),
        (count(|c| c.expired), ended.expired),
        (count(|c| c.failed), ended.failed),
        (count(|c| c.closed), ended.closed),
    ];
    for (engine, callers) in surely {
        assert!((callers..=callers + ended.cancelled).contains(&engine), "{ended:?} {picture:?}");
    }
    assert!(count(|c| c.cancelled) <= ended.cancelled);
}

/// One test, so that nobody else allocates meanwhile, not even the harness.
#[test]
fn every_request_ends_once_and_leaves_neither_load_nor_memory() {
    install(delay);
    made_for_good();
    let all = [
        (2, Idle::Backoff, 1),
        (8, Idle::Backoff, 1),
        (8, Idle::Assist, 1),
        (64, Idle::Backoff, 1),
        (64, Idle::Assist, 1),
    ];
    for (threads, idle, fifths) in all {
        let ended = lives(threads, idle, requests() * fifths / 5);
        let Ended { dispatched, cancelled, expired, refused, failed, closed: _, turned_away } = ended;
        let usually = [dispatched, cancelled, expired, failed, turned_away];
        assert!(usually.iter().all(|count| *count > 0), "every kind of end happens: {ended:?}");
        assert!(refused > 0 || threads < 64, "{ended:?}");
    }
    let engine = Engine::builder(policy(400)).workers(workers(1, &Random::new(1))).start().unwrap();
    let ended = caller(&engine, 2_000, &Random::new(99), &AtomicU64::new(0));
    check(&ended, &at_rest(&engine), 2_000);
}
