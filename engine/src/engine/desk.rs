//! The desk: where requests are put into their lanes, answered and counted, one by one. Which come and go, and when, is the
//! `arbiter`'s affair.

use std::time::Duration;

use super::admission::{Answer, Item, Pending, waiting_place};
use super::contain::contained;
use super::counts::Counts;
use super::endpoints::Endpoints;
use super::observe::{Fate, Observers};
use super::permit::Permit;
use super::shared::Shared;
use super::span::RequestSpan;
use crate::error::Reason;
use crate::policy::ClassId;
use crate::request::Snapshot;
use crate::scheduler::{Booking, Dispatch, Expired, Picked, Refused, Scheduler};
use crate::sync::Arc;
use crate::sync::clock::Clock;
use crate::sync::ingress::{ABANDONED, Consumer, Queued};
use crate::time::Timestamp;

/// Answers of a turn that go by one look at the clock: some 2 µs.
const PER_LOOK: u32 = 8;

/// Where requests are answered: the scheduler, the endpoints' loads, and what is counted.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) scheduler: Scheduler<Pending>,
    pub(super) endpoints: Endpoints,
    /// By class number.
    pub(super) counts: Vec<Counts>,
    pub(super) decisions: u64,
    pub(super) observers: Observers,
    /// About when the last answer of this turn was given.
    pub(super) answered: LastAnswer,
    pub(super) abandoned: Consumer<Item, ABANDONED>,
    pub(super) shared: Arc<Shared>,
}

impl Desk {
    /// Learns what makes room: releases, requests whose callers have left, and requests whose time is over. Returns
    /// whether there was anything.
    pub(super) fn catch_up(&mut self, now: Timestamp) -> bool {
        let mut any = self.endpoints.take_releases(&mut self.scheduler);
        // As many as there are now; those that come meanwhile wait for the next time.
        let mut left = self.abandoned.len();
        while left > 0 && self.forget_one() {
            left -= 1;
            any = true;
        }
        self.expire(now) || any
    }

    /// Forgets one request whose caller has left.
    fn forget_one(&mut self) -> bool {
        let mut abandoned = None;
        self.abandoned.drain(1, |item| abandoned = Some(item));
        let Some(item) = abandoned else { return false };
        if let Some(request) = waiting_place(&item).and_then(|key| self.scheduler.cancel(key)) {
            self.counts[request.class.index()].cancelled += 1;
            if self.observers.any() {
                self.observers.left(request.class, &request.snapshot, self.shared.clock.now(), None);
            }
        }
        // The last owner of a ticket drops its waker, which is the caller's code.
        let _ = contained(|| drop(item));
        true
    }

    /// Puts one request into its lane, or refuses it.
    pub(super) fn take_in(&mut self, class: ClassId, item: Queued<Item>) {
        self.take_in_pending(class, Pending::new(item));
    }

    /// The same for a request that was looked at before.
    pub(super) fn take_in_pending(&mut self, class: ClassId, mut pending: Pending) {
        let counts = &mut self.counts[class.index()];
        counts.taken_in();
        let abandoned = pending.is_abandoned();
        let snapshot = pending.take_snapshot();
        if abandoned {
            counts.cancelled += 1;
            if self.observers.any() {
                self.observers.left(class, &snapshot, self.shared.clock.now(), None);
            }
            return;
        }
        if self.scheduler.limit_reached(class).is_some() {
            self.catch_up(self.shared.clock.now());
        }
        let Self { scheduler, endpoints, counts, decisions, observers, answered, shared, .. } = self;
        let submitted = scheduler.submit(class, snapshot, pending, &mut |_, mut dispatch| {
            *decisions += 1;
            answer(endpoints, counts, observers, answered.now(&shared.clock), &mut dispatch);
        });
        match submitted {
            Ok(key) => {
                // It may have gone already, or failed selection: then nobody waits under its key.
                if let Some(pending) = scheduler.get(key) {
                    pending.waits_as(key);
                }
            }
            Err(Refused { limit, snapshot, payload }) => {
                let counts = &mut counts[class.index()];
                let refused = &mut counts.refused[limit.kind as usize];
                let (mut request, reason) = (Picked { class, snapshot, payload }, Reason::QueueLimit(limit));
                end(&mut request, reason, shared.clock.now(), observers, refused, &mut counts.cancelled);
            }
        }
    }

    /// Ends the requests whose time is over; returns whether there were any.
    pub(super) fn expire(&mut self, now: Timestamp) -> bool {
        let mut any = false;
        while let Some(Expired { mut request, cause }) = self.scheduler.expire(now) {
            any = true;
            let waited = now.saturating_since(request.snapshot.arrival());
            let counts = &mut self.counts[request.class.index()];
            let (reason, expired) = (Reason::DeadlineExceeded { waited, cause }, &mut counts.expired);
            end(&mut request, reason, now, &mut self.observers, expired, &mut counts.cancelled);
        }
        any
    }

