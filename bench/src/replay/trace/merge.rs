//! Several traces as one stream, cut and scaled in time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Arrival, Stream, TraceError};

/// Which part of the traces is replayed, and how fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// Where to begin \[ns of trace time\].
    pub from: u64,
    /// Where to end \[ns of trace time\], itself not replayed.
    pub to: u64,
    /// Arrivals per recorded arrival, in time: 2 replays an hour in half an hour.
    pub speed: f64,
    /// Most requests; the rest is not replayed.
    pub requests: u64,
}

impl Default for Cut {
    fn default() -> Self {
        Self { from: 0, to: u64::MAX, speed: 1.0, requests: u64::MAX }
    }
}

/// The requests of all traces in the order of their arrival, each trace counted from its own first request. Of requests
/// that arrive together, those of the first trace come first.
pub struct Merged {
    streams: Vec<Stream>,
    /// The next request of each stream, by time and number of the stream.
    next: BinaryHeap<Reverse<(u64, usize)>>,
    heads: Vec<Option<Arrival>>,
    error: Option<TraceError>,
    cut: Cut,
    left: u64,
}

impl Merged {
    /// Merges `streams`.
    pub fn new(streams: Vec<Stream>, cut: Cut) -> Self {
        let heads = streams.iter().map(|_| None).collect();
        let mut merged =
            Self { next: BinaryHeap::new(), heads, error: None, left: cut.requests, cut, streams };
        (0..merged.streams.len()).for_each(|i| merged.pull(i));
        merged
    }

    /// Reads the next request of a stream.
    fn pull(&mut self, i: usize) {
        match self.streams[i].next() {
            Some(Ok(arrival)) => {
                self.next.push(Reverse((arrival.at, i)));
                self.heads[i] = Some(arrival);
            }
            Some(Err(error)) => self.error = self.error.take().or(Some(error)),
            None => {}
        }
    }
}

impl Iterator for Merged {
    type Item = Result<Arrival, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(error) = self.error.take() {
                self.next.clear();
                return Some(Err(error));
            }
            let Reverse((_, i)) = self.next.pop()?;
            let mut arrival = self.heads[i].take().expect("what is in the heap has its head");
            if arrival.at >= self.cut.to || self.left == 0 {
                // All others are as late, and nothing more needs to be read.
                self.next.clear();
                return None;
            }
            self.pull(i);
            if arrival.at >= self.cut.from {
                self.left -= 1;
                let since = arrival.at - self.cut.from;
                arrival.at = match self.cut.speed {
                    1.0 => since,
                    speed => (since as f64 / speed).round() as u64,
                };
                return Some(Ok(arrival));
            }
        }
    }
}

impl std::fmt::Debug for Merged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Merged").field("streams", &self.streams.len()).field("cut", &self.cut).finish()
    }
}
