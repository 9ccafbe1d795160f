//! What is compared, and the bars.

use tollgate::policy::QueuePolicy;

use super::measure::{Effort, Measured};
use super::path::{self, Path, Way};
use super::queue::{self, Case, Costs, Place};
use crate::idle::Idle;

/// One comparison.
#[derive(Clone, Copy, Debug)]
pub(super) enum Row {
    /// Enqueue and decide.
    Queue(Case),
    /// Cancel one of many.
    Cancel(Case),
    /// Admit, permit, release.
    Path(Path),
}

impl Row {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Queue(case) | Self::Cancel(case) => case.name,
            Self::Path(path) => path.name,
        }
    }

    /// # Errors
    /// What the two do not agree on.
    pub(super) fn measure(&self, effort: Effort) -> Result<Measured, String> {
        match self {
            Self::Queue(case) => queue::measure(case, effort),
            Self::Cancel(case) => queue::cancel(case, effort),
            Self::Path(path) => path::measure(path, effort),
        }
    }
}

/// All rows; the quick ones have smaller backlogs.
pub(super) fn all(quick: bool, idle: Idle) -> Vec<Row> {
    let backlog = |n: u32| if quick { n / 20 } else { n };
    let fcfs = Case {
        name: "1 class FCFS, 1 M backlog",
        note: "",
        bar: 6.0,
        classes: 1,
        order: QueuePolicy::Fcfs,
        costs: Costs::Spread,
        place: Place::AllClasses,
        backlog: backlog(1_000_000),
    };
    let mut rows: Vec<_> = [
        fcfs,
        Case { name: "1 class WSPT, 1 M backlog", bar: 5.0, order: QueuePolicy::Wspt, ..fcfs },
        Case { name: "64 classes, 1 M backlog", classes: 64, ..fcfs },
        Case {
            name: "1,024 classes, 100 k backlog",
            bar: 15.0,
            classes: 1_024,
            backlog: backlog(100_000),
            ..fcfs
        },
        Case { name: "10,000 classes", bar: 50.0, classes: 10_000, backlog: 100_000, ..fcfs },
        Case {
            name: "oversized heads, 10,000 classes",
            note: "10^6 to 10^9 tokens on quanta of 1 to 64. The first dispatch, the order in each class and what is \
                   served are compared, not every decision: difference 3",
            bar: 1_000.0,
            classes: 10_000,
            costs: Costs::Oversized,
            backlog: backlog(100_000).max(20_000),
            ..fcfs
        },
        Case {
            name: "one active class of 10,000 registered",
            bar: 1_000.0,
            classes: 10_000,
            costs: Costs::Whole,
            place: Place::OneClass(5_000),
            backlog: 1_000,
            ..fcfs
        },
        Case {
            name: "exact lanes, 10,000 workers, 1 M backlog",
            place: Place::Lanes(10_000),
            backlog: backlog(1_000_000),
            ..fcfs
        },
    ]
    .map(Row::Queue)
    .to_vec();
    rows.push(Row::Path(Path {
        name: "one endpoint's load changes, 64 classes × 1,024 workers, a lane in every class",
        note: "the peer's recheck of a worker is not public, so the whole path is timed: bursts of 64 workers are \
               freed, each with a request in every class; time per worker until all 64 are answered",
        bar: 10.0,
        classes: if quick { 8 } else { 64 },
        workers: if quick { 64 } else { 1_024 },
        way: Way::Lanes,
        idle,
    }));
    rows.push(Row::Cancel(Case { name: "cancel one of 1 M", note: "", bar: 10_000.0, ..fcfs }));
    let whole = |name, workers, classes, bar| {
        let note = "16 tasks, nobody busy; the peer's LocalScheduler, which owns its SchedulerQueue; ours as --idle says: \
                    with assist, its default here, callers run the turns of a sleeping arbiter";
        Row::Path(Path { name, note, bar, classes, workers, way: Way::Whole, idle })
    };
    let many = if quick { 1_000 } else { 10_000 };
    rows.push(whole("whole path, 8 workers", 8, 1, 10.0));
    rows.push(whole("whole path, 128 workers", 128, 1, 25.0));
    rows.push(whole("whole path, 1,024 workers", 1_024, 1, 150.0));
    rows.push(whole("whole path, 10,000 workers", many, 1, 1_000.0));
    rows.push(whole("whole path, 10,000 classes, 8 workers", 8, many, 100.0));
    let hand_off = |name, workers, classes, bar| {
        let note = "every worker busy; one is freed → the next waiting request is answered; ours as --idle says. Before \
                    that, the task of the request that was put last has looked for its answer and waits, on both sides";
        Row::Path(Path { name, note, bar, classes, workers, way: Way::HandOff, idle })
    };
    rows.push(hand_off("hand-off p50, 8 workers × 1 class", 8, 1, 2.0));
    rows.push(hand_off("hand-off p50, 1,024 workers × 1 class", 1_024, 1, 30.0));
    rows.push(hand_off("hand-off p50, 8 workers × 10,000 classes", 8, many, 500.0));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own_whatever_the_effort() {
        let names = |quick| all(quick, Idle::Assist).iter().map(Row::name).collect::<Vec<_>>();
        let mut unique = names(false);
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), names(false).len());
        assert_eq!(names(true), names(false));
    }
}
