//! Selection: which endpoint serves the request that arbitration has picked.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fixedbitset::FixedBitSet;

use super::pool::{EndpointIndex, Pool, ViewId};
use crate::error::Reason;
use crate::request::{Pin, Snapshot};
use crate::worker::Endpoint;

/// Chooses among the eligible endpoints of a request.
///
/// A selector that panics, or that names an endpoint which is not eligible, fails this one request.
///
/// ```
/// use tollgate::{Candidates, EndpointIndex, Selector};
///
/// /// The endpoint that has most of the prompt cached.
/// #[derive(Debug)]
/// struct BestHit;
///
/// impl Selector for BestHit {
///     fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
///         candidates.iter().min_by_key(|c| (c.busy, c.prefill, c.active)).map(|c| c.index)
///     }
/// }
/// ```
pub trait Selector: Send {
    /// The endpoint for the request of `candidates`; `None` to fail it.
    fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex>;
}

/// The default: least `active + prefill tokens` among the endpoints that are not busy for the class, or among all
/// eligible ones if all are busy; ties to the lower worker id, then rank.
#[derive(Clone, Copy, Debug, Default)]
pub struct LeastLoaded;

impl Selector for LeastLoaded {
    fn select(&mut self, candidates: &Candidates<'_>) -> Option<EndpointIndex> {
        candidates.least_loaded()
    }
}

/// An endpoint as one request sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Number to give back from [`Selector::select`].
    pub index: EndpointIndex,
    /// Worker and rank.
    pub endpoint: Endpoint,
    /// Active prefill tokens: booked here and by others.
    pub active: u64,
    /// Prefill tokens that this request would add.
    pub prefill: u64,
    /// Whether the endpoint is busy for the request's class.
    pub busy: bool,
}

impl Candidate {
    /// What the default selector minimises, then the number.
    fn load(&self) -> (u128, EndpointIndex) {
        (u128::from(self.active) + u128::from(self.prefill), self.index)
    }
}

/// The eligible endpoints of one picked request; there is at least one.
#[derive(Debug)]
pub struct Candidates<'a> {
    pool: &'a Pool,
    view: ViewId,
    snapshot: &'a Snapshot,
    /// The endpoints of the pin.
    pinned: Option<Range<usize>>,
    /// The endpoints that the constraints allow.
    mask: Option<&'a FixedBitSet>,
}

impl<'a> Candidates<'a> {
    /// The eligible endpoints, or why there are none; `mask` is that of the request's constraints.
    pub(super) fn new(
        pool: &'a Pool,
        view: ViewId,
        snapshot: &'a Snapshot,
        mask: u32,
    ) -> Result<Self, Reason> {
        let pinned = snapshot.pin().map(|pin| pool.pinned(pin));
        let candidates = Self { pool, view, snapshot, pinned, mask: pool.mask(mask) };
        let anybody = match (&candidates.pinned, candidates.mask) {
            (None, None) => pool.serves(),
            _ => candidates.eligible().next().is_some(),
        };
        if anybody { Ok(candidates) } else { Err(why_nobody(pool, snapshot)) }
    }

    /// The request.
    pub fn snapshot(&self) -> &Snapshot {
        self.snapshot
    }

    /// Every eligible endpoint, by worker id and rank.
    pub fn iter(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.eligible().map(|e| self.candidate(e as u32))
    }

