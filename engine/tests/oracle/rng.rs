//! SplitMix64: a seed is all that a replay needs. Or a script comes first, which a fuzzer can change piece by piece.

use std::sync::Arc;

#[derive(Clone, Debug)]
pub(crate) struct Rng {
    seed: u64,
    script: Arc<[u8]>,
    read: usize,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self::scripted(seed, &[])
    }

    /// Two bytes of `script` decide each of the first draws.
    pub(crate) fn scripted(seed: u64, script: &[u8]) -> Self {
        Self { seed, script: script.into(), read: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        let drawn = self.draw();
        let Some(&[high, low]) = self.script.get(self.read..self.read + 2) else { return drawn };
        self.read += 2;
        // The high bits decide in `below`.
        u64::from(high) << 56 | u64::from(low) << 48 | drawn >> 16
    }

    fn draw(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number of `range`.
    pub(crate) fn within(&mut self, range: std::ops::RangeInclusive<u64>) -> u64 {
        match (range.end() - range.start()).checked_add(1) {
            Some(n) => range.start() + self.below(n),
            None => self.next(),
        }
    }

    /// True in `n` of 100 cases.
    pub(crate) fn percent(&mut self, n: u64) -> bool {
        self.below(100) < n
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }
}
