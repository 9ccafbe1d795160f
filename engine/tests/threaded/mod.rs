//! What the tests of the threaded engine share.

#![allow(dead_code, unreachable_pub)] // each test file uses a part

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use tollgate::policy::{ClassSpec, PolicySpec, Profile};
use tollgate::{
    Admission, Booked, Candidates, ClassStatus, EndpointIndex, Engine, EngineBuilder, EngineSnapshot, Permit,
    Reason, Rejected, Request, Selector, Usage, Worker, WorkerSnapshot,
};

pub fn class(name: &str, quantum: u64) -> ClassSpec {
    ClassSpec::explicit(name, quantum)
}

/// A class for which a worker with any load is busy.
pub fn exclusive(name: &str, quantum: u64) -> ClassSpec {
    let mut class = class(name, quantum);
    class.busy.threshold_tokens = Some(0);
    class
}

pub fn worker(id: u64) -> Worker {
    Worker::new(id)
}

pub fn profile(classes: Vec<ClassSpec>) -> Profile {
    Profile::new(PolicySpec { classes, ..PolicySpec::default() }).unwrap()
}

/// A worker that may hold one permit.
pub fn one_slot(id: u64) -> Worker {
    Worker { max_active_requests: Some(1), ..worker(id) }
}

/// A running engine whose first snapshot has version 1.
pub fn engine(classes: Vec<ClassSpec>, workers: Vec<Worker>) -> Engine {
    Engine::builder(profile(classes)).workers(WorkerSnapshot::new(1, workers).unwrap()).start().unwrap()
}

/// How long a test waits for what must happen before it fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for all of `admissions`, in whatever order they are answered. Waiting for one after the other could wait
/// for ever: a permit that nobody has taken yet keeps its endpoint busy.
pub fn each_answer(admissions: &mut Vec<Admission>, mut answer: impl FnMut(Result<Permit, Rejected>)) {
    let mut waiting: Vec<_> = admissions.drain(..).map(|admission| ((), admission)).collect();
    while !waiting.is_empty() {
        answer(next_answer(&mut waiting).1);
    }
}

/// Waits for the next answer to any of `admissions`, which have names, and takes that one out.
pub fn next_answer<N>(admissions: &mut Vec<(N, Admission)>) -> (N, Result<Permit, Rejected>) {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    thread_local! {
        static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
    }
    let waker = WAKER.with(Waker::clone);
    let mut cx = Context::from_waker(&waker);
    let patience = Instant::now() + PATIENCE;
    loop {
        for i in 0..admissions.len() {
            if let Poll::Ready(result) = Pin::new(&mut admissions[i].1).poll(&mut cx) {
                return (admissions.remove(i).0, result);
            }
        }
        assert!(Instant::now() < patience, "{} requests wait without an answer", admissions.len());
        thread::park_timeout(PATIENCE);
    }
}

/// Admits a request as soon as the ingress has room for it; counts how often it had none.
pub fn admit(engine: &Engine, mut request: Request, full: &mut u64) -> Admission {
    loop {
        match engine.admit(request) {
            Ok(admission) => return admission,
            Err(Rejected { reason: Reason::IngressFull { .. }, request: back }) => request = back,
            Err(other) => panic!("{other}"),
        }
        *full += 1;
        thread::yield_now();
    }
}

/// The answer to a request, which must come.
pub fn answer(admission: Admission) -> Result<Permit, Rejected> {
    next_answer(&mut vec![((), admission)]).1
}

/// The permit of a request that must get one.
pub fn permit(admission: Admission) -> Permit {
    answer(admission).expect("dispatched")
}

