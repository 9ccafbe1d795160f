//! An indexed 4-ary min-heap: it tells its owner where each item sits, so that any item can be removed or
//! changed in O(log n), not only the smallest.
//!
//! Four children of 16 bytes share a cache line or two, so a level costs about what a binary level does and there
//! are half as many (LaMarca and Ladner, "The Influence of Caches on the Performance of Heaps", 1996, §4).

use std::cmp::Ordering;
use std::hint::select_unpredictable;

/// A key that also names the item it belongs to.
pub(super) trait HeapKey: Copy {
    /// The item that sits where this key sits.
    fn item(self) -> u32;
    /// Whether this key goes first, unless they [tie](Self::ties).
    fn is_before(&self, other: &Self) -> bool;
    /// Whether [more of the keys](Self::by_more), and then the owner of the items, have to say which of them goes first. If
    /// not, and neither is before the other, either may.
    #[inline]
    fn ties(&self, _: &Self) -> bool {
        false
    }
    /// The order of two that tie, if there is more of them; if that is equal as well, their owner says.
    #[inline]
    fn by_more(&self, _: &Self) -> Ordering {
        Ordering::Equal
    }
}

/// The owner of the items, who keeps the position of each.
pub(super) trait Positions {
    /// `item` now sits at `at`.
    fn place(&mut self, item: u32, at: u32);
    /// Whether item `a` goes before item `b`, whose keys tie.
    fn is_before(&self, _: u32, _: u32) -> bool {
        unreachable!("the keys of these items do not tie")
    }
}

#[inline]
fn is_before<K: HeapKey, P: Positions + ?Sized>(a: &K, b: &K, positions: &P) -> bool {
    if !a.ties(b) {
        return a.is_before(b);
    }
    match a.by_more(b) {
        Ordering::Equal => positions.is_before(a.item(), b.item()),
        order => order.is_lt(),
    }
}

impl Positions for [u32] {
    fn place(&mut self, item: u32, at: u32) {
        self[item as usize] = at;
    }
}

const ARITY: usize = 4;

/// The heap; positions live with the owner and are passed to every call that moves items.
#[derive(Clone, Debug)]
pub(super) struct IndexedHeap<K> {
    keys: Vec<K>,
}

impl<K> Default for IndexedHeap<K> {
    fn default() -> Self {
        Self { keys: Vec::new() }
    }
}

impl<K: HeapKey> IndexedHeap<K> {
    /// The smallest key.
    pub(super) fn peek(&self) -> Option<K> {
        self.keys.first().copied()
    }

    /// All keys, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = K> + '_ {
        self.keys.iter().copied()
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
    }

    pub(super) fn push<P: Positions + ?Sized>(&mut self, key: K, positions: &mut P) {
        self.keys.push(key);
        self.sift_up(self.keys.len() - 1, key, positions);
    }

    /// Removes the key at position `at`.
    ///
    /// # Panics
    /// If nothing sits there.
    pub(super) fn remove<P: Positions + ?Sized>(&mut self, at: u32, positions: &mut P) -> K {
        let removed = self.keys.swap_remove(at as usize);
        if (at as usize) < self.keys.len() {
            self.settle(at as usize, self.keys[at as usize], positions);
        }
        removed
    }

    /// Replaces the key at position `at` by another one of the same item.
    pub(super) fn update<P: Positions + ?Sized>(&mut self, at: u32, key: K, positions: &mut P) {
        debug_assert_eq!(self.keys[at as usize].item(), key.item());
        self.settle(at as usize, key, positions);
    }

    /// Puts another item's key, which belongs in the same place of the order, at position `at`.
    pub(super) fn replace<P: Positions + ?Sized>(&mut self, at: u32, key: K, positions: &mut P) {
        self.set(at as usize, key, positions);
    }

    /// Moves `key` from the hole at `at` to where it belongs.
    fn settle<P: Positions + ?Sized>(&mut self, at: usize, key: K, positions: &mut P) {
        if at > 0 && is_before(&key, &self.keys[(at - 1) / ARITY], positions) {
            self.sift_up(at, key, positions);
        } else {
            self.sift_down(at, key, positions);
        }
    }

    fn sift_up<P: Positions + ?Sized>(&mut self, mut at: usize, key: K, positions: &mut P) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if !is_before(&key, &self.keys[parent], positions) {
                break;
            }
            self.set(at, self.keys[parent], positions);
            at = parent;
        }
        self.set(at, key, positions);
    }

    fn sift_down<P: Positions + ?Sized>(&mut self, mut at: usize, key: K, positions: &mut P) {
        loop {
            let first = at * ARITY + 1;
            let Some(children) = self.keys.get(first..).filter(|children| !children.is_empty()) else {
                break;
            };
            let least = match children.first_chunk() {
                Some(four) => least_of_four(four, positions),
                None => least(children, positions),
            };
            let child = children[least];
            if !is_before(&child, &key, positions) {
                break;
            }
            self.set(at, child, positions);
            at = first + least;
        }
        self.set(at, key, positions);
    }

    fn set<P: Positions + ?Sized>(&mut self, at: usize, key: K, positions: &mut P) {
        self.keys[at] = key;
        positions.place(key.item(), at as u32);
    }
}

