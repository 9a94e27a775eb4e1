//! Quantised matrices in memory: tiles of eight rows, interleaved so that one
//! vector holds four neighbours of each row, in the bits that the file spends.
//!
//! A tile is its superblocks in order; one is its f16 scales, then its blocks
//! of 32 columns; one of these is its scales, then its integers.
//! Guarantee: nothing is lost, each weight is read back as it was.

use half::f16;

use crate::kernels::buffer::Buffer;
use crate::kernels::gguf_blocks::{BlockType, RawBlock};
use crate::kernels::lanes::NUM_LANES;

/// Rows of a tile.
pub(crate) const TILE: usize = NUM_LANES;

/// Bytes of a vector: four columns of eight rows.
const VECTOR: usize = 32;

/// Vectors of a block as 8-bit integers.
pub(crate) const GROUPS: usize = 8;

/// The integers of a block: group, then row, then column. (8, 8, 4)
pub(crate) type Quants = [[u8; VECTOR]; GROUPS];

/// How a type of blocks lies in a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileLayout {
    /// Of one integer.
    pub(crate) bits: usize,
    /// Of a superblock.
    pub(crate) blocks: usize,
    /// f16 scales of a superblock, for each row.
    pub(crate) super_scales: usize,
    /// Scales of a block, for each row.
    pub(crate) scales: usize,
    /// Of one scale: 2 for f16, 1 for a whole number.
    pub(crate) scale_bytes: usize,
}

impl TileLayout {
    /// Returns how a type lies.
    pub(crate) const fn of(block_type: BlockType) -> Self {
        let (bits, blocks, super_scales, scales, scale_bytes) = match block_type {
            BlockType::Q4_0 => (4, 1, 0, 1, 2),
            BlockType::Q4_1 => (4, 1, 0, 2, 2),
            BlockType::Q5_0 => (5, 1, 0, 1, 2),
            BlockType::Q5_1 => (5, 1, 0, 2, 2),
            BlockType::Q8_0 => (8, 1, 0, 1, 2),
            BlockType::Q2K => (2, 8, 2, 2, 1),
            BlockType::Q3K => (3, 8, 1, 2, 1),
            BlockType::Q4K => (4, 8, 2, 2, 1),
            BlockType::Q5K => (5, 8, 2, 2, 1),
            BlockType::Q6K => (6, 8, 1, 2, 1),
        };
        Self {
            bits,
            blocks,
            super_scales,
            scales,
            scale_bytes,
        }
    }

    /// Bytes before the first block of a superblock.
    pub(crate) const fn head_bytes(self) -> usize {
        self.super_scales * 2 * TILE
    }

    /// Bytes before the integers of a block.
    pub(crate) const fn scales_bytes(self) -> usize {
        self.scales * self.scale_bytes * TILE
    }

    /// Bytes of a block.
    pub(crate) const fn block_bytes(self) -> usize {
        self.scales_bytes() + self.bits * VECTOR
    }

    /// Bytes of a superblock.
    pub(crate) const fn super_bytes(self) -> usize {
        self.head_bytes() + self.blocks * self.block_bytes()
    }
}

/// A block of eight rows, taken apart. Its weight i of row r is
/// `scale * sub_scale * q + minimum * sub_minimum`, with q signed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TileBlock {
    /// Signed integers: row, then column.
    pub(crate) quants: [[i8; 32]; TILE],
    /// Factor of the integers of each row.
    pub(crate) scale: [f32; TILE],
    /// Whole factor of each half of each row.
    pub(crate) sub_scale: [[i32; TILE]; 2],
    /// Addend of each row, or its factor; zero where there is none.
    pub(crate) minimum: [f32; TILE],
    /// Whole factor of the addend of each half.
    pub(crate) sub_minimum: [[i32; TILE]; 2],
}

/// A quantised matrix. `(num_rows, num_columns)`
#[derive(Debug)]
pub(crate) struct PackedMatrix {
    block_type: BlockType,
    num_rows: usize,
    num_columns: usize,
    data: Buffer<u8>,
}

impl PackedMatrix {
    /// Takes memory for a matrix; `None` if there is not as much.
    ///
    /// `num_columns` is a multiple of the type's.
    pub(crate) fn zeroed(
        block_type: BlockType,
        num_rows: usize,
        num_columns: usize,
    ) -> Option<Self> {
        assert!(num_columns.is_multiple_of(block_type.weights()));
        let layout = TileLayout::of(block_type);
        let tile_bytes = num_columns / 32 / layout.blocks * layout.super_bytes();
        let num_bytes = num_rows.div_ceil(TILE).checked_mul(tile_bytes)?;
        Some(Self {
            block_type,
            num_rows,
            num_columns,
            data: Buffer::zeroed(num_bytes)?,
        })
    }