/// Whether a request still waits for its answer. One that does not is used up.
pub fn waits(admission: &mut Admission) -> bool {
    Pin::new(admission).poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

/// Waits until a picture of the engine is as it must be at some time.
pub fn until(engine: &Engine, is: impl Fn(&EngineSnapshot) -> bool) -> EngineSnapshot {
    let patience = Instant::now() + PATIENCE;
    loop {
        let picture = engine.snapshot();
        if is(&picture) {
            return picture;
        }
        assert!(Instant::now() < patience, "this does not change any more: {picture:#?}");
        thread::yield_now();
    }
}

/// A picture of the engine in which everything that the caller has done before is seen, as long as it fits into one
/// turn: the turn that the first picture ends may have begun before.
pub fn settled(engine: &Engine) -> EngineSnapshot {
    engine.snapshot();
    engine.snapshot()
}

/// Waits until all requests have ended and nothing is booked, and checks the books.
pub fn at_rest(engine: &Engine) -> EngineSnapshot {
    let picture = until(engine, |picture| {
        let ended = |c: &ClassStatus| c.waiting.requests == 0 && c.submitted == c.ended();
        picture.classes.iter().all(ended)
            && picture.endpoints.iter().all(|e| e.booked == Booked::default() && e.waiting == 0)
    });
    balanced(&picture);
    picture
}

/// Checks the books of an engine in which nothing waits, or which has ended.
pub fn balanced(picture: &EngineSnapshot) {
    for c in &picture.classes {
        assert_eq!((c.waiting, c.oldest, c.deficit), (Usage::default(), None, 0), "{}", c.name);
        assert_eq!((c.submitted, c.dispatched), (c.ended(), c.waits.len()), "{}", c.name);
    }
}

/// An engine whose arbiter can be stopped, so that it sees everything that happens meanwhile in one turn.
///
/// The classes get company by one without thresholds, whose requests stop the arbiter when it selects a worker for
/// them; they cost next to nothing and make no load.
pub struct Braked {
    pub engine: Engine,
    stopped: mpsc::Receiver<()>,
    go_on: mpsc::Sender<()>,
}

/// Requests of this length stop the arbiter of a [`Braked`] engine.
const BRAKE: u64 = 999_983;

impl Braked {
    pub fn new(classes: Vec<ClassSpec>, workers: Vec<Worker>) -> Self {
        Self::built(classes, workers, |builder| builder)
    }

    /// The same with other settings of the engine.
    pub fn built(
        mut classes: Vec<ClassSpec>,
        workers: Vec<Worker>,
        build: impl FnOnce(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        struct Brake(mpsc::Sender<()>, mpsc::Receiver<()>);
        impl Selector for Brake {
            fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
                if candidates.snapshot().raw_isl_tokens() == BRAKE {
                    self.0.send(()).expect("the test is there");
                    self.1.recv().expect("the test lets go");
                }
                candidates.least_loaded()
            }
        }
        classes.push(class("brake", 1));
        let (stop, stopped) = mpsc::channel();
        let (go_on, went_on) = mpsc::channel();
        let builder = Engine::builder(profile(classes))
            .workers(WorkerSnapshot::new(1, workers).unwrap())
            .selector(Brake(stop, went_on));
        let engine = build(builder).start().unwrap();
        Self { engine, stopped, go_on }
    }

    /// Stops the arbiter, lets the caller do what the arbiter shall see at once, and lets it go on.
    pub fn at_once<R>(&self, happen: impl FnOnce() -> R) -> R {
        self.at_once_in("brake", happen).0
    }

    /// The same by a request of `class`, whose permit comes with the result.
    pub fn at_once_in<R>(&self, class: &str, happen: impl FnOnce() -> R) -> (R, Permit) {
        let brake = self.engine.admit(Request::new(BRAKE, BRAKE).with_class(class)).unwrap();
        self.stopped.recv_timeout(PATIENCE).expect("a worker is free for the brake");
        let result = happen();
        self.go_on.send(()).unwrap();
        (result, permit(brake))
    }
}

/// Waits until nothing is booked any more: permits that met no taker are released by the arbiter, a little later.
pub fn drained(engine: &Engine) {
    let patience = Instant::now() + PATIENCE;
    while engine.booked().iter().any(|(_, booked)| (booked.tokens, booked.permits) != (0, 0)) {
        assert!(Instant::now() < patience, "load is left: {:?}", engine.booked());
        thread::yield_now();
    }
}
