//! What the engine counts, and the picture of it that anyone may ask for.
//!
//! The arbiter counts in plain memory of its own. A picture is a question to it, answered between two turns: its
//! numbers are of the same moment, and a request costs nothing for being counted.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::contain::contained;
use crate::policy::ClassId;
use crate::scheduler::{Booked, EndpointIndex, Usage};
use crate::sync::ingress::Queued;
use crate::sync::prefetch;
use crate::sync::ticket::{Answerer, Ticket};
use crate::sync::{Arc, AtomicBool, AtomicU64, DataArc, Mutex, MutexGuard, Ordering};
use crate::worker::Endpoint;

/// Longest time that histograms tell apart \[ns\]: longer ones count as this. An hour.
const LONGEST: u64 = 3_600_000_000_000;

/// A histogram of durations \[ns\], exact to 6 %, or of counts.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 1).expect("the bounds are valid")
}

/// Counts per turn, most of which are small.
#[derive(Clone, Debug)]
pub(super) struct Tally {
    /// How often each small count came.
    few: [u64; 32],
    many: Histogram<u64>,
}

impl Tally {
    fn new() -> Self {
        Self { few: [0; 32], many: histogram() }
    }

    pub(super) fn record(&mut self, count: usize) {
        match self.few.get_mut(count) {
            Some(times) => *times += 1,
            None => self.many.saturating_record(count as u64),
        }
    }

    pub(super) fn histogram(&self) -> Histogram<u64> {
        let mut all = self.many.clone();
        for (count, times) in (0..).zip(self.few).filter(|(_, times)| *times > 0) {
            all.saturating_record_n(count, times);
        }
        all
    }
}

/// What a usual request changes, on one cache line.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
struct Hot {
    taken_in: u64,
    dispatched: u64,
    dispatched_tokens: u64,
    /// The last waiting times \[ns\]: they go into the histogram, which is far away, when there are some.
    recent: [u32; 8],
    recents: u32,
    /// Those that did not wait at all, that the histogram does not have yet.
    at_once: u32,
}

const _: () = assert!(size_of::<Hot>() == 64);

impl Hot {
    /// The last waiting times.
    fn tell(&self, waits: &mut Histogram<u64>) {
        for nanos in &self.recent[..self.recents as usize] {
            waits.saturating_record(u64::from(*nanos));
        }
        waits.saturating_record_n(0, u64::from(self.at_once));
    }
}

/// What became of the requests of one class, as the arbiter saw it.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    hot: Hot,
    /// By [`LimitKind`](crate::LimitKind).
    pub(super) refused: [u64; 3],
    pub(super) expired: u64,
    pub(super) cancelled: u64,
    pub(super) failed: u64,
    pub(super) closed: u64,
    /// Those that did not even get into the queue.
    pub(super) door: Arc<ClassDoor>,
    waits: Option<Histogram<u64>>,
}

impl Counts {
    /// Nothing counted yet, but at `door`.
    pub(super) fn at(door: Arc<ClassDoor>) -> Self {
        Self { door, ..Self::default() }
    }

    /// Asks for what a usual request changes to be brought near.
    pub(super) fn prefetch(&self) {
        prefetch(&self.hot);
    }

    pub(super) fn taken_in(&mut self) {
        self.hot.taken_in += 1;
    }

    pub(super) fn dispatched(&mut self, cost: u64, waited: Duration) {
        let Hot { dispatched, dispatched_tokens, recent, recents, .. } = &mut self.hot;
        *dispatched += 1;
        *dispatched_tokens = dispatched_tokens.saturating_add(cost);
        match u32::try_from(waited.as_nanos()) {
            Ok(nanos) => {
                recent[*recents as usize] = nanos;
                *recents += 1;
                if *recents as usize == recent.len() {
                    self.settle();
                }
            }
            Err(_) => {
                let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
                self.waits.get_or_insert_with(histogram).saturating_record(nanos);
            }
        }
    }

