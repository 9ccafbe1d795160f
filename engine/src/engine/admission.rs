//! From a request to its answer: the caller's side, and the arbiter's.

use std::future::Future;
use std::mem::{forget, replace};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::contain::contained;
use super::guard::ClassChoice;
use super::permit::Permit;
use super::shared::{Entry, Shared};
use super::span::RequestSpan;
use crate::error::{Reason, Rejected};
use crate::request::{Request, Snapshot};
use crate::scheduler::RequestKey;
use crate::sync::Arc;
use crate::sync::ingress::Queued;
use crate::sync::ticket::{Answerer, Asker, Ticket, take_whole};

/// What travels to the arbiter and, if the request is rejected, back.
#[derive(Debug)]
// In this order: the arbiter usually needs the snapshot alone, which is behind the answer.
#[repr(C)]
pub(super) struct Submission {
    /// Taken by the arbiter.
    snapshot: Option<Snapshot>,
    /// What the class guard made of the class that the request names.
    choice: ClassChoice,
    request: Option<Request>,
}

impl Submission {
    /// Of nothing yet, to be filled in its place.
    pub(super) fn blank() -> Self {
        Self { snapshot: None, choice: ClassChoice::AsAsked, request: None }
    }

    /// Fills a blank one.
    // Inlined: else the caller copies what it hands over. Forgotten: what a blank one has needs no drop.
    #[inline(always)]
    pub(super) fn fill(&mut self, request: Request, Entry { snapshot, choice }: Entry) {
        debug_assert!(self.snapshot.is_none() && self.request.is_none(), "what was there would leak");
        forget(self.snapshot.replace(snapshot));
        forget(replace(&mut self.choice, choice));
        forget(self.request.replace(request));
    }

    /// The request.
    pub(super) fn request(&self) -> &Request {
        self.request.as_ref().expect("it was filled in")
    }

    /// The request back.
    fn into_request(self) -> Request {
        self.request.expect("it was filled in")
    }

    /// What was frozen at arrival, if it was not taken.
    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_ref()
    }

    /// The policy class or family that counts for the request.
    pub(super) fn class(&self) -> Option<&str> {
        asked(self.request(), &self.choice)
    }

    /// Whether that is not the one that it names.
    pub(super) fn is_clamped(&self) -> bool {
        self.choice.is_clamped()
    }

    /// Sets what is frozen anew.
    pub(super) fn renew(&mut self, Entry { snapshot, choice }: Entry) {
        (self.snapshot, self.choice) = (Some(snapshot), choice);
    }
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

/// A request with its ticket, which is in no queue.
pub(super) type Outside = Answerer<Submission, Answer>;

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
    Asked(Asked),
    /// It was answered at once.
    Answered(Result<Permit, Box<Rejected>>),
    /// That answer was taken.
    Over,
}

/// The caller's side of a request that the arbiter has, or will have. Dropped before the answer, it tells the arbiter.
#[derive(Debug)]
pub(super) struct Asked {
    asker: Asker<Submission, Answer>,
    engine: Arc<Handle>,
}

impl Asked {
    pub(super) fn new(asker: Asker<Submission, Answer>, engine: Arc<Handle>) -> Self {
        Self { asker, engine }
    }

    fn abandon(&mut self) {
        if let Some(abandoned) = self.asker.leave() {
            let shared = &self.engine.shared;
            // A closed queue belongs to an arbiter that has ended and answered everything.
            if shared.abandoned.push(abandoned.into_queued()).is_ok() {
                shared.notifier.notify();
            }
        }
    }

    /// Takes a request that got into no queue out of its ticket again.
    #[cold]
    pub(super) fn reject(mut self, outside: Outside, reason: Reason) -> Rejected {
        give(outside, Err(reason));
        let (answer, submission) = self.asker.try_take().expect("it was just given");
        Rejected { reason: answer.expect_err("it was a rejection"), request: submission.into_request() }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.asker.is_over() {
            self.abandon();
        }
    }
}

impl Admission {
    pub(super) fn asked(asked: Asked, span: RequestSpan) -> Self {
        Self { state: State::Asked(asked), span }
    }

    /// Of a request that was answered at once.
    pub(super) fn answered(answer: Result<Permit, Box<Rejected>>, span: RequestSpan) -> Self {
        Self { state: State::Answered(answer), span }
    }

    /// Blocks the calling thread until the request is dispatched or rejected.
    ///
    /// # Errors
    /// Why the request was not dispatched, and the request.
    pub fn wait(mut self) -> Result<Permit, Rejected> {
        let Self { state, span } = &mut self;
        if let State::Asked(Asked { asker, .. }) = state {
            return asker.wait_with(|answer, question| outcome(answer, question, span));
        }
        let State::Answered(answer) = self.take() else { panic!("a future that was ready is used up") };
        at_once(answer, &mut self.span)
    }

    fn take(&mut self) -> State {
        replace(&mut self.state, State::Over)
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
        if let State::Asked(Asked { asker, .. }) = state {
            return asker.poll_with(cx, |answer, question| outcome(answer, question, span));
        }
        let State::Answered(answer) = self.take() else { panic!("polled after it was ready") };
        Poll::Ready(at_once(answer, &mut self.span))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let is_over = match &self.state {
            State::Asked(Asked { asker, .. }) => asker.is_over(),
            State::Answered(_) => false,
            State::Over => true,
        };
        if !is_over {
            self.span.cancelled();
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
        Ok(permit) => Ok(permit.within(replace(span, RequestSpan::none()))),
        Err(reason) => {
            let request = question.take().expect("nobody else takes it").into_request();
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

    /// What was frozen at arrival, to be taken once.
    ///
    /// # Panics
    /// If it was taken before, or the answer was given.
    #[inline(always)]
    pub(super) fn take_snapshot(&mut self) -> Snapshot {
        take_whole(&mut self.0.as_mut().expect("nobody has answered it yet").question_mut().snapshot)
    }

    /// What was frozen at arrival, if it was not taken.
    pub(super) fn peek_snapshot(&self) -> Option<&Snapshot> {
        self.0.as_ref()?.question().snapshot()
    }

    /// The policy class or family that counts for the request.
    pub(super) fn class(&self) -> Option<&str> {
        self.0.as_ref()?.question().class()
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
    // Inlined, as `give`.
    #[inline(always)]
    pub(super) fn answer(&mut self, answer: Answer) -> bool {
        self.0.take().is_some_and(|answerer| give(answerer, answer))
    }

    #[cold]
    fn close(&mut self) {
        let cause = crate::sync::panicking().then(|| "the arbiter panicked".into());
        self.answer(Err(Reason::Closed { cause }));
    }
}

// Inlined: a permit is put together in its place then.
#[inline(always)]
fn give(answerer: Answerer<Submission, Answer>, answer: Answer) -> bool {
    let written = answerer.write(answer);
    // Waking runs the caller's code, and a panic in it is the caller's: the answer itself is delivered then.
    contained(|| written.give().is_ok()).unwrap_or(true)
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.close();
        }
    }
}

/// Where an abandoned request waits.
pub(super) fn waiting_place(item: &Item) -> Option<RequestKey> {
    item.noted().map(RequestKey::from_bits)
}