/// Index of the smallest, without branches: which it is cannot be predicted. Nor is a key read twice, as the second time
/// would have to wait for the first comparison.
#[inline]
fn least_of_four<K: HeapKey, P: Positions + ?Sized>(keys: &[K; ARITY], positions: &P) -> usize {
    let [k0, k1, k2, k3] = keys;
    let (second, fourth) = (k1.is_before(k0), k3.is_before(k2));
    let (a, b) = (select_unpredictable(second, *k1, *k0), select_unpredictable(fourth, *k3, *k2));
    if k0.ties(k1) | k2.ties(k3) | a.ties(&b) {
        return least(keys, positions);
    }
    select_unpredictable(b.is_before(&a), 2 + usize::from(fourth), usize::from(second))
}

/// The same of any number.
#[cold]
fn least<K: HeapKey, P: Positions + ?Sized>(keys: &[K], positions: &P) -> usize {
    (1..keys.len()).fold(0, |a, b| if is_before(&keys[b], &keys[a], positions) { b } else { a })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A key shortened to its upper bits, then to some more: the owner has the whole one, and equals go by number.
    impl HeapKey for (u8, u32) {
        fn item(self) -> u32 {
            self.1
        }

        fn is_before(&self, other: &Self) -> bool {
            self.0 / 8 < other.0 / 8
        }

        fn ties(&self, other: &Self) -> bool {
            self.0 / 8 == other.0 / 8
        }

        fn by_more(&self, other: &Self) -> Ordering {
            (self.0 / 2).cmp(&(other.0 / 2))
        }
    }

    struct Owner {
        at: [u32; 300],
        keys: [u8; 300],
    }

    impl Positions for Owner {
        fn place(&mut self, item: u32, at: u32) {
            self.at[item as usize] = at;
        }

        fn is_before(&self, a: u32, b: u32) -> bool {
            (self.keys[a as usize], a) < (self.keys[b as usize], b)
        }
    }

    proptest! {
        /// Against a sorted list: pushes, pops, removals from the middle and changed keys.
        #[test]
        fn agrees_with_a_sorted_list(ops in prop::collection::vec((0u8..4, any::<u8>(), any::<u8>()), 1..300)) {
            let mut heap = IndexedHeap::default();
            let mut owner = Owner { at: [u32::MAX; 300], keys: [0; 300] };
            let mut list: Vec<(u8, u32)> = Vec::new();
            for (next, (op, key, pick)) in ops.into_iter().enumerate() {
                let chosen = if list.is_empty() { None } else { Some(pick as usize % list.len()) };
                match (op, chosen) {
                    (2, Some(i)) => {
                        let old = list.remove(i);
                        let at = owner.at[old.1 as usize];
                        prop_assert_eq!(heap.remove(at, &mut owner), old);
                    }
                    (3, Some(i)) => {
                        list[i].0 = key;
                        owner.keys[list[i].1 as usize] = key;
                        heap.update(owner.at[list[i].1 as usize], list[i], &mut owner);
                    }
                    (1, Some(_)) => {
                        list.sort();
                        prop_assert_eq!(heap.remove(0, &mut owner), list.remove(0));
                    }
                    _ => {
                        owner.keys[next] = key;
                        list.push((key, next as u32));
                        heap.push((key, next as u32), &mut owner);
                    }
                }
                list.sort();
                prop_assert_eq!(heap.peek(), list.first().copied());
                for (at, k) in heap.keys.iter().enumerate() {
                    prop_assert_eq!(owner.at[k.1 as usize], at as u32);
                }
            }
        }
    }

    thread_local! {
        static COMPARISONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }

    /// A key that counts how often it is compared.
    #[derive(Clone, Copy, Debug)]
    struct Counted(u64, u32);

    impl HeapKey for Counted {
        fn item(self) -> u32 {
            self.1
        }

        fn is_before(&self, other: &Self) -> bool {
            COMPARISONS.set(COMPARISONS.get() + 1);
            self.0 < other.0
        }
    }

    /// The worst of many changes of a heap of so many keys: the least goes and comes again behind all others, which is
    /// what a lane's head does when its request is served, and any other goes and comes back.
    fn most_comparisons(keys: u32) -> u64 {
        let mix = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16;
        let mut positions = vec![0; keys as usize];
        let mut heap = IndexedHeap::default();
        (0..keys).for_each(|item| heap.push(Counted(mix(item.into()), item), &mut positions[..]));
        let counted = |work: &mut dyn FnMut()| {
            COMPARISONS.set(0);
            work();
            COMPARISONS.get()
        };
        let mut most = 0;
        for i in 0..1_000 {
            let head = heap.peek().expect("it is not empty").item();
            let last = Counted(u64::MAX - 1_000 + i, head);
            most = most.max(counted(&mut || heap.update(0, last, &mut positions[..])));
            let any = (mix(i) % u64::from(keys)) as u32;
            let gone = heap.keys[positions[any as usize] as usize];
            most = most.max(counted(&mut || _ = heap.remove(positions[any as usize], &mut positions[..])));
            most = most.max(counted(&mut || heap.push(gone, &mut positions[..])));
        }
        most
    }

    #[test]
    fn comparisons_grow_with_the_logarithm_of_the_backlog_and_of_the_lanes() {
        for keys in [1u32, 10, 1_000, 100_000, 1_000_000] {
            let levels = u64::from(keys.ilog2() / (ARITY as u32).ilog2() + 1);
            let most = most_comparisons(keys);
            // Three to find the least of four children, one to see whether it comes first; one to choose the direction.
            assert!(most <= 4 * levels + 1, "{keys} keys: {most}");
        }
    }
}
