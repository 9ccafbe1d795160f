//! A ticket: one question, one answer, and whoever waits for it.
//!
//! A ticket has two halves. The [`Asker`] is with the caller, the [`Answerer`] goes through the ingress queue to the
//! arbiter. Each half does one irrevocable thing, as a read-modify-write of the same word, so that one of them is
//! first: the answerer sets `DONE`, the asker sets `GONE` when it is dropped.
//!
//! | state | `question` | `answer` | `waker` |
//! |---|---|---|---|
//! | neither | answerer | answerer | asker writes, while `WAKER` is clear |
//! | `DONE` first | asker | asker | answerer reads it, if it found `WAKER` set |
//! | `GONE` first | answerer | answerer | nobody |
//!
//! So an answer reaches the asker, or is dropped by it, or comes back to the answerer: exactly one of these.

use std::task::{Context, Poll, Waker};

use super::ingress::{ABANDONED, Queued};
use super::{AtomicU8, AtomicU64, Ordering, Step, UnsafeCell, park, point, spin_loop, spins, thread_waker};

/// The answer is in its cell.
const DONE: u8 = 1;
/// The asker was dropped.
const GONE: u8 = 2;
/// A waker is in its cell.
const WAKER: u8 = 4;

const NO_NOTE: u64 = u64::MAX;

/// Looks at the answer before a blocking wait parks. Guessed: an idle arbiter on another core answers within this.
const SPINS: u32 = 100;

/// What both halves share.
#[derive(Debug)]
// In this order: what the answerer touches comes first, so that few lines go from one thread to the other.
#[repr(C)]
pub struct Ticket<Q, A> {
    state: AtomicU8,
    /// The answerer's own note; nobody else writes it.
    note: AtomicU64,
    waker: UnsafeCell<Option<Waker>>,
    answer: UnsafeCell<Option<A>>,
    question: UnsafeCell<Option<Q>>,
}

// SAFETY: the table above says which half may touch which cell in which state, and the transitions order it.
unsafe impl<Q: Send + Sync, A: Send> Sync for Ticket<Q, A> {}
// SAFETY: a ticket owns what is in its cells.
unsafe impl<Q: Send, A: Send> Send for Ticket<Q, A> {}

/// Both halves of a new ticket, in one allocation. The answerer's half can be [`Queued`].
pub fn ticket<Q: Send + Sync, A: Send>(question: Q) -> (Asker<Q, A>, Queued<Ticket<Q, A>>) {
    ticket_with(|| question)
}

/// The same with a question that is made in its place.
#[inline(always)]
pub fn ticket_with<Q: Send + Sync, A: Send>(
    question: impl FnOnce() -> Q,
) -> (Asker<Q, A>, Queued<Ticket<Q, A>>) {
    let (queued, node) = Queued::with_both_links(|| Ticket {
        state: AtomicU8::new(0),
        note: AtomicU64::new(NO_NOTE),
        question: UnsafeCell::new(Some(question())),
        answer: UnsafeCell::new(None),
        waker: UnsafeCell::new(None),
    });
    (Asker { node: Some(node) }, queued)
}

/// The half that waits for the answer.
#[derive(Debug)]
pub struct Asker<Q, A> {
    /// Until the answer is taken.
    node: Option<Queued<Ticket<Q, A>, ABANDONED>>,
}

/// A ticket whose asker has left before the answer, for the answerer to forget about it.
#[derive(Debug)]
pub struct Abandoned<Q, A>(Queued<Ticket<Q, A>, ABANDONED>);

/// The half that gives the answer, once.
///
/// ```compile_fail
/// # use tollgate::sync::ticket::{Answerer, ticket};
/// let (_asker, queued) = ticket::<(), u32>(());
/// let answerer = Answerer::new(queued);
/// let _ = answerer.answer(1);
/// let _ = answerer.answer(2); // used after it was moved
/// ```
#[derive(Debug)]
pub struct Answerer<Q, A>(Queued<Ticket<Q, A>>);

