//! Models of a request whose caller leaves while the arbiter moves it: by ingress queue, note, answer, and the queue
//! of abandoned requests.
//!
//! The arbiter is the main thread, and sleeps until the request has ended, so a lost wake-up leaves it asleep for ever.
//! Wherever the request was when its caller left, it ends in one way: it is passed over when it is taken in, it is
//! found by its note, its answer comes back, or its caller drops the answer.
//! Modelled: both queues, the ticket, the loads that a dropped answer gives back, and the sleep; loom looks for tickets
//! that nobody frees. Trusted: the scheduler, for which a single place stands in.

use crate::checker::sync::Arc;
use crate::checker::thread;
use tollgate::sync::dirty::DirtyBitmap;
use tollgate::sync::ingress::{ABANDONED, Consumer, Producer, abandoned_queue, queue};
use tollgate::sync::load::{EndpointLoad, Releases};
use tollgate::sync::sleep::{Notifier, Sleeper, sleep};
use tollgate::sync::ticket::{Answerer, Asker, Ticket, ticket};

use crate::model::{Seen, bound, check};

/// What the arbiter notes of the request.
const PLACE: u64 = 3;

/// A permit: what was booked is given back when it is dropped.
#[derive(Debug)]
struct Booking(Arc<EndpointLoad>);

impl Drop for Booking {
    fn drop(&mut self) {
        self.0.release(5, 1);
    }
}

type Item = Ticket<u32, Booking>;

/// The caller's ways to the arbiter.
#[derive(Clone)]
struct Caller {
    ingress: Producer<Item>,
    abandoned: Producer<Item, ABANDONED>,
    fresh: Arc<DirtyBitmap>,
    notifier: Notifier,
}

impl Caller {
    fn admit(&self) -> Asker<u32, Booking> {
        let (asker, queued) = ticket(1);
        self.ingress.push(queued).expect("open, and below capacity");
        self.fresh.mark(0);
        self.notifier.notify();
        asker
    }

    fn leave(&self, asker: Asker<u32, Booking>) {
        if let Some(abandoned) = asker.abandon() {
            // Closed by an arbiter that has seen the request end.
            if self.abandoned.push(abandoned.into_queued()).is_ok() {
                self.notifier.notify();
            }
        }
    }
}

struct Arbiter {
    ingress: Consumer<Item>,
    abandoned: Consumer<Item, ABANDONED>,
    fresh: Arc<DirtyBitmap>,
    released: Arc<DirtyBitmap>,
    load: Arc<EndpointLoad>,
    sleeper: Sleeper,
    /// The one request.
    waiting: Option<Answerer<u32, Booking>>,
}

fn both_sides() -> (Caller, Arbiter) {
    let (notifier, sleeper) = sleep();
    let (ingress, consumer) = queue(1);
    let (abandoned, left) = abandoned_queue();
    let bitmap = || Arc::new(DirtyBitmap::new());
    let (fresh, released) = (bitmap(), bitmap());
    let releases = Arc::new(Releases::new(notifier.clone()));
    let load = Arc::new(EndpointLoad::new(released.clone(), 0, releases));
    let caller = Caller { ingress, abandoned, fresh: fresh.clone(), notifier };
    let arbiter =
        Arbiter { ingress: consumer, abandoned: left, fresh, released, load, sleeper, waiting: None };
    (caller, arbiter)
}

impl Arbiter {
    /// Turns until the request has ended, and says how; it may be answered once it was in place for `turns` turns.
    fn run(mut self, turns: Option<u32>) -> &'static str {
        let mut left = turns;
        let ended = loop {
            if let Some(ended) = self.take_in().or_else(|| self.forget()) {
                break ended;
            }
            if self.waiting.is_some() && left == Some(0) {
                break self.dispatch();
            }
            if self.waiting.is_some() && left.is_some() {
                left = left.map(|turns| turns - 1);
                continue;
            }
            let Self { sleeper, fresh, abandoned, .. } = &mut self;
            sleeper.sleep(None, || fresh.any() || !abandoned.is_empty());
        };
        // What it has booked comes back, by whoever drops the permit.
        while self.load.booked() != (0, 0) {
            let (released, load) = (&self.released, &self.load);
            let mut booked = (5, 1);
            released.sweep(|_| booked = load.booked());
            if booked == (0, 0) {
                break;
            }
            self.sleeper.sleep(None, || released.any());
        }
        ended
    }

    fn take_in(&mut self) -> Option<&'static str> {
        let Self { ingress, fresh, waiting, .. } = self;
        let mut ended = None;
        fresh.sweep(|_| {
            ingress.drain(usize::MAX, |item| {
                let answerer = Answerer::new(item);
                if answerer.is_abandoned() {
                    ended = Some("passed over");
                } else {
                    answerer.note(PLACE);
                    *waiting = Some(answerer);
                }
            });
        });
        ended
    }

    fn forget(&mut self) -> Option<&'static str> {
        let Self { abandoned, waiting, .. } = self;
        let mut ended = None;
        abandoned.drain(usize::MAX, |item| {
            // Without a note it has not been taken in yet, and will be passed over.
            let Some(place) = item.noted() else { return };
            assert_eq!(place, PLACE);
            assert!(waiting.take().expect("it has not ended yet").is_abandoned());
            ended = Some("found");
        });
        ended
    }

    fn dispatch(&mut self) -> &'static str {
        self.load.book(5);
        let booking = Booking(self.load.clone());
        match self.waiting.take().expect("it waits").answer(booking) {
            Ok(()) => "answered",
            Err(back) => {
                drop(back);
                "bounced"
            }
        }
    }
}

#[test]
fn leaving_a_request_that_cannot_go() {
    let seen = Seen::default();
    let note = seen.clone();
    check("abandoned: leaving a request that cannot go", bound::ABANDONED, move || {
        let (caller, arbiter) = both_sides();
        let asker = caller.admit();
        thread::spawn(move || caller.leave(asker));
        note.note(arbiter.run(None));
    });
    seen.assert(&["found", "passed over"]);
}

#[test]
fn leaving_a_request_that_goes_at_once() {
    let seen = Seen::default();
    let note = seen.clone();
    check("abandoned: leaving a request that goes at once", bound::ABANDONED, move || {
        let (caller, arbiter) = both_sides();
        let asker = caller.admit();
        thread::spawn(move || caller.leave(asker));
        note.note(arbiter.run(Some(0)));
    });
    seen.assert(&["answered", "bounced", "found", "passed over"]);
}

#[test]
fn leaving_a_request_that_goes_a_turn_later() {
    let seen = Seen::default();
    let note = seen.clone();
    check("abandoned: leaving a request that goes a turn later", bound::ABANDONED, move || {
        let (caller, arbiter) = both_sides();
        let asker = caller.admit();
        thread::spawn(move || caller.leave(asker));
        note.note(arbiter.run(Some(1)));
    });
    seen.assert(&["answered", "bounced", "found", "passed over"]);
}

#[test]
fn admitting_and_leaving() {
    let seen = Seen::default();
    let note = seen.clone();
    check("abandoned: admitting and leaving", bound::ABANDONED_WHOLE, move || {
        let (caller, arbiter) = both_sides();
        thread::spawn(move || caller.leave(caller.admit()));
        note.note(arbiter.run(None));
    });
    seen.assert(&["found", "passed over"]);
}
