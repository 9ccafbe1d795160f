//! The router: what its parts share, and how it starts and ends.

mod admin;
mod api;
mod ask;
mod error;
mod forward;
mod metrics;
mod mock;
mod options;
mod picture;
mod pool;
mod prefix;
mod prompt;
mod relay;
mod server;
mod session;
mod workers;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tollgate::policy::{PolicyFile, PolicyFileError, Profile, QueuePolicy};
use tollgate::{WorkerId, WorkerSnapshot};

use error::ApiError;
use metrics::Metrics;
pub(crate) use mock::Mock;
pub(crate) use options::Options;
use pool::Pool;
pub(crate) use prompt::CountTokens;
use prompt::{BytesPerToken, Measure};
use session::Sessions;
use workers::{Event, HttpClient, Publish, Reports, Settings, Spec, Worker};

/// Connections to workers are not kept for longer than this without use: servers of Python close them after 5 s.
const KEEP_IDLE: Duration = Duration::from_secs(4);

/// A running router. Dropping it ends everything at once.
pub(crate) struct Router {
    shared: Arc<Shared>,
    addr: SocketAddr,
    server: server::Server,
    tasks: Vec<AbortHandle>,
    mocks: Vec<Mock>,
}

impl Router {
    /// Looks at all workers once, then listens.
    pub(crate) async fn start(options: Options) -> Result<Self, StartError> {
        let counter = Box::new(BytesPerToken(options.requests.bytes_per_token));
        Self::with_counter(options, counter).await
    }

    /// The same with a tokenizer.
    pub(crate) async fn with_counter(
        options: Options,
        counter: Box<dyn CountTokens>,
    ) -> Result<Self, StartError> {
        let policy = Policy::read(&options)?;
        policy.warnings().iter().for_each(|warning| eprintln!("warning: {warning}"));
        // Before anything is started: an address that is taken is the likeliest fault.
        let listener = TcpListener::bind(options.listen).await;
        let listener = listener.map_err(|error| StartError::Listen(options.listen, error))?;
        let addr = listener.local_addr().map_err(|error| StartError::Listen(options.listen, error))?;
        let mut mocks = Vec::new();
        for _ in 0..options.mock.mock_workers {
            mocks.push(Mock::start(&options.mock, &options.requests).await.map_err(StartError::Mock)?);
        }
        let fixed = fixed(&options, &mocks)?;
        let prefix_tokens = options.workers.prefix_tokens;
        let specs = match &options.workers.workers_file {
            Some(path) => workers::read_file(path, prefix_tokens, &fixed).map_err(StartError::WorkersFile)?,
            None if fixed.is_empty() => return Err(StartError::NoWorkers),
            None => fixed.clone(),
        };

        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        let block_tokens = options.requests.block_tokens;
        let measure = Measure::new(counter, block_tokens, options.requests.bytes_per_token);
        let client = client(&options);
        let settings = Settings {
            health_path: options.workers.health_path.clone(),
            interval: options.workers.health_interval,
            failures: options.workers.health_failures,
            timeout: options.workers.connect_timeout * 2,
            block_tokens,
        };
        let shared = Arc::new(Shared {
            options,
            measure,
            client: client.clone(),
            metrics,
            registry,
            policy: Mutex::new(policy),
            pools: ArcSwap::default(),
            workers: ArcSwap::default(),
            reports: Mutex::new(None),
            draining: AtomicBool::new(false),
        });
        let (reports, list) = workers::start(specs.clone(), settings, client, shared.clone()).await;
        let mut tasks = vec![list];
        *shared.reports.lock() = Some(reports.clone());
        if let Some(path) = shared.options.workers.workers_file.clone() {
            tasks.push(
                tokio::spawn(workers::watch_file(path, prefix_tokens, fixed, specs, reports)).abort_handle(),
            );
        }
        let app = admin::routes().merge(api::routes()).fallback(api::not_found);
        let app = app.method_not_allowed_fallback(api::not_allowed).with_state(shared.clone());
        let server = server::Server::start(listener, app, shared.clone());
        Ok(Self { shared, addr, server, tasks, mocks })
    }

    /// Where it listens.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Reads the policy file again. One with a fault changes nothing.
    pub(crate) fn reload(&self) -> Result<Reloaded, PolicyFileError> {
        self.shared.reload()
    }

    /// Takes nothing new, and ends when everything that it has is done, or the time for it is over.
    pub(crate) async fn drain(mut self) {
        let limit = self.shared.options.limits.drain_timeout;
        self.shared.draining.store(true, Ordering::Relaxed);
        for pool in self.shared.pools.load().values() {
            pool.engine.drain(limit);
        }
        self.server.drain(limit).await;
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.mocks.clear();
        *self.shared.reports.lock() = None;
        for pool in self.shared.pools.load().values() {
            pool.engine.close();
        }
    }
}

/// The workers of the command line.
fn fixed(options: &Options, mocks: &[Mock]) -> Result<Vec<Spec>, StartError> {
    let urls = options.workers.worker.iter().cloned().map(|url| (url, options.workers.prefix_tokens));
    let mocks = mocks.iter().map(|mock| (mock.url(), options.mock.mock_cache));
    let mut specs: Vec<Spec> = Vec::new();
    for (url, prefix_tokens) in urls.chain(mocks) {
        if specs.iter().any(|spec| spec.url == url) {
            return Err(StartError::Twice(url.to_string()));
        }
        let unknown = (None, None, None);
        let (models, max_num_batched_tokens, max_active_requests) = unknown;
        specs.push(Spec { url, models, max_num_batched_tokens, max_active_requests, prefix_tokens });
    }
    Ok(specs)
}

