//! Waiting times: the arbiter counts them in buckets, whoever scrapes reads them.

use std::time::Duration;

use crate::engine::{Observed, Observer};
use crate::policy::ClassId;
use crate::sync::snapshot::SnapshotCell;
use crate::sync::{Arc, AtomicU64, DataArc, Ordering};
use crate::worker::Endpoint;

/// Upper bounds of buckets, rising.
#[derive(Clone, Debug)]
pub(super) struct Bounds(DataArc<[Duration]>);

impl Bounds {
    pub(super) fn new(bounds: impl IntoIterator<Item = Duration>) -> Self {
        let mut bounds: Vec<_> = bounds.into_iter().collect();
        bounds.sort();
        bounds.dedup();
        Self(bounds.into())
    }

    /// The bucket of a time: the first whose bound is not below it.
    fn bucket(&self, time: Duration) -> usize {
        self.0.partition_point(|bound| *bound < time)
    }
}

/// The waiting times of one class. One thread writes, so that nothing is added in one step.
#[derive(Debug)]
struct ClassWaits {
    name: DataArc<str>,
    /// Requests by bucket; the last has no bound.
    buckets: Box<[AtomicU64]>,
    /// \[ns\]
    sum: AtomicU64,
}

impl ClassWaits {
    fn new(name: DataArc<str>, bounds: &Bounds) -> Self {
        let buckets = (0..=bounds.0.len()).map(|_| AtomicU64::new(0)).collect();
        Self { name, buckets, sum: AtomicU64::new(0) }
    }
}

/// Adds to a counter that only the calling thread writes.
fn add(counter: &AtomicU64, more: u64) {
    // Relaxed: a count, which publishes nothing; nobody else writes it.
    counter.store(counter.load(Ordering::Relaxed).saturating_add(more), Ordering::Relaxed);
}

/// The waiting times of the classes of one engine.
#[derive(Debug)]
pub(super) struct Waits {
    bounds: Bounds,
    /// The classes that there are: replaced by reloads, read by scrapes.
    classes: SnapshotCell<Vec<(ClassId, Arc<ClassWaits>)>>,
}

/// The waiting times of a class at some moment.
#[derive(Debug)]
pub(super) struct WaitCounts {
    pub(super) class: ClassId,
    /// Upper bound \[s\] and requests; the last bound is infinite.
    pub(super) buckets: Vec<(f64, u64)>,
    /// Sum of all \[s\].
    pub(super) sum: f64,
}

impl Waits {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self { bounds, classes: SnapshotCell::new(DataArc::default()) }
    }

    /// What has been counted.
    pub(super) fn read(&self) -> Vec<WaitCounts> {
        // Relaxed: counts.
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bounds = || self.bounds.0.iter().map(Duration::as_secs_f64).chain([f64::INFINITY]);
        let counts = |(class, waits): &(ClassId, Arc<ClassWaits>)| WaitCounts {
            class: *class,
            buckets: bounds().zip(waits.buckets.iter().map(read)).collect(),
            sum: Duration::from_nanos(read(&waits.sum)).as_secs_f64(),
        };
        self.classes.load().iter().map(counts).collect()
    }
}

/// The arbiter's side: knows the counters of each class by number.
pub(super) struct Recorder {
    waits: Arc<Waits>,
    by_class: Vec<Option<Arc<ClassWaits>>>,
}

impl Recorder {
    pub(super) fn new(waits: Arc<Waits>) -> Self {
        Self { waits, by_class: Vec::new() }
    }
}

impl Observer for Recorder {
    fn classes(&mut self, classes: &[(ClassId, DataArc<str>)]) {
        let before = std::mem::take(&mut self.by_class);
        let highest = classes.iter().map(|(id, _)| id.index() + 1).max().unwrap_or(0);
        self.by_class.resize(highest, None);
        let mut now = Vec::with_capacity(classes.len());
        for (id, name) in classes {
            // A number can go to another class, which starts anew.
            let same = before.get(id.index()).cloned().flatten().filter(|waits| waits.name == *name);
            let waits = same.unwrap_or_else(|| Arc::new(ClassWaits::new(name.clone(), &self.waits.bounds)));
            self.by_class[id.index()] = Some(waits.clone());
            now.push((*id, waits));
        }
        self.waits.classes.replace(now.into());
    }

    fn dispatched(&mut self, request: &Observed<'_>, _: Endpoint) {
        let Some(Some(waits)) = self.by_class.get(request.class.index()) else { return };
        add(&waits.buckets[self.waits.bounds.bucket(request.waited)], 1);
        add(&waits.sum, u64::try_from(request.waited.as_nanos()).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Request;
    use crate::time::Timestamp;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let bounds = Bounds::new([20, 10].map(Duration::from_nanos));
        let bucket = |nanos| bounds.bucket(Duration::from_nanos(nanos));
        assert_eq!([0, 9, 10, 11, 20, 21].map(bucket), [0, 0, 0, 1, 1, 2]);
    }

    #[test]
    fn a_number_that_goes_to_another_class_starts_anew() {
        let waits = Arc::new(Waits::new(Bounds::new([])));
        let mut recorder = Recorder::new(waits.clone());
        let snapshot = Request::new(1, 0).snapshot(Timestamp::ZERO).unwrap();
        let mut dispatch = |name: &DataArc<str>| {
            let class = ClassId(3);
            recorder.classes(&[(class, name.clone())]);
            let request = Observed { class, name, snapshot: &snapshot, waited: Duration::from_secs(2) };
            recorder.dispatched(&request, Endpoint::default());
            let [WaitCounts { buckets, sum, .. }] = &waits.read()[..] else { panic!("one class") };
            (buckets[0].1, *sum)
        };
        let (first, second) = ("first".into(), "second".into());
        assert_eq!([&first, &first, &second].map(&mut dispatch), [(1, 2.0), (2, 4.0), (1, 2.0)]);
    }
}
