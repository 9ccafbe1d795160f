//! What an engine is made of, checked when it starts.

use std::fmt;

use super::arbiter::{Arbiter, Queue};
use super::contain::contained;
use super::cores::{self, CorePinning};
use super::guard::{ClassGuard, Guard};
use super::marks::Marks;
use super::observe::{Observer, Observers};
use super::shared::{Routes, Shared};
use super::{Engine, Idle};
use crate::policy::{ClassId, Profile};
use crate::scheduler::{Scheduler, Selector};
use crate::sync::ingress::abandoned_queue;
use crate::sync::sleep::{Sleeper, lending_sleep, sleep};
use crate::sync::ticket::{Answerer, ticket};
use crate::sync::{Arc, DataArc, spawn};
use crate::worker::WorkerSnapshot;

/// Requests that the ingress queue of a class holds unless told otherwise. Guessed: a few milliseconds of the
/// arbiter's work.
const INGRESS_CAPACITY: usize = 16_384;

/// Builds an [`Engine`]. Everything but the profile has a default.
#[must_use = "a builder does nothing until it starts the engine"]
pub struct EngineBuilder {
    profile: DataArc<Profile>,
    workers: WorkerSnapshot,
    ingress_capacity: usize,
    idle: Idle,
    pinning: CorePinning,
    selector: Option<Box<dyn Selector>>,
    guard: Option<Guard>,
    observers: Observers,
}

impl EngineBuilder {
    pub(super) fn new(profile: DataArc<Profile>) -> Self {
        Self {
            profile,
            workers: WorkerSnapshot::default(),
            ingress_capacity: INGRESS_CAPACITY,
            idle: Idle::default(),
            pinning: CorePinning::default(),
            selector: None,
            guard: None,
            observers: Observers::default(),
        }
    }

    /// The first worker snapshot; without one there are no workers until one is published.
    pub fn workers(mut self, snapshot: WorkerSnapshot) -> Self {
        self.workers = snapshot;
        self
    }

    /// Requests that each class's ingress queue holds, ≥ 1: those that the arbiter has not looked at yet. It bounds
    /// what a burst can pile up in front of the arbiter, not what waits in the lanes.
    pub fn ingress_capacity(mut self, requests: usize) -> Self {
        self.ingress_capacity = requests;
        self
    }

    /// What the arbiter does when there is nothing to do.
    pub fn idle(mut self, idle: Idle) -> Self {
        self.idle = idle;
        self
    }

    /// The core that the arbiter runs on.
    pub fn pinning(mut self, pinning: CorePinning) -> Self {
        self.pinning = pinning;
        self
    }

    /// Who picks the endpoint.
    pub fn selector(mut self, selector: impl Selector + 'static) -> Self {
        self.selector = Some(Box::new(selector));
        self
    }

    /// Which class a request may ask for. Without a guard every request may ask for every class.
    pub fn class_guard(mut self, guard: impl ClassGuard + 'static) -> Self {
        self.guard = Some(Guard(Box::new(guard)));
        self
    }

    /// Who hears, on the arbiter's thread, what becomes of each request. Several hear one after the other.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.add(Box::new(observer));
        self
    }

    /// Starts the arbiter thread and waits until it runs.
    ///
    /// # Errors
    /// An ingress capacity of 0, a core that the process may not use, or no thread to be had.
    pub fn start(self) -> Result<Engine, StartError> {
        if self.ingress_capacity == 0 {
            return Err(StartError::NoIngress);
        }
        let (started, starter) = ticket::<(), Result<Arc<Shared>, StartError>>(());
        let thread = spawn("tollgate-arbiter", move || {
            let starter = Answerer::new(starter);
            let made = contained(|| self.arbiter()).unwrap_or_else(|| {
                Err(StartError::Thread { message: "the arbiter panicked while it started".into() })
            });
            match made {
                Ok((arbiter, sleeper, shared)) => {
                    if starter.answer(Ok(shared)).is_ok() {
                        arbiter.run(sleeper);
                    }
                }
                Err(error) => drop(starter.answer(Err(error))),
            }
        })
        .map_err(|error| StartError::Thread { message: error.to_string() })?;
        let (outcome, ()) = started.wait();
        outcome.map(|shared| Engine::new(shared, thread))
    }

    /// Makes the arbiter, on the thread that it will run on.
    fn arbiter(self) -> Result<(Arbiter, Sleeper, Arc<Shared>), StartError> {
        cores::pin(self.pinning)
            .map_err(|cores::Impossible { core, allowed }| StartError::Core { core, allowed })?;
        let scheduler = Scheduler::with(&self.profile, self.selector);
        let (notifier, sleeper) = if self.idle == Idle::Assist { lending_sleep() } else { sleep() };
        let mut marks = Marks::new();
        let ids = (0..self.profile.classes().len() as u32).map(ClassId);
        let queues: Vec<_> =
            ids.map(|id| Queue::new(id, self.ingress_capacity, &mut marks, Arc::default())).collect();
        let classes = queues.iter().map(|queue| queue.route.clone()).collect();
        let routes = Routes::new(self.profile, classes);
        let (producer, abandoned) = abandoned_queue();
        let shared = Arc::new(Shared::new(routes, self.workers, producer, notifier, self.guard));
        let arbiter = Arbiter::new(
            shared.clone(),
            scheduler,
            self.observers,
            queues,
            marks,
            abandoned,
            self.idle,
            self.ingress_capacity,
        );
        Ok((arbiter, sleeper, shared))
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EngineBuilder")
            .field("classes", &self.profile.classes().len())
            .field("workers", &self.workers.workers().len())
            .field("ingress_capacity", &self.ingress_capacity)
            .field("idle", &self.idle)
            .field("pinning", &self.pinning)
            .finish_non_exhaustive()
    }
}

/// Why an engine did not start.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StartError {
    /// An ingress capacity of 0 would refuse every request.
    NoIngress,
    /// The process may not use the core.
    Core {
        /// The core asked for.
        core: usize,
        /// The cores that it may use.
        allowed: Vec<usize>,
    },
    /// The system gave no thread.
    Thread {
        /// What it said.
        message: String,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoIngress => write!(f, "ingress_capacity: must be greater than 0"),
            Self::Core { core, allowed } => {
                write!(f, "pinning: core {core} is not among the usable cores {allowed:?}")
            }
            Self::Thread { message } => write!(f, "cannot start the arbiter thread: {message}"),
        }
    }
}

impl std::error::Error for StartError {}
