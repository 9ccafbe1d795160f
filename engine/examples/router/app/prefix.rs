//! What a worker has cached, as far as one can tell from the prompts that went there.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;

use super::prompt::{Chain, Prompt};

/// The prefix blocks that were used last, a bounded number.
pub(crate) struct PrefixIndex(Option<Mutex<LruCache<u64, ()>>>);

impl PrefixIndex {
    /// An index of at most `blocks` blocks; of 0 it knows nothing.
    pub(crate) fn new(blocks: usize) -> Self {
        Self(NonZeroUsize::new(blocks).map(|blocks| Mutex::new(LruCache::new(blocks))))
    }

    /// Tokens of the prompt's prefixes that are known here.
    pub(crate) fn cached(&self, prompt: &Prompt) -> u64 {
        let Some(blocks) = &self.0 else { return 0 };
        let blocks = blocks.lock();
        let known = |chain: &Chain| {
            // A block is never here without those before it, see `insert`.
            let known = chain.blocks().partition_point(|block| blocks.contains(block));
            chain.tokens_of(known)
        };
        prompt.chains.iter().map(known).sum()
    }

    /// The prompt is cached from now on.
    pub(crate) fn insert(&self, prompt: &Prompt) {
        let Some(blocks) = &self.0 else { return };
        let mut blocks = blocks.lock();
        for chain in &prompt.chains {
            // Of a chain longer than the whole index its beginning stays. The first block is the last to go.
            let fits = chain.blocks().len().min(blocks.cap().get());
            for block in chain.blocks()[..fits].iter().rev() {
                blocks.put(*block, ());
            }
        }
    }

    /// The process behind the worker is a new one.
    pub(crate) fn clear(&self) {
        if let Some(blocks) = &self.0 {
            blocks.lock().clear();
        }
    }
}