    /// The same for one that did not wait.
    pub(super) fn dispatched_at_once(&mut self, cost: u64) {
        let Hot { dispatched, dispatched_tokens, at_once, .. } = &mut self.hot;
        *dispatched += 1;
        *dispatched_tokens = dispatched_tokens.saturating_add(cost);
        *at_once += 1;
        if *at_once == u32::MAX {
            self.settle();
        }
    }

    /// Puts the last waiting times into the histogram.
    fn settle(&mut self) {
        self.hot.tell(self.waits.get_or_insert_with(histogram));
        (self.hot.recents, self.hot.at_once) = (0, 0);
    }

    /// The numbers of a class, without what only the scheduler knows.
    pub(super) fn status(&self, id: ClassId, name: DataArc<str>) -> ClassStatus {
        let [requests, raw_isl_tokens, cached_tokens] = self.refused;
        let (full, late) = (read(&self.door.full), read(&self.door.late));
        let mut waits = self.waits.clone().unwrap_or_else(histogram);
        self.hot.tell(&mut waits);
        ClassStatus {
            id,
            name,
            waiting: Usage::default(),
            oldest: None,
            deficit: 0,
            quantum: 0,
            submitted: self.hot.taken_in + full + late,
            dispatched: self.hot.dispatched,
            dispatched_tokens: self.hot.dispatched_tokens,
            refused: Refused { requests, raw_isl_tokens, cached_tokens, ingress_full: full },
            expired: self.expired + late,
            cancelled: self.cancelled,
            failed: self.failed,
            closed: self.closed,
            waits,
        }
    }
}

/// What the arbiter counts of itself.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    pub(super) turns: u64,
    pub(super) sleeps: u64,
    pub(super) longest: Duration,
    pub(super) intake: Tally,
    pub(super) dispatches: Tally,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { turns: 0, sleeps: 0, longest: Duration::ZERO, intake: Tally::new(), dispatches: Tally::new() }
    }
}

/// What is turned away before it gets into a queue. Counted by callers, on the refusing path only.
#[derive(Debug, Default)]
pub(super) struct Door {
    pub(super) invalid: AtomicU64,
    pub(super) closed: AtomicU64,
    pub(super) clamped: AtomicU64,
}

/// The same for one class.
#[derive(Debug, Default)]
pub(super) struct ClassDoor {
    pub(super) full: AtomicU64,
    pub(super) late: AtomicU64,
}

/// One more.
pub(super) fn count(counter: &AtomicU64) {
    // Relaxed: a count, which publishes nothing.
    counter.fetch_add(1, Ordering::Relaxed);
}

/// How many.
pub(super) fn read(counter: &AtomicU64) -> u64 {
    // Relaxed: a count, which publishes nothing.
    counter.load(Ordering::Relaxed)
}

type Question = Ticket<(), EngineSnapshot>;

/// Who waits for a picture. Off the request path.
#[derive(Debug)]
pub(super) struct Wanted {
    any: AtomicBool,
    asked: Mutex<Asked>,
}

#[derive(Debug, Default)]
struct Asked {
    questions: Vec<Queued<Question>>,
    /// The last picture of an engine that has ended.
    last: Option<EngineSnapshot>,
}

impl Wanted {
    pub(super) fn new() -> Self {
        Self { any: AtomicBool::new(false), asked: Mutex::new(Asked::default()) }
    }

    /// Asks for a picture; the last one comes back at once if the engine has ended.
    pub(super) fn ask(&self, question: Queued<Question>) -> Option<EngineSnapshot> {
        let mut asked = self.asked.lock();
        if asked.last.is_none() {
            asked.questions.push(question);
            // Relaxed: the caller notifies the arbiter behind a fence; the question itself is under the lock.
            self.any.store(true, Ordering::Relaxed);
        }
        asked.last.clone()
    }

