//! Who goes before whom inside a class.

use std::time::{Duration, Instant};

use tollgate::policy::{ClassSpec, QueuePolicy};
use tollgate::{Engine, InvalidRequest, Reason, Request};

use crate::common::{self, A, at, class, put, tokens};
use crate::threaded::{
    answer, at_rest, each_answer, engine, exclusive, next_answer, one_slot, permit, settled,
};

const LARGE: u64 = 10_000;

/// One slot, a large request, and a stream of small ones that never dries up, until `enough` of them are served or the
/// large one is: returns when those came that were served before it, and whether it was.
fn stream(engine: &Engine, enough: usize) -> (Vec<Instant>, bool) {
    let plug = permit(engine.admit(tokens(10)).unwrap());
    let small = || (Some(Instant::now()), engine.admit(tokens(10)).unwrap());
    let mut waiting = vec![(None, engine.admit(tokens(LARGE)).unwrap()), small(), small(), small()];
    settled(engine);
    drop(plug);
    let mut before = Vec::new();
    while before.len() < enough {
        let (came, answer) = next_answer(&mut waiting);
        let Some(came) = came else { return (before, true) };
        before.push(came);
        waiting.push(small());
        settled(engine);
        drop(answer.unwrap());
    }
    (before, false)
}

#[test]
fn small_requests_starved_a_large_one_as_wspt_says_they_do() {
    let wspt = ClassSpec { order: QueuePolicy::Wspt, ..exclusive("only", 1) };
    let engine = engine(vec![wspt], vec![one_slot(1)]);
    let (before, served) = stream(&engine, 5000);
    assert!(!served, "after {} small ones", before.len());
}

/// A second is worth 1,000,000 tokens here, so nothing that comes more than 10 ms after it passes the large one.
#[test]
fn small_requests_starved_a_large_one_although_it_aged() {
    let bound = Duration::from_millis(10);
    let aged = ClassSpec {
        order: QueuePolicy::AgedWspt,
        aging_tokens_per_second: Some(LARGE as f64 / bound.as_secs_f64()),
        ..exclusive("only", 1)
    };
    let engine = engine(vec![aged], vec![one_slot(1)]);
    let (before, served) = stream(&engine, 1_000_000);
    assert!(served);
    // The first of the small ones came after the large one.
    let latest = *before.iter().min().unwrap() + bound;
    let overtook = before.iter().filter(|came| **came > latest).count();
    assert_eq!(overtook, 0, "of {}", before.len());
}

/// All orders of arrival of the jumps that are allowed.
#[test]
fn a_strange_jump_broke_the_order() {
    const RANKED: [f64; 4] = [1e308, 0.9, 0.4, 0.0];
    let jumps = [f64::NEG_INFINITY, -5.0, -0.0, 0.0, 0.4, 0.9, 1e308, f64::INFINITY, f64::NAN];
    let jump = |priority_jump: f64| Request { priority_jump, ..tokens(1) };
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    for value in jumps {
        let admitted = engine.admit(jump(value));
        assert_eq!(admitted.is_ok(), value.is_finite(), "{value}");
        match admitted {
            Ok(admission) => drop(permit(admission)),
            Err(rejected) => {
                let Reason::Invalid(InvalidRequest::PriorityJump { value: named }) = rejected.reason else {
                    panic!("{rejected}")
                };
                assert_eq!(named.to_bits(), value.to_bits());
            }
        }
    }
    let picture = at_rest(&engine);
    assert_eq!((picture.invalid, picture.classes[0].submitted), (3, 6));

    let finite: Vec<_> = jumps.into_iter().filter(|j| j.is_finite()).collect();
    for order in [QueuePolicy::Fcfs, QueuePolicy::Wspt] {
        each_permutation(&mut finite.clone(), 0, &mut |jumps| {
            let mut s = common::scheduler(vec![ClassSpec { order, ..class(1) }], common::workers(1));
            for (i, &value) in jumps.iter().enumerate() {
                put(&mut s, A, at(1_000_000_000, jump(value)), (i, value));
            }
            let served = common::order(&mut s);
            let rank = |v: f64| RANKED.iter().position(|&r| r == v.max(0.0)).unwrap();
            let keys: Vec<_> = served.iter().map(|&(i, value)| (rank(value), i)).collect();
            assert!(keys.is_sorted(), "{order:?}: {served:?}");
        });
    }
}

fn each_permutation(list: &mut Vec<f64>, from: usize, see: &mut impl FnMut(&[f64])) {
    if from == list.len() {
        return see(list);
    }
    for i in from..list.len() {
        list.swap(from, i);
        each_permutation(list, from + 1, see);
        list.swap(from, i);
    }
}

#[test]
fn a_class_that_had_emptied_came_back_with_credit() {
    let engine = engine(vec![exclusive("only", 1000)], vec![one_slot(1)]);
    let deficit = || settled(&engine).classes[0].deficit;
    let plug = permit(engine.admit(tokens(300)).unwrap());
    let first = engine.admit(tokens(300)).unwrap();
    let second = engine.admit(tokens(300)).unwrap();
    assert_eq!(deficit(), 0, "blocked, nothing granted");
    drop(plug);
    let first = permit(first);
    assert_eq!(deficit(), 700);
    drop(first);
    let second = permit(second);
    assert_eq!(deficit(), 0, "nothing waits");
    let third = engine.admit(tokens(300)).unwrap();
    assert_eq!(deficit(), 0, "and what comes starts with nothing");
    drop(second);
    drop(permit(third));
    at_rest(&engine);
}

#[test]
fn a_blocked_class_lost_or_gained_credit() {
    let mut other = exclusive("other", 1);
    other.busy.threshold_tokens = None;
    let engine = engine(vec![exclusive("blocked", 1000), other], vec![worker_with_load(0)]);
    let deficit = || settled(&engine).classes[0].deficit;
    let request = || engine.admit(tokens(300).with_class("blocked")).unwrap();
    let plug = permit(request());
    let (first, second) = (request(), request());
    settled(&engine);
    drop(plug);
    let _first = permit(first);
    assert_eq!(deficit(), 700);
    let mut flood: Vec<_> = (0..500).map(|_| engine.admit(tokens(9).with_class("other")).unwrap()).collect();
    each_answer(&mut flood, |answer| drop(answer.unwrap()));
    for version in 2..100 {
        let snapshot = tollgate::WorkerSnapshot::new(version, vec![worker_with_load(version)]);
        engine.publish(snapshot.unwrap()).unwrap();
    }
    assert_eq!(deficit(), 700);
    drop(second);
}

fn worker_with_load(tokens: u64) -> tollgate::Worker {
    tollgate::Worker { external_load: vec![tokens], ..tollgate::Worker::new(1) }
}

#[test]
fn a_high_priority_request_waited_behind_the_ones_it_outranks() {
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let request =
        |strict_priority| (strict_priority, engine.admit(Request { strict_priority, ..tokens(10) }).unwrap());
    let mut waiting: Vec<_> = [0, 7, u32::MAX, 7, 1].into_iter().map(request).collect();
    settled(&engine);
    drop(plug);
    let mut served = Vec::new();
    while !waiting.is_empty() {
        let (tier, answer) = next_answer(&mut waiting);
        drop(answer.unwrap());
        served.push(tier);
    }
    assert_eq!(served, [u32::MAX, 7, 7, 1, 0]);
    assert!(answer(engine.admit(tokens(1)).unwrap()).is_ok());
}
