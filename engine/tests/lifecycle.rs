//! Requests that leave without being dispatched, one test for each rule, and what they leave behind: nothing.

mod common;
#[path = "oracle/rng.rs"]
mod rng;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

use common::*;
use rng::Rng;
use tollgate::policy::{ClassId, ClassSpec, LimitsPerWorker, QueuePolicy};
use tollgate::{LimitKind, Pin, Request, Scheduler, Timestamp, Usage, WaitCause, WorkerId};

thread_local! {
    /// Bytes that this thread has allocated and not freed.
    static LIVE: Cell<i64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system allocator unchanged; counting touches a thread-local without destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.set(LIVE.get() + layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.set(LIVE.get() - layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn within(nanos: u64, request: Request) -> Request {
    Request { deadline: Some(Duration::from_nanos(nanos)), ..request }
}

/// What expires at `now`, one after the other, and what each was waiting for.
fn expired<T>(s: &mut Scheduler<T>, now: u64) -> Vec<(T, WaitCause)> {
    let next = || s.expire(Timestamp::from_nanos(now));
    std::iter::from_fn(next).map(|expired| (expired.request.payload, expired.cause)).collect()
}

// --- cancelled ---------------------------------------------------------------------------------------------

/// What a cancelled request used of a limit is free at once, without any dispatch in between. It is never
/// dispatched, and the others go in the order that they had.
#[test]
fn cancelled_requests_make_room_at_once() {
    let mut spec = gated(1, 0);
    spec.limits.requests = Some(4);
    let mut s = scheduler(vec![spec], workers(1));
    load(&mut s, 0, 1);
    let keys: Vec<_> = (0..4).map(|i| put(&mut s, A, now(tokens(1)), i)).collect();
    assert!(s.enqueue(A, now(tokens(1)), 99).is_err());
    for i in [0, 3, 1] {
        assert_eq!(s.cancel(keys[i]).map(|picked| picked.payload), Some(i));
    }
    for i in 4..7 {
        put(&mut s, A, now(tokens(1)), i);
    }
    assert!(s.enqueue(A, now(tokens(1)), 99).is_err());
    load(&mut s, 0, 0);
    assert_eq!(order(&mut s), [2, 4, 5, 6]);
}

/// A cancelled head never blocks the one behind it, which goes with the first call and is charged its own cost
/// alone.
#[test]
fn behind_a_cancelled_head_the_next_one_goes_and_pays_for_itself() {
    let mut s = scheduler(vec![gated(10, 0)], workers(1));
    load(&mut s, 0, 1);
    let head = put(&mut s, A, now(tokens(9)), "head");
    put(&mut s, A, now(tokens(3)), "behind");
    put(&mut s, A, now(tokens(10)), "last");
    s.cancel(head).expect("it waits");
    load(&mut s, 0, 0);
    let dispatch = s.dispatch().expect("the worker is free");
    assert_eq!(dispatch.request.payload, "behind");
    assert_eq!(dispatch.outcome.expect("one worker").tokens(), 3);
    assert_eq!(s.deficit(A), 10 - 3);
    assert!(s.dispatch().is_none(), "the worker was freed once");
}

/// A request cancels once.
#[test]
fn a_key_is_good_for_one_request_only() {
    let mut s = scheduler(vec![class(1)], workers(1));
    let key = put(&mut s, A, now(tokens(1)), 0);
    assert!(s.cancel(key).is_some());
    let next = put(&mut s, A, now(tokens(1)), 1);
    assert!(s.cancel(key).is_none(), "it does not take another one that has its place");
    assert!(s.cancel(next).is_some());
}

/// A key of another scheduler is a mistake that is answered and breaks nothing, though the place that it names is there,
/// vacant, and has had as many requests.
#[test]
fn a_key_to_a_vacant_place_takes_nothing() {
    let [mut here, mut elsewhere] = [(); 2].map(|()| scheduler(vec![class(1)], workers(1)));
    for s in [&mut here, &mut elsewhere] {
        let key = put(s, A, now(tokens(1)), 0);
        assert!(s.cancel(key).is_some());
        assert!(s.get(key).is_none());
    }
    let foreign = put(&mut elsewhere, A, now(tokens(1)), 1);
    assert!(here.get(foreign).is_none());
    assert!(here.cancel(foreign).is_none());
    assert_eq!((here.waiting(), here.usage(A)), (0, Usage::default()));
    put(&mut here, A, now(tokens(1)), 2);
    assert_eq!(order(&mut here), [2]);
}

// --- refused -----------------------------------------------------------------------------------------------

/// A request that one limit refuses changes nothing: neither what the other limits count nor credit nor sequence.
#[test]
fn a_refused_request_leaves_no_trace() {
    let unlimited = LimitsPerWorker::default();
    let limits = [
        (LimitKind::Requests, LimitsPerWorker { requests: Some(2), ..unlimited }),
        (LimitKind::RawIslTokens, LimitsPerWorker { raw_isl_tokens: Some(100), ..unlimited }),
        (LimitKind::CachedTokens, LimitsPerWorker { cached_tokens: Some(60), ..unlimited }),
    ];
    for (kind, limits) in limits {
        let mut s = scheduler(vec![ClassSpec { limits, ..gated(50, 0) }], workers(1));
        fill(&mut s, A, 1, 2, 0);
        s.next_request().expect("free");
        load(&mut s, 0, 1);
        put(&mut s, A, at(5, within(70, Request::new(100, 60))), 1);
        let state = |s: &Scheduler<i32>| {
            let seen = (s.usage(A), s.deficit(A), s.waiting(), s.next_expiry(), s.oldest_arrival(A));
            (seen, s.iter().map(|(key, ..)| key).collect::<Vec<_>>())
        };
        let before = state(&s);
        let request = at(1, within(3, Request::new(7, 3)));
        let refused = s.enqueue(A, request.clone(), 2).expect_err("over the limit");
        assert_eq!((refused.limit.kind, refused.snapshot, refused.payload), (kind, request, 2));
        assert_eq!(state(&s), before, "{kind}");
        load(&mut s, 0, 0);
        assert_eq!(order(&mut s), [1, 0], "the one with a deadline first");
    }
}

/// The sequence of enqueueing decides between equals, whether or not others were refused or cancelled meanwhile.
#[test]
fn equals_keep_their_order_whatever_was_refused_or_cancelled_between_them() {
    let mut spec = gated(1, 0);
    spec.limits.requests = Some(3);
    let mut s = scheduler(vec![spec], workers(1));
    load(&mut s, 0, 1);
    put(&mut s, A, now(tokens(1)), 0);
    let cancelled = put(&mut s, A, now(tokens(1)), 99);
    put(&mut s, A, now(tokens(1)), 1);
    assert!(s.enqueue(A, now(tokens(1)), 99).is_err());
    s.cancel(cancelled).expect("it waits");
    put(&mut s, A, now(tokens(1)), 2);
    load(&mut s, 0, 0);
    assert_eq!(order(&mut s), [0, 1, 2]);
}

// --- expired -----------------------------------------------------------------------------------------------

/// Time is over at the deadline and not before it, the earliest first, also where nothing may go: heads and others,
/// in the shared lane and in exact ones.
#[test]
fn requests_expire_in_blocked_lanes() {
    let mut s = scheduler(vec![gated(1, 0)], workers(2));
    (0..2).for_each(|worker| load(&mut s, worker, 1));
    put(&mut s, A, now(within(30, tokens(1))), "shared head");
    put(&mut s, A, now(within(31, tokens(1))), "behind it");
    put(&mut s, A, now(within(10, pinned(0, Some(0), tokens(1)))), "exact head");
    put(&mut s, A, now(within(20, pinned(0, Some(0), tokens(1)))), "behind that");
    put(&mut s, A, now(tokens(1)), "no deadline");
    assert_eq!(s.next_expiry(), Some(Timestamp::from_nanos(10)));
    assert_eq!(expired(&mut s, 9), []);
    let busy = WaitCause::PinBusy { pin: Pin { worker: WorkerId(0), rank: Some(0) } };
    assert_eq!(expired(&mut s, 10), [("exact head", busy)]);
    assert_eq!(expired(&mut s, 30), [("behind that", busy), ("shared head", WaitCause::PoolBusy)]);
    assert_eq!(expired(&mut s, u64::MAX), [("behind it", WaitCause::PoolBusy)]);
    assert_eq!((s.next_expiry(), s.usage(A).requests), (None, 1));
    (0..2).for_each(|worker| load(&mut s, worker, 0));
    assert_eq!(order(&mut s), ["no deadline"]);
}

/// The cause is what the request itself would have needed, whatever stood before it.
#[test]
fn the_cause_is_what_the_request_itself_would_have_needed() {
    let mut s = scheduler(vec![gated(1, 0)], workers(2));
    load(&mut s, 0, 1);
    let urgent = Request { strict_priority: 1, ..constrained(Some(&[0]), &[], tokens(1)) };
    put(&mut s, A, now(within(1, urgent)), "head");
    put(&mut s, A, now(within(2, tokens(1))), "could go");
    put(&mut s, A, now(within(3, constrained(Some(&[0]), &[], tokens(1)))), "could not");
    put(&mut s, A, now(within(4, pinned(7, None, tokens(1)))), "nowhere");
    assert_eq!(
        expired(&mut s, 3),
        [("head", WaitCause::PoolBusy), ("could go", WaitCause::Others), ("could not", WaitCause::PoolBusy),]
    );
    s.set_workers(snapshot(2, Vec::new()));
    assert_eq!(expired(&mut s, 4), [("nowhere", WaitCause::NoWorker)]);
}

/// What an expired request had gathered is not for those behind it.
#[test]
fn credit_does_not_outlive_an_expired_request() {
    let mut s = scheduler(vec![class(10), class(10)], workers(1));
    put(&mut s, A, now(within(1, tokens(1000))), "dear");
    put(&mut s, A, now(tokens(25)), "behind");
    put(&mut s, B, now(tokens(900)), "other");
    assert_eq!(s.next_request().map(|picked| picked.payload), Some("other"));
    assert_eq!(s.deficit(A), 900);
    assert_eq!(expired(&mut s, 1), [("dear", WaitCause::Others)]);
    assert_eq!(s.deficit(A), 25);
}

/// The longest waiting time of a class ends the wait, and is nothing to the order. A request's own deadline does
/// both, and the earlier of the two ends the wait.
#[test]
fn the_longest_waiting_time_of_a_class_expires_and_does_not_reorder() {
    let spec = ClassSpec { max_queue_time: Some(Duration::from_nanos(50)), ..class(1) };
    let enqueued = || {
        let mut s = scheduler(vec![spec.clone()], workers(1));
        put(&mut s, A, at(8, jump(tokens(1))), "last to expire, first to go");
        put(&mut s, A, at(3, tokens(1)), "class");
        put(&mut s, A, at(7, within(20, tokens(1))), "own");
        put(&mut s, A, at(7, within(90, tokens(1))), "late");
        s
    };
    assert_eq!(order(&mut enqueued()), ["own", "late", "last to expire, first to go", "class"]);
    let names = |now| expired(&mut enqueued(), now).into_iter().map(|e| e.0).collect::<Vec<_>>();
    assert_eq!(names(27), ["own"]);
    assert_eq!(names(57), ["own", "class", "late"]);
    assert_eq!(names(58), ["own", "class", "late", "last to expire, first to go"]);
}

fn jump(request: Request) -> Request {
    Request { priority_jump: 1.0, ..request }
}

// --- what it costs -----------------------------------------------------------------------------------------

/// Requests of all kinds that come and leave again occupy nothing, however many they are.
#[test]
fn a_storm_of_cancelled_requests_grows_nothing() {
    let classes = vec![
        ClassSpec { max_queue_time: Some(Duration::from_secs(9)), ..gated(10, 0) },
        ClassSpec { order: QueuePolicy::Wspt, ..gated(10, 0) },
    ];
    let mut s: Scheduler<u64> = scheduler(classes, workers(4));
    (0..4).for_each(|worker| load(&mut s, worker, 1));
    let request = |i: u64| {
        let request = tokens(i % 7);
        match i % 5 {
            0 => pinned(i % 3, Some(0), request),
            1 => constrained(Some(&[i % 4, i / 5 % 4]), &[], request),
            2 => within(i % 1000, request),
            _ => request,
        }
    };
    // Something waits all the time.
    for i in 0..100 {
        put(&mut s, ClassId(i as u32 % 2), at(i, request(i)), i);
    }
    let mut pairs = |from: u64, to: u64| {
        for i in from..to {
            let key = put(&mut s, ClassId((i / 3) as u32 % 2), at(i, request(i)), i);
            assert!(s.cancel(key).is_some());
        }
        LIVE.get()
    };
    let warm = pairs(0, 10_000);
    assert!(warm > 0, "it counts");
    assert_eq!(pairs(10_000, 1_010_000), warm);
    assert_eq!(s.waiting(), 100);
}

/// Classes in which nothing waits are nothing to the others.
#[test]
fn ten_thousand_classes_decide_as_the_ten_that_have_requests() {
    const ALL: usize = 10_000;
    let spec = |i: usize| ClassSpec {
        order: [QueuePolicy::Fcfs, QueuePolicy::Wspt][i % 2],
        ..named(&format!("c{i}"), gated([1, 10, 300, 5000][i % 4], 500))
    };
    let active: Vec<_> = [0, 1, 2, 999, 3333, 5002, 5003, 7777, 9998, 9999].into();
    let mut many = Scheduler::new(&profile((0..ALL).map(spec).collect()));
    let mut few = Scheduler::new(&profile(active.iter().map(|&i| spec(i)).collect()));
    for s in [&mut many, &mut few] {
        s.set_workers(snapshot(1, workers(3)));
    }
    let mut rng = Rng::new(1);
    let (mut keys, mut served) = (Vec::new(), 0);
    for id in 0..3000 {
        match rng.below(10) {
            0..=4 => {
                let at_few = rng.below(10) as usize;
                let mut request = tokens(rng.within(1..=400));
                if rng.percent(25) {
                    request = pinned(rng.below(3), None, request);
                }
                let in_many = put(&mut many, ClassId(active[at_few] as u32), now(request.clone()), id);
                keys.push((in_many, put(&mut few, ClassId(at_few as u32), now(request), id)));
            }
            5 if !keys.is_empty() => {
                let (in_many, in_few) = rng.pick(&keys);
                assert_eq!(many.cancel(in_many).map(|p| p.payload), few.cancel(in_few).map(|p| p.payload));
            }
            6 => [&mut many, &mut few].into_iter().for_each(|s| load(s, id % 3, id % 7 * 100)),
            _ => {
                let [a, b] = [&mut many, &mut few].map(|s| s.next_request().map(|picked| picked.payload));
                assert_eq!(a, b);
                served += u64::from(a.is_some());
            }
        }
        for (i, &class) in active.iter().enumerate() {
            assert_eq!(many.deficit(ClassId(class as u32)), few.deficit(ClassId(i as u32)));
        }
    }
    assert!(served > 500, "{served}");
}
