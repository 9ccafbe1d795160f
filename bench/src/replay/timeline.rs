//! Sums over time in a bounded number of bins, whatever the length of a run: when they are used up, pairs are merged.

/// Bins at most; at least half of them are used after a while.
pub const BINS: usize = 240;

/// Rows of bins of the same width.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// Width of a bin \[ns\].
    width: u64,
    rows: Vec<Vec<f64>>,
    /// End of what was recorded \[ns\].
    end: u64,
}

impl Timeline {
    /// Empty rows. Bins begin with a width of a millisecond.
    pub fn new(rows: usize) -> Self {
        Self { width: 1_000_000, rows: vec![Vec::new(); rows], end: 0 }
    }

    /// Width of a bin \[ns\].
    pub fn width(&self) -> u64 {
        self.width
    }

    /// Bins in use.
    pub fn len(&self) -> usize {
        (self.end.div_ceil(self.width) as usize).min(BINS)
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.end == 0
    }

    /// Time in a bin up to the end of what was recorded \[ns\].
    pub fn time_in(&self, bin: usize) -> u64 {
        self.end.saturating_sub(bin as u64 * self.width).min(self.width)
    }

    /// Value of a row in a bin.
    pub fn get(&self, row: usize, bin: usize) -> f64 {
        self.rows[row].get(bin).copied().unwrap_or(0.0)
    }

    /// Makes room for what ends at `end`.
    fn grow(&mut self, end: u64) {
        self.end = self.end.max(end);
        while end.div_ceil(self.width) > BINS as u64 {
            self.width *= 2;
            for row in &mut self.rows {
                for i in 0..row.len() / 2 {
                    row[i] = row[2 * i] + row[2 * i + 1];
                }
                if row.len() % 2 == 1 {
                    let last = row.len() - 1;
                    row[last / 2] = row[last];
                }
                row.truncate(row.len().div_ceil(2));
            }
        }
    }

    fn slot(&mut self, row: usize, bin: usize) -> &mut f64 {
        let row = &mut self.rows[row];
        if row.len() <= bin {
            row.resize(bin + 1, 0.0);
        }
        &mut row[bin]
    }

    /// Adds `value` at time `at` \[ns\].
    pub fn add(&mut self, row: usize, at: u64, value: f64) {
        self.grow(at.saturating_add(1));
        let bin = (at / self.width) as usize;
        *self.slot(row, bin) += value;
    }

    /// Adds `rate` times the nanoseconds from `from` to `to`.
    pub fn spread(&mut self, row: usize, from: u64, to: u64, rate: f64) {
        if from >= to {
            return;
        }
        self.grow(to);
        if rate == 0.0 {
            return;
        }
        let mut from = from;
        while from < to {
            let bin = from / self.width;
            let until = (bin + 1).saturating_mul(self.width).min(to);
            *self.slot(row, bin as usize) += rate * (until - from) as f64;
            from = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_survive_merging() {
        let mut line = Timeline::new(2);
        line.add(0, 500_000, 3.0);
        line.spread(1, 0, 10_000_000, 2.0);
        line.add(0, 239_999_999, 4.0);
        assert_eq!((line.width(), line.len()), (1_000_000, 240));
        line.spread(1, 1_000_000_000, 1_000_000_123, 1.0);
        assert!(line.len() > BINS / 2 && line.len() <= BINS, "{}", line.len());
        let sum = |row| (0..line.len()).map(|bin| line.get(row, bin)).sum::<f64>();
        assert_eq!((sum(0), sum(1)), (7.0, 2e7 + 123.0));
        assert_eq!(line.get(0, 0), 3.0);
        let time: u64 = (0..line.len()).map(|bin| line.time_in(bin)).sum();
        assert_eq!(time, 1_000_000_123);
    }

    #[test]
    fn a_rate_is_split_where_bins_meet() {
        let mut line = Timeline::new(1);
        line.spread(0, 900_000, 2_100_000, 1.0);
        assert_eq!([0, 1, 2].map(|bin| line.get(0, bin)), [1e5, 1e6, 1e5]);
    }
}
