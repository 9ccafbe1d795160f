//! What threads share, from the standard library and its friends.

pub(crate) use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
pub(crate) use std::hint::spin_loop;
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use std::task::Waker;
pub(crate) use std::thread::{JoinHandle, Thread, current, panicking, park, park_timeout};

/// Loom's cell: opened by closure only, so that a model sees each access.
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

std::thread_local! {
    /// The address of whom the calling thread works for just now; 0: nobody.
    pub(crate) static HELPS: Cell<usize> = const { Cell::new(0) };
}

/// What `make` makes when its place is there: a large value made before would be copied into it.
#[inline(always)]
pub(crate) fn arc_in_place<T>(make: impl FnOnce() -> T) -> Arc<T> {
    let place = Arc::into_raw(Arc::<T>::new_uninit()).cast_mut().cast::<T>();
    // SAFETY: nobody else has the place yet, which has the layout of a `T`.
    unsafe { place.write(make()) };
    // SAFETY: it comes from `into_raw`, and is a `T` from here on.
    unsafe { Arc::from_raw(place) }
}

/// A waker that unparks the calling thread, made once per thread.
pub(crate) fn thread_waker() -> Waker {
    thread_local! {
        static WAKER: Waker = super::unparker(current());
    }
    // Where thread-locals are gone already, in a destructor, a fresh one does.
    WAKER.try_with(Waker::clone).unwrap_or_else(|_| super::unparker(current()))
}

/// Starts a named thread.
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(body)
}
