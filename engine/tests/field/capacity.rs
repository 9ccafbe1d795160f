//! Capacity that comes, goes, or is missed.

use std::sync::Barrier;
use std::thread;

use tollgate::{Pin, Reason, Request, Worker, WorkerId, WorkerSnapshot};

use crate::common::{constrained, pinned, tokens};
use crate::threaded::{
    answer, at_rest, class, each_answer, engine, exclusive, next_answer, one_slot, permit, profile, settled,
    until, waits, worker,
};

fn loaded(id: u64, tokens: u64) -> Worker {
    Worker { external_load: vec![tokens], ..worker(id) }
}

fn snapshot(version: u64, workers: Vec<Worker>) -> WorkerSnapshot {
    WorkerSnapshot::new(version, workers).unwrap()
}

/// Shared, pinned to worker 1 or its rank, and constrained to workers 1 and 2.
fn kinds() -> [Request; 4] {
    [
        tokens(10),
        pinned(1, None, tokens(10)),
        pinned(1, Some(0), tokens(10)),
        constrained(Some(&[1, 2]), &[], tokens(10)),
    ]
}

#[test]
fn load_that_fell_by_a_snapshot_alone_woke_nobody() {
    for kind in kinds() {
        let engine = engine(vec![exclusive("only", 1)], vec![loaded(1, 500)]);
        let mut waiting = engine.admit(kind).unwrap();
        assert_eq!(settled(&engine).classes[0].waiting.requests, 1);
        engine.publish(snapshot(2, vec![loaded(1, 1)])).unwrap();
        settled(&engine);
        assert!(waits(&mut waiting));
        engine.publish(snapshot(3, vec![loaded(1, 0)])).unwrap();
        assert_eq!(permit(waiting).endpoint().worker, WorkerId(1));
    }
}

#[test]
fn a_worker_that_joined_woke_nobody() {
    let [shared, _, _, constrained] = kinds();
    for kind in [shared, constrained] {
        let engine = engine(vec![exclusive("only", 1)], vec![loaded(1, 500)]);
        let waiting = engine.admit(kind).unwrap();
        assert_eq!(settled(&engine).classes[0].waiting.requests, 1);
        engine.publish(snapshot(2, vec![loaded(1, 500), worker(2)])).unwrap();
        assert_eq!(permit(waiting).endpoint().worker, WorkerId(2));
    }
}

#[test]
fn a_threshold_that_was_raised_woke_nobody() {
    for kind in kinds() {
        let engine = engine(vec![exclusive("only", 1)], vec![loaded(1, 500)]);
        let waiting = engine.admit(kind).unwrap();
        assert_eq!(settled(&engine).classes[0].waiting.requests, 1);
        let mut raised = exclusive("only", 1);
        raised.busy.threshold_tokens = Some(500);
        engine.reload(profile(vec![raised]));
        assert_eq!(permit(waiting).endpoint().worker, WorkerId(1));
    }
}

#[test]
fn requests_waited_while_one_of_four_workers_was_free() {
    let mut rule = class("only", 1);
    rule.busy.threshold_tokens = Some(100);
    let busy = (1..4).map(|id| loaded(id, 101));
    let engine = engine(vec![rule], busy.chain([worker(4)]).collect());
    // 30, 60, 90 and 120 tokens: only then is the fourth busy, too.
    let held: Vec<_> = (0..4).map(|_| permit(engine.admit(tokens(30)).unwrap())).collect();
    assert!(held.iter().all(|permit| permit.endpoint().worker == WorkerId(4)));
    let mut fifth = engine.admit(tokens(30)).unwrap();
    let picture = settled(&engine);
    assert!(waits(&mut fifth));
    assert_eq!(picture.endpoints.iter().filter(|e| e.busy_for.is_empty()).count(), 0);
    drop(held);
    assert_eq!(permit(fifth).endpoint().worker, WorkerId(4));
}

#[test]
fn without_workers_clients_were_told_to_come_back_later_for_a_limit() {
    let mut only = exclusive("only", 1);
    only.limits.requests = Some(1);
    only.limits.raw_isl_tokens = Some(1);
    let engine = engine(vec![only], vec![]);
    let mut none: Vec<_> = (0..10).map(|_| engine.admit(tokens(10)).unwrap()).collect();
    each_answer(&mut none, |answer| {
        let reason = answer.unwrap_err().reason;
        assert_eq!(reason, Reason::NoEndpoint { workers: 0 });
        assert_eq!((reason.http_status(), reason.code()), (503, "no_endpoint"));
    });
    engine.publish(snapshot(2, vec![worker(1)])).unwrap();
    settled(&engine);
    drop(permit(engine.admit(tokens(10)).unwrap()));
    let only = &at_rest(&engine).classes[0];
    assert_eq!((only.failed, only.dispatched, only.refused), (10, 1, Default::default()));
}

