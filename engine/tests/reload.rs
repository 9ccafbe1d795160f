//! A new policy while requests wait, one test for each rule.

mod common;

use std::time::Duration;

use common::*;
use tollgate::policy::{ClassId, ClassSpec, QueuePolicy};
use tollgate::{LimitKind, Request, Scheduler, Timestamp};

/// Names in ring order.
fn ring<T>(s: &Scheduler<T>) -> Vec<String> {
    s.classes().map(|(_, name)| name.to_string()).collect()
}

fn reload<T>(s: &mut Scheduler<T>, classes: Vec<ClassSpec>) -> Vec<ClassId> {
    s.reload(&profile(classes))
}

/// Classes `a`, `b`, … of quantum 1 with as many workers; one request waits in each of `waiting`.
fn letters(n: usize, waiting: &[usize]) -> Scheduler<usize> {
    let mut s = scheduler(vec![class(1); n], workers(1));
    for &k in waiting {
        put(&mut s, ClassId(k as u32), now(tokens(1)), k);
    }
    s
}

fn of(names: &[&str]) -> Vec<ClassSpec> {
    names.iter().map(|name| named(name, class(1))).collect()
}

// --- classes -----------------------------------------------------------------------------------------------

/// A class that is gone leaves the ring at once if nothing waits in it. The others go on as if it had never been.
#[test]
fn a_class_without_requests_is_gone_at_once() {
    let mut s = letters(3, &[0, 2]);
    assert_eq!(reload(&mut s, of(&["a", "c"])), [ClassId(0), ClassId(2)]);
    assert_eq!((ring(&s), s.class_id("b"), s.quantum(B)), (vec!["a".into(), "c".into()], None, 0));
    s.set_workers(snapshot(2, workers(2)));
    load(&mut s, 1, 5);
    assert_eq!(order(&mut s), [0, 2]);
}

/// A class keeps its number while it is in the ring. Another one gets it only after many others have become vacant.
#[test]
fn numbers_are_kept_and_used_again_late() {
    let mut s = letters(3, &[]);
    assert_eq!(reload(&mut s, of(&["c", "a"])), [ClassId(2), A]);
    assert_eq!(reload(&mut s, of(&["c", "d", "a"])), [ClassId(2), ClassId(3), A]);
    assert_eq!((ring(&s), s.class_id("b")), (vec!["c".into(), "d".into(), "a".into()], None));
    let mut highest = 0;
    for i in 0..5000 {
        let name = format!("n{i}");
        let ids = reload(&mut s, of(&["c", &name, "a"]));
        assert_eq!((ids[0], ids[2]), (ClassId(2), A));
        assert!(ids[1] != B || i > 1000, "{B:?} was given out again after {i}");
        assert_eq!((s.deficit(ids[1]), s.usage(ids[1])), (0, Default::default()));
        highest = highest.max(ids[1].0);
    }
    assert!(highest < 1100, "numbers go up to {highest}");
}

/// What waits stays, and goes in the new ring's order. A class of another name is another class.
#[test]
fn classes_are_matched_by_name_and_keep_what_waits() {
    let mut s = letters(3, &[0, 1, 2]);
    reload(&mut s, of(&["c", "x", "b", "a"]));
    assert_eq!(s.waiting(), 3);
    // The cursor is still at `a`.
    assert_eq!(order(&mut s), [0, 2, 1]);
}

/// A class that is gone drains behind the nearest of the classes before it that are still there, several in their
/// order, in front of all if there is none.
#[test]
fn a_class_that_is_gone_drains_in_its_place() {
    let mut s = letters(7, &[0, 2, 3, 4, 6]);
    reload(&mut s, of(&["f", "new", "b"]));
    assert_eq!(ring(&s), ["a", "f", "g", "new", "b", "c", "d", "e"]);
    reload(&mut s, of(&["b", "f"]));
    assert_eq!(ring(&s), ["a", "b", "c", "d", "e", "f", "g"]);
    reload(&mut s, of(&["z"]));
    assert_eq!(ring(&s), ["a", "c", "d", "e", "g", "z"]);
    assert_eq!(order(&mut s), [0, 2, 3, 4, 6]);
    reload(&mut s, of(&["z"]));
    assert_eq!(ring(&s), ["z"]);
}

/// A class that drains has the settings that it had, and is the same class again if it comes back in time.
#[test]
fn a_class_that_drains_can_come_back() {
    let mut s = scheduler(vec![gated(10, 0), class(1)], workers(1));
    fill(&mut s, A, 4, 3, ());
    s.next_request().expect("free");
    load(&mut s, 0, 1);
    reload(&mut s, vec![named("b", class(1))]);
    assert_eq!((s.quantum(A), s.deficit(A), s.usage(A).requests), (10, 6, 2));
    assert!(s.next_request().is_none(), "still busy for it");
    assert_eq!(reload(&mut s, vec![named("b", class(1)), named("a", class(7))]), [B, A]);
    assert_eq!((s.quantum(A), s.deficit(A), s.usage(A).requests), (7, 6, 2));
    assert!(s.next_request().is_some(), "no threshold any more");
}

