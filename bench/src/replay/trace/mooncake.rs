//! The Mooncake traces: `{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [block, …]}`.
//!
//! Qin et al., "Mooncake: Trading More Storage for Less Computation", FAST 2025. A block is 512 tokens; equal ids are equal
//! prefixes.

use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::{Arrival, TraceError, lines, nanos};

#[derive(Deserialize)]
struct Row {
    /// \[ms\]
    timestamp: f64,
    input_length: u64,
    output_length: u64,
    hash_ids: Box<[u64]>,
}

pub(super) fn read(
    path: Arc<Path>,
    reader: impl BufRead + Send,
) -> impl Iterator<Item = Result<Arrival, TraceError>> + Send {
    lines::read(path, reader, |row: Row| {
        let at = nanos(row.timestamp / 1e3).ok_or("timestamp: no time")?;
        let arrival = Arrival {
            input: row.input_length,
            output: row.output_length,
            blocks: row.hash_ids,
            ..Arrival::default()
        };
        Ok(("timestamp", at, arrival))
    })
}
