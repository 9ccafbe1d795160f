//! The rules of order, load, limits, selection and booking, one test each.

mod common;

use std::time::Duration;

use common::*;
use tollgate::policy::{ClassSpec, QueuePolicy};
use tollgate::{
    Booked, Booking, CachedOn, LimitKind, MAX_BOOKED_TOKENS, Pin, Reason, Refused, Request, Scheduler,
    Timestamp, Worker, WorkerId,
};

// --- order inside a class ----------------------------------------------------------------------------------

fn fcfs(requests: Vec<(u64, Request)>) -> Vec<usize> {
    in_order(class(1), requests)
}

fn wspt(requests: Vec<(u64, Request)>) -> Vec<usize> {
    in_order(ClassSpec { order: QueuePolicy::Wspt, ..class(1) }, requests)
}

/// Positions in the order of dispatch.
fn in_order(class: ClassSpec, requests: Vec<(u64, Request)>) -> Vec<usize> {
    let mut s = scheduler(vec![class], workers(1));
    for (i, (arrival, request)) in requests.into_iter().enumerate() {
        put(&mut s, A, at(arrival, request), i);
    }
    order(&mut s)
}

fn jump(seconds: f64) -> Request {
    Request { priority_jump: seconds, ..tokens(1) }
}

fn deadline(nanos: u64) -> Request {
    Request { deadline: Some(Duration::from_nanos(nanos)), ..tokens(1) }
}

#[test]
fn strict_priority_precedes_everything_else() {
    let urgent = Request { strict_priority: 1, ..tokens(1000) };
    assert_eq!(fcfs(vec![(0, deadline(1)), (0, jump(1e9)), (9, urgent.clone())]), [2, 0, 1]);
    assert_eq!(wspt(vec![(0, deadline(1)), (0, jump(1e9)), (9, urgent)]), [2, 0, 1]);
}

#[test]
fn an_earlier_deadline_goes_first_and_any_deadline_before_none() {
    assert_eq!(
        fcfs(vec![(0, jump(1e9)), (0, deadline(90)), (50, deadline(30)), (0, tokens(1))]),
        [2, 1, 0, 3]
    );
}

#[test]
fn a_deadline_at_the_end_of_the_clock_still_precedes_none() {
    let never = Request { deadline: Some(Duration::MAX), ..tokens(1) };
    assert_eq!(fcfs(vec![(0, tokens(1)), (1, never)]), [1, 0]);
}

#[test]
fn fcfs_goes_by_arrival_less_the_jump_and_equal_is_equal() {
    assert_eq!(fcfs(vec![(7, tokens(1)), (5, tokens(9)), (6, tokens(1))]), [1, 2, 0]);
    // 0.4 s and 0.9 s of head start bring all three to the same nanosecond: the sequence decides.
    let (base, late, later) = (1_000_000_000, 1_400_000_000, 1_900_000_000);
    assert_eq!(fcfs(vec![(later, jump(0.9)), (base, jump(0.0)), (late, jump(0.4))]), [0, 1, 2]);
    assert_eq!(fcfs(vec![(later, jump(0.9)), (base - 1, jump(0.0)), (late - 2, jump(0.4))]), [2, 1, 0]);
}

#[test]
fn wspt_goes_by_weight_over_cost() {
    assert_eq!(wspt(vec![(0, tokens(30)), (9, tokens(10)), (5, tokens(20))]), [1, 2, 0]);
    let heavy = Request { priority_jump: 2.0, ..tokens(30) };
    assert_eq!(wspt(vec![(0, tokens(10)), (0, heavy), (0, tokens(9))]), [2, 0, 1]);
}

#[test]
fn jumps_are_totally_ordered_and_a_negative_one_is_zero() {
    let jumps = [-5.0, 1e308, -0.0, 0.9, 0.0, 0.4];
    let requests = || jumps.map(|j| (1_000_000_000, jump(j))).into();
    assert_eq!(fcfs(requests()), [1, 3, 5, 0, 2, 4]);
    assert_eq!(wspt(requests()), [1, 3, 5, 0, 2, 4]);
}

