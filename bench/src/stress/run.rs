//! A whole run: the engine, its ingress threads, the publisher of worker snapshots, and what is measured of them.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rand::RngExt;
use tollgate::policy::{ClassSpec, PolicySpec, Profile, QueuePolicy};
use tollgate::{Engine, EngineSnapshot, StartError, Worker, WorkerSnapshot};

use super::allocations;
use super::books::{Book, Check, check, check_service};
use super::ingress::{Ingress, Progress, Seen, Window, histogram};
use super::load::{Load, Order, random};
use super::system::{Switches, resident, switches};

/// How long the engine may take to end. Guessed: it has nothing left to do.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often whoever watches is told.
const TICK: Duration = Duration::from_millis(100);
/// External load of a worker in a snapshot \[tokens\], at most.
const EXTERNAL: u64 = 4_096;
/// What the names of threads begin with; the system keeps 15 bytes.
const INGRESS: &str = "ingress-";
const ARBITER: &str = "tollgate-arbite";

/// Why there is no result.
#[derive(Debug)]
pub(super) enum RunError {
    /// The engine did not start.
    Engine(StartError),
    /// The system gave no thread.
    Thread(io::Error),
}

impl From<StartError> for RunError {
    fn from(error: StartError) -> Self {
        Self::Engine(error)
    }
}

impl From<io::Error> for RunError {
    fn from(error: io::Error) -> Self {
        Self::Thread(error)
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => write!(f, "the engine did not start: {error}"),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

/// Names of the classes, in their order.
pub(super) fn class_names(load: &Load) -> impl Iterator<Item = String> {
    (0..load.quanta.len()).map(|class| format!("class{class}"))
}

/// One class in the window.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) name: String,
    pub(super) quantum: u64,
    /// Tokens dispatched.
    pub(super) tokens: u64,
    /// Its part of all tokens, and the part that its quantum promises.
    pub(super) share: f64,
    pub(super) promised: f64,
    /// From arrival to dispatch, by the arbiter's clock \[ns\].
    pub(super) waits: Histogram<u64>,
}

/// What was measured.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) checks: Vec<Check>,
    /// All requests of the run.
    pub(super) book: Book,
    /// Length of the window.
    pub(super) window: Duration,
    /// Permits that callers got in the window, and what they cost \[tokens\].
    pub(super) permits: u64,
    pub(super) tokens: u64,
    pub(super) latency: Histogram<u64>,
    pub(super) lateness: Histogram<u64>,
    pub(super) classes: Vec<Served>,
    /// Requests sent in the window, and allocations of the threads that sent them and of the arbiter; `None` if the
    /// allocator does not count.
    pub(super) sent: u64,
    pub(super) allocated: Option<(u64, u64)>,
    /// Requests of the schedule that found no caller free until the end of the window.
    pub(super) unsent: u64,
    /// Context switches of the ingress threads and of the arbiter in the window, where the system says.
    pub(super) switches: Option<(Switches, Switches)>,
    /// Resident memory at the beginning and at the end of the window \[bytes\], where the system says.
    pub(super) resident: Option<(u64, u64)>,
    /// Turns, sleeps and dispatches of the arbiter in the window, and its longest turn ever.
    pub(super) turns: u64,
    pub(super) sleeps: u64,
    pub(super) decisions: u64,
    pub(super) longest_turn: Duration,
    /// Worker snapshots published in the window.
    pub(super) published: u64,
}

/// What the system and the allocator say at one end of the window.
#[derive(Debug)]
struct Reading {
    allocated: u64,
    switches: Option<(Switches, Switches)>,
    resident: Option<u64>,
    published: u64,
}

impl Reading {
    fn take(published: &Progress) -> Self {
        Self {
            allocated: allocations::elsewhere(),
            switches: switches(INGRESS).zip(switches(ARBITER)),
            resident: resident(),
            published: published.get(),
        }
    }
}

