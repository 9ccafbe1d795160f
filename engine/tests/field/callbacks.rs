//! Code of the caller that runs on the arbiter's thread.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

use tollgate::{Admission, Candidates, EndpointIndex, Engine, Reason, Selector, WorkerId, WorkerSnapshot};

use crate::common::tokens;
use crate::threaded::{answer, at_rest, engine, exclusive, one_slot, permit, profile, until, waits};

/// Panics when it is dropped.
struct Fragile;

impl Drop for Fragile {
    fn drop(&mut self) {
        resume_unwind(Box::new("in a drop"));
    }
}

fn poll(admission: &mut Admission, waker: &Waker) -> bool {
    Pin::new(admission).poll(&mut Context::from_waker(waker)).is_pending()
}

/// The last to let go of a caller's waker may be the arbiter.
#[test]
fn a_panic_in_the_drop_of_a_waker_ended_the_engine() {
    struct Dear(Fragile); // only dropped
    impl Wake for Dear {
        fn wake(self: Arc<Self>) {}
    }
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut leaves = engine.admit(tokens(2)).unwrap();
    let waker = Waker::from(Arc::new(Dear(Fragile)));
    assert!(poll(&mut leaves, &waker));
    // From now on the ticket alone holds it.
    drop(waker);
    drop(leaves);
    until(&engine, |p| p.classes[0].waiting.requests == 0);
    let mut next = engine.admit(tokens(3)).expect("the engine is open");
    assert!(waits(&mut next));
    drop(plug);
    assert_eq!(answer(next).map_err(|r| r.reason).map(|p| p.endpoint().worker), Ok(WorkerId(1)));
}

/// A waker that waits for the end of the engine, as does another thread.
#[test]
fn the_end_was_waited_for_by_the_one_who_brings_it() {
    struct Joins(Engine);
    impl Wake for Joins {
        fn wake(self: Arc<Self>) {
            self.0.join();
        }
    }
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut waiting = engine.admit(tokens(2)).unwrap();
    let waker = Waker::from(Arc::new(Joins(engine.clone())));
    assert!(poll(&mut waiting, &waker));
    let (ended, end) = mpsc::channel();
    let other = engine.clone();
    thread::spawn(move || {
        other.join();
        ended.send(()).unwrap();
    });
    thread::sleep(Duration::from_millis(50));
    engine.close();
    let joined = end.recv_timeout(Duration::from_secs(5));
    if joined.is_err() {
        // Nor would the drop of these come to an end.
        std::mem::forget((engine, waker, waiting, plug));
    }
    assert_eq!(joined, Ok(()));
}

#[test]
fn a_picture_asked_for_by_a_waker_was_waited_for_for_ever() {
    struct Looks(Engine, mpsc::Sender<bool>);
    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            // The arbiter cannot wait for itself: asking there is a mistake that panics at once.
            let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.0.snapshot()));
            self.1.send(looked.is_ok()).unwrap();
        }
    }
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut waiting = engine.admit(tokens(2)).unwrap();
    let (saw, seen) = mpsc::channel();
    let waker = Waker::from(Arc::new(Looks(engine.clone(), saw)));
    assert!(poll(&mut waiting, &waker));
    drop(plug);
    let seen = seen.recv_timeout(Duration::from_secs(5));
    assert_eq!(seen, Ok(false));
    assert_eq!(engine.snapshot().classes.len(), 1);
}

#[test]
fn what_a_selector_panicked_with_ended_the_engine() {
    struct Angry(bool);
    impl Selector for Angry {
        fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
            if std::mem::replace(&mut self.0, false) {
                resume_unwind(Box::new(Fragile));
            }
            candidates.least_loaded()
        }
    }
    let engine = Engine::builder(profile(vec![exclusive("only", 1)]))
        .workers(WorkerSnapshot::new(1, vec![one_slot(1)]).unwrap())
        .selector(Angry(true))
        .start()
        .unwrap();
    let reason = answer(engine.admit(tokens(1)).unwrap()).unwrap_err().reason;
    assert_eq!(reason, Reason::SelectorFailed { message: "panicked".into() });
    drop(permit(engine.admit(tokens(1)).expect("the engine is open")));
    at_rest(&engine);
}

/// The last owner of the engine is a waker, which the arbiter lets go of.
#[test]
fn an_engine_dropped_by_its_own_arbiter_did_not_end() {
    struct Owns(Engine);
    impl Wake for Owns {
        fn wake(self: Arc<Self>) {
            let _profile = self.0.profile();
        }
    }
    let engine = engine(vec![exclusive("only", 1)], vec![one_slot(1)]);
    let plug = permit(engine.admit(tokens(1)).unwrap());
    let mut first = engine.admit(tokens(2)).unwrap();
    let second = engine.admit(tokens(2)).unwrap();
    assert!(poll(&mut first, &Waker::from(Arc::new(Owns(engine)))));
    drop(first);
    assert_eq!(answer(second).map_err(|r| r.reason).map(drop), Err(Reason::Closed { cause: None }));
    drop(plug);
}
