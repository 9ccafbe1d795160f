//! Bits of dirty bitmaps, given out to owners and taken back.

use crate::sync::Arc;
use crate::sync::dirty::DirtyBitmap;

/// Pages of bits with the owner of each. The pages grow with the owners and never move.
///
/// The first page is looked at in every turn; which of the others have news is said by one more, as far as it goes.
#[derive(Debug)]
pub(super) struct Marks<O> {
    pages: Vec<Arc<DirtyBitmap>>,
    above: Option<Arc<DirtyBitmap>>,
    owners: Vec<Option<O>>,
    free: Vec<u32>,
    /// Bits that were ever given out: the first ones.
    used: usize,
}

/// A bit, for whoever marks it.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    /// Number among all bits.
    pub(super) id: u32,
    pub(super) page: Arc<DirtyBitmap>,
    /// Number in its page.
    pub(super) bit: usize,
}

impl Mark {
    /// Says that its owner has news, which the caller has written before.
    pub(super) fn mark(&self) {
        self.page.mark(self.bit);
    }
}

impl<O: Copy> Marks<O> {
    pub(super) fn new() -> Self {
        Self { pages: Vec::new(), above: None, owners: Vec::new(), free: Vec::new(), used: 0 }
    }

    /// A bit for `owner`.
    pub(super) fn take(&mut self, owner: O) -> Mark {
        let id = self.free.pop().unwrap_or_else(|| {
            let first = self.owners.len();
            let page = match self.pages.len() {
                number @ 1..DirtyBitmap::BITS => {
                    let above = self.above.get_or_insert_with(|| Arc::new(DirtyBitmap::new()));
                    DirtyBitmap::below(above.clone(), number)
                }
                _ => DirtyBitmap::new(),
            };
            self.pages.push(Arc::new(page));
            self.owners.resize(first + DirtyBitmap::BITS, None);
            self.free.extend((first as u32 + 1..self.owners.len() as u32).rev());
            first as u32
        });
        self.owners[id as usize] = Some(owner);
        self.used = self.used.max(id as usize + 1);
        let page = self.pages[id as usize / DirtyBitmap::BITS].clone();
        Mark { id, page, bit: id as usize % DirtyBitmap::BITS }
    }

    pub(super) fn set_owner(&mut self, id: u32, owner: O) {
        self.owners[id as usize] = Some(owner);
    }

    /// Takes a bit back. Whoever still marks it causes a needless look at its next owner.
    pub(super) fn give_back(&mut self, id: u32) {
        if self.owners[id as usize].take().is_some() {
            self.free.push(id);
        }
    }

    /// Clears all bits and calls `news` for the owner of each that was set.
    pub(super) fn sweep(&self, mut news: impl FnMut(u32, O)) {
        let mut sweep = |number: usize| {
            let first = number * DirtyBitmap::BITS;
            self.pages[number].sweep_first(self.used_of(number), |bit| {
                if let Some(owner) = self.owners[first + bit] {
                    news((first + bit) as u32, owner);
                }
            });
        };
        if !self.pages.is_empty() {
            sweep(0);
        }
        if let Some(above) = &self.above {
            above.sweep_first(self.pages.len().min(DirtyBitmap::BITS), &mut sweep);
            (DirtyBitmap::BITS..self.pages.len()).for_each(sweep);
        }
    }

    /// Whether a bit is set.
    pub(super) fn any(&self) -> bool {
        let page = |number: usize| self.pages[number].any_of_first(self.used_of(number));
        let Some(above) = &self.above else { return !self.pages.is_empty() && page(0) };
        page(0)
            || above.any_of_first(self.pages.len().min(DirtyBitmap::BITS))
            || (DirtyBitmap::BITS..self.pages.len()).any(page)
    }

    /// How many bits of a page are in use.
    fn used_of(&self, page: usize) -> usize {
        (self.used - page * DirtyBitmap::BITS).min(DirtyBitmap::BITS)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn marks_beyond_one_page_reach_their_owners_and_returned_ones_nobody() {
        let mut marks = Marks::new();
        let taken: Vec<_> = (0..1500u32).map(|owner| marks.take(owner)).collect();
        for owner in [0, 511, 512, 1499] {
            taken[owner].mark();
        }
        marks.give_back(taken[512].id);
        let mut swept = Vec::new();
        marks.sweep(|_, owner| swept.push(owner));
        assert_eq!(swept, [0, 511, 1499]);
        assert!(!marks.any());
        assert_eq!(marks.take(7).id, taken[512].id);
    }
}
