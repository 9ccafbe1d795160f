//! What a caller did first counts first, also when the arbiter hears of all of it in one turn.

use std::thread;
use std::time::Duration;

use tollgate::policy::ClassSpec;
use tollgate::{Engine, Idle, Reason, Request, WorkerId, WorkerSnapshot};

use crate::common::tokens;
use crate::threaded::{
    Braked, answer, at_rest, exclusive, one_slot, permit, profile, settled, until, worker,
};

fn limited(requests: u64) -> ClassSpec {
    let mut only = exclusive("only", 1);
    only.limits.requests = Some(requests);
    only
}

#[test]
fn requests_cancelled_in_the_same_turn_still_counted_against_the_limit() {
    let braked = Braked::new(vec![limited(4)], vec![worker(1)]);
    let engine = &braked.engine;
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut waiting: Vec<_> = (0..4).map(|_| engine.admit(tokens(5)).unwrap()).collect();
    settled(engine);
    braked.at_once(|| {
        waiting.truncate(1);
        waiting.extend((0..3).map(|_| engine.admit(tokens(6)).unwrap()));
    });
    let only = &settled(engine).classes[0];
    assert_eq!((only.waiting.requests, only.cancelled, only.refused.requests), (4, 3, 0));
    drop((plug, waiting));
    at_rest(engine);
}

#[test]
fn a_slot_freed_in_the_same_turn_was_still_taken_for_a_class_that_never_queues() {
    let braked = Braked::new(vec![limited(0)], vec![one_slot(1), one_slot(2)]);
    let engine = &braked.engine;
    let plug = permit(engine.admit(tokens(1)).unwrap());
    assert_eq!(plug.endpoint().worker, WorkerId(1));
    let (next, on_two) = braked.at_once_in("only", || {
        drop(plug);
        engine.admit(tokens(5)).unwrap()
    });
    assert_eq!(on_two.endpoint().worker, WorkerId(2));
    assert_eq!(answer(next).map_err(|r| r.reason).map(|p| p.endpoint().worker), Ok(WorkerId(1)));
}

#[test]
fn an_expired_request_still_counted_against_the_limit() {
    let deadline = Some(Duration::from_millis(20));
    let braked = Braked::new(vec![limited(1)], vec![worker(1)]);
    let engine = &braked.engine;
    let _plug = permit(engine.admit(tokens(1)).unwrap());
    let late = engine.admit(Request { deadline, ..tokens(5) }).unwrap();
    settled(engine);
    let _next = braked.at_once(|| {
        thread::sleep(Duration::from_millis(40));
        engine.admit(tokens(6)).unwrap()
    });
    assert!(matches!(answer(late).unwrap_err().reason, Reason::DeadlineExceeded { .. }));
    let only = &settled(engine).classes[0];
    assert_eq!((only.waiting.requests, only.expired, only.refused.requests), (1, 1, 0));
}

#[test]
fn a_request_was_served_after_its_deadline_because_a_limit_was_reached() {
    let deadline = Some(Duration::from_millis(20));
    let braked = Braked::new(vec![limited(1)], vec![worker(1)]);
    let engine = &braked.engine;
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let late = engine.admit(Request { deadline, ..tokens(5) }).unwrap();
    settled(engine);
    let next = braked.at_once(|| {
        thread::sleep(Duration::from_millis(40));
        drop(plug);
        engine.admit(tokens(6)).unwrap()
    });
    let late = answer(late).map_err(|r| r.reason.code()).map(|permit| permit.waited());
    assert_eq!(late, Err("deadline_exceeded"));
    drop(permit(next));
}

/// The same without a limit: there the deadline is looked at first.
#[test]
fn a_request_was_served_after_its_deadline() {
    let deadline = Some(Duration::from_millis(20));
    let braked = Braked::new(vec![exclusive("only", 1)], vec![worker(1)]);
    let engine = &braked.engine;
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let late = engine.admit(Request { deadline, ..tokens(5) }).unwrap();
    settled(engine);
    braked.at_once(|| {
        thread::sleep(Duration::from_millis(40));
        drop(plug);
    });
    assert!(matches!(answer(late).unwrap_err().reason, Reason::DeadlineExceeded { .. }));
    at_rest(engine);
}

