//! The deterministic layer: every scheduling decision, without threads, clocks or randomness.
//!
//! A request goes [`enqueue`](Scheduler::enqueue) → lane → [`next_request`](Scheduler::next_request) (which class,
//! by deficit round robin) → [`select`](Scheduler::select) (which endpoint) → [`book`](Scheduler::book), and back by
//! [`release`](Scheduler::release). Each step can be used alone; [`dispatch`](Scheduler::dispatch) does the middle
//! three, [`submit`](Scheduler::submit) all of them under the queue limits.
//!
//! | file | what it decides |
//! |---|---|
//! | `key`, `lane`, `lanes`, `heap`, `slab`, `kind` | the order inside a class, and which lanes there are |
//! | `heads`, `exact` | which head of a class is its candidate |
//! | `untold`, `tell` | when a class is told of a load change |
//! | `leave`, `expiry` | cancelled and expired requests |
//! | `bypass` | a request that finds nothing waiting |
//! | `class` | what waits in a class, and how much may |
//! | `reload` | a new policy for what runs and waits |
//! | `ring` | which class goes next |
//! | `pool`, `view`, `masks` | which endpoints are eligible, and which are busy for whom |
//! | `select` | the endpoint |
//! | `read` | nothing: what can be read at any time |
//! | `ahead` | nothing: what will be touched soon is brought near |

mod ahead;
mod bypass;
mod class;
mod exact;
mod expiry;
mod heads;
mod heap;
mod key;
mod kind;
mod lane;
mod lanes;
mod leave;
mod masks;
mod pool;
mod read;
mod reload;
mod ring;
mod select;
mod slab;
mod tell;
#[cfg(test)]
mod tests;
mod untold;
mod view;

use std::collections::VecDeque;

pub use class::Usage;
pub use leave::Expired;
pub use pool::{Booked, EndpointIndex, MAX_BOOKED_TOKENS};
pub use select::{Candidate, Candidates, LeastLoaded, Selector};
pub use slab::RequestKey;
#[doc(hidden)]
pub use untold::Seen;

use crate::error::{LimitReached, Reason};
use crate::policy::{ClassId, Profile};
use crate::request::{Pin, Snapshot};
use crate::sync::DataArc;
use crate::worker::{Endpoint, WorkerSnapshot};
use ahead::Ahead;
use class::Class;
use expiry::Expiries;
use heads::Unlinked;
use kind::Kind;
use lane::{LaneId, shared_of};
use lanes::Lanes;
use pool::{Pool, ViewId};
use ring::{Ring, Winner};
use slab::{Comer, Slab};
use untold::Untold;

/// The scheduler of one worker pool, generic over what the caller attaches to each request.
///
/// ```
/// use tollgate::policy::{ClassSpec, PolicySpec, Profile};
/// use tollgate::{Request, Scheduler, Timestamp, Worker, WorkerSnapshot};
///
/// let mut premium = ClassSpec::explicit("premium", 512);
/// premium.busy.threshold_tokens = Some(1024);
/// let regular = ClassSpec { name: "regular".into(), quantum: 128, ..premium.clone() };
/// let profile = Profile::new(PolicySpec { classes: vec![premium, regular], ..PolicySpec::default() })?;
///
/// let mut scheduler = Scheduler::new(&profile);
/// scheduler.set_workers(WorkerSnapshot::new(1, vec![Worker::new(1)])?.into());
/// for i in 0..100 {
///     for class in ["regular", "premium"] {
///         let request = Request::new(512, 0).snapshot(Timestamp::from_nanos(i))?;
///         scheduler.enqueue(profile.class_id(class).unwrap(), request, class).unwrap();
///     }
/// }
///
/// // One worker that is busy above 1024 tokens: four of 512 fill it, then each release lets one more in.
/// let mut served = Vec::new();
/// while served.len() < 50 {
///     let dispatch = scheduler.dispatch().expect("the worker has room");
///     served.push(dispatch.request.payload);
///     scheduler.release(dispatch.outcome?);
/// }
/// assert_eq!(served.iter().filter(|class| **class == "premium").count(), 40);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scheduler<T> {
    slab: Slab<T>,
    lanes: Lanes,
    classes: Vec<Class>,
    ring: Ring,
    pool: Pool,
    expiries: Expiries,
    /// Another one than the default.
    selector: Option<Box<dyn Selector>>,
    /// Numbers of classes that are gone, the longest vacant first.
    vacant: VecDeque<u32>,
    /// Classes whose shared head has constraints (and others that had one).
    constrained: Vec<ClassId>,
    /// Views of which an endpoint flipped since these were last looked at.
    flipped: Vec<ViewId>,
    /// Load changes that classes with exact lanes have not been told.
    untold: Untold,
    /// Lanes that are just being told something: memory for them.
    told: Vec<LaneId>,
    /// What is being brought near.
    ahead: Ahead,
}

