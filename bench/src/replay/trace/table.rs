//! CSV: a header, then a row per line.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use super::TraceError;

/// A reader without carriage returns: with them, the CSV reader counts lines one behind.
struct WithoutCr<R>(R);

impl<R: Read> Read for WithoutCr<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.0.read(buf)?;
            let mut kept = 0;
            for i in 0..n {
                if buf[i] != b'\r' {
                    buf[kept] = buf[i];
                    kept += 1;
                }
            }
            // Nothing kept is not the end if something was read.
            if kept > 0 || n == 0 {
                return Ok(kept);
            }
        }
    }
}

/// Rows of a CSV file with a header: their line, and the named columns.
pub(in crate::replay) fn rows<const N: usize>(
    path: Arc<Path>,
    reader: impl Read + Send + 'static,
    names: [&'static str; N],
) -> Result<impl Iterator<Item = Result<(u64, [String; N]), TraceError>> + Send, TraceError> {
    let fault = move |path: &Arc<Path>, error: &csv::Error, line: u64| {
        let line = error.position().map_or(line, csv::Position::line);
        let text = match error.kind() {
            csv::ErrorKind::Io(error) => error.to_string(),
            csv::ErrorKind::Utf8 { .. } => "not UTF-8".into(),
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                format!("{len} columns, the header has {expected_len}")
            }
            _ => error.to_string(),
        };
        TraceError { path: path.clone(), line: Some(line), fault: text }
    };
    let mut csv = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(WithoutCr(reader));
    let header = csv.headers().map_err(|error| fault(&path, &error, 1))?.clone();
    let mut at = [0; N];
    for (at, name) in at.iter_mut().zip(names) {
        // A byte order mark may stand before the first name.
        let found = header.iter().position(|h| h.trim_start_matches('\u{feff}').eq_ignore_ascii_case(name));
        *at = found.ok_or_else(|| TraceError {
            path: path.clone(),
            line: Some(1),
            fault: format!("no column {name:?} in {:?}", header.iter().collect::<Vec<_>>()),
        })?;
    }
    let mut record = csv::StringRecord::new();
    let mut over = false;
    Ok(std::iter::from_fn(move || {
        if over {
            return None;
        }
        match csv.read_record(&mut record) {
            Ok(false) => None,
            Ok(true) => {
                let line = record.position().map_or(0, csv::Position::line);
                Some(Ok((line, at.map(|column| record[column].to_owned()))))
            }
            Err(error) => {
                over = true;
                Some(Err(fault(&path, &error, csv.position().line())))
            }
        }
    }))
}

/// A number of tokens.
pub(super) fn tokens(text: &str, field: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{field}: {text:?} is no number of tokens"))
}
