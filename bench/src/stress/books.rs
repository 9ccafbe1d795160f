//! What must hold after a run, whatever happened in it.

use std::collections::BTreeMap;

use tollgate::{EngineSnapshot, Reason};

/// What became of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fates {
    pub(super) dispatched: u64,
    pub(super) refused: u64,
    pub(super) expired: u64,
    pub(super) cancelled: u64,
    pub(super) failed: u64,
    pub(super) closed: u64,
}

impl Fates {
    fn sum(self) -> u64 {
        self.dispatched + self.refused + self.expired + self.cancelled + self.failed + self.closed
    }

    pub(super) fn named(self) -> [(&'static str, u64); 6] {
        let Self { dispatched, refused, expired, cancelled, failed, closed } = self;
        [
            ("dispatched", dispatched),
            ("refused", refused),
            ("expired", expired),
            ("cancelled", cancelled),
            ("failed", failed),
            ("closed", closed),
        ]
    }

    fn add(&mut self, other: Self) {
        self.dispatched += other.dispatched;
        self.refused += other.refused;
        self.expired += other.expired;
        self.cancelled += other.cancelled;
        self.failed += other.failed;
        self.closed += other.closed;
    }
}

/// What the callers know of the requests of one class.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked {
    pub(super) requests: u64,
    pub(super) fates: Fates,
    /// Requests without an end.
    pub(super) unanswered: u64,
    /// The highest cost \[tokens\].
    pub(super) dearest: u64,
}

/// The callers' book: what they asked for, by class, and why anything failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    pub(super) classes: Vec<Asked>,
    /// Rejections by their code.
    pub(super) reasons: BTreeMap<&'static str, u64>,
}

impl Book {
    pub(super) fn new(classes: usize) -> Self {
        Self { classes: vec![Asked::default(); classes], reasons: BTreeMap::new() }
    }

    pub(super) fn rejected(&mut self, class: usize, reason: &Reason) {
        let fates = &mut self.classes[class].fates;
        *match reason {
            Reason::QueueLimit(_) | Reason::IngressFull { .. } => &mut fates.refused,
            Reason::DeadlineExceeded { .. } => &mut fates.expired,
            Reason::Closed { .. } => &mut fates.closed,
            _ => &mut fates.failed,
        } += 1;
        *self.reasons.entry(reason.code()).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (class, others) in self.classes.iter_mut().zip(&other.classes) {
            class.requests += others.requests;
            class.fates.add(others.fates);
            class.unanswered += others.unanswered;
            class.dearest = class.dearest.max(others.dearest);
        }
        for (code, count) in &other.reasons {
            *self.reasons.entry(code).or_default() += count;
        }
    }

    /// Over all classes.
    pub(super) fn total(&self) -> Asked {
        let mut total = Self::new(1);
        for &class in &self.classes {
            total.add(&Self { classes: vec![class], reasons: BTreeMap::new() });
        }
        total.classes[0]
    }
}

/// An invariant, and where it does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) what: &'static str,
    pub(super) faults: Vec<String>,
}

/// Compares the callers' book with the last picture of the engine.
pub(super) fn check(book: &Book, engine: &EngineSnapshot) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut check = |what, faults: Vec<String>| checks.push(Check { what, faults });
    let names = || engine.classes.iter().map(|class| &class.name);

    check(
        "every request of every caller has one end",
        faults(names().zip(&book.classes).filter_map(|(name, asked)| {
            let Asked { requests, fates, unanswered, .. } = *asked;
            (requests != fates.sum() || unanswered > 0)
                .then(|| format!("{name}: {requests} requests, {unanswered} unanswered, {fates:?}"))
        })),
    );
    check(
        "admitted = dispatched + refused + expired + cancelled + failed + closed in the engine",
        faults(engine.classes.iter().filter_map(|class| {
            let (submitted, ended) = (class.submitted, class.ended());
            (submitted != ended).then(|| format!("{}: {submitted} admitted, {ended} ended", class.name))
        })),
    );
    check(
        "the engine and the callers count the same",
        faults(engine.classes.iter().zip(&book.classes).filter_map(|(class, asked)| {
            let engine = engine_fates(class);
            let same = class.submitted == asked.requests && agree(engine, asked.fates);
            (!same)
                .then(|| format!("{}: engine {} {engine:?}, callers {asked:?}", class.name, class.submitted))
        })),
    );
    let turned_away = engine.invalid + engine.turned_away;
    check(
        "no request fails or is turned away while there are workers",
        faults(
            (names().zip(&book.classes).filter(|(_, asked)| asked.fates.failed + asked.fates.closed > 0))
                .map(|(name, asked)| format!("{name}: {:?}, {:?}", asked.fates, book.reasons))
                .chain((turned_away > 0).then(|| format!("{turned_away} turned away"))),
        ),
    );
    check(
        "nothing waits in the end, and no credit is left",
        faults(engine.classes.iter().filter_map(|class| {
            let left = class.waiting != Default::default() || class.oldest.is_some() || class.deficit != 0;
            left.then(|| format!("{}: {:?}, deficit {}", class.name, class.waiting, class.deficit))
        })),
    );
    check(
        "no load, permit or pinned request is left on any endpoint",
        faults(engine.endpoints.iter().filter_map(|endpoint| {
            let left = endpoint.active > 0 || endpoint.booked != Default::default() || endpoint.waiting > 0;
            left.then(|| format!("{}: active {}, {:?}", endpoint.endpoint, endpoint.active, endpoint.booked))
        })),
    );
    checks
}