/// A request that arbitration has picked: it waits no more and its class has paid for it.
#[derive(Clone, Debug)]
pub struct Picked<T> {
    /// Class that it waited in.
    pub class: ClassId,
    /// What was frozen at arrival.
    pub snapshot: Snapshot,
    /// What the caller attached.
    pub payload: T,
}

/// What became of a picked request.
#[derive(Debug)]
pub struct Dispatch<T> {
    /// The request.
    pub request: Picked<T>,
    /// Where it was booked, or why nowhere.
    pub outcome: Result<Booking, Reason>,
}

/// Prefill tokens and one permit on an endpoint, to be given back with [`Scheduler::release`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a booking that is never released keeps its endpoint loaded"]
pub struct Booking {
    index: EndpointIndex,
    endpoint: Endpoint,
    incarnation: u64,
    tokens: u64,
}

impl Booking {
    /// Number of the endpoint in the worker snapshot of the time of booking.
    pub fn index(&self) -> EndpointIndex {
        self.index
    }

    /// The endpoint.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint
    }

    /// Prefill tokens that are still booked.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }
}

/// A request that had to wait and may not: it comes back as it was given.
#[derive(Clone, Debug)]
pub struct Refused<T> {
    /// The limit.
    pub limit: LimitReached,
    /// The request.
    pub snapshot: Snapshot,
    /// What the caller attached.
    pub payload: T,
}

impl<T> Scheduler<T> {
    /// A scheduler for the classes of `profile`, without workers, with the default selector.
    pub fn new(profile: &Profile) -> Self {
        Self::with(profile, None)
    }

    /// The same with another selector.
    pub fn with_selector(profile: &Profile, selector: Box<dyn Selector>) -> Self {
        Self::with(profile, Some(selector))
    }

    pub(crate) fn with(profile: &Profile, selector: Option<Box<dyn Selector>>) -> Self {
        let mut scheduler = Self {
            slab: Slab::new(),
            lanes: Lanes::default(),
            classes: Vec::new(),
            ring: Ring::default(),
            pool: Pool::new(),
            expiries: Expiries::default(),
            selector,
            vacant: VecDeque::new(),
            constrained: Vec::new(),
            flipped: Vec::new(),
            untold: Untold::default(),
            told: Vec::new(),
            ahead: Ahead::NOTHING,
        };
        scheduler.reload(profile);
        scheduler
    }

    /// Whether somebody else than the default selector selects.
    pub(crate) fn has_selector(&self) -> bool {
        self.selector.is_some()
    }

    // --- waiting ---------------------------------------------------------------------------------------------

    /// Puts a request into the queue of its class, O(1) if it comes in order, else O(log n).
    ///
    /// A limit does not bind a request whose class has nothing waiting and that could go at once; call
    /// [`dispatch`](Self::dispatch) until it returns `None` before and after to be sure that it does, or let
    /// [`submit`](Self::submit) do all that.
    ///
    /// # Errors
    /// A queue limit of the class is reached. Nothing has changed then.
    ///
    /// # Panics
    /// If the profile has no such class.
    #[inline]
    pub fn enqueue(
        &mut self,
        class: ClassId,
        snapshot: Snapshot,
        payload: T,
    ) -> Result<RequestKey, Refused<T>> {
        match self.classes.get(class.index()) {
            Some(state) if state.is_plain() && snapshot.rare.is_none() => {
                let Snapshot { usual, pin, rare } = snapshot;
                // There is nothing in it to be dropped.
                std::mem::forget(rare);
                let comer = Comer::new(usual, state.order.key(&usual, 0.0), Kind::USUAL);
                Ok(self.put(class, pin, comer, payload, |_, _, _| {}))
            }
            _ => self.enqueue_unusual(class, snapshot, payload),
        }
    }

    /// The same of a request that has something rare, expires, or may have to be refused.
    #[inline(never)]
    fn enqueue_unusual(
        &mut self,
        class: ClassId,
        snapshot: Snapshot,
        payload: T,
    ) -> Result<RequestKey, Refused<T>> {
        if let Some(limit) = self.limit_that_binds(class, &snapshot) {
            return Err(Refused { limit, snapshot, payload });
        }
        let expiry = self.classes[class.index()].expiry(&snapshot);
        let mask = self.pool.acquire_mask(&snapshot);
        let Snapshot { usual, pin, rare } = snapshot;
        let policy = self.classes[class.index()].order.key(&usual, rare.jump());
        let comer = Comer::new(usual, policy, Kind::new(mask, expiry.is_some(), &rare));
        Ok(self.put(class, pin, comer, payload, |slot, slab, expiries| {
            slab.set_rare(slot, rare);
            if let Some(at) = expiry {
                expiries.push(slot, at, slab);
            }
        }))
    }

