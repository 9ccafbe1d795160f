//! A second scheduler, naive on purpose: what `semantics` says, sentence by sentence, with plain lists and full
//! scans. Nothing is kept that can be worked out again, so there is nothing to keep up to date.
//!
//! It takes the request as the caller wrote it and derives cost, order and prefill itself. The paragraph signs are
//! those of the semantics page.

mod coverage;
mod generate;
mod leave;
mod load;
mod policies;
mod reload;
mod rng;

use std::cmp::Ordering;
use std::time::Duration;

use tollgate::policy::{ClassSpec, Profile, QueuePolicy};
use tollgate::{CachedOn, Endpoint, LimitKind, LimitReached, Pin, Reason, Request, Usage, Worker, WorkerId};

pub(crate) use coverage::{Coverage, Event};
pub(crate) use generate::World;
pub(crate) use rng::Rng;

/// A request that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) id: u64,
    pub(crate) class: usize,
    pub(crate) request: Request,
    /// \[ns\]
    arrival: u64,
    /// Place in the order of enqueueing.
    sequence: u64,
    /// When it has waited long enough \[ns\], fixed when it was enqueued.
    expiry: Option<u64>,
}

/// What the oracle did with a request that it dispatched.
#[derive(Debug, PartialEq)]
pub(crate) struct Dispatched {
    pub(crate) id: u64,
    pub(crate) class: usize,
    pub(crate) outcome: Result<Endpoint, Reason>,
}

/// A booking that was not released yet.
#[derive(Clone, Debug)]
struct Booked {
    id: u64,
    endpoint: Endpoint,
    incarnation: u64,
    tokens: u64,
    /// Its worker was seen with another incarnation since.
    stale: bool,
}

/// The naive scheduler.
#[derive(Debug)]
pub(crate) struct Oracle {
    /// Every class that there ever was, one for each name: its place here is what stands for it.
    classes: Vec<ClassSpec>,
    /// §5, the state of arbitration. The ring holds the classes of the policy, and those that are gone and drain.
    ring: Vec<usize>,
    /// The classes of the policy in its order: only they take new requests.
    open: Vec<usize>,
    waiting: Vec<Waiting>,
    sequence: u64,
    deficit: Vec<u64>,
    /// A class of the ring.
    cursor: usize,
    carry: Option<usize>,
    /// §4, the snapshot, ascending by id.
    workers: Vec<Worker>,
    external: Vec<(Endpoint, u64)>,
    booked: Vec<Booked>,
    stale_releases: u64,
    /// The last call of `next` found no candidate though something waits.
    fruitless: bool,
    pub(crate) coverage: Coverage,
}

impl Oracle {
    pub(crate) fn new(profile: &Profile) -> Self {
        let classes = profile.classes().to_vec();
        Self {
            deficit: vec![0; classes.len()],
            ring: (0..classes.len()).collect(),
            open: (0..classes.len()).collect(),
            classes,
            waiting: Vec::new(),
            sequence: 0,
            cursor: 0,
            carry: None,
            workers: Vec::new(),
            external: Vec::new(),
            booked: Vec::new(),
            stale_releases: 0,
            fruitless: false,
            coverage: Coverage::default(),
        }
    }

    // --- §3 Order inside a class -----------------------------------------------------------------------------

    /// Whether `a` goes before `b`, both of one class.
    fn precedes(&self, a: &Waiting, b: &Waiting) -> bool {
        // 1. strict priority, higher first
        let strict = b.request.strict_priority.cmp(&a.request.strict_priority);
        // 2. deadline, earlier first; a request with a deadline precedes one without
        let deadline = match (deadline(a), deadline(b)) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        // 3. policy key
        let policy = match self.classes[a.class].order {
            QueuePolicy::Fcfs => effective_arrival(a).cmp(&effective_arrival(b)),
            QueuePolicy::Wspt => weight_by_cost(b).partial_cmp(&weight_by_cost(a)).expect("finite"),
            QueuePolicy::AgedWspt => {
                let rate = self.classes[a.class].aging_tokens_per_second.expect("validated");
                aged_cost(a, rate).partial_cmp(&aged_cost(b, rate)).expect("a number")
            }
            _ => unreachable!("no other policy"),
        };
        // 4. enqueue sequence, smaller first
        let sequence = a.sequence.cmp(&b.sequence);
        strict.then(deadline).then(policy).then(sequence) == Ordering::Less
    }

    /// The head of each lane of a class: one lane for all without a pin, one for each pin.
    fn heads(&self, class: usize) -> Vec<&Waiting> {
        let mut heads: Vec<&Waiting> = Vec::new();
        for w in self.waiting.iter().filter(|w| w.class == class) {
            match heads.iter_mut().find(|head| head.request.pin == w.request.pin) {
                None => heads.push(w),
                Some(head) if self.precedes(w, head) => *head = w,
                Some(_) => {}
            }
        }
        heads
    }

