//! From a request to its answer: the caller's side, and the arbiter's.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::contain::contained;
use super::guard::ClassChoice;
use super::permit::Permit;
use super::shared::Shared;
use super::span::RequestSpan;
use crate::error::{Reason, Rejected};
use crate::request::{Request, Snapshot};
use crate::scheduler::RequestKey;
use crate::sync::Arc;
use crate::sync::ingress::Queued;
use crate::sync::ticket::{Answerer, Asker, Ticket, ticket};

/// What travels to the arbiter and, if the request is rejected, back.
#[derive(Debug)]
// In this order: the arbiter usually needs the snapshot alone, which is behind the answer.
#[repr(C)]
pub(super) struct Submission {
    /// Taken by the arbiter.
    snapshot: Option<Snapshot>,
    /// What the class guard made of the class that the request names.
    choice: ClassChoice,
    request: Request,
}

/// The class or family that counts for a request.
pub(super) fn asked<'a>(request: &'a Request, choice: &'a ClassChoice) -> Option<&'a str> {
    match choice {
        ClassChoice::AsAsked => request.class.as_deref(),
        ClassChoice::Instead(class) => Some(class),
        ClassChoice::Default => None,
    }
}

/// The answer of the arbiter.
pub(super) type Answer = Result<Permit, Reason>;

/// An item of the ingress queues.
pub(super) type Item = Ticket<Submission, Answer>;

/// One clone of an engine: what its admissions hold on to, so that threads with clones of their own share no counter
/// of owners.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
}

/// A request on its way to a permit: a future for any runtime, or [`wait`](Self::wait) for it on a thread.
///
/// Dropping it cancels the request, wherever it is; a permit that came at the same time is released.
#[derive(Debug)]
#[must_use = "dropping an admission cancels the request"]
pub struct Admission {
    state: State,
    span: RequestSpan,
}

#[derive(Debug)]
enum State {
    /// The arbiter has it, or will.
    Asked(Asker<Submission, Answer>, Arc<Handle>),
    /// It was answered at once.
    Answered(Result<Permit, Box<Rejected>>),
    /// Its answer was taken, or it was cancelled.
    Over,
}

impl Admission {
    /// Both sides of a request.
    pub(super) fn new(
        request: Request,
        choice: ClassChoice,
        snapshot: Snapshot,
        engine: Arc<Handle>,
    ) -> (Self, Queued<Item>) {
        let (asker, queued) = ticket(Submission { request, choice, snapshot: Some(snapshot) });
        (Self { state: State::Asked(asker, engine), span: RequestSpan::none() }, queued)
    }

    /// Of a request that was answered at once.
    pub(super) fn answered(answer: Result<Permit, Box<Rejected>>, span: RequestSpan) -> Self {
        Self { state: State::Answered(answer), span }
    }

    /// Lets `span` follow it.
    pub(super) fn follow(&mut self, span: RequestSpan) {
        self.span = span;
    }

    /// Blocks the calling thread until the request is dispatched or rejected.
    ///
    /// # Errors
    /// Why the request was not dispatched, and the request.
    pub fn wait(mut self) -> Result<Permit, Rejected> {
        match self.take() {
            State::Asked(asker, _) => {
                asker.wait_with(|answer, question| outcome(answer, question, &mut self.span))
            }
            State::Answered(answer) => at_once(answer, &mut self.span),
            State::Over => panic!("a future that was ready is used up"),
        }
    }

    fn take(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Over)
    }

    /// Gives the request up, like dropping it: its place in the queue, and what it counts against the limits of its
    /// class, is free as soon as the arbiter has heard of it.
    pub fn cancel(self) {}
}

impl Future for Admission {
    type Output = Result<Permit, Rejected>;

    /// # Panics
    /// If polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { state, span } = &mut *self;
        if let State::Asked(asker, _) = state {
            let ready = asker.poll_with(cx, |answer, question| outcome(answer, question, span));
            if ready.is_ready() {
                *state = State::Over;
            }
            return ready;
        }
        let State::Answered(answer) = self.take() else { panic!("polled after it was ready") };
        Poll::Ready(at_once(answer, &mut self.span))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let (asker, engine) = match self.take() {
            State::Asked(asker, engine) => (asker, engine),
            State::Answered(_) => return self.span.cancelled(),
            State::Over => return,
        };
        self.span.cancelled();
        let abandoned = asker.abandon();
        if let Some(abandoned) = abandoned {
            let shared = &engine.shared;
            // A closed queue belongs to an arbiter that has ended and answered everything.
            if shared.abandoned.push(abandoned.into_queued()).is_ok() {
                shared.notifier.notify();
            }
        }
    }
}

fn outcome(
    answer: Answer,
    question: &mut Option<Submission>,
    span: &mut RequestSpan,
) -> Result<Permit, Rejected> {
    span.answered(&answer);
    match answer {
        Ok(permit) => Ok(permit.within(std::mem::replace(span, RequestSpan::none()))),
        Err(reason) => {
            let Submission { request, .. } = question.take().expect("nobody else takes it");
            Err(Rejected { reason, request })
        }
    }
}

fn at_once(answer: Result<Permit, Box<Rejected>>, span: &mut RequestSpan) -> Result<Permit, Rejected> {
    match answer {
        Ok(permit) => outcome(Ok(permit), &mut None, span),
        Err(rejected) => {
            span.refused(&rejected.reason);
            Err(*rejected)
        }
    }
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

    /// What was frozen at arrival, if it was not taken.
    pub(super) fn peek_snapshot(&self) -> Option<&Snapshot> {
        self.0.as_ref()?.question().snapshot.as_ref()
    }

    /// The policy class or family that counts for the request.
    pub(super) fn class(&self) -> Option<&str> {
        let submission = self.0.as_ref()?.question();
        asked(&submission.request, &submission.choice)
    }

    /// Whether nobody wants the answer any more.
    pub(super) fn is_abandoned(&self) -> bool {
        self.0.as_ref().is_none_or(Answerer::is_abandoned)
    }

    /// Notes where the request waits.
    pub(super) fn waits_as(&self, key: RequestKey) {
        if let Some(answerer) = &self.0 {
            answerer.note(key.to_bits());
        }
    }

    /// Gives the answer; returns whether anybody took it. A permit that nobody takes is released here.
    pub(super) fn answer(mut self, answer: Answer) -> bool {
        self.give(answer)
    }

    fn give(&mut self, answer: Answer) -> bool {
        let Some(answerer) = self.0.take() else { return false };
        // Waking runs the caller's code, and a panic in it is the caller's: the answer itself is delivered then.
        contained(|| answerer.answer(answer).is_ok()).unwrap_or(true)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        let cause = crate::sync::panicking().then(|| "the arbiter panicked".into());
        self.give(Err(Reason::Closed { cause }));
    }
}

/// Where an abandoned request waits.
pub(super) fn waiting_place(item: &Item) -> Option<RequestKey> {
    item.noted().map(RequestKey::from_bits)
}

/// Takes a request that never got into its queue apart again.
pub(super) fn reject(admission: Admission, queued: Queued<Item>, reason: Reason) -> Rejected {
    Pending::new(queued).answer(Err(reason));
    match admission.wait() {
        Err(rejected) => rejected,
        Ok(_) => unreachable!("the answer was a rejection"),
    }
}
