//! The worker, and how a request comes to it.
//!
//! No thread waits for a permit. An ingress thread hands a request to the engine with [`Waiter::admit`] and polls
//! the admission once, so that the engine knows whom to wake. To wake a [`Waiter`] is to put it into the worker's
//! queue; the worker takes the permit out of it as soon as it has a slot. So there is one hand-off between the arbiter
//! and the worker, and it is the engine's own wake-up.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use tollgate::{Admission, Engine, Permit, Rejected, Request};

/// What a worker is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkerSpec {
    /// Requests that it serves at the same time.
    pub slots: usize,
    /// Time that a request takes in its slot.
    pub service: Duration,
}

/// What became of a request. Outcomes come in the order in which they happened.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Number of its class in the experiment.
    pub class: usize,
    /// When.
    pub at: Instant,
    /// Completed: how long it had waited for its permit. Else: why it was refused.
    pub result: Result<Duration, Rejected>,
}

/// A worker with a fixed number of slots and one queue: whoever has a permit and finds no free slot waits in it,
/// first come, first served. Every service takes the same time, so requests are completed in the order in which they
/// got their slots.
///
/// It ends when every [`Waiter`] is gone.
#[derive(Debug)]
pub struct MockWorker {
    thread: JoinHandle<()>,
    queue: Sender<Arc<Waiter>>,
}

impl MockWorker {
    /// Starts the worker. Every request's outcome comes out of the channel.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(spec: WorkerSpec) -> io::Result<(Self, Receiver<Outcome>)> {
        let (queue, ready) = unbounded();
        let (outcomes, results) = unbounded();
        let thread = thread::Builder::new().name("worker".into());
        let thread = thread.spawn(move || work(spec, &ready, &outcomes))?;
        Ok((Self { thread, queue }, results))
    }

    /// A waiter for one request of a class.
    pub fn waiter(&self, class: usize) -> Arc<Waiter> {
        Arc::new(Waiter { class, state: Mutex::new(State::Over), queue: self.queue.clone() })
    }

    /// Waits until the worker has ended.
    ///
    /// # Panics
    /// If the worker panicked.
    pub fn join(self) {
        drop(self.queue);
        self.thread.join().expect("the worker does not panic");
    }
}

/// A request in a slot.
struct Service {
    class: usize,
    permit: Permit,
    end: Instant,
}

/// The worker's thread.
fn work(spec: WorkerSpec, ready: &Receiver<Arc<Waiter>>, outcomes: &Sender<Outcome>) {
    let mut slots = VecDeque::with_capacity(spec.slots.min(1_024));
    loop {
        let next = match slots.front() {
            None => ready.recv().map_err(|_| None),
            Some(Service { end, .. }) if slots.len() == spec.slots => Err(Some(*end)),
            Some(Service { end, .. }) => ready.recv_deadline(*end).map_err(|_| Some(*end)),
        };
        match next {
            Ok(waiter) => slots.extend(waiter.begin(spec.service, outcomes)),
            Err(Some(end)) => {
                thread::sleep(end.saturating_duration_since(Instant::now()));
                slots.pop_front().into_iter().for_each(|service| service.complete(outcomes));
            }
            Err(None) => return,
        }
    }
}

impl Service {
    /// All of the service was prefill, and there is nothing after it.
    fn complete(self, outcomes: &Sender<Outcome>) {
        let Self { class, mut permit, .. } = self;
        report(outcomes, class, Ok(permit.waited()));
        permit.prefill_complete();
    }
}

fn report(outcomes: &Sender<Outcome>, class: usize, result: Result<Duration, Rejected>) {
    // Nobody listens any more if the run was given up.
    drop(outcomes.send(Outcome { class, at: Instant::now(), result }));
}

/// A request on its way to the worker.
pub struct Waiter {
    class: usize,
    state: Mutex<State>,
    queue: Sender<Arc<Waiter>>,
}

enum State {
    /// The engine has the request.
    Waiting(Admission),
    /// The engine's answer, in the worker's queue.
    Ready(Result<Permit, Rejected>),
    /// Not admitted yet, or already served.
    Over,
}