    /// Whether somebody waits for a picture.
    pub(super) fn any(&self) -> bool {
        // Relaxed: before it sleeps, the arbiter looks again behind a fence.
        self.any.load(Ordering::Relaxed)
    }

    /// How many wait for a picture. `None` if somebody is just asking and the caller does not want to `wait` for them;
    /// they will notify.
    pub(super) fn waiting(&self, wait: bool) -> Option<usize> {
        if !self.any() {
            return Some(0);
        }
        Some(self.lock(wait)?.questions.len())
    }

    /// Answers so many of those who wait, the first. They stay until then, so that nobody is forgotten if the arbiter
    /// fails before; and they stay if somebody is just asking and the caller does not want to `wait` for them.
    pub(super) fn answer(&self, count: usize, picture: &EngineSnapshot, wait: bool) {
        let Some(mut asked) = self.lock(wait) else { return };
        let questions: Vec<_> = asked.questions.drain(..count).collect();
        // Relaxed: the questions are under the lock, and so is every change of the flag.
        self.any.store(!asked.questions.is_empty(), Ordering::Relaxed);
        drop(asked);
        answer_all(questions, picture);
    }

    /// Does something as if somebody were in the middle of asking meanwhile.
    #[cfg(test)]
    pub(super) fn while_asking<R>(&self, f: impl FnOnce() -> R) -> R {
        let _asked = self.asked.lock();
        // Relaxed: as in `ask`.
        self.any.swap(true, Ordering::Relaxed);
        let done = f();
        // Relaxed: as in `answer`.
        self.any.swap(false, Ordering::Relaxed);
        done
    }

    fn lock(&self, wait: bool) -> Option<MutexGuard<'_, Asked>> {
        if wait { Some(self.asked.lock()) } else { self.asked.try_lock() }
    }

    /// Answers whoever waits, and whoever asks from now on.
    pub(super) fn finish(&self, picture: EngineSnapshot) {
        let questions = {
            let mut asked = self.asked.lock();
            asked.last = Some(picture.clone());
            std::mem::take(&mut asked.questions)
        };
        answer_all(questions, &picture);
    }
}

fn answer_all(questions: Vec<Queued<Question>>, picture: &EngineSnapshot) {
    for question in questions {
        let _ = contained(|| Answerer::new(question).answer(picture.clone()).is_ok());
    }
}

/// A picture of an engine, of one moment between two turns of the arbiter. What callers count themselves, requests turned
/// away and booked tokens, may be a little ahead of the rest.
///
/// At rest, in each class `submitted = dispatched + refused + expired + cancelled + failed + closed`, and every gauge
/// (`waiting`, `oldest`, `deficit`, booked tokens and permits) is 0.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EngineSnapshot {
    /// Time since the engine started.
    pub uptime: Duration,
    /// Classes in ring order, those that drain after a reload included.
    pub classes: Vec<ClassStatus>,
    /// Endpoints by worker and rank.
    pub endpoints: Vec<EndpointStatus>,
    /// The arbiter thread.
    pub arbiter: ArbiterStatus,
    /// Requests turned away because they made no sense.
    pub invalid: u64,
    /// Requests turned away because the engine was closed or draining.
    pub turned_away: u64,
    /// Requests that were not given the class they asked for.
    pub clamped: u64,
    /// Permits released after their worker's incarnation had changed.
    pub stale_releases: u64,
    /// Classes that share a busy rule, and the endpoints that are busy for them.
    pub(super) busy: Vec<(Vec<ClassId>, Vec<EndpointIndex>)>,
}