    fn eligible(&self) -> impl Iterator<Item = usize> + '_ {
        let serving = self.pool.serving();
        let pinned = self.pinned.clone().map(|range| range.filter(|&e| self.is_eligible(e)));
        let (masked, all) = match (&self.pinned, self.mask) {
            (Some(_), _) => (None, None),
            (None, Some(mask)) => (Some(mask.intersection(serving)), None),
            (None, None) => (None, Some(serving.ones())),
        };
        let (pinned, masked, all) = (pinned.into_iter(), masked.into_iter(), all.into_iter());
        pinned.flatten().chain(masked.flatten()).chain(all.flatten())
    }

    fn is_eligible(&self, endpoint: usize) -> bool {
        self.pool.serving().contains(endpoint)
            && self.pinned.as_ref().is_none_or(|range| range.contains(&endpoint))
            && self.mask.is_none_or(|mask| mask.contains(endpoint))
    }

    /// What the default selector chooses for most requests, those without pin, constraints and cached prefixes: of equal
    /// loads to come, the least active. `None` for the others, and if no endpoint is free.
    #[inline]
    pub(super) fn usual(pool: &Pool, view: ViewId, snapshot: &Snapshot) -> Option<EndpointIndex> {
        match (snapshot.pin(), snapshot.constraints(), snapshot.cached_list()) {
            (None, None, None) => pool.view(view).least_loaded().map(EndpointIndex),
            _ => None,
        }
    }

    /// What the default selector chooses. Without pin and constraints it looks at the least loaded endpoint and
    /// at those with a cached prefix only.
    pub fn least_loaded(&self) -> Option<EndpointIndex> {
        if let Some(index) = Self::usual(self.pool, self.view, self.snapshot) {
            return Some(index);
        }
        let free = self.pool.view(self.view);
        let best = match (&self.pinned, self.mask, free.least_loaded()) {
            (None, None, Some(least)) => {
                // Of the endpoints without a cached prefix the least loaded is the best; no other can win.
                let cached = self.snapshot.cached_list().unwrap_or_default();
                let cached = cached.iter().flat_map(|c| {
                    let ranks = self.pool.pinned(Pin { worker: c.worker, rank: None });
                    ranks.filter(|&e| free.free().contains(e)).map(|e| e as u32)
                });
                cached.chain([least]).map(|e| self.candidate(e)).min_by_key(Candidate::load)
            }
            _ => self.iter().filter(|c| !c.busy).min_by_key(Candidate::load),
        };
        best.or_else(|| self.iter().min_by_key(Candidate::load)).map(|c| c.index)
    }

    fn candidate(&self, endpoint: u32) -> Candidate {
        let index = EndpointIndex(endpoint);
        let endpoint = self.pool.endpoint(index);
        Candidate {
            index,
            endpoint,
            active: self.pool.active(index),
            prefill: self.snapshot.prefill_on(endpoint.worker),
            busy: !self.pool.view(self.view).free().contains(index.index()),
        }
    }

    /// Asks the selector, and holds it to its contract.
    pub(super) fn choose(&self, selector: &mut dyn Selector) -> Result<EndpointIndex, Reason> {
        let failed = |message: &str| Reason::SelectorFailed { message: message.into() };
        // The selector may be left in any state: that is its author's affair, we only borrow it again.
        let chosen = catch_unwind(AssertUnwindSafe(|| selector.select(self))).map_err(|panic| {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let failed = failed(text.unwrap_or("panicked"));
            // Not dropped: that could panic again.
            std::mem::forget(panic);
            failed
        })?;
        match chosen {
            Some(index) if self.is_eligible(index.index()) => Ok(index),
            Some(_) => Err(failed("chose an endpoint that is not eligible")),
            None => Err(failed("chose no endpoint")),
        }
    }
}

/// The reason why a request has no eligible endpoint.
#[cold]
fn why_nobody(pool: &Pool, snapshot: &Snapshot) -> Reason {
    let workers = pool.workers().workers();
    let allows = |id| snapshot.constraints().is_none_or(|c| c.allows(id));
    let tolerates = |taints: &_| snapshot.constraints().is_none_or(|c| c.tolerates(taints));
    let taints = || {
        let required = snapshot.constraints().map_or_else(Vec::new, |c| c.taints().to_vec());
        Reason::TaintsUnsatisfiable { required }
    };
    if let Some(pin) = snapshot.pin() {
        if !allows(pin.worker) {
            return Reason::PinNotAllowed { pin };
        }
        let Ok(at) = workers.binary_search_by_key(&pin.worker, |w| w.id) else {
            return Reason::PinUnavailable { pin };
        };
        let worker = &workers[at];
        return if pool.pinned(pin).is_empty() {
            Reason::PinRankOutOfRange { pin, first_rank: worker.first_rank, ranks: worker.ranks }
        } else if !tolerates(&worker.taints) {
            taints()
        } else {
            Reason::PinOverloaded { pin }
        };
    }
    let mut allowed = workers.iter().filter(|w| allows(w.id)).peekable();
    if allowed.peek().is_none() {
        return Reason::NoEndpoint { workers: workers.len() };
    }
    match allowed.filter(|w| tolerates(&w.taints)).map(|w| w.ranks as usize).sum() {
        0 => taints(),
        endpoints => Reason::AllOverloaded { endpoints },
    }
}
