//! JSONL: one object per line, empty lines aside.

use std::io::{BufRead, Read};
use std::path::Path;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{Arrival, Checked, TraceError};

/// The longest line that is read \[bytes\]: far above a prompt of a million tokens in blocks of 16.
const LONGEST: u64 = 16 << 20;

/// Reads lines of the form `R`; `arrival` says what one means: the name of its time, the time \[ns\], the rest.
pub(super) fn read<R: DeserializeOwned>(
    path: Arc<Path>,
    mut reader: impl BufRead + Send,
    arrival: impl Fn(R) -> Result<(&'static str, i128, Arrival), String> + Send,
) -> impl Iterator<Item = Result<Arrival, TraceError>> + Send {
    let mut checked = Checked::new(path);
    let (mut line, mut number, mut over) = (Vec::new(), 0, false);
    std::iter::from_fn(move || {
        while !over {
            line.clear();
            number += 1;
            let read = reader.by_ref().take(LONGEST).read_until(b'\n', &mut line);
            let result = match read {
                Err(error) => Err(TraceError::io(&checked.path, &error)),
                Ok(0) => {
                    over = true;
                    return None;
                }
                Ok(n) if n as u64 == LONGEST && line.last() != Some(&b'\n') => {
                    Err(checked.fault(number, format!("longer than {LONGEST} bytes")))
                }
                Ok(_) if line.trim_ascii().is_empty() => continue,
                Ok(_) => parse(&line)
                    .and_then(&arrival)
                    .map_err(|fault| checked.fault(number, fault))
                    .and_then(|(field, time, rest)| checked.arrival(number, field, time, rest)),
            };
            over = result.is_err();
            return Some(result);
        }
        None
    })
}

fn parse<R: DeserializeOwned>(line: &[u8]) -> Result<R, String> {
    serde_json::from_slice(line.trim_ascii_end()).map_err(|error| {
        // The line within the line is always 1.
        let text = error.to_string();
        let text = text.split(" at line ").next().unwrap_or(&text);
        format!("{text} (column {})", error.column())
    })
}
