//! What threads share, from loom, where a model is checked.

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::Arc;
pub(crate) use loom::sync::atomic::{Ordering, fence};
pub(crate) use loom::thread::{JoinHandle, Thread, current, panicking, park};
use std::cell::Cell;
use std::task::Waker;

/// Loom's atomics, with every order of their loads explored.
///
/// Loom looks for another order of two accesses if at least one of them writes, but compares a write only with
/// the access right before it. Where a thread loads, another loads and writes, the second load hides the first:
/// loom never lets the write come before it. So each load first stores to an atomic that nobody reads: the
/// stores put the loads into every order, and make nothing visible to anybody.
macro_rules! atomics {
    ($($name:ident $(<$parameter:ident>)?: $value:ty;)*) => {$(
        #[derive(Debug, Default)]
        pub(crate) struct $name $(<$parameter>)? {
            value: loom::sync::atomic::$name $(<$parameter>)?,
            loads: loom::sync::atomic::AtomicBool,
        }

        impl $(<$parameter>)? $name $(<$parameter>)? {
            pub(crate) fn new(value: $value) -> Self {
                Self {
                    value: loom::sync::atomic::$name::new(value),
                    loads: loom::sync::atomic::AtomicBool::new(false),
                }
            }

            #[track_caller]
            pub(crate) fn load(&self, ordering: Ordering) -> $value {
                // Relaxed: to be ordered by loom, not to order anything.
                self.loads.store(true, Ordering::Relaxed);
                self.value.load(ordering)
            }
        }

        impl $(<$parameter>)? std::ops::Deref for $name $(<$parameter>)? {
            type Target = loom::sync::atomic::$name $(<$parameter>)?;

            fn deref(&self) -> &Self::Target {
                &self.value
            }
        }
    )*};
}

atomics! {
    AtomicBool: bool;
    AtomicU8: u8;
    AtomicU32: u32;
    AtomicU64: u64;
    AtomicUsize: usize;
    AtomicPtr<T>: *mut T;
}

/// Loom has no clock: a park with a time limit is one without.
pub(crate) fn park_timeout(_limit: std::time::Duration) {
    park();
}

/// parking_lot's interface. Not over loom's mutex: an unpark would wake a thread that waits for that one.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T> {
    value: std::sync::Mutex<T>,
    /// Whoever locks sees what was done under earlier locks. Loom explores the order of these.
    locks: loom::sync::atomic::AtomicBool,
}

/// Access to the value until this is dropped.
#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    value: std::sync::MutexGuard<'a, T>,
    locks: &'a loom::sync::atomic::AtomicBool,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: std::sync::Mutex::new(value), locks: loom::sync::atomic::AtomicBool::new(false) }
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        loop {
            match self.try_lock() {
                Some(guard) => return guard,
                None => loom::thread::yield_now(),
            }
        }
    }

    #[track_caller]
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Acquire: what earlier lockers have done. Release: only to keep the chain; partner: the swap in `drop`.
        self.locks.swap(true, Ordering::AcqRel);
        let value = match self.value.try_lock() {
            Ok(value) => value,
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        Some(MutexGuard { value, locks: &self.locks })
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        // Release: what was done under the lock. Acquire: only to keep the chain; partner: the swap in `lock`.
        self.locks.swap(false, Ordering::AcqRel);
    }
}

impl<T> std::ops::Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> std::ops::DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

loom::thread_local! {
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
    loom::thread::Builder::new().name(name.into()).spawn(body)
}
