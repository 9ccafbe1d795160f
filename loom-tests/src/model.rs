//! Runs a model and says how many executions it took.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// How many preemptions of one execution are explored.
pub(crate) type Bound = Option<usize>;

/// The bounds of all models. Those that have one would take minutes without.
pub(crate) mod bound {
    use super::Bound;

    /// Every execution.
    pub(crate) const NONE: Bound = None;
    /// Three threads and three items on one head: 20 thousand executions; each one more makes it four times as many.
    pub(crate) const THREE_ITEMS: Bound = Some(4);
    /// Three threads that also look for the end: 60 thousand; as above.
    pub(crate) const TWO_PUSHES_AND_CLOSE: Bound = Some(4);
    /// Two threads, but two whole admissions against every turn of the arbiter: 13 thousand; as above.
    pub(crate) const TWO_ADMISSIONS: Bound = Some(4);
    /// The same from two threads at once: 90 thousand; each one more makes it fifteen times as many.
    pub(crate) const TWO_NOTIFIERS: Bound = Some(3);
}

/// Explores `model`, whatever the environment says about stopping early, and prints the number of executions.
pub(crate) fn check(name: &str, bound: Bound, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.max_permutations = None;
    builder.max_duration = None;
    let start = Instant::now();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        model();
    });
    let executions = executions.load(Ordering::Relaxed);
    let bound = bound.map_or(String::new(), |most| format!(", at most {most} preemptions"));
    // Not println: the harness would capture it, and nobody would see what a green model explored.
    writeln!(std::io::stdout(), "{executions} executions of {name} ({:.1?}{bound})", start.elapsed())
        .expect("stdout takes a line");
}