    /// Asks for what a request of a class needs to be brought near.
    pub(super) fn bring_near(&self, class: ClassId) {
        self.scheduler.prefetch(class);
        self.counts[class.index()].prefetch();
    }

    /// Answers a request that was in no queue.
    pub(super) fn answer_at_once(
        &mut self,
        class: ClassId,
        snapshot: &Snapshot,
        now: Timestamp,
        outcome: Result<Booking, Reason>,
        answer: &mut Option<Answer>,
    ) {
        self.decisions += 1;
        let counts = &mut self.counts[class.index()];
        counts.taken_in();
        match outcome {
            Ok(booking) => {
                let (cost, waited) = (snapshot.cost(), now.saturating_since(snapshot.arrival()));
                if waited.is_zero() {
                    counts.dispatched_at_once(cost);
                } else {
                    counts.dispatched(cost, waited);
                }
                *answer = Some(Ok(permit(&self.endpoints, &booking, class, cost, waited)));
                if self.observers.any() {
                    let fate = Fate::Dispatched(booking.endpoint());
                    self.observers.tell(class, snapshot, waited, &fate);
                }
            }
            Err(reason) => {
                counts.failed += 1;
                if self.observers.any() {
                    self.observers.left(class, snapshot, now, Some(reason.clone()));
                }
                *answer = Some(Err(reason));
            }
        }
    }

    /// Answers a dispatched request, which is too large to be handed over.
    pub(super) fn answer(&mut self, dispatch: &mut Dispatch<Pending>) {
        let Self { shared, endpoints, counts, decisions, observers, answered, .. } = self;
        *decisions += 1;
        answer(endpoints, counts, observers, answered.now(&shared.clock), dispatch);
    }
}

/// A look at the clock for several answers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastAnswer {
    pub(super) at: Option<Timestamp>,
    /// Answers that may still go by it.
    left: u32,
}

impl LastAnswer {
    /// The time of the next answer, from at most [`PER_LOOK`] answers ago.
    fn now(&mut self, clock: &Clock) -> Timestamp {
        match self.at {
            Some(at) if self.left > 0 => {
                self.left -= 1;
                at
            }
            _ => {
                let now = clock.now();
                *self = Self { at: Some(now), left: PER_LOOK - 1 };
                now
            }
        }
    }
}

/// Books a dispatched request and answers its caller.
fn answer(
    endpoints: &Endpoints,
    counts: &mut [Counts],
    observers: &mut Observers,
    now: Timestamp,
    Dispatch { request, outcome }: &mut Dispatch<Pending>,
) {
    let counts = &mut counts[request.class.index()];
    let booking = match outcome {
        Ok(booking) => booking,
        Err(reason) => {
            return end(request, reason.clone(), now, observers, &mut counts.failed, &mut counts.cancelled);
        }
    };
    let waited = now.saturating_since(request.snapshot.arrival());
    let cost = request.snapshot.cost();
    let permit = permit(endpoints, booking, request.class, cost, waited);
    let taken = request.payload.answer(Ok(permit));
    if taken {
        counts.dispatched(cost, waited);
    } else {
        counts.cancelled += 1;
    }
    if observers.any() {
        let fate = if taken { Fate::Dispatched(booking.endpoint()) } else { Fate::Left(None) };
        observers.tell(request.class, &request.snapshot, waited, &fate);
    }
}

/// The permit for what was booked, which counts from now on.
fn permit(endpoints: &Endpoints, booking: &Booking, class: ClassId, cost: u64, waited: Duration) -> Permit {
    let load = endpoints.load(booking.index()).clone();
    let tokens = booking.tokens();
    load.book(tokens);
    Permit { load, tokens, endpoint: booking.endpoint(), class, waited, cost, span: RequestSpan::none() }
}

/// Ends a request without a permit, and counts it by whether anybody took the answer.
pub(super) fn end(
    Picked { class, snapshot, payload }: &mut Picked<Pending>,
    reason: Reason,
    now: Timestamp,
    observers: &mut Observers,
    taken: &mut u64,
    cancelled: &mut u64,
) {
    let heard = observers.any().then(|| reason.clone());
    let is_taken = payload.answer(Err(reason));
    *(if is_taken { taken } else { cancelled }) += 1;
    if observers.any() {
        observers.left(*class, snapshot, now, heard.filter(|_| is_taken));
    }
}
