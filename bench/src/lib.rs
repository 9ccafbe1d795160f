//! Experiments with the tollgate engine, one module each.
//!
//! | module | subcommand | question |
//! |---|---|---|
//! | [`compare`] | `compare` | how much faster than the peer is it, and does it decide the same? |
//! | [`share`] | `share` | do the classes get the shares of a saturated worker that their quanta promise? |
//! | [`replay`] | `replay`, `sweep` | what would this policy do with that traffic? |
//! | [`stress`] | `stress` | how does the whole engine do under sustained load, and do its books balance? |
//!
//! The binary only parses the command line; benchmarks of single operations are in `benches/`.

pub mod compare;
mod idle;
pub mod replay;
pub mod share;
mod shown;
pub mod stress;