/// The cursor stays at its class, or goes on to the next one of the old ring that is still there, or to the first.
#[test]
fn the_cursor_goes_on_where_it_stood() {
    let after_one = |names: &[&str]| {
        let mut s = letters(4, &[0]);
        s.next_request().expect("free");
        // Now it is at `b`.
        reload(&mut s, of(names));
        for name in names {
            let class = s.class_id(name).expect("in the ring");
            put(&mut s, class, now(tokens(1)), 0);
        }
        let first = s.next_request().expect("free").class;
        s.classes().find(|(id, _)| *id == first).expect("in the ring").1.to_string()
    };
    assert_eq!(after_one(&["d", "a", "b"]), "b");
    assert_eq!(after_one(&["d", "a", "c"]), "c");
    assert_eq!(after_one(&["x", "a"]), "a", "around the end");
    assert_eq!(after_one(&["y", "x"]), "y", "none is left");
}

/// A class that has credit left from its last dispatch is still the first to spend it, in whatever place.
#[test]
fn a_burst_goes_on_where_it_stood() {
    let mut s = scheduler(vec![class(3), class(3)], workers(1));
    fill(&mut s, A, 1, 4, 'a');
    fill(&mut s, B, 1, 4, 'b');
    assert_eq!(s.next_request().map(|picked| picked.payload), Some('a'));
    let three = |name| named(name, class(3));
    reload(&mut s, vec![three("b"), three("x"), three("a")]);
    assert_eq!(order(&mut s), ['a', 'a', 'b', 'b', 'b', 'a', 'b']);
}

// --- credit ------------------------------------------------------------------------------------------------

/// A class `a` that has 90 tokens of credit, and then requests of these costs.
fn with_credit(costs: &[u64]) -> Scheduler<u64> {
    let mut s = scheduler(vec![class(100)], workers(2));
    put(&mut s, A, now(tokens(10)), 10);
    for &cost in costs {
        put(&mut s, A, now(tokens(cost)), cost);
    }
    assert_eq!(s.next_request().map(|picked| picked.payload), Some(10));
    s
}

/// Credit is kept, and cut to the larger of the new quantum and the cost of the best head.
#[test]
fn credit_is_kept_as_far_as_the_new_quantum_or_the_best_head_allows() {
    for (quantum, left) in [(1000, 90), (60, 60), (20, 40)] {
        let mut s = with_credit(&[40, 7]);
        reload(&mut s, vec![named("a", class(quantum))]);
        assert_eq!((s.deficit(A), s.quantum(A)), (left, quantum));
    }
}

/// The best head is that of the new order.
#[test]
fn credit_is_cut_by_the_best_head_of_the_new_order() {
    let wspt = || ClassSpec { order: QueuePolicy::Wspt, ..named("a", class(1)) };
    let mut s = with_credit(&[40, 7]);
    reload(&mut s, vec![wspt()]);
    assert_eq!(s.deficit(A), 7);
}

/// That is so for heads of exact lanes, too.
#[test]
fn credit_is_cut_by_the_best_pinned_head_of_the_new_order() {
    let mut s = with_credit(&[]);
    assert_eq!(s.deficit(A), 0);
    put(&mut s, A, now(tokens(10)), 10);
    put(&mut s, A, at(1, pinned(0, Some(0), tokens(40))), 40);
    put(&mut s, A, at(2, pinned(1, Some(0), tokens(7))), 7);
    assert_eq!(s.next_request().map(|picked| picked.payload), Some(10));
    assert_eq!(s.deficit(A), 90);
    reload(&mut s, vec![ClassSpec { order: QueuePolicy::Wspt, ..named("a", class(1)) }]);
    assert_eq!(s.deficit(A), 7);
    assert_eq!(order(&mut s), [7, 40]);
}

/// A class that comes back after it had drained starts anew.
#[test]
fn a_class_that_comes_back_empty_brings_no_credit() {
    let mut s = with_credit(&[40]);
    reload(&mut s, of(&["x"]));
    assert_eq!(s.deficit(A), 90);
    assert_eq!(order(&mut s), [40]);
    reload(&mut s, of(&["x"]));
    reload(&mut s, of(&["x", "a"]));
    assert_eq!(s.deficit(s.class_id("a").expect("in the ring")), 0);
}

// --- order -------------------------------------------------------------------------------------------------