    /// Packs whole rows as GGUF stores them.
    ///
    /// `first_row` is a multiple of [`TILE`], and so is the number of rows but at the end.
    pub(crate) fn put_rows(&mut self, first_row: usize, rows: &[u8]) {
        let (block_type, num_columns) = (self.block_type, self.num_columns);
        let layout = TileLayout::of(block_type);
        let row_bytes = num_columns / block_type.weights() * block_type.bytes();
        let tile_bytes = num_columns / 32 / layout.blocks * layout.super_bytes();
        let num_rows = rows.len() / row_bytes;
        assert!(first_row.is_multiple_of(TILE) && first_row + num_rows <= self.num_rows);
        let tiles = self.data[first_row / TILE * tile_bytes..].chunks_exact_mut(tile_bytes);
        for (to, rows) in tiles.zip(rows.chunks(TILE * row_bytes)) {
            let tile: [&[u8]; TILE] = std::array::from_fn(|row| {
                rows.get(row * row_bytes..(row + 1) * row_bytes)
                    .unwrap_or_default()
            });
            for (index, to) in to.chunks_exact_mut(layout.super_bytes()).enumerate() {
                let (head, blocks) = to.split_at_mut(layout.head_bytes());
                let blocks = blocks.chunks_exact_mut(layout.block_bytes());
                for (part, to) in blocks.enumerate() {
                    let raw: [RawBlock; TILE] = std::array::from_fn(|row| match tile[row] {
                        [] => RawBlock::default(),
                        from => block_type.read(from, index * layout.blocks + part),
                    });
                    if part == 0 {
                        put_super_scales(&raw, head);
                    }
                    put_block(layout, &raw, to);
                }
            }
        }
    }

    /// Returns the type of the blocks.
    pub(crate) fn block_type(&self) -> BlockType {
        self.block_type
    }

    /// Returns the number of rows.
    pub(crate) fn num_rows(&self) -> usize {
        self.num_rows
    }

    /// Returns the number of columns.
    pub(crate) fn num_columns(&self) -> usize {
        self.num_columns
    }

    /// Returns the bytes in memory.
    pub(crate) fn num_bytes(&self) -> usize {
        self.data.len()
    }

    /// Returns the bytes of a tile.
    pub(crate) fn tile(&self, tile: usize) -> &[u8] {
        let layout = TileLayout::of(self.block_type);
        let bytes = self.num_columns / 32 / layout.blocks * layout.super_bytes();
        &self.data[tile * bytes..][..bytes]
    }

    /// Takes apart block `index` of 32 columns of a tile.
    pub(crate) fn block(&self, tile: usize, index: usize) -> TileBlock {
        let layout = TileLayout::of(self.block_type);
        let from = &self.tile(tile)[index / layout.blocks * layout.super_bytes()..];
        let (head, blocks) = from.split_at(layout.head_bytes());
        let block = &blocks[index % layout.blocks * layout.block_bytes()..];
        read_block(self.block_type, head, block)
    }

    /// Writes the weights of a row, as the type's formula gives them, without fused operations.
    pub(crate) fn read_row(&self, row: usize, to: &mut [f32]) {
        let lane = row % TILE;
        for (index, to) in to.chunks_exact_mut(32).enumerate() {
            let block = self.block(row / TILE, index);
            for (column, to) in to.iter_mut().enumerate() {
                let half = column / 16;
                let scale = block.scale[lane] * block.sub_scale[half][lane] as f32;
                let minimum = block.minimum[lane] * block.sub_minimum[half][lane] as f32;
                *to = scale * f32::from(block.quants[lane][column]) + minimum;
            }
        }
    }
}

fn put_super_scales(raw: &[RawBlock; TILE], head: &mut [u8]) {
    for (field, to) in head.chunks_exact_mut(2 * TILE).enumerate() {
        for (to, raw) in to.chunks_exact_mut(2).zip(raw) {
            to.copy_from_slice(&raw.super_scales[field].to_le_bytes());
        }
    }
}

fn put_block(layout: TileLayout, raw: &[RawBlock; TILE], to: &mut [u8]) {
    let (scales, packed) = to.split_at_mut(layout.scales_bytes());
    for (field, to) in scales
        .chunks_exact_mut(layout.scale_bytes * TILE)
        .enumerate()
    {
        for (to, raw) in to.chunks_exact_mut(layout.scale_bytes).zip(raw) {
            to.copy_from_slice(&raw.scales[field].to_le_bytes()[..layout.scale_bytes]);
        }
    }
    let mut quants = Quants::default();
    for (row, raw) in raw.iter().enumerate() {
        for (group, from) in quants.iter_mut().zip(raw.quants.as_chunks::<4>().0) {
            group[row * 4..][..4].copy_from_slice(from);
        }
    }
    let vectors = packed.as_chunks_mut::<VECTOR>().0;
    match layout.bits {
        2 => put_bits(&quants, 2, vectors),
        3 => {
            put_bits(&quants, 2, &mut vectors[..2]);
            put_bits(&quants.map(|q| q.map(|q| q >> 2)), 1, &mut vectors[2..]);
        }
        4 => put_nibbles(&quants, vectors),
        5 => {
            put_nibbles(&quants, &mut vectors[..4]);
            put_bits(&quants.map(|q| q.map(|q| q >> 4)), 1, &mut vectors[4..]);
        }
        6 => {
            put_nibbles(&quants, &mut vectors[..4]);
            put_bits(&quants.map(|q| q.map(|q| q >> 4)), 2, &mut vectors[4..]);
        }
        _ => vectors.copy_from_slice(&quants),
    }
}

