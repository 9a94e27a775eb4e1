//! The pool of keys and values in the type that was chosen for it.

#![expect(unsafe_code, reason = "threads write different tokens")]

use half::f16;

use crate::ids::BlockId;
use crate::kernels::attention::{self, AttentionTask};
use crate::kernels::isa::Isa;
use crate::kernels::kv_cache::{KvCache, KvShape, KvView};
use crate::kernels::matmul::OutputRows;

/// Type that keys and values are stored in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum KvType {
    /// IEEE 754 half precision.
    #[default]
    F16,
    /// IEEE 754 single precision.
    F32,
}

impl KvType {
    /// Returns the bytes of one number.
    pub const fn num_bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// Keys and values of all layers.
#[derive(Debug)]
pub(super) enum KvPool {
    F16(KvCache<f16>),
    F32(KvCache<f32>),
}

impl KvPool {
    /// Takes memory; `None` if there is not as much.
    pub(super) fn new(kind: KvType, shape: KvShape) -> Option<Self> {
        match kind {
            KvType::F16 => KvCache::new(shape).map(Self::F16),
            KvType::F32 => KvCache::new(shape).map(Self::F32),
        }
    }

    pub(super) fn copy_block(&mut self, from: BlockId, to: BlockId) {
        match self {
            Self::F16(cache) => cache.copy_block(from, to),
            Self::F32(cache) => cache.copy_block(from, to),
        }
    }

    pub(super) fn view(&mut self) -> KvPoolView<'_> {
        match self {
            Self::F16(cache) => KvPoolView::F16(cache.view()),
            Self::F32(cache) => KvPoolView::F32(cache.view()),
        }
    }
}

/// A pool that several threads use.
#[derive(Clone, Copy, Debug)]
pub(super) enum KvPoolView<'a> {
    F16(KvView<'a, f16>),
    F32(KvView<'a, f32>),
}

impl KvPoolView<'_> {
    /// Writes key and value of a token's head.
    ///
    /// # Safety
    /// No other thread uses this token's head meanwhile.
    pub(super) unsafe fn write(
        &self,
        layer: usize,
        table: &[BlockId],
        position: usize,
        head: usize,
        pair: (&[f32], &[f32]),
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Self::F16(view) => view.write(layer, table, position, head, pair),
                Self::F32(view) => view.write(layer, table, position, head, pair),
            }
        }
    }

    /// Computes all queries of a task.
    pub(super) fn attend(
        &self,
        isa: Isa,
        task: &AttentionTask<'_>,
        scratch: &mut [f32],
        output: &mut OutputRows<'_>,
    ) {
        match self {
            Self::F16(view) => attention::attend_f16(isa, *view, task, scratch, output),
            Self::F32(view) => attention::attend_f32(isa, *view, task, scratch, output),
        }
    }

    /// Computes the states of all queries of a task in one split.
    pub(super) fn attend_split(
        &self,
        isa: Isa,
        task: &AttentionTask<'_>,
        split: usize,
        scratch: &mut [f32],
        states: &mut [f32],
    ) {
        match self {
            Self::F16(view) => {
                attention::attend_split_f16(isa, *view, task, split, scratch, states);
            }
            Self::F32(view) => {
                attention::attend_split_f32(isa, *view, task, split, scratch, states);
            }
        }
    }
}
