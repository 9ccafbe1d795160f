//! The workers of one model, and the engine that shares them out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use tollgate::metrics::Metrics;
use tollgate::policy::Profile;
use tollgate::{CachedOn, Constraints, Engine, Permit, Pin, Reason, StartError, WorkerId, WorkerSnapshot};

use super::ask::Ask;
use super::error::ApiError;
use super::session::Sessions;
use super::workers::Worker;

/// One model.
pub(crate) struct Pool {
    pub(crate) model: Arc<str>,
    pub(crate) engine: Engine,
    pub(crate) sessions: Sessions,
    /// Those that serve it or did so, by id.
    workers: ArcSwap<HashMap<WorkerId, Arc<Worker>>>,
}

/// A request's place on a worker.
pub(crate) struct Place {
    pub(crate) permit: Permit,
    pub(crate) worker: Arc<Worker>,
}

impl Pool {
    pub(crate) fn start(
        model: Arc<str>,
        profile: Arc<Profile>,
        sessions: Sessions,
        metrics: &Metrics,
    ) -> Result<Self, StartError> {
        let engine = metrics.start(model.clone(), Engine::builder(profile))?;
        Ok(Self { model, engine, sessions, workers: ArcSwap::default() })
    }

    /// From now on these are the workers.
    pub(crate) fn publish(&self, workers: HashMap<WorkerId, Arc<Worker>>, snapshot: WorkerSnapshot) {
        self.workers.store(Arc::new(workers));
        // Versions come from one counter, and in order.
        let _ = self.engine.publish(snapshot);
    }

    /// A worker of this model.
    pub(crate) fn worker(&self, id: WorkerId) -> Option<Arc<Worker>> {
        self.workers.load().get(&id).cloned()
    }

    /// The workers that are up and were not tried, if there is one.
    pub(crate) fn others(&self, tried: &[WorkerId]) -> Option<Arc<Constraints>> {
        let workers = self.workers.load();
        let up = workers.values().filter(|worker| worker.state.lock().up && !tried.contains(&worker.id));
        let up: Vec<_> = up.map(|worker| worker.id).collect();
        (!up.is_empty()).then(|| Arc::new(Constraints::new(Some(up), Vec::new())))
    }

    /// Waits for a worker, one of `among` if that is given.
    pub(crate) async fn place(&self, ask: &Ask, among: Option<&Arc<Constraints>>) -> Result<Place, ApiError> {
        loop {
            let pin =
                ask.session.as_deref().and_then(|session| self.sessions.worker(session, Instant::now()));
            let mut request = ask.request();
            request.pin = pin.map(|worker| Pin { worker, rank: None });
            request.constraints = among.cloned();
            let cached = self.cached(ask);
            request.cached_tokens = cached.iter().map(|cached| cached.tokens).max().unwrap_or(0);
            request.cached_on = (!cached.is_empty()).then(|| cached.into());
            let answer = match self.engine.admit(request) {
                Ok(admission) => admission.await,
                Err(rejected) => Err(rejected),
            };
            match (answer, pin, &ask.session) {
                (Ok(permit), _, session) => {
                    let id = permit.endpoint().worker;
                    let Some(worker) = self.worker(id) else {
                        // It was taken off the list just now.
                        continue;
                    };
                    if let Some(session) = session {
                        self.sessions.used(session, id, Instant::now());
                    }
                    return Ok(Place { permit, worker });
                }
                (Err(rejected), Some(worker), Some(session))
                    if matches!(
                        rejected.reason,
                        Reason::PinUnavailable { .. }
                            | Reason::PinOverloaded { .. }
                            | Reason::PinNotAllowed { .. }
                    ) =>
                {
                    // Better another worker, without what the first has cached, than none.
                    self.sessions.leave(session, worker);
                }
                (Err(rejected), ..) => return Err(ApiError::rejected(&rejected.reason)),
            }
        }
    }

    /// What each worker has of the prompt.
    fn cached(&self, ask: &Ask) -> Vec<CachedOn> {
        let workers = self.workers.load();
        let known = workers
            .values()
            .map(|worker| CachedOn { worker: worker.id, tokens: worker.prefix.cached(&ask.prompt) });
        known.filter(|cached| cached.tokens > 0).collect()
    }
}
