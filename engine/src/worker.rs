//! Workers as their watcher publishes them: a whole, validated, versioned snapshot at a time.

use std::fmt;

use rustc_hash::FxHashMap;

use crate::sync::DataArc;

/// Prefill tokens per step of a worker that does not say: busy fractions of it hardly ever bite.
pub const DEFAULT_MAX_NUM_BATCHED_TOKENS: u64 = 10_000_000;

/// Identity of a worker; what it means is up to the router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId(pub u64);

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One data-parallel rank of a worker: the unit that prefills, and that a request is booked on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The worker.
    pub worker: WorkerId,
    /// Its rank.
    pub rank: u32,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.worker, self.rank)
    }
}

/// One worker of a snapshot. [`Worker::new`] gives a one-rank worker to adjust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Identity, unique in the snapshot.
    pub id: WorkerId,
    /// Changes when the process behind `id` is a new one, to a number that `id` never had before (a start time, a
    /// counter): bookings of an earlier process do not carry over.
    pub incarnation: u64,
    /// First data-parallel rank.
    pub first_rank: u32,
    /// Number of ranks, ≥ 1.
    pub ranks: u32,
    /// Tokens per prefill step, the base of `prefill_busy_threshold_frac`; `None` is
    /// [`DEFAULT_MAX_NUM_BATCHED_TOKENS`].
    pub max_num_batched_tokens: Option<u64>,
    /// Permits that each rank may hold before it counts as busy for every class; `None` is no bound.
    pub max_active_requests: Option<u32>,
    /// Labels that a request may require.
    pub taints: Vec<DataArc<str>>,
    /// An overloaded worker gets nothing new.
    pub overloaded: bool,
    /// Active prefill tokens booked by others \[tokens\], by rank from `first_rank`; missing ones are 0.
    pub external_load: Vec<u64>,
}

impl Worker {
    /// A worker with one rank, nothing known about it, and no load.
    pub fn new(id: u64) -> Self {
        Self {
            id: WorkerId(id),
            incarnation: 0,
            first_rank: 0,
            ranks: 1,
            max_num_batched_tokens: None,
            max_active_requests: None,
            taints: Vec::new(),
            overloaded: false,
            external_load: Vec::new(),
        }
    }
}

/// A validated list of workers with a version, sorted by id.
///
/// ```
/// use tollgate::{Worker, WorkerError, WorkerSnapshot};
///
/// let two = WorkerSnapshot::new(1, vec![Worker::new(7), Worker::new(3)])?;
/// assert_eq!(two.workers()[0].id.0, 3);
///
/// let twice = WorkerSnapshot::new(2, vec![Worker::new(7), Worker::new(7)]);
/// assert!(matches!(twice, Err(WorkerError::Duplicate { .. })));
/// # Ok::<(), WorkerError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerSnapshot {
    version: u64,
    workers: Vec<Worker>,
}

impl WorkerSnapshot {
    /// Checks and sorts `workers`.
    ///
    /// # Errors
    /// A worker that is listed twice, has no ranks, has ranks above `u32::MAX`, or has load for ranks that it
    /// does not have; more than `u32::MAX - 1` endpoints altogether.
    pub fn new(version: u64, mut workers: Vec<Worker>) -> Result<Self, WorkerError> {
        workers.sort_by_key(|w| w.id);
        let mut endpoints = 0u64;
        for (i, w) in workers.iter().enumerate() {
            if i > 0 && workers[i - 1].id == w.id {
                return Err(WorkerError::Duplicate { worker: w.id });
            }
            if w.ranks == 0 {
                return Err(WorkerError::NoRanks { worker: w.id });
            }
            if w.first_rank.checked_add(w.ranks - 1).is_none() {
                return Err(WorkerError::RankOverflow {
                    worker: w.id,
                    first_rank: w.first_rank,
                    ranks: w.ranks,
                });
            }
            if w.external_load.len() > w.ranks as usize {
                return Err(WorkerError::TooManyLoads {
                    worker: w.id,
                    ranks: w.ranks,
                    loads: w.external_load.len(),
                });
            }
            endpoints += u64::from(w.ranks);
        }
        if endpoints >= u64::from(u32::MAX) {
            return Err(WorkerError::TooManyEndpoints { endpoints });
        }
        Ok(Self { version, workers })
    }