impl Waiter {
    /// Hands the request to the engine and returns at once; when the permit is there, the waiter goes to the worker.
    pub fn admit(self: Arc<Self>, engine: &Engine, request: Request) {
        let mut state = self.state.lock().expect(UNPOISONED);
        let answer = match engine.admit(request) {
            Ok(mut admission) => match self.poll(&mut admission) {
                Poll::Pending => {
                    *state = State::Waiting(admission);
                    return;
                }
                Poll::Ready(answer) => answer,
            },
            Err(rejected) => Err(rejected),
        };
        *state = State::Ready(answer);
        drop(state);
        self.wake();
    }

    /// Whether the request is in a slot, or has been.
    pub fn is_over(&self) -> bool {
        matches!(*self.state.lock().expect(UNPOISONED), State::Over)
    }

    fn poll(self: &Arc<Self>, admission: &mut Admission) -> Poll<Result<Permit, Rejected>> {
        let waker = Waker::from(self.clone());
        Pin::new(admission).poll(&mut Context::from_waker(&waker))
    }

    /// The engine's answer, if it is there; it can be taken once.
    fn take(self: &Arc<Self>) -> Option<Result<Permit, Rejected>> {
        let mut state = self.state.lock().expect(UNPOISONED);
        if let State::Waiting(admission) = &mut *state {
            let Poll::Ready(answer) = self.poll(admission) else { return None };
            *state = State::Over;
            return Some(answer);
        }
        match std::mem::replace(&mut *state, State::Over) {
            State::Ready(answer) => Some(answer),
            _ => None,
        }
    }

    /// Gives the request a slot if it has a permit. A waiter that was woken too early or twice is left alone.
    fn begin(self: Arc<Self>, service: Duration, outcomes: &Sender<Outcome>) -> Option<Service> {
        match self.take()? {
            Ok(permit) => Some(Service { class: self.class, permit, end: Instant::now() + service }),
            Err(rejected) => {
                report(outcomes, self.class, Err(rejected));
                None
            }
        }
    }
}

const UNPOISONED: &str = "whoever holds the state does not panic";

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        let queue = self.queue.clone();
        // Without the worker there is nobody to serve it.
        drop(queue.send(self));
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("class", &self.class).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tollgate::policy::Profile;
    use tollgate::{Worker, WorkerSnapshot};

    use super::*;

    fn engine() -> Engine {
        let workers = WorkerSnapshot::new(1, vec![Worker::new(1)]).unwrap();
        Engine::builder(Profile::synthetic(None, Default::default())).workers(workers).start().unwrap()
    }

    #[test]
    fn every_request_has_one_outcome_however_often_it_is_woken() {
        let engine = engine();
        let spec = WorkerSpec { slots: 2, service: Duration::ZERO };
        let (worker, outcomes) = MockWorker::start(spec).unwrap();
        for class in 0..5 {
            let waiter = worker.waiter(class);
            waiter.clone().wake();
            waiter.clone().admit(&engine, Request::new(8, 0));
            waiter.clone().wake();
            waiter.wake();
        }
        drop(worker.waiter(9));
        let served: Vec<_> = outcomes.iter().take(5).map(|o| (o.class, o.result.is_ok())).collect();
        assert_eq!(served, [(0, true), (1, true), (2, true), (3, true), (4, true)]);
        drop(engine);
        worker.join();
        assert_eq!(outcomes.iter().count(), 0);
    }

    #[test]
    fn a_refused_request_is_reported_and_takes_no_slot() {
        let engine = engine();
        engine.close();
        let (worker, outcomes) = MockWorker::start(WorkerSpec { slots: 1, service: Duration::MAX }).unwrap();
        for class in [3, 4] {
            worker.waiter(class).admit(&engine, Request::new(8, 0));
        }
        let refused: Vec<_> = outcomes.iter().take(2).map(|o| (o.class, o.result.is_err())).collect();
        assert_eq!(refused, [(3, true), (4, true)]);
        drop(engine);
        worker.join();
    }
}
