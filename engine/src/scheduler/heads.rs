//! The heads of the lanes, and what the ring is told of them.

use super::class::Class;
use super::expiry::Expiries;
use super::lane::{Lane, LaneId, is_shared, shared_of};
use super::pool::Pool;
use super::ring::Offer;
use super::slab::{Head, Slab};
use super::{Scheduler, masks};
use crate::error::LimitReached;
use crate::policy::ClassId;
use crate::request::Snapshot;

/// What a request leaves behind that waits no more.
pub(super) struct Unlinked {
    /// Its lane, whose head may have changed.
    pub(super) lane: LaneId,
    /// Its cost \[tokens\].
    pub(super) cost: u64,
    /// Whether anything still waits in its class.
    pub(super) still_waiting: bool,
    /// The [`usual_head`] of its class now.
    pub(super) head: Option<Head>,
}

impl<T> Scheduler<T> {
    /// The limit that what waits in a class has reached.
    pub(crate) fn limit_reached(&self, class: ClassId) -> Option<LimitReached> {
        let class = &self.classes[class.index()];
        if class.is_plain() { None } else { class.limit_reached(self.pool.workers().workers().len()) }
    }

    /// The same unless it does not bind this request: nothing waits in its class, and it could go at once.
    #[inline(never)]
    pub(super) fn limit_that_binds(&mut self, class: ClassId, snapshot: &Snapshot) -> Option<LimitReached> {
        let limit = self.limit_reached(class)?;
        let binds = self.classes[class.index()].has_waiting() || !self.could_go(class, snapshot);
        binds.then_some(limit)
    }

    /// Whether a request would be dispatchable as the head of its lane.
    #[inline]
    pub(super) fn could_go(&mut self, class: ClassId, snapshot: &Snapshot) -> bool {
        if snapshot.pin().is_none() && snapshot.constraints().is_none() {
            return self.pool.gate_open(self.classes[class.index()].gate);
        }
        let mask = self.pool.acquire_mask(snapshot);
        let state = &self.classes[class.index()];
        let open = match snapshot.pin() {
            Some(pin) => self.pool.exact_open(state.view, self.pool.pinned(pin), mask),
            None => self.pool.shared_open(state.gate, mask),
        };
        self.pool.release_mask(mask);
        open
    }

    /// Takes the candidate of a class out of its lane and the class, but not yet out of its slot, if both are usual: nothing but
    /// the run of the shared lane may go now, and there is another one behind. Returns its cost, and that one. `None` if nothing
    /// has changed.
    #[inline(always)]
    pub(super) fn unlink_usual(&mut self, slot: u32, class: ClassId) -> Option<(u64, Head)> {
        let Self { slab, lanes, classes, .. } = self;
        let hot = slab.hot(slot);
        let lane = lanes.shared(class);
        let class = &mut classes[class.index()];
        if !hot.kind.is_plain() || class.best_open().is_some() || !lane.is_run() {
            return None;
        }
        debug_assert_eq!(lane.first(), slot, "the head of the only lane that may go is the candidate");
        let (cost, head) = (hot.usual.cost(), Head::of(hot.next, slab.get(hot.next)?).as_usual()?);
        class.subtract(&hot.usual);
        slab.vacate(slot);
        lane.set_first(head.slot);
        slab.prefetch(head.next);
        Some((cost, head))
    }

    /// Takes a request that waits in a class out of its lane and the class, but not yet out of its slot.
    #[inline(always)]
    pub(super) fn unlink(&mut self, slot: u32, class: ClassId) -> Unlinked {
        let Self { slab, lanes, classes, .. } = self;
        let hot = *slab.hot(slot);
        let lane = &mut lanes[hot.lane];
        let class = &mut classes[class.index()];
        class.subtract(&hot.usual);
        if hot.kind.is_plain() && lane.first() == slot {
            lane.unlink_first(hot.next);
        } else {
            unlink_unusual(slot, lane, class, slab, &mut self.expiries, &mut self.pool);
        }
        slab.vacate(slot);
        let head = if is_shared(hot.lane) {
            usual_head(class, lane, slab)
        } else {
            lane.pinned -= 1;
            None
        };
        if let Some(head) = &head {
            slab.prefetch_behind(head);
        }
        Unlinked { lane: hot.lane, cost: hot.usual.cost(), still_waiting: class.has_waiting(), head }
    }

    /// After another request has become the head of a lane, or none.
    pub(super) fn head_changed(&mut self, lane: LaneId) {
        let class = ClassId(self.lanes[lane].class);
        if !is_shared(lane) {
            if !self.untold.is_empty() {
                self.untold.told(self.lanes[lane].list, self.ring.place(class));
            }
            let best_changed = self.rank_lane(lane);
            if self.lanes[lane].is_empty() {
                self.lanes.drop_exact(lane, &self.ring);
            }
            if !best_changed {
                return;
            }
        }
        self.refresh_candidate(class);
    }

