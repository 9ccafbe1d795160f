//! What is counted in a run.

use std::sync::Arc;

use hdrhistogram::Histogram;
use tollgate::{LimitKind, Reason};

use super::timeline::Timeline;
use super::worker::Work;

/// Classes up to this number have a timeline each, and percentiles to three digits instead of two.
pub(super) const FEW: usize = 64;

/// A distribution of times.
#[derive(Clone, Debug)]
pub struct Times {
    /// \[µs\]
    histogram: Histogram<u32>,
    sum: u128,
    longest: u64,
}

impl Times {
    /// An empty one, exact to so many digits.
    pub fn new(digits: u8) -> Self {
        let histogram = Histogram::new(digits).expect("one to five digits are possible");
        Self { histogram, sum: 0, longest: 0 }
    }

    /// Adds a time \[ns\].
    pub fn record(&mut self, ns: u64) {
        // The histogram grows by itself as far as 64 bits go.
        let _ = self.histogram.record(ns.div_ceil(1_000));
        self.sum += u128::from(ns);
        self.longest = self.longest.max(ns);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Mean \[ms\].
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.sum as f64 / self.count() as f64 / 1e6)
    }

    /// The time that the share `q` does not exceed \[ms\].
    pub fn quantile(&self, q: f64) -> Option<f64> {
        // The histogram answers with the end of a bucket, which nobody may have reached.
        let at = || (self.histogram.value_at_quantile(q) as f64 / 1e3).min(self.longest as f64 / 1e6);
        (self.count() > 0).then(at)
    }

    /// The longest \[ms\].
    pub fn longest(&self) -> Option<f64> {
        (self.count() > 0).then_some(self.longest as f64 / 1e6)
    }
}

/// What became of the requests of a class, of a group, or of all.
#[derive(Clone, Debug)]
pub struct Counts {
    /// Requests that came.
    pub arrived: u64,
    /// Requests that were sent to a worker.
    pub dispatched: u64,
    /// Requests that were finished.
    pub completed: u64,
    /// Their cost \[tokens\].
    pub served: u64,
    /// Refused by a limit, in the order of [`REFUSALS`].
    pub refused: [u64; 3],
    /// Deadline over on arrival.
    pub late: u64,
    /// Deadline, or the class's longest waiting time, over while waiting.
    pub expired: u64,
    /// No endpoint could serve them.
    pub failed: u64,
    /// Still waiting when nothing could happen any more.
    pub stuck: u64,
    /// Arrival to dispatch, of those dispatched.
    pub waited: Times,
    /// Arrival to first token.
    pub first_token: Times,
    /// Arrival to last token.
    pub last_token: Times,
    /// The longest wait of anybody, also of those that expired or are stuck \[ns\].
    pub longest_wait: u64,
}

impl Counts {
    /// Nothing so far.
    pub fn new(digits: u8) -> Self {
        Self {
            arrived: 0,
            dispatched: 0,
            completed: 0,
            served: 0,
            refused: [0; 3],
            late: 0,
            expired: 0,
            failed: 0,
            stuck: 0,
            waited: Times::new(digits),
            first_token: Times::new(digits),
            last_token: Times::new(digits),
            longest_wait: 0,
        }
    }

    /// Notes a wait that ended \[ns\].
    pub fn wait(&mut self, ns: u64) {
        self.longest_wait = self.longest_wait.max(ns);
    }

    /// Notes a refusal.
    pub fn refuse(&mut self, kind: LimitKind) {
        let at = REFUSALS.iter().position(|known| *known == kind).expect("every kind is listed");
        self.refused[at] += 1;
    }

    /// All that limits refused.
    pub fn refused(&self) -> u64 {
        self.refused.iter().sum()
    }

    /// Waits of more than was allowed: late or expired.
    pub fn missed(&self) -> u64 {
        self.late + self.expired
    }

    /// Requests whose end is known: with those that are stuck, all that arrived.
    pub fn ended(&self) -> u64 {
        self.completed + self.refused() + self.missed() + self.failed
    }
}

/// The kinds of refusals.
pub const REFUSALS: [LimitKind; 3] = [LimitKind::Requests, LimitKind::RawIslTokens, LimitKind::CachedTokens];

/// A class in a run.
#[derive(Clone, Debug)]
pub struct ClassStats {
    /// Its name.
    pub name: Arc<str>,
    /// Its quantum \[tokens\].
    pub quantum: u64,
    /// Its requests.
    pub counts: Counts,
    /// Most that waited.
    pub queue_most: u64,
    /// Requests × ns waited.
    pub queue_sum: u128,
    /// Cost served while it was backlogged \[tokens\].
    pub received: f64,
    /// What its quantum entitles it to of all that backlogged classes were served at these times \[tokens\].
    pub entitled: f64,
    /// Time with something waiting \[ns\].
    pub backlogged: u64,
}

impl ClassStats {
    /// What a class may get in one turn \[tokens\]: its quantum, or a request.
    pub(super) fn turn(&self) -> f64 {
        (self.quantum as f64).max(ratio(self.counts.served as f64, self.counts.dispatched as f64))
    }

    /// Service received, in parts of what its quantum entitles the class to; `None` if it never competed.
    pub fn share(&self) -> Option<f64> {
        (self.entitled > 0.0).then(|| self.received / self.entitled)
    }
}

