//! Workers that come, go, change and come back.

use std::thread;

use tollgate::{Booked, Pin, Reason, Request, StaleSnapshot, Worker, WorkerId, WorkerSnapshot};

use crate::common::{pinned, tokens};
use crate::threaded::{
    answer, at_rest, class, engine, exclusive, one_slot, permit, settled, until, waits, worker,
};

fn snapshot(version: u64, workers: Vec<Worker>) -> WorkerSnapshot {
    WorkerSnapshot::new(version, workers).unwrap()
}

#[test]
fn a_worker_that_was_away_came_back_empty_although_its_requests_still_ran() {
    let engine = engine(vec![exclusive("only", 1)], vec![worker(1)]);
    let running = permit(engine.admit(tokens(10)).unwrap());
    for version in [2, 4, 6] {
        engine.publish(snapshot(version, vec![])).unwrap();
        settled(&engine);
        engine.publish(snapshot(version + 1, vec![worker(1)])).unwrap();
        let picture = settled(&engine);
        assert_eq!(picture.endpoints[0].booked, Booked { tokens: 10, permits: 1 });
        assert_eq!(picture.endpoints[0].active, 10);
    }
    let mut next = engine.admit(tokens(10)).unwrap();
    settled(&engine);
    assert!(waits(&mut next));
    drop(running);
    drop(permit(next));
    assert_eq!(at_rest(&engine).stale_releases, 0);
}

#[test]
fn what_ended_while_its_worker_was_away_was_there_again_when_it_came_back() {
    let engine = engine(vec![exclusive("only", 1)], vec![worker(1)]);
    let running = permit(engine.admit(tokens(10)).unwrap());
    engine.publish(snapshot(2, vec![])).unwrap();
    settled(&engine);
    drop(running);
    settled(&engine);
    engine.publish(snapshot(3, vec![worker(1)])).unwrap();
    assert_eq!(settled(&engine).endpoints[0].active, 0);
    drop(permit(engine.admit(tokens(10)).unwrap()));
    assert_eq!(at_rest(&engine).stale_releases, 0);
}

/// 100 requests of the process before, and 1 of the one before that.
#[test]
fn releases_of_a_dead_process_freed_slots_of_its_successor() {
    let life = |incarnation| vec![Worker { incarnation, ..worker(1) }];
    let engine = engine(vec![class("only", 1)], life(1));
    let oldest = permit(engine.admit(tokens(7)).unwrap());
    engine.publish(snapshot(2, life(2))).unwrap();
    settled(&engine);
    let mut old: Vec<_> = (0..100).map(|_| permit(engine.admit(tokens(7)).unwrap())).collect();
    // Away in between.
    engine.publish(snapshot(3, vec![])).unwrap();
    settled(&engine);
    drop(old.pop());
    engine.publish(snapshot(4, life(3))).unwrap();
    settled(&engine);
    let new = permit(engine.admit(tokens(5)).unwrap());
    old.iter_mut().for_each(|permit| permit.prefill_complete());
    drop((oldest, old));
    let picture = settled(&engine);
    assert_eq!(picture.endpoints[0].booked, Booked { tokens: 5, permits: 1 });
    assert_eq!((picture.endpoints[0].active, picture.stale_releases), (5, 100));
    drop(new);
    assert_eq!(at_rest(&engine).stale_releases, 100);
}

#[test]
fn ranks_that_went_and_came_back_lost_count_of_their_requests() {
    let ranks = |first_rank, ranks| vec![Worker { first_rank, ranks, ..one_slot(1) }];
    let engine = engine(vec![class("only", 1)], ranks(0, 4));
    let on = |rank| engine.admit(pinned(1, Some(rank), tokens(10))).unwrap();
    let mut held: Vec<_> = (0..4).map(|rank| permit(on(rank))).collect();
    let waiting = on(3);
    let mut stays = on(1);
    settled(&engine);

    engine.publish(snapshot(2, ranks(0, 2))).unwrap();
    let pin = Pin { worker: WorkerId(1), rank: Some(3) };
    let gone = Reason::PinRankOutOfRange { pin, first_rank: 0, ranks: 2 };
    assert_eq!(answer(waiting).unwrap_err().reason, gone);
    assert_eq!(settled(&engine).endpoints.len(), 2);
    assert!(waits(&mut stays));

    // Rank 2 ends while it is out of range, rank 3 does not.
    drop(held.remove(2));
    engine.publish(snapshot(3, ranks(1, 5))).unwrap();
    let picture = settled(&engine);
    let seen: Vec<_> = picture.endpoints.iter().map(|e| (e.endpoint.rank, e.booked.permits)).collect();
    assert_eq!(seen, [(1, 1), (2, 0), (3, 1), (4, 0), (5, 0)]);
    assert_eq!(picture.endpoints[2].active, 10);

    // Rank 0 is the one out of range now.
    engine.publish(snapshot(4, ranks(0, 4))).unwrap();
    let picture = settled(&engine);
    let seen: Vec<_> = picture.endpoints.iter().map(|e| e.booked.permits).collect();
    assert_eq!(seen, [1, 1, 0, 1]);
    drop(held.remove(1));
    assert_eq!(permit(stays).endpoint().rank, 1);
    drop(held);
    assert_eq!(at_rest(&engine).stale_releases, 0);
}