#[test]
fn a_jump_that_is_no_number_is_refused() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let error = jump(value).snapshot(Timestamp::ZERO).expect_err("not finite");
        assert!(error.to_string().contains("priority_jump"), "{error}");
    }
}

// --- lanes -------------------------------------------------------------------------------------------------

#[test]
fn a_lane_never_looks_past_its_head() {
    let mut s = scheduler(vec![gated(10, 0)], workers(2));
    load(&mut s, 0, 1);
    put(&mut s, A, now(constrained(Some(&[0]), &[], tokens(1))), "blocked head");
    put(&mut s, A, now(tokens(1)), "could go to worker 1");
    assert!(s.next_request().is_none());
    load(&mut s, 0, 0);
    assert_eq!(order(&mut s), ["blocked head", "could go to worker 1"]);
}

#[test]
fn a_blocked_lane_holds_up_neither_other_lanes_nor_the_shared_one() {
    let mut s = scheduler(vec![gated(10, 0)], workers(2));
    load(&mut s, 0, 1);
    put(&mut s, A, now(pinned(0, Some(0), tokens(1))), "blocked");
    put(&mut s, A, now(pinned(1, Some(0), tokens(1))), "other lane");
    put(&mut s, A, now(tokens(1)), "shared");
    assert_eq!(order(&mut s), ["other lane", "shared"]);
}

#[test]
fn a_younger_shared_request_does_not_overtake_an_older_pinned_one_whose_worker_has_become_free() {
    let mut s = scheduler(vec![gated(10, 0)], workers(2));
    load(&mut s, 0, 1);
    put(&mut s, A, at(1, pinned(0, Some(0), tokens(1))), "older");
    put(&mut s, A, at(2, tokens(1)), "younger");
    load(&mut s, 0, 0);
    assert_eq!(order(&mut s), ["older", "younger"]);
}

#[test]
fn a_pin_without_a_rank_waits_until_one_rank_is_free_whatever_the_ratio() {
    let mut rule = gated(10, 0);
    rule.busy.worker_ratio = Some(0.1);
    let mut s = scheduler(vec![rule], vec![Worker { ranks: 2, external_load: vec![1, 1], ..Worker::new(0) }]);
    put(&mut s, A, now(pinned(0, None, tokens(1))), ());
    assert!(s.next_request().is_none());
    let second = s.find(endpoint(0, 1)).expect("two ranks");
    s.set_external(second, 0);
    assert_eq!(s.dispatch().expect("one is free").outcome.expect("it exists").endpoint(), endpoint(0, 1));
}

// --- busy --------------------------------------------------------------------------------------------------

/// Whether a shared request of this class may go on these workers.
fn goes(class: ClassSpec, workers: Vec<Worker>) -> bool {
    let mut s = scheduler(vec![class], workers);
    put(&mut s, A, now(tokens(1)), ());
    s.next_request().is_some()
}

fn loaded(id: u64, tokens: u64) -> Worker {
    Worker { external_load: vec![tokens], max_num_batched_tokens: Some(1000), ..Worker::new(id) }
}

#[test]
fn busy_is_strictly_above_a_threshold_and_either_one_suffices() {
    assert!(goes(class(1), vec![loaded(0, u64::MAX)]), "no threshold");
    assert!(goes(gated(1, 100), vec![loaded(0, 100)]));
    assert!(!goes(gated(1, 100), vec![loaded(0, 101)]));
    let mut both = gated(1, 700);
    both.busy.threshold_frac = Some(0.5);
    assert!(goes(both.clone(), vec![loaded(0, 500)]));
    assert!(!goes(both.clone(), vec![loaded(0, 501)]), "by the fraction");
    both.busy.threshold_frac = Some(0.9);
    assert!(!goes(both, vec![loaded(0, 701)]), "by the tokens");
}

#[test]
fn a_worker_that_holds_as_many_permits_as_it_may_is_busy_for_every_class() {
    let mut s = scheduler(vec![class(1)], vec![Worker { max_active_requests: Some(1), ..Worker::new(0) }]);
    fill(&mut s, A, 1, 2, ());
    let mut booking = s.dispatch().expect("free").outcome.expect("one worker");
    assert!(s.dispatch().is_none());
    s.prefill_complete(&mut booking);
    assert!(s.dispatch().is_none(), "the permit is still held");
    s.release(booking);
    assert!(s.dispatch().is_some());
}

