//! One run: all requests released at once, and the order in which they complete.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use hdrhistogram::Histogram;
use tollgate::policy::Profile;
use tollgate::{Engine, Request, Scheduler, Timestamp, Worker, WorkerError, WorkerSnapshot};

use super::error::RunError;
use super::worker::{MockWorker, Outcome, WorkerSpec};

/// Longest silence before a run is given up, besides the time that the worker takes. Guessed: far above what a busy
/// machine takes to run a thread.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// What is offered to the engine in each run.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Classes or families that the requests ask for.
    pub classes: Vec<Arc<str>>,
    /// Requests of each class.
    pub requests: usize,
    /// Uncached prompt of each request \[tokens\].
    pub cost: u64,
    /// Ingress threads.
    pub threads: usize,
    /// The only worker.
    pub worker: WorkerSpec,
    /// Requests go over HTTP, and each has a connection instead of a share of a thread.
    pub http: bool,
}

impl Workload {
    /// Requests of all classes.
    pub fn total(&self) -> usize {
        self.requests * self.classes.len()
    }
}

/// What happened in a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Number of the class of each completed request, in the order of completion.
    pub completions: Vec<usize>,
    /// Requests of each class.
    pub requests: usize,
    /// Time from arrival to dispatch of the completed requests, by class \[µs\].
    pub waited: Vec<Histogram<u64>>,
    /// Refused requests by class.
    pub refused: Vec<usize>,
    /// From the first admission to the last completion.
    pub elapsed: Duration,
}

impl Run {
    /// Runs the workload once under `profile`. `completed` is called for every request that is over.
    ///
    /// # Errors
    /// The engine or a thread does not start, or a request is neither completed nor refused.
    pub fn measure(
        profile: &Arc<Profile>,
        load: &Workload,
        completed: impl FnMut(),
    ) -> Result<Self, RunError> {
        let engine = Engine::builder(profile.clone())
            .workers(one_worker()?)
            .ingress_capacity(load.requests * load.classes.len())
            .start()?;
        let (worker, outcomes) = MockWorker::start(load.worker)?;
        let order = order(load);
        let (first, rest) = order.split_at(at_once(profile, load, &order)?);
        let gate = Arc::new(Barrier::new(load.threads + 1));
        let mut ingress = Vec::with_capacity(load.threads);
        for thread in 0..load.threads {
            let share: Vec<_> =
                share(load, rest, thread).map(|class| (worker.waiter(class), request(load, class))).collect();
            let (engine, gate) = (engine.clone(), gate.clone());
            ingress.push(thread::Builder::new().name(format!("ingress-{thread}")).spawn(move || {
                gate.wait(); // ready
                gate.wait(); // released
                for (waiter, request) in share {
                    waiter.admit(&engine, request);
                }
            })?);
        }
        gate.wait();
        let start = Instant::now();
        fill(load, &engine, &worker, first);
        gate.wait();
        let (mut run, end) = Self::collect(load, &outcomes, completed)?;
        run.elapsed = end.saturating_duration_since(start);
        for thread in ingress {
            thread.join().expect("an ingress thread does not panic");
        }
        // The arbiter holds the last waiters, and with them the worker's queue.
        drop(engine);
        worker.join();
        Ok(run)
    }

    /// A run in which nothing has happened yet.
    pub(super) fn new(load: &Workload) -> Self {
        Self {
            completions: Vec::with_capacity(load.total()),
            requests: load.requests,
            waited: load.classes.iter().map(|_| Histogram::new(3).expect("3 digits are allowed")).collect(),
            refused: vec![0; load.classes.len()],
            elapsed: Duration::ZERO,
        }
    }

    /// A request of `class` is completed.
    pub(super) fn completed(&mut self, class: usize, waited: Duration) {
        self.completions.push(class);
        self.waited[class].record(waited.as_micros() as u64).expect("the histogram grows");
    }

    /// Collects the outcome of every request, and when the last one was.
    fn collect(
        load: &Workload,
        outcomes: &Receiver<Outcome>,
        mut completed: impl FnMut(),
    ) -> Result<(Self, Instant), RunError> {
        let mut run = Self::new(load);
        let patience = PATIENCE + load.worker.service * 2;
        let mut end = Instant::now();
        for over in 0..load.total() {
            let Outcome { class, at, result } = outcomes.recv_timeout(patience).map_err(|error| {
                let after = if error == RecvTimeoutError::Timeout { patience } else { Duration::ZERO };
                RunError::Stalled { missing: load.total() - over, after }
            })?;
            match result {
                Ok(waited) => {
                    run.completed(class, waited);
                    end = at;
                }
                Err(_) => run.refused[class] += 1,
            }
            completed();
        }
        Ok((run, end))
    }

    /// Requests of each class among the first `requests` completions.
    pub fn first(&self) -> Vec<usize> {
        let mut counts = vec![0; self.waited.len()];
        for &class in self.completions.iter().take(self.requests) {
            counts[class] += 1;
        }
        counts
    }

    /// Requests of `class` that were still to be completed when the last one of the first class was; `None` if no
    /// request of the first class was completed.
    pub fn left(&self, class: usize) -> Option<usize> {
        let last = self.completions.iter().rposition(|&c| c == 0)?;
        Some(self.completions[last..].iter().filter(|&&c| c == class).count())
    }

