//! Which workers there are, which of them are well, and what they serve.
//!
//! One task owns the list. Probes, the file's watcher and requests that found a worker gone or full tell it what they
//! saw; it publishes the pools' worker snapshots.

mod file;
mod list;
mod probe;
mod url;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tollgate::WorkerId;

use super::prefix::PrefixIndex;
pub(crate) use file::WorkersFileError;
pub(crate) use list::{List, Publish};
pub(crate) use probe::HttpClient;
pub(crate) use url::WorkerUrl;

/// A worker as an operator describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    pub(crate) url: WorkerUrl,
    /// What it serves; `None`: what it says itself.
    pub(crate) models: Option<BTreeSet<Arc<str>>>,
    pub(crate) max_num_batched_tokens: Option<u64>,
    pub(crate) max_active_requests: Option<u32>,
    /// Size of its prefix cache \[tokens\].
    pub(crate) prefix_tokens: usize,
}

/// What requests know of a worker.
pub(crate) struct Worker {
    pub(crate) id: WorkerId,
    pub(crate) url: WorkerUrl,
    pub(crate) prefix: PrefixIndex,
    pub(crate) state: Mutex<State>,
}

/// What is known of a worker's health. Written by the task that owns the list.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    pub(crate) up: bool,
    pub(crate) overloaded: bool,
    pub(crate) models: BTreeSet<Arc<str>>,
    /// A number for each process that was seen behind the address.
    pub(crate) incarnation: u64,
    /// Why it is not up.
    pub(crate) fault: Option<Arc<str>>,
}

/// What was seen of a worker.
#[derive(Debug)]
pub(crate) enum Event {
    /// It is well, and serves these models.
    Well { worker: WorkerId, models: BTreeSet<Arc<str>> },
    /// A probe failed.
    Ill { worker: WorkerId, fault: Fault },
    /// A request found nobody there.
    Gone { worker: WorkerId, fault: Fault },
    /// It answered a request that it has too much to do.
    Overloaded { worker: WorkerId, pause: Duration },
    /// The list is another one now.
    Listed(Vec<Spec>),
}

/// Why a worker does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) message: Arc<str>,
    /// Nobody listens: the process is gone, and whoever comes next is a new one.
    pub(crate) refused: bool,
}

/// Tells the owner of the list what was seen.
#[derive(Clone, Debug)]
pub(crate) struct Reports(mpsc::UnboundedSender<Event>);

impl Reports {
    pub(crate) fn send(&self, event: Event) {
        // Nobody listens any more when the router ends.
        let _ = self.0.send(event);
    }
}

/// Starts the task that owns the list, and waits until each worker has been looked at once.
pub(crate) async fn start<P: Publish>(
    specs: Vec<Spec>,
    settings: Settings,
    client: HttpClient,
    publish: P,
) -> (Reports, tokio::task::AbortHandle) {
    let (send, receive) = mpsc::unbounded_channel();
    let reports = Reports(send);
    let (ready, is_ready) = oneshot::channel();
    let list = List::new(settings, client, reports.clone(), publish, ready);
    let task = tokio::spawn(list.run(specs, receive)).abort_handle();
    // The sender goes when the task does.
    let _ = is_ready.await;
    (reports, task)
}

/// How workers are watched.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) health_path: String,
    pub(crate) interval: Duration,
    pub(crate) failures: u32,
    pub(crate) timeout: Duration,
    pub(crate) block_tokens: usize,
}

/// Reads the file of workers, and again whenever it changes.
pub(crate) use file::{read as read_file, watch as watch_file};
