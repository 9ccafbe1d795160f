//! What a request costs in the scheduler alone: one thread, no clock, no queue in front.
//!
//! | file | what |
//! |---|---|
//! | `queue` | into the queue and out again: classes × backlog × order; one active class of many; oversized heads |
//! | `lanes` | exact lanes, with none, half and all of the endpoints blocked |
//! | `leave` | cancelled and expired requests |
//! | `change` | another load, other workers, another policy |
//!
//! Every case first proves that it serves what it should, then is timed.

#[path = "../common/mod.rs"]
mod common;

mod change;
mod lanes;
mod leave;
mod queue;

use criterion::{criterion_group, criterion_main};

criterion_group!(
    benches,
    queue::enqueue_and_next,
    queue::one_active_class,
    queue::oversized_heads,
    lanes::exact_lanes,
    leave::cancel,
    leave::expire,
    change::load_change,
    change::new_workers,
    change::reload,
);
criterion_main!(benches);
