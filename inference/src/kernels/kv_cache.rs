//! Keys and values of all layers in blocks of tokens.
//!
//! Keys of a block and head are transposed, so that a vector holds the same
//! element of neighbouring tokens: `(layer, block, head, head_dim, block_size)`.
//! Values are `(layer, block, head, block_size, head_dim)`.

#![expect(unsafe_code, reason = "threads write different tokens")]

use crate::ids::BlockId;
use crate::kernels::buffer::{Buffer, Plain, Shared};
use crate::kernels::lanes::Element;

/// Sizes of a cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KvShape {
    /// Layers.
    pub(crate) num_layers: usize,
    /// Blocks of each layer.
    pub(crate) num_blocks: usize,
    /// Tokens of a block.
    pub(crate) block_size: usize,
    /// Heads of keys and of values.
    pub(crate) num_heads: usize,
    /// Elements of a head.
    pub(crate) head_dim: usize,
}

impl KvShape {
    /// Elements of the keys of one head in one block.
    fn tile(&self) -> usize {
        self.head_dim * self.block_size
    }

    /// Where a tile begins.
    fn start(&self, layer: usize, block: BlockId, head: usize) -> usize {
        let block = block.0 as usize;
        assert!(
            block < self.num_blocks,
            "a block table holds blocks of the pool"
        );
        ((layer * self.num_blocks + block) * self.num_heads + head) * self.tile()
    }

    fn num_elements(&self) -> Option<usize> {
        self.num_layers
            .checked_mul(self.num_blocks)?
            .checked_mul(self.num_heads)?
            .checked_mul(self.head_dim)?
            .checked_mul(self.block_size)
    }
}

/// Keys and values, stored as E.
#[derive(Debug)]
pub(crate) struct KvCache<E: Plain> {
    shape: KvShape,
    keys: Buffer<E>,
    values: Buffer<E>,
}

impl<E: Element + Plain> KvCache<E> {
    /// Takes memory; `None` if there is not as much.
    pub(crate) fn new(shape: KvShape) -> Option<Self> {
        let len = shape.num_elements()?;
        Some(Self {
            shape,
            keys: Buffer::zeroed(len)?,
            values: Buffer::zeroed(len)?,
        })
    }

    /// Copies a block in all layers.
    pub(crate) fn copy_block(&mut self, from: BlockId, to: BlockId) {
        let len = self.shape.num_heads * self.shape.tile();
        for layer in 0..self.shape.num_layers {
            let from = self.shape.start(layer, from, 0);
            let to = self.shape.start(layer, to, 0);
            self.keys.copy_within(from..from + len, to);
            self.values.copy_within(from..from + len, to);
        }
    }

    /// Borrows it for the threads of a step.
    pub(crate) fn view(&mut self) -> KvView<'_, E> {
        KvView {
            shape: self.shape,
            keys: Shared::new(&mut self.keys),
            values: Shared::new(&mut self.values),
        }
    }
}

/// A cache that several threads use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KvView<'a, E> {
    shape: KvShape,
    keys: Shared<'a, E>,
    values: Shared<'a, E>,
}

impl<'a, E: Element + Plain> KvView<'a, E> {
    /// Returns the sizes.
    pub(crate) fn shape(&self) -> &KvShape {
        &self.shape
    }

    /// Writes key and value of a token's head.
    ///
    /// # Safety
    /// No other thread uses this token's head meanwhile.
    pub(crate) unsafe fn write(
        &self,
        layer: usize,
        table: &[BlockId],
        position: usize,
        head: usize,
        (key, value): (&[f32], &[f32]),
    ) {
        let (block_size, head_dim) = (self.shape.block_size, self.shape.head_dim);
        let offset = position % block_size;
        let start = self.shape.start(layer, table[position / block_size], head);
        // SAFETY: the caller's promise.
        let values = unsafe { self.values.write(start + offset * head_dim, head_dim) };
        for (to, &x) in values.iter_mut().zip(value) {
            *to = E::from_f32(x);
        }
        for (index, &x) in key.iter().enumerate() {
            // SAFETY: the caller's promise.
            let to = unsafe { self.keys.write(start + index * block_size + offset, 1) };
            to[0] = E::from_f32(x);
        }
    }

    /// Returns the keys of a head in a block. `(head_dim, block_size)`
    ///
    /// # Safety
    /// Nobody writes them while the result lives.
    #[inline]
    pub(crate) unsafe fn keys(&self, layer: usize, block: BlockId, head: usize) -> &'a [E] {
        let start = self.shape.start(layer, block, head);
        // SAFETY: the caller's promise.
        unsafe { self.keys.read(start, self.shape.tile()) }
    }

    /// Returns the values of a head in a block. `(block_size, head_dim)`
    ///
    /// # Safety
    /// Nobody writes them while the result lives.
    #[inline]
    pub(crate) unsafe fn values(&self, layer: usize, block: BlockId, head: usize) -> &'a [E] {
        let start = self.shape.start(layer, block, head);
        // SAFETY: the caller's promise.
        unsafe { self.values.read(start, self.shape.tile()) }
    }
}
