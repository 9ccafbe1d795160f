//! Samples and their spread.

use std::time::Duration;

use crate::idle::Idle;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Pairs of measurements.
    pub(super) samples: u32,
    /// Time that a sample of the peer takes, about.
    pub(super) sample: Duration,
    /// Decisions that are compared one for one.
    pub(super) decisions: u32,
    pub(super) quick: bool,
    /// What our arbiter does when there is nothing to do.
    pub(super) idle: Idle,
}

impl Effort {
    pub(super) fn new(quick: bool, samples: Option<u32>, idle: Idle) -> Self {
        match quick {
            true => Self {
                samples: samples.unwrap_or(3),
                sample: Duration::from_millis(30),
                decisions: 2_000,
                quick,
                idle,
            },
            false => Self {
                samples: samples.unwrap_or(7),
                sample: Duration::from_millis(250),
                decisions: 20_000,
                quick,
                idle,
            },
        }
    }
}

/// A row with its results.
#[derive(Clone, Debug)]
pub(super) struct Measured {
    pub(super) name: &'static str,
    /// What is compared, where the name does not say it all.
    pub(super) note: &'static str,
    /// Least ratio.
    pub(super) bar: f64,
    /// Decisions that were compared one for one.
    pub(super) decisions: u64,
    /// One pair per sample, the peer's first \[ns\].
    pub(super) samples: Vec<(f64, f64)>,
}

impl Measured {
    pub(super) fn peer(&self) -> Spread {
        Spread::of(self.samples.iter().map(|s| s.0))
    }

    pub(super) fn ours(&self) -> Spread {
        Spread::of(self.samples.iter().map(|s| s.1))
    }

    pub(super) fn ratio(&self) -> Spread {
        Spread::of(self.samples.iter().map(|s| s.0 / s.1))
    }

    /// Whether the bar is met, by the median.
    pub(super) fn met(&self) -> bool {
        self.ratio().median >= self.bar
    }
}

/// Median and range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    /// # Panics
    /// Without values.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (values[0], values[values.len() - 1]);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            1 => values[middle],
            _ => (values[middle - 1] + values[middle]) / 2.0,
        };
        Self { median, min, max }
    }
}

/// Time per operation \[ns\].
pub(super) fn per(took: Duration, operations: u64) -> f64 {
    took.as_nanos() as f64 / operations as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 9.0].into_iter()), Spread { median: 3.0, min: 1.0, max: 9.0 });
        assert_eq!(Spread::of([7.0].into_iter()), Spread { median: 7.0, min: 7.0, max: 7.0 });
    }
}