/// While it lives, so does the load.
struct Running<'a>(&'a AtomicBool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // Relaxed: only says that it is over.
        self.0.store(true, Ordering::Relaxed);
    }
}

fn profile(load: &Load) -> Profile {
    let class = |(name, &quantum)| {
        let mut class = ClassSpec::explicit(name, quantum);
        (class.order, class.aging_tokens_per_second) = match load.order {
            Order::Fcfs => (QueuePolicy::Fcfs, None),
            Order::Wspt => (QueuePolicy::Wspt, None),
            Order::Aged => (QueuePolicy::AgedWspt, Some(1_000.0)),
        };
        class
    };
    let classes = class_names(load).zip(&load.quanta).map(class).collect();
    Profile::new(PolicySpec { classes, ..PolicySpec::default() }).expect("the options are checked")
}

/// The workers, with the external load that `external` says.
fn workers(load: &Load, version: u64, mut external: impl FnMut() -> u64) -> WorkerSnapshot {
    let worker = |id| Worker {
        max_active_requests: Some(load.slots),
        external_load: vec![external()],
        ..Worker::new(id)
    };
    WorkerSnapshot::new(version, (0..load.workers).map(worker).collect()).expect("ids are distinct")
}

/// Runs the load. `progress` is told the time since the start and the permits so far, again and again.
pub(super) fn run(load: &Load, mut progress: impl FnMut(Duration, u64)) -> Result<Measured, RunError> {
    allocations::apart();
    let counted = allocations::start();
    let engine =
        Engine::builder(profile(load)).workers(workers(load, 1, || 0)).idle(load.idle.into()).start()?;
    let (start, warm_up) = (Instant::now(), load.warm_up.as_nanos() as u64);
    let window = Window { start, from: warm_up, to: warm_up + load.duration.as_nanos() as u64 };
    let so_far: Vec<Progress> = (0..load.threads).map(|_| Progress::default()).collect();
    let published = Progress::default();
    let over = AtomicBool::new(false);

    let mut tell = || progress(start.elapsed(), so_far.iter().map(Progress::get).sum());
    let wait_for = |edge: u64, tell: &mut dyn FnMut()| {
        while let Some(left) = edge.checked_sub(window.now()).filter(|left| *left > 0) {
            thread::sleep(TICK.min(Duration::from_nanos(left)));
            tell();
        }
    };
    let (seen, version, first, before, after, second) = thread::scope(|scope| {
        // Threads that did start end also if another one does not.
        let running = Running(&over);
        let threads = (0..load.threads).zip(&so_far).map(|(thread, so_far)| {
            let (engine, over) = (engine.clone(), &over);
            thread::Builder::new()
                .name(format!("{INGRESS}{thread}"))
                .spawn_scoped(scope, move || Ingress::new(load, thread, engine, window, so_far, over).run())
        });
        let threads = threads.collect::<Result<Vec<_>, _>>()?;
        let publisher = {
            let (engine, over, published) = (engine.clone(), &over, &published);
            thread::Builder::new()
                .name("publisher".into())
                .spawn_scoped(scope, move || publish(load, &engine, window, over, published))?
        };
        // Pictures are made by the arbiter, and are not to count against it: they are outside, at both ends.
        wait_for(window.from, &mut tell);
        let (first, before) = (engine.snapshot(), Reading::take(&published));
        wait_for(window.to, &mut tell);
        let (after, second) = (Reading::take(&published), engine.snapshot());
        drop(running);
        publisher.thread().unpark();
        let version = publisher.join().expect("the publisher does not panic");
        while threads.iter().any(|thread| !thread.is_finished()) {
            thread::sleep(TICK / 10);
            tell();
        }
        let seen: Vec<Seen> =
            threads.into_iter().map(|t| t.join().expect("an ingress thread does not panic")).collect();
        Ok::<_, RunError>((seen, version, first, before, after, second))
    })?;

    engine.publish(workers(load, version + 1, || 0)).expect("the version rises");
    // The arbiter has taken it in when it has given a picture.
    drop(engine.snapshot());
    engine.drain(PATIENCE);
    engine.join();
    let last = engine.snapshot();

    let mut book = Book::new(load.quanta.len());
    let (mut latency, mut lateness) = (histogram(), histogram());
    let (mut permits, mut tokens, mut sent, mut unsent, mut allocated) = (0, 0, 0, 0, 0);
    for seen in &seen {
        book.add(&seen.book);
        latency.add(&seen.latency).expect("the bounds are the same");
        lateness.add(&seen.lateness).expect("the bounds are the same");
        permits += seen.permits;
        tokens += seen.tokens;
        sent += seen.sent;
        unsent += seen.unsent;
        allocated += seen.allocated;
    }
    let classes = served(load, &first, &second);
    let mut checks = check(&book, &last);
    // With some waiting at the beginning, and enough callers, they wait all the time.
    if load.saturates() && first.classes.iter().all(|class| class.waiting.requests > 0) {
        let served: Vec<_> = classes.iter().map(|class| class.tokens).collect();
        let dearest: Vec<_> = book.classes.iter().map(|class| class.dearest).collect();
        checks.push(check_service(&served, &load.quanta, &dearest));
    }
    let (was, is) = (&first.arbiter, &second.arbiter);
    Ok(Measured {
        checks,
        book,
        window: load.duration,
        permits,
        tokens,
        latency,
        lateness,
        classes,
        sent,
        unsent,
        allocated: counted.then(|| (allocated, after.allocated - before.allocated)),
        switches: before
            .switches
            .zip(after.switches)
            .map(|(before, after)| (after.0.since(before.0), after.1.since(before.1))),
        resident: before.resident.zip(after.resident),
        turns: is.turns - was.turns,
        sleeps: is.sleeps - was.sleeps,
        decisions: is.decisions - was.decisions,
        longest_turn: last.arbiter.longest_turn,
        published: after.published - before.published,
    })
}

