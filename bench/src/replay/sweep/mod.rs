//! One policy with many settings: every combination is a run, and the best ones are told apart.
//!
//! | file | |
//! |---|---|
//! | `setting` | what can be set, and to what |
//! | `metric` | what a run is judged by |
//! | `cli` | from the options to the exit code |

mod cli;
mod metric;
mod setting;

pub use cli::{Args, EXIT_CODES, main};
pub use metric::{Metric, pareto};
pub use setting::{Setting, Value};
