//! Callers that leave before they are served.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tollgate::{EngineSnapshot, Reason, Request, Usage, WaitCause};

use crate::common::tokens;
use crate::threaded::{
    admit, at_rest, drained, each_answer, engine, exclusive, next_answer, one_slot, permit, settled, until,
    worker,
};

#[test]
fn cancelled_requests_still_counted_against_the_limit() {
    let mut only = exclusive("only", 1);
    only.limits.requests = Some(4);
    let engine = engine(vec![only], vec![worker(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut waiting: Vec<_> = (10..14).map(|n| (n, engine.admit(tokens(n)).unwrap())).collect();
    until(&engine, |p| p.classes[0].waiting.requests == 4);

    // The second of the four stays.
    waiting.retain(|(n, _)| *n == 11);
    until(&engine, |p| p.classes[0].waiting.requests == 1);
    waiting.extend((14..17).map(|n| (n, engine.admit(tokens(n)).unwrap())));
    let picture = settled(&engine);
    let only = &picture.classes[0];
    assert_eq!((only.waiting.requests, only.waiting.raw_isl_tokens), (4, 11 + 14 + 15 + 16));
    assert_eq!((only.dispatched, only.cancelled, only.refused), (1, 3, Default::default()));

    drop(plug);
    let mut served = Vec::new();
    while !waiting.is_empty() {
        let (n, answer) = next_answer(&mut waiting);
        assert_eq!(answer.unwrap().cost(), n);
        served.push(n);
    }
    assert_eq!(served, [11, 14, 15, 16]);
    assert_eq!(at_rest(&engine).classes[0].dispatched, 5);
}

#[test]
fn a_cancelled_head_swallowed_the_capacity_that_came_free() {
    let engine = engine(vec![exclusive("only", 1)], vec![worker(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let head = engine.admit(tokens(1000)).unwrap();
    let next = engine.admit(tokens(10)).unwrap();
    let _last = engine.admit(tokens(10)).unwrap();
    until(&engine, |p| p.classes[0].waiting.requests == 3);
    let decisions = engine.snapshot().arbiter.decisions;
    drop(head);
    drop(plug);
    let next = permit(next);
    let picture = settled(&engine);
    assert_eq!(picture.arbiter.decisions - decisions, 1);
    let only = &picture.classes[0];
    assert_eq!((only.dispatched, only.dispatched_tokens, only.cancelled), (2, 1 + 10, 1));
    assert_eq!((next.cost(), only.waiting.requests), (10, 1));
}

/// Callers leave at any moment from before the dispatch to after it, 100,000 times on one slot.
#[test]
fn a_permit_that_met_no_taker_kept_its_slot() {
    const THREADS: u32 = 4;
    const EACH: u32 = 25_000;
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    let full_doors = AtomicU64::new(0);
    thread::scope(|scope| {
        for t in 0..THREADS {
            let (engine, full_doors) = (engine.clone(), &full_doors);
            scope.spawn(move || {
                let mut full = 0;
                for i in 0..EACH {
                    let admission = admit(&engine, tokens(100), &mut full);
                    for _ in 0..(i * 7 + t) % 199 {
                        std::hint::spin_loop();
                    }
                    drop(admission);
                }
                full_doors.fetch_add(full, Ordering::Relaxed);
            });
        }
    });
    let offered = u64::from(THREADS * EACH) + full_doors.into_inner();
    until(&engine, |p| p.classes[0].submitted == offered);
    let only = &at_rest(&engine).classes[0];
    assert_eq!(only.dispatched + only.cancelled, u64::from(THREADS * EACH));
    assert!(only.dispatched > 0 && only.cancelled > 0, "{only:?}");
    drained(&engine);
    drop(permit(engine.admit(tokens(100)).unwrap()));
}

/// 64 callers at random moments, then nothing more happens: who stays is served, who leaves is forgotten, who has too
/// little time hears of it.
#[test]
fn the_last_of_a_burst_were_forgotten_when_silence_followed() {
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    for round in 0..20 {
        thread::scope(|scope| {
            for i in 0..64u64 {
                let engine = engine.clone();
                scope.spawn(move || {
                    thread::sleep(Duration::from_micros((i * 97 + round * 31) % 1000));
                    let deadline = (i % 4 == 1).then(|| Duration::from_micros(200 + i * 10));
                    let admission = engine.admit(Request { deadline, ..tokens(10) }).unwrap();
                    match i % 4 {
                        0 => drop(admission),
                        1 => match crate::threaded::answer(admission).map_err(|r| r.reason) {
                            Ok(permit) => drop(permit),
                            Err(Reason::DeadlineExceeded { waited, cause }) => {
                                assert!(Some(waited) >= deadline);
                                assert!(
                                    matches!(cause, WaitCause::PoolBusy | WaitCause::Others),
                                    "{cause:?}"
                                );
                            }
                            Err(other) => panic!("{other}"),
                        },
                        _ => drop(permit(admission)),
                    }
                });
            }
        });
        until(&engine, |p| p.classes[0].submitted == (round + 1) * 64);
        at_rest(&engine);
    }
    let only = &engine.snapshot().classes[0];
    assert!(only.dispatched >= 20 * 32);
}

#[test]
fn a_million_cancels_left_something_behind() {
    const THREADS: usize = 4;
    const EACH: usize = 250_000;
    let engine = engine(vec![exclusive("a", 100), exclusive("b", 300)], vec![worker(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let (start, full_doors) = (Barrier::new(THREADS), AtomicU64::new(0));
    thread::scope(|scope| {
        for t in 0..THREADS {
            let (engine, start, full_doors) = (engine.clone(), &start, &full_doors);
            scope.spawn(move || {
                let (mut held, mut full) = (Vec::with_capacity(500), 0);
                start.wait();
                for i in 0..EACH {
                    let deadline = (i % 5 == 0).then_some(Duration::from_secs(3600));
                    let request = Request { deadline, ..Request::new(1 + i as u64 % 900, i as u64 % 50) };
                    let request = request.with_class(["a", "b"][(i + t) % 2]);
                    let admission = admit(&engine, request, &mut full);
                    held.push(admission);
                    // From the middle, from the end, and now and then all.
                    match i % 500 {
                        499 => held.clear(),
                        k if k % 3 == 0 => drop(held.swap_remove(held.len() / 2)),
                        k if k % 3 == 1 => drop(held.pop()),
                        _ => {}
                    }
                }
                full_doors.fetch_add(full, Ordering::Relaxed);
            });
        }
    });
    let cancelled = |p: &EngineSnapshot| p.classes.iter().map(|c| c.cancelled).sum::<u64>();
    let picture = until(&engine, |p| cancelled(p) == (THREADS * EACH) as u64);
    assert!(picture.classes.iter().all(|c| c.waiting == Usage::default()));
    assert!(picture.classes.iter().all(|c| c.deficit == 0 && c.oldest.is_none()));
    let full = picture.classes.iter().map(|c| c.refused.ingress_full).sum::<u64>();
    assert_eq!(full, full_doors.into_inner());
    assert_eq!(picture.endpoints[0].active, 1);
    drop(plug);
    let mut last: Vec<_> =
        (0..100).map(|i| engine.admit(tokens(5).with_class(["a", "b"][i % 2])).unwrap()).collect();
    each_answer(&mut last, |answer| drop(answer.unwrap()));
    let picture = at_rest(&engine);
    assert_eq!(picture.classes.iter().map(|c| c.dispatched).sum::<u64>(), 101);
}
