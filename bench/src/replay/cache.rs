//! What each worker has in its prefix cache: blocks, the longest unused one dropped first.

use lru::LruCache;
use rustc_hash::{FxBuildHasher, FxHashMap};
use tollgate::{CachedOn, WorkerId};

/// The caches of all workers, and which workers have a block.
#[derive(Debug)]
pub struct Caches {
    workers: Vec<LruCache<u64, (), FxBuildHasher>>,
    /// Workers that have a block, ascending.
    holders: FxHashMap<u64, Vec<u32>>,
    /// Blocks that fit into one cache.
    capacity: usize,
    /// Tokens of a block.
    block: u64,
    /// Workers that have all blocks so far, and for scratch.
    have: Vec<u32>,
}

impl Caches {
    /// Empty caches of `capacity` blocks of `block` tokens each.
    pub fn new(workers: u32, capacity: usize, block: u64) -> Self {
        let cache = || LruCache::unbounded_with_hasher(FxBuildHasher);
        Self {
            workers: (0..workers).map(|_| cache()).collect(),
            holders: FxHashMap::default(),
            capacity,
            block,
            have: Vec::new(),
        }
    }

    /// The workers that have a prefix of `blocks`, ascending, with its length in tokens, at most `input`.
    pub fn prefixes(&mut self, blocks: &[u64], input: u64) -> Vec<CachedOn> {
        let mut found = Vec::new();
        let Some(first) = blocks.first().and_then(|block| self.holders.get(block)) else { return found };
        self.have.clear();
        self.have.extend_from_slice(first);
        let mut add = |worker: u32, blocks: usize| {
            let tokens = (blocks as u64).saturating_mul(self.block).min(input);
            found.push(CachedOn { worker: WorkerId(u64::from(worker)), tokens });
        };
        for (i, block) in blocks.iter().enumerate().skip(1) {
            let holders = self.holders.get(block).map_or(&[][..], Vec::as_slice);
            let mut next = holders.iter().peekable();
            self.have.retain(|worker| {
                while next.next_if(|holder| *holder < worker).is_some() {}
                let has = next.peek() == Some(&worker);
                if !has {
                    add(*worker, i);
                }
                has
            });
            if self.have.is_empty() {
                break;
            }
        }
        self.have.iter().for_each(|worker| add(*worker, blocks.len()));
        found.sort_unstable_by_key(|cached| cached.worker);
        found
    }

    /// Tokens of the prefix that `worker` has now; its blocks count as just used.
    pub fn touch(&mut self, worker: u32, blocks: &[u64], input: u64) -> u64 {
        let cache = &mut self.workers[worker as usize];
        let hit = blocks.iter().take_while(|block| cache.contains(block)).count();
        blocks[..hit].iter().rev().for_each(|block| {
            cache.promote(block);
        });
        (hit as u64).saturating_mul(self.block).min(input)
    }

    /// Puts the blocks of a prompt into the cache of `worker`.
    pub fn insert(&mut self, worker: u32, blocks: &[u64]) {
        let cache = &mut self.workers[worker as usize];
        // From the last to the first: a block is of no use without those before it, so it must be dropped before them.
        for &block in blocks.iter().rev() {
            if cache.put(block, ()).is_none() {
                let holders = self.holders.entry(block).or_default();
                if let Err(at) = holders.binary_search(&worker) {
                    holders.insert(at, worker);
                }
            }
            if cache.len() > self.capacity
                && let Some((dropped, ())) = cache.pop_lru()
                && let Some(holders) = self.holders.get_mut(&dropped)
            {
                holders.retain(|holder| *holder != worker);
                if holders.is_empty() {
                    self.holders.remove(&dropped);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(caches: &mut Caches, blocks: &[u64], input: u64) -> Vec<(u64, u64)> {
        caches.prefixes(blocks, input).iter().map(|c| (c.worker.0, c.tokens)).collect()
    }

    #[test]
    fn a_prefix_is_as_long_as_its_blocks_are_there_without_a_gap() {
        let mut caches = Caches::new(3, 100, 10);
        caches.insert(2, &[1, 2, 3]);
        caches.insert(0, &[1, 9, 3]);
        assert_eq!(tokens(&mut caches, &[1, 2, 3, 4], 40), [(0, 10), (2, 30)]);
        assert_eq!(tokens(&mut caches, &[1, 2, 3], 25), [(0, 10), (2, 25)], "at most the prompt");
        assert_eq!(tokens(&mut caches, &[2, 3], 20), [(2, 20)]);
        assert_eq!(tokens(&mut caches, &[7, 1], 20), []);
        assert_eq!(tokens(&mut caches, &[], 20), []);
        assert_eq!(caches.touch(0, &[1, 2, 3], 30), 10);
    }

    #[test]
    fn the_longest_unused_block_goes_first_and_the_end_of_a_prompt_before_its_beginning() {
        let mut caches = Caches::new(1, 3, 1);
        caches.insert(0, &[1, 2, 3]);
        caches.insert(0, &[4]);
        assert_eq!(caches.touch(0, &[1, 2, 3], 3), 2, "3 made room for 4");
        caches.insert(0, &[5]);
        assert_eq!(caches.touch(0, &[4], 1), 0, "1 and 2 were used since");
        assert_eq!(tokens(&mut caches, &[5], 1), [(0, 1)]);
        assert_eq!(caches.holders.len(), 3, "nobody is kept for blocks that are gone");
    }

    #[test]
    fn a_cache_without_room_has_nothing() {
        let mut caches = Caches::new(1, 0, 16);
        caches.insert(0, &[1, 2]);
        assert_eq!(tokens(&mut caches, &[1], 16), []);
        assert!(caches.holders.is_empty());
    }
}
