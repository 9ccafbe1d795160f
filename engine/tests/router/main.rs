//! The router example from outside, over real sockets: what goes through, what is refused and how, and that nothing stays
//! booked whatever clients and workers do. Nothing here depends on how fast the machine is.

#![cfg(feature = "yaml")]

#[path = "../../examples/router/app/mod.rs"]
mod app;
mod bad_input;
mod chaos;
mod policy;
mod sessions;
mod support;
mod through;
mod tokens;
mod workers;
