//! §8: leaving early, cancelled or expired.

use tollgate::{Request, WaitCause};

use super::{Event, Oracle, Waiting, after, cost, deadline};

impl Oracle {
    pub(crate) fn cancel(&mut self, id: u64) -> Option<Waiting> {
        if self.is_head(id) {
            self.coverage.saw(Event::CancelHead);
        }
        self.leave(id, Event::CancelCutsCredit, Event::CancelClearsCredit)
    }

    /// Its own deadline, or the longest time that its class lets it wait, whichever is first \[ns\].
    pub(super) fn expiry(&self, class: usize, request: &Request, arrival: u64) -> Option<u64> {
        let waits = [request.deadline, self.classes[class].max_queue_time];
        waits.into_iter().flatten().map(|wait| after(arrival, wait)).min()
    }

    pub(crate) fn next_expiry(&self) -> Option<u64> {
        self.waiting.iter().filter_map(|w| w.expiry).min()
    }

    /// Those that expire next, if it is time. Which one of them goes first is nowhere said.
    pub(crate) fn expired(&self, now: u64) -> Vec<u64> {
        let next = self.next_expiry().filter(|at| *at <= now);
        self.waiting.iter().filter(|w| next.is_some() && w.expiry == next).map(|w| w.id).collect()
    }

    /// Takes out one of [`expired`](Self::expired).
    pub(crate) fn expire(&mut self, id: u64, now: u64) -> (Waiting, WaitCause) {
        let w = self.waiting.iter().find(|w| w.id == id).expect("it waits").clone();
        let cause = self.wait_cause(&w);
        let tie = self.expired(now).len() > 1;
        let seen = [
            if self.is_head(id) { Event::ExpireHead } else { Event::ExpireBehind },
            if deadline(&w) == w.expiry { Event::ExpireByDeadline } else { Event::ExpireByQueueTime },
            match cause {
                WaitCause::NoWorker => Event::WaitedForWorker,
                WaitCause::PoolBusy => Event::WaitedForPool,
                WaitCause::PinBusy { .. } => Event::WaitedForPin,
                _ => Event::WaitedForOthers,
            },
        ];
        seen.into_iter().chain(tie.then_some(Event::ExpireTie)).for_each(|event| self.coverage.saw(event));
        self.leave(id, Event::ExpireCutsCredit, Event::ExpireClearsCredit);
        (w, cause)
    }

    /// What a request waits for, were it the head of its lane.
    fn wait_cause(&self, w: &Waiting) -> WaitCause {
        match w.request.pin {
            _ if self.workers.is_empty() => WaitCause::NoWorker,
            _ if self.dispatchable(w.class, &w.request) => WaitCause::Others,
            Some(pin) => WaitCause::PinBusy { pin },
            None => WaitCause::PoolBusy,
        }
    }

    /// Not dispatched: its credit is not for those behind it.
    fn leave(&mut self, id: u64, cuts: Event, clears: Event) -> Option<Waiting> {
        let w = self.remove(id)?;
        let (before, most) = (self.deficit[w.class], self.most_credit(w.class));
        if before > most {
            self.coverage.saw(if most > 0 { cuts } else { clears });
        }
        self.deficit[w.class] = before.min(most);
        Some(w)
    }

    /// The credit that a class may keep when something other than dispatch has changed what waits in it.
    pub(super) fn most_credit(&self, class: usize) -> u64 {
        let best = self.best(self.heads(class));
        best.map_or(0, |head| cost(&head.request).max(self.classes[class].quantum))
    }

    fn is_head(&self, id: u64) -> bool {
        let head = |w: &Waiting| w.id == id && self.heads(w.class).iter().any(|head| head.id == id);
        self.waiting.iter().any(head)
    }
}