    /// Puts an exact lane where it belongs: among the open or the blocked lanes of its class, by its head. Returns
    /// whether the best head of the open ones has changed.
    pub(super) fn rank_lane(&mut self, id: LaneId) -> bool {
        let Self { lanes, slab, pool, classes, .. } = self;
        let (lane, ranks) = lanes.with_ranks(id);
        let Class { exact, view, .. } = &mut classes[lane.class as usize];
        let exact = exact.get_or_insert_default();
        let Some(head) = lane.head(slab) else {
            return exact.forget(id, ranks);
        };
        let endpoints = lane.endpoints.0 as usize..lane.endpoints.1 as usize;
        let open = pool.exact_open(*view, endpoints, slab.hot(head).kind.mask());
        exact.note(id, slab.key(head), open, ranks)
    }

    /// Looks again at shared heads with constraints, after endpoints have become free or busy for their class.
    #[inline(never)]
    pub(super) fn recheck_constrained(&mut self) {
        for i in (0..self.constrained.len()).rev() {
            let class = self.constrained[i];
            match self.shared_head(class) {
                Some((_, mask)) if mask != masks::NO_MASK => {
                    if self.flipped.contains(&self.classes[class.index()].view) {
                        self.refresh_candidate(class);
                    }
                }
                _ => {
                    self.classes[class.index()].listed = false;
                    self.constrained.swap_remove(i);
                }
            }
        }
        self.flipped.clear();
    }

    /// The head of a class's shared lane with its mask.
    pub(super) fn shared_head(&self, class: ClassId) -> Option<(u32, u32)> {
        let slot = self.lanes[shared_of(class)].head(&self.slab)?;
        Some((slot, self.slab.hot(slot).kind.mask()))
    }

    /// The best dispatchable head of a class while its pool gate is open, and while it is closed, by the head of its shared
    /// lane with its mask.
    fn candidates(&self, class: ClassId, shared: Option<(u32, u32)>) -> [Option<u32>; 2] {
        let state = &self.classes[class.index()];
        let exact = self.best_open(state);
        match shared {
            None => [exact, exact],
            Some((slot, masks::NO_MASK)) => [self.better(Some(slot), exact), exact],
            Some((slot, mask)) => {
                let shared = self.pool.shared_open(state.gate, mask).then_some(slot);
                [self.better(shared, exact); 2]
            }
        }
    }

    /// The best head of a class, dispatchable or not.
    pub(super) fn best_head(&mut self, class: ClassId) -> Option<u32> {
        let state = &mut self.classes[class.index()];
        let blocked = state.exact.as_mut().and_then(|exact| exact.best_blocked(self.lanes.ranks()));
        let state = &self.classes[class.index()];
        let head = |lane: LaneId| self.lanes[lane].head(&self.slab);
        let exact = self.better(blocked.and_then(head), self.best_open(state));
        self.better(head(shared_of(class)), exact)
    }

    fn best_open(&self, class: &Class) -> Option<u32> {
        self.lanes[class.best_open()?].head(&self.slab)
    }

    fn better(&self, a: Option<u32>, b: Option<u32>) -> Option<u32> {
        match (a, b) {
            (Some(a), Some(b)) if self.slab.is_before(b, a) => Some(b),
            (a, b) => a.or(b),
        }
    }

    /// Tells the ring what the candidates of a class cost now.
    pub(super) fn refresh_candidate(&mut self, class: ClassId) {
        let Self { slab, lanes, classes, ring, .. } = self;
        let state = &classes[class.index()];
        match usual_head(state, lanes.shared(class), slab) {
            Some(Head { slot, cost, .. }) => ring.set_candidates(class, Offer { slot, cost }, Offer::NONE),
            None => self.refresh_unusual(class),
        }
    }

    fn refresh_unusual(&mut self, class: ClassId) {
        let shared = self.shared_head(class);
        let offer = |slot| Offer { slot, cost: self.slab.hot(slot).usual.cost() };
        let [open, closed] = self.candidates(class, shared).map(|slot| slot.map_or(Offer::NONE, offer));
        let constrained = shared.is_some_and(|(_, mask)| mask != masks::NO_MASK);
        let state = &mut self.classes[class.index()];
        // It depends on some endpoints only, and not on its pool gate.
        if constrained && !std::mem::replace(&mut state.listed, true) {
            self.constrained.push(class);
        }
        self.ring.set_candidates(class, open, closed);
    }
}

/// Takes the request in `slot` out of its lane and of all else that it is in, whatever it is.
#[inline(never)]
fn unlink_unusual<T>(
    slot: u32,
    lane: &mut Lane,
    class: &mut Class,
    slab: &mut Slab<T>,
    expiries: &mut Expiries,
    pool: &mut Pool,
) {
    let hot = *slab.hot(slot);
    lane.unlink(slot, &hot, slab);
    if !hot.kind.in_run() {
        class.ages.remove(slot, slab);
    }
    if hot.kind.expires() {
        expiries.remove(slot, slab);
    }
    if hot.kind.mask() != masks::NO_MASK {
        pool.release_mask(hot.kind.mask());
    }
}

/// The candidate of a class if it depends on its pool gate only: the head of its shared `lane`, if it has no
/// constraints and nothing that is pinned may go. [`Head::NONE`] if nothing waits.
#[inline(always)]
fn usual_head<T>(class: &Class, lane: &Lane, slab: &Slab<T>) -> Option<Head> {
    if class.best_open().is_some() {
        return None;
    }
    match lane.head(slab) {
        Some(slot) => Head::of(slot, slab.hot(slot)).as_usual(),
        None => Some(Head::NONE),
    }
}