#[test]
fn the_pool_is_busy_as_soon_as_the_ratio_is_reached() {
    let mut rule = gated(1, 0);
    rule.busy.worker_ratio = Some(0.5);
    let with_busy = |n| (0..4).map(|id| loaded(id, u64::from(id < n))).collect();
    assert!(goes(rule.clone(), with_busy(1)));
    assert!(!goes(rule.clone(), with_busy(2)));
    rule.busy.worker_ratio = None;
    assert!(goes(rule, with_busy(3)));
}

#[test]
fn a_request_without_any_eligible_endpoint_goes_to_hear_why() {
    let workers = || {
        vec![
            Worker { overloaded: true, taints: vec!["gpu".into()], ..Worker::new(0) },
            Worker { ranks: 2, ..Worker::new(1) },
        ]
    };
    let reason = |request: Request| {
        let mut s = scheduler(vec![gated(1, 0)], workers());
        put(&mut s, A, now(request), ());
        s.dispatch().expect("it does not wait").outcome.expect_err("nobody is eligible")
    };
    let pin = |worker, rank| Pin { worker: WorkerId(worker), rank };
    let required = |taint: &str| Reason::TaintsUnsatisfiable { required: vec![taint.into()] };
    assert_eq!(reason(constrained(Some(&[7]), &[], tokens(1))), Reason::NoEndpoint { workers: 2 });
    assert_eq!(reason(constrained(None, &["gpu"], tokens(1))), Reason::AllOverloaded { endpoints: 1 });
    assert_eq!(reason(constrained(Some(&[1]), &["gpu"], tokens(1))), required("gpu"));
    assert_eq!(reason(pinned(0, None, tokens(1))), Reason::PinOverloaded { pin: pin(0, None) });
    assert_eq!(reason(pinned(7, None, tokens(1))), Reason::PinUnavailable { pin: pin(7, None) });
    let rank = Reason::PinRankOutOfRange { pin: pin(1, Some(2)), first_rank: 0, ranks: 2 };
    assert_eq!(reason(pinned(1, Some(2), tokens(1))), rank);
    let elsewhere = constrained(Some(&[0]), &[], pinned(1, None, tokens(1)));
    assert_eq!(reason(elsewhere), Reason::PinNotAllowed { pin: pin(1, None) });
    assert_eq!(reason(constrained(None, &["gpu"], pinned(1, None, tokens(1)))), required("gpu"));
}

// --- limits ------------------------------------------------------------------------------------------------

fn limited(requests: Option<u64>, raw_isl_tokens: Option<u64>, cached_tokens: Option<u64>) -> ClassSpec {
    let mut class = gated(1, 0);
    (class.limits.requests, class.limits.raw_isl_tokens) = (requests, raw_isl_tokens);
    class.limits.cached_tokens = cached_tokens;
    class
}

fn busy(workers: u64) -> Vec<Worker> {
    (0..workers).map(|id| loaded(id, 1)).collect()
}

fn refused(result: Result<tollgate::RequestKey, Refused<()>>) -> (LimitKind, u64, u64) {
    let Refused { limit, .. } = result.expect_err("over the limit");
    assert_eq!(&*limit.class, "a");
    (limit.kind, limit.current, limit.limit)
}

#[test]
fn the_request_that_crosses_a_limit_is_accepted_and_the_next_is_refused() {
    // Twice the limit per worker.
    let request = || now(Request::new(100, 60));
    let mut s = scheduler(vec![limited(None, Some(75), None)], busy(2));
    (0..2).for_each(|_| assert!(s.enqueue(A, request(), ()).is_ok()));
    assert_eq!(refused(s.enqueue(A, request(), ())), (LimitKind::RawIslTokens, 200, 150));

    let mut s = scheduler(vec![limited(None, None, Some(30))], busy(2));
    assert!(s.enqueue(A, request(), ()).is_ok());
    assert_eq!(refused(s.enqueue(A, request(), ())), (LimitKind::CachedTokens, 60, 60));

    let mut s = scheduler(vec![limited(Some(1), Some(1), Some(1))], busy(2));
    (0..2).for_each(|_| drop(s.enqueue(A, now(tokens(1)), ())));
    assert_eq!(refused(s.enqueue(A, request(), ())), (LimitKind::Requests, 2, 2));
    assert_eq!(s.usage(A).requests, 2, "a refusal changes nothing");
}

