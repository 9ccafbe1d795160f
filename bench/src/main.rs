//! Experiments with the tollgate scheduler.

fn main() {}
