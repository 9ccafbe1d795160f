//! Models of `sync::lend`: a sleeper that lends its work, against notifiers that do it.
//!
//! Each model's main thread is the arbiter and lends until all is done, so work that nobody does leaves it asleep for
//! ever, and loom reports that every thread waits. Loom also reports two owners at one desk, since each is in the cell
//! that names it for as long as it works, and an owner that does not see what the last one has done.
//! Modelled: a desk with a queue and a load behind bitmaps, as the engine uses it; who hands it over, and when.
//! Trusted: `park` and `unpark`. A sleep with a time limit is one without; a thread that unparks for nothing stands for
//! the limit.

use crate::checker::sync::Arc;
use crate::checker::thread;
use tollgate::Timestamp;
use tollgate::sync::dirty::DirtyBitmap;
use tollgate::sync::ingress::{Consumer, Producer, Queued, queue};
use tollgate::sync::lend::{Desk, Look};
use tollgate::sync::load::{EndpointLoad, Releases};
use tollgate::sync::sleep::{Notifier, Sleeper, lending_sleep};

use crate::model::{Seen, bound, check};

const SLEEPER: &str = "by the sleeper";
const NOTIFIER: &str = "by a notifier";
const VISITOR: &str = "by a visitor";

/// What a caller needs.
#[derive(Clone)]
struct Caller {
    producer: Producer<u32>,
    fresh: Arc<DirtyBitmap>,
    notifier: Notifier,
}

impl Caller {
    /// Admits some requests at once.
    fn admit(&self, requests: usize) {
        for _ in 0..requests {
            self.producer.push(Queued::new(7)).expect("open, and below capacity");
        }
        self.fresh.mark(0);
        self.notifier.notify();
    }

    /// Lets a request go at once, or admits it.
    fn visit(&self) {
        let mut served = false;
        self.notifier.visit(|desk: &mut Requests| {
            served = desk.serve_at_once();
            // The sleeper ends the model.
            desk.left > 0
        });
        if !served {
            self.admit(1);
        }
    }
}

/// Requests come in, wait, and go while there is room.
struct Requests {
    consumer: Consumer<u32>,
    fresh: Arc<DirtyBitmap>,
    released: Arc<DirtyBitmap>,
    load: Arc<EndpointLoad>,
    has_room: bool,
    /// Most requests that one turn takes in.
    most: usize,
    more: bool,
    waiting: usize,
    /// Requests that have to go.
    left: usize,
    seen: Seen,
}

impl Requests {
    fn turn(&mut self, by: &'static str) {
        let Self { consumer, fresh, released, load, has_room, most, more, waiting, left, .. } = self;
        released.sweep(|_| *has_room = load.booked() == (0, 0));
        fresh.sweep(|_| *more = true);
        if *more {
            let taken = consumer.drain(*most, drop);
            *waiting += taken;
            *more = taken == *most;
        }
        if *has_room && *waiting > 0 {
            *left -= std::mem::take(waiting);
            self.seen.note(by);
        }
    }
}

impl Requests {
    /// Lets one more go that is in no queue, if there is room and nobody came before.
    fn serve_at_once(&mut self) -> bool {
        let Self { fresh, released, load, has_room, more, waiting, left, .. } = self;
        assert_eq!(*waiting, 0, "overtaken");
        if *more || fresh.any() {
            return false;
        }
        released.sweep(|_| *has_room = load.booked() == (0, 0));
        if *has_room {
            *left -= 1;
            self.seen.note(VISITOR);
        }
        *has_room
    }
}

impl Desk for Requests {
    fn assist(&mut self, _: Option<Timestamp>) -> bool {
        self.turn(NOTIFIER);
        // The sleeper ends the model.
        self.left > 0
    }

    fn look(&mut self) -> Look {
        let waits = self.waiting > 0;
        Look { work: self.more || self.fresh.any() || waits && self.released.any(), waits }
    }
}

/// A sleeper with a desk where so many requests have to go, at most so many per turn; with a permit that is in their
/// way, or none.
fn arbiter(left: usize, most: usize, booked: bool, seen: &Seen) -> (Caller, Sleeper, Requests) {
    let (notifier, sleeper) = lending_sleep();
    let (producer, consumer) = queue(left);
    let bitmap = || Arc::new(DirtyBitmap::new());
    let (fresh, released) = (bitmap(), bitmap());
    let load = EndpointLoad::new(released.clone(), 0, Arc::new(Releases::new(notifier.clone())));
    if booked {
        load.book(5);
    }
    let desk = Requests {
        consumer,
        fresh: fresh.clone(),
        released,
        load: Arc::new(load),
        has_room: !booked,
        most,
        more: false,
        waiting: 0,
        left,
        seen: seen.clone(),
    };
    (Caller { producer, fresh, notifier }, sleeper, desk)
}

/// Works until all requests have gone, and lends in between.
fn arbitrate(mut sleeper: Sleeper, mut desk: Requests) {
    loop {
        desk.turn(SLEEPER);
        if desk.left == 0 {
            return;
        }
        sleeper.lend(&mut desk, None);
    }
}

