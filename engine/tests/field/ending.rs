//! Draining and closing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tollgate::{ClassStatus, EngineSnapshot, Reason};

use crate::common::{pinned, tokens};
use crate::threaded::{
    answer, at_rest, balanced, class, drained, each_answer, engine, exclusive, one_slot, permit, settled,
    waits, worker,
};

fn all(picture: &EngineSnapshot, count: impl Fn(&ClassStatus) -> u64) -> u64 {
    picture.classes.iter().map(count).sum()
}

/// Whoever was let in gets a permit, since there is time enough; whoever came later hears that the engine is closed.
#[test]
fn requests_between_the_door_and_the_lanes_were_lost_by_a_drain() {
    const WINDOW: usize = 8;
    for round in 0..10 {
        let mut classes: Vec<_> = (0..4).map(|i| class(&format!("c{i}"), 100 << i)).collect();
        classes.iter_mut().for_each(|c| c.busy.threshold_tokens = Some(300));
        let engine = engine(classes, vec![worker(1), worker(2)]);
        let (accepted, served, turned_away) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        thread::scope(|scope| {
            for t in 0..64usize {
                let engine = engine.clone();
                let (accepted, served, turned_away) = (&accepted, &served, &turned_away);
                scope.spawn(move || {
                    let mut open = true;
                    while open {
                        let mut window = Vec::with_capacity(WINDOW);
                        while open && window.len() < WINDOW {
                            match engine.admit(tokens(100).with_class(["c0", "c1", "c2", "c3"][t % 4])) {
                                Ok(admission) => window.push(admission),
                                Err(rejected) => {
                                    assert_eq!(rejected.reason, Reason::Closed { cause: None });
                                    turned_away.fetch_add(1, Ordering::Relaxed);
                                    open = false;
                                }
                            }
                        }
                        accepted.fetch_add(window.len() as u64, Ordering::Relaxed);
                        each_answer(&mut window, |answer| {
                            drop(answer.expect("let in, so it is served"));
                            served.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                });
            }
            thread::sleep(Duration::from_millis(round));
            engine.drain(Duration::from_secs(60));
            engine.join();
        });
        drained(&engine);
        let picture = engine.snapshot();
        balanced(&picture);
        assert!(picture.endpoints.iter().all(|e| e.waiting == 0));
        assert_eq!(accepted.load(Ordering::Relaxed), served.load(Ordering::Relaxed));
        assert_eq!(all(&picture, |c| c.submitted), accepted.load(Ordering::Relaxed));
        assert_eq!(all(&picture, |c| c.dispatched), accepted.load(Ordering::Relaxed));
        assert_eq!(turned_away.into_inner(), 64);
    }
}

#[test]
fn a_drain_that_ran_out_of_time_forgot_who_waited() {
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut waiting: Vec<_> = (0..100).map(|_| engine.admit(tokens(5)).unwrap()).collect();
    // The shortest limit counts.
    engine.drain(Duration::from_secs(3600));
    engine.drain(Duration::from_millis(20));
    engine.drain(Duration::MAX);
    engine.join();
    assert_eq!(waiting.len(), 100);
    each_answer(&mut waiting, |answer| {
        let rejected = answer.unwrap_err();
        assert_eq!((rejected.reason, rejected.request), (Reason::Closed { cause: None }, tokens(5)));
    });
    drop(plug);
    let picture = engine.snapshot();
    balanced(&picture);
    let only = &picture.classes[0];
    assert_eq!((only.submitted, only.dispatched, only.closed), (101, 1, 100));
    assert_eq!(engine.booked()[0].1.permits, 0);
}

#[test]
fn a_drain_waited_for_ever_for_those_who_had_left() {
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let waiting: Vec<_> = (0..100).map(|_| engine.admit(tokens(5)).unwrap()).collect();
    settled(&engine);
    engine.drain(Duration::from_secs(20));
    drop(waiting);
    engine.join();
    let only = &engine.snapshot().classes[0];
    assert_eq!((only.cancelled, only.closed), (100, 0));
    drop(plug);
}

#[test]
fn a_drain_of_an_engine_with_nothing_to_do_did_not_end() {
    let engine = engine(vec![class("only", 1)], vec![]);
    let limit = Duration::from_secs(3600);
    engine.drain(limit);
    engine.join();
    assert!(engine.snapshot().uptime < limit);
    assert!(matches!(engine.admit(tokens(1)).unwrap_err().reason, Reason::Closed { cause: None }));
    at_rest(&engine);
}

#[test]
fn a_deadline_was_not_kept_during_a_drain() {
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let deadline = Some(Duration::from_millis(30));
    let late = engine.admit(tollgate::Request { deadline, ..tokens(5) }).unwrap();
    engine.drain(Duration::from_secs(3600));
    assert!(matches!(answer(late).unwrap_err().reason, Reason::DeadlineExceeded { .. }));
    engine.join();
    drop(plug);
}

#[test]
fn those_turned_away_after_the_end_were_not_counted() {
    let engine = engine(vec![class("only", 1)], vec![]);
    engine.close();
    engine.join();
    for _ in 0..3 {
        assert_eq!(engine.admit(tokens(1)).unwrap_err().reason, Reason::Closed { cause: None });
    }
    assert_eq!(engine.snapshot().turned_away, 3);
}

/// The shorter limit comes just when the arbiter goes to sleep until the longer one.
#[test]
fn a_shorter_limit_of_a_drain_was_not_heard() {
    for round in 0..5_000 {
        let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
        let _plug = permit(engine.admit(tokens(1)).unwrap());
        let mut waiting = engine.admit(tokens(1)).unwrap();
        engine.drain(Duration::from_secs(3600));
        let moment = Instant::now() + Duration::from_nanos(round % 1000 * 50);
        while Instant::now() < moment {}
        engine.drain(Duration::ZERO);
        let patience = Instant::now() + Duration::from_secs(5);
        while waits(&mut waiting) {
            assert!(Instant::now() < patience, "round {round}");
            thread::yield_now();
        }
    }
}

/// The pictures of an engine that has ended go on saying what its gauges were at the end.
#[test]
fn who_waited_for_one_worker_still_waited_after_the_end() {
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut pinned: Vec<_> = (0..3).map(|_| engine.admit(pinned(1, Some(0), tokens(5))).unwrap()).collect();
    assert_eq!(settled(&engine).endpoints[0].waiting, 3);
    engine.close();
    engine.join();
    each_answer(&mut pinned, |answer| drop(answer.unwrap_err()));
    drop(plug);
    let picture = engine.snapshot();
    assert_eq!((picture.classes[0].waiting.requests, picture.endpoints[0].waiting), (0, 0));
}