impl<Q, A> Asker<Q, A> {
    /// The answer and the question, once the answer is there; until then `cx` is woken when it comes.
    ///
    /// # Panics
    /// If the answer was taken before.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(A, Q)> {
        self.poll_with(cx, both)
    }

    /// The same with what `f` makes of the answer and of the question in its place.
    ///
    /// # Panics
    /// If the answer was taken before.
    pub fn poll_with<R>(&mut self, cx: &mut Context<'_>, f: impl FnOnce(A, &mut Option<Q>) -> R) -> Poll<R> {
        let ticket: &Ticket<Q, A> = self.node.as_ref().expect("not polled after the answer was taken");
        // Acquire: with DONE, the answer that `give` released.
        let mut state = ticket.state.load(Ordering::Acquire);
        if state & (DONE | WAKER) == WAKER {
            // SAFETY: this half alone writes the cell, and the answerer only reads it.
            if ticket.waker.with(|w| unsafe { (*w).as_ref() }.is_some_and(|w| w.will_wake(cx.waker()))) {
                return Poll::Pending;
            }
            // Acquire: with DONE, the answer that `give` released. Without it the answerer comes later, finds
            // WAKER clear and leaves the cell alone.
            state = ticket.state.fetch_and(!WAKER, Ordering::Acquire);
        }
        if state & DONE == 0 {
            // SAFETY: WAKER is clear and only this half sets it, so the answerer does not look into the cell.
            ticket.waker.with_mut(|w| unsafe { *w = Some(cx.waker().clone()) });
            point(Step::WakerWritten);
            // Release: the waker becomes visible to `give`. Acquire: with DONE, the answer that it released.
            state = ticket.state.fetch_or(WAKER, Ordering::AcqRel);
        }
        if state & DONE == 0 {
            return Poll::Pending;
        }
        Poll::Ready(self.take_with(f))
    }

    /// Blocks the calling thread until the answer is there.
    pub fn wait(mut self) -> (A, Q) {
        self.wait_with(both)
    }

    /// The same with what `f` makes of the answer and of the question in its place.
    ///
    /// # Panics
    /// If the answer was taken before.
    pub fn wait_with<R>(&mut self, f: impl FnOnce(A, &mut Option<Q>) -> R) -> R {
        for _ in 0..spins(SPINS) {
            if self.is_done() {
                return self.take_with(f);
            }
            spin_loop();
        }
        let waker = thread_waker();
        let mut cx = Context::from_waker(&waker);
        let mut f = Some(f);
        let mut once = |answer, question: &mut _| f.take().expect("called once")(answer, question);
        loop {
            if let Poll::Ready(made) = self.poll_with(&mut cx, &mut once) {
                return made;
            }
            park();
        }
    }

    /// The answer and the question, if the answer is there.
    ///
    /// # Panics
    /// If the answer was taken before.
    pub fn try_take(&mut self) -> Option<(A, Q)> {
        self.is_done().then(|| self.take_with(both))
    }

    /// Whether it has the answer, or has left.
    pub(crate) fn is_over(&self) -> bool {
        self.node.is_none()
    }

    fn is_done(&self) -> bool {
        let ticket = self.node.as_ref().expect("not asked again after the answer was taken");
        // Acquire: with DONE, the answer that `give` released.
        ticket.state.load(Ordering::Acquire) & DONE != 0
    }

    /// Leaves. An answer that is there already is dropped; if there is none, nobody will get one, and what comes back
    /// is for the answerer.
    pub fn abandon(mut self) -> Option<Abandoned<Q, A>> {
        self.leave()
    }

    /// The same, once; nothing of an asker that has its answer.
    pub(crate) fn leave(&mut self) -> Option<Abandoned<Q, A>> {
        // Acquire: with DONE, the answer that `give` released. Nothing is published to the answerer.
        let before = self.node.as_ref()?.state.fetch_or(GONE, Ordering::Acquire);
        point(Step::Gone);
        if before & DONE != 0 {
            drop(self.take_with(|answer, _| answer));
            return None;
        }
        self.node.take().map(Abandoned)
    }

    /// Takes the answer, and the question if `f` does. The caller has seen DONE, with Acquire.
    fn take_with<R>(&mut self, f: impl FnOnce(A, &mut Option<Q>) -> R) -> R {
        let ticket = self.node.take().expect("the answer is taken once");
        // SAFETY: after DONE the answer is this half's alone, and the node lets it be taken once.
        let answer = ticket.answer.with_mut(|a| take_whole(unsafe { &mut *a }));
        // SAFETY: as above; the answerer gave up the question with DONE.
        ticket.question.with_mut(|q| f(answer, unsafe { &mut *q }))
    }
}

/// Takes the value out of `place` in one piece. What [`Option::take`] returns is looked at, which has the compiler take it
/// apart, and pieces of another size do not forward to the loads behind them.
///
/// # Panics
/// If there is none.
#[inline(always)]
pub(crate) fn take_whole<T>(place: &mut Option<T>) -> T {
    let value = std::ptr::from_mut(place.as_mut().expect("it was not taken before"));
    // SAFETY: the value is there, and its place forgets it before anybody else looks.
    let value = unsafe { value.read() };
    // SAFETY: the place is borrowed. Written over, not taken from: that would move the value a second time, which is not
    // this place's any more.
    unsafe { std::ptr::from_mut(place).write(None) };
    value
}

/// An answer and its question.
fn both<Q, A>(answer: A, question: &mut Option<Q>) -> (A, Q) {
    (answer, question.take().expect("only the asker takes the question"))
}

impl<Q, A> Drop for Asker<Q, A> {
    fn drop(&mut self) {
        if !self.is_over() {
            drop(self.leave());
        }
    }
}

impl<Q, A> Abandoned<Q, A> {
    /// The right to put the ticket into the queue of abandoned ones.
    pub fn into_queued(self) -> Queued<Ticket<Q, A>, ABANDONED> {
        self.0
    }
}

impl<Q, A> Ticket<Q, A> {
    /// What the answerer has [noted](Answerer::note).
    pub fn noted(&self) -> Option<u64> {
        // Relaxed: read by the thread that wrote it.
        Some(self.note.load(Ordering::Relaxed)).filter(|&note| note != NO_NOTE)
    }
}

