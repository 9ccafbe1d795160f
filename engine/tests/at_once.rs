//! Requests that find nothing waiting at an engine whose callers assist: answered past the queues, as if they had been
//! through them.

mod counting;
mod threaded;

use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use counting::ALLOCATIONS;
use threaded::{at_rest, class, drained, exclusive, one_slot, permit, profile, waits, worker};
use tollgate::{
    Admission, CachedOn, Candidates, ClassChoice, EndpointIndex, Engine, EngineBuilder, Idle, LeastLoaded,
    Observed, Observer, Pin as PinTo, Reason, Request, Selector, Timestamp, Worker, WorkerId, WorkerSnapshot,
};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

fn built(workers: Vec<Worker>, build: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Engine {
    let builder = Engine::builder(profile(vec![exclusive("one", 4), class("any", 1)]))
        .workers(WorkerSnapshot::new(1, workers).unwrap())
        .idle(Idle::Assist);
    build(builder).start().unwrap()
}

fn engine() -> Engine {
    built(vec![worker(1)], |builder| builder)
}

fn request(class: &str) -> Request {
    Request::new(5, 0).with_class(class)
}

/// An admission that allocated nothing: it was in no queue. The first ones find the arbiter awake.
fn at_once(engine: &Engine, class: &str) -> Admission {
    let patience = Instant::now() + PATIENCE;
    loop {
        let request = request(class);
        let before = ALLOCATIONS.get();
        let admission = engine.admit(request).unwrap();
        if ALLOCATIONS.get() == before {
            return admission;
        }
        drop(permit(admission));
        assert!(Instant::now() < patience, "the arbiter never sleeps");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_request_that_is_answered_at_once_allocates_nothing_and_is_counted_as_any_other() {
    let engine = engine();
    let permits: Vec<_> = (0..10).map(|_| permit(at_once(&engine, "any"))).collect();
    for permit in &permits {
        assert_eq!((permit.endpoint().worker, permit.cost(), permit.booked_tokens()), (WorkerId(1), 5, 5));
        assert_eq!(permit.waited(), Duration::ZERO);
        assert_eq!(engine.class_name(permit.class()).as_deref(), Some("any"));
    }
    assert_eq!(engine.booked()[0].1.permits, 10);
    drop(permits);
    let any = &at_rest(&engine).classes[1];
    assert!(any.dispatched >= 10);
    assert_eq!((any.submitted, any.dispatched_tokens), (any.dispatched, 5 * any.dispatched));
    assert_eq!(any.waits.len(), any.dispatched);
    assert_eq!(any.waits.min(), 0);
    drained(&engine);
}

#[test]
fn a_release_makes_room_for_an_answer_at_once() {
    let engine = engine();
    for _ in 0..100 {
        drop(permit(at_once(&engine, "one")));
    }
    drained(&engine);
}

#[test]
fn an_answer_at_once_that_nobody_takes_gives_its_place_back() {
    let engine = engine();
    for _ in 0..10 {
        at_once(&engine, "one").cancel();
    }
    let mut admission = Box::pin(at_once(&engine, "one"));
    assert!(matches!(admission.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(_))));
    drop(admission);
    drained(&engine);
}

#[test]
#[should_panic = "polled after it was ready"]
fn an_answer_at_once_is_taken_once() {
    let engine = engine();
    let mut admission = Box::pin(at_once(&engine, "one"));
    for _ in 0..2 {
        let _ = admission.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
}

#[test]
fn an_error_at_once_gives_the_request_back() {
    let overloaded = Worker { overloaded: true, ..worker(2) };
    let engine = built(vec![worker(1), overloaded], |builder| builder);
    for _ in 0..50 {
        thread::sleep(Duration::from_micros(200));
        for (worker, expected) in [(2, "pinned_worker_overloaded"), (7, "pinned_worker_unavailable")] {
            let pin = Some(PinTo { worker: WorkerId(worker), rank: None });
            let rejected = engine.admit(Request { pin, ..request("any") }).unwrap().wait().unwrap_err();
            assert_eq!((rejected.reason.code(), rejected.request.pin), (expected, pin));
            assert_eq!(rejected.request.class.as_deref(), Some("any"));
        }
    }
    let picture = at_rest(&engine);
    assert_eq!((picture.classes[1].failed, picture.classes[1].submitted), (100, 100));
    drained(&engine);
}

#[test]
fn a_request_that_would_have_to_wait_waits() {
    let engine = engine();
    for _ in 0..20 {
        let running = permit(at_once(&engine, "one"));
        let mut next = engine.admit(request("one")).unwrap();
        assert!(waits(&mut next));
        // One that could go is arbitrated with what waits.
        let before = ALLOCATIONS.get();
        let other = engine.admit(request("any")).unwrap();
        assert_ne!(ALLOCATIONS.get(), before, "it went past the queues");
        drop(permit(other));
        drop(running);
        drop(permit(next));
    }
    drained(&engine);
}

#[test]
fn an_answer_at_once_goes_by_the_newest_policy_and_workers() {
    let engine = engine();
    for version in 2..20 {
        drop(permit(at_once(&engine, "any")));
        engine.publish(WorkerSnapshot::new(version, vec![worker(version)]).unwrap()).unwrap();
        let next = permit(at_once(&engine, "any"));
        assert_eq!(next.endpoint().worker, WorkerId(version));
        let name = format!("v{version}");
        engine.reload(profile(vec![class(&name, 1), class("any", 1)]));
        assert_eq!(engine.class_name(permit(at_once(&engine, &name)).class()).as_deref(), Some(&*name));
    }
    drained(&engine);
}

#[test]
fn nothing_is_answered_at_once_after_the_end_has_begun() {
    for ends in [(|engine| engine.close()) as fn(&Engine), |engine| engine.drain(PATIENCE)] {
        let engine = engine();
        let running = permit(at_once(&engine, "one"));
        ends(&engine);
        assert_eq!(engine.admit(request("any")).unwrap_err().reason, Reason::Closed { cause: None });
        engine.join();
        drop(running);
        assert_eq!(engine.booked()[0].1.permits, 0);
    }
}

/// Tells where each request went.
struct Tells(Sender<(Duration, Option<WorkerId>)>);

impl Observer for Tells {
    fn dispatched(&mut self, request: &Observed<'_>, endpoint: tollgate::Endpoint) {
        let _ = self.0.send((request.waited, Some(endpoint.worker)));
    }

    fn left(&mut self, request: &Observed<'_>, _: Option<&Reason>) {
        let _ = self.0.send((request.waited, None));
    }
}

#[test]
fn observers_hear_of_answers_at_once() {
    let (sender, told) = channel();
    let engine = built(vec![worker(1)], |builder| builder.observer(Tells(sender)));
    let running = permit(at_once(&engine, "any"));
    assert_eq!(told.try_iter().last(), Some((Duration::ZERO, Some(WorkerId(1)))));
    drop(running);
    let pin = Some(PinTo { worker: WorkerId(9), rank: None });
    engine.admit(Request { pin, ..request("any") }).unwrap().wait().unwrap_err();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap().1, None);
    drained(&engine);
}

/// Uses what its class has cached, as a request that waits does.
#[test]
fn an_answer_at_once_books_what_its_endpoint_has_to_compute() {
    let engine = built(vec![worker(1), worker(2)], |builder| builder);
    drop(permit(at_once(&engine, "any")));
    let cached_on = Some(vec![CachedOn { worker: WorkerId(2), tokens: 4 }].into());
    let request = Request { cached_on, cached_tokens: 4, ..request("any") };
    let permit = permit(engine.admit(request).unwrap());
    assert_eq!((permit.endpoint().worker, permit.booked_tokens()), (WorkerId(2), 1));
    drop(permit);
    drained(&engine);
}

/// Takes its time, and tells when the request came in.
struct Slow(Duration, Sender<Timestamp>);

impl Selector for Slow {
    fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
        thread::sleep(self.0);
        let _ = self.1.send(candidates.snapshot().arrival());
        LeastLoaded.select(candidates)
    }
}

#[test]
fn a_selector_may_ask_for_the_arrival_and_is_found_out_if_it_is_slow() {
    const LONG: Duration = Duration::from_millis(20);
    let (sender, arrivals) = channel();
    let engine = built(vec![worker(1)], |builder| builder.selector(Slow(LONG, sender)));
    for _ in 0..5 {
        drop(permit(at_once(&engine, "any")));
    }
    let arrivals: Vec<_> = arrivals.try_iter().collect();
    assert!(arrivals.is_sorted() && arrivals[0] < arrivals[4], "{arrivals:?}");
    assert!(at_rest(&engine).arbiter.longest_turn >= LONG);
}

#[test]
fn the_time_of_a_class_guard_counts() {
    const LONG: Duration = Duration::from_millis(20);
    let guard = |_: &Request| {
        thread::sleep(LONG);
        ClassChoice::AsAsked
    };
    let engine = built(vec![worker(1)], |builder| builder.class_guard(guard));
    for _ in 0..5 {
        assert!(permit(engine.admit(request("any")).unwrap()).waited() >= LONG);
        let deadline = Some(LONG / 4);
        let late = engine.admit(Request { deadline, ..request("any") }).unwrap().wait().unwrap_err();
        assert!(matches!(late.reason, Reason::DeadlineExceeded { waited, .. } if waited >= LONG), "{late:?}");
    }
    drained(&engine);
}

/// A waker that does something, once.
struct Does(Mutex<Option<Box<dyn FnOnce() + Send>>>);

impl Wake for Does {
    fn wake(self: Arc<Self>) {
        let does = self.0.lock().unwrap().take();
        if let Some(does) = does {
            does();
        }
    }
}

/// Who works for one engine admits to another one by its queue, and leaves the turn to its arbiter. The next request of this
/// thread may find the desk free, and that one still in the queue.
#[test]
fn no_request_overtakes_an_earlier_one_of_its_thread() {
    for _ in 0..200 {
        let first = built(vec![one_slot(1)], |builder| builder);
        let second = engine();
        drop(permit(at_once(&second, "one")));
        let running = permit(first.admit(request("any")).unwrap());
        let mut next = first.admit(request("any")).unwrap();
        let (sender, admitted) = channel();
        let engine = second.clone();
        let does: Box<dyn FnOnce() + Send> = Box::new(move || {
            sender.send((thread::current().id(), engine.admit(request("one")).unwrap())).unwrap()
        });
        let waker = Waker::from(Arc::new(Does(Mutex::new(Some(does)))));
        let pending = Pin::new(&mut next).poll(&mut Context::from_waker(&waker)).is_pending();
        assert!(pending, "one at a time");
        drop(running);
        let (admitted_on, earlier) = admitted.recv_timeout(PATIENCE).unwrap();
        if admitted_on == thread::current().id() {
            let mut later = second.admit(request("one")).unwrap();
            drop(permit(earlier));
            while waits(&mut later) {
                thread::yield_now();
            }
        } else {
            drop(permit(earlier));
        }
        drop(next);
        drained(&second);
    }
}
