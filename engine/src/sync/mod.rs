//! Everything that threads share, and the one place that names where it comes from: the standard library and its
//! friends, or [loom](https://docs.rs/loom) when a model is checked (`--cfg loom`).
//!
//! Public so that models and benches reach the parts; none of it is covered by semantic versioning.
//!
//! | file | what | who writes | who reads |
//! |---|---|---|---|
//! | `ingress` | bounded queue of requests of one class | any thread | arbiter |
//! | `ticket` | one request's answer, and whoever waits for it | arbiter | one caller |
//! | `dirty` | which queues or endpoints have news | any thread | arbiter |
//! | `load` | what is booked on an endpoint | arbiter adds, any thread subtracts | arbiter |
//! | `sleep` | the arbiter's sleep, and how it is woken | any thread | arbiter |
//! | `snapshot` | the current worker snapshot | publishers | arbiter |

pub mod clock;
pub mod dirty;
pub mod ingress;
pub mod load;
#[doc(hidden)]
pub mod points;
pub mod sleep;
pub mod snapshot;
pub mod ticket;

/// Shared data that never changes: no protocol, so no model of it.
pub use std::sync::Arc as DataArc;

pub(crate) use crossbeam_utils::CachePadded;
pub(crate) use facade::{
    Arc, AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, JoinHandle, Mutex, Ordering,
    Thread, UnsafeCell, current, fence, panicking, park, park_timeout, spawn, spin_loop, thread_waker,
};
pub(crate) use points::{Step, point};

/// How often to spin before sleeping: `times`, or not at all in a model, where it would add executions and no
/// behaviour.
pub(crate) fn spins(times: u32) -> u32 {
    if cfg!(loom) { 0 } else { times }
}

/// A waker that unparks `thread`.
fn unparker(thread: Thread) -> std::task::Waker {
    struct Unparker(Thread);

    impl std::task::Wake for Unparker {
        fn wake(self: DataArc<Self>) {
            self.0.unpark();
        }

        fn wake_by_ref(self: &DataArc<Self>) {
            self.0.unpark();
        }
    }

    DataArc::new(Unparker(thread)).into()
}

#[cfg(not(loom))]
mod facade {
    pub(crate) use parking_lot::Mutex;
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
}

#[cfg(loom)]
mod facade {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::hint::spin_loop;
    pub(crate) use loom::sync::Arc;
    pub(crate) use loom::sync::atomic::{Ordering, fence};
    pub(crate) use loom::thread::{JoinHandle, Thread, current, panicking, park};
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
        /// Whoever locks sees what was done before earlier locks. Loom explores the order of these.
        locks: loom::sync::atomic::AtomicBool,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self { value: std::sync::Mutex::new(value), locks: loom::sync::atomic::AtomicBool::new(false) }
        }

        #[track_caller]
        pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, T> {
            loop {
                // Acquire: what earlier lockers had done. Release: to later ones; partner: this swap in their `lock`.
                self.locks.swap(true, Ordering::AcqRel);
                match self.value.try_lock() {
                    Ok(guard) => return guard,
                    Err(std::sync::TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                    Err(std::sync::TryLockError::WouldBlock) => loom::thread::yield_now(),
                }
            }
        }
    }

    /// A waker that unparks the calling thread.
    pub(crate) fn thread_waker() -> Waker {
        super::unparker(current())
    }

    /// Starts a named thread.
    pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
        loom::thread::Builder::new().name(name.into()).spawn(body)
    }
}