/// A group in a run: requests by a rule, whatever their class.
#[derive(Clone, Debug)]
pub struct GroupStats {
    /// Its name.
    pub name: Arc<str>,
    /// Its requests.
    pub counts: Counts,
}

/// A worker in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerStats {
    /// What it did.
    pub work: Work,
    /// Prompt tokens of its requests, cached ones included.
    pub prompts: u64,
    /// Of these, found in its cache.
    pub hits: u64,
}

/// What is summed up over time, one row each in the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    /// Time of workers with a step running \[ns\].
    Busy,
    /// Requests that limits refused, or whose time was over.
    Lost,
    /// Cost dispatched from a class \[tokens\].
    Served(usize),
    /// Requests of a class waiting × ns.
    Queue(usize),
    /// Waiting times of a class's requests, by their dispatch \[ns\].
    Waited(usize),
    /// Requests dispatched from a class.
    Dispatched(usize),
    /// Cost dispatched from a class while it competed \[tokens\].
    Received(usize),
    /// What its quantum entitled it to meanwhile \[tokens\].
    Due(usize),
}

impl Row {
    /// Rows for so many classes.
    pub fn count(classes: usize) -> usize {
        2 + 6 * classes.min(FEW)
    }

    /// Place in the timeline; `None` for a class beyond the first few.
    pub fn place(self) -> Option<usize> {
        let of = |class: usize, kind| (class < FEW).then_some(2 + 6 * class + kind);
        match self {
            Self::Busy => Some(0),
            Self::Lost => Some(1),
            Self::Served(class) => of(class, 0),
            Self::Queue(class) => of(class, 1),
            Self::Waited(class) => of(class, 2),
            Self::Dispatched(class) => of(class, 3),
            Self::Received(class) => of(class, 4),
            Self::Due(class) => of(class, 5),
        }
    }
}

/// A run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Classes, in ring order.
    pub classes: Vec<ClassStats>,
    /// Groups, in the order of their rules.
    pub groups: Vec<GroupStats>,
    /// All requests.
    pub all: Counts,
    /// Workers by number.
    pub workers: Vec<WorkerStats>,
    /// Sums over time: see [`Row`].
    pub timeline: Timeline,
    /// From the first arrival to the last token \[ns\].
    pub duration: u64,
    /// From the first arrival to the last one \[ns\].
    pub arrivals_span: u64,
    /// Time in which a request waited that could have gone \[ns\]: 0, or the scheduler does not conserve work.
    pub unconserved: u64,
    /// Time with something waiting × workers that did nothing meanwhile \[worker ns\]: what thresholds, ratios and pins
    /// keep idle.
    pub idle_while_waiting: u128,
    /// Time with something waiting \[ns\].
    pub backlogged: u64,
    /// Why requests failed selection, by code.
    pub failures: Vec<(&'static str, u64)>,
    /// Decisions of the scheduler.
    pub decisions: u64,
}

impl Outcome {
    pub(super) fn fail(&mut self, reason: &Reason) {
        let code = reason.code();
        match self.failures.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => self.failures.push((code, 1)),
        }
    }

    /// Share of the workers' time with a step running.
    pub fn utilisation(&self) -> f64 {
        let busy: u128 = self.workers.iter().map(|w| u128::from(w.work.busy)).sum();
        ratio(busy as f64, self.duration as f64 * self.workers.len() as f64)
    }

    /// Prompt tokens that workers computed, per second.
    pub fn prefill_rate(&self) -> f64 {
        let prefill: u64 = self.workers.iter().map(|w| w.work.prefill).sum();
        ratio(prefill as f64, self.duration as f64 / 1e9)
    }

    /// Share of the prompt tokens that workers found in their caches.
    pub fn hit_rate(&self) -> f64 {
        let (hits, prompts) =
            self.workers.iter().fold((0, 0), |(hits, prompts), w| (hits + w.hits, prompts + w.prompts));
        ratio(hits as f64, prompts as f64)
    }

    /// Share of the workers that worked while something waited; 1 if nothing ever did.
    pub fn busy_while_waiting(&self) -> f64 {
        1.0 - ratio(self.idle_while_waiting as f64, self.backlogged as f64 * self.workers.len() as f64)
    }

    /// Share of the slots that had a request in them.
    pub fn slots_used(&self, slots: u32) -> f64 {
        let used: u128 = self.workers.iter().map(|w| w.work.slots).sum();
        ratio(used as f64, self.duration as f64 * self.workers.len() as f64 * f64::from(slots))
    }
}

/// `a / b`, 0 if there is nothing to divide by.
pub fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_percentile_is_above_the_longest_time() {
        let mut times = Times::new(2);
        assert_eq!((times.quantile(0.5), times.mean(), times.longest()), (None, None, None));
        for ms in 1..=1_000u64 {
            times.record(ms * 1_000_000);
        }
        assert_eq!(times.quantile(1.0), Some(1_000.0));
        assert_eq!(times.mean(), Some(500.5));
        let p50 = times.quantile(0.5).unwrap();
        assert!((500.0..=505.0).contains(&p50), "{p50}");
        times.record(u64::MAX);
        assert_eq!(times.longest(), Some(u64::MAX as f64 / 1e6));
    }
}
