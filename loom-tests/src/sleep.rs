//! Models of `sync::sleep`: the arbiter looks for work, finds none and sleeps, while work comes.
//!
//! Each model's main thread is the arbiter and sleeps without a time limit until it has seen all work, so a lost
//! wake-up leaves it asleep for ever, and loom reports that every thread waits.
//! Modelled: the announcement, and every source of work as the engine uses it: queues and loads behind a bitmap, and
//! a snapshot reader.
//! Trusted: `park` and `unpark`, for which loom has its own; in it the unparked thread sees everything that the
//! unparking one has done. A sleep with a time limit is one without.

use crate::checker::sync::Arc;
use crate::checker::thread;
use tollgate::sync::DataArc;
use tollgate::sync::dirty::DirtyBitmap;
use tollgate::sync::ingress::{Consumer, Producer, Queued, queue};
use tollgate::sync::load::{EndpointLoad, Releases};
use tollgate::sync::sleep::{Notifier, Sleeper, sleep};
use tollgate::sync::snapshot::SnapshotCell;

use crate::model::{bound, check};

/// Admits one request, as a caller does.
fn admit(producer: &Producer<u32>, dirty: &DirtyBitmap, notifier: &Notifier) {
    producer.push(Queued::new(7)).expect("open, and below capacity");
    dirty.mark(0);
    notifier.notify();
}

/// Sleeps until `count` requests have come.
fn arbitrate(count: usize, consumer: &mut Consumer<u32>, dirty: &DirtyBitmap, sleeper: &mut Sleeper) {
    let mut seen = 0;
    loop {
        dirty.sweep(|_| seen += consumer.drain(usize::MAX, drop));
        if seen == count {
            return;
        }
        sleeper.sleep(None, || dirty.any());
    }
}

#[test]
fn sleep_against_a_push() {
    check("sleep: against a push", bound::NONE, || {
        let (notifier, mut sleeper) = sleep();
        let (producer, mut consumer) = queue(1);
        let dirty = Arc::new(DirtyBitmap::new());
        let marks = dirty.clone();
        thread::spawn(move || admit(&producer, &marks, &notifier));
        arbitrate(1, &mut consumer, &dirty, &mut sleeper);
    });
}

#[test]
fn sleep_against_two_pushes_in_a_row() {
    check("sleep: against two pushes in a row", bound::TWO_ADMISSIONS, || {
        let (notifier, mut sleeper) = sleep();
        let (producer, mut consumer) = queue(2);
        let dirty = Arc::new(DirtyBitmap::new());
        let marks = dirty.clone();
        thread::spawn(move || {
            admit(&producer, &marks, &notifier);
            admit(&producer, &marks, &notifier);
        });
        arbitrate(2, &mut consumer, &dirty, &mut sleeper);
    });
}

#[test]
fn sleep_against_two_notifiers() {
    check("sleep: against two notifiers", bound::TWO_NOTIFIERS, || sleep_against(2, 1));
}

/// Some threads admit some requests each.
pub(crate) fn sleep_against(threads: usize, each: usize) {
    let (notifier, mut sleeper) = sleep();
    let (producer, mut consumer) = queue(threads * each);
    let dirty = Arc::new(DirtyBitmap::new());
    for _ in 0..threads {
        let (producer, marks, notifier) = (producer.clone(), dirty.clone(), notifier.clone());
        thread::spawn(move || (0..each).for_each(|_| admit(&producer, &marks, &notifier)));
    }
    arbitrate(threads * each, &mut consumer, &dirty, &mut sleeper);
}

#[test]
fn sleep_against_a_release() {
    check("sleep: against a release", bound::NONE, || {
        let (notifier, mut sleeper) = sleep();
        let dirty = Arc::new(DirtyBitmap::new());
        let load = Arc::new(EndpointLoad::new(dirty.clone(), 0, Arc::new(Releases::new(notifier))));
        load.book(5);
        let permit = load.clone();
        thread::spawn(move || permit.release(5, 1));
        let mut booked = (5, 1);
        loop {
            dirty.sweep(|_| booked = load.booked());
            if booked == (0, 0) {
                return;
            }
            sleeper.sleep(None, || dirty.any());
        }
    });
}

#[test]
fn sleep_against_a_publish() {
    check("sleep: against a publish", bound::NONE, || {
        let (notifier, mut sleeper) = sleep();
        let cell = SnapshotCell::new(DataArc::new(1));
        let mut reader = cell.reader();
        thread::spawn(move || {
            cell.replace_if(DataArc::new(2), |now| *now < 2).expect("the only publisher");
            notifier.notify();
        });
        while reader.newer().is_none() {
            sleeper.sleep(None, || reader.has_newer());
        }
    });
}