/// Group g and group g + 4 share a vector: what one load gives both of.
fn put_nibbles(quants: &Quants, to: &mut [[u8; VECTOR]]) {
    for (group, to) in to.iter_mut().enumerate() {
        for (lane, to) in to.iter_mut().enumerate() {
            *to = quants[group][lane] & 15 | quants[group + 4][lane] << 4;
        }
    }
}

/// Neighbouring groups share a vector, the first in its lowest bits.
fn put_bits(quants: &Quants, bits: usize, to: &mut [[u8; VECTOR]]) {
    let per_vector = 8 / bits;
    for (group, quants) in quants.iter().enumerate() {
        let to = &mut to[group / per_vector];
        for (to, quant) in to.iter_mut().zip(quants) {
            *to |= (quant & ((1 << bits) - 1)) << (group % per_vector * bits);
        }
    }
}

fn get_nibbles(from: &[[u8; VECTOR]]) -> Quants {
    std::array::from_fn(|group| from[group % 4].map(|byte| byte >> (group / 4 * 4) & 15))
}

fn get_bits(from: &[[u8; VECTOR]], bits: usize) -> Quants {
    let per_vector = 8 / bits;
    std::array::from_fn(|group| {
        from[group / per_vector].map(|byte| byte >> (group % per_vector * bits) & ((1 << bits) - 1))
    })
}

fn joined(low: &Quants, high: &Quants, shift: usize) -> Quants {
    std::array::from_fn(|group| {
        std::array::from_fn(|lane| low[group][lane] | high[group][lane] << shift)
    })
}

fn get_quants(layout: TileLayout, packed: &[u8]) -> Quants {
    let vectors = packed.as_chunks::<VECTOR>().0;
    match layout.bits {
        2 => get_bits(vectors, 2),
        3 => joined(&get_bits(vectors, 2), &get_bits(&vectors[2..], 1), 2),
        4 => get_nibbles(vectors),
        5 => joined(&get_nibbles(vectors), &get_bits(&vectors[4..], 1), 4),
        6 => joined(&get_nibbles(vectors), &get_bits(&vectors[4..], 2), 4),
        _ => std::array::from_fn(|group| vectors[group]),
    }
}

fn read_block(block_type: BlockType, head: &[u8], block: &[u8]) -> TileBlock {
    let layout = TileLayout::of(block_type);
    let (scales, packed) = block.split_at(layout.scales_bytes());
    let half = |from: &[u8], field: usize| -> [f32; TILE] {
        std::array::from_fn(|row| {
            let at = (field * TILE + row) * 2;
            f16::from_le_bytes([from[at], from[at + 1]]).to_f32()
        })
    };
    let byte =
        |field: usize| -> [u8; TILE] { std::array::from_fn(|row| scales[field * TILE + row]) };
    let ones = [[1; TILE]; 2];
    let signed = |field: usize| byte(field).map(|x| i32::from(x.cast_signed()));
    let product = |a: [f32; TILE], b: [u8; TILE], sign: f32| -> [f32; TILE] {
        std::array::from_fn(|row| sign * (a[row] * f32::from(b[row])))
    };
    let (offset, scale, sub_scale, minimum, sub_minimum) = match block_type {
        BlockType::Q4_0 => (8, half(scales, 0), ones, [0.0; TILE], ones),
        BlockType::Q5_0 => (16, half(scales, 0), ones, [0.0; TILE], ones),
        BlockType::Q8_0 => (0, half(scales, 0), ones, [0.0; TILE], ones),
        BlockType::Q4_1 | BlockType::Q5_1 => (0, half(scales, 0), ones, half(scales, 1), ones),
        // Products of 11 and 6 bits: exact.
        BlockType::Q4K | BlockType::Q5K => (
            0,
            product(half(head, 0), byte(0), 1.0),
            ones,
            product(half(head, 1), byte(1), -1.0),
            ones,
        ),
        BlockType::Q2K => (
            0,
            half(head, 0),
            [0, 1].map(|field| byte(field).map(|x| i32::from(x & 15))),
            half(head, 1).map(|x| -x),
            [0, 1].map(|field| byte(field).map(|x| i32::from(x >> 4))),
        ),
        BlockType::Q3K => (4, half(head, 0), [0, 1].map(signed), [0.0; TILE], ones),
        BlockType::Q6K => (32, half(head, 0), [0, 1].map(signed), [0.0; TILE], ones),
    };
    let packed = get_quants(layout, packed);
    let quants = std::array::from_fn(|row| {
        std::array::from_fn(|i| {
            packed[i / 4][row * 4 + i % 4]
                .cast_signed()
                .wrapping_sub(offset)
        })
    });
    TileBlock {
        quants,
        scale,
        sub_scale,
        minimum,
        sub_minimum,
    }
}
