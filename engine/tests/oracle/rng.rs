//! SplitMix64: a seed is all that a replay needs.

#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
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
