//! A new policy while requests wait.

use tollgate::policy::{ClassSpec, Profile, QueuePolicy};

use super::{Event, Oracle};

impl Oracle {
    /// Classes are matched by name. What waits stays as it is.
    pub(crate) fn reload(&mut self, profile: &Profile) {
        let before: Vec<_> = self.classes().map(|k| self.in_order(k)).collect();
        let specs_before = self.classes.clone();
        self.open = profile.classes().iter().map(|spec| self.adopt(spec)).collect();
        self.note_order_anew(&before, &specs_before);

        // A class that is gone drains where it stands, and stays there, empty, until the next reload. Without
        // anything to drain it leaves.
        let old = std::mem::take(&mut self.ring);
        self.ring = self.ring_with_gone(&old);
        self.cut_credit();

        // The cursor stays at its class, or goes on to the next one that is still there.
        let at = old.iter().position(|&k| k == self.cursor).expect("in the ring");
        let from_cursor = old[at..].iter().chain(&old[..at]).copied();
        let cursor = from_cursor.into_iter().find(|k| self.ring.contains(k));
        self.note_ring(&old, cursor);
        self.cursor = cursor.unwrap_or(self.ring[0]);
        self.carry = self.carry.filter(|k| self.ring.contains(k));
    }

    /// The class of this name, from now on with these settings; a new one if there is none.
    fn adopt(&mut self, spec: &ClassSpec) -> usize {
        match self.classes.iter().position(|class| class.name == spec.name) {
            Some(k) => {
                if self.ring.contains(&k) && !self.open.contains(&k) {
                    self.coverage.saw(match self.waits(k) {
                        true => Event::ReloadRevives,
                        false => Event::ReloadRevivesDrained,
                    });
                }
                self.classes[k] = spec.clone();
                k
            }
            None => {
                self.classes.push(spec.clone());
                self.deficit.push(0);
                self.classes.len() - 1
            }
        }
    }

    /// The new classes in their order. Behind each, those that are gone and for which it is the nearest of the new
    /// classes ahead of them in the `old` ring; in front of all, those that had no such class ahead.
    fn ring_with_gone(&self, old: &[usize]) -> Vec<usize> {
        let nearest_ahead = |gone: usize| {
            let ahead = old.iter().take_while(|k| **k != gone);
            ahead.filter(|k| self.open.contains(k)).last().copied()
        };
        let gone_behind = |class: Option<usize>| {
            let gone = old.iter().copied().filter(|k| !self.open.contains(k) && self.waits(*k));
            gone.filter(move |k| nearest_ahead(*k) == class)
        };
        let mut ring: Vec<_> = gone_behind(None).collect();
        for &class in &self.open {
            ring.push(class);
            ring.extend(gone_behind(Some(class)));
        }
        ring
    }

    /// Credit is kept as far as the new settings allow it. A class that has left, and comes back, starts anew.
    fn cut_credit(&mut self) {
        for k in self.classes() {
            let (before, most) = (self.deficit[k], self.most_credit(k));
            if self.ring.contains(&k) && before > 0 {
                self.coverage.saw(match before > most {
                    true => Event::ReloadCutsCredit,
                    false => Event::ReloadKeepsCredit,
                });
            }
            self.deficit[k] = before.min(most);
        }
    }

    // --- what happened ---------------------------------------------------------------------------------------

    /// All that waits in a class, in its order.
    fn in_order(&self, class: usize) -> Vec<u64> {
        let mut waiting: Vec<_> = self.waiting.iter().filter(|w| w.class == class).collect();
        waiting.sort_by(|a, b| {
            if self.precedes(a, b) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater }
        });
        waiting.into_iter().map(|w| w.id).collect()
    }

    fn note_order_anew(&mut self, before: &[Vec<u64>], specs: &[ClassSpec]) {
        for (k, (before, spec)) in before.iter().zip(specs).enumerate() {
            if self.in_order(k) != *before {
                let aged = [spec.order, self.classes[k].order] == [QueuePolicy::AgedWspt; 2];
                self.coverage.saw(if aged { Event::ReloadSortsByNewRate } else { Event::ReloadSortsAnew });
            }
        }
        let anew = |w: &super::Waiting| self.expiry(w.class, &w.request, w.arrival);
        if self.waiting.iter().any(|w| w.expiry != anew(w)) {
            self.coverage.saw(Event::ReloadKeepsQueueTime);
        }
    }

    fn note_ring(&mut self, old: &[usize], cursor: Option<usize>) {
        let stays = |k: &usize| self.ring.contains(k);
        let draining: Vec<_> = self.ring.iter().filter(|k| !self.open.contains(k)).collect();
        let seen = [
            (!draining.is_empty(), Event::ReloadLeavesDraining),
            (draining.len() > 1, Event::ReloadLeavesSeveral),
            (draining.first().is_some_and(|k| **k == self.ring[0]), Event::ReloadDrainsAhead),
            (!old.iter().all(stays), Event::ReloadDrops),
            (cursor.is_some_and(|k| k != self.cursor), Event::ReloadMovesCursor),
            (cursor.is_none(), Event::ReloadCursorToFirst),
            (self.carry.is_some_and(|k| stays(&k)), Event::ReloadKeepsCarry),
        ];
        seen.into_iter().filter(|s| s.0).for_each(|s| self.coverage.saw(s.1));
    }
}
