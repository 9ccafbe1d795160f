//! The peer and this scheduler side by side, in one process, on the same inputs.
//!
//! The peer is the router crate of NVIDIA Dynamo, [`dynamo-kv-router`](https://crates.io/crates/dynamo-kv-router): its
//! `PolicyQueue` against [`Scheduler`](tollgate::Scheduler), its `LocalScheduler` (the actor around that queue, with
//! selection and booking) against [`Engine`](tollgate::Engine). It takes minutes to build, so it is behind the
//! feature `peer` of this crate.
//!
//! Every row first checks decisions, then is timed: peer, ours, peer, ours, …. A ratio is taken within each such pair,
//! so that what else runs on the machine weighs on both sides of it.
//!
//! The peer decides differently in three known ways (docs/algorithm.md, "Where this differs from the reference").
//! The rows use inputs on which these do not occur, and the command shows the three of them apart:
//!
//! * a fruitless call loses its carry: no fruitless call falls between dispatches, or no class has credit left then;
//! * its FCFS keys are floats: arrivals are whole seconds, which floats hold exactly;
//! * its cursor moves behind a class that went without a grant: costs are at most the quantum. Only oversized heads
//!   cannot avoid it; of them is checked what must be equal.
//!
//! | file | what it does |
//! |---|---|
//! | `cli` | the options, and from them to the exit code |
//! | `rows` | what is compared, and the bars |
//! | `queue` | the two queues: enqueue, decide, cancel |
//! | `path` | the two routers on tokio: admit, permit, release |
//! | `differences` | the three known differences |
//! | `measure` | samples and their spread |
//! | `report`, `plot` | the results as JSON and text, as a picture |

mod cli;
#[cfg(feature = "peer")]
mod differences;
#[cfg(feature = "peer")]
mod measure;
#[cfg(feature = "peer")]
mod path;
#[cfg(feature = "peer")]
mod plot;
#[cfg(feature = "peer")]
mod queue;
#[cfg(feature = "peer")]
mod report;
#[cfg(feature = "peer")]
mod rows;

pub use cli::{Args, EXIT_CODES, main};
