//! What a caller asks for, and the immutable snapshot that the scheduler keeps of it.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use crate::sync::DataArc;
use crate::time::Timestamp;
use crate::worker::WorkerId;

/// A request as the router knows it. Only the token counts are needed; the rest has defaults.
///
/// ```
/// use tollgate::{Pin, Request, WorkerId};
///
/// let request = Request {
///     class: Some("premium".into()),
///     pin: Some(Pin { worker: WorkerId(3), rank: None }),
///     ..Request::new(12_000, 8_192)
/// };
/// assert_eq!(request.raw_isl_tokens, 12_000);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// Input sequence length \[tokens\].
    pub raw_isl_tokens: u64,
    /// Of these, cached on the best eligible worker \[tokens\]; more than the ISL counts as all of it.
    pub cached_tokens: u64,
    /// Cached tokens worker by worker. Workers that are not listed have nothing cached. `None`: unknown, then
    /// `cached_tokens` stands for every worker.
    pub cached_on: Option<CachedList>,
    /// Policy class or family that the caller asks for.
    pub class: Option<DataArc<str>>,
    /// Who asks: for the class guard, and nothing else.
    pub tenant: Option<DataArc<str>>,
    /// Strict tier inside the class, higher first.
    pub strict_priority: u32,
    /// Head start \[s\]: counts as an earlier arrival (FCFS) or as a weight (WSPT). Finite; below 0 counts as 0.
    pub priority_jump: f64,
    /// The only worker, or the only endpoint, that may serve the request.
    pub pin: Option<Pin>,
    /// Which workers may serve the request. Share one between requests where you can.
    pub constraints: Option<DataArc<Constraints>>,
    /// Longest wait for dispatch, counted from arrival.
    pub deadline: Option<Duration>,
}

impl Request {
    /// A request of `raw_isl_tokens` tokens, of which `cached_tokens` need no prefill.
    pub fn new(raw_isl_tokens: u64, cached_tokens: u64) -> Self {
        Self { raw_isl_tokens, cached_tokens, ..Self::default() }
    }

    /// The same request for a policy class or family.
    pub fn with_class(mut self, class: impl Into<DataArc<str>>) -> Self {
        self.class = Some(class.into());
        self
    }

    /// Freezes what scheduling depends on, once, at arrival.
    ///
    /// # Errors
    /// A priority jump that is NaN or infinite.
    #[inline]
    pub fn snapshot(&self, arrival: Timestamp) -> Result<Snapshot, InvalidRequest> {
        self.check()?;
        Ok(self.freeze(arrival))
    }

    /// Whether the request makes sense.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), InvalidRequest> {
        if self.priority_jump.is_finite() {
            return Ok(());
        }
        Err(InvalidRequest::PriorityJump { value: self.priority_jump })
    }

    /// The snapshot of one that does.
    // Inlined: else all of it would be copied.
    #[inline(always)]
    pub(crate) fn freeze(&self, arrival: Timestamp) -> Snapshot {
        let cached = match (&self.cached_on, self.pin) {
            (Some(list), Some(pin)) => list.on(pin.worker),
            _ => self.cached_tokens,
        };
        Snapshot {
            usual: Usual { raw: self.raw_isl_tokens, cached: cached.min(self.raw_isl_tokens), arrival },
            pin: self.pin,
            rare: Rare {
                // Not `max`: it may keep the sign of a negative zero.
                jump: if self.priority_jump > 0.0 { self.priority_jump } else { 0.0 },
                urgency: match self.deadline {
                    // A deadline at the very end of the clock still precedes none.
                    Some(after) => (u64::MAX - arrival.saturating_add(after).as_nanos()).max(1),
                    None => 0,
                },
                constraints: self.constraints.clone(),
                cached_on: self.cached_on.clone(),
                strict_priority: self.strict_priority,
            },
        }
    }
}

/// Tokens of a prompt that one worker has cached, on any of its ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedOn {
    /// The worker.
    pub worker: WorkerId,
    /// Cached prefix \[tokens\].
    pub tokens: u64,
}

/// What workers have of one prompt, in any order, to be shared between requests. Of several entries for a worker the
/// largest counts. One in strictly ascending order of worker ids is looked up by binary search.
///
/// ```
/// use tollgate::{CachedList, CachedOn, WorkerId};
///
/// let list: CachedList = [(1, 80), (4, 30)].map(|(id, tokens)| CachedOn { worker: WorkerId(id), tokens }).into();
/// assert_eq!((list.on(WorkerId(4)), list.on(WorkerId(2))), (30, 0));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedList(DataArc<Listed>);

