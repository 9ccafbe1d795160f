//! The program's own format: one JSON object per line, with everything that a request can have.
//!
//! | field | | |
//! |---|---|---|
//! | `at` | s, not before the line above | needed |
//! | `tokens` | prompt | needed |
//! | `output` | answer, tokens | 1 |
//! | `cached` | of the prompt, cached on every worker, tokens | 0 |
//! | `blocks` | identities of the prompt's blocks, as Mooncake's `hash_ids` | none |
//! | `class` | class or family that it asks for | none |
//! | `label` | a word for rules | none |
//! | `priority` | strict tier, higher first | 0 |
//! | `jump` | head start, s | 0 |
//! | `pin` | the only worker that may serve it, from 0 | none |
//! | `deadline_ms` | longest wait for dispatch | none |

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::{Arrival, TraceError, lines, nanos};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    at: f64,
    tokens: u64,
    #[serde(default = "one")]
    output: u64,
    #[serde(default)]
    cached: u64,
    #[serde(default)]
    blocks: Box<[u64]>,
    class: Option<String>,
    label: Option<String>,
    #[serde(default)]
    priority: u32,
    #[serde(default)]
    jump: f64,
    pin: Option<u64>,
    deadline_ms: Option<f64>,
}

fn one() -> u64 {
    1
}

pub(super) fn read(
    path: Arc<Path>,
    reader: impl BufRead + Send,
) -> impl Iterator<Item = Result<Arrival, TraceError>> + Send {
    lines::read(path, reader, |row: Row| {
        let at = nanos(row.at).ok_or("at: no time")?;
        let deadline = match row.deadline_ms {
            // A year is for ever here.
            Some(ms) if !(0.0..=3.2e10).contains(&ms) => {
                return Err(format!("deadline_ms: {ms} is no waiting time"));
            }
            deadline => deadline.map(|ms| Duration::from_nanos((ms * 1e6).round() as u64)),
        };
        let arrival = Arrival {
            input: row.tokens,
            output: row.output,
            cached: row.cached,
            blocks: row.blocks,
            class: row.class.map(Into::into),
            label: row.label.map(Into::into),
            priority: row.priority,
            jump: row.jump,
            pin: row.pin,
            deadline,
            ..Arrival::default()
        };
        Ok(("at", at, arrival))
    })
}