    /// Completed requests per second.
    pub fn rate(&self) -> f64 {
        self.completions.len() as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// The classes of all requests in the order of arrival: in each round one of every class, each round begins with the
/// next class.
pub(super) fn order(load: &Workload) -> Vec<usize> {
    let classes = load.classes.len();
    (0..load.requests).flat_map(|round| (0..classes).map(move |c| (c + round) % classes)).collect()
}

/// What one ingress thread has of the arrivals: every so manieth round.
fn share<'a>(load: &Workload, arrivals: &'a [usize], thread: usize) -> impl Iterator<Item = usize> + 'a {
    arrivals.chunks(load.classes.len()).skip(thread).step_by(load.threads).flatten().copied()
}

fn request(load: &Workload, class: usize) -> Request {
    Request::new(load.cost, 0).with_class(load.classes[class].clone())
}

/// How many of the first requests go at once when they come to an idle worker: one per slot, fewer if the policy has
/// the others wait. The scheduler itself says it, without threads.
pub(super) fn at_once(profile: &Profile, load: &Workload, arrivals: &[usize]) -> Result<usize, WorkerError> {
    let mut scheduler = Scheduler::new(profile);
    scheduler.set_workers(one_worker()?.into());
    let goes = |&&class: &&usize| {
        let snapshot = request(load, class).snapshot(Timestamp::ZERO).expect("the request makes sense");
        let class = profile.classify(Some(&load.classes[class]), snapshot.uncached_tokens());
        scheduler.enqueue(class, snapshot, ()).is_ok() && scheduler.dispatch().is_some()
    };
    Ok(arrivals.iter().take(load.worker.slots).take_while(goes).count())
}

fn one_worker() -> Result<WorkerSnapshot, WorkerError> {
    WorkerSnapshot::new(1, vec![Worker::new(1)])
}

/// Lets the first requests arrive at the idle worker, one after the other, each when the one before is in its slot.
///
/// Over a network the first requests find an idle worker too: they go at once, in the order of arrival, before there
/// is any backlog to share by. Threads in one process would be faster than the arbiter wakes up.
fn fill(load: &Workload, engine: &Engine, worker: &MockWorker, arrivals: &[usize]) {
    let give_up = Instant::now() + PATIENCE;
    for &class in arrivals {
        let waiter = worker.waiter(class);
        waiter.clone().admit(engine, request(load, class));
        while !waiter.is_over() && Instant::now() < give_up {
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with these completions of two classes with `requests` requests each.
    fn run(requests: usize, completions: &[usize]) -> Run {
        Run {
            completions: completions.to_vec(),
            requests,
            waited: vec![Histogram::new(3).unwrap(), Histogram::new(3).unwrap()],
            refused: vec![0, 0],
            elapsed: Duration::from_millis(500),
        }
    }

    #[test]
    fn only_the_first_n_completions_count() {
        assert_eq!(run(3, &[0, 1, 0, 1, 1, 0]).first(), [2, 1]);
        assert_eq!(run(2, &[1, 1, 0, 0]).first(), [0, 2]);
    }

    #[test]
    fn a_run_with_fewer_completions_counts_those_it_has() {
        assert_eq!(run(4, &[1, 0, 1]).first(), [1, 2]);
        assert_eq!(run(4, &[]).first(), [0, 0]);
    }

    #[test]
    fn left_counts_what_comes_after_the_last_of_the_first_class() {
        assert_eq!(run(3, &[0, 1, 0, 0, 1, 1]).left(1), Some(2));
        assert_eq!(run(2, &[0, 0, 1, 1]).left(1), Some(2));
        assert_eq!(run(2, &[1, 0, 1, 0]).left(1), Some(0));
    }

    #[test]
    fn nothing_is_left_by_a_class_that_never_finished() {
        assert_eq!(run(2, &[1, 1]).left(1), None);
        assert_eq!(run(2, &[]).left(1), None);
    }

    #[test]
    fn the_rate_is_over_completions() {
        assert_eq!(run(2, &[0, 1, 0]).rate(), 6.0);
    }

    #[test]
    fn arrivals_take_turns_and_the_threads_share_them() {
        let load = Workload {
            classes: vec!["premium".into(), "regular".into()],
            requests: 11,
            cost: 512,
            threads: 4,
            worker: WorkerSpec { slots: 4, service: Duration::ZERO },
            http: false,
        };
        let order = order(&load);
        assert_eq!(order[..6], [0, 1, 1, 0, 0, 1]);
        assert_eq!((order.len(), order.iter().filter(|&&c| c == 0).count()), (22, 11));
        let shares: Vec<Vec<_>> = (0..4).map(|t| share(&load, &order[4..], t).collect()).collect();
        assert_eq!(shares, [vec![0, 1, 0, 1, 0, 1], vec![1, 0, 1, 0], vec![0, 1, 0, 1], vec![1, 0, 1, 0]]);
    }

    #[test]
    fn only_what_the_policy_lets_go_comes_to_the_idle_worker() {
        let at_once = |threshold, slots, cost| {
            let load = Workload {
                classes: vec!["default".into()],
                requests: 10,
                cost,
                threads: 1,
                worker: WorkerSpec { slots, service: Duration::ZERO },
                http: false,
            };
            at_once(&Profile::synthetic(threshold, Default::default()), &load, &order(&load)).unwrap()
        };
        assert_eq!(at_once(Some(1536), 4, 512), 4);
        assert_eq!(at_once(Some(1536), 1_000, 512), 4);
        assert_eq!(at_once(Some(1535), 4, 512), 3);
        assert_eq!(at_once(None, 4, 512), 4);
        assert_eq!(at_once(None, 1_000, 512), 10);
    }
}
