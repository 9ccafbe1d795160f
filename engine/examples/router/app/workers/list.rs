//! The owner of the list of workers.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};
use tollgate::{WorkerId, WorkerSnapshot};

use super::probe::probe;
use super::{Event, Fault, HttpClient, Reports, Settings, Spec, State, Worker};
use crate::app::prefix::PrefixIndex;

/// Who is told about changes.
pub(crate) trait Publish: Send + 'static {
    /// These are all workers.
    fn workers(&self, workers: &[Arc<Worker>]);
    /// Those of one model.
    fn model(&self, model: &Arc<str>, workers: HashMap<WorkerId, Arc<Worker>>, snapshot: WorkerSnapshot);
}

/// A worker on the list.
struct Entry {
    spec: Spec,
    worker: Arc<Worker>,
    failures: u32,
    /// Nobody listened when it was last looked at.
    refused: bool,
    overloaded_until: Option<Instant>,
    looked_at: bool,
    probe: AbortHandle,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.probe.abort();
    }
}

pub(crate) struct List<P> {
    settings: Settings,
    client: HttpClient,
    reports: Reports,
    publish: P,
    ready: Option<oneshot::Sender<()>>,
    entries: BTreeMap<WorkerId, Entry>,
    /// The last one given out: an address that is listed again is another worker.
    last_id: u64,
    version: u64,
    /// Those that were published once.
    models: BTreeSet<Arc<str>>,
}

impl<P: Publish> List<P> {
    pub(super) fn new(
        settings: Settings,
        client: HttpClient,
        reports: Reports,
        publish: P,
        ready: oneshot::Sender<()>,
    ) -> Self {
        Self {
            settings,
            client,
            reports,
            publish,
            ready: Some(ready),
            entries: BTreeMap::new(),
            last_id: 0,
            version: 0,
            models: BTreeSet::new(),
        }
    }

    pub(super) async fn run(mut self, specs: Vec<Spec>, mut events: mpsc::UnboundedReceiver<Event>) {
        self.list(specs);
        self.publish();
        loop {
            if self.entries.values().all(|entry| entry.looked_at) {
                // Nobody may wait for it any more.
                let _ = self.ready.take().map(|ready| ready.send(()));
            }
            let relieved = self.entries.values().filter_map(|entry| entry.overloaded_until).min();
            let changed = tokio::select! {
                event = events.recv() => match event {
                    Some(event) => self.hear(event),
                    None => return,
                },
                () = until(relieved) => self.relieve(Instant::now()),
            };
            if changed {
                self.publish();
            }
        }
    }

    /// Takes a list over: a worker whose address stays keeps everything that is known of it.
    fn list(&mut self, mut specs: Vec<Spec>) {
        self.entries.retain(|id, entry| {
            let Some(at) = specs.iter().position(|spec| spec.url == entry.spec.url) else { return false };
            if specs[at].prefix_tokens != entry.spec.prefix_tokens {
                return false;
            }
            let spec = specs.swap_remove(at);
            if spec.models != entry.spec.models {
                entry.probe.abort();
                entry.probe = start(*id, &spec, &self.settings, &self.client, &self.reports);
            }
            entry.spec = spec;
            true
        });
        specs.sort_by(|a, b| a.url.cmp(&b.url));
        for spec in specs {
            self.last_id += 1;
            let id = WorkerId(self.last_id);
            let worker = Arc::new(Worker {
                id,
                url: spec.url.clone(),
                prefix: PrefixIndex::new(spec.prefix_tokens / self.settings.block_tokens),
                state: State { fault: Some("not looked at yet".into()), ..State::default() }.into(),
            });
            let entry = Entry {
                probe: start(id, &spec, &self.settings, &self.client, &self.reports),
                spec,
                worker,
                failures: 0,
                refused: false,
                overloaded_until: None,
                looked_at: false,
            };
            self.entries.insert(id, entry);
        }
    }

