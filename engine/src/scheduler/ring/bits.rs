//! Two sets of small numbers, one of which finds its next member in O(1): find-first-set over words, and over words of
//! words (Saeed et al., "Eiffel", NSDI 2019, §3.1).

const BITS: usize = u64::BITS as usize;

/// The set that is searched, and the one that becomes part of it with the next round.
pub(super) const SOON: usize = 0;
pub(super) const NEXT: usize = 1;

/// Two sets of numbers below a capacity. Their words are beside each other: a number moves between them on one line.
#[derive(Clone, Debug)]
pub(super) struct Bits {
    words: Vec<[u64; 2]>,
    /// One bit for each word that is not 0.
    summary: Vec<[u64; 2]>,
    /// Whether [`NEXT`] may have members.
    has_next: bool,
}

impl Bits {
    /// Empty sets of numbers below `capacity`.
    pub(super) fn new(capacity: usize) -> Self {
        let words = capacity.div_ceil(BITS);
        Self { words: vec![[0; 2]; words], summary: vec![[0; 2]; words.div_ceil(BITS)], has_next: false }
    }

    pub(super) fn insert(&mut self, set: usize, number: usize) {
        let word = number / BITS;
        self.words[word][set] |= 1 << (number % BITS);
        self.summary[word / BITS][set] |= 1 << (word % BITS);
        self.has_next |= set == NEXT;
    }

    /// Takes a number out of the set that it is in.
    pub(super) fn remove(&mut self, number: usize) {
        let at = number / BITS;
        let word = &mut self.words[at];
        let summary = &mut self.summary[at / BITS];
        for set in [SOON, NEXT] {
            word[set] &= !(1 << (number % BITS));
            if word[set] == 0 {
                summary[set] &= !(1 << (at % BITS));
            }
        }
    }

    /// Moves a number from [`SOON`] to [`NEXT`].
    #[inline(always)]
    pub(super) fn postpone(&mut self, number: usize) {
        let at = number / BITS;
        let word = &mut self.words[at];
        let summary = &mut self.summary[at / BITS];
        word[SOON] &= !(1 << (number % BITS));
        word[NEXT] |= 1 << (number % BITS);
        summary[NEXT] |= 1 << (at % BITS);
        if word[SOON] == 0 {
            summary[SOON] &= !(1 << (at % BITS));
        }
        self.has_next = true;
    }

    /// Whether [`NEXT`] may have members.
    #[inline]
    pub(super) fn has_next(&self) -> bool {
        self.has_next
    }

    /// The least member of [`SOON`] from `from` on.
    #[inline]
    pub(super) fn first(&self, from: usize) -> Option<usize> {
        self.first_by(from, |sets| sets[SOON])
    }

    /// The least member of either set from `from` on.
    pub(super) fn first_of_both(&self, from: usize) -> Option<usize> {
        self.first_by(from, |sets| sets[SOON] | sets[NEXT])
    }

    #[inline(always)]
    fn first_by(&self, from: usize, of: impl Fn(&[u64; 2]) -> u64) -> Option<usize> {
        let word = from / BITS;
        let rest = of(self.words.get(word)?) >> (from % BITS);
        if rest != 0 {
            return Some(from + rest.trailing_zeros() as usize);
        }
        let next = word + 1;
        let mut at = next / BITS;
        let mut rest = of(self.summary.get(at)?) & (u64::MAX << (next % BITS));
        while rest == 0 {
            at += 1;
            rest = of(self.summary.get(at)?);
        }
        let word = at * BITS + rest.trailing_zeros() as usize;
        Some(word * BITS + of(&self.words[word]).trailing_zeros() as usize)
    }

    /// Makes the members of [`NEXT`] members of [`SOON`]; returns how many words they were in.
    pub(super) fn absorb(&mut self) -> u64 {
        self.has_next = false;
        let mut words = 0;
        for (at, summary) in self.summary.iter_mut().enumerate() {
            summary[SOON] |= summary[NEXT];
            while summary[NEXT] != 0 {
                let word = &mut self.words[at * BITS + summary[NEXT].trailing_zeros() as usize];
                word[SOON] |= std::mem::take(&mut word[NEXT]);
                summary[NEXT] &= summary[NEXT] - 1;
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
        fn agree_with_sorted_sets(
            capacity in prop_oneof![1usize..200, 4_000..9_000usize],
            ops in prop::collection::vec((0u8..5, any::<u16>()), 1..200),
        ) {
            let mut bits = Bits::new(capacity);
            let mut sets = [BTreeSet::new(), BTreeSet::new()];
            for (op, number) in ops {
                let number = usize::from(number) % capacity;
                match op {
                    0 | 1 => {
                        let set = usize::from(op);
                        if !sets[1 - set].contains(&number) {
                            bits.insert(set, number);
                            sets[set].insert(number);
                        }
                    }
                    2 => {
                        bits.remove(number);
                        sets.iter_mut().for_each(|set| _ = set.remove(&number));
                    }
                    3 => {
                        if sets[SOON].remove(&number) {
                            bits.postpone(number);
                            sets[NEXT].insert(number);
                        }
                    }
                    _ => {
                        bits.absorb();
                        let [soon, next] = &mut sets;
                        soon.append(next);
                    }
                }
                prop_assert_eq!(bits.first(number), sets[SOON].range(number..).next().copied());
                let either = sets.iter().filter_map(|set| set.range(number..).next()).min();
                prop_assert_eq!(bits.first_of_both(number), either.copied());
                prop_assert!(bits.has_next() || sets[NEXT].is_empty());
            }
        }
    }
}
