//! A bitmap of what has news: any thread marks, the arbiter sweeps. Any number of marks coalesces into one bit.
//!
//! Whoever marks has changed something first (pushed a request, given tokens back); whoever sweeps looks at it
//! afterwards. A bit that is clear is set by a read-modify-write, which has its place before or after the sweep's own.
//! A bit that is set already is left alone, which is the usual case under load. That is a store-buffer pattern (write
//! the news, read the bit, against clear the bit, read the news), so both sides need a SeqCst fence there; acquire and
//! release alone would let both read old values and the news would be lost.
//!
//! Where there are many bitmaps, one more says which of them to look at: a mark goes on to the bitmap
//! [above](DirtyBitmap::below), for which the bit below is the news.

use super::{Arc, AtomicU64, CachePadded, Ordering, Step, fence, point};

const WORD: usize = 64;
/// Words of a cache line.
#[cfg(not(any(loom, shuttle)))]
const LINE: usize = 8;
/// A model looks at each word in every turn: more of them add length and no behaviour.
#[cfg(any(loom, shuttle))]
const LINE: usize = 1;

/// A cache line of bits.
#[derive(Debug)]
pub struct DirtyBitmap {
    words: CachePadded<[AtomicU64; LINE]>,
    /// The bitmap that says that this one has news, and by which bit.
    above: Option<(Arc<DirtyBitmap>, usize)>,
}

impl DirtyBitmap {
    /// Bits of a bitmap.
    pub const BITS: usize = LINE * WORD;

    /// Clear bits, that are looked at in every turn.
    #[expect(clippy::new_without_default, reason = "nobody makes one by default")]
    pub fn new() -> Self {
        Self { words: CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0))), above: None }
    }

    /// Clear bits, that are looked at when `bit` of `above` is set.
    pub fn below(above: Arc<Self>, bit: usize) -> Self {
        Self { above: Some((above, bit)), ..Self::new() }
    }

    /// Says that there is news at `bit`, which the caller has written before.
    ///
    /// # Panics
    /// If there is no such bit.
    pub fn mark(&self, bit: usize) {
        self.set(bit);
        if let Some((above, bit)) = &self.above {
            above.set(*bit);
        }
    }

    fn set(&self, bit: usize) {
        let word = &self.words[bit / WORD];
        let mask = 1 << (bit % WORD);
        // Relaxed: if it looks clear, the `fetch_or` says how it is.
        if word.load(Ordering::Relaxed) & mask != 0 {
            // SeqCst: orders the caller's news before the next load of the bit; partner: the fence in `sweep`. Either
            // that sweep sees the news, or this load sees the bit cleared, and whoever swaps out the new one sees it.
            fence(Ordering::SeqCst);
            point(Step::MarkFenced);
            // Relaxed: the fences order it.
            if word.load(Ordering::Relaxed) & mask != 0 {
                return;
            }
        }
        point(Step::MarkClear);
        // Release: the news becomes visible with the bit; partner: the fence in `sweep`.
        word.fetch_or(mask, Ordering::Release);
    }

    /// Clears every set bit and calls `news` for each.
    pub fn sweep(&self, news: impl FnMut(usize)) {
        self.sweep_first(Self::BITS, news);
    }

    /// The same where only so many bits, the first, are in use.
    pub fn sweep_first(&self, bits: usize, mut news: impl FnMut(usize)) {
        for (word, first) in self.words.iter().zip((0..bits).step_by(WORD)) {
            // Relaxed: a bit that is missed here is found by the next sweep; before it sleeps, the arbiter looks
            // again behind a fence.
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // Relaxed: the fence below orders it.
            let mut bits = word.swap(0, Ordering::Relaxed);
            // SeqCst: orders the clearing before the caller's look at the news, and makes visible what a mark has
            // released; partners: the fence and the `fetch_or` in `set`.
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
        self.any_of_first(Self::BITS)
    }

    /// The same where only so many bits, the first, are in use.
    pub fn any_of_first(&self, bits: usize) -> bool {
        // Relaxed: callers order it by the fence of their sleep protocol.
        self.words[..bits.div_ceil(WORD)].iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn every_marked_bit_is_swept_once() {
        let bitmap = DirtyBitmap::new();
        let marked = [0, 63, 64, 510, 511];
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

    #[test]
    fn a_mark_says_above_where_it_is() {
        let above = Arc::new(DirtyBitmap::new());
        let below = DirtyBitmap::below(above.clone(), 7);
        let mut swept = Vec::new();
        for _ in 0..2 {
            below.mark(9);
            below.mark(9);
            above.sweep(|page| below.sweep(|bit| swept.push((page, bit))));
        }
        assert_eq!(swept, [(7, 9), (7, 9)]);
        assert!(!above.any() && !below.any());
    }
}
