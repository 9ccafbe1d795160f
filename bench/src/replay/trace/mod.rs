//! Recorded traffic, one request at a time: files are read as they are used and never held in memory.
//!
//! | format | file | told by |
//! |---|---|---|
//! | [`azure`] | Azure LLM inference trace, CSV | a header with `ContextTokens` |
//! | [`burstgpt`] | BurstGPT, CSV | a header with `Request tokens` |
//! | [`mooncake`] | Mooncake trace, JSONL with `hash_ids` | `input_length` in the first line |
//! | [`native`] | everything a request can have, JSONL | `tokens` in the first line |
//! | [`poisson`] | no file: made up | `poisson:` in place of a path |
//!
//! Lines may end in CRLF, and the last one in nothing at all. A faulty line ends the replay with an error that names the
//! file, the line, and the field where there is one.

mod azure;
mod burstgpt;
mod lines;
mod merge;
mod mooncake;
mod native;
mod poisson;
pub(super) mod table;

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate::MAX_BOOKED_TOKENS;

pub use merge::{Cut, Merged};
pub use poisson::{Amount, Poisson};

/// One recorded request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrival {
    /// When it came \[ns since the first request of its trace\].
    pub at: u64,
    /// Prompt \[tokens\].
    pub input: u64,
    /// Answer \[tokens\]; 0 counts as 1.
    pub output: u64,
    /// Prompt tokens that every worker has cached, if the trace says so.
    pub cached: u64,
    /// Identities of the prompt's blocks, the first one first; empty if the trace has none. Blocks are equal if and only
    /// if they and all blocks before them hold the same tokens.
    pub blocks: Box<[u64]>,
    /// Class or family that it asks for.
    pub class: Option<Arc<str>>,
    /// What the trace calls it, for rules: the model in BurstGPT.
    pub label: Option<Arc<str>>,
    /// Strict tier, higher first.
    pub priority: u32,
    /// Head start \[s\].
    pub jump: f64,
    /// The only worker that may serve it.
    pub pin: Option<u64>,
    /// Longest wait for dispatch.
    pub deadline: Option<Duration>,
    /// Number of the trace that it is from.
    pub source: u32,
}

/// A format of trace files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Azure LLM inference trace, CSV
    Azure,
    /// Mooncake trace, JSONL
    Mooncake,
    /// BurstGPT, CSV
    Burstgpt,
    /// This program's own, JSONL
    Native,
}

/// A stream of requests, in the order of their arrival.
pub type Stream = Box<dyn Iterator<Item = Result<Arrival, TraceError>> + Send>;

/// Where requests come from: a file, or a made-up load.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A file, with its format if that is given and not to be told from the file.
    File {
        /// The path.
        path: PathBuf,
        /// The format.
        format: Option<Format>,
    },
    /// Requests at random.
    Poisson(Poisson),
}

impl Source {
    /// What `--trace` says: `poisson:…`, or a path.
    ///
    /// # Errors
    /// What is wrong with the description of a load.
    pub fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix("poisson:") {
            Some(load) => load.parse().map(Self::Poisson),
            None => Ok(Self::File { path: text.into(), format: None }),
        }
    }

    /// Name for reports and rules: of a file without directory and extension.
    pub fn name(&self) -> String {
        match self {
            Self::File { path, .. } => path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into(),
            Self::Poisson(_) => "poisson".into(),
        }
    }

    /// How much there is to read, in the unit of the counter of [`open`](Self::open); 0 if that is unknown.
    pub fn size(&self) -> u64 {
        match self {
            Self::File { path, .. } => std::fs::metadata(path).map_or(0, |data| data.len()),
            Self::Poisson(load) => load.requests,
        }
    }

    /// Starts reading. `progress` counts bytes, or requests of a made-up load; `seed` is for those.
    ///
    /// # Errors
    /// The file cannot be read, or its format is not known.
    pub fn open(&self, number: u32, seed: u64, progress: Arc<AtomicU64>) -> Result<Stream, TraceError> {
        let stream: Stream = match self {
            Self::File { path, format } => {
                let file = File::open(path).map_err(|error| TraceError::io(path, &error))?;
                let mut reader = BufReader::with_capacity(1 << 18, Counted { file, progress });
                let path: Arc<Path> = path.as_path().into();
                let format = match format {
                    Some(format) => *format,
                    None => detect(&path, &mut reader)?,
                };
                match format {
                    Format::Azure => Box::new(azure::read(path, reader)?),
                    Format::Burstgpt => Box::new(burstgpt::read(path, reader)?),
                    Format::Mooncake => Box::new(mooncake::read(path, reader)),
                    Format::Native => Box::new(native::read(path, reader)),
                }
            }
            Self::Poisson(load) => Box::new(load.requests(seed ^ u64::from(number)).map(move |arrival| {
                progress.fetch_add(1, Ordering::Relaxed);
                Ok(arrival)
            })),
        };
        Ok(Box::new(stream.map(move |arrival| arrival.map(|a| Arrival { source: number, ..a }))))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Without the directory: a report is the same wherever the trace lies.
            Self::File { path, .. } => path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().fmt(f),
            Self::Poisson(load) => load.fmt(f),
        }
    }
}