#[test]
fn lend_against_a_push() {
    let seen = Seen::default();
    let note = seen.clone();
    check("lend: against a push", bound::NONE, move || {
        let (caller, sleeper, desk) = arbiter(1, usize::MAX, false, &note);
        thread::spawn(move || caller.admit(1));
        arbitrate(sleeper, desk);
    });
    seen.assert(&[NOTIFIER, SLEEPER]);
}

#[test]
fn lend_against_two_notifiers() {
    let seen = Seen::default();
    let note = seen.clone();
    check("lend: against two notifiers", bound::LEND_TWO_NOTIFIERS, move || lend_against(2, 1, &note));
    seen.assert(&[NOTIFIER, SLEEPER]);
}

/// Some threads admit some requests each.
pub(crate) fn lend_against(threads: usize, each: usize, seen: &Seen) {
    let (caller, sleeper, desk) = arbiter(threads * each, usize::MAX, false, seen);
    for _ in 0..threads {
        let caller = caller.clone();
        thread::spawn(move || (0..each).for_each(|_| caller.admit(1)));
    }
    drop(caller);
    arbitrate(sleeper, desk);
}

#[test]
fn lend_against_a_push_and_the_time_limit() {
    let seen = Seen::default();
    let note = seen.clone();
    check("lend: against a push and the time limit", bound::LEND, move || {
        let (caller, sleeper, desk) = arbiter(1, usize::MAX, false, &note);
        let arbiter = thread::current();
        thread::spawn(move || arbiter.unpark());
        thread::spawn(move || caller.admit(1));
        arbitrate(sleeper, desk);
    });
    seen.assert(&[NOTIFIER, SLEEPER]);
}

#[test]
fn lend_up_to_the_bound() {
    let seen = Seen::default();
    let note = seen.clone();
    check("lend: up to the bound", bound::LEND_TURNS, move || {
        // A notifier takes two of them in, one per turn, and leaves the others to the sleeper.
        let (caller, sleeper, desk) = arbiter(4, 1, false, &note);
        thread::spawn(move || caller.admit(4));
        arbitrate(sleeper, desk);
    });
    seen.assert(&[NOTIFIER, SLEEPER]);
}

#[test]
fn lend_against_a_push_and_the_release_that_it_waits_for() {
    let seen = Seen::default();
    let note = seen.clone();
    check("lend: against a push and the release that it waits for", bound::LEND, move || {
        let (caller, sleeper, desk) = arbiter(1, usize::MAX, true, &note);
        let permit = desk.load.clone();
        thread::spawn(move || permit.release(5, 1));
        thread::spawn(move || caller.admit(1));
        arbitrate(sleeper, desk);
    });
    seen.assert(&[NOTIFIER, SLEEPER]);
}

#[test]
fn lend_of_a_request_that_waits_against_the_time_limit() {
    check("lend: of a request that waits against the time limit", bound::LEND, || {
        let (caller, sleeper, desk) = arbiter(1, usize::MAX, true, &Seen::default());
        let (permit, arbiter) = (desk.load.clone(), thread::current());
        thread::spawn(move || arbiter.unpark());
        thread::spawn(move || {
            caller.admit(1);
            permit.release(5, 1);
        });
        arbitrate(sleeper, desk);
    });
}

#[test]
fn lend_against_a_release_before_a_push() {
    check("lend: against a release before a push", bound::LEND, || {
        // One thread: the release may be left to the push, which has to find it.
        let (caller, sleeper, desk) = arbiter(1, usize::MAX, true, &Seen::default());
        let permit = desk.load.clone();
        thread::spawn(move || {
            permit.release(5, 1);
            caller.admit(1);
        });
        arbitrate(sleeper, desk);
    });
}

#[test]
fn lend_to_two_visitors() {
    let seen = Seen::default();
    let note = seen.clone();
    check("lend: to two visitors", bound::LEND_VISITORS, move || {
        let (caller, sleeper, desk) = arbiter(2, usize::MAX, false, &note);
        for _ in 0..2 {
            let caller = caller.clone();
            thread::spawn(move || caller.visit());
        }
        drop(caller);
        arbitrate(sleeper, desk);
    });
    seen.assert(&[NOTIFIER, SLEEPER, VISITOR]);
}

#[test]
fn lend_to_a_visitor_after_the_release_that_it_needs() {
    let seen = Seen::default();
    let note = seen.clone();
    check("lend: to a visitor after the release that it needs", bound::LEND, move || {
        let (caller, sleeper, desk) = arbiter(1, usize::MAX, true, &note);
        let permit = desk.load.clone();
        thread::spawn(move || {
            permit.release(5, 1);
            caller.visit();
        });
        arbitrate(sleeper, desk);
    });
    seen.assert(&[NOTIFIER, SLEEPER, VISITOR]);
}

#[test]
fn lend_to_a_visitor_while_another_one_waits_for_room() {
    let seen = Seen::default();
    let note = seen.clone();
    check("lend: to a visitor while another one waits for room", bound::LEND_TWO_NOTIFIERS, move || {
        // The visitor must not be the first to see the room.
        let (caller, sleeper, desk) = arbiter(2, usize::MAX, true, &note);
        let permit = desk.load.clone();
        thread::spawn(move || permit.release(5, 1));
        thread::spawn(move || {
            caller.admit(1);
            caller.visit();
        });
        arbitrate(sleeper, desk);
    });
    seen.assert(&[NOTIFIER, SLEEPER, VISITOR]);
}
