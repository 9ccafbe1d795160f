//! Experiments with the tollgate engine, one module each.
//!
//! | module | subcommand | question |
//! |---|---|---|
//! | [`share`] | `share` | do the classes get the shares of a saturated worker that their quanta promise? |
//!
//! The binary only parses the command line; benchmarks of single operations are in `benches/`.

pub mod share;
