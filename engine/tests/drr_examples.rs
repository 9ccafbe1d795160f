//! The worked examples of deficit round robin, and its rules one by one.

mod common;

use common::*;
use tollgate::Scheduler;

/// Dispatches `n` requests of classes that never run dry, and counts them by class. Every request of a class
/// costs the same.
fn served(scheduler: &mut Scheduler<()>, costs: [u64; 2], n: usize) -> [usize; 2] {
    let mut served = [0; 2];
    for _ in 0..n {
        for (class, cost) in [A, B].into_iter().zip(costs) {
            while scheduler.usage(class).requests < 2 {
                put(scheduler, class, now(tokens(cost)), ());
            }
        }
        served[scheduler.next_request().expect("work conserving").class.index()] += 1;
    }
    served
}

#[test]
fn one_grant_pays_for_a_burst_and_the_rest_is_kept_for_the_next_visit() {
    let mut s = scheduler(vec![class(10), class(10)], workers(1));
    fill(&mut s, A, 3, 12, 'a');
    fill(&mut s, B, 10, 3, 'b');
    let mut seen = Vec::new();
    for _ in 0..12 {
        let picked = s.next_request().expect("work conserving");
        seen.push((picked.payload, s.deficit(A)));
    }
    let expected = [
        ('a', 7),
        ('a', 4),
        ('a', 1),
        ('b', 1),
        ('a', 8),
        ('a', 5),
        ('a', 2),
        ('b', 2),
        ('a', 9),
        ('a', 6),
        ('a', 3),
        ('a', 0),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn bulk_credit_grants_the_rounds_that_the_nearest_class_needs_to_every_class() {
    let [standard, latency] = [A, B];
    let mut s = scheduler(vec![class(1000), class(2000)], workers(1));
    put(&mut s, standard, now(tokens(7000)), ());
    put(&mut s, latency, now(tokens(9000)), ());
    put(&mut s, latency, now(tokens(9000)), ());
    assert_eq!(s.next_request().expect("bulk credit").class, latency);
    assert_eq!((s.deficit(standard), s.deficit(latency)), (5000, 1000));
}

#[test]
fn equal_costs_are_served_in_the_ratio_of_the_quanta() {
    for (quanta, expected) in [([512, 128], [256, 64]), ([512, 512], [160, 160])] {
        let mut s = scheduler(quanta.map(class).into(), workers(1));
        assert_eq!(served(&mut s, [512, 512], 320), expected);
    }
}

#[test]
fn a_fruitless_call_after_every_dispatch_does_not_change_the_ratio() {
    // Busy with anything at all: one request at a time.
    let mut s = scheduler(vec![gated(65_536, 0), gated(512, 0)], workers(1));
    let mut served = [0; 2];
    for _ in 0..129 * 5 {
        for class in [A, B] {
            while s.usage(class).requests < 2 {
                put(&mut s, class, now(tokens(512)), ());
            }
        }
        let dispatch = s.dispatch().expect("the worker is free");
        served[dispatch.request.class.index()] += 1;
        assert!(s.dispatch().is_none(), "the worker is busy");
        s.release(dispatch.outcome.expect("one worker"));
    }
    assert_eq!(served, [128 * 5, 5]);
}

#[test]
fn a_fruitless_call_changes_nothing() {
    let mut s = scheduler(vec![gated(10, 5), gated(10, 5)], workers(1));
    for class in [A, B] {
        fill(&mut s, class, 3, 4, ());
    }
    assert_eq!(s.next_request().expect("not busy").class, A);
    load(&mut s, 0, 6);
    assert!(s.next_request().is_none());
    assert_eq!((s.deficit(A), s.deficit(B), s.waiting()), (7, 0, 7));
    load(&mut s, 0, 5);
    assert_eq!(s.next_request().expect("not busy").class, A, "the carry has survived");
}

#[test]
fn a_class_that_is_blocked_for_a_million_calls_gains_nothing_and_keeps_what_it_had() {
    let mut s = scheduler(vec![gated(10, 0), class(10)], workers(1));
    fill(&mut s, A, 3, 2, ());
    assert_eq!(s.next_request().expect("not busy").class, A);
    assert_eq!(s.deficit(A), 7);
    load(&mut s, 0, 1);
    for call in 0..1_000_000 {
        // Some calls serve the other class, others find nothing.
        if call % 2 == 0 {
            put(&mut s, B, now(tokens(3)), ());
        }
        assert_eq!(s.next_request().map(|picked| picked.class), (call % 2 == 0).then_some(B));
    }
    assert_eq!(s.deficit(A), 7);
    load(&mut s, 0, 0);
    assert_eq!(s.next_request().expect("not busy any more").class, A);
}

#[test]
fn a_huge_head_on_a_tiny_quantum_goes_in_one_call() {
    let mut s = scheduler(vec![class(1)], workers(1));
    put(&mut s, A, now(tokens(1_000_000_000_000)), ());
    assert!(s.next_request().is_some());
}

#[test]
fn a_class_that_was_mostly_idle_gets_its_share_at_once_and_no_burst_for_the_past() {
    let mut s = scheduler(vec![class(512), class(512)], workers(1));
    for _ in 0..1000 {
        // A tenth of its half.
        put(&mut s, A, now(tokens(512)), ());
        fill(&mut s, B, 512, 19, ());
        assert_eq!(order(&mut s).len(), 20);
    }
    for n in 1..=50 {
        let both = served(&mut s, [512, 512], 2);
        assert_eq!(both, [1, 1], "in pair {n} after the start of saturation");
    }
}

#[test]
fn a_cancelled_head_does_not_leave_its_bulk_credit_to_those_behind_it() {
    let mut s = scheduler(vec![class(1000), class(1000)], workers(1));
    let head = put(&mut s, A, now(tokens(1_000_000)), ());
    put(&mut s, B, now(tokens(900_000)), ());
    for class in [A, B] {
        fill(&mut s, class, 100, 1000, ());
    }
    assert_eq!(s.next_request().expect("bulk credit").class, B);
    assert_eq!(s.deficit(A), 900_000);
    assert!(s.cancel(head).is_some());
    assert_eq!(s.deficit(A), 1000);
    // The thousand that A keeps, then both in turn.
    assert_eq!(served(&mut s, [100, 100], 10), [10, 0]);
    assert_eq!(served(&mut s, [100, 100], 40), [20, 20]);
}

// --- rules -------------------------------------------------------------------------------------------------

#[test]
fn a_cancelled_request_leaves_as_much_credit_as_the_next_head_costs() {
    let mut s = scheduler(vec![class(10), class(10)], workers(1));
    let head = put(&mut s, A, now(tokens(1000)), ());
    put(&mut s, A, now(tokens(300)), ());
    put(&mut s, B, now(tokens(500)), ());
    assert_eq!(s.next_request().expect("bulk credit").class, B);
    assert_eq!(s.deficit(A), 500);
    assert!(s.cancel(head).is_some());
    assert_eq!(s.deficit(A), 300);
}

#[test]
fn an_idle_class_keeps_nothing() {
    let mut s = scheduler(vec![class(10), class(10)], workers(1));
    put(&mut s, A, now(tokens(3)), ());
    s.next_request().expect("one waits");
    assert_eq!(s.deficit(A), 0, "the last one was dispatched");

    let huge = put(&mut s, A, now(tokens(1000)), ());
    put(&mut s, B, now(tokens(500)), ());
    s.next_request().expect("bulk credit");
    assert!(s.deficit(A) > 0);
    assert!(s.cancel(huge).is_some());
    assert_eq!(s.deficit(A), 0, "the last one was cancelled");
}

#[test]
fn cancelling_charges_nothing_and_works_once() {
    let mut s = scheduler(vec![class(10)], workers(1));
    put(&mut s, A, now(tokens(3)), 'x');
    let key = put(&mut s, A, now(tokens(4)), 'y');
    put(&mut s, A, now(tokens(3)), 'z');
    assert_eq!(s.next_request().map(|picked| picked.payload), Some('x'));
    assert_eq!(s.cancel(key).map(|picked| picked.payload), Some('y'));
    assert!(s.cancel(key).is_none());
    assert_eq!((s.deficit(A), s.usage(A).requests, s.usage(A).raw_isl_tokens), (7, 1, 3));
    assert_eq!(order(&mut s), ['z'], "a cancelled head does not block the next one");
}

#[test]
fn an_affordable_candidate_is_dispatched_without_a_grant() {
    let mut s = scheduler(vec![class(10), class(10)], workers(1));
    for class in [A, B] {
        fill(&mut s, class, 100, 2, ());
    }
    assert_eq!(s.next_request().expect("bulk credit").class, A);
    assert_eq!((s.deficit(A), s.deficit(B)), (0, 100), "nine rounds were enough for both");
    assert_eq!(s.next_request().expect("affordable").class, B);
    assert_eq!((s.deficit(A), s.deficit(B)), (10, 0), "the sweep passed A and waits at B");
}

#[test]
fn credit_saturates() {
    let mut s = scheduler(vec![class(u64::MAX)], workers(1));
    for cost in [5, u64::MAX, 1] {
        put(&mut s, A, now(tokens(cost)), cost);
    }
    let mut step = || (s.next_request().map(|picked| picked.payload), s.deficit(A));
    assert_eq!(step(), (Some(5), u64::MAX - 5));
    assert_eq!(step(), (Some(u64::MAX), 0));
    assert_eq!(step(), (Some(1), 0));
}

#[test]
fn a_request_that_then_fails_selection_was_charged() {
    let mut s = scheduler(vec![class(10)], workers(1));
    put(&mut s, A, now(pinned(9, None, tokens(4))), ());
    put(&mut s, A, now(tokens(20)), ());
    assert!(s.dispatch().expect("no endpoint is no reason to wait").outcome.is_err());
    assert_eq!(s.deficit(A), 6);
}