    fn best<'a>(&self, requests: impl IntoIterator<Item = &'a Waiting>) -> Option<&'a Waiting> {
        requests.into_iter().reduce(|best, w| if self.precedes(w, best) { w } else { best })
    }

    // --- §5 Arbitration --------------------------------------------------------------------------------------

    /// The best dispatchable lane head.
    fn candidate(&self, class: usize) -> Option<&Waiting> {
        self.best(self.heads(class).into_iter().filter(|w| self.dispatchable(class, &w.request)))
    }

    fn affordable(&self, class: usize) -> bool {
        self.candidate(class).is_some_and(|w| cost(&w.request) <= self.deficit[class])
    }

    fn waits(&self, class: usize) -> bool {
        self.waiting.iter().any(|w| w.class == class)
    }

    pub(crate) fn next(&mut self) -> Option<Waiting> {
        self.note_blocked_heads();
        // 1. Carry
        if let Some(k) = self.carry
            && self.affordable(k)
        {
            self.coverage.saw(if self.fruitless { Event::CarryAfterFruitless } else { Event::Carry });
            return Some(self.dispatch_from(k));
        }
        // 2. Ring scan, each class once, starting at the cursor. The cursor is where the sweep of grants stands: it
        // moves behind a class that is granted, and waits at one that goes on what it had (docs/algorithm.md).
        let at = self.ring.iter().position(|&k| k == self.cursor).expect("in the ring");
        let ring: Vec<_> = self.ring[at..].iter().chain(&self.ring[..at]).copied().collect();
        for &k in &ring {
            if !self.waits(k) {
                self.deficit[k] = 0;
                continue;
            }
            if self.candidate(k).is_none() {
                continue;
            }
            if self.affordable(k) {
                self.coverage.saw(Event::AffordableWithoutGrant);
                self.cursor = k;
                return Some(self.dispatch_from(k));
            }
            self.grant(k, 1);
            if self.affordable(k) {
                self.cursor = self.behind(k);
                return Some(self.dispatch_from(k));
            }
        }
        // 3. Bulk credit
        let rounds = |k: usize| {
            let missing = cost(&self.candidate(k)?.request) - self.deficit[k];
            Some(missing.div_ceil(self.classes[k].quantum))
        };
        let Some(least) = ring.iter().filter_map(|&k| rounds(k)).min() else {
            self.fruitless = !self.waiting.is_empty();
            if self.fruitless {
                self.coverage.saw(Event::FruitlessCall);
            }
            return None;
        };
        self.coverage.saw(Event::BulkCredit);
        for k in ring.iter().copied().filter(|&k| self.candidate(k).is_some()).collect::<Vec<_>>() {
            self.grant(k, least);
        }
        // 4. Last scan from the same cursor, which stays
        let k = ring.into_iter().find(|&k| self.affordable(k)).expect("there is always one");
        Some(self.dispatch_from(k))
    }

    /// The class that follows in the ring.
    fn behind(&self, k: usize) -> usize {
        let at = self.ring.iter().position(|&other| other == k).expect("in the ring");
        self.ring[(at + 1) % self.ring.len()]
    }

    fn grant(&mut self, k: usize, rounds: u64) {
        let credit = rounds.saturating_mul(self.classes[k].quantum);
        if self.deficit[k].checked_add(credit).is_none() {
            self.coverage.saw(Event::CreditSaturates);
        }
        self.deficit[k] = self.deficit[k].saturating_add(credit);
    }

    fn dispatch_from(&mut self, k: usize) -> Waiting {
        let id = self.candidate(k).expect("affordable").id;
        self.note_order(id);
        let w = self.remove(id).expect("it waits");
        self.deficit[k] -= cost(&w.request);
        if !self.waits(k) {
            self.deficit[k] = 0;
        }
        self.carry = (self.waits(k) && self.deficit[k] > 0).then_some(k);
        self.fruitless = false;
        w
    }

    fn remove(&mut self, id: u64) -> Option<Waiting> {
        let at = self.waiting.iter().position(|w| w.id == id)?;
        Some(self.waiting.remove(at))
    }

    // --- §6 Limits -------------------------------------------------------------------------------------------

    pub(crate) fn usage(&self, class: usize) -> Usage {
        let sum = |tokens: fn(&Request) -> u64| {
            let all = self.waiting.iter().filter(|w| w.class == class);
            let sum = all.map(|w| u128::from(tokens(&w.request))).sum::<u128>();
            u64::try_from(sum).unwrap_or(u64::MAX)
        };
        Usage { requests: sum(|_| 1), raw_isl_tokens: sum(|r| r.raw_isl_tokens), cached_tokens: sum(cached) }
    }

    fn limit_reached(&self, class: usize) -> Option<LimitReached> {
        let ClassSpec { limits, name, .. } = &self.classes[class];
        let usage = self.usage(class);
        [
            (LimitKind::Requests, usage.requests, limits.requests),
            (LimitKind::RawIslTokens, usage.raw_isl_tokens, limits.raw_isl_tokens),
            (LimitKind::CachedTokens, usage.cached_tokens, limits.cached_tokens),
        ]
        .into_iter()
        .filter_map(|(kind, current, per_worker)| {
            let limit = per_worker?.saturating_mul(self.workers.len() as u64);
            Some(LimitReached { class: name.as_str().into(), kind, current, limit })
        })
        .find(|reached| reached.current >= reached.limit)
    }

    pub(crate) fn enqueue(
        &mut self,
        id: u64,
        class: usize,
        request: Request,
        arrival: u64,
    ) -> Result<(), LimitReached> {
        if let Some(limit) = self.limit_reached(class) {
            if self.waits(class) || !self.dispatchable(class, &request) {
                self.coverage.saw(Event::refused(limit.kind));
                return Err(limit);
            }
            self.coverage.saw(Event::LimitLetsThrough);
        }
        let (sequence, expiry) = (self.sequence, self.expiry(class, &request, arrival));
        self.waiting.push(Waiting { id, class, request, arrival, sequence, expiry });
        self.sequence += 1;
        Ok(())
    }

    /// Whether nothing waits, and this one need not wait either.
    pub(crate) fn may_bypass(&mut self, class: usize, request: &Request, arrival: u64, now: u64) -> bool {
        let in_time = self.expiry(class, request, arrival).is_none_or(|at| now < at);
        let may = self.waiting.is_empty() && in_time && self.dispatchable(class, request);
        self.coverage.saw(if may { Event::Bypass } else { Event::BypassRefused });
        may
    }

    /// Before refusing, all is dispatched that can be; what a limit lets through goes at once.
    pub(crate) fn submit(
        &mut self,
        id: u64,
        class: usize,
        request: Request,
        arrival: u64,
        sink: &mut impl FnMut(&mut Self, Dispatched),
    ) -> Result<(), LimitReached> {
        if self.limit_reached(class).is_none() {
            return self.enqueue(id, class, request, arrival);
        }
        while let Some(dispatched) = self.dispatch() {
            sink(self, dispatched);
        }
        let made_room = self.limit_reached(class).is_none();
        let result = self.enqueue(id, class, request, arrival);
        self.coverage.saw(match (&result, made_room) {
            (Err(_), _) => Event::SubmitRefused,
            (Ok(()), true) => Event::SubmitMakesRoom,
            (Ok(()), false) => Event::SubmitLetsThrough,
        });
        while result.is_ok()
            && let Some(dispatched) = self.dispatch()
        {
            sink(self, dispatched);
        }
        result
    }

    /// `next`, `select` and `book`. Arbitration has charged a request that then fails selection.
    pub(crate) fn dispatch(&mut self) -> Option<Dispatched> {
        let w = self.next()?;
        let outcome = self.select(w.class, &w.request);
        if let Ok(endpoint) = outcome {
            self.book(w.id, endpoint, &w.request);
        }
        Some(Dispatched { id: w.id, class: w.class, outcome })
    }

    // --- what can be compared --------------------------------------------------------------------------------

    pub(crate) fn deficit(&self, class: usize) -> u64 {
        self.deficit[class]
    }

    pub(crate) fn quantum(&self, class: usize) -> u64 {
        self.classes[class].quantum
    }

    pub(crate) fn name(&self, class: usize) -> &str {
        &self.classes[class].name
    }

    /// Every class that there ever was.
    pub(crate) fn classes(&self) -> std::ops::Range<usize> {
        0..self.classes.len()
    }

    pub(crate) fn ring(&self) -> &[usize] {
        &self.ring
    }

    pub(crate) fn open(&self) -> &[usize] {
        &self.open
    }

    /// \[ns\], of the one that was enqueued first.
    pub(crate) fn oldest_arrival(&self, class: usize) -> Option<u64> {
        let mine = self.waiting.iter().filter(|w| w.class == class);
        Some(mine.min_by_key(|w| w.sequence)?.arrival)
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = u64> + '_ {
        self.waiting.iter().map(|w| w.id)
    }

    /// Requests that are pinned to an endpoint, or to its worker.
    pub(crate) fn waiting_for(&self, Endpoint { worker, rank }: Endpoint) -> u64 {
        let pins = self.waiting.iter().filter_map(|w| w.request.pin);
        pins.filter(|pin| pin.worker == worker && pin.rank.is_none_or(|pinned| pinned == rank)).count() as u64
    }

    pub(crate) fn bookings(&self) -> impl Iterator<Item = u64> + '_ {
        self.booked.iter().map(|b| b.id)
    }

    pub(crate) fn stale_releases(&self) -> u64 {
        self.stale_releases
    }

    /// Whether a class that ages lets one go that is neither the cheapest nor the oldest of its lane.
    fn note_order(&mut self, id: u64) {
        let w = self.waiting.iter().find(|w| w.id == id).expect("it waits");
        if self.classes[w.class].order != QueuePolicy::AgedWspt {
            return;
        }
        let same_tier = |other: &&Waiting| {
            (other.class, other.request.pin) == (w.class, w.request.pin)
                && other.request.strict_priority == w.request.strict_priority
                && deadline(other) == deadline(w)
        };
        let others = || self.waiting.iter().filter(same_tier);
        let seen = [
            (others().any(|o| cost(&o.request) < cost(&w.request)), Event::AgedPassesCheaper),
            (others().any(|o| o.arrival < w.arrival), Event::AgedPassesOlder),
            (
                others().any(|o| o.arrival <= w.arrival && cost(&o.request) <= cost(&w.request) && o.id < id),
                Event::AgedPassesByJump,
            ),
        ];
        seen.into_iter().filter(|s| s.0).for_each(|s| self.coverage.saw(s.1));
    }

    fn note_blocked_heads(&mut self) {
        for &k in &self.ring {
            let heads = self.heads(k);
            let (open, blocked): (Vec<_>, Vec<_>) =
                heads.into_iter().partition(|w| self.dispatchable(k, &w.request));
            let pinned = |w: &&Waiting| w.request.pin.is_some();
            let exact = !open.is_empty() && blocked.iter().any(pinned);
            let shared = !open.is_empty() && !blocked.iter().all(pinned);
            let ratio = blocked.iter().any(|w| self.closed_by_ratio(k, &w.request));
            let seen = [
                (exact, Event::BlockedExactLane),
                (shared, Event::BlockedSharedLane),
                (ratio, Event::ClosedByRatio),
            ];
            seen.into_iter().filter(|s| s.0).for_each(|s| self.coverage.saw(s.1));
        }
    }
}