impl EngineSnapshot {
    /// What is left to show when no picture can be made.
    pub(super) fn empty() -> Self {
        let Turns { turns, sleeps, longest, intake, dispatches } = Turns::new();
        Self {
            uptime: Duration::ZERO,
            classes: Vec::new(),
            endpoints: Vec::new(),
            arbiter: ArbiterStatus {
                turns,
                decisions: 0,
                sleeps,
                longest_turn: longest,
                hook_panics: 0,
                intake: intake.histogram(),
                dispatches: dispatches.histogram(),
            },
            invalid: 0,
            turned_away: 0,
            clamped: 0,
            stale_releases: 0,
            busy: Vec::new(),
        }
    }

    /// Works out what the arbiter need not: for each endpoint the classes that it is busy for.
    pub(super) fn completed(mut self) -> Self {
        for (classes, busy) in std::mem::take(&mut self.busy) {
            for endpoint in busy {
                self.endpoints[endpoint.index()].busy_for.extend_from_slice(&classes);
            }
        }
        self.endpoints.iter_mut().for_each(|e| e.busy_for.sort());
        self
    }
}

/// One class of an [`EngineSnapshot`]. Counters are since the class came into the policy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClassStatus {
    /// Number.
    pub id: ClassId,
    /// Name.
    pub name: DataArc<str>,
    /// What waits.
    pub waiting: Usage,
    /// Time since the arrival of the waiting request that was enqueued first.
    pub oldest: Option<Duration>,
    /// Credit \[tokens\].
    pub deficit: u64,
    /// Credit per round \[tokens\].
    pub quantum: u64,
    /// Requests that the arbiter has taken in, or that were turned away at a full ingress or with a deadline over.
    pub submitted: u64,
    /// Requests that got a permit.
    pub dispatched: u64,
    /// Their cost \[tokens\].
    pub dispatched_tokens: u64,
    /// Requests refused for a limit.
    pub refused: Refused,
    /// Requests that waited too long.
    pub expired: u64,
    /// Requests whose caller left before the permit.
    pub cancelled: u64,
    /// Requests that no endpoint could serve, or whose selector failed.
    pub failed: u64,
    /// Requests that the end of the engine found waiting.
    pub closed: u64,
    /// Waiting time of all dispatched requests \[ns\].
    pub waits: Histogram<u64>,
}

impl ClassStatus {
    /// Requests whose fate is known.
    pub fn ended(&self) -> u64 {
        let Refused { requests, raw_isl_tokens, cached_tokens, ingress_full } = self.refused;
        let refused = requests + raw_isl_tokens + cached_tokens + ingress_full;
        self.dispatched + refused + self.expired + self.cancelled + self.failed + self.closed
    }
}

/// Refused requests by what refused them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refused {
    /// The limit of waiting requests.
    pub requests: u64,
    /// The limit of waiting raw ISL tokens.
    pub raw_isl_tokens: u64,
    /// The limit of waiting cached tokens.
    pub cached_tokens: u64,
    /// The capacity of the ingress queue.
    pub ingress_full: u64,
}

/// One endpoint of an [`EngineSnapshot`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointStatus {
    /// Worker and rank.
    pub endpoint: Endpoint,
    /// Active prefill tokens: booked here and by others.
    pub active: u64,
    /// What this engine has booked and not seen released.
    pub booked: Booked,
    /// Classes for which it is busy, by number.
    pub busy_for: Vec<ClassId>,
    /// Requests that are pinned to it and wait.
    pub waiting: u64,
}

/// The arbiter thread of an [`EngineSnapshot`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ArbiterStatus {
    /// Turns in which there was something to do.
    pub turns: u64,
    /// Requests that arbitration has picked.
    pub decisions: u64,
    /// Times that it slept.
    pub sleeps: u64,
    /// The longest turn; of one that a caller ran, up to its last answer. Answers at once are timed only if there is a selector
    /// or an observer.
    pub longest_turn: Duration,
    /// Panics of observers, each contained.
    pub hook_panics: u64,
    /// Requests taken in per turn that took any in.
    pub intake: Histogram<u64>,
    /// Requests dispatched per turn that dispatched any.
    pub dispatches: Histogram<u64>,
}
