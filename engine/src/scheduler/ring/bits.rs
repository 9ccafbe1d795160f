//! A set of small numbers that finds its next member in O(1): find-first-set over words, and over words of words
//! (Saeed et al., "Eiffel", NSDI 2019, §3.1).

const BITS: usize = u64::BITS as usize;

/// A set of numbers below its capacity.
#[derive(Clone, Debug)]
pub(super) struct Bits {
    words: Vec<u64>,
    /// One bit for each word that is not 0.
    summary: Vec<u64>,
}

impl Bits {
    /// An empty set of numbers below `capacity`.
    pub(super) fn new(capacity: usize) -> Self {
        let words = capacity.div_ceil(BITS);
        Self { words: vec![0; words], summary: vec![0; words.div_ceil(BITS)] }
    }

    pub(super) fn insert(&mut self, number: usize) {
        let word = number / BITS;
        self.words[word] |= 1 << (number % BITS);
        self.summary[word / BITS] |= 1 << (word % BITS);
    }

    pub(super) fn remove(&mut self, number: usize) {
        let word = number / BITS;
        self.words[word] &= !(1 << (number % BITS));
        if self.words[word] == 0 {
            self.summary[word / BITS] &= !(1 << (word % BITS));
        }
    }

    pub(super) fn contains(&self, number: usize) -> bool {
        self.words[number / BITS] >> (number % BITS) & 1 == 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.summary.iter().all(|&s| s == 0)
    }

    /// The least member from `from` on.
    pub(super) fn first(&self, from: usize) -> Option<usize> {
        let word = from / BITS;
        let rest = self.words.get(word)? >> (from % BITS);
        if rest != 0 {
            return Some(from + rest.trailing_zeros() as usize);
        }
        let next = word + 1;
        let mut at = next / BITS;
        let mut rest = self.summary.get(at)? & (u64::MAX << (next % BITS));
        while rest == 0 {
            at += 1;
            rest = *self.summary.get(at)?;
        }
        let word = at * BITS + rest.trailing_zeros() as usize;
        Some(word * BITS + self.words[word].trailing_zeros() as usize)
    }

    /// Takes all members over from a set of the same capacity; returns how many words they were in.
    pub(super) fn absorb(&mut self, other: &mut Self) -> u64 {
        let mut words = 0;
        for (at, summary) in other.summary.iter_mut().enumerate() {
            self.summary[at] |= *summary;
            while *summary != 0 {
                let word = at * BITS + summary.trailing_zeros() as usize;
                self.words[word] |= std::mem::take(&mut other.words[word]);
                *summary &= *summary - 1;
                words += 1;
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_set(
            capacity in prop_oneof![1usize..200, 4_000..9_000usize],
            ops in prop::collection::vec((0u8..4, any::<u16>()), 1..200),
        ) {
            let mut bits = [Bits::new(capacity), Bits::new(capacity)];
            let mut sets = [BTreeSet::new(), BTreeSet::new()];
            for (op, number) in ops {
                let number = usize::from(number) % capacity;
                match op {
                    0 | 1 => {
                        bits[usize::from(op)].insert(number);
                        sets[usize::from(op)].insert(number);
                    }
                    2 => {
                        bits[0].remove(number);
                        sets[0].remove(&number);
                    }
                    _ => {
                        let [a, b] = &mut bits;
                        a.absorb(b);
                        let [a, b] = &mut sets;
                        a.append(b);
                    }
                }
                for (bits, set) in bits.iter().zip(&sets) {
                    prop_assert_eq!(bits.first(number), set.range(number..).next().copied());
                    prop_assert_eq!(bits.is_empty(), set.is_empty());
                }
            }
        }
    }
}
