//! Leaving without being dispatched: cancelled, or expired.

use super::class::Class;
use super::heads::Unlinked;
use super::{Picked, Scheduler};
use crate::error::WaitCause;
use crate::policy::ClassId;
use crate::request::Snapshot;
use crate::time::Timestamp;

use super::slab::RequestKey;

/// A request whose time was over.
#[derive(Clone, Debug)]
pub struct Expired<T> {
    /// The request.
    pub request: Picked<T>,
    /// What it was waiting for when its time was over.
    pub cause: WaitCause,
}

impl<T> Scheduler<T> {
    /// Takes out a request that waits no longer because its caller left, O(log n). Its usage is given back and its
    /// class is charged nothing, but may not keep the credit that the request had gathered for those behind it.
    /// `None` if it waits no more.
    pub fn cancel(&mut self, key: RequestKey) -> Option<Picked<T>> {
        if !self.slab.contains(key) {
            return None;
        }
        self.leave(key.slot)
    }

    /// Takes out one request that is still waiting at its deadline, or has waited as long as its class allows,
    /// O(log n); the earliest first. As with a cancelled one, its class is charged nothing and keeps no credit of it.
    /// `None` if nothing has expired by `now`.
    pub fn expire(&mut self, now: Timestamp) -> Option<Expired<T>> {
        let (at, slot) = self.expiries.next()?;
        if at > now {
            return None;
        }
        let lane = &self.lanes[self.slab.hot(slot).lane];
        let cause = self.wait_cause(ClassId(lane.class), &self.slab.snapshot(slot, lane.pin));
        Some(Expired { request: self.leave(slot)?, cause })
    }

    /// When the next waiting request expires.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.expiries.next().map(|(at, _)| at)
    }

    /// Ends the scheduling: empties it of the requests that still wait, however broken its state may be.
    pub(crate) fn take_all(&mut self) -> Vec<Picked<T>> {
        let Self { slab, lanes, classes, ring, .. } = self;
        classes.iter_mut().for_each(Class::forget_all);
        ring.forget_credit();
        lanes.forget_all();
        slab.take_all(|lane| (ClassId(lanes[lane].class), lanes[lane].pin)).collect()
    }

    fn leave(&mut self, slot: u32) -> Option<Picked<T>> {
        let lane = &self.lanes[self.slab.hot(slot).lane];
        let (class, was_head) = (ClassId(lane.class), lane.head(&self.slab) == Some(slot));
        let Unlinked { lane, .. } = self.unlink(slot, class);
        if was_head {
            self.head_changed(lane);
        }
        let best = self.best_head(class).map(|slot| self.slab.hot(slot).usual.cost());
        self.ring.cut(class, best);
        self.slab.take(slot, class, || self.lanes.pin(lane))
    }

    fn wait_cause(&self, class: ClassId, snapshot: &Snapshot) -> WaitCause {
        let mask = self.pool.find_mask(snapshot);
        let state = &self.classes[class.index()];
        let (open, blocked) = match snapshot.pin() {
            Some(pin) => {
                (self.pool.exact_open(state.view, self.pool.pinned(pin), mask), WaitCause::PinBusy { pin })
            }
            None => (self.pool.shared_open(state.gate, mask), WaitCause::PoolBusy),
        };
        if self.pool.workers().workers().is_empty() {
            WaitCause::NoWorker
        } else if open {
            WaitCause::Others
        } else {
            blocked
        }
    }
}
