//! The arbiter's work on callers' threads, while it sleeps: its turns, and requests that need none.

use super::admission::{Answer, asked};
use super::arbiter::Arbiter;
use super::contain::contained;
use super::guard::ClassChoice;
use super::shared::Routes;
use super::span::RequestSpan;
use crate::request::{Request, Snapshot};
use crate::sync::lend::{Desk, Look};
use crate::time::Timestamp;

impl Arbiter {
    /// Answers a request that need not wait, on its caller's thread, past the queues. Without an answer nothing of the request is
    /// here: it has to go through them. Its arrival is noted if that is needed, and was not. Returns whether the caller can lay the arbiter's work down then.
    pub(super) fn admit_at_once(
        &mut self,
        request: &Request,
        choice: &ClassChoice,
        snapshot: &mut Snapshot,
        arrival: &mut Option<Timestamp>,
        span: &RequestSpan,
        answer: &mut Option<Answer>,
    ) -> bool {
        let done = contained(|| {
            // Who came before goes before, and what is new counts.
            if self.more || self.has_work(false) {
                return;
            }
            if self.desk.observers.any() {
                self.shared.arrival(snapshot, arrival);
            }
            let Routes { profile, numbers, .. } = &*self.routes;
            let position = profile.classify(asked(request, choice), snapshot.uncached_tokens());
            let class = numbers[position.index()];
            self.desk.bring_near(class);
            self.desk.endpoints.take_releases(&mut self.desk.scheduler);
            let now = snapshot.arrival();
            if let Some(outcome) = self.desk.scheduler.bypass(class, snapshot, now) {
                span.classified(&profile.classes()[position.index()].name, snapshot.cost());
                self.desk.answer_at_once(class, snapshot, outcome, answer);
                self.turns.intake.record(1);
                self.turns.dispatches.record(1);
                self.turns.turns += 1;
            }
        });
        if answer.is_none() {
            self.shared.arrival(snapshot, arrival);
        }
        self.died |= done.is_none();
        !self.died
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