#[test]
fn a_lower_bound_of_requests_was_not_kept_and_a_higher_one_not_used() {
    let slots = |n| vec![Worker { max_active_requests: Some(n), ..worker(1) }];
    let engine = engine(vec![class("only", 1)], slots(4));
    let mut held: Vec<_> = (0..4).map(|_| permit(engine.admit(tokens(1)).unwrap())).collect();
    let mut waiting = engine.admit(tokens(1)).unwrap();
    engine.publish(snapshot(2, slots(2))).unwrap();
    for left in [3, 2] {
        held.pop();
        assert_eq!(settled(&engine).endpoints[0].booked.permits, left);
        assert!(waits(&mut waiting));
    }
    held.pop();
    held.push(permit(waiting));
    let next = engine.admit(tokens(1)).unwrap();
    settled(&engine);
    engine.publish(snapshot(3, slots(3))).unwrap();
    held.push(permit(next));
    assert_eq!(settled(&engine).endpoints[0].booked.permits, 3);
    engine.publish(snapshot(4, slots(0))).unwrap();
    held.clear();
    let mut never = engine.admit(tokens(1)).unwrap();
    settled(&engine);
    assert!(waits(&mut never), "a worker without slots is busy, not gone");
}

/// Others report the load that we have made a little later, and for a little longer.
#[test]
fn external_load_that_lags_behind_was_taken_for_our_own() {
    let mut rule = class("only", 1);
    rule.busy.threshold_tokens = Some(150);
    let external = |tokens| vec![Worker { external_load: vec![tokens], ..worker(1) }];
    let engine = engine(vec![rule], external(0));
    let mut first = permit(engine.admit(tokens(100)).unwrap());
    engine.publish(snapshot(2, external(100))).unwrap();
    assert_eq!(settled(&engine).endpoints[0].active, 200, "counted twice until it is released");
    let waiting = engine.admit(tokens(50)).unwrap();
    first.prefill_complete();
    let second = permit(waiting);
    assert_eq!(settled(&engine).endpoints[0].active, 150);
    engine.publish(snapshot(3, external(0))).unwrap();
    assert_eq!(settled(&engine).endpoints[0].active, 50);
    drop((first, second));
    assert_eq!(settled(&engine).endpoints[0].active, 0);
    engine.publish(snapshot(4, external(u64::MAX))).unwrap();
    assert_eq!(settled(&engine).endpoints[0].active, u64::MAX);
    assert_eq!(at_rest(&engine).classes[0].dispatched, 2);
}

/// Marks of releases come in pages of 512.
#[test]
fn releases_on_the_last_of_many_endpoints_were_not_seen() {
    const RANKS: u32 = 103;
    const ENDPOINTS: usize = 1030;
    let workers = (0..10).map(|id| Worker { ranks: RANKS, ..one_slot(id) }).collect();
    let engine = engine(vec![class("only", 1)], workers);
    let mut held: Vec<_> = (0..ENDPOINTS).map(|_| permit(engine.admit(tokens(10)).unwrap())).collect();
    held.sort_by_key(|permit| permit.endpoint());
    held.dedup_by_key(|permit| permit.endpoint());
    assert_eq!(held.len(), ENDPOINTS);
    for at in [ENDPOINTS - 1, 1024, 1023, 512, 511, 0] {
        let mut next = engine.admit(tokens(10)).unwrap();
        settled(&engine);
        assert!(waits(&mut next));
        let freed = held[at].endpoint();
        drop(held.remove(at));
        let next = permit(next);
        assert_eq!(next.endpoint(), freed);
        held.insert(at, next);
    }
    // Fewer workers, whose endpoints have other numbers then, and the marks of those that left are used again.
    let workers = (5..16).map(|id| Worker { ranks: RANKS, ..one_slot(id) }).collect();
    engine.publish(snapshot(2, workers)).unwrap();
    let new: Vec<_> = (0..6 * RANKS).map(|_| permit(engine.admit(tokens(10)).unwrap())).collect();
    assert!(new.iter().all(|permit| permit.endpoint().worker >= WorkerId(10)));
    assert!(waits(&mut engine.admit(tokens(10)).unwrap()));
    drop((held, new));
    let picture = until(&engine, |p| p.endpoints.iter().all(|e| e.active == 0));
    assert_eq!((picture.endpoints.len(), picture.stale_releases), (11 * RANKS as usize, 0));
    at_rest(&engine);
}