/// The bound of the Theorem (A) in docs/algorithm.md: for any two classes that always have requests waiting,
/// |served_i/q_i - served_j/q_j| <= 3 + (C_i - 1)/q_i + (C_j - 1)/q_j.
pub(super) fn check_service(served: &[u64], quanta: &[u64], dearest: &[u64]) -> Check {
    // The largest difference against its bound is that of the class with the largest `served/q - (C - 1)/q` to that
    // with the smallest `served/q + (C - 1)/q`.
    let rounds = |class: usize| served[class] as f64 / quanta[class] as f64;
    let slack = |class: usize| dearest[class].saturating_sub(1) as f64 / quanta[class] as f64;
    let classes = || 0..quanta.len();
    let ahead = classes().max_by(|&a, &b| (rounds(a) - slack(a)).total_cmp(&(rounds(b) - slack(b))));
    let behind = classes().min_by(|&a, &b| (rounds(a) + slack(a)).total_cmp(&(rounds(b) + slack(b))));
    let fault = ahead.zip(behind).and_then(|(ahead, behind)| {
        let (apart, bound) = (rounds(ahead) - rounds(behind), 3.0 + slack(ahead) + slack(behind));
        // Ten digits are enough for everybody.
        let wrong = ahead != behind && apart > bound + rounds(ahead) * 1e-10;
        wrong.then(|| {
            format!("classes {ahead} and {behind} are {apart:.3} quanta apart, at most {bound:.3} allowed")
        })
    });
    Check { what: "the service of any two classes is within the bound of the Theorem", faults: faults(fault) }
}

fn engine_fates(class: &tollgate::ClassStatus) -> Fates {
    let tollgate::ClassStatus { dispatched, refused, expired, cancelled, failed, closed, .. } = *class;
    let refused = refused.requests + refused.raw_isl_tokens + refused.cached_tokens + refused.ingress_full;
    Fates { dispatched, refused, expired, cancelled, failed, closed }
}

/// Whether two books are the same, but for callers who left when the answer was there already: the engine counts the
/// answer, they count as cancelled.
fn agree(engine: Fates, callers: Fates) -> bool {
    let late = engine.named().into_iter().zip(callers.named()).filter(|((name, _), _)| *name != "cancelled");
    let late = late.map(|((_, engine), (_, callers))| engine.checked_sub(callers)).sum::<Option<u64>>();
    late.is_some() && late == callers.cancelled.checked_sub(engine.cancelled)
}

/// The first few.
fn faults(all: impl IntoIterator<Item = String>) -> Vec<String> {
    all.into_iter().take(5).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FATES: Fates =
        Fates { dispatched: 50, refused: 4, expired: 3, cancelled: 20, failed: 0, closed: 0 };

    #[test]
    fn books_agree_when_only_late_cancels_are_apart() {
        assert!(agree(FATES, FATES));
        let late = Fates { dispatched: 52, expired: 4, cancelled: 17, ..FATES };
        assert!(agree(late, FATES));
        for wrong in [
            Fates { dispatched: 51, ..FATES },
            Fates { dispatched: 49, cancelled: 21, ..FATES },
            Fates { cancelled: 19, ..FATES },
            Fates { refused: 5, expired: 2, ..FATES },
        ] {
            assert!(!agree(wrong, FATES), "{wrong:?}");
        }
    }

    #[test]
    fn service_is_judged_in_quanta_against_the_bound() {
        let quanta = [512, 128];
        let faults = |served: [u64; 2]| check_service(&served, &quanta, &[512, 512]).faults.len();
        assert_eq!(faults([512_000, 128_000]), 0);
        // The bound is 3 + 511/512 + 511/128 = 7.99 quanta.
        assert_eq!((faults([512_000 + 7 * 512, 128_000]), faults([512_000 + 8 * 512, 128_000])), (0, 1));
        assert_eq!((faults([512_000, 128_000 + 7 * 128]), faults([512_000, 128_000 + 8 * 128])), (0, 1));
        assert_eq!(check_service(&[5], &[1], &[9]).faults.len(), 0);
    }

    #[test]
    fn a_request_without_an_end_is_a_fault() {
        let mut book = Book::new(1);
        book.classes[0] = Asked { requests: 77, fates: FATES, unanswered: 0, dearest: 1 };
        assert_eq!(book.total().requests, 77);
        let mut other = Book::new(1);
        other.rejected(0, &Reason::NoEndpoint { workers: 0 });
        book.add(&other);
        assert_eq!((book.total().fates.failed, book.reasons["no_endpoint"]), (1, 1));
    }
}
