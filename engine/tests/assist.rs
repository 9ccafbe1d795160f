//! An engine whose callers assist: what they do on their own threads, and what that must not change.

mod threaded;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use threaded::{at_rest, class, drained, exclusive, permit, profile, waits, worker};
use tollgate::{
    Admission, Candidates, EndpointIndex, Engine, Idle, LeastLoaded, Permit, Reason, Request, Selector,
    WorkerSnapshot,
};

/// How long a test waits for what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

/// Tells the thread of each selection.
struct Where(Sender<ThreadId>);

impl Selector for Where {
    fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
        // A test that is over does not listen any more.
        let _ = self.0.send(thread::current().id());
        LeastLoaded.select(candidates)
    }
}

/// An engine with a class for which the only worker is busy with any load, and one for which it never is; the threads
/// of its selections.
fn engine() -> (Engine, Receiver<ThreadId>) {
    let (sender, selections) = channel();
    let engine = Engine::builder(profile(vec![exclusive("one", 1), class("any", 1)]))
        .workers(WorkerSnapshot::new(1, vec![worker(1)]).unwrap())
        .selector(Where(sender))
        .idle(Idle::Assist)
        .start()
        .unwrap();
    (engine, selections)
}

fn admit(engine: &Engine, class: &str) -> Admission {
    engine.admit(Request::new(5, 0).with_class(class)).unwrap()
}

/// A permit, and a request that waits for it to be released.
fn behind_a_permit(engine: &Engine) -> (Permit, Admission) {
    let running = permit(admit(engine, "one"));
    let mut next = admit(engine, "one");
    assert!(waits(&mut next));
    (running, next)
}

/// Does `f` with what `prepare` makes, again and again until this thread has made a selection in it, which takes an
/// arbiter that sleeps.
fn assisted<P, T>(selections: &Receiver<ThreadId>, prepare: impl Fn() -> P, f: impl Fn(P) -> T) -> T {
    let patience = Instant::now() + PATIENCE;
    loop {
        let prepared = prepare();
        // It goes to sleep, most probably.
        thread::sleep(Duration::from_millis(1));
        selections.try_iter().for_each(drop);
        let done = f(prepared);
        if selections.try_iter().any(|id| id == thread::current().id()) {
            return done;
        }
        assert!(Instant::now() < patience, "the arbiter never sleeps");
    }
}

#[test]
fn a_request_that_finds_room_has_its_answer_when_admit_returns() {
    let (engine, selections) = engine();
    let mut admission = assisted(&selections, || (), |()| admit(&engine, "any"));
    assert!(!waits(&mut admission));
    drained(&engine);
}

#[test]
fn a_release_answers_the_next_request_on_its_own_thread() {
    let (engine, selections) = engine();
    let release = |(running, next)| {
        drop(running);
        next
    };
    let mut next = assisted(&selections, || behind_a_permit(&engine), release);
    assert!(!waits(&mut next));
    drained(&engine);
}

#[test]
fn a_release_that_nobody_waits_for_is_seen_by_the_next_request() {
    let (engine, _) = engine();
    for _ in 0..10_000 {
        let running = permit(admit(&engine, "one"));
        drop(running);
    }
    assert_eq!(at_rest(&engine).classes[0].dispatched, 10_000);
}

/// More than one turn dispatches.
#[test]
fn a_release_lets_all_go_that_wait_for_it() {
    let (engine, _) = engine();
    for _ in 0..10 {
        let running = permit(admit(&engine, "one"));
        let small = || engine.admit(Request::new(0, 0).with_class("one")).unwrap();
        let mut waiting: Vec<_> = (0..1_500).map(|_| small()).collect();
        drop(running);
        threaded::each_answer(&mut waiting, |answer| drop(answer.unwrap()));
    }
    drained(&engine);
}

#[test]
fn a_request_whose_time_is_over_ends_though_nobody_calls() {
    let (engine, _) = engine();
    let running = permit(admit(&engine, "one"));
    for millis in [20, 5, 1] {
        let deadline = Some(Duration::from_millis(millis));
        let late = engine.admit(Request { deadline, ..Request::new(5, 0).with_class("one") }).unwrap();
        let rejected = late.wait().unwrap_err();
        assert!(matches!(rejected.reason, Reason::DeadlineExceeded { .. }), "{}", rejected.reason);
    }
    drop(running);
    drained(&engine);
}

/// Requests that wait with ever earlier deadlines: each has to move the alarm.
#[test]
fn an_earlier_deadline_is_kept_whoever_takes_it_in() {
    let (engine, _) = engine();
    let running = permit(admit(&engine, "one"));
    let admissions: Vec<_> = (0..20)
        .map(|i| {
            let deadline = Some(if i == 19 { Duration::from_millis(1) } else { PATIENCE * (20 - i) });
            engine.admit(Request { deadline, ..Request::new(5, 0).with_class("one") }).unwrap()
        })
        .collect();
    let mut admissions = admissions.into_iter().rev();
    assert!(admissions.next().unwrap().wait().is_err());
    admissions.for_each(Admission::cancel);
    drop(running);
    drained(&engine);
}

#[test]
fn a_drain_ends_though_nobody_calls() {
    let (engine, _) = engine();
    let (running, next) = behind_a_permit(&engine);
    engine.drain(Duration::from_millis(20));
    assert_eq!(next.wait().unwrap_err().reason, Reason::Closed { cause: None });
    engine.join();
    drop(running);
}

