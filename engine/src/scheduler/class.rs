//! A class: its lanes' heads in order, what waits in it, and how much may.

use super::heap::IndexedHeap;
use super::key::{Order, OrderKey};
use super::lane::LaneId;
use super::pool::{GateId, ViewId};
use crate::error::{LimitKind, LimitReached};
use crate::policy::{ClassSpec, LimitsPerWorker};
use crate::request::Snapshot;
use crate::sync::DataArc;

/// What waits in a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Requests.
    pub requests: u64,
    /// Their raw ISL tokens; more than `u64::MAX` reads as that.
    pub raw_isl_tokens: u64,
    /// Their cached tokens; more than `u64::MAX` reads as that.
    pub cached_tokens: u64,
}

/// One class.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) name: DataArc<str>,
    pub(super) order: Order,
    pub(super) view: ViewId,
    pub(super) gate: GateId,
    pub(super) shared: LaneId,
    /// Heads of the exact lanes, each naming its lane: blocked ones, and those that may go.
    pub(super) exact: [IndexedHeap<OrderKey>; 2],
    /// Whether the scheduler's list of constrained heads has this class.
    pub(super) listed: bool,
    limits: LimitsPerWorker,
    requests: u64,
    raw: u128,
    cached: u128,
}

impl Class {
    pub(super) fn new(spec: &ClassSpec, view: ViewId, gate: GateId, shared: LaneId) -> Self {
        Self {
            name: spec.name.as_str().into(),
            order: Order::of(spec),
            view,
            gate,
            shared,
            exact: Default::default(),
            listed: false,
            limits: spec.limits,
            requests: 0,
            raw: 0,
            cached: 0,
        }
    }

    pub(super) fn usage(&self) -> Usage {
        let saturate = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        Usage {
            requests: self.requests,
            raw_isl_tokens: saturate(self.raw),
            cached_tokens: saturate(self.cached),
        }
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.requests > 0
    }

    pub(super) fn add(&mut self, snapshot: &Snapshot) {
        self.requests += 1;
        self.raw += u128::from(snapshot.raw_isl_tokens());
        self.cached += u128::from(snapshot.cached_tokens());
    }

    pub(super) fn subtract(&mut self, snapshot: &Snapshot) {
        self.requests -= 1;
        self.raw -= u128::from(snapshot.raw_isl_tokens());
        self.cached -= u128::from(snapshot.cached_tokens());
    }

    /// The first limit that what waits now has reached. The request that crosses a limit was still accepted.
    pub(super) fn limit_reached(&self, workers: usize) -> Option<LimitReached> {
        let usage = self.usage();
        let checks = [
            (LimitKind::Requests, usage.requests, self.limits.requests),
            (LimitKind::RawIslTokens, usage.raw_isl_tokens, self.limits.raw_isl_tokens),
            (LimitKind::CachedTokens, usage.cached_tokens, self.limits.cached_tokens),
        ];
        checks.into_iter().find_map(|(kind, current, per_worker)| {
            let limit = per_worker?.saturating_mul(workers as u64);
            (current >= limit).then(|| LimitReached { class: self.name.clone(), kind, current, limit })
        })
    }
}
