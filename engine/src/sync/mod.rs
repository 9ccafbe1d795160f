//! Everything that threads share, and the one place that names where it comes from: the standard library and its
//! friends, or [loom](https://docs.rs/loom) or [shuttle](https://docs.rs/shuttle) when a model is checked
//! (`--cfg loom`, `--cfg shuttle`).
//!
//! Public so that models and benches reach the parts; none of it is covered by semantic versioning.
//!
//! | file | what | who writes | who reads |
//! |---|---|---|---|
//! | `ingress` | bounded queue of requests of one class | any thread | arbiter |
//! | `ticket` | one request's answer, and whoever waits for it | arbiter | one caller |
//! | `dirty` | which queues or endpoints have news | any thread | arbiter |
//! | `load` | what is booked on an endpoint | arbiter books, any thread gives back | arbiter |
//! | `sleep` | the arbiter's sleep, and how it is woken | any thread | arbiter |
//! | `lend` | the arbiter itself, while it sleeps and its callers may work for it | whoever owns it | nobody else |
//! | `snapshot` | the current worker snapshot | publishers | arbiter |

pub mod clock;
pub mod dirty;
pub mod ingress;
pub mod lend;
pub mod load;
#[doc(hidden)]
pub mod points;
mod prefetch;
pub mod sleep;
pub mod snapshot;
pub mod ticket;

/// Shared data that never changes: no protocol, so no model of it.
pub use std::sync::Arc as DataArc;

pub(crate) use crossbeam_utils::CachePadded;
pub(crate) use facade::{
    Arc, AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, HELPS, JoinHandle, Mutex,
    MutexGuard, Ordering, Thread, UnsafeCell, arc_in_place, current, fence, panicking, park, park_timeout,
    spawn, spin_loop, thread_waker,
};
pub(crate) use points::{Step, point};
pub(crate) use prefetch::{prefetch, prefetch_of};

/// How often to spin before sleeping: `times`, or not at all in a model, where it would add executions and no
/// behaviour.
pub(crate) fn spins(times: u32) -> u32 {
    if cfg!(any(loom, shuttle)) { 0 } else { times }
}

/// The same for a spin by the clock.
pub(crate) fn patience(time: std::time::Duration) -> std::time::Duration {
    if cfg!(any(loom, shuttle)) { std::time::Duration::ZERO } else { time }
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

#[cfg(not(any(loom, shuttle)))]
#[path = "facade/std.rs"]
mod facade;

#[cfg(loom)]
#[path = "facade/loom.rs"]
mod facade;

#[cfg(shuttle)]
#[path = "facade/shuttle.rs"]
mod facade;

#[cfg(any(loom, shuttle))]
#[path = "facade/cell.rs"]
mod cell;
