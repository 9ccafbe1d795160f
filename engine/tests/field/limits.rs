//! Queue limits.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tollgate::policy::ClassSpec;
use tollgate::{LimitKind, Reason, Request, Scheduler, Timestamp, Usage, Worker};

use crate::common::{self, A, B, at, constrained, gated, put, tokens};
use crate::threaded::{answer, at_rest, each_answer, engine, exclusive, permit, settled, until, worker};

fn limited(requests: Option<u64>) -> ClassSpec {
    let mut only = exclusive("only", 1);
    only.limits.requests = requests;
    only
}

#[test]
fn no_limit_and_a_limit_of_zero_or_one_were_mixed_up() {
    for (limit, waiting) in [(Some(0), 0), (Some(1), 1), (None, 8)] {
        let engine = engine(vec![limited(limit)], vec![worker(1)]);
        // It need not wait, so no limit binds it.
        let running = permit(engine.admit(tokens(5)).unwrap());
        let mut burst: Vec<_> = (0..8).map(|_| engine.admit(tokens(6)).unwrap()).collect();
        let picture = settled(&engine);
        let only = &picture.classes[0];
        assert_eq!((only.waiting.requests, only.refused.requests), (waiting, 8 - waiting), "{limit:?}");
        drop(running);
        let mut refused = 0;
        each_answer(&mut burst, |answer| {
            let Err(rejected) = answer else { return };
            let Reason::QueueLimit(at) = rejected.reason else { panic!("{}", rejected.reason) };
            assert_eq!((at.kind, Some(at.limit), at.current), (LimitKind::Requests, limit, at.limit));
            refused += 1;
        });
        assert_eq!(refused, 8 - waiting);
        at_rest(&engine);
    }
}

/// 64 threads against a limit of 8, while others look on.
#[test]
fn more_waited_than_the_limit_allows() {
    let engine = engine(vec![limited(Some(8))], vec![worker(1)]);
    for round in 1..=50 {
        let plug = permit(engine.admit(tokens(5)).unwrap());
        let (start, done) = (Barrier::new(64), AtomicBool::new(false));
        let mut admissions = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let waiting = engine.snapshot().classes[0].waiting.requests;
                    assert!(waiting <= 8, "{waiting} wait");
                }
            });
            let threads: Vec<_> = (0..64)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        engine.admit(tokens(6)).unwrap()
                    })
                })
                .collect();
            admissions.extend(threads.into_iter().map(|t| t.join().unwrap()));
            done.store(true, Ordering::Relaxed);
        });
        // None lingers in front of the lanes.
        let picture = settled(&engine);
        let only = &picture.classes[0];
        assert_eq!((only.submitted, only.waiting.requests), (round * 65, 8));
        assert_eq!(only.refused.requests, round * 56);
        drop(plug);
        each_answer(&mut admissions, drop);
        at_rest(&engine);
    }
}

/// Two schedulers in step, one of which refuses a request now and then: they stay the same.
#[test]
fn a_refusal_left_traces() {
    let busy = || vec![Worker { external_load: vec![1], ..worker(0) }];
    let mut raw = gated(10, 0);
    raw.limits.raw_isl_tokens = Some(1000);
    let build = || -> Scheduler<u64> { common::scheduler(vec![raw.clone(), gated(7, 0)], busy()) };
    let (mut with, mut without) = (build(), build());
    let sees = |s: &Scheduler<u64>| {
        let class = |c| (s.usage(c), s.deficit(c), s.oldest_arrival(c));
        (
            class(A),
            class(B),
            s.waiting(),
            s.next_expiry(),
            s.waiting_for(s.find(common::endpoint(0, 0)).unwrap()),
        )
    };
    let fill = |s: &mut Scheduler<u64>, from: u64| {
        for i in from..from + 10 {
            put(s, A, at(7, Request::new(100 + i % 10, i)), i);
            put(s, B, at(7, tokens(3)), 1000 + i);
        }
    };
    let mut served: [Vec<u64>; 2] = Default::default();
    for round in 0..20 {
        fill(&mut with, round * 10);
        fill(&mut without, round * 10);
        let refuse = [
            tokens(1),
            Request { deadline: Some(Duration::from_nanos(1)), strict_priority: 9, ..tokens(1) },
            constrained(Some(&[0]), &[], tokens(1)),
            common::pinned(0, Some(0), tokens(1)),
        ];
        for request in refuse {
            let refused = with.enqueue(A, at(0, request.clone()), 0).unwrap_err();
            assert_eq!(refused.limit.kind, LimitKind::RawIslTokens);
            assert_eq!(refused.snapshot, at(0, request));
            assert_eq!(sees(&with), sees(&without));
        }
        for (s, served) in [&mut with, &mut without].into_iter().zip(&mut served) {
            common::load(s, 0, 0);
            served.extend(common::order(s));
            common::load(s, 0, 1);
        }
        assert_eq!(sees(&with), sees(&without));
        assert!(with.expire(Timestamp::from_nanos(u64::MAX)).is_none());
    }
    assert_eq!(served[0], served[1]);
    assert_eq!(with.usage(A), Usage::default());
}

#[test]
fn a_refusal_for_one_limit_was_counted_for_another() {
    let mut only = exclusive("only", 1);
    only.limits.cached_tokens = Some(50);
    let engine = engine(vec![only, exclusive("other", 1)], vec![worker(1)]);
    let plug = permit(engine.admit(tokens(5)).unwrap());
    let waiting = engine.admit(Request::new(100, 60)).unwrap();
    settled(&engine);
    let before = engine.snapshot();
    let rejected = answer(engine.admit(Request::new(77, 1)).unwrap()).unwrap_err();
    let Reason::QueueLimit(at) = &rejected.reason else { panic!("{rejected}") };
    assert_eq!((at.kind, at.current, at.limit), (LimitKind::CachedTokens, 60, 50));
    assert_eq!((rejected.request, rejected.reason.http_status()), (Request::new(77, 1), 529));
    let after = engine.snapshot();
    for (before, after) in before.classes.iter().zip(&after.classes) {
        let only = u64::from(&*before.name == "only");
        assert_eq!(after.refused.cached_tokens, only);
        assert_eq!((after.refused.requests, after.refused.raw_isl_tokens), (0, 0));
        assert_eq!((after.submitted, after.ended()), (before.submitted + only, before.ended() + only));
        assert_eq!((after.waiting, after.deficit), (before.waiting, before.deficit));
    }
    assert_eq!(before.endpoints, after.endpoints);
    drop(plug);
    drop(permit(waiting));
    until(&engine, |p| p.classes[0].dispatched == 2);
    at_rest(&engine);
}
