//! What threads share, from shuttle, where a model with many threads is run.

pub(crate) use shuttle::hint::spin_loop;
pub(crate) use shuttle::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
pub(crate) use shuttle::sync::{Arc, MutexGuard};
pub(crate) use shuttle::thread::{JoinHandle, Thread, current, panicking, park};
use std::cell::Cell;
use std::task::Waker;

/// Loom's cell: opened by closure only. Shuttle lets others run between two closures, not inside one.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// parking_lot's interface.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(shuttle::sync::PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<shuttle::sync::MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(shuttle::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(shuttle::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// Shuttle has no clock: a park with a time limit is one without.
pub(crate) fn park_timeout(_limit: std::time::Duration) {
    park();
}

shuttle::thread_local! {
    /// The address of whom the calling thread works for just now; 0: nobody.
    pub(crate) static HELPS: Cell<usize> = Cell::new(0);
}

/// What `make` makes, shared.
pub(crate) fn arc_in_place<T>(make: impl FnOnce() -> T) -> Arc<T> {
    Arc::new(make())
}

/// A waker that unparks the calling thread.
pub(crate) fn thread_waker() -> Waker {
    super::unparker(current())
}

/// Starts a named thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    shuttle::thread::Builder::new().name(name.into()).spawn(body)
}
