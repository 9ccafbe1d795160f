//! What has gone wrong in routers and queues in production, one test each.

mod common;
mod threaded;

#[path = "field/callbacks.rs"]
mod callbacks;
#[path = "field/capacity.rs"]
mod capacity;
#[path = "field/deadlines.rs"]
mod deadlines;
#[path = "field/ending.rs"]
mod ending;
#[path = "field/guard.rs"]
mod guard;
#[path = "field/leaving.rs"]
mod leaving;
#[path = "field/limits.rs"]
mod limits;
#[path = "field/one_turn.rs"]
mod one_turn;
#[path = "field/order.rs"]
mod order;
#[path = "field/releases.rs"]
mod releases;
#[path = "field/reload.rs"]
mod reload;
#[path = "field/shares.rs"]
mod shares;
#[path = "field/storms.rs"]
mod storms;
#[path = "field/workers.rs"]
mod workers;