    /// Version, rising with every snapshot of the same pool.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Workers, ascending by id.
    pub fn workers(&self) -> &[Worker] {
        &self.workers
    }

    /// Where each worker's endpoints start, when all endpoints are laid out by worker and rank.
    pub(crate) fn index(&self) -> FxHashMap<WorkerId, WorkerRanks> {
        let mut first = 0;
        self.workers
            .iter()
            .map(|w| {
                let ranks = WorkerRanks { first_endpoint: first, first_rank: w.first_rank, ranks: w.ranks };
                first += w.ranks;
                (w.id, ranks)
            })
            .collect()
    }
}

/// The endpoints of one worker in the dense layout by worker and rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerRanks {
    pub(crate) first_endpoint: u32,
    pub(crate) first_rank: u32,
    pub(crate) ranks: u32,
}

/// Why a list of workers is not a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WorkerError {
    /// A worker is listed twice.
    Duplicate {
        /// The worker.
        worker: WorkerId,
    },
    /// A worker has no ranks.
    NoRanks {
        /// The worker.
        worker: WorkerId,
    },
    /// The last rank would be above `u32::MAX`.
    RankOverflow {
        /// The worker.
        worker: WorkerId,
        /// Its first rank.
        first_rank: u32,
        /// Its number of ranks.
        ranks: u32,
    },
    /// More load samples than ranks.
    TooManyLoads {
        /// The worker.
        worker: WorkerId,
        /// Its number of ranks.
        ranks: u32,
        /// Number of load samples given.
        loads: usize,
    },
    /// More endpoints than an index can name.
    TooManyEndpoints {
        /// Number of endpoints given.
        endpoints: u64,
    },
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate { worker } => write!(f, "worker {worker} is listed twice"),
            Self::NoRanks { worker } => write!(f, "worker {worker} has an empty rank range"),
            Self::RankOverflow { worker, first_rank, ranks } => {
                write!(f, "worker {worker}: {ranks} ranks from {first_rank} go beyond {}", u32::MAX)
            }
            Self::TooManyLoads { worker, ranks, loads } => {
                write!(f, "worker {worker} has {loads} load samples for {ranks} ranks")
            }
            Self::TooManyEndpoints { endpoints } => write!(f, "{endpoints} endpoints are too many"),
        }
    }
}

impl std::error::Error for WorkerError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_worker_list_names_the_worker_and_the_fault() {
        let build = |edit: fn(&mut Worker)| {
            let mut w = Worker::new(9);
            edit(&mut w);
            WorkerSnapshot::new(1, vec![Worker::new(1), w]).unwrap_err().to_string()
        };
        assert_eq!(build(|w| w.id = WorkerId(1)), "worker 1 is listed twice");
        assert_eq!(build(|w| w.ranks = 0), "worker 9 has an empty rank range");
        assert_eq!(
            build(|w| (w.first_rank, w.ranks) = (u32::MAX, 2)),
            "worker 9: 2 ranks from 4294967295 go beyond 4294967295"
        );
        assert_eq!(build(|w| w.external_load = vec![1, 2]), "worker 9 has 2 load samples for 1 ranks");
        assert_eq!(build(|w| w.ranks = u32::MAX), "4294967296 endpoints are too many");
    }

    #[test]
    fn the_last_rank_may_be_the_largest() {
        let mut w = Worker::new(1);
        (w.first_rank, w.ranks) = (u32::MAX, 1);
        assert!(WorkerSnapshot::new(1, vec![w]).is_ok());
    }
}
