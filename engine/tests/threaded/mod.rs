//! What the tests of the threaded engine share.

#![allow(dead_code, unreachable_pub)] // each test file uses a part

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tollgate::policy::{ClassSpec, PolicySpec, Profile};
use tollgate::{Admission, Engine, Permit, Rejected, Worker, WorkerSnapshot};

pub fn class(name: &str, quantum: u64) -> ClassSpec {
    ClassSpec::explicit(name, quantum)
}

pub fn worker(id: u64) -> Worker {
    Worker::new(id)
}

pub fn profile(classes: Vec<ClassSpec>) -> Profile {
    Profile::new(PolicySpec { classes, ..PolicySpec::default() }).unwrap()
}

/// A running engine whose first snapshot has version 1.
pub fn engine(classes: Vec<ClassSpec>, workers: Vec<Worker>) -> Engine {
    Engine::builder(profile(classes)).workers(WorkerSnapshot::new(1, workers).unwrap()).start().unwrap()
}

/// Waits for all of `admissions`, in whatever order they are answered. Waiting for one after the other could wait
/// for ever: a permit that nobody has taken yet keeps its endpoint busy.
pub fn each_answer(admissions: &mut Vec<Admission>, mut answer: impl FnMut(Result<Permit, Rejected>)) {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    while !admissions.is_empty() {
        let before = admissions.len();
        admissions.retain_mut(|admission| match Pin::new(admission).poll(&mut cx) {
            Poll::Ready(result) => {
                answer(result);
                false
            }
            Poll::Pending => true,
        });
        if admissions.len() == before {
            thread::park();
        }
    }
}

/// Waits until nothing is booked any more: permits that met no taker are released by the arbiter, a little later.
pub fn drained(engine: &Engine) {
    let patience = Instant::now() + Duration::from_secs(60);
    while engine.booked().iter().any(|(_, booked)| (booked.tokens, booked.permits) != (0, 0)) {
        assert!(Instant::now() < patience, "load is left: {:?}", engine.booked());
        thread::yield_now();
    }
}
