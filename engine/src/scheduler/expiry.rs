//! When waiting requests expire: the earliest first, any of them removable.

use super::heap::{HeapKey, IndexedHeap, Positions};
use super::slab::Slab;
use crate::time::Timestamp;

/// Where the heap of expiries keeps its positions.
struct ExpiryAt<'a, T>(&'a mut Slab<T>);

impl<T> Positions for ExpiryAt<'_, T> {
    fn place(&mut self, item: u32, at: u32) {
        self.0.aside_mut(item).expiry_at = at;
    }
}

/// The requests that expire: `time << 32 | slot`.
#[derive(Clone, Debug, Default)]
pub(super) struct Expiries(IndexedHeap<u128>);

impl Expiries {
    #[inline(never)]
    pub(super) fn push<T>(&mut self, slot: u32, at: Timestamp, slab: &mut Slab<T>) {
        self.0.push(u128::from(at.as_nanos()) << 32 | u128::from(slot), &mut ExpiryAt(slab));
    }

    /// Forgets a request that expires.
    #[inline(never)]
    pub(super) fn remove<T>(&mut self, slot: u32, slab: &mut Slab<T>) {
        self.0.remove(slab.aside(slot).expiry_at, &mut ExpiryAt(slab));
    }

    /// The request that expires next, and when.
    pub(super) fn next(&self) -> Option<(Timestamp, u32)> {
        self.0.peek().map(|key| (Timestamp::from_nanos((key >> 32) as u64), key.item()))
    }
}
