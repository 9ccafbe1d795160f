//! What requests book, and how it comes back.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use tollgate::{
    Booked, Candidates, EndpointIndex, Engine, Pin, Reason, Request, Selector, Worker, WorkerId,
    WorkerSnapshot,
};

use crate::common::tokens;
use crate::threaded::{
    answer, at_rest, class, drained, each_answer, engine, exclusive, one_slot, permit, profile, settled,
    until, waits, worker,
};

const NOTHING: Booked = Booked { tokens: 0, permits: 0 };

/// One slot, 100,000 requests one after the other, each ended in another way: the next always goes.
#[test]
fn a_request_that_ended_badly_kept_its_slot() {
    const FAILS: u64 = 13;
    struct Picky;
    impl Selector for Picky {
        fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
            candidates.least_loaded().filter(|_| candidates.snapshot().raw_isl_tokens() != FAILS)
        }
    }
    let engine = Engine::builder(profile(vec![exclusive("only", 1)]))
        .workers(WorkerSnapshot::new(1, vec![one_slot(1)]).unwrap())
        .selector(Picky)
        .start()
        .unwrap();
    let booked = || engine.booked()[0].1;
    let mut failed = 0;
    for i in 0..100_000 {
        let admission = engine.admit(tokens(if i % 6 == 5 { FAILS } else { 50 })).unwrap();
        match i % 6 {
            0 => {
                let mut permit = permit(admission);
                assert_eq!(booked(), Booked { tokens: 50, permits: 1 });
                permit.prefill_complete();
                assert_eq!(booked(), Booked { tokens: 0, permits: 1 });
            }
            1 => {
                let mut permit = permit(admission);
                permit.prefill_complete();
                permit.prefill_complete();
                assert_eq!(booked(), Booked { tokens: 0, permits: 1 });
            }
            2 => drop(permit(admission)),
            // The caller dies during prefill.
            3 => {
                let permit = permit(admission);
                let died = catch_unwind(AssertUnwindSafe(move || {
                    let _held = permit;
                    resume_unwind(Box::new("the caller dies"))
                }));
                assert!(died.is_err());
            }
            // The caller leaves, perhaps with a permit that it has not taken.
            4 => {
                drop(admission);
                drained(&engine);
                continue;
            }
            _ => {
                let reason = answer(admission).unwrap_err().reason;
                assert!(matches!(reason, Reason::SelectorFailed { .. }), "{reason}");
                failed += 1;
            }
        }
        assert_eq!(booked(), NOTHING);
    }
    let only = &at_rest(&engine).classes[0];
    assert_eq!((only.submitted, only.failed), (100_000, failed));
}

#[test]
fn the_slot_went_with_the_prefill_tokens() {
    let mut rule = class("only", 1);
    rule.busy.threshold_tokens = Some(99);
    let engine = engine(vec![rule], vec![Worker { max_active_requests: Some(2), ..worker(1) }]);
    let mut first = permit(engine.admit(tokens(100)).unwrap());
    let mut second = engine.admit(tokens(100)).unwrap();
    settled(&engine);
    assert!(waits(&mut second), "the tokens of the first are still booked");
    first.prefill_complete();
    let mut second = permit(second);
    second.prefill_complete();
    let mut third = engine.admit(tokens(100)).unwrap();
    let picture = settled(&engine);
    assert_eq!((picture.endpoints[0].active, picture.endpoints[0].booked.permits), (0, 2));
    assert!(waits(&mut third), "both slots are still held");
    drop(first);
    assert_eq!(permit(third).booked_tokens(), 100);
}

/// Publishers refresh the workers thousands of times, with external load that changes each time, while requests run on
/// them. One request stands on each worker all the time.
#[test]
fn a_refresh_of_the_workers_wiped_or_doubled_the_load() {
    const WORKERS: u64 = 4;
    const STANDING: u64 = 1_000_000;
    const EACH: u64 = 20_000;
    const WINDOW: usize = 16;
    let engine = engine(vec![class("only", 1)], (0..WORKERS).map(worker).collect());
    let mut standing: Vec<_> = (0..WORKERS)
        .map(|id| {
            let pin = Some(Pin { worker: WorkerId(id), rank: None });
            permit(engine.admit(Request { pin, ..tokens(STANDING) }).unwrap())
        })
        .collect();
    let done = AtomicBool::new(false);
    let mut last_external = 0;
    thread::scope(|scope| {
        let storm: Vec<_> = (0..3u64)
            .map(|t| {
                let engine = engine.clone();
                scope.spawn(move || {
                    let mut window = Vec::with_capacity(WINDOW);
                    for i in 0..EACH {
                        window.push(engine.admit(tokens(1 + (i + t) % 100)).unwrap());
                        if window.len() == WINDOW {
                            each_answer(&mut window, |answer| answer.unwrap().prefill_complete());
                        }
                    }
                    each_answer(&mut window, |answer| drop(answer.unwrap()));
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for e in engine.snapshot().endpoints {
                    let above = e.booked.tokens.checked_sub(STANDING);
                    let most = 3 * WINDOW as u32;
                    assert!(above.is_some_and(|above| above <= u64::from(most) * 100), "{e:?}");
                    assert!((1..=1 + most).contains(&e.booked.permits), "{e:?}");
                    assert!(e.active >= STANDING, "{e:?}");
                }
            }
        });
        let mut version = 2;
        while version < 4_000 || !storm.iter().all(|t| t.is_finished()) {
            last_external = version * 7 % 5000;
            let workers = (0..WORKERS).map(|id| Worker { external_load: vec![last_external], ..worker(id) });
            engine.publish(WorkerSnapshot::new(version, workers.collect()).unwrap()).unwrap();
            version += 1;
            thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
    });
    let stands = |active: u64, tokens: u64, permits: u32| {
        until(&engine, |p| {
            p.endpoints.iter().all(|e| (e.active, e.booked) == (active, Booked { tokens, permits }))
        });
    };
    stands(last_external + STANDING, STANDING, 1);
    standing.iter_mut().for_each(|permit| permit.prefill_complete());
    stands(last_external, 0, 1);
    drop(standing);
    stands(last_external, 0, 0);
    assert_eq!(at_rest(&engine).stale_releases, 0);
}