// --- §1 The request and its snapshot -------------------------------------------------------------------------

/// Cached tokens at most the ISL; of a pinned request, what its own worker has.
pub(crate) fn cached(request: &Request) -> u64 {
    let given = match (request.pin, &request.cached_on) {
        (Some(pin), Some(list)) => listed(list, pin.worker),
        _ => request.cached_tokens,
    };
    given.min(request.raw_isl_tokens)
}

pub(crate) fn cost(request: &Request) -> u64 {
    (request.raw_isl_tokens - cached(request)).max(1)
}

/// What `worker` must really compute.
fn prefill(request: &Request, worker: WorkerId) -> u64 {
    let cached = match &request.cached_on {
        Some(list) => listed(list, worker).min(request.raw_isl_tokens),
        None => cached(request),
    };
    request.raw_isl_tokens - cached
}

/// A worker that is not listed has nothing; one that is listed twice has the larger number.
fn listed(list: &[CachedOn], worker: WorkerId) -> u64 {
    list.iter().filter(|c| c.worker == worker).map(|c| c.tokens).max().unwrap_or(0)
}

/// A negative jump counts as 0.
fn jump(w: &Waiting) -> f64 {
    if w.request.priority_jump < 0.0 { 0.0 } else { w.request.priority_jump }
}

/// \[ns\]
fn deadline(w: &Waiting) -> Option<u64> {
    Some(after(w.arrival, w.request.deadline?))
}

fn after(arrival: u64, wait: Duration) -> u64 {
    arrival.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
}

/// FCFS \[ns\].
fn effective_arrival(w: &Waiting) -> i64 {
    i64::try_from(w.arrival).unwrap_or(i64::MAX).saturating_sub((jump(w) * 1e9).round() as i64)
}

/// WSPT.
fn weight_by_cost(w: &Waiting) -> f64 {
    (1.0 + jump(w)) / cost(&w.request) as f64
}

/// Ageing WSPT \[tokens\].
fn aged_cost(w: &Waiting, rate: f64) -> f64 {
    cost(&w.request) as f64 + rate * (effective_arrival(w) as f64 / 1e9)
}

fn matches_pin(pin: Pin, endpoint: Endpoint) -> bool {
    pin.worker == endpoint.worker && pin.rank.is_none_or(|rank| rank == endpoint.rank)
}