// Behind one pointer, as each request that waits has room for it.
#[derive(Debug, PartialEq, Eq)]
struct Listed {
    entries: Vec<CachedOn>,
    ascending: bool,
}

impl CachedList {
    /// Tokens that `worker` has cached, 0 if it is not listed.
    pub fn on(&self, worker: WorkerId) -> u64 {
        let Listed { entries, ascending } = &*self.0;
        if *ascending {
            return entries.binary_search_by_key(&worker, |c| c.worker).map_or(0, |at| entries[at].tokens);
        }
        entries.iter().filter(|c| c.worker == worker).map(|c| c.tokens).max().unwrap_or(0)
    }

    /// How many share it.
    #[cfg(test)]
    pub(crate) fn shares(&self) -> usize {
        DataArc::strong_count(&self.0)
    }
}

impl Deref for CachedList {
    type Target = [CachedOn];

    fn deref(&self) -> &[CachedOn] {
        &self.0.entries
    }
}

impl From<Vec<CachedOn>> for CachedList {
    fn from(entries: Vec<CachedOn>) -> Self {
        let ascending = entries.is_sorted_by(|a, b| a.worker < b.worker);
        Self(DataArc::new(Listed { entries, ascending }))
    }
}

impl From<&[CachedOn]> for CachedList {
    fn from(entries: &[CachedOn]) -> Self {
        Vec::from(entries).into()
    }
}

impl<const N: usize> From<[CachedOn; N]> for CachedList {
    fn from(entries: [CachedOn; N]) -> Self {
        Vec::from(entries).into()
    }
}

impl FromIterator<CachedOn> for CachedList {
    fn from_iter<I: IntoIterator<Item = CachedOn>>(entries: I) -> Self {
        Vec::from_iter(entries).into()
    }
}

/// A worker, or one rank of it, that alone may serve a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pin {
    /// The worker.
    pub worker: WorkerId,
    /// Its rank; `None` leaves the rank to the selector.
    pub rank: Option<u32>,
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rank {
            Some(rank) => write!(f, "{}/{rank}", self.worker),
            None => write!(f, "{}", self.worker),
        }
    }
}

/// An allow-list and required taints, normalised, to be shared between requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Constraints {
    allowed: Option<Box<[WorkerId]>>,
    taints: Box<[DataArc<str>]>,
}

impl Constraints {
    /// Constraints from an optional allow-list and the taints that a worker must all have.
    ///
    /// Duplicates are dropped. An empty allow-list allows nobody.
    pub fn new(allowed: Option<Vec<WorkerId>>, mut taints: Vec<DataArc<str>>) -> Self {
        taints.sort();
        taints.dedup();
        let allowed = allowed.map(|mut ids| {
            ids.sort();
            ids.dedup();
            ids.into_boxed_slice()
        });
        Self { allowed, taints: taints.into_boxed_slice() }
    }

    /// The allow-list, ascending; `None` allows every worker.
    pub fn allowed(&self) -> Option<&[WorkerId]> {
        self.allowed.as_deref()
    }

    /// Required taints, ascending.
    pub fn taints(&self) -> &[DataArc<str>] {
        &self.taints
    }

    /// Whether `worker` is in the allow-list, or there is none.
    pub fn allows(&self, worker: WorkerId) -> bool {
        self.allowed.as_ref().is_none_or(|ids| ids.binary_search(&worker).is_ok())
    }

    /// Whether a worker with the taints `has` has all that are required.
    pub fn tolerates(&self, has: &[DataArc<str>]) -> bool {
        self.taints.iter().all(|t| has.contains(t))
    }
}

/// What the scheduler knows of a request: taken once at arrival, never recomputed while it waits.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub struct Snapshot {
    pub(crate) usual: Usual,
    pub(crate) pin: Option<Pin>,
    pub(crate) rare: Rare,
}

/// What every request has.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Usual {
    /// Input sequence length \[tokens\].
    pub(crate) raw: u64,
    /// Of these, cached \[tokens\].
    pub(crate) cached: u64,
    pub(crate) arrival: Timestamp,
}

impl Usual {
    /// Cost \[tokens\], ≥ 1.
    #[inline(always)]
    pub(crate) fn cost(&self) -> u64 {
        (self.raw - self.cached).max(1)
    }
}

