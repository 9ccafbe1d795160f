//! The results as one JSON document.

use std::path::Path;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::arms::Expected;
use super::run::{Run, Workload};
use super::{Arm, Measured};

/// Where the experiment ran.
pub(super) struct Machine {
    /// Threads that can run at the same time.
    pub(super) cores: usize,
    /// Operating system, its version if it tells, and the processor family.
    pub(super) os: String,
}

impl Machine {
    /// The machine that this runs on.
    pub(super) fn this() -> Self {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let parts = [std::env::consts::OS, release.trim(), std::env::consts::ARCH];
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            os: parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "),
        }
    }
}

/// Version of this program.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// p50 and p99 \[ms\]; `None` if nothing was recorded.
pub(super) fn percentiles(waited: &Histogram<u64>) -> Option<(f64, f64)> {
    let at = |quantile| waited.value_at_quantile(quantile) as f64 / 1_000.0;
    (!waited.is_empty()).then(|| (at(0.5), at(0.99)))
}

/// The document.
pub(super) fn json(load: &Workload, results: &[Measured], plot: &Path) -> Value {
    let machine = Machine::this();
    json!({
        "version": VERSION,
        "machine": { "cores": machine.cores, "os": machine.os },
        "requests": load.requests,
        "cost": load.cost,
        "slots": load.worker.slots,
        "service_ms": load.worker.service.as_secs_f64() * 1_000.0,
        "threads": (!load.http).then_some(load.threads),
        "http": load.http,
        "arms": results.iter().map(|measured| arm(load, measured)).collect::<Value>(),
        "plot": plot.to_string_lossy(),
    })
}

fn arm(load: &Workload, measured: &Measured) -> Value {
    let Arm { name, quanta, expected, .. } = &measured.arm;
    json!({
        "name": name,
        "quanta": by_class(load, quanta.iter().copied()),
        "expected": expected.as_ref().map(|expected| range(load, expected)),
        "runs": measured.runs.iter().map(|r| run(load, r, measured.inside(r))).collect::<Value>(),
    })
}

fn range(load: &Workload, expected: &Expected) -> Value {
    let first = expected.first.iter().map(|range| json!([range.start(), range.end()]));
    let left = json!([expected.left.start(), expected.left.end()]);
    let mut value = Map::from_iter([("source".to_owned(), expected.source.into())]);
    value.insert(first_key(load), by_class(load, first));
    value.insert(left_key(load, 1), left);
    value.into()
}

fn run(load: &Workload, run: &Run, inside: Option<bool>) -> Value {
    let waited = run.waited.iter().map(|waited| {
        percentiles(waited).map_or(Value::Null, |(p50, p99)| json!({ "p50": p50, "p99": p99 }))
    });
    let mut value = Map::from_iter([(first_key(load), by_class(load, run.first()))]);
    value.extend((1..load.classes.len()).map(|class| (left_key(load, class), run.left(class).into())));
    value.insert("inside".into(), inside.into());
    value.insert("requests_per_s".into(), run.rate().into());
    value.insert("waited_ms".into(), by_class(load, waited));
    value.insert("refused".into(), by_class(load, run.refused.iter().copied()));
    value.into()
}

fn first_key(load: &Workload) -> String {
    format!("first_{}", load.requests)
}

fn left_key(load: &Workload, class: usize) -> String {
    format!("{}_left", load.classes[class])
}

/// An object with a value for each class.
fn by_class<V: Into<Value>>(load: &Workload, values: impl IntoIterator<Item = V>) -> Value {
    let names = load.classes.iter().map(|class| class.to_string());
    Map::from_iter(names.zip(values.into_iter().map(Into::into))).into()
}
