//! Prometheus and OpenMetrics through [`prometheus_client`], feature `metrics`: everything of each engine's
//! [`EngineSnapshot`](crate::EngineSnapshot), and waiting times class by class.
//!
//! ```
//! use prometheus_client::encoding::text::encode;
//! use prometheus_client::registry::Registry;
//! use tollgate::metrics::Metrics;
//! use tollgate::policy::{ClassSpec, PolicySpec, Profile};
//! use tollgate::{Engine, Request, Worker, WorkerSnapshot};
//!
//! let metrics = Metrics::new();
//! let mut registry = Registry::default();
//! registry.register_collector(Box::new(metrics.clone()));
//!
//! let classes = vec![ClassSpec::explicit("premium", 512), ClassSpec::explicit("regular", 128)];
//! let profile = Profile::new(PolicySpec { classes, ..PolicySpec::default() })?;
//! let workers = WorkerSnapshot::new(1, vec![Worker::new(1)])?;
//! let engine = metrics.start("my-model", Engine::builder(profile).workers(workers))?;
//! drop(engine.admit(Request::new(512, 0).with_class("premium"))?.wait()?);
//!
//! let mut text = String::new();
//! encode(&mut text, &registry)?;
//! let line = r#"tollgate_class_dispatched_tokens_total{pool="my-model",class="premium"} 512"#;
//! assert!(text.lines().any(|l| l == line), "{text}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Names, units and what each number means are in `docs/metrics.md`. Labels come from the policy and the worker
//! snapshot only, never from a request: with C classes and E endpoints, a pool has at most
//! 48 + (21 + b) × C + 5 × E series, b being the number of [buckets](Metrics::wait_buckets).

mod families;
mod waits;

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use self::families::Pool;
use self::waits::{Bounds, Recorder, Waits};
use crate::engine::{Engine, EngineBuilder, Monitor, StartError};
use crate::sync::{Arc, DataArc, Mutex};

/// Endpoints of a pool that have series of their own unless told otherwise. Guessed: a few thousand series a pool.
const MAX_ENDPOINTS: usize = 512;

/// Bounds of the waiting times unless told otherwise \[µs\]. Guessed: from a free worker to a patient client.
const WAIT_BUCKETS: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// The metrics of any number of engines, one pool each: a [`Collector`] for a registry. Clones share the pools.
///
/// A scrape asks each arbiter for a picture and waits for its next turn. It may not run on an arbiter's own thread, in
/// a waker, a selector or an observer: it panics there.
#[derive(Clone, Debug)]
pub struct Metrics {
    pools: Arc<Mutex<BTreeMap<DataArc<str>, Watched>>>,
    bounds: Bounds,
    max_endpoints: usize,
}

/// What is read when somebody scrapes.
#[derive(Clone, Debug)]
struct Watched {
    monitor: Monitor,
    waits: Arc<Waits>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            pools: Arc::new(Mutex::new(BTreeMap::new())),
            bounds: Bounds::new(WAIT_BUCKETS.map(Duration::from_micros)),
            max_endpoints: MAX_ENDPOINTS,
        }
    }
}

impl Metrics {
    /// Metrics without pools.
    pub fn new() -> Self {
        Self::default()
    }

    /// Upper bounds of the buckets that waiting times fall into, for pools that are started by this clone; in any
    /// order. The one without a bound comes by itself.
    pub fn wait_buckets(mut self, bounds: impl IntoIterator<Item = Duration>) -> Self {
        self.bounds = Bounds::new(bounds);
        self
    }

    /// Endpoints that a pool may have series for, in what this clone collects. Of a larger pool there are only the
    /// sums, which are always there.
    pub fn max_endpoints(mut self, endpoints: usize) -> Self {
        self.max_endpoints = endpoints;
        self
    }

    /// Starts an engine and collects from it under the label `pool`. It takes the place of another of that name.
    /// Collecting does not keep it open: one that has ended shows how it ended, until it is [removed](Self::remove).
    ///
    /// # Errors
    /// Those of [`EngineBuilder::start`].
    pub fn start(&self, pool: impl Into<DataArc<str>>, builder: EngineBuilder) -> Result<Engine, StartError> {
        let waits = Arc::new(Waits::new(self.bounds.clone()));
        let engine = builder.observer(Recorder::new(waits.clone())).start()?;
        self.pools.lock().insert(pool.into(), Watched { monitor: engine.monitor(), waits });
        Ok(engine)
    }

    /// Collects from a pool no more. Returns whether there was one of that name.
    pub fn remove(&self, pool: &str) -> bool {
        self.pools.lock().remove(pool).is_some()
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        // Pictures are waited for without the lock.
        let watched: Vec<_> =
            self.pools.lock().iter().map(|(name, watched)| (name.clone(), watched.clone())).collect();
        let picture = |(name, Watched { monitor, waits })| {
            Pool::new(name, monitor.snapshot(), waits.read(), self.max_endpoints)
        };
        let pools: Vec<_> = watched.into_iter().map(picture).collect();
        families::encode(&mut encoder, &pools)
    }
}
