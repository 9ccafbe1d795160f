//! Load changes that the exact lanes have not been told yet.
//!
//! A worker that is freed opens a lane in every class where something waits for it, and is often busy again after one
//! dispatch, which closes them all. So a change is only noted, as the set of the classes with such a lane, by their places in
//! the ring. A class is told before the ring looks at it. A worker that is busy again before that leaves nothing to tell.

use super::pool::ViewId;
use super::slab::NIL;

/// Most lists of lanes that are noted at a time; the next change is told at once. They are looked at one by one.
const MOST: usize = 64;

/// As few lanes of a list are told sooner than it is noted.
pub(super) const FEW: usize = 2;

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

    fn contains(&self, place: usize) -> bool {
        self.0.get(place / BITS).is_some_and(|word| word >> (place % BITS) & 1 == 1)
    }

    /// The first of the places `from..to`; `to` if there is none.
    fn first(&self, from: usize, to: usize) -> usize {
        let words = self.0.iter().enumerate().take(to.div_ceil(BITS)).skip(from / BITS);
        let mut mask = u64::MAX << (from % BITS);
        for (at, word) in words {
            if word & mask != 0 {
                return to.min(at * BITS + (word & mask).trailing_zeros() as usize);
            }
            mask = u64::MAX;
        }
        to
    }
}

/// A list of lanes, at most one of each class, and the places of the classes that have not been told how its endpoints are.
#[derive(Clone, Debug, Default)]
struct Changed {
    list: u32,
    /// How many they are.
    left: u32,
    places: Places,
}

/// What has not been told.
#[derive(Clone, Debug)]
pub(super) struct Untold {
    /// The first `len` are noted; the others keep their memory.
    changed: Vec<Changed>,
    len: usize,
    most: usize,
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
            changed: Vec::new(),
            len: 0,
            most: MOST,
            at: Vec::new(),
            of_view: Vec::new(),
            seen: Seen::default(),
        }
    }
}

impl Untold {
    pub(super) fn set_most(&mut self, most: usize) {
        self.most = most;
    }

    /// Forgets everything, for so many lists, and a ring of classes with these views.
    pub(super) fn reset(&mut self, lists: usize, views: impl ExactSizeIterator<Item = ViewId>) {
        self.len = 0;
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
        self.len == 0
    }

    /// The first of the places `from..to` whose class is to be told something; `to` if there is none.
    pub(super) fn first(&self, from: usize, to: usize) -> usize {
        self.changed[..self.len].iter().fold(to, |to, changed| changed.places.first(from, to))
    }

    /// Takes out what the class at a place is to be told: the lists.
    pub(super) fn take(&mut self, place: usize, mut tell: impl FnMut(usize)) {
        for at in (0..self.len).rev() {
            if self.changed[at].places.contains(place) {
                tell(self.changed[at].list as usize);
                self.remove(at, place);
            }
        }
    }

    fn remove(&mut self, at: usize, place: usize) {
        let changed = &mut self.changed[at];
        changed.places.remove(place);
        changed.left -= 1;
        if changed.left == 0 {
            self.forget(at);
        }
    }

    /// Notes that an endpoint flipped in these views; `lanes` are the places of the classes with a lane in a list that
    /// depends on it, and perhaps on `several`.
    pub(super) fn change(&mut self, list: usize, lanes: &Places, several: bool, views: &[ViewId]) {
        let at = match self.at[list] {
            NIL => self.note(list, lanes.0.len()),
            at => at as usize,
        };
        let Self { changed, of_view, .. } = self;
        let mut left = 0;
        for (i, (word, lanes)) in changed[at].places.0.iter_mut().zip(&lanes.0).enumerate() {
            let of_views = match of_view.len() {
                1 => u64::MAX,
                _ => views
                    .iter()
                    .fold(0, |all, view| all | of_view[view.0 as usize].0.get(i).copied().unwrap_or(0)),
            };
            // What depends on one endpoint is as it was when that has flipped twice.
            *word = if several { *word | lanes & of_views } else { *word ^ lanes & of_views };
            left += word.count_ones();
        }
        changed[at].left = left;
        if left == 0 {
            self.seen.taken_back += 1;
            self.forget(at);
        }
    }

    /// If there are too many lists, takes out the one of which the least is left: [`at_once`](Self::at_once) it is.
    pub(super) fn has_too_many(&mut self) -> bool {
        if self.len <= self.most {
            return false;
        }
        let least = (0..self.len).min_by_key(|&i| self.changed[i].left).expect("one is too many");
        self.forget(least);
        self.seen.at_once += 1;
        true
    }

    /// The list of which all that are left are told at once, and whether the class at a place is one of them.
    pub(super) fn at_once(&self) -> usize {
        self.changed[self.len].list as usize
    }

    pub(super) fn is_told_at_once(&self, place: usize) -> bool {
        self.changed[self.len].places.contains(place)
    }

    /// Whether a list is noted.
    #[inline]
    pub(super) fn has(&self, list: usize) -> bool {
        self.at[list] != NIL
    }

    /// The class at a place has been told of a list.
    #[inline(never)]
    pub(super) fn told(&mut self, list: u32, place: usize) {
        let Some(&at) = self.at.get(list as usize) else { return };
        let Some(changed) = self.changed.get(at as usize) else { return };
        if changed.places.contains(place) {
            self.remove(at as usize, place);
        }
    }

    fn note(&mut self, list: usize, words: usize) -> usize {
        let at = self.len;
        if at == self.changed.len() {
            self.changed.push(Changed::default());
        }
        let changed = &mut self.changed[at];
        changed.list = list as u32;
        changed.places.0.clear();
        changed.places.0.resize(words, 0);
        self.at[list] = at as u32;
        self.len += 1;
        at
    }

    /// Moves a list behind those that are noted.
    fn forget(&mut self, at: usize) {
        self.len -= 1;
        self.at[self.changed[self.len].list as usize] = at as u32;
        self.at[self.changed[at].list as usize] = NIL;
        self.changed.swap(at, self.len);
    }
}