impl<Q, A> Answerer<Q, A> {
    /// The half for a ticket that came out of a queue.
    pub fn new(queued: Queued<Ticket<Q, A>>) -> Self {
        Self(queued)
    }

    /// The right to queue the ticket, back.
    pub fn into_queued(self) -> Queued<Ticket<Q, A>> {
        self.0
    }

    /// The question.
    pub fn question(&self) -> &Q {
        // SAFETY: before DONE, which only this half sets by giving itself up, nobody writes the question.
        self.0.question.with(|q| unsafe { (*q).as_ref() }).expect("the question stays until the answer")
    }

    /// The question, to take out what the asker does not need back.
    pub fn question_mut(&mut self) -> &mut Q {
        // SAFETY: as for `question`; this half is borrowed mutably, so nobody else looks either.
        self.0.question.with_mut(|q| unsafe { (*q).as_mut() }).expect("the question stays until the answer")
    }

    /// Notes a number, for when the ticket comes back abandoned.
    ///
    /// # Panics
    /// If it is `u64::MAX`, which stands for no note.
    pub fn note(&self, note: u64) {
        assert_ne!(note, NO_NOTE);
        // Relaxed: read by the thread that writes it.
        self.0.note.store(note, Ordering::Relaxed);
    }

    /// Whether the asker was dropped, so that no answer is wanted.
    pub fn is_abandoned(&self) -> bool {
        // Relaxed: a hint; `give` decides.
        self.0.state.load(Ordering::Relaxed) & GONE != 0
    }

    /// Gives the answer and wakes the asker.
    ///
    /// # Errors
    /// The asker was dropped before: the answer comes back.
    pub fn answer(self, answer: A) -> Result<(), A> {
        self.write(answer).give()
    }

    /// Writes the answer into its place, to be given.
    #[inline(always)]
    pub fn write(self, answer: A) -> Written<Q, A> {
        // SAFETY: before DONE the answer is this half's alone. There was none: writing one takes this half away.
        self.0.answer.with_mut(|a| unsafe { a.write(Some(answer)) });
        point(Step::AnswerWritten);
        Written(self.0)
    }
}

/// The half that gives the answer, with the answer in its place.
#[derive(Debug)]
#[must_use = "the asker does not know of it yet"]
pub struct Written<Q, A>(Queued<Ticket<Q, A>>);

impl<Q, A> Written<Q, A> {
    /// Gives the answer and wakes the asker.
    ///
    /// # Errors
    /// The asker was dropped before: the answer comes back.
    pub fn give(self) -> Result<(), A> {
        let ticket = &*self.0;
        // Release: the answer becomes visible to the asker. Acquire: with WAKER, the waker that `poll` released.
        let before = ticket.state.fetch_or(DONE, Ordering::AcqRel);
        point(Step::Answered);
        if before & GONE != 0 {
            // SAFETY: the asker was gone before DONE and looks at nothing any more.
            let back = ticket.answer.with_mut(|a| unsafe { (*a).take() });
            return Err(back.expect("nobody else takes it"));
        }
        if before & WAKER != 0 {
            ticket.waker.with(|w| {
                // SAFETY: the asker writes the cell only while WAKER is clear, which after DONE it never is again.
                unsafe { (*w).as_ref() }.expect("WAKER comes after the waker").wake_by_ref();
            });
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn counting() -> (std::sync::Arc<Count>, Waker) {
        let count = std::sync::Arc::new(Count::default());
        (count.clone(), Waker::from(count))
    }

    #[test]
    fn the_last_registered_waker_is_woken_once() {
        let (mut asker, queued) = ticket::<&str, u32>("q");
        let ((first, first_waker), (last, last_waker)) = (counting(), counting());
        assert!(asker.poll(&mut Context::from_waker(&first_waker)).is_pending());
        assert!(asker.poll(&mut Context::from_waker(&last_waker)).is_pending());
        let answerer = Answerer::new(queued);
        assert_eq!(*answerer.question(), "q");
        answerer.answer(7).unwrap();
        assert_eq!((first.0.load(Ordering::Relaxed), last.0.load(Ordering::Relaxed)), (0, 1));
        assert_eq!(asker.poll(&mut Context::from_waker(&last_waker)), Poll::Ready((7, "q")));
    }

    #[test]
    fn an_answer_to_nobody_comes_back_and_an_unread_one_is_dropped() {
        let (asker, queued) = ticket::<(), DataArc<()>>(());
        let value = DataArc::new(());
        drop(asker);
        let answerer = Answerer::new(queued);
        assert!(answerer.is_abandoned());
        assert!(answerer.answer(value.clone()).is_err());

        let (asker, queued) = ticket::<(), DataArc<()>>(());
        Answerer::new(queued).answer(value.clone()).unwrap();
        drop(asker);
        assert_eq!(DataArc::strong_count(&value), 1);
    }

    use super::super::DataArc;
}
