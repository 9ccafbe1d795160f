//! Load changes that the exact lanes have not been told yet.
//!
//! A worker that is freed opens a lane in every class where something waits for it, and is often busy again after one
//! dispatch, which closes them all. So a change is only noted, as the set of the classes with such a lane, by their places in
//! the ring. A class is told before the ring looks at it. A worker that is busy again before that leaves nothing to tell.

use super::pool::ViewId;
use super::slab::NIL;

/// Most lists of lanes that are noted at a time. They are looked at one by one.
const MOST: usize = 64;

/// So few lanes are told sooner than that is noted.
const FEW: usize = 2;

const BITS: usize = u64::BITS as usize;

/// A set of places of the ring.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(Vec<u64>);

impl Places {
    /// Adds a place of a ring of so many.
    pub(super) fn insert(&mut self, place: usize, of: usize) {
        self.0.resize(of.div_ceil(BITS), 0);
        self.0[place / BITS] |= 1 << (place % BITS);
    }

    pub(super) fn remove(&mut self, place: usize) {
        self.0[place / BITS] &= !(1 << (place % BITS));
    }
}

/// A list of lanes, at most one of each class, of which some classes have not been told how its endpoints are.
#[derive(Clone, Copy, Debug, Default)]
struct Noted {
    list: u32,
    /// How many classes they are.
    left: u32,
}

/// What has not been told.
#[derive(Clone, Debug)]
pub(super) struct Untold {
    noted: Vec<Noted>,
    /// The places of the classes that are left of each noted list, and of one more: so many words for each.
    bits: Vec<u64>,
    words: usize,
    most: usize,
    few: usize,
    /// Where each list is among the noted ones, or [`NIL`].
    at: Vec<u32>,
    /// By view, the places of its classes.
    of_view: Vec<Places>,
    pub(super) seen: Seen,
}

/// How often exact lanes were told what, for tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Lanes whose head was looked at after a load change of their endpoint.
    pub lanes: u64,
    /// Classes that were told because they could have gone on with the credit of the last dispatch.
    pub at_carry: u64,
    /// Classes that were told because the sweep was about to pass them in this round, and in the next one.
    pub ahead: [u64; 2],
    /// Changes that were taken back before everybody was told.
    pub taken_back: u64,
    /// Changes that were told at once, as too many others were noted.
    pub at_once: u64,
}

impl Default for Untold {
    fn default() -> Self {
        Self {
            noted: Vec::new(),
            bits: Vec::new(),
            words: 0,
            most: MOST,
            few: FEW,
            at: Vec::new(),
            of_view: Vec::new(),
            seen: Seen::default(),
        }
    }
}

impl Untold {
    pub(super) fn set(&mut self, most: usize, few: usize) {
        (self.most, self.few) = (most, few);
    }

    /// Forgets everything, for so many lists, and a ring of classes with these views.
    pub(super) fn reset(&mut self, lists: usize, views: impl ExactSizeIterator<Item = ViewId>) {
        self.noted.clear();
        self.words = views.len().div_ceil(BITS);
        self.at.clear();
        self.at.resize(lists, NIL);
        self.of_view.clear();
        let of = views.len();
        for (place, ViewId(view)) in views.enumerate() {
            self.of_view.resize(self.of_view.len().max(view as usize + 1), Places::default());
            self.of_view[view as usize].insert(place, of);
        }
    }