/// Its deadline is over while it is still in front of the arbiter, and there is room.
#[test]
fn a_request_that_came_too_late_for_the_arbiter_was_served_all_the_same() {
    let braked = Braked::new(vec![exclusive("only", 1)], vec![worker(1), worker(2), worker(3)]);
    let engine = &braked.engine;
    let late = braked.at_once(|| {
        let deadline = Some(Duration::from_millis(20));
        let late = engine.admit(Request { deadline, ..tokens(5) }).unwrap();
        thread::sleep(Duration::from_millis(40));
        late
    });
    assert!(matches!(answer(late).unwrap_err().reason, Reason::DeadlineExceeded { .. }));
    at_rest(engine);
}

#[test]
fn a_cancelled_head_and_a_release_in_the_same_turn_left_the_next_one_waiting() {
    let braked = Braked::new(vec![exclusive("only", 1)], vec![worker(1)]);
    let engine = &braked.engine;
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let head = engine.admit(tokens(1000)).unwrap();
    let next = engine.admit(tokens(10)).unwrap();
    settled(engine);
    let before = engine.snapshot().arbiter.turns;
    braked.at_once(|| drop((head, plug)));
    assert_eq!(permit(next).cost(), 10);
    let picture = at_rest(engine);
    assert_eq!((picture.classes[0].cancelled, picture.classes[0].dispatched_tokens), (1, 11));
    assert!(picture.arbiter.turns > before);
}

/// More cancels than a turn hears of, those at the head of the lane last.
#[test]
fn cancelled_requests_were_dispatched_and_charged_because_there_were_many() {
    let braked = Braked::new(vec![exclusive("only", 1000)], vec![worker(1)]);
    let engine = &braked.engine;
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut leaving: Vec<_> = (0..3000).map(|_| engine.admit(tokens(400)).unwrap()).collect();
    let stays = engine.admit(tokens(10)).unwrap();
    let _last = engine.admit(tokens(10)).unwrap();
    let before = until(engine, |p| p.classes[0].waiting.requests == 3002).arbiter.decisions;
    braked.at_once(|| {
        leaving.drain(..).rev().for_each(drop);
        drop(plug);
    });
    let stays = permit(stays);
    let picture = until(engine, |p| p.classes[0].cancelled == 3000);
    // The brake and the one that stays.
    assert_eq!((picture.arbiter.decisions - before, picture.classes[0].deficit), (2, 990));
    drop(stays);
}

/// A picture is of one moment.
#[test]
fn a_picture_showed_load_that_it_did_not_show_as_booked() {
    let braked = Braked::new(vec![exclusive("only", 1)], vec![worker(1)]);
    let engine = &braked.engine;
    let plug = permit(engine.admit(tokens(500)).unwrap());
    let picture = thread::scope(|scope| {
        let asker = braked.at_once(|| {
            drop(plug);
            let asker = scope.spawn(|| engine.snapshot());
            // Asked while the arbiter is still in its turn.
            thread::sleep(Duration::from_millis(20));
            asker
        });
        asker.join().unwrap()
    });
    let one = &picture.endpoints[0];
    assert_eq!(one.active, one.booked.tokens);
}

#[test]
fn a_release_just_before_the_end_left_load_in_the_last_picture() {
    let braked = Braked::new(vec![exclusive("only", 1)], vec![worker(1)]);
    let engine = &braked.engine;
    let plug = permit(engine.admit(tokens(500)).unwrap());
    braked.at_once(|| {
        drop(plug);
        engine.close();
    });
    engine.join();
    let last = &engine.snapshot().endpoints[0];
    assert_eq!(last.booked.tokens, 0);
    assert_eq!((last.active, &last.busy_for[..]), (0, &[][..]));
}

/// One caller alone, one request after the other: there is always a free slot.
#[test]
fn a_lone_caller_of_a_class_that_never_queues_was_refused() {
    for idle in [Idle::Spin, Idle::Backoff, Idle::Assist] {
        let engine = Engine::builder(profile(vec![limited(0)]))
            .workers(WorkerSnapshot::new(1, vec![one_slot(1)]).unwrap())
            .idle(idle)
            .start()
            .unwrap();
        for _ in 0..20_000 {
            drop(answer(engine.admit(tokens(5)).unwrap()));
        }
        assert_eq!(at_rest(&engine).classes[0].refused.requests, 0, "of 20000 with {idle:?}");
    }
}