#[test]
fn limit_zero_means_never_queue_and_not_never_serve() {
    let mut s = scheduler(vec![limited(Some(0), None, None)], workers(1));
    let mut served = Vec::new();
    let mut sink = |_: &mut Scheduler<()>, dispatch: tollgate::Dispatch<()>| served.push(dispatch.outcome);
    assert!(s.submit(A, now(tokens(1)), (), &mut sink).is_ok());
    assert_eq!(refused(s.submit(A, now(tokens(1)), (), &mut sink)), (LimitKind::Requests, 0, 0));
    assert_eq!((served.len(), s.waiting()), (1, 0));
}

#[test]
fn before_a_limit_refuses_all_is_dispatched_that_can_be() {
    let mut s = scheduler(vec![limited(Some(1), None, None)], workers(1));
    put(&mut s, A, now(tokens(1)), ());
    let mut served = 0;
    assert!(s.submit(A, now(tokens(1)), (), &mut |_, _| served += 1).is_ok());
    assert_eq!((served, s.waiting()), (1, 1));
}

#[test]
fn without_workers_the_answer_is_no_endpoint_and_not_a_limit() {
    let mut s = scheduler(vec![limited(Some(1), None, None)], Vec::new());
    let mut outcomes = Vec::new();
    for _ in 0..2 {
        assert!(s.submit(A, now(tokens(1)), (), &mut |_, d| outcomes.push(d.outcome)).is_ok());
    }
    assert_eq!(outcomes, [Err(Reason::NoEndpoint { workers: 0 }), Err(Reason::NoEndpoint { workers: 0 })]);
}

#[test]
fn losing_workers_evicts_nobody() {
    let mut s = scheduler(vec![limited(Some(1), None, None)], busy(3));
    fill(&mut s, A, 1, 3, ());
    s.set_workers(snapshot(2, busy(1)));
    assert_eq!(s.usage(A).requests, 3);
    assert_eq!(refused(s.enqueue(A, now(tokens(1)), ())), (LimitKind::Requests, 3, 1));
}

// --- selection and booking ---------------------------------------------------------------------------------

fn dispatch(s: &mut Scheduler<()>, request: Request) -> Booking {
    put(s, A, now(request), ());
    s.dispatch().expect("not busy").outcome.expect("eligible")
}

fn cached_on(list: &[(u64, u64)], request: Request) -> Request {
    let list = list.iter().map(|&(id, tokens)| CachedOn { worker: WorkerId(id), tokens });
    Request { cached_on: Some(list.collect()), ..request }
}

#[test]
fn the_least_of_load_and_own_prefill_wins_and_ties_go_to_the_lower_worker_and_rank() {
    let pool = vec![
        loaded(2, 50),
        Worker { ranks: 2, external_load: vec![50, 50], ..Worker::new(1) },
        loaded(0, 90),
    ];
    let mut s = scheduler(vec![class(1)], pool);
    assert_eq!(dispatch(&mut s, tokens(100)).endpoint(), endpoint(1, 0));
    assert_eq!(dispatch(&mut s, cached_on(&[(0, 41)], tokens(100))).endpoint(), endpoint(0, 0));
    assert_eq!(dispatch(&mut s, tokens(10)).endpoint(), endpoint(1, 1));
}

#[test]
fn a_busy_endpoint_is_chosen_only_if_all_are() {
    let mut rule = gated(1, 100);
    rule.busy.worker_ratio = Some(1.0);
    let mut s = scheduler(vec![rule], vec![loaded(0, 101), loaded(1, 100)]);
    let request = cached_on(&[(0, 1000)], tokens(1000));
    assert_eq!(dispatch(&mut s, request.clone()).endpoint(), endpoint(1, 0));
    let index = s.select(A, &now(request)).expect("eligible");
    assert_eq!(s.endpoints().nth(index.index()).map(|e| e.1), Some(endpoint(0, 0)));
}

