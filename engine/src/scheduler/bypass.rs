//! Past the queues: the dispatch of a request that finds nothing waiting.

use super::{Booking, Scheduler};
use crate::error::Reason;
use crate::policy::ClassId;
use crate::request::Snapshot;
use crate::sync::prefetch;
use crate::time::Timestamp;

impl<T> Scheduler<T> {
    /// Asks for what a [bypass](Self::bypass) by a request of this class needs to be brought near.
    pub(crate) fn prefetch(&self, class: ClassId) {
        prefetch(&self.classes[class.index()]);
        self.ring.prefetch(class);
    }

    /// Dispatches a request that finds nothing waiting and can go at once: what is decided, and what is left behind, is
    /// what [`enqueue`](Self::enqueue) and [`dispatch`](Self::dispatch) make of it, but it is put into no queue. As the
    /// bypass of an empty queueing discipline in a network stack.
    ///
    /// `None`, and nothing has changed: something waits, the request would have to, or its time is over by `now`.
    ///
    /// ```
    /// use tollgate::policy::{ClassSpec, PolicySpec, Profile};
    /// use tollgate::{Request, Scheduler, Timestamp, Worker, WorkerSnapshot};
    ///
    /// let mut class = ClassSpec::explicit("only", 512);
    /// class.busy.threshold_tokens = Some(0);
    /// let profile = Profile::new(PolicySpec { classes: vec![class], ..PolicySpec::default() })?;
    /// let (class, now) = (profile.class_id("only").unwrap(), Timestamp::from_nanos(0));
    /// let mut scheduler: Scheduler<()> = Scheduler::new(&profile);
    /// scheduler.set_workers(WorkerSnapshot::new(1, vec![Worker::new(1)])?.into());
    ///
    /// let request = Request::new(512, 0).snapshot(now)?;
    /// let booking = scheduler.bypass(class, &request, now).expect("the worker is free")?;
    /// assert!(scheduler.bypass(class, &request, now).is_none(), "the worker is busy");
    /// scheduler.release(booking);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If the profile has no such class.
    pub fn bypass(
        &mut self,
        class: ClassId,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Option<Result<Booking, Reason>> {
        if self.slab.len() > 0 {
            return None;
        }
        let expiry = self.classes[class.index()].expiry(snapshot);
        if expiry.is_some_and(|at| at <= now) || !self.could_go(class, snapshot) {
            return None;
        }
        self.ring.serve_alone(class, snapshot.cost());
        Some(self.select(class, snapshot).map(|index| self.book(index, snapshot)))
    }
}
