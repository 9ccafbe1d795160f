//! Loom models of every lock-free protocol in tollgate, one file per protocol, and of the whole engine; one test per
//! race.
//!
//! Loom runs a model once for each way its threads can interleave and each older value their atomics may still read.
//! A model is red when an assertion fails in one of these executions, two threads touch a cell at once, every
//! thread waits for another (which is what a lost wake-up comes to), or an `Arc` is left over. A red model of a whole
//! protocol may abort instead of failing: loom panics in one thread, and what the others own is dropped without it.
//!
//! `cargo test` runs them all (`tests/run_models.rs` starts a second cargo, since `--cfg loom` reaches every
//! dependency). To run some of them:
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test --release -p tollgate-loom --lib ticket
//! ```
//!
//! The same models, and some with more threads than loom can do (`many.rs`), run under shuttle, which tries some
//! thousand random schedules of each, the same ones every time. It knows no older values.
//!
//! What no model covers: executions in which a load sees a store that comes later in its own past (load buffering),
//! spurious failures of weak exchanges, the time limit of a sleep, and what is not modelled in a file's header.

#[cfg(all(loom, test))]
use loom as checker;
#[cfg(all(shuttle, test))]
use shuttle as checker;

#[cfg(all(any(loom, shuttle), test))]
mod abandoned;
#[cfg(all(any(loom, shuttle), test))]
mod assist;
#[cfg(all(any(loom, shuttle), test))]
mod dirty;
#[cfg(all(any(loom, shuttle), test))]
mod engine;
#[cfg(all(any(loom, shuttle), test))]
mod ingress;
#[cfg(all(any(loom, shuttle), test))]
mod lend;
#[cfg(all(shuttle, test))]
mod many;
#[cfg(all(any(loom, shuttle), test))]
mod model;
#[cfg(all(any(loom, shuttle), test))]
mod sleep;
#[cfg(all(any(loom, shuttle), test))]
mod snapshot;
#[cfg(all(any(loom, shuttle), test))]
mod ticket;
