//! Everything at once.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use tollgate::policy::{ClassSpec, Profile, QueuePolicy};
use tollgate::{
    Admission, Candidates, EndpointIndex, Engine, EngineSnapshot, Reason, Rejected, Request, Selector,
    Worker, WorkerSnapshot,
};

use crate::common::{constrained, tokens};
use crate::threaded::{
    answer, at_rest, balanced, class, drained, each_answer, exclusive, one_slot, profile, until, worker,
};

/// Fails some requests, and panics at some, without a message from the panic hook.
struct Moody(u64);

impl Selector for Moody {
    fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
        self.0 += 1;
        if self.0.is_multiple_of(101) {
            resume_unwind(Box::new("in a selector"));
        }
        candidates.least_loaded().filter(|_| !self.0.is_multiple_of(97))
    }
}

struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        resume_unwind(Box::new("in a waker"));
    }
}

fn arm(admission: &mut Admission) -> bool {
    let waker = Waker::from(Arc::new(Bomb));
    Pin::new(admission).poll(&mut Context::from_waker(&waker)).is_pending()
}

/// A small random sequence.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

const CLASSES: [&str; 4] = ["a", "b", "c", "d"];

/// One of several policies for the same classes.
fn policy(variant: u64) -> Profile {
    let spec = |i: u64, name: &&str| {
        let mut spec: ClassSpec = class(name, 100 << ((i + variant) % 4));
        spec.busy.threshold_tokens = Some(400 * (1 + variant));
        spec.busy.worker_ratio = (i == 1).then_some(0.5);
        if (i + variant).is_multiple_of(3) {
            spec.order = QueuePolicy::AgedWspt;
            spec.aging_tokens_per_second = Some(1e5);
        }
        spec.limits.requests = (i == 2).then_some(4);
        spec.limits.raw_isl_tokens = (i == 3).then_some(500 * variant);
        spec.limits.cached_tokens = (i == 0).then_some(100 * (1 + variant));
        spec.max_queue_time = (i == 1).then_some(Duration::from_micros(500));
        spec
    };
    profile((0..).zip(&CLASSES).map(|(i, name)| spec(i, name)).collect())
}

/// Workers that come, go, change and are reborn.
fn pool(version: u64) -> WorkerSnapshot {
    let odd = version % 2;
    let mut workers = vec![
        Worker { external_load: vec![version % 500], ..worker(1) },
        Worker { ranks: 2 + odd as u32, max_active_requests: Some(3), ..worker(2) },
        Worker { incarnation: version / 16, overloaded: version.is_multiple_of(5), ..worker(3) },
    ];
    if version.is_multiple_of(3) {
        workers.push(Worker { taints: vec!["gpu".into()], ..worker(4) });
    }
    WorkerSnapshot::new(version, workers).unwrap()
}

fn some_request(random: &mut Random) -> Request {
    let mut request = Request::new(1 + random.below(300), random.below(100));
    match random.below(12) {
        0 => request.deadline = Some(Duration::from_micros(random.below(800))),
        1 => request = crate::common::pinned(1 + random.below(4), None, request),
        2 => request = crate::common::pinned(2, Some(random.below(3) as u32), request),
        3 => request = constrained(Some(&[1, 3]), &[], request),
        4 => request = constrained(None, &["gpu"], request),
        5 => request.strict_priority = random.below(3) as u32,
        6 => request.priority_jump = [f64::NAN, 0.5, 1e308][random.below(3) as usize],
        _ => {}
    }
    request.with_class(CLASSES[random.below(4) as usize])
}

