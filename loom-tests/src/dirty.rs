//! Models of `sync::dirty` and `sync::load`: marks against the arbiter's sweep.
//!
//! The arbiter looks at the news only when a sweep reports the bit. When all is done it sweeps once more, and has to
//! have looked at the last of the news by then.
//! Modelled: the bits and the counters. Trusted: nothing; a release also notifies, which here finds nobody asleep.

use crate::checker::sync::Arc;
use crate::checker::sync::atomic::{AtomicU32, Ordering};
use crate::checker::thread;
use tollgate::sync::dirty::DirtyBitmap;
use tollgate::sync::load::{EndpointLoad, Releases};
use tollgate::sync::sleep::sleep;

use crate::model::{bound, check};

fn endpoint() -> (Arc<DirtyBitmap>, Arc<EndpointLoad>) {
    let (notifier, _) = sleep();
    let dirty = Arc::new(DirtyBitmap::new());
    let load = Arc::new(EndpointLoad::new(dirty.clone(), 0, Arc::new(Releases::new(notifier))));
    (dirty, load)
}

#[test]
fn release_against_sweep_and_read() {
    check("dirty: release against sweep and read", bound::NONE, || {
        let (dirty, load) = endpoint();
        load.book(5);
        let permit = load.clone();
        let caller = thread::spawn(move || permit.release(5, 1));
        let mut view = (5, 1);
        dirty.sweep(|_| view = load.booked());
        caller.join().unwrap();
        dirty.sweep(|_| view = load.booked());
        assert_eq!(view, (0, 0));
        assert!(!dirty.any());
    });
}

#[test]
fn two_releases_against_sweep_read_and_the_next_booking() {
    check("dirty: two releases against sweep, read and the next booking", bound::NONE, || {
        let (dirty, load) = endpoint();
        load.book(5);
        let permit = load.clone();
        // What is prefilled first, the permit later.
        let caller = thread::spawn(move || {
            permit.release(5, 0);
            permit.release(0, 1);
        });
        let mut view = (5, 1);
        dirty.sweep(|_| view = load.booked());
        load.book(3);
        view = (view.0 + 3, view.1 + 1);
        dirty.sweep(|_| view = load.booked());
        caller.join().unwrap();
        dirty.sweep(|_| view = load.booked());
        assert_eq!(view, (3, 1));
    });
}

/// Anyone may look at what is booked, and sees what was at some moment: not less than nothing, nor more than there ever was.
#[test]
fn two_bookings_in_turn_against_a_look() {
    check("dirty: two bookings in turn against a look", bound::LOOK, || {
        let (_, load) = endpoint();
        let anyone = load.clone();
        let looker = thread::spawn(move || anyone.seen());
        load.book(5);
        let permit = load.clone();
        thread::spawn(move || permit.release(5, 1)).join().unwrap();
        load.book(5);
        let (tokens, permits) = looker.join().unwrap();
        assert!(tokens == 0 || tokens == 5, "{tokens}");
        assert!(permits <= 1, "{permits}");
        assert_eq!((load.booked(), load.seen()), ((5, 1), (5, 1)));
    });
}

/// Threads each write news and mark its bit, while this one sweeps and looks at the news of the bits.
pub(crate) fn markers_against_a_sweep<const N: usize>(bits: [usize; N]) {
    let dirty = Arc::new(DirtyBitmap::new());
    let news = bits.map(|bit| (bit, Arc::new(AtomicU32::new(0))));
    let markers = news.clone().map(|(bit, news)| {
        let dirty = dirty.clone();
        thread::spawn(move || {
            news.store(1, Ordering::Relaxed);
            dirty.mark(bit);
        })
    });
    let mut view = [0; N];
    let mut look = |swept| {
        for (view, (bit, news)) in view.iter_mut().zip(&news) {
            if *bit == swept {
                *view = news.load(Ordering::Relaxed);
            }
        }
    };
    dirty.sweep(&mut look);
    for marker in markers {
        marker.join().unwrap();
    }
    dirty.sweep(look);
    assert_eq!(view, [1; N]);
}

#[test]
fn mark_of_a_bit_that_another_has_marked_against_a_sweep() {
    check("dirty: two markers of one bit against a sweep", bound::NONE, || markers_against_a_sweep([0, 0]));
}

#[test]
fn marks_of_two_bits_of_a_word_against_a_sweep() {
    check("dirty: markers of two bits against a sweep", bound::NONE, || markers_against_a_sweep([0, 1]));
}

/// Threads each write news and mark a bit of their own bitmap, while this one sweeps the one above and looks at the news
/// of the bitmaps that it names.
pub(crate) fn markers_below_against_a_sweep<const N: usize>(pages: [usize; N]) {
    let above = Arc::new(DirtyBitmap::new());
    let highest = pages.iter().max().copied().unwrap_or(0);
    let below: Vec<_> = (0..=highest).map(|page| Arc::new(DirtyBitmap::below(above.clone(), page))).collect();
    let news = pages.map(|page| (page, Arc::new(AtomicU32::new(0))));
    let markers = news.clone().map(|(page, news)| {
        let page = below[page].clone();
        thread::spawn(move || {
            news.store(1, Ordering::Relaxed);
            page.mark(0);
        })
    });
    let mut view = [0; N];
    let mut look = |swept: usize| {
        below[swept].sweep(|_| {
            for (view, (page, news)) in view.iter_mut().zip(&news) {
                if *page == swept {
                    *view = news.load(Ordering::Relaxed);
                }
            }
        });
    };
    above.sweep(&mut look);
    for marker in markers {
        marker.join().unwrap();
    }
    above.sweep(look);
    assert_eq!(view, [1; N]);
}

#[test]
fn marks_of_two_bitmaps_below_one_against_a_sweep() {
    check("dirty: markers of two bitmaps below one against a sweep", bound::NONE, || {
        markers_below_against_a_sweep([0, 1]);
    });
}

#[test]
fn marks_of_one_bitmap_below_another_against_a_sweep() {
    check("dirty: two markers of a bitmap below another against a sweep", bound::BELOW, || {
        markers_below_against_a_sweep([0, 0]);
    });
}

#[test]
fn a_late_release_counts_as_stale_or_is_swept() {
    check("load: release against retirement", bound::NONE, || {
        let (notifier, _) = sleep();
        let dirty = Arc::new(DirtyBitmap::new());
        let releases = Arc::new(Releases::new(notifier));
        let load = Arc::new(EndpointLoad::new(dirty.clone(), 0, releases.clone()));
        load.book(5);
        let permit = load.clone();
        let caller = thread::spawn(move || permit.release(5, 1));
        load.retire();
        caller.join().unwrap();
        assert_eq!(load.booked(), (0, 0));
        assert_eq!(releases.stale(), u64::from(!dirty.any()));
    });
}
