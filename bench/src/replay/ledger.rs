//! What is written down during a run, and from it the [`Outcome`].

use super::sim::{Fleet, Setup};
use super::stats::{ClassStats, Counts, FEW, GroupStats, Outcome, Row, WorkerStats};
use super::timeline::Timeline;

/// Waiting requests of a class.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    len: u64,
    /// Last change \[ns\].
    since: u64,
    /// Whether it competes: it has waited through a round of dispatches.
    competing: bool,
    /// Virtual time up to which its due is summed up.
    seen: f64,
}

/// The books of a run.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) now: u64,
    pub(super) outcome: Outcome,
    lines: Vec<Line>,
    /// Classes whose line has grown in this instant.
    changed: Vec<u32>,
    waiting: u64,
    /// Quanta of the competing classes, and the service that each token of a quantum was entitled to so far.
    quanta: u128,
    virtual_time: f64,
}

impl Ledger {
    pub(super) fn new(setup: &Setup) -> Self {
        let Fleet { workers, .. } = setup.fleet;
        let classes = setup.profile.classes();
        let digits = if classes.len() <= FEW { 3 } else { 2 };
        let stats = classes.iter().map(|class| ClassStats {
            name: class.name.as_str().into(),
            quantum: class.quantum,
            counts: Counts::new(digits),
            queue_most: 0,
            queue_sum: 0,
            received: 0.0,
            entitled: 0.0,
            backlogged: 0,
        });
        let groups = setup.groups.rules().iter();
        let groups = groups.map(|rule| GroupStats { name: rule.name.clone(), counts: Counts::new(3) });
        let outcome = Outcome {
            classes: stats.collect(),
            groups: groups.collect(),
            all: Counts::new(3),
            workers: vec![WorkerStats::default(); workers as usize],
            timeline: Timeline::new(Row::count(classes.len())),
            duration: 0,
            arrivals_span: 0,
            unconserved: 0,
            idle_while_waiting: 0,
            backlogged: 0,
            failures: Vec::new(),
            decisions: 0,
        };
        Self {
            now: 0,
            outcome,
            lines: vec![Line::default(); classes.len()],
            changed: Vec::new(),
            waiting: 0,
            quanta: 0,
            virtual_time: 0.0,
        }
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Goes on to time `now`; up to then so many workers were idle, and perhaps somebody waited who could have gone.
    pub(super) fn advance(&mut self, now: u64, idle: u32, violated: bool) {
        let passed = now - self.now;
        if self.waiting > 0 {
            self.outcome.backlogged += passed;
            self.outcome.idle_while_waiting += u128::from(idle) * u128::from(passed);
            if violated {
                self.outcome.unconserved += passed;
            }
        }
        self.now = now;
    }

    /// A worker has worked for `ran` ns up to now.
    pub(super) fn worked(&mut self, ran: u64) {
        let row = Row::Busy.place().expect("there is one");
        self.outcome.timeline.spread(row, self.now.saturating_sub(ran), self.now, 1.0);
    }

    /// A request is lost.
    pub(super) fn lost(&mut self) {
        self.add(Row::Lost, 1.0);
    }

    fn add(&mut self, row: Row, value: f64) {
        if let Some(row) = row.place() {
            self.outcome.timeline.add(row, self.now, value);
        }
    }

    /// Counts for a request's class, its group, and all.
    pub(super) fn count(&mut self, class: u32, group: u32, note: impl Fn(&mut Counts)) {
        note(&mut self.outcome.classes[class as usize].counts);
        note(&mut self.outcome.all);
        if let Some(group) = self.outcome.groups.get_mut(group as usize) {
            note(&mut group.counts);
        }
    }

    /// A request of this cost is sent to a worker.
    pub(super) fn dispatched(&mut self, class: u32, group: u32, cost: u64, waited: u64) {
        self.count(class, group, |counts| {
            counts.dispatched += 1;
            counts.served = counts.served.saturating_add(cost);
            counts.waited.record(waited);
            counts.wait(waited);
        });
        let class = class as usize;
        self.add(Row::Served(class), cost as f64);
        self.add(Row::Dispatched(class), 1.0);
        self.add(Row::Waited(class), waited as f64);
    }

    /// One more request waits in a class.
    pub(super) fn enters(&mut self, class: u32) {
        self.pass(class);
        self.waiting += 1;
        self.lines[class as usize].len += 1;
        self.changed.push(class);
    }

    /// One request less waits in a class.
    pub(super) fn leaves(&mut self, class: u32) {
        self.pass(class);
        self.waiting -= 1;
        let line = &mut self.lines[class as usize];
        line.len -= 1;
        if line.len == 0 && std::mem::take(&mut line.competing) {
            self.quanta -= u128::from(self.outcome.classes[class as usize].quantum);
        }
    }

    /// Ends an instant: what waits from now on competes.
    pub(super) fn settle(&mut self) {
        for class in self.changed.drain(..) {
            let (line, stats) = (&mut self.lines[class as usize], &mut self.outcome.classes[class as usize]);
            stats.queue_most = stats.queue_most.max(line.len);
            if line.len > 0 && !line.competing {
                (line.competing, line.seen) = (true, self.virtual_time);
                self.quanta += u128::from(stats.quantum);
            }
        }
    }

    /// A class is served. In theory this is shared by all that compete: virtual time, as in generalised processor sharing
    /// (Parekh and Gallager 1993).
    pub(super) fn serve(&mut self, class: u32, cost: u64) {
        if self.lines[class as usize].competing {
            self.outcome.classes[class as usize].received += cost as f64;
            self.virtual_time += cost as f64 / self.quanta as f64;
            self.add(Row::Received(class as usize), cost as f64);
        }
    }

    /// Sums up a class's line up to now.
    fn pass(&mut self, class: u32) {
        let (line, stats) = (&mut self.lines[class as usize], &mut self.outcome.classes[class as usize]);
        if line.len > 0 && line.since < self.now {
            let passed = self.now - line.since;
            stats.backlogged += passed;
            stats.queue_sum += u128::from(line.len) * u128::from(passed);
            if let Some(row) = Row::Queue(class as usize).place() {
                self.outcome.timeline.spread(row, line.since, self.now, line.len as f64);
            }
        }
        line.since = self.now;
        if line.competing && line.seen < self.virtual_time {
            let due = stats.quantum as f64 * (self.virtual_time - line.seen);
            stats.entitled += due;
            line.seen = self.virtual_time;
            self.add(Row::Due(class as usize), due);
        }
    }

    /// Sums up what is left.
    pub(super) fn close(mut self) -> Outcome {
        (0..self.lines.len() as u32).for_each(|class| self.pass(class));
        self.outcome.duration = self.now;
        self.outcome
    }
}