    /// Puts a request into its lane. What else it has is put into its slot by `fill`.
    #[inline(always)]
    fn put(
        &mut self,
        class: ClassId,
        pin: Option<Pin>,
        comer: Comer,
        payload: T,
        fill: impl FnOnce(u32, &mut Slab<T>, &mut Expiries),
    ) -> RequestKey {
        let Self { slab, lanes, classes, pool, ring, expiries, .. } = self;
        let state = &mut classes[class.index()];
        state.add(&comer.usual);
        let (id, lane) = match pin {
            None => (shared_of(class), lanes.shared(class)),
            Some(pin) => {
                let id = lanes.exact(class.0, pin, pool, ring);
                let lane = &mut lanes[id];
                lane.pinned += 1;
                (id, lane)
            }
        };
        let comer = Comer { before: lane.last(), lane: id, ..comer };
        let name = slab.insert(comer, payload);
        fill(name.slot, slab, expiries);
        let is_head = state.put_in_lane(name.slot, comer.policy, comer.kind, lane, slab);
        if is_head {
            self.head_changed(id);
        }
        name
    }

    /// Enqueues under the limits as a caller expects it: before a limit refuses the request, all that can be
    /// dispatched is, and a request that a limit lets through because it can go at once does go at once. `sink`
    /// gets what is dispatched meanwhile.
    ///
    /// # Errors
    /// A queue limit of the class is reached.
    ///
    /// # Panics
    /// If the profile has no such class.
    pub fn submit(
        &mut self,
        class: ClassId,
        snapshot: Snapshot,
        payload: T,
        sink: &mut impl FnMut(&mut Self, Dispatch<T>),
    ) -> Result<RequestKey, Refused<T>> {
        if self.limit_reached(class).is_none() {
            return self.enqueue(class, snapshot, payload);
        }
        self.dispatch_all(sink);
        let key = self.enqueue(class, snapshot, payload)?;
        self.dispatch_all(sink);
        Ok(key)
    }

    fn dispatch_all(&mut self, sink: &mut impl FnMut(&mut Self, Dispatch<T>)) {
        while let Some(dispatch) = self.dispatch() {
            sink(self, dispatch);
        }
    }

    // --- arbitration, selection, booking ---------------------------------------------------------------------

    /// Which request goes next, by deficit round robin over the classes; `None` if none may.
    ///
    /// A request without any eligible endpoint goes too, so that [`select`](Self::select) tells its caller why.
    // Inlined, the request would be taken apart and copied once more.
    #[inline(never)]
    pub fn next_request(&mut self) -> Option<Picked<T>> {
        if !self.flipped.is_empty() {
            self.recheck_constrained();
        }
        if !self.untold.is_empty() {
            self.tell_who_may_be_next();
        }
        let winner = self.ring.pick()?;
        if let Some(head) = self.ring.ahead() {
            self.look_ahead(head);
        }
        let Winner { place, class, slot, credit } = winner;
        match self.unlink_usual(slot, class) {
            Some((cost, next)) => {
                self.ring.serve(winner, cost, next);
                self.slab.take(slot, class, || None)
            }
            None => self.leave_and_charge(place, class, slot, credit),
        }
    }

    /// Takes a picked request, which is the head of its lane, out of its class, whatever it is.
    // The winner in pieces: so it comes in registers.
    #[inline(never)]
    fn leave_and_charge(&mut self, place: u32, class: ClassId, slot: u32, credit: u64) -> Option<Picked<T>> {
        let winner = Winner { place, class, slot, credit };
        let Unlinked { lane, cost, still_waiting, head } = self.unlink(slot, class);
        self.ring.charge(winner, cost, still_waiting);
        match head {
            Some(next) => self.ring.replace(winner, next),
            None => self.head_changed(lane),
        }
        self.slab.take(slot, class, || self.lanes.pin(lane))
    }

    /// Which endpoint serves a request of `class`, by the selector.
    ///
    /// # Errors
    /// No endpoint is eligible, or the selector failed.
    pub fn select(&mut self, class: ClassId, snapshot: &Snapshot) -> Result<EndpointIndex, Reason> {
        let view = self.classes[class.index()].view;
        if self.selector.is_none()
            && let Some(index) = Candidates::usual(&self.pool, view, snapshot)
        {
            return Ok(index);
        }
        let mask = self.pool.acquire_mask(snapshot);
        let candidates = Candidates::new(&self.pool, view, snapshot, mask);
        let chosen = candidates.and_then(|c| match &mut self.selector {
            Some(selector) => c.choose(&mut **selector),
            None => c.choose(&mut LeastLoaded),
        });
        self.pool.release_mask(mask);
        chosen
    }