fn client(options: &Options) -> HttpClient {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(options.workers.connect_timeout));
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(KEEP_IDLE)
        .build(connector)
}

/// What all parts of the router share.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) measure: Measure,
    pub(crate) client: HttpClient,
    pub(crate) metrics: Metrics,
    pub(crate) registry: Registry,
    policy: Mutex<Policy>,
    /// By model. A model that was served once stays, also without workers.
    pools: ArcSwap<BTreeMap<Arc<str>, Arc<Pool>>>,
    workers: ArcSwap<Vec<Arc<Worker>>>,
    reports: Mutex<Option<Reports>>,
    draining: AtomicBool,
}

impl Shared {
    /// The pool of a model.
    pub(crate) fn pool(&self, model: &str) -> Result<Arc<Pool>, ApiError> {
        let pools = self.pools.load();
        if let Some(pool) = pools.get(model) {
            return Ok(pool.clone());
        }
        if pools.is_empty() {
            let message = "no worker has been reached yet";
            return Err(ApiError { retry_after: Some(1), ..ApiError::new(503, "no_endpoint", message) });
        }
        let known: Vec<_> = pools.keys().collect();
        let message = format!("model {model:?} is not served here; there is {known:?}");
        Err(ApiError { param: Some("model".into()), ..ApiError::new(404, "model_not_found", message) })
    }

    /// The models that have ever been served, in order.
    pub(crate) fn models(&self) -> Vec<Arc<str>> {
        self.pools.load().keys().cloned().collect()
    }

    pub(crate) fn pools(&self) -> Vec<Arc<Pool>> {
        self.pools.load().values().cloned().collect()
    }

    pub(crate) fn workers(&self) -> Arc<Vec<Arc<Worker>>> {
        self.workers.load_full()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Tells the owner of the list of workers what was seen.
    pub(crate) fn report(&self, event: Event) {
        if let Some(reports) = &*self.reports.lock() {
            reports.send(event);
        }
    }

    pub(crate) fn reload(&self) -> Result<Reloaded, PolicyFileError> {
        // Held until every pool has it, so that no pool starts with the old one behind our back.
        let mut policy = self.policy.lock();
        *policy = Policy::read(&self.options)?;
        let pools = self.pools();
        for pool in &pools {
            pool.engine.reload(policy.profile(&pool.model, &self.options));
        }
        Ok(Reloaded { models: pools.len(), warnings: policy.warnings().to_vec() })
    }
}

impl Publish for Arc<Shared> {
    fn workers(&self, workers: &[Arc<Worker>]) {
        self.metrics.workers.set(workers.len() as i64);
        let up = workers.iter().filter(|worker| worker.state.lock().up).count();
        self.metrics.workers_up.set(up as i64);
        self.workers.store(Arc::new(workers.to_vec()));
    }

    fn model(&self, model: &Arc<str>, workers: HashMap<WorkerId, Arc<Worker>>, snapshot: WorkerSnapshot) {
        if let Some(pool) = self.pools.load().get(model) {
            return pool.publish(workers, snapshot);
        }
        let policy = self.policy.lock();
        let sessions = Sessions::new(self.options.requests.session_ttl);
        let pool = match Pool::start(
            model.clone(),
            policy.profile(model, &self.options),
            sessions,
            &self.metrics.engines,
        ) {
            Ok(pool) => Arc::new(pool),
            Err(error) => return eprintln!("model {model:?} is not served: {error}"),
        };
        pool.publish(workers, snapshot);
        let mut pools = BTreeMap::clone(&self.pools.load());
        pools.insert(model.clone(), pool);
        self.pools.store(Arc::new(pools));
    }
}

/// The policy file, or none.
struct Policy(Option<PolicyFile>);

impl Policy {
    fn read(options: &Options) -> Result<Self, PolicyFileError> {
        options.policy.as_ref().map(PolicyFile::read).transpose().map(Self)
    }

    fn warnings(&self) -> &[String] {
        self.0.as_ref().map_or(&[], PolicyFile::warnings)
    }

    fn profile(&self, model: &str, options: &Options) -> Arc<Profile> {
        let synthetic = || Profile::synthetic(options.prefill_busy_threshold, QueuePolicy::Fcfs);
        self.0.as_ref().map_or_else(|| Arc::new(synthetic()), |file| file.profile(Some(model), synthetic))
    }
}

/// What a reload did.
#[derive(Debug)]
pub(crate) struct Reloaded {
    pub(crate) models: usize,
    pub(crate) warnings: Vec<String>,
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} models", self.models)?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\nwarning: {warning}"))
    }
}

/// Why the router did not start.
#[derive(Debug)]
pub(crate) enum StartError {
    Policy(PolicyFileError),
    Listen(SocketAddr, io::Error),
    Mock(io::Error),
    WorkersFile(workers::WorkersFileError),
    Twice(String),
    NoWorkers,
}

impl From<PolicyFileError> for StartError {
    fn from(error: PolicyFileError) -> Self {
        Self::Policy(error)
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(error) => error.fmt(f),
            Self::Listen(addr, error) => write!(f, "cannot listen on {addr}: {error}"),
            Self::Mock(error) => write!(f, "cannot start a built-in worker: {error}"),
            Self::WorkersFile(error) => error.fmt(f),
            Self::Twice(url) => write!(f, "worker {url} is given twice"),
            Self::NoWorkers => write!(f, "no workers: give --worker, --workers-file or --mock-workers"),
        }
    }
}

impl std::error::Error for StartError {}
