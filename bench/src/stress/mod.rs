//! Sustained load through the real engine: ingress threads, arbiter, permits, worker snapshots, for as long as wanted.
//!
//! There are two kinds of load. With a rate, requests arrive by a schedule that does not care how the engine does, and
//! latency counts from the scheduled time: a thread that falls behind makes its requests late, and that is in the
//! numbers (no coordinated omission). Without a rate, a fixed number of callers each send their next request when the
//! last one is done: this saturates the engine and shows its throughput; the latency is then what the backlog makes it.
//!
//! Afterwards the books are checked. The callers count what they hear, the engine counts what it does, each on its own
//! side: every request has exactly one end on both, nothing is left waiting or booked, and where every class had
//! requests waiting all the time, the service is within the bound of the Theorem in `docs/algorithm.md`.
//!
//! | file | what it does |
//! |---|---|
//! | `cli` | the options, and from them to the exit code |
//! | `load` | costs and arrival times |
//! | `seats` | the callers of one thread, and how the arbiter tells it which of them has an answer |
//! | `ingress` | what an ingress thread does |
//! | `run` | a whole run |
//! | `books` | the invariants |
//! | `allocations`, `system` | allocations, context switches, memory |
//! | `report` | the results as JSON and as text |

mod allocations;
mod books;
mod cli;
mod ingress;
mod load;
mod report;
mod run;
mod seats;
mod system;

pub use allocations::Counting;
pub use cli::{Args, EXIT_CODES, main};
