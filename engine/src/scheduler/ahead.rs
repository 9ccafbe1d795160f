//! What the next decisions will touch is brought near ahead of time.
//!
//! A class whose credit is enough for several requests sends them one after the other. Each names the next one, so nobody
//! knows the third before the second is near, and a read from memory takes as long as four decisions. So the requests
//! behind a head are followed one link at a time, a few classes apart: when a link is read, its line has come.

use super::Scheduler;
use super::slab::NIL;
use crate::policy::ClassId;
use crate::sync::prefetch;

/// Slots that were asked for when the sweep came to the last two classes, the latest first: heads, those behind them, and
/// those behind these. By now a slot may be vacant or have another tenant: then something else is brought near.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead([[u32; 2]; 3]);

impl Ahead {
    pub(super) const NOTHING: Self = Self([[NIL; 2]; 3]);
}

impl<T> Scheduler<T> {
    /// Asks for `head` to be brought near, which will go soon but not at once, and takes one step behind each of those that
    /// were asked for before.
    #[inline(never)]
    pub(super) fn look_ahead(&mut self, head: u32) {
        if let Some(class) = self.ring.ahead_of_order() {
            return self.look_ahead_out_of_order(head, class);
        }
        let Self { slab, lanes, ahead, .. } = self;
        let behind = |slot| slab.get(slot).map_or((NIL, NIL), |hot| (hot.next, hot.lane));
        let Ahead([heads, seconds, thirds]) = *ahead;
        let (second, lane) = behind(heads[1]);
        if let Some(lane) = lanes.get(lane) {
            prefetch(lane);
        }
        // Who is served often asks again: its next request is put behind the last one.
        let (third, lane) = behind(seconds[1]);
        if let Some(last) = lanes.get(lane).and_then(|lane| slab.get(lane.last())) {
            prefetch(last);
        }
        for slot in [head, second, third] {
            slab.prefetch(slot);
        }
        if !self.ring.is_wide() {
            let (fourth, _) = behind(thirds[1]);
            slab.prefetch(fourth);
        }
        *ahead = Ahead([[head, heads[0]], [second, seconds[0]], [third, thirds[0]]]);
    }

    /// The same if its class will send only one request and then wait for long: what is behind the next head is not needed.
    #[inline(never)]
    fn look_ahead_out_of_order(&mut self, head: u32, class: ClassId) {
        let Self { slab, lanes, classes, ahead, .. } = self;
        prefetch(&classes[class.index()]);
        slab.prefetch(head);
        let Ahead([heads, seconds, _]) = *ahead;
        let mut second = NIL;
        if let Some(hot) = slab.get(heads[1]) {
            second = hot.next;
            if let Some(lane) = lanes.get(hot.lane) {
                prefetch(lane);
            }
            if let Some(next) = slab.get(second) {
                prefetch(next);
            }
        }
        // Who is served often asks again: its next request is put behind the last one.
        let lane = slab.get(seconds[1]).and_then(|hot| lanes.get(hot.lane));
        if let Some(last) = lane.and_then(|lane| slab.get(lane.last())) {
            prefetch(last);
        }
        *ahead = Ahead([[head, heads[0]], [second, seconds[0]], [NIL; 2]]);
    }
}