#[test]
fn booking_adds_what_the_endpoint_must_really_compute() {
    let mut s = scheduler(vec![class(1)], workers(2));
    let request = cached_on(&[(0, 10), (0, 30)], Request::new(100, 80));
    let booking = dispatch(&mut s, Request { ..constrained(Some(&[0]), &[], request.clone()) });
    assert_eq!(booking.tokens(), 70, "worker 0 has 30");
    assert_eq!(dispatch(&mut s, constrained(Some(&[1]), &[], request)).tokens(), 100, "worker 1 has none");
    assert_eq!(dispatch(&mut s, Request::new(100, 80)).tokens(), 20, "without a list it holds for all");
    assert_eq!(dispatch(&mut s, tokens(u64::MAX)).tokens(), MAX_BOOKED_TOKENS);
}

#[test]
fn a_booking_is_released_exactly_once() {
    let mut s = scheduler(vec![class(1)], workers(1));
    let (mut first, second) = (dispatch(&mut s, tokens(5)), dispatch(&mut s, tokens(7)));
    let index = first.index();
    assert_eq!(s.booked(index), Booked { tokens: 12, permits: 2 });
    s.prefill_complete(&mut first);
    s.prefill_complete(&mut first);
    assert_eq!(s.booked(index), Booked { tokens: 7, permits: 2 });
    s.release(first);
    assert_eq!(s.booked(index), Booked { tokens: 7, permits: 1 });
    s.release(second);
    assert_eq!(s.booked(index), Booked::default());
}

#[test]
fn a_snapshot_replaces_the_external_load_and_keeps_the_bookings() {
    let mut s = scheduler(vec![class(1)], vec![loaded(0, 100)]);
    let booking = dispatch(&mut s, tokens(5));
    s.set_workers(snapshot(2, vec![loaded(0, 30)]));
    assert_eq!(s.active(booking.index()), 35);
    s.set_workers(snapshot(3, Vec::new()));
    s.set_workers(snapshot(4, vec![loaded(0, 0)]));
    assert_eq!(s.active(booking.index()), 5, "the worker was only away");
    s.release(booking);
    assert_eq!(s.stale_releases(), 0);
}

#[test]
fn a_release_of_an_earlier_incarnation_changes_nothing_and_is_counted() {
    let mut s = scheduler(vec![class(1)], workers(1));
    let old = dispatch(&mut s, tokens(5));
    s.set_workers(snapshot(2, vec![Worker { incarnation: 1, ..Worker::new(0) }]));
    let new = dispatch(&mut s, tokens(7));
    s.release(old);
    assert_eq!(s.booked(new.index()), Booked { tokens: 7, permits: 1 });
    assert_eq!(s.stale_releases(), 1);
}

#[test]
fn a_stale_booking_is_counted_once() {
    let mut s = scheduler(vec![class(1)], workers(1));
    let mut old = dispatch(&mut s, tokens(5));
    s.set_workers(snapshot(2, vec![Worker { incarnation: 1, ..Worker::new(0) }]));
    s.prefill_complete(&mut old);
    s.release(old);
    assert_eq!(s.stale_releases(), 1);
}

#[test]
fn a_pin_to_a_worker_that_is_gone_ends_and_new_workers_unblock_at_once() {
    let mut s = scheduler(vec![gated(1, 0)], busy(2));
    put(&mut s, A, now(pinned(1, None, tokens(1))), ());
    put(&mut s, A, now(tokens(1)), ());
    assert!(s.dispatch().is_none());
    s.set_workers(snapshot(2, vec![loaded(0, 1), loaded(2, 0)]));
    let gone = Reason::PinUnavailable { pin: Pin { worker: WorkerId(1), rank: None } };
    assert_eq!(s.dispatch().expect("goes to hear why").outcome, Err(gone));
    assert_eq!(s.dispatch().expect("worker 2 is new").outcome.map(|b| b.endpoint()), Ok(endpoint(2, 0)));
}