/// A new order sorts what waits anew, in every lane, by what was frozen at arrival and by the sequence of
/// enqueueing.
#[test]
fn a_new_order_sorts_what_waits() {
    let spec = |order, rate| ClassSpec { order, aging_tokens_per_second: rate, ..named("a", class(1)) };
    let second = 1_000_000_000;
    let enqueued = || {
        let mut s = scheduler(vec![class(1)], workers(2));
        let requests = [(3, 10), (1, 30), (2, 20), (3, 10), (2, 10)];
        for (i, (arrival, cost)) in requests.into_iter().enumerate() {
            put(&mut s, A, at(arrival * second, tokens(cost)), i);
        }
        s
    };
    let after = |specs: &[ClassSpec]| {
        let mut s = enqueued();
        specs.iter().for_each(|spec| drop(reload(&mut s, vec![spec.clone()])));
        order(&mut s)
    };
    let [fcfs, wspt] = [QueuePolicy::Fcfs, QueuePolicy::Wspt].map(|order| spec(order, None));
    let [slow, fast] = [9.0, 11.0].map(|rate| spec(QueuePolicy::AgedWspt, Some(rate)));
    assert_eq!(after(&[]), [1, 2, 4, 0, 3]);
    assert_eq!(after(std::slice::from_ref(&wspt)), [0, 3, 4, 2, 1]);
    assert_eq!(after(&[wspt, fcfs]), [1, 2, 4, 0, 3]);
    // 37, 39, 38, 37, 28 and 43, 41, 42, 43, 32.
    assert_eq!(after(std::slice::from_ref(&slow)), [4, 0, 3, 2, 1]);
    assert_eq!(after(&[slow, fast]), [4, 1, 2, 0, 3]);
}

/// Equals keep the sequence in which they were enqueued, wherever they are kept.
#[test]
fn a_new_order_keeps_equals_in_sequence() {
    let mut s = scheduler(vec![class(1)], workers(1));
    let keys: Vec<_> = (0..4).map(|i| put(&mut s, A, at(4 - i, tokens(1)), i)).collect();
    // The places of these two are taken by later ones.
    for key in [keys[0], keys[2]] {
        s.cancel(key).expect("it waits");
    }
    (4..7).for_each(|i| _ = put(&mut s, A, at(9 - i, tokens(1)), i));
    reload(&mut s, vec![ClassSpec { order: QueuePolicy::Wspt, ..named("a", class(1)) }]);
    assert_eq!(order(&mut s), [1, 3, 4, 5, 6]);
}

/// How long a request may wait is settled when it is enqueued.
#[test]
fn waiting_times_are_those_of_enqueueing() {
    let patience = |nanos| ClassSpec { max_queue_time: Some(Duration::from_nanos(nanos)), ..class(1) };
    let mut s = scheduler(vec![patience(50)], workers(1));
    put(&mut s, A, now(tokens(1)), "before");
    reload(&mut s, vec![named("a", patience(5))]);
    assert_eq!(s.next_expiry(), Some(Timestamp::from_nanos(50)));
    put(&mut s, A, now(tokens(1)), "after");
    assert_eq!(s.next_expiry(), Some(Timestamp::from_nanos(5)));
    reload(&mut s, of(&["a"]));
    let expired = s.expire(Timestamp::from_nanos(5)).expect("due");
    assert_eq!((expired.request.payload, s.next_expiry()), ("after", Some(Timestamp::from_nanos(50))));
}

// --- settings ----------------------------------------------------------------------------------------------

/// Thresholds and ratios hold for what waits from the next decision on.
#[test]
fn thresholds_act_at_once() {
    let mut s = scheduler(vec![gated(1, 10)], workers(2));
    (0..2).for_each(|worker| load(&mut s, worker, 11));
    fill(&mut s, A, 1, 3, ());
    assert!(s.next_request().is_none());
    reload(&mut s, vec![named("a", gated(1, 11))]);
    assert!(s.next_request().is_some());
    load(&mut s, 0, 12);
    let mut half = named("a", gated(1, 11));
    half.busy.worker_ratio = Some(0.5);
    reload(&mut s, vec![half.clone()]);
    assert!(s.next_request().is_none(), "half of them are busy");
    half.busy.worker_ratio = Some(0.6);
    reload(&mut s, vec![half]);
    assert!(s.next_request().is_some());
}

/// Limits hold for the next request, and evict nobody.
#[test]
fn limits_act_at_once() {
    let mut s = scheduler(vec![gated(1, 0)], workers(1));
    load(&mut s, 0, 1);
    fill(&mut s, A, 1, 3, ());
    let mut limited = named("a", gated(1, 0));
    limited.limits.requests = Some(2);
    reload(&mut s, vec![limited]);
    assert_eq!(s.usage(A).requests, 3);
    let refused = s.enqueue(A, now(Request::new(1, 0)), ()).expect_err("over the new limit");
    assert_eq!((refused.limit.kind, refused.limit.current, refused.limit.limit), (LimitKind::Requests, 3, 2));
}