/// Publishes worker snapshots at the rate that is wanted, each with other external loads, until it is over. Returns
/// the last version.
fn publish(load: &Load, engine: &Engine, window: Window, over: &AtomicBool, published: &Progress) -> u64 {
    allocations::apart();
    let (mut random, mut version) = (random(load.seed, load.threads), 1);
    // Relaxed: only says that it is over.
    while !over.load(Ordering::Relaxed) {
        let due = if load.publish > 0.0 { version as f64 * 1e9 / load.publish } else { f64::INFINITY };
        match due - window.now() as f64 {
            left if left > 0.0 => {
                thread::park_timeout(Duration::from_secs_f64((left / 1e9).min(1.0)));
            }
            _ => {
                version += 1;
                let snapshot = workers(load, version, || random.random_range(0..=EXTERNAL));
                engine.publish(snapshot).expect("the version rises, and nobody else publishes");
                published.add_one();
            }
        }
    }
    version
}

/// What each class got between two pictures.
fn served(load: &Load, first: &EngineSnapshot, second: &EngineSnapshot) -> Vec<Served> {
    let tokens = |class: usize| {
        second.classes[class].dispatched_tokens.saturating_sub(first.classes[class].dispatched_tokens)
    };
    let all: u64 = (0..load.quanta.len()).map(tokens).sum();
    let quanta: f64 = load.quanta.iter().map(|&quantum| quantum as f64).sum();
    let class = |(class, (name, &quantum)): (usize, (String, &u64))| {
        let mut waits = second.classes[class].waits.clone();
        waits.subtract(&first.classes[class].waits).expect("it has grown");
        Served {
            name,
            quantum,
            tokens: tokens(class),
            share: tokens(class) as f64 / all.max(1) as f64,
            promised: quantum as f64 / quanta,
            waits,
        }
    };
    class_names(load).zip(&load.quanta).enumerate().map(class).collect()
}