/// What most requests do not have.
// Then it is 0 and in one piece, so that the compiler writes it with few instructions.
#[derive(Clone, Debug, PartialEq)]
#[repr(C)]
pub(crate) struct Rare {
    jump: f64,
    /// How long before the end of the clock the deadline is \[ns\]; 0 without one.
    urgency: u64,
    constraints: Option<DataArc<Constraints>>,
    cached_on: Option<CachedList>,
    strict_priority: u32,
}

impl Rare {
    /// Nothing of it.
    // Not by `none`: then nothing could refer to it for ever.
    pub(crate) const NONE: Self =
        Self { jump: 0.0, urgency: 0, constraints: None, cached_on: None, strict_priority: 0 };

    /// The same, made where it is wanted: the constant would be copied there, by way of the stack.
    #[inline(always)]
    pub(crate) fn none() -> Self {
        Self { jump: 0.0, urgency: 0, constraints: None, cached_on: None, strict_priority: 0 }
    }

    /// Whether there is nothing of it.
    #[inline(always)]
    pub(crate) fn is_none(&self) -> bool {
        !self.is_ranked() && self.jump == 0.0 && self.constraints.is_none() && self.cached_on.is_none()
    }

    /// Whether there is something that goes before the order of the class: a strict tier or a deadline.
    #[inline(always)]
    pub(crate) fn is_ranked(&self) -> bool {
        self.urgency | u64::from(self.strict_priority) != 0
    }

    /// The strict tier, higher first.
    pub(crate) fn strict_priority(&self) -> u32 {
        self.strict_priority
    }

    /// Head start \[s\], finite and ≥ 0.
    #[inline(always)]
    pub(crate) fn jump(&self) -> f64 {
        self.jump
    }

    /// The deadline, [`u64::MAX`] without one \[ns\]: as a number that orders.
    pub(crate) fn deadline_nanos(&self) -> u64 {
        u64::MAX - self.urgency
    }
}

impl Snapshot {
    /// Input sequence length \[tokens\].
    pub fn raw_isl_tokens(&self) -> u64 {
        self.usual.raw
    }

    /// Cached tokens, at most the ISL; of a pinned request, what its own worker has.
    pub fn cached_tokens(&self) -> u64 {
        self.usual.cached
    }

    /// Tokens to prefill, exact: picks the cache bucket.
    pub fn uncached_tokens(&self) -> u64 {
        self.usual.raw - self.usual.cached
    }

    /// Cost \[tokens\], ≥ 1: charged by deficit round robin and used by WSPT.
    pub fn cost(&self) -> u64 {
        self.usual.cost()
    }

    /// Strict tier, higher first.
    pub fn strict_priority(&self) -> u32 {
        self.rare.strict_priority
    }

    /// Head start \[s\], finite and ≥ 0.
    pub fn jump(&self) -> f64 {
        self.rare.jump
    }

    /// The only endpoint or worker that may serve the request.
    pub fn pin(&self) -> Option<Pin> {
        self.pin
    }

    /// Which workers may serve the request.
    pub fn constraints(&self) -> Option<&DataArc<Constraints>> {
        self.rare.constraints.as_ref()
    }

    /// When the request came in.
    pub fn arrival(&self) -> Timestamp {
        self.usual.arrival
    }

    /// Sets when the request came in, of one without a deadline.
    pub(crate) fn came_in(&mut self, arrival: Timestamp) {
        debug_assert_eq!(self.rare.urgency, 0, "a deadline counts from the arrival");
        self.usual.arrival = arrival;
    }

    /// When it must have been dispatched.
    pub fn deadline(&self) -> Option<Timestamp> {
        (self.rare.urgency != 0).then(|| Timestamp::from_nanos(self.rare.deadline_nanos()))
    }

    /// Whether it was too late when the request came in.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline().is_some_and(|deadline| deadline <= self.usual.arrival)
    }

    /// Workers that are known to have some of the prompt cached; `None` if that is unknown.
    pub fn cached_list(&self) -> Option<&[CachedOn]> {
        self.rare.cached_on.as_deref()
    }

    /// Prefill tokens \[tokens\] that `worker` would really have to compute.
    pub fn prefill_on(&self, worker: WorkerId) -> u64 {
        match &self.rare.cached_on {
            Some(list) => self.usual.raw - list.on(worker).min(self.usual.raw),
            None => self.uncached_tokens(),
        }
    }
}

/// A field of a request that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum InvalidRequest {
    /// The priority jump is NaN or infinite.
    PriorityJump {
        /// The value given.
        value: f64,
    },
}

impl fmt::Display for InvalidRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PriorityJump { value } => {
                write!(f, "priority_jump: must be a finite number of seconds, not {value}")
            }
        }
    }
}

