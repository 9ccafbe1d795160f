//! Runs a model and says how many executions it took.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// How many preemptions of one execution are explored.
pub(crate) type Bound = Option<usize>;

/// The bounds of all models. Those that have one would take minutes without; the numbers are executions.
pub(crate) mod bound {
    use super::Bound;

    /// Every execution.
    pub(crate) const NONE: Bound = None;
    /// Three threads and two items on one head: 10 thousand, 800 thousand without.
    pub(crate) const TWO_PUSHES: Bound = Some(4);
    /// The same with three items: 33 thousand; each one more makes it four times as many.
    pub(crate) const THREE_ITEMS: Bound = Some(4);
    /// Three threads that also look for the end: 100 thousand; as above.
    pub(crate) const TWO_PUSHES_AND_CLOSE: Bound = Some(4);
    /// Two threads, but two whole admissions against every turn of the arbiter: 9 thousand; as above.
    pub(crate) const TWO_ADMISSIONS: Bound = Some(4);
    /// The same from two threads at once: 77 thousand; each one more makes it fifteen times as many.
    pub(crate) const TWO_NOTIFIERS: Bound = Some(3);
    /// Two threads, but two queues and a sleep: 14 to 82 thousand; each one more makes it four times as many.
    pub(crate) const ABANDONED: Bound = Some(5);
    /// The same with the admission before: 22 thousand.
    pub(crate) const ABANDONED_WHOLE: Bound = Some(4);
    /// The whole engine and one caller: up to 25 thousand; each one more makes it ten times as many.
    pub(crate) const ENGINE_ONE_CALLER: Bound = Some(3);
    /// The whole engine and two callers: up to 52 thousand; each one more makes it twenty-five times as many.
    pub(crate) const ENGINE: Bound = Some(2);
    /// The same with a whole request of each: 4 thousand; one more makes it seventy times as many.
    pub(crate) const ENGINE_TWO_REQUESTS: Bound = Some(1);
}

/// What has happened in at least one execution of a model.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<BTreeSet<&'static str>>>);

impl Seen {
    pub(crate) fn note(&self, what: &'static str) {
        // Poisoned by a model that is red already.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(what);
    }

    /// Every one of `expected` has happened, and nothing else.
    pub(crate) fn assert(&self, expected: &[&'static str]) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert_eq!(*seen, expected.iter().copied().collect());
    }
}

/// Explores `model`, whatever the environment says about stopping early, and prints the number of executions.
pub(crate) fn check(name: &str, bound: Bound, model: impl Fn() + Send + Sync + 'static) {
    explore(name, bound, false, model);
}

/// The same for a model that calls `loom::explore` where it begins: up to there all executions are the same.
pub(crate) fn check_late(name: &str, bound: Bound, model: impl Fn() + Send + Sync + 'static) {
    explore(name, bound, true, model);
}

fn explore(name: &str, bound: Bound, late: bool, model: impl Fn() + Send + Sync + 'static) {
    let executions = Arc::new(AtomicUsize::new(0));
    let count = executions.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    builder.expect_explicit_explore = late;
    // An execution of the whole engine takes some two thousand.
    builder.max_branches = 10_000;
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