#[test]
fn many_threads_went_through_one_free_slot_at_once() {
    let engine = engine(vec![class("only", 1)], vec![one_slot(1)]);
    let start = Barrier::new(64);
    let mut admissions = Vec::new();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..64)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    engine.admit(tokens(10)).unwrap()
                })
            })
            .collect();
        admissions.extend(threads.into_iter().map(|t| ((), t.join().unwrap())));
    });
    let picture = settled(&engine);
    let only = &picture.classes[0];
    assert_eq!((only.submitted, only.dispatched, only.waiting.requests), (64, 1, 63));
    assert_eq!(picture.endpoints[0].booked.permits, 1);
    for served in 1..=64 {
        let _held = next_answer(&mut admissions).1.unwrap();
        let picture = settled(&engine);
        assert_eq!((picture.classes[0].dispatched, picture.endpoints[0].booked.permits), (served, 1));
    }
    at_rest(&engine);
}

#[test]
fn requests_pinned_to_a_worker_that_left_waited_for_ever() {
    let engine = engine(vec![exclusive("only", 1)], vec![worker(1), loaded(2, 1)]);
    let plug = permit(engine.admit(tokens(10)).unwrap());
    let pin = |i: u64| Pin { worker: WorkerId(1), rank: i.is_multiple_of(2).then_some(0) };
    let mut pinned: Vec<_> =
        (0..100).map(|i| (i, engine.admit(Request { pin: Some(pin(i)), ..tokens(10) }).unwrap())).collect();
    let mut free: Vec<_> = (0..100).map(|_| engine.admit(tokens(10)).unwrap()).collect();
    let picture = settled(&engine);
    assert_eq!((picture.classes[0].waiting.requests, picture.endpoints[0].waiting), (200, 100));

    engine.publish(snapshot(2, vec![loaded(2, 1)])).unwrap();
    while !pinned.is_empty() {
        let (i, answer) = next_answer(&mut pinned);
        assert_eq!(answer.unwrap_err().reason, Reason::PinUnavailable { pin: pin(i) });
    }
    let picture = settled(&engine);
    let only = &picture.classes[0];
    assert_eq!((only.failed, only.waiting.requests, only.waiting.raw_isl_tokens), (100, 100, 1000));

    engine.publish(snapshot(3, vec![loaded(2, 0)])).unwrap();
    each_answer(&mut free, |answer| drop(answer.unwrap()));
    drop(plug);
    let picture = at_rest(&engine);
    assert_eq!((picture.classes[0].dispatched, picture.stale_releases), (101, 0));
}

#[test]
fn a_younger_shared_request_took_the_worker_that_an_older_pinned_one_waited_for() {
    let engine = engine(vec![exclusive("only", 1)], vec![worker(1), worker(2)]);
    let mut plugs: Vec<_> = (0..2).map(|_| permit(engine.admit(tokens(10)).unwrap())).collect();
    let older = engine.admit(pinned(1, Some(0), tokens(5))).unwrap();
    let mut younger = engine.admit(tokens(1)).unwrap();
    assert_eq!(settled(&engine).classes[0].waiting.requests, 2);
    plugs.retain(|permit| permit.endpoint().worker != WorkerId(1));
    let older = permit(older);
    settled(&engine);
    assert!(waits(&mut younger));
    drop(plugs);
    assert_eq!(permit(younger).endpoint().worker, WorkerId(2));
    drop(older);
}

#[test]
fn an_overload_flag_left_requests_waiting_for_the_worker() {
    let engine = engine(vec![exclusive("only", 1)], vec![loaded(1, 1), loaded(2, 1)]);
    let pin = Pin { worker: WorkerId(1), rank: None };
    let stuck = engine.admit(Request { pin: Some(pin), ..tokens(10) }).unwrap();
    let mut shared = engine.admit(tokens(10)).unwrap();
    settled(&engine);
    let overloaded = |id, tokens| Worker { overloaded: true, ..loaded(id, tokens) };
    engine.publish(snapshot(2, vec![overloaded(1, 0), loaded(2, 1)])).unwrap();
    assert_eq!(answer(stuck).unwrap_err().reason, Reason::PinOverloaded { pin });
    settled(&engine);
    assert!(waits(&mut shared));
    engine.publish(snapshot(3, vec![overloaded(1, 0), overloaded(2, 0)])).unwrap();
    assert_eq!(answer(shared).unwrap_err().reason, Reason::AllOverloaded { endpoints: 2 });
    engine.publish(snapshot(4, vec![overloaded(1, 0), worker(2)])).unwrap();
    settled(&engine);
    assert_eq!(permit(engine.admit(tokens(10)).unwrap()).endpoint().worker, WorkerId(2));
    until(&engine, |p| p.endpoints.iter().all(|e| e.active == 0));
}