#[test]
fn an_old_picture_of_the_workers_overwrote_a_newer_one() {
    const PUBLISHERS: u64 = 4;
    const LAST: u64 = 2000;
    let engine = engine(vec![class("only", 1)], vec![worker(1)]);
    let accepted = thread::scope(|scope| {
        let threads: Vec<_> = (0..PUBLISHERS)
            .map(|t| {
                let engine = &engine;
                scope.spawn(move || {
                    let mine = (2..=LAST).filter(|version| version % PUBLISHERS == t);
                    let publish = |version: u64| {
                        let load = Worker { external_load: vec![version], ..worker(1) };
                        match engine.publish(snapshot(version, vec![load])) {
                            Ok(()) => true,
                            Err(StaleSnapshot { offered, current }) => {
                                assert!(offered == version && current >= version);
                                false
                            }
                        }
                    };
                    mine.filter(|version| publish(*version)).count()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum::<usize>()
    });
    assert!(accepted > 0);
    assert_eq!(until(&engine, |p| p.endpoints[0].active >= LAST).endpoints[0].active, LAST);
    for offered in [0, 1, LAST] {
        let stale = engine.publish(snapshot(offered, vec![]));
        assert_eq!(stale, Err(StaleSnapshot { offered, current: LAST }));
    }
    assert_eq!(settled(&engine).endpoints.len(), 1);
}

#[test]
fn a_removed_worker_took_waiting_shared_requests_with_it() {
    let engine = engine(vec![exclusive("only", 1)], vec![worker(1), worker(2)]);
    let plugs: Vec<_> = (0..2).map(|_| permit(engine.admit(tokens(10)).unwrap())).collect();
    let mut shared = engine.admit(tokens(10)).unwrap();
    let stuck = engine.admit(pinned(2, Some(0), tokens(10))).unwrap();
    let constrained = crate::common::constrained(Some(&[2]), &[], tokens(10));
    let mut limited = engine.admit(constrained).unwrap();
    settled(&engine);
    engine.publish(snapshot(2, vec![worker(1)])).unwrap();
    let pin = Pin { worker: WorkerId(2), rank: Some(0) };
    assert_eq!(answer(stuck).unwrap_err().reason, Reason::PinUnavailable { pin });
    settled(&engine);
    // It is no head: the shared one is in front of it.
    assert!(waits(&mut shared) && waits(&mut limited));
    drop(plugs);
    assert_eq!(permit(shared).endpoint().worker, WorkerId(1));
    assert_eq!(answer(limited).unwrap_err().reason, Reason::NoEndpoint { workers: 1 });
    at_rest(&engine);
}

#[test]
fn a_request_for_a_taint_did_not_see_that_a_worker_had_got_it() {
    let tainted =
        |taints: &[&str]| Worker { taints: taints.iter().map(|t| (*t).into()).collect(), ..worker(1) };
    let request = || crate::common::constrained(None, &["gpu"], Request { ..tokens(10) });
    let engine = engine(vec![exclusive("only", 1)], vec![tainted(&["gpu"])]);
    let plug = permit(engine.admit(request()).unwrap());
    let waiting = engine.admit(request()).unwrap();
    settled(&engine);
    engine.publish(snapshot(2, vec![tainted(&[])])).unwrap();
    assert!(matches!(answer(waiting).unwrap_err().reason, Reason::TaintsUnsatisfiable { .. }));
    engine.publish(snapshot(3, vec![tainted(&["gpu", "new"])])).unwrap();
    let waiting = engine.admit(request()).unwrap();
    drop(plug);
    drop(permit(waiting));
    at_rest(&engine);
}