/// Does something when it is woken, once, and says so.
struct Does(Mutex<Option<Box<dyn FnOnce() + Send>>>, Sender<ThreadId>);

impl Wake for Does {
    fn wake(self: Arc<Self>) {
        let does = self.0.lock().unwrap().take();
        if let Some(does) = does {
            does();
            let _ = self.1.send(thread::current().id());
        }
    }
}

/// Lets a request be answered by a release on this thread, with a waker that does what `make` makes in the middle of
/// that turn.
fn in_the_middle_of_a_turn(make: impl Fn(&Engine) -> Box<dyn FnOnce() + Send>) -> (Engine, Admission) {
    let patience = Instant::now() + PATIENCE;
    loop {
        let (engine, _) = engine();
        let (running, mut next) = behind_a_permit(&engine);
        let (sender, done) = channel();
        let waker = Waker::from(Arc::new(Does(Mutex::new(Some(make(&engine))), sender)));
        assert!(Pin::new(&mut next).poll(&mut Context::from_waker(&waker)).is_pending());
        thread::sleep(Duration::from_millis(1));
        drop(running);
        let id = done.recv_timeout(PATIENCE).expect("the waker comes to its end");
        if id == thread::current().id() {
            return (engine, next);
        }
        assert!(Instant::now() < patience, "the arbiter never sleeps");
    }
}

#[test]
fn a_waker_in_an_assisted_turn_may_admit_cancel_release_and_change_everything() {
    let (sender, admitted) = channel();
    let (engine, next) = in_the_middle_of_a_turn(|engine| {
        // Without a load, which would keep the request waiting.
        let running = permit(engine.admit(Request::new(0, 0).with_class("any")).unwrap());
        let (engine, sender) = (engine.clone(), sender.clone());
        Box::new(move || {
            admit(&engine, "one").cancel();
            let mut late = admit(&engine, "any");
            assert!(waits(&mut late), "whoever makes the turn is in the middle of it");
            sender.send(late).unwrap();
            drop(running);
            engine.publish(WorkerSnapshot::new(2, vec![worker(1), worker(2)]).unwrap()).unwrap();
            engine.reload(profile(vec![exclusive("one", 2), class("any", 2)]));
        })
    });
    drop(permit(next));
    drop(sender);
    drop(permit(admitted.iter().last().expect("sent in the last of the turns")));
    drained(&engine);
}

#[test]
fn a_waker_in_an_assisted_turn_waits_neither_for_the_end_nor_for_a_picture() {
    let (engine, next) = in_the_middle_of_a_turn(|engine| {
        let engine = engine.clone();
        Box::new(move || {
            assert!(catch_unwind(AssertUnwindSafe(|| engine.snapshot())).is_err());
            engine.close();
            // The arbiter ends only after this turn.
            engine.join();
        })
    });
    drop(permit(next));
    engine.join();
    drained(&engine);
}

#[test]
fn a_waker_in_an_assisted_turn_may_drop_the_last_clone() {
    let (engine, _) = engine();
    let (running, mut next) = behind_a_permit(&engine);
    let monitor = engine.monitor();
    let waker = Waker::from(Arc::new(Does(Mutex::new(Some(Box::new(move || drop(engine)))), channel().0)));
    assert!(Pin::new(&mut next).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    thread::sleep(Duration::from_millis(1));
    drop(running);
    drop(permit(next));
    // If this thread has made the turn, the drop has not waited for the end.
    assert_eq!(monitor.snapshot().classes[0].dispatched, 2);
}

#[test]
fn a_thread_that_unwinds_leaves_the_turn_to_the_arbiter() {
    let (engine, selections) = engine();
    for _ in 0..20 {
        let (running, next) = behind_a_permit(&engine);
        thread::sleep(Duration::from_millis(1));
        selections.try_iter().for_each(drop);
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _running = running;
            panic!("for a reason of its own");
        }));
        assert!(unwound.is_err());
        drop(permit(next));
        assert!(selections.try_iter().all(|id| id != thread::current().id()));
    }
    drained(&engine);
}

#[test]
fn two_engines_that_wake_each_other_do_not_nest() {
    let ((first, _), (second, selections)) = (engine(), engine());
    for _ in 0..20 {
        let (running, mut next) = behind_a_permit(&first);
        let (other_running, mut other) = behind_a_permit(&second);
        let (sender, done) = channel();
        let does = Box::new(move || drop(other_running));
        let waker = Waker::from(Arc::new(Does(Mutex::new(Some(does)), sender)));
        assert!(Pin::new(&mut next).poll(&mut Context::from_waker(&waker)).is_pending());
        thread::sleep(Duration::from_millis(1));
        selections.try_iter().for_each(drop);
        drop(running);
        let woken_on = done.recv_timeout(PATIENCE).expect("the waker comes to its end");
        while waits(&mut other) {
            thread::yield_now();
        }
        if woken_on == thread::current().id() {
            assert!(selections.try_iter().all(|id| id != woken_on), "a turn inside of a turn");
        }
        assert!(matches!(
            Pin::new(&mut next).poll(&mut Context::from_waker(Waker::noop())),
            Poll::Ready(Ok(_))
        ));
    }
    for engine in [first, second] {
        drained(&engine);
    }
}
