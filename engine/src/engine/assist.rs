//! The arbiter's work on callers' threads, while it sleeps: its turns, and requests that need none.

use super::admission::{Answer, asked};
use super::arbiter::Arbiter;
use super::contain::contained;
use super::shared::{Entry, Routes};
use crate::request::Request;
use crate::sync::lend::{Desk, Look};
use crate::time::Timestamp;

/// A request that comes to the desk itself, before it is in any queue.
pub(super) struct Visit<'a> {
    pub(super) request: &'a Request,
    pub(super) entry: &'a mut Entry,
    /// When it came in, if that is noted.
    pub(super) arrival: &'a mut Option<Timestamp>,
    /// Whether the name of its class is of interest.
    pub(super) wants_name: bool,
    pub(super) outcome: &'a mut Visited,
}

/// What came of a visit.
#[derive(Default)]
pub(super) struct Visited {
    /// It has come to the desk.
    pub(super) was_there: bool,
    /// Without an answer nothing of the request is there: it has to go through its queue.
    pub(super) answer: Option<Answer>,
    /// The name of the class, if there is an answer.
    pub(super) class: Option<Box<str>>,
}

impl Arbiter {
    /// Answers a request that need not wait, on its caller's thread, past the queues. Returns whether the caller can lay the
    /// arbiter's work down then.
    pub(super) fn admit_at_once(&mut self, mut visit: Visit<'_>) -> bool {
        visit.outcome.was_there = true;
        let done = contained(|| self.answer_visit(&mut visit));
        if visit.outcome.answer.is_none() {
            self.shared.arrival(&mut visit.entry.snapshot, visit.arrival);
        }
        self.died |= done.is_none();
        !self.died
    }

    fn answer_visit(&mut self, visit: &mut Visit<'_>) {
        debug_assert!(!self.draining, "what drains and has nothing left is over");
        // Who came before goes before, and what is new counts.
        if self.more || self.has_work(false) {
            return;
        }
        let Visit { request, entry: Entry { snapshot, choice }, arrival, wants_name, outcome } = visit;
        // These may take long, and may ask when the request came in.
        let has_hooks = self.desk.observers.any() || self.desk.scheduler.has_selector();
        // Who knows when it came may be late by now.
        let started = (arrival.is_some() || has_hooks).then(|| self.shared.clock.now());
        let now = match started {
            Some(now) if arrival.is_none() => {
                **arrival = started;
                snapshot.came_in(now);
                now
            }
            Some(now) => now,
            None => snapshot.arrival(),
        };
        let Routes { profile, numbers, .. } = &*self.routes;
        let position = profile.classify(asked(request, choice), snapshot.uncached_tokens());
        let class = numbers[position.index()];
        self.desk.bring_near(class);
        self.desk.endpoints.take_releases(&mut self.desk.scheduler);
        let Some(booked) = self.desk.scheduler.bypass(class, snapshot, now) else { return };
        outcome.class = wants_name.then(|| profile.classes()[position.index()].name.as_str().into());
        self.desk.answer_at_once(class, snapshot, now, booked, &mut outcome.answer);
        self.turns.intake.record(1);
        self.turns.dispatches.record(1);
        self.turns.turns += 1;
        if let Some(started) = started.filter(|_| has_hooks) {
            let took = self.shared.clock.now().saturating_since(started);
            self.turns.longest = self.turns.longest.max(took);
        }
    }
}

impl Desk for Arbiter {
    fn assist(&mut self, now: Option<Timestamp>) -> bool {
        let can_rest = contained(|| {
            if self.is_over() {
                return false;
            }
            // Where a moment counts, the moment it is.
            let now = now.filter(|_| self.desk.scheduler.next_expiry().is_none());
            self.timed_turn(now.unwrap_or_else(|| self.shared.clock.now()), false);
            // The arbiter's thread ends the engine, and sleeps by its own alarm.
            let is_earlier = |at| self.alarm.at.is_none_or(|alarm| at < alarm);
            let now = self.alarm();
            !std::mem::take(&mut self.alone)
                && !self.is_over()
                && now.drained_by >= self.alarm.drained_by
                && !now.at.is_some_and(is_earlier)
        });
        self.died |= can_rest.is_none();
        can_rest.unwrap_or(false)
    }

    fn look(&mut self) -> Look {
        let waits = self.desk.scheduler.waiting() > 0;
        Look { work: self.more || self.has_work(waits), waits }
    }
}
