//! A bitmap of what has news: any thread marks, the arbiter sweeps. Any number of marks coalesces into one bit.
//!
//! Whoever marks has changed something first (pushed a request, subtracted tokens); whoever sweeps looks at it
//! afterwards. The mark is skipped when the bit is set already, which is the usual case under load. That is a
//! store-buffer pattern (write the news, read the bit, against clear the bit, read the news), so both sides need
//! a SeqCst fence; acquire and release alone would let both read old values and the news would be lost.

use super::{AtomicU64, CachePadded, Ordering, Step, fence, point};

const WORD: usize = 64;
/// Words that share a cache line.
#[cfg(not(any(loom, shuttle)))]
const LINE: usize = 8;
/// A model looks at each word in every turn: more of them add length and no behaviour.
#[cfg(any(loom, shuttle))]
const LINE: usize = 1;

/// A fixed number of bits.
#[derive(Debug)]
pub struct DirtyBitmap {
    lines: Box<[CachePadded<[AtomicU64; LINE]>]>,
}

impl DirtyBitmap {
    /// Bits that fit into one cache line.
    pub const LINE_BITS: usize = LINE * WORD;

    /// `bits` clear bits (rounded up to full lines).
    pub fn new(bits: usize) -> Self {
        let line = || CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0)));
        Self { lines: std::iter::repeat_with(line).take(bits.div_ceil(Self::LINE_BITS)).collect() }
    }

    /// Says that there is news at `bit`, which the caller has written before.
    ///
    /// # Panics
    /// If there is no such bit.
    pub fn mark(&self, bit: usize) {
        let word = &self.lines[bit / Self::LINE_BITS][bit % Self::LINE_BITS / WORD];
        let mask = 1 << (bit % WORD);
        // SeqCst: orders the caller's news before the load of the bit; partner: the fence in `sweep`. Either that
        // sweep sees the news, or this load sees the bit cleared, and then whoever swaps out the new one sees it.
        fence(Ordering::SeqCst);
        point(Step::MarkFenced);
        // Relaxed: the fences order it.
        if word.load(Ordering::Relaxed) & mask == 0 {
            point(Step::MarkClear);
            // Relaxed: the fence above publishes the news with the bit.
            word.fetch_or(mask, Ordering::Relaxed);
        }
    }

    /// Clears every set bit and calls `news` for each.
    pub fn sweep(&self, mut news: impl FnMut(usize)) {
        for (word, first) in self.lines.iter().flat_map(|line| line.iter()).zip((0..).step_by(WORD)) {
            // Relaxed: a bit that is missed here is found by the next sweep; before it sleeps, the arbiter looks
            // again behind a fence.
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // Relaxed: the fence below orders it.
            let mut bits = word.swap(0, Ordering::Relaxed);
            // SeqCst: orders the clearing before the caller's look at the news; partner: the fence in `mark`, whose
            // news are visible behind this one.
            fence(Ordering::SeqCst);
            point(Step::Swept);
            while bits != 0 {
                news(first + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Whether a bit is set.
    pub fn any(&self) -> bool {
        // Relaxed: callers order it by the fence of their sleep protocol.
        self.lines.iter().flat_map(|line| line.iter()).any(|word| word.load(Ordering::Relaxed) != 0)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn every_marked_bit_is_swept_once() {
        let bitmap = DirtyBitmap::new(1000);
        let marked = [0, 63, 64, 511, 512, 999];
        for bit in marked.into_iter().chain(marked) {
            bitmap.mark(bit);
        }
        assert!(bitmap.any());
        let mut swept = Vec::new();
        bitmap.sweep(|bit| swept.push(bit));
        assert_eq!(swept, marked);
        bitmap.sweep(|bit| panic!("{bit} swept twice"));
        assert!(!bitmap.any());
    }
}
