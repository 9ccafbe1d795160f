//! Models of `sync::ticket`: the answer against everything that its asker may do at the same time.
//!
//! Modelled: the state word, and the cells of question, answer and waker, each of them loom's: a half that touches a
//! cell out of its turn is a race that loom reports. The answer is a guard that releases what it has booked.
//! Trusted: wakers, which here only count, except in `wait`, where loom's own one unparks.

use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use crate::checker::sync::Arc;
use crate::checker::thread::{self, ThreadId};
use tollgate::sync::DataArc;
use tollgate::sync::dirty::DirtyBitmap;
use tollgate::sync::load::{EndpointLoad, Releases};
use tollgate::sync::sleep::sleep;
use tollgate::sync::ticket::{Answerer, Asker, ticket};

use crate::model::{bound, check};

/// The threads that released a booking, recorded outside of loom, so that the record orders nothing.
type Releasers = DataArc<Mutex<Vec<ThreadId>>>;

/// What a permit does when it is dropped.
struct Booking {
    load: Arc<EndpointLoad>,
    releasers: Releasers,
}

impl Drop for Booking {
    fn drop(&mut self) {
        self.releasers.lock().unwrap().push(thread::current().id());
        self.load.release(5, 1);
    }
}

/// An endpoint and who has released its bookings.
#[derive(Clone)]
struct Endpoint {
    load: Arc<EndpointLoad>,
    releasers: Releasers,
}

impl Endpoint {
    fn new() -> Self {
        let (notifier, _) = sleep();
        let dirty = Arc::new(DirtyBitmap::new());
        let load = Arc::new(EndpointLoad::new(dirty, 0, Arc::new(Releases::new(notifier))));
        Self { load, releasers: DataArc::default() }
    }

    /// Books, then answers with what releases it. Returns whether the answer was accepted; else it is released here.
    fn dispatch(&self, answerer: Answerer<u32, Booking>) -> bool {
        assert_eq!(*answerer.question(), 1);
        self.load.book(5);
        let booking = Booking { load: self.load.clone(), releasers: self.releasers.clone() };
        answerer.answer(booking).is_ok()
    }
}

/// A waker that counts, outside of loom.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: DataArc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Woken {
    fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

fn poll<A>(asker: &mut Asker<u32, A>, woken: &DataArc<Woken>) -> Poll<(A, u32)> {
    asker.poll(&mut Context::from_waker(&Waker::from(woken.clone())))
}

/// The answer comes while `ask` does what it likes with the asker. In the end the booking is released, once, by the
/// asker's thread if the answer was accepted and by the arbiter's if it came back.
fn answer_against(ask: impl FnOnce(Asker<u32, Booking>)) {
    let endpoint = Endpoint::new();
    let (asker, queued) = ticket(1);
    let arbiter = {
        let endpoint = endpoint.clone();
        thread::spawn(move || endpoint.dispatch(Answerer::new(queued)))
    };
    let arbiter_id = arbiter.thread().id();
    ask(asker);
    let accepted = arbiter.join().unwrap();
    let releaser = if accepted { thread::current().id() } else { arbiter_id };
    assert_eq!(*endpoint.releasers.lock().unwrap(), [releaser]);
    assert_eq!(endpoint.load.booked(), (0, 0));
}

#[test]
fn answer_against_drop_of_an_asker_that_never_polled() {
    check("ticket: answer against drop, never polled", bound::NONE, || answer_against(drop));
}

#[test]
fn answer_against_drop_of_an_asker_that_waits() {
    check("ticket: answer against drop after a poll", bound::NONE, || {
        answer_against(|mut asker| {
            let _ = poll(&mut asker, &DataArc::default());
        });
    });
}

#[test]
fn answer_against_try_take_then_drop() {
    check("ticket: answer against a look, then drop", bound::NONE, || {
        answer_against(|mut asker| {
            if let Some((booking, question)) = asker.try_take() {
                assert_eq!(question, 1);
                drop(booking);
            }
        });
    });
}

#[test]
fn answer_against_wait() {
    check("ticket: answer against wait", bound::NONE, || {
        answer_against(|mut asker| {
            let (booking, question) = crate::checker::future::block_on(poll_fn(|cx| asker.poll(cx)));
            assert_eq!(question, 1);
            drop(booking);
        });
    });
}

/// Polls with each of `wakers` in turn while the answer comes: whoever polled last is woken, or has the answer.
fn answer_against_polls(wakers: &[&DataArc<Woken>]) {
    let (mut asker, queued) = ticket(1);
    let arbiter = thread::spawn(move || Answerer::new(queued).answer(2).expect("the asker is there"));
    let answer = wakers.iter().find_map(|woken| match poll(&mut asker, woken) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    });
    arbiter.join().unwrap();
    let answer = answer.unwrap_or_else(|| {
        assert_eq!(wakers.last().expect("there is a waker").count(), 1);
        asker.try_take().expect("the waker says so")
    });
    assert_eq!(answer, (2, 1));
}

#[test]
fn answer_against_a_new_waker() {
    check("ticket: answer against a new waker", bound::NONE, || {
        let (first, last) = (DataArc::default(), DataArc::default());
        answer_against_polls(&[&first, &last]);
        assert!(first.count() + last.count() <= 1);
    });
}

#[test]
fn answer_against_the_same_waker_again() {
    check("ticket: answer against the same waker again", bound::NONE, || {
        let woken = DataArc::default();
        answer_against_polls(&[&woken, &woken]);
        assert!(woken.count() <= 1);
    });
}
