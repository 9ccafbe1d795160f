//! From a request to its answer: the caller's side, and the arbiter's.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::permit::Permit;
use crate::error::{Reason, Rejected};
use crate::request::{Request, Snapshot};
use crate::sync::ingress::Queued;
use crate::sync::ticket::{Answerer, Asker, Ticket, ticket};

/// What travels to the arbiter and, if the request is rejected, back.
#[derive(Debug)]
pub(super) struct Submission {
    request: Request,
    /// Taken by the arbiter.
    snapshot: Option<Snapshot>,
}

type Answer = Result<Permit, Reason>;

/// An item of the ingress queues.
pub(super) type Item = Ticket<Submission, Answer>;

/// A request on its way to a permit: a future for any runtime, or [`wait`](Self::wait) for it on a thread.
///
/// Dropping it gives the request up; a permit that came at the same time is released.
#[derive(Debug)]
#[must_use = "dropping an admission gives the request up"]
pub struct Admission(Asker<Submission, Answer>);

impl Admission {
    /// Both sides of a request.
    pub(super) fn new(request: Request, snapshot: Snapshot) -> (Self, Queued<Item>) {
        let (asker, queued) = ticket(Submission { request, snapshot: Some(snapshot) });
        (Self(asker), queued)
    }

    /// Blocks the calling thread until the request is dispatched or rejected.
    ///
    /// # Errors
    /// Why the request was not dispatched, and the request.
    pub fn wait(self) -> Result<Permit, Rejected> {
        outcome(self.0.wait())
    }
}

impl Future for Admission {
    type Output = Result<Permit, Rejected>;

    /// # Panics
    /// If polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx).map(outcome)
    }
}

fn outcome((answer, Submission { request, .. }): (Answer, Submission)) -> Result<Permit, Rejected> {
    answer.map_err(|reason| Rejected { reason, request })
}

/// The arbiter's side of a request. Dropped without an answer, it says that the engine is closed: nobody waits for
/// ever.
#[derive(Debug)]
pub(super) struct Pending(Option<Answerer<Submission, Answer>>);

impl Pending {
    pub(super) fn new(queued: Queued<Item>) -> Self {
        Self(Some(Answerer::new(queued)))
    }

    /// What was frozen at arrival; can be taken once.
    pub(super) fn take_snapshot(&mut self) -> Option<Snapshot> {
        self.0.as_mut()?.question_mut().snapshot.take()
    }

    /// Whether nobody wants the answer any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.as_ref().is_none_or(Answerer::is_abandoned)
    }

    /// Gives the answer. A permit that nobody takes is released here.
    pub(super) fn answer(mut self, answer: Answer) {
        self.give(answer);
    }

    fn give(&mut self, answer: Answer) {
        if let Some(answerer) = self.0.take() {
            // Waking runs the caller's code, and a panic in it is the caller's: the answer itself is delivered.
            drop(catch_unwind(AssertUnwindSafe(|| drop(answerer.answer(answer)))));
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let cause = crate::sync::panicking().then(|| "the arbiter panicked".into());
        self.give(Err(Reason::Closed { cause }));
    }
}

/// Rejects a request that never got into its queue.
pub(super) fn reject(admission: Admission, queued: Queued<Item>, reason: Reason) -> Rejected {
    Pending::new(queued).answer(Err(reason));
    match admission.wait() {
        Err(rejected) => rejected,
        Ok(_) => unreachable!("the answer was a rejection"),
    }
}