impl std::error::Error for InvalidRequest {}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(request: &Request) -> Snapshot {
        request.snapshot(Timestamp::ZERO).unwrap()
    }

    #[test]
    fn cached_is_at_most_the_isl_and_cost_at_least_one() {
        let all_cached = snapshot(&Request::new(10, 99));
        assert_eq!((all_cached.cached_tokens(), all_cached.uncached_tokens(), all_cached.cost()), (10, 0, 1));
        let half = snapshot(&Request::new(10, 4));
        assert_eq!((half.cached_tokens(), half.uncached_tokens(), half.cost()), (4, 6, 6));
    }

    #[test]
    fn a_pinned_request_counts_what_its_own_worker_has_cached() {
        let list: CachedList =
            [(1, 80), (2, 30)].map(|(id, tokens)| CachedOn { worker: WorkerId(id), tokens }).into();
        let request = |pin| Request { cached_on: Some(list.clone()), pin, ..Request::new(100, 80) };
        let pin = |id| Some(Pin { worker: WorkerId(id), rank: None });
        assert_eq!(snapshot(&request(None)).cached_tokens(), 80);
        assert_eq!(snapshot(&request(pin(2))).cached_tokens(), 30);
        assert_eq!(snapshot(&request(pin(3))).cached_tokens(), 0);
        assert_eq!(snapshot(&request(None)).prefill_on(WorkerId(2)), 70);
        assert_eq!(snapshot(&request(None)).prefill_on(WorkerId(3)), 100);
    }

    #[test]
    fn the_list_of_cached_tokens_may_be_in_any_order_and_the_larger_entry_counts() {
        let entries = [(1, 10), (4, 40), (7, 70), (9, 90)];
        let orders = [vec![0, 1, 2, 3], vec![3, 1, 0, 2], vec![0, 1, 1, 2, 3]];
        for order in orders {
            let entry = |&i: &usize| CachedOn { worker: WorkerId(entries[i].0), tokens: entries[i].1 };
            let mut list: Vec<_> = order.iter().map(entry).collect();
            if order.len() > entries.len() {
                list[1].tokens = 5;
            }
            let request = Request { cached_on: Some(list.into()), ..Request::new(100, 0) };
            let left = |worker| snapshot(&request).prefill_on(WorkerId(worker));
            assert_eq!(
                (0..11).map(left).collect::<Vec<_>>(),
                [100, 90, 100, 100, 60, 100, 100, 30, 100, 10, 100]
            );
        }
    }

    #[test]
    fn a_deadline_counts_from_the_arrival_and_stops_one_before_the_end_of_the_clock() {
        let deadline = |arrival, after| {
            let request = Request { deadline: after, ..Request::new(1, 0) };
            let snapshot = request.snapshot(Timestamp::from_nanos(arrival)).unwrap();
            assert_eq!(
                (!snapshot.rare.is_ranked(), snapshot.rare.deadline_nanos() < u64::MAX),
                (after.is_none(), after.is_some())
            );
            snapshot.deadline().map(Timestamp::as_nanos)
        };
        let nanos = |nanos| Some(Duration::from_nanos(nanos));
        let cases = [
            (0, None, None),
            (u64::MAX, None, None),
            (0, nanos(0), Some(0)),
            (5, nanos(0), Some(5)),
            (5, nanos(7), Some(12)),
            (3, nanos(u64::MAX - 5), Some(u64::MAX - 2)),
            (3, nanos(u64::MAX - 4), Some(u64::MAX - 1)),
            (3, nanos(u64::MAX - 3), Some(u64::MAX - 1)),
            (3, nanos(u64::MAX), Some(u64::MAX - 1)),
            (u64::MAX, nanos(0), Some(u64::MAX - 1)),
            (u64::MAX, Some(Duration::MAX), Some(u64::MAX - 1)),
        ];
        for (arrival, after, at) in cases {
            assert_eq!(deadline(arrival, after), at, "{arrival} {after:?}");
        }
    }

    #[test]
    fn a_jump_that_is_not_finite_is_refused_by_name_and_a_negative_one_is_zero() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let request = Request { priority_jump: value, ..Request::new(1, 0) };
            let error = request.snapshot(Timestamp::ZERO).unwrap_err();
            assert!(error.to_string().starts_with("priority_jump: "), "{error}");
        }
        for value in [-5.0, -0.0, 0.0] {
            let request = Request { priority_jump: value, ..Request::new(1, 0) };
            assert_eq!(snapshot(&request).jump().to_bits(), 0.0f64.to_bits());
        }
    }
}
