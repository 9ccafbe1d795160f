//! A stand-in for [arc-swap](https://docs.rs/arc-swap), which models cannot look into.

use super::{Arc, AtomicBool, AtomicUsize, DataArc, Ordering};

/// arc-swap's interface over a mutex.
#[derive(Debug)]
pub(crate) struct Cell<T> {
    /// Nobody is interrupted while holding it.
    value: std::sync::Mutex<DataArc<T>>,
    /// Whoever looks sees what was done before earlier looks. Loom explores the order of these.
    looks: AtomicBool,
    /// Stands for the pointer that [`Cache`] compares; the lock alone would order more than arc-swap does.
    version: AtomicUsize,
}

impl<T> Cell<T> {
    pub(crate) fn new(value: DataArc<T>) -> Self {
        let (value, looks) = (std::sync::Mutex::new(value), AtomicBool::new(false));
        Self { value, looks, version: AtomicUsize::new(0) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, DataArc<T>> {
        // Acquire: what others had done before they looked. Release: to later ones; partner: this swap in their `lock`.
        self.looks.swap(true, Ordering::AcqRel);
        self.value.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn load_full(&self) -> DataArc<T> {
        self.lock().clone()
    }

    pub(crate) fn load(&self) -> DataArc<T> {
        self.load_full()
    }

    pub(crate) fn compare_and_swap(&self, current: &DataArc<T>, new: DataArc<T>) -> DataArc<T> {
        let mut value = self.lock();
        let before = value.clone();
        if DataArc::ptr_eq(&before, current) {
            *value = new;
            // Before others can run: nobody shall wait for the lock.
            drop(value);
            // Relaxed: as arc-swap's cache looks at its pointer; the value is under the lock.
            self.version.fetch_add(1, Ordering::Relaxed);
        }
        before
    }
}

/// arc-swap's cache: looking whether the value is the cached one is a relaxed load.
#[derive(Debug)]
pub(crate) struct Cache<T> {
    cell: Arc<Cell<T>>,
    value: DataArc<T>,
    version: usize,
}

impl<T> Cache<T> {
    pub(crate) fn new(cell: Arc<Cell<T>>) -> Self {
        let (value, version) = (cell.load_full(), 0);
        let mut cache = Self { cell, value, version };
        cache.load();
        cache
    }

    pub(crate) fn load(&mut self) -> &DataArc<T> {
        // Relaxed: as arc-swap's cache looks at its pointer.
        let version = self.cell.version.load(Ordering::Relaxed);
        if version != self.version {
            (self.value, self.version) = (self.cell.load_full(), version);
        }
        &self.value
    }
}