    /// Notes what was seen; returns whether anything is different now.
    fn hear(&mut self, event: Event) -> bool {
        match event {
            Event::Listed(specs) => {
                self.list(specs);
                true
            }
            Event::Well { worker, models } => {
                self.entries.get_mut(&worker).is_some_and(|entry| entry.well(models))
            }
            Event::Ill { worker, fault } => {
                let enough = self.settings.failures;
                self.entries.get_mut(&worker).is_some_and(|entry| {
                    entry.failures = entry.failures.saturating_add(1);
                    // Nobody listens: there is no need to ask twice.
                    let down = fault.refused || entry.failures >= enough;
                    entry.ill(fault, down)
                })
            }
            Event::Gone { worker, fault } => {
                self.entries.get_mut(&worker).is_some_and(|entry| entry.ill(fault, true))
            }
            Event::Overloaded { worker, pause } => self.entries.get_mut(&worker).is_some_and(|entry| {
                let until = Instant::now() + pause;
                entry.overloaded_until = entry.overloaded_until.max(Some(until));
                !std::mem::replace(&mut entry.worker.state.lock().overloaded, true)
            }),
        }
    }

    /// Workers whose pause is over get work again.
    fn relieve(&mut self, now: Instant) -> bool {
        let mut any = false;
        for entry in
            self.entries.values_mut().filter(|e| e.overloaded_until.is_some_and(|until| until <= now))
        {
            entry.overloaded_until = None;
            entry.worker.state.lock().overloaded = false;
            any = true;
        }
        any
    }

    fn publish(&mut self) {
        self.version += 1;
        let all: Vec<_> = self.entries.values().map(|entry| entry.worker.clone()).collect();
        self.publish.workers(&all);
        for entry in self.entries.values() {
            self.models.extend(entry.worker.state.lock().models.iter().cloned());
        }
        for model in &self.models {
            let serves = |entry: &&Entry| entry.worker.state.lock().models.contains(model);
            let workers =
                self.entries.values().filter(serves).map(|entry| (entry.worker.id, entry.worker.clone()));
            let up = self.entries.values().filter(serves).filter_map(Entry::snapshot).collect();
            let snapshot =
                WorkerSnapshot::new(self.version, up).expect("ids are unique, each worker has one rank");
            self.publish.model(model, workers.collect(), snapshot);
        }
    }
}

fn start(
    id: WorkerId,
    spec: &Spec,
    settings: &Settings,
    client: &HttpClient,
    reports: &Reports,
) -> AbortHandle {
    tokio::spawn(probe(id, spec.clone(), settings.clone(), client.clone(), reports.clone())).abort_handle()
}

/// Waits for a point in time, for ever if there is none.
async fn until(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}

impl Entry {
    fn well(&mut self, models: BTreeSet<Arc<str>>) -> bool {
        self.looked_at = true;
        self.failures = 0;
        let mut state = self.worker.state.lock();
        if std::mem::take(&mut self.refused) {
            state.incarnation += 1;
            self.worker.prefix.clear();
        }
        let changed = !state.up || state.models != models;
        if changed {
            eprintln!("worker {} at {} is up: {models:?}", self.worker.id, self.worker.url);
        }
        (state.up, state.models, state.fault) = (true, models, None);
        changed
    }

    fn ill(&mut self, fault: Fault, down: bool) -> bool {
        self.looked_at = true;
        self.refused |= fault.refused;
        let mut state = self.worker.state.lock();
        state.fault = Some(fault.message.clone());
        let changed = down && state.up;
        if changed {
            state.up = false;
            eprintln!("worker {} at {} is down: {}", self.worker.id, self.worker.url, fault.message);
        }
        changed
    }

    /// What the engine is told of the worker, if it is up.
    fn snapshot(&self) -> Option<tollgate::Worker> {
        let state = self.worker.state.lock();
        state.up.then(|| tollgate::Worker {
            incarnation: state.incarnation,
            max_num_batched_tokens: self.spec.max_num_batched_tokens,
            max_active_requests: self.spec.max_active_requests,
            overloaded: state.overloaded,
            ..tollgate::Worker::new(self.worker.id.0)
        })
    }
}
