//! The current value of something that is replaced as a whole: readers never wait for writers.
//!
//! Outside of models this is [`arc_swap`]. Loom cannot look into that crate, so a model gets a stand-in with the
//! same interface over a mutex; what a model checks is the protocol around the cell, not the cell.

#[cfg(any(loom, shuttle))]
use super::cell::{Cache, Cell};
use super::{Arc, DataArc, Step, point};

#[cfg(not(any(loom, shuttle)))]
type Cell<T> = arc_swap::ArcSwapAny<DataArc<T>>;

#[cfg(not(any(loom, shuttle)))]
type Cache<T> = arc_swap::Cache<Arc<Cell<T>>, DataArc<T>>;

/// A shared value that anyone may replace and read.
#[derive(Debug)]
pub struct SnapshotCell<T>(Arc<Cell<T>>);

impl<T> Clone for SnapshotCell<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> SnapshotCell<T> {
    /// A cell with a first value.
    pub fn new(value: DataArc<T>) -> Self {
        Self(Arc::new(Cell::new(value)))
    }

    /// The current value.
    pub fn load(&self) -> DataArc<T> {
        self.0.load_full()
    }

    /// Lets `f` look at the current value, without counting another owner of it.
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        f(&self.0.load())
    }

    /// Replaces the value; lock-free.
    pub fn replace(&self, new: DataArc<T>) {
        let replaced = self.replace_if(new, |_| true);
        debug_assert!(replaced.is_ok(), "every value is accepted");
    }

    /// Replaces the value if `accepts(current)`, however many try at the same time; lock-free.
    ///
    /// # Errors
    /// The current value, if it does not accept the new one.
    pub fn replace_if(&self, new: DataArc<T>, accepts: impl Fn(&T) -> bool) -> Result<(), DataArc<T>> {
        let mut current = self.0.load_full();
        while accepts(&current) {
            point(Step::ReplaceAccepted);
            let before = self.0.compare_and_swap(&current, new.clone());
            if DataArc::ptr_eq(&before, &current) {
                point(Step::Replaced);
                return Ok(());
            }
            current = DataArc::clone(&before);
        }
        Err(current)
    }

    /// A reader that has seen the current value.
    pub fn reader(&self) -> Reader<T> {
        let mut cache = Cache::new(self.0.clone());
        Reader { seen: cache.load().clone(), cache }
    }
}

/// One reader's memory of the value: looking whether there is a newer one costs a load.
#[derive(Debug)]
pub struct Reader<T> {
    cache: Cache<T>,
    seen: DataArc<T>,
}

impl<T> Reader<T> {
    /// The current value, if this reader has not seen it yet.
    pub fn newer(&mut self) -> Option<DataArc<T>> {
        let current = self.cache.load();
        if DataArc::ptr_eq(current, &self.seen) {
            return None;
        }
        self.seen = current.clone();
        Some(self.seen.clone())
    }

    /// Whether [`newer`](Self::newer) would find one.
    pub fn has_newer(&mut self) -> bool {
        !DataArc::ptr_eq(self.cache.load(), &self.seen)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_reader_sees_each_newer_value_once_and_refused_ones_never() {
        let cell = SnapshotCell::new(DataArc::new(1));
        let mut reader = cell.reader();
        assert!(reader.newer().is_none());
        cell.replace_if(DataArc::new(5), |now| *now < 5).unwrap();
        assert!(reader.has_newer());
        assert_eq!(reader.newer().as_deref(), Some(&5));
        assert!(reader.newer().is_none());
        assert_eq!(*cell.replace_if(DataArc::new(4), |now| *now < 4).unwrap_err(), 5);
        assert!(!reader.has_newer());
    }
}
