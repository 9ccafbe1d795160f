//! The picture that the arbiter gives of the engine.

use super::arbiter::Arbiter;
use super::counts::{ArbiterStatus, EndpointStatus, EngineSnapshot};
use crate::time::Timestamp;

impl Arbiter {
    /// A picture of this moment, but for what the asker adds and works out from it.
    pub(super) fn picture(&self) -> EngineSnapshot {
        let Self { shared, desk, turns, .. } = self;
        let scheduler = &desk.scheduler;
        let now = shared.clock.now();
        let classes = scheduler.classes().map(|(id, name)| {
            let mut status = desk.counts[id.index()].status(id, name.clone());
            status.waiting = scheduler.usage(id);
            status.oldest = scheduler.oldest_arrival(id).map(|arrival| now.saturating_since(arrival));
            status.deficit = scheduler.deficit(id);
            status.quantum = scheduler.quantum(id);
            status
        });
        let endpoints = scheduler.endpoints().map(|(index, endpoint)| EndpointStatus {
            endpoint,
            active: scheduler.active(index),
            booked: scheduler.booked(index),
            busy_for: Vec::new(),
            waiting: scheduler.waiting_for(index),
        });
        EngineSnapshot {
            uptime: now.saturating_since(Timestamp::ZERO),
            classes: classes.collect(),
            endpoints: endpoints.collect(),
            arbiter: ArbiterStatus {
                turns: turns.turns,
                decisions: desk.decisions,
                sleeps: turns.sleeps,
                longest_turn: turns.longest,
                hook_panics: desk.observers.panics(),
                intake: turns.intake.histogram(),
                dispatches: turns.dispatches.histogram(),
            },
            invalid: 0,
            turned_away: 0,
            clamped: 0,
            stale_releases: 0,
            busy: scheduler.busy_by_rule(),
        }
    }
}