    /// Whether everybody has been told everything.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    /// The first of the places `from..to` whose class is to be told something; `to` if there is none.
    pub(super) fn first(&self, from: usize, to: usize) -> usize {
        let mut mask = u64::MAX << (from % BITS);
        for word in from / BITS..to.div_ceil(BITS) {
            let rows = self.bits[word..].iter().step_by(self.words).take(self.noted.len());
            let any = rows.fold(0, |any, bits| any | bits) & mask;
            if any != 0 {
                return to.min(word * BITS + any.trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        to
    }

    fn contains(&self, at: usize, place: usize) -> bool {
        self.bits[at * self.words + place / BITS] >> (place % BITS) & 1 == 1
    }

    /// Takes out what the class at a place is to be told: the lists.
    pub(super) fn take(&mut self, place: usize, mut tell: impl FnMut(usize)) {
        for at in (0..self.noted.len()).rev() {
            if self.contains(at, place) {
                tell(self.noted[at].list as usize);
                self.remove(at, place);
            }
        }
    }

    fn remove(&mut self, at: usize, place: usize) {
        self.bits[at * self.words + place / BITS] &= !(1 << (place % BITS));
        self.noted[at].left -= 1;
        if self.noted[at].left == 0 {
            self.forget(at);
        }
    }

    /// Notes that an endpoint flipped in these views; `lanes` are the places of the classes with a lane in a list that
    /// depends on it, and perhaps on `several`.
    pub(super) fn change(&mut self, list: usize, lanes: &Places, several: bool, views: &[ViewId]) {
        let at = match self.at[list] {
            NIL => self.note(list),
            at => at as usize,
        };
        let Self { noted, bits, words, of_view, .. } = self;
        let of_views = |i: usize| match of_view.len() {
            1 => u64::MAX,
            _ => views.iter().fold(0, |all, view| all | of_view[view.0 as usize].0.get(i).unwrap_or(&0)),
        };
        let mut left = 0;
        for (i, (bits, lanes)) in bits[at * *words..].iter_mut().zip(&lanes.0).enumerate() {
            // What depends on one endpoint is as it was when that has flipped twice.
            *bits = if several { *bits | lanes & of_views(i) } else { *bits ^ lanes & of_views(i) };
            left += bits.count_ones();
        }
        noted[at].left = left;
        if left == 0 {
            self.seen.taken_back += 1;
            self.forget(at);
        }
    }

    /// If there are too many lists, takes out the one of which the least is left: those of its classes are to be told for
    /// whose places [`is_told_at_once`](Self::is_told_at_once).
    pub(super) fn too_many(&mut self) -> Option<usize> {
        if self.noted.len() <= self.most {
            return None;
        }
        let least = (0..self.noted.len()).min_by_key(|&at| self.noted[at].left)?;
        let list = self.noted[least].list;
        self.forget(least);
        self.seen.at_once += 1;
        Some(list as usize)
    }

    pub(super) fn is_told_at_once(&self, place: usize) -> bool {
        self.contains(self.noted.len(), place)
    }

    /// Whether a change is better told at once to so many lanes of a list.
    #[inline]
    pub(super) fn is_better_told(&self, list: usize, lanes: usize) -> bool {
        lanes <= self.few && self.at[list] == NIL
    }

    /// The class at a place has been told of a list.
    #[inline(never)]
    pub(super) fn told(&mut self, list: u32, place: usize) {
        let Some(&at) = self.at.get(list as usize) else { return };
        if at != NIL && self.contains(at as usize, place) {
            self.remove(at as usize, place);
        }
    }

    fn note(&mut self, list: usize) -> usize {
        let at = self.noted.len();
        self.at[list] = at as u32;
        self.noted.push(Noted { list: list as u32, left: 0 });
        let end = (at + 1) * self.words;
        self.bits.resize(self.bits.len().max(end), 0);
        self.bits[end - self.words..end].fill(0);
        at
    }

    /// Moves a list behind those that are noted.
    fn forget(&mut self, at: usize) {
        let last = self.noted.len() - 1;
        self.at[self.noted[last].list as usize] = at as u32;
        self.at[self.noted[at].list as usize] = NIL;
        self.noted.swap_remove(at);
        let (before, rest) = self.bits.split_at_mut(last * self.words);
        if at < last {
            before[at * self.words..][..self.words].swap_with_slice(&mut rest[..self.words]);
        }
    }
}