    /// Books a request's prefill tokens and one permit on an endpoint.
    ///
    /// # Panics
    /// If the current worker snapshot has no such endpoint.
    pub fn book(&mut self, index: EndpointIndex, snapshot: &Snapshot) -> Booking {
        let endpoint = self.pool.endpoint(index);
        let tokens = snapshot.prefill_on(endpoint.worker).min(MAX_BOOKED_TOKENS);
        let Booked { tokens: before, permits } = self.pool.booked(index);
        self.set_booked(index, Booked { tokens: before + tokens, permits: permits + 1 });
        Booking { index, endpoint, incarnation: self.pool.incarnation(index), tokens }
    }

    /// [`next_request`](Self::next_request), [`select`](Self::select) and [`book`](Self::book).
    pub fn dispatch(&mut self) -> Option<Dispatch<T>> {
        if self.slab.len() == 0 {
            return None;
        }
        let request = self.next_request()?;
        let outcome =
            self.select(request.class, &request.snapshot).map(|index| self.book(index, &request.snapshot));
        Some(Dispatch { request, outcome })
    }

    // --- loads -----------------------------------------------------------------------------------------------

    /// Gives back the prefill tokens of a booking whose prefill is complete; the permit stays.
    pub fn prefill_complete(&mut self, booking: &mut Booking) {
        let tokens = std::mem::take(&mut booking.tokens);
        self.give_back(booking.endpoint, booking.incarnation, tokens, 0);
    }

    /// Gives back what is left of a booking. One that belongs to an earlier incarnation of its worker changes
    /// nothing and is [counted](Self::stale_releases).
    pub fn release(&mut self, booking: Booking) {
        self.give_back(booking.endpoint, booking.incarnation, booking.tokens, 1);
    }

    fn give_back(&mut self, endpoint: Endpoint, incarnation: u64, tokens: u64, permits: u32) {
        if let Some(index) = self.pool.release(endpoint, incarnation, tokens, permits) {
            let booked = self.pool.booked(index);
            self.set_booked(index, booked);
        }
    }

    /// Sets what this scheduler has booked on an endpoint, for callers that count releases themselves.
    ///
    /// # Panics
    /// If the current worker snapshot has no such endpoint.
    pub fn set_booked(&mut self, index: EndpointIndex, booked: Booked) {
        self.pool.set_booked(index, booked);
        self.load_changed(index);
    }

    /// Sets the active prefill tokens that others have booked on an endpoint.
    ///
    /// # Panics
    /// If the current worker snapshot has no such endpoint.
    pub fn set_external(&mut self, index: EndpointIndex, tokens: u64) {
        self.pool.set_external(index, tokens);
        self.load_changed(index);
    }

    /// Replaces the workers. Bookings stay with the incarnation they were made on; external loads are those of the
    /// snapshot. Versions are the caller's affair.
    pub fn set_workers(&mut self, snapshot: DataArc<WorkerSnapshot>) {
        let mut lives = self.pool.take_bookings();
        self.pool.set_workers(snapshot, |endpoint, incarnation| {
            lives.remove(&(endpoint, incarnation)).unwrap_or_default()
        });
        self.pool.keep_departed(lives);
        self.workers_changed();
    }

    /// The same with the bookings of each endpoint and incarnation given, for callers that count releases
    /// themselves.
    pub fn set_workers_with(
        &mut self,
        snapshot: DataArc<WorkerSnapshot>,
        booked: impl FnMut(Endpoint, u64) -> Booked,
    ) {
        self.pool.set_workers(snapshot, booked);
        self.workers_changed();
    }

    fn workers_changed(&mut self) {
        for gate in self.pool.gates() {
            self.ring.set_gate(gate, self.pool.gate_open(gate));
        }
        let exact = self.lanes.anchor_all(&self.pool, &self.ring);
        let views = self.ring.classes().iter().map(|class| self.classes[class.index()].view);
        self.untold.reset(self.lanes.lists(), views);
        for lane in exact {
            self.rank_lane(lane);
        }
        self.flipped.clear();
        for place in 0..self.ring.classes().len() {
            self.refresh_candidate(self.ring.classes()[place]);
        }
    }

    /// Words, nodes and places that decisions among the classes have looked at so far.
    #[doc(hidden)]
    pub fn ring_steps(&self) -> u64 {
        self.ring.steps()
    }
}