/// What callers were told.
#[derive(Default)]
struct Told {
    admitted: AtomicU64,
    at_the_door: AtomicU64,
    invalid: AtomicU64,
    permits: AtomicU64,
    rejected: AtomicU64,
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn caller(engine: &Engine, told: &Told, seed: u64, requests: u64) {
    let mut random = Random(seed);
    let mut window: Vec<Admission> = Vec::new();
    let mut held = None;
    for i in 1..=requests {
        match engine.admit(some_request(&mut random)) {
            Ok(mut admission) => {
                add(&told.admitted);
                match random.below(8) {
                    0 => drop(admission),
                    // Dropped with a waker in it.
                    1 => _ = arm(&mut admission),
                    2 => {
                        if arm(&mut admission) {
                            window.push(admission);
                        }
                    }
                    _ => window.push(admission),
                }
            }
            Err(Rejected { reason: Reason::Invalid(_), .. }) => add(&told.invalid),
            Err(Rejected { reason, .. }) => {
                let door = matches!(reason, Reason::IngressFull { .. } | Reason::DeadlineExceeded { .. });
                assert!(door, "{reason}");
                add(&told.at_the_door);
            }
        }
        if window.len() == 24 || i == requests {
            // Held while the next ones come, but not while they are waited for: they could be waiting for it.
            drop(held.take());
            let mut left = window.len();
            each_answer(&mut window, |answer| {
                left -= 1;
                match answer {
                    Ok(mut permit) => {
                        add(&told.permits);
                        if random.below(2) == 0 {
                            permit.prefill_complete();
                        }
                        held = (left == 0).then_some(permit);
                    }
                    Err(rejected) => {
                        assert!(!matches!(rejected.reason, Reason::Closed { .. }));
                        add(&told.rejected);
                    }
                }
            });
        }
    }
}

fn balance(picture: &EngineSnapshot, told: &Told) {
    let sum = |count: fn(&tollgate::ClassStatus) -> u64| picture.classes.iter().map(count).sum::<u64>();
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    assert_eq!(sum(|c| c.submitted), read(&told.admitted) + read(&told.at_the_door));
    assert_eq!(picture.invalid, read(&told.invalid));
    assert!(sum(|c| c.dispatched) >= read(&told.permits));
    // Who left without looking may have been answered all the same.
    let known = read(&told.permits) + read(&told.rejected);
    assert!(sum(|c| c.ended() - c.cancelled) >= known);
    for ended in [
        sum(|c| c.dispatched),
        sum(|c| c.cancelled),
        sum(|c| c.expired),
        sum(|c| c.failed),
        sum(|c| c.refused.requests),
        sum(|c| c.refused.raw_isl_tokens),
        sum(|c| c.refused.cached_tokens),
    ] {
        assert!(ended > 0, "the storm was no storm: {picture:#?}");
    }
}

#[test]
fn the_books_did_not_balance_after_a_storm() {
    let engine =
        Engine::builder(policy(0)).workers(pool(1)).ingress_capacity(64).selector(Moody(0)).start().unwrap();
    let (told, over) = (Told::default(), AtomicBool::new(false));
    let mut version = 2;
    thread::scope(|scope| {
        let callers: Vec<_> = (0..6)
            .map(|t| {
                let (engine, told) = (engine.clone(), &told);
                scope.spawn(move || caller(&engine, told, t, 20_000))
            })
            .collect();
        scope.spawn(|| {
            let policies: Vec<_> = (0..4).map(|variant| Arc::new(policy(variant))).collect();
            for policy in policies.iter().cycle() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                engine.reload(policy.clone());
                for c in engine.snapshot().classes {
                    assert_eq!(c.waits.len(), c.dispatched);
                    assert_eq!(c.submitted, c.ended() + c.waiting.requests, "{}", c.name);
                }
                thread::sleep(Duration::from_micros(200));
            }
        });
        while !callers.iter().all(|t| t.is_finished()) {
            engine.publish(pool(version)).unwrap();
            version += 1;
            thread::sleep(Duration::from_micros(100));
        }
        over.store(true, Ordering::Relaxed);
    });
    let offered = told.admitted.load(Ordering::Relaxed) + told.at_the_door.load(Ordering::Relaxed);
    until(&engine, |p| p.classes.iter().map(|c| c.submitted).sum::<u64>() == offered);
    balance(&at_rest(&engine), &told);
    engine.publish(WorkerSnapshot::new(version, vec![worker(1), worker(9)]).unwrap()).unwrap();
    let picture = until(&engine, |p| p.endpoints.len() == 2);
    assert!(picture.endpoints.iter().all(|e| e.active == 0));

    // Once more, with the end in the middle of it.
    let late = Told::default();
    let closed = AtomicU64::new(0);
    thread::scope(|scope| {
        for t in 0..4 {
            let (engine, late, closed) = (engine.clone(), &late, &closed);
            scope.spawn(move || {
                let mut random = Random(t);
                while let Ok(admission) = engine.admit(tokens(1 + random.below(100)).with_class("b")) {
                    add(&late.admitted);
                    match answer(admission) {
                        Ok(permit) => drop(permit),
                        Err(Rejected { reason: Reason::Closed { .. }, .. }) => add(closed),
                        Err(_) => {}
                    }
                }
            });
        }
        thread::sleep(Duration::from_millis(20));
        engine.close();
    });
    engine.join();
    drained(&engine);
    let picture = engine.snapshot();
    balanced(&picture);
    balance(&picture, &told_more(told, &late));
    assert_eq!(picture.classes.iter().map(|c| c.closed).sum::<u64>(), closed.into_inner());
}

fn told_more(told: Told, late: &Told) -> Told {
    told.admitted.fetch_add(late.admitted.load(Ordering::Relaxed), Ordering::Relaxed);
    told
}

/// Each request has a waker that panics, and the selector panics now and then: each answer is there all the same.
#[test]
fn a_panic_in_a_waker_or_a_selector_swallowed_answers() {
    const THREADS: u64 = 4;
    const EACH: usize = 5000;
    let engine = Engine::builder(profile(vec![exclusive("only", 1)]))
        .workers(WorkerSnapshot::new(1, vec![one_slot(1), one_slot(2)]).unwrap())
        .selector(Moody(0))
        .start()
        .unwrap();
    let (served, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let mut window = Vec::new();
                for i in 1..=EACH {
                    let mut admission = engine.admit(tokens(10)).unwrap();
                    let waker = Waker::from(Arc::new(Bomb));
                    match Pin::new(&mut admission).poll(&mut Context::from_waker(&waker)) {
                        Poll::Pending => window.push(admission),
                        Poll::Ready(answer) => add(if answer.is_ok() { &served } else { &failed }),
                    }
                    if window.len() == 8 || i == EACH {
                        // The bombs go off meanwhile; a permit that is not taken yet keeps its slot.
                        thread::yield_now();
                        each_answer(&mut window, |answer| match answer.map_err(|r| r.reason) {
                            Ok(_) => add(&served),
                            Err(Reason::SelectorFailed { .. }) => add(&failed),
                            Err(other) => panic!("{other}"),
                        });
                    }
                }
            });
        }
    });
    let picture = at_rest(&engine);
    let only = &picture.classes[0];
    assert_eq!((only.dispatched, only.failed), (served.into_inner(), failed.into_inner()));
    assert_eq!(only.submitted, THREADS * EACH as u64);
    assert!(only.failed > 0);
}
