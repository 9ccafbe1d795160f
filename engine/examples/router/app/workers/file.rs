//! The file of workers.
//!
//! ```yaml
//! workers:
//!   - url: http://10.0.0.1:8000
//!   - url: http://10.0.0.2:8000
//!     models: [my-model]            # else the worker's own list
//!     max_num_batched_tokens: 8192  # base of prefill_busy_threshold_frac
//!     max_active_requests: 64
//!     prefix_tokens: 500000         # size of its prefix cache
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::time::sleep;

use super::{Event, Reports, Spec, WorkerUrl};

/// How often the file is looked at. Reading it works wherever it is, on network drives and mounted secrets too.
const LOOK: Duration = Duration::from_secs(1);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    workers: Vec<Listed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    url: String,
    models: Option<BTreeSet<Arc<str>>>,
    max_num_batched_tokens: Option<u64>,
    max_active_requests: Option<u32>,
    prefix_tokens: Option<usize>,
}

/// `others` and the workers in a file; `prefix_tokens` is for those that do not say.
pub(crate) fn read(
    path: &Path,
    prefix_tokens: usize,
    others: &[Spec],
) -> Result<Vec<Spec>, WorkersFileError> {
    let wrong = |message: String| WorkersFileError { path: path.to_owned(), message };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let document: Document = serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let mut specs = others.to_vec();
    for (i, listed) in document.workers.into_iter().enumerate() {
        let url: WorkerUrl =
            listed.url.parse().map_err(|error| wrong(format!("workers[{i}].url: {error}")))?;
        if specs.iter().any(|spec| spec.url == url) {
            return Err(wrong(format!("workers[{i}].url: {url} is listed twice")));
        }
        specs.push(Spec {
            url,
            models: listed.models,
            max_num_batched_tokens: listed.max_num_batched_tokens,
            max_active_requests: listed.max_active_requests,
            prefix_tokens: listed.prefix_tokens.unwrap_or(prefix_tokens),
        });
    }
    Ok(specs)
}

/// Reports the list whenever the file changes. A file with a fault changes nothing.
pub(crate) async fn watch(
    path: PathBuf,
    prefix_tokens: usize,
    others: Vec<Spec>,
    first: Vec<Spec>,
    reports: Reports,
) {
    let mut last = Ok(first);
    loop {
        sleep(LOOK).await;
        let now = read(&path, prefix_tokens, &others);
        if now == last {
            continue;
        }
        match &now {
            Ok(specs) => reports.send(Event::Listed(specs.clone())),
            Err(error) => eprintln!("the workers stay as they were: {error}"),
        }
        last = now;
    }
}

/// A file that is no list of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkersFileError {
    path: PathBuf,
    message: String,
}

impl fmt::Display for WorkersFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.message)
    }
}

impl std::error::Error for WorkersFileError {}
