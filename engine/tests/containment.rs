//! Other people's code misbehaves on the arbiter's thread, and the engine goes on.

mod threaded;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use threaded::{class, drained, engine, profile, worker};
use tollgate::{
    Admission, Candidates, ClassChoice, EndpointIndex, Engine, LimitKind, LimitReached, Pin as Pinned,
    Reason, Request, Retry, Selector, WaitCause, WorkerId, WorkerSnapshot,
};

/// Panics with something that panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("while being dropped");
    }
}

/// An engine with one worker that takes one request at a time.
fn one_slot() -> Engine {
    let mut only = class("only", 1);
    only.busy.threshold_tokens = Some(0);
    engine(vec![only], vec![worker(1)])
}

fn poll(admission: &mut Admission, waker: &Waker) -> bool {
    Pin::new(admission).poll(&mut Context::from_waker(waker)).is_ready()
}

#[test]
fn a_selector_whose_panic_panics_ends_one_request() {
    struct Moody(bool);
    impl Selector for Moody {
        fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
            if std::mem::take(&mut self.0) {
                std::panic::panic_any(Bomb);
            }
            candidates.least_loaded()
        }
    }
    let engine = Engine::builder(profile(vec![class("only", 1)]))
        .workers(WorkerSnapshot::new(1, vec![worker(1)]).unwrap())
        .selector(Moody(true))
        .start()
        .unwrap();
    let rejected = engine.admit(Request::new(1, 0)).unwrap().wait().unwrap_err();
    assert_eq!(rejected.reason, Reason::SelectorFailed { message: "panicked".into() });
    drop(engine.admit(Request::new(1, 0)).unwrap().wait().unwrap());
}

#[test]
fn a_waker_that_panics_when_it_is_dropped_ends_nothing() {
    struct Brittle(Bomb);
    impl Wake for Brittle {
        fn wake(self: Arc<Self>) {}
    }
    let engine = one_slot();
    let running = engine.admit(Request::new(5, 0)).unwrap().wait().unwrap();
    let mut cancelled = engine.admit(Request::new(6, 0)).unwrap();
    let waker = Waker::from(Arc::new(Brittle(Bomb)));
    assert!(!poll(&mut cancelled, &waker));
    // The ticket holds the last owner of the bomb, and the arbiter will be the last owner of the ticket.
    drop(waker);
    drop(cancelled);
    while engine.snapshot().classes[0].cancelled == 0 {}
    drop(running);
    drop(engine.admit(Request::new(7, 0)).unwrap().wait().unwrap());
    drained(&engine);
}

#[test]
fn a_waker_may_join_while_another_thread_does() {
    struct Joins(Engine);
    impl Wake for Joins {
        fn wake(self: Arc<Self>) {
            // Long enough for the other thread to be joining.
            std::thread::sleep(Duration::from_millis(50));
            self.0.join();
        }
    }
    let engine = one_slot();
    let _running = engine.admit(Request::new(5, 0)).unwrap().wait().unwrap();
    let mut waiting = engine.admit(Request::new(6, 0)).unwrap();
    let waker = Waker::from(Arc::new(Joins(engine.clone())));
    assert!(!poll(&mut waiting, &waker));
    engine.close();
    engine.join();
    assert!(poll(&mut waiting, &waker));
}

#[test]
fn of_two_drains_the_shorter_limit_counts() {
    for _ in 0..200 {
        let engine = one_slot();
        let _running = engine.admit(Request::new(5, 0)).unwrap().wait().unwrap();
        let waiting = engine.admit(Request::new(6, 0)).unwrap();
        engine.drain(Duration::from_secs(3600));
        engine.drain(Duration::ZERO);
        engine.join();
        assert_eq!(waiting.wait().unwrap_err().reason, Reason::Closed { cause: None });
    }
}

#[test]
fn a_guard_that_panics_does_so_at_its_caller_and_nothing_is_queued() {
    let guard = |request: &Request| match request.tenant.as_deref() {
        Some("bad") => panic!("no such tenant"),
        _ => ClassChoice::AsAsked,
    };
    let engine = Engine::builder(profile(vec![class("only", 1)]))
        .workers(WorkerSnapshot::new(1, vec![worker(1)]).unwrap())
        .class_guard(guard)
        .start()
        .unwrap();
    let request =
        |tenant: &str| Request { tenant: Some(tenant.into()), ..Request::new(1, 0).with_class("only") };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.admit(request("bad")))).is_err());
    drop(engine.admit(request("good")).unwrap().wait().unwrap());
    assert_eq!(engine.snapshot().classes[0].submitted, 1);
}

#[test]
fn every_reason_has_a_code_of_its_own_a_retry_and_a_status() {
    let pin = Pinned { worker: WorkerId(1), rank: Some(0) };
    let limit = |kind| Reason::QueueLimit(LimitReached { class: "c".into(), kind, current: 1, limit: 1 });
    let invalid = Request { priority_jump: f64::NAN, ..Request::new(1, 0) }.snapshot(Default::default());
    let late = Reason::DeadlineExceeded { waited: Duration::ZERO, cause: WaitCause::Late };
    let table = [
        (Reason::Invalid(invalid.unwrap_err()), "invalid_request", Retry::Never, 400),
        (Reason::NoEndpoint { workers: 0 }, "no_endpoint", Retry::Later, 503),
        (Reason::AllOverloaded { endpoints: 1 }, "all_workers_overloaded", Retry::Later, 503),
        (Reason::PinOverloaded { pin }, "pinned_worker_overloaded", Retry::Later, 503),
        (Reason::PinNotAllowed { pin }, "pinned_worker_not_allowed", Retry::Never, 400),
        (Reason::PinUnavailable { pin }, "pinned_worker_unavailable", Retry::Later, 503),
        (
            Reason::PinRankOutOfRange { pin, first_rank: 0, ranks: 1 },
            "pinned_rank_out_of_range",
            Retry::Never,
            400,
        ),
        (Reason::TaintsUnsatisfiable { required: vec![] }, "taints_unsatisfiable", Retry::Later, 503),
        (limit(LimitKind::Requests), "queue_limit_requests", Retry::Later, 529),
        (limit(LimitKind::RawIslTokens), "queue_limit_raw_isl_tokens", Retry::Later, 529),
        (limit(LimitKind::CachedTokens), "queue_limit_cached_tokens", Retry::Later, 529),
        (Reason::IngressFull { class: "c".into(), capacity: 1 }, "ingress_full", Retry::Later, 529),
        (late, "deadline_exceeded", Retry::Later, 504),
        (Reason::SelectorFailed { message: "m".into() }, "selector_failed", Retry::Elsewhere, 500),
        (Reason::Closed { cause: None }, "closed", Retry::Elsewhere, 503),
    ];
    let codes: std::collections::HashSet<_> = table.iter().map(|(reason, ..)| reason.code()).collect();
    assert_eq!(codes.len(), table.len());
    for (reason, code, retry, status) in table {
        assert_eq!((reason.code(), reason.retry(), reason.http_status()), (code, retry, status), "{reason}");
    }
}
