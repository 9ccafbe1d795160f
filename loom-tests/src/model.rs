//! Runs a model and says how many executions it took.

use std::collections::BTreeSet;
use std::io::Write;
#[cfg(loom)]
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
    /// Someone who looks at two counters twice each, and again: 780 thousand without.
    pub(crate) const LOOK: Bound = Some(2);
    /// Two markers of one bitmap below another, and two sweeps within one another.
    pub(crate) const BELOW: Bound = Some(3);
    /// Two threads, but two whole admissions against every turn of the arbiter: 9 thousand; as above.
    pub(crate) const TWO_ADMISSIONS: Bound = Some(4);
    /// The same from two threads at once: 77 thousand; each one more makes it fifteen times as many.
    pub(crate) const TWO_NOTIFIERS: Bound = Some(3);
    /// A caller and an unpark, or a release, against a sleeper that lends: 1 to 30 thousand.
    pub(crate) const LEND: Bound = Some(3);
    /// Two callers against it: 20 thousand; one more makes it twenty times as many.
    pub(crate) const LEND_TWO_NOTIFIERS: Bound = Some(2);
    /// Two visitors, either of whom may have to go through the queue: 15 thousand; one more makes it twenty times as many.
    pub(crate) const LEND_VISITORS: Bound = Some(1);
    /// One caller and all that it does at once, turn by turn: 290 thousand without.
    pub(crate) const LEND_TURNS: Bound = Some(4);
    /// The whole engine and two callers that assist: up to 11 thousand; one more makes it some ten times as many.
    pub(crate) const ASSIST: Bound = Some(3);
    /// The same where a request may be answered at once: up to 7 thousand; one more makes it ten times as many.
    pub(crate) const ASSIST_AT_ONCE: Bound = Some(2);
    /// The same with a whole request of each: 13 thousand; one more makes it sixteen times as many.
    pub(crate) const ASSIST_TWO_REQUESTS: Bound = Some(2);
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

    /// Every one of `expected` has happened, unless schedules are drawn by chance, and nothing else.
    pub(crate) fn assert(&self, expected: &[&'static str]) {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let expected: BTreeSet<_> = expected.iter().copied().collect();
        assert!(if cfg!(shuttle) { seen.is_subset(&expected) } else { *seen == expected }, "{seen:?}");
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

/// Where a model begins.
pub(crate) fn begin() {
    #[cfg(loom)]
    loom::explore();
}

/// From here on all executions may be the same.
pub(crate) fn stop() {
    #[cfg(loom)]
    loom::stop_exploring();
}

/// Schedules of each model that are drawn by chance, half of them with few changes of threads (Burckhardt et al., "A
/// randomized scheduler with probabilistic guarantees of finding bugs", ASPLOS 2010).
#[cfg(shuttle)]
const SCHEDULES: usize = 10_000;

#[cfg(shuttle)]
fn explore(name: &str, _: Bound, _: bool, model: impl Fn() + Send + Sync + 'static) {
    use shuttle::scheduler::{PctScheduler, RandomScheduler};
    const SEED: u64 = 0x7011_6A7E;
    const CHANGES: usize = 3;
    let model = Arc::new(model);
    let start = Instant::now();
    let mut schedules = 0;
    for few_changes in [false, true] {
        let model = model.clone();
        let count = SCHEDULES / 2;
        let body = move || model();
        schedules += if few_changes {
            shuttle::Runner::new(PctScheduler::new_from_seed(SEED, CHANGES, count), config()).run(body)
        } else {
            shuttle::Runner::new(RandomScheduler::new_from_seed(SEED, count), config()).run(body)
        };
    }
    writeln!(std::io::stdout(), "{schedules} executions of {name} ({:.1?}, by chance)", start.elapsed())
        .expect("stdout takes a line");
}

#[cfg(shuttle)]
fn config() -> shuttle::Config {
    let mut config = shuttle::Config::default();
    // The whole engine is on the stack of its arbiter.
    config.stack_size = 1 << 20;
    config
}

#[cfg(loom)]
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
