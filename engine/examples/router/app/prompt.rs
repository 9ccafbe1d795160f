//! What a prompt costs: its tokens, and the blocks by which prefix caches know it.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Counts the tokens of a text. The router has no tokenizer: one who embeds it may give it the model's own.
pub(crate) trait CountTokens: Send + Sync {
    /// Tokens of `text`; 0 only for an empty one.
    fn tokens(&self, text: &str) -> u64;
}

/// So many bytes are a token, the last one may be shorter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BytesPerToken(pub(crate) f64);

impl CountTokens for BytesPerToken {
    fn tokens(&self, text: &str) -> u64 {
        (text.len() as f64 / self.0).ceil() as u64
    }
}

/// Tokens that a picture or a sound counts as. Guessed: the patches of a 336-pixel picture of 14-pixel patches.
pub(crate) const MEDIA_TOKENS: u64 = 576;

/// Tokens that a chat template puts around a message, and around the whole. What OpenAI's own models take.
pub(crate) const MESSAGE_TOKENS: u64 = 4;

/// How prompts are counted and cut into blocks.
pub(crate) struct Measure {
    pub(crate) counter: Box<dyn CountTokens>,
    /// Tokens in a block.
    pub(crate) block_tokens: usize,
    /// Bytes in a block of text.
    pub(crate) block_bytes: usize,
}

impl Measure {
    pub(crate) fn new(counter: Box<dyn CountTokens>, block_tokens: usize, bytes_per_token: f64) -> Self {
        let block_bytes = (block_tokens as f64 * bytes_per_token).ceil() as usize;
        Self { counter, block_tokens, block_bytes }
    }

    /// A prompt that is given as token ids.
    pub(crate) fn ids(&self, ids: &[u32]) -> Chain {
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        Chain {
            tokens: ids.len() as u64,
            block_tokens: self.block_tokens as f64,
            blocks: blocks(&bytes, self.block_tokens * 4, 1),
        }
    }

    /// A text, and `more` tokens that are not in it.
    pub(crate) fn text(&self, text: &str, more: u64) -> Chain {
        let tokens = self.counter.tokens(text);
        let share = self.block_bytes as f64 / text.len().max(1) as f64;
        Chain {
            tokens: tokens.saturating_add(more),
            block_tokens: tokens as f64 * share,
            blocks: blocks(text.as_bytes(), self.block_bytes, 2),
        }
    }
}

/// Names of the whole blocks of `bytes`: each stands for its block and all before it.
fn blocks(bytes: &[u8], size: usize, seed: u64) -> Vec<u64> {
    bytes
        .chunks_exact(size)
        .scan(seed, |before, block| {
            *before = xxh3_64_with_seed(block, *before);
            Some(*before)
        })
        .collect()
}

/// One prompt of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Chain {
    tokens: u64,
    /// Tokens that a block stands for.
    block_tokens: f64,
    /// Names of its whole blocks.
    blocks: Vec<u64>,
}

impl Chain {
    pub(crate) fn blocks(&self) -> &[u64] {
        &self.blocks
    }

    /// Of the blocks only the first `blocks` can be told from others.
    pub(crate) fn keep(&mut self, blocks: usize) {
        self.blocks.truncate(blocks);
    }

    /// Tokens of its first `blocks` blocks.
    pub(crate) fn tokens_of(&self, blocks: usize) -> u64 {
        ((self.block_tokens * blocks as f64) as u64).min(self.tokens)
    }
}

/// All prompts of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Prompt {
    pub(crate) chains: Vec<Chain>,
}

impl Prompt {
    /// Input sequence length \[tokens\].
    pub(crate) fn tokens(&self) -> u64 {
        self.chains.iter().fold(0, |sum, chain| sum.saturating_add(chain.tokens))
    }
}