/// A file that counts what was read of it.
struct Counted {
    file: File,
    progress: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buf)?;
        // Relaxed: a number on a progress bar.
        self.progress.fetch_add(n as u64, Ordering::Relaxed);
        Ok(n)
    }
}

/// Tells the format from the beginning of the file, which is not consumed.
fn detect(path: &Arc<Path>, reader: &mut impl BufRead) -> Result<Format, TraceError> {
    let start = reader.fill_buf().map_err(|error| TraceError::io(path, &error))?;
    let start = start.trim_ascii_start();
    let line = start.split(|&b| b == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line).to_ascii_lowercase();
    if line.starts_with('{') {
        // Of a very long line only the beginning is here, and the keys may come in any order.
        let has = |key: &str| line.contains(&format!("\"{key}\""));
        if has("input_length") || has("hash_ids") {
            return Ok(Format::Mooncake);
        }
        if has("tokens") || has("at") {
            return Ok(Format::Native);
        }
    } else if line.contains("contexttokens") {
        return Ok(Format::Azure);
    } else if line.contains("request tokens") {
        return Ok(Format::Burstgpt);
    }
    let fault = match line.trim() {
        "" => "the file is empty".to_owned(),
        _ => "no known format starts like this: azure (CSV with ContextTokens), burstgpt (CSV with Request tokens), \
              mooncake (JSONL with input_length), native (JSONL with tokens); --format names one"
            .to_owned(),
    };
    Err(TraceError { path: path.clone(), line: Some(1), fault })
}

/// A trace that cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// The file.
    pub path: Arc<Path>,
    /// The line, from 1, if it is about one.
    pub line: Option<u64>,
    /// What is wrong, starting with the field if it is about one.
    pub fault: String,
}

impl TraceError {
    fn io(path: &Path, error: &io::Error) -> Self {
        Self { path: path.into(), line: None, fault: error.to_string() }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, "{line}:")?;
        }
        write!(f, " {}", self.fault)
    }
}

impl std::error::Error for TraceError {}

/// A trace may be this long \[ns\]: a hundred years.
const LONGEST: u64 = 3_155_760_000_000_000_000;

/// What every format demands of a line: times that do not go back, and counts that can be.
struct Checked {
    path: Arc<Path>,
    /// Time of the first request \[ns on the trace's own clock\].
    first: Option<i128>,
    last: i128,
}

impl Checked {
    fn new(path: Arc<Path>) -> Self {
        Self { path, first: None, last: i128::MIN }
    }

    fn fault(&self, line: u64, fault: impl Into<String>) -> TraceError {
        TraceError { path: self.path.clone(), line: Some(line), fault: fault.into() }
    }

    /// The arrival at `time` \[ns on the trace's own clock\].
    fn arrival(
        &mut self,
        line: u64,
        field: &str,
        time: i128,
        mut arrival: Arrival,
    ) -> Result<Arrival, TraceError> {
        if time < self.last {
            let back = Duration::from_nanos(u64::try_from(self.last - time).unwrap_or(u64::MAX));
            let fault = format!("{field}: {back:?} before the line above; sort the trace by time first");
            return Err(self.fault(line, fault));
        }
        self.last = time;
        let since = time - *self.first.get_or_insert(time);
        let at = u64::try_from(since).ok().filter(|at| *at < LONGEST);
        arrival.at =
            at.ok_or_else(|| self.fault(line, format!("{field}: centuries after the first request")))?;
        for (name, tokens) in [("prompt", arrival.input), ("answer", arrival.output)] {
            if tokens > MAX_BOOKED_TOKENS {
                let fault =
                    format!("{tokens} tokens in the {name}, at most {MAX_BOOKED_TOKENS} are possible");
                return Err(self.fault(line, fault));
            }
        }
        Ok(arrival)
    }
}

/// Seconds as nanoseconds; `None` if that is no time.
fn nanos(seconds: f64) -> Option<i128> {
    // Up to some thousand years: beyond, a float no longer tells nanoseconds apart anyway.
    (seconds.abs() < 1e11).then(|| (seconds * 1e9).round() as i128)
}

#[cfg(test)]
mod tests;
