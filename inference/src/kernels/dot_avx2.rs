//! Products of packed matrices with quantised rows in AVX2: a block of eight
//! rows is taken apart once, and multiplied with up to four activation rows.
//!
//! Guarantee: the bits of [`super::dot_portable`].

#![expect(unsafe_code, reason = "intrinsics, and tiles walked by pointer")]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _mm_cvtsi64_si128, _mm_loadu_si128, _mm256_abs_epi8,
    _mm256_add_epi16, _mm256_add_epi32, _mm256_and_si256, _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps,
    _mm256_cvtepu8_epi32, _mm256_cvtph_ps, _mm256_fmadd_ps, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_mul_ps, _mm256_or_si256, _mm256_set1_epi8, _mm256_set1_epi16,
    _mm256_set1_epi32, _mm256_set1_ps, _mm256_setzero_ps, _mm256_setzero_si256, _mm256_sign_epi8,
    _mm256_slli_epi16, _mm256_slli_epi32, _mm256_srli_epi16, _mm256_storeu_ps, _mm256_sub_epi32,
    _mm256_sub_ps,
};
use std::ops::Range;

use crate::kernels::gguf_blocks::BlockType;
use crate::kernels::isa::Avx2;
use crate::kernels::matmul::OutputRows;
use crate::kernels::packed::{GROUPS, PackedMatrix, TILE, TileLayout};
use crate::kernels::quantize::{BLOCK, BlockScale, QuantizedRows};

/// Activation rows that share a block in registers: accumulators, the block
/// and its scales fit the 16 there are.
const MAX_ROWS: usize = 4;

/// Bytes of activations that stay in the second cache beside a tile.
const PANEL_BYTES: usize = 128 << 10;

/// Writes the columns of some tiles, for all rows.
pub(crate) fn multiply(
    proof: Avx2,
    matrix: &PackedMatrix,
    rows: QuantizedRows<'_>,
    tiles: Range<usize>,
    output: &mut OutputRows<'_>,
) {
    let run = match matrix.block_type() {
        BlockType::Q4_0 => featured::<Simple<0, 4, 8, false>>,
        BlockType::Q4_1 => featured::<Simple<1, 4, 0, true>>,
        BlockType::Q5_0 => featured::<Simple<2, 5, 16, false>>,
        BlockType::Q5_1 => featured::<Simple<3, 5, 0, true>>,
        BlockType::Q8_0 => featured::<Simple<4, 8, 0, false>>,
        BlockType::Q4K => featured::<SuperMinimum<4>>,
        BlockType::Q5K => featured::<SuperMinimum<5>>,
        BlockType::Q2K => featured::<Halves<2, 0, true>>,
        BlockType::Q3K => featured::<Halves<3, 2, false>>,
        BlockType::Q6K => featured::<Halves<6, 5, false>>,
    };
    // SAFETY: `proof` exists only where the processor has these features.
    unsafe { run(proof, matrix, rows, tiles, output) }
}

/// # Safety
/// The processor has the features, which `_proof` says.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn featured<F: Format>(
    _proof: Avx2,
    matrix: &PackedMatrix,
    rows: QuantizedRows<'_>,
    tiles: Range<usize>,
    output: &mut OutputRows<'_>,
) {
    let num_rows = rows.values.len() / rows.width;
    assert_eq!(rows.width, matrix.num_columns());
    assert_eq!(rows.values.len(), num_rows * rows.width);
    assert_eq!(rows.scales.len(), num_rows * (rows.width / BLOCK));
    let panel = (PANEL_BYTES / rows.width).clamp(MAX_ROWS, 256) / MAX_ROWS * MAX_ROWS;
    for start in (0..num_rows).step_by(panel) {
        let end = num_rows.min(start + panel);
        for tile in tiles.clone() {
            let weights = matrix.tile(tile);
            let mut row = start;
            while row < end {
                // SAFETY: the rows are there, by the assertions, and the tile
                // has as many columns as they.
                unsafe {
                    match end - row {
                        1 => tile_product::<F, 1>(weights, rows, row, tile, output),
                        2 => tile_product::<F, 2>(weights, rows, row, tile, output),
                        3 => tile_product::<F, 3>(weights, rows, row, tile, output),
                        _ => tile_product::<F, MAX_ROWS>(weights, rows, row, tile, output),
                    }
                }
                row += MAX_ROWS;
            }
        }
    }
}

/// Multiplies a tile with M rows from `row`.
///
/// # Safety
/// The features; rows `row` to `row + M` exist, and are as wide as the tile.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile_product<F: Format, const M: usize>(
    weights: &[u8],
    rows: QuantizedRows<'_>,
    row: usize,
    tile: usize,
    output: &mut OutputRows<'_>,
) {
    let num_blocks = rows.width / BLOCK;
    let mut from = weights.as_ptr();
    // SAFETY: the tile has `num_blocks` blocks in superblocks of the layout,
    // and M rows from `row` have as many.
    unsafe {
        let mut values = rows.values.as_ptr().add(row * rows.width);
        let mut scales = rows.scales.as_ptr().add(row * num_blocks);
        let mut sums = [_mm256_setzero_ps(); M];
        for _ in 0..num_blocks / F::LAYOUT.blocks {
            let head = F::read_head(from);
            from = from.add(F::LAYOUT.head_bytes());
            for _ in 0..F::LAYOUT.blocks {
                let block = F::read_block(head, from);
                for (m, sum) in sums.iter_mut().enumerate() {
                    let values = values.add(m * rows.width);
                    *sum = F::add(&block, values, scales.add(m * num_blocks), *sum);
                }
                from = from.add(F::LAYOUT.block_bytes());
                values = values.add(BLOCK);
                scales = scales.add(1);
            }
        }
        for (m, sum) in sums.iter().enumerate() {
            let mut lanes = [0.0; TILE];
            _mm256_storeu_ps(lanes.as_mut_ptr(), *sum);
            output.put(row + m, tile, &lanes);
        }
    }
}

/// How a type of blocks is multiplied.
///
/// # Safety
/// All functions need AVX2, FMA and F16C.
trait Format {
    /// How it lies.
    const LAYOUT: TileLayout;

    /// Scales of a superblock.
    type Head: Copy;

    /// A block, taken apart.
    type Block;

    /// Reads what stands before a superblock's blocks.
    unsafe fn read_head(from: *const u8) -> Self::Head;

    /// Takes a block apart.
    unsafe fn read_block(head: Self::Head, from: *const u8) -> Self::Block;

    /// Adds a block's product with 32 values to the sums.
    unsafe fn add(
        block: &Self::Block,
        values: *const i8,
        scale: *const BlockScale,
        sums: __m256,
    ) -> __m256;
}

/// Weights of a block as bytes, one vector a group.
type Groups = [__m256i; GROUPS];

#[inline(always)]
unsafe fn load(from: *const u8, vector: usize) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe { _mm256_loadu_si256(from.add(vector * 32).cast()) }
}

/// Eight f16.
#[inline(always)]
unsafe fn load_halves(from: *const u8, field: usize) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.add(field * 2 * TILE).cast())) }
}

/// Eight bytes.
#[inline(always)]
unsafe fn load_bytes(from: *const u8, field: usize) -> __m128i {
    // SAFETY: the caller's promise.
    unsafe { _mm_cvtsi64_si128(from.add(field * TILE).cast::<i64>().read_unaligned()) }
}

/// Eight bytes as numbers.
#[inline(always)]
unsafe fn whole(from: *const u8, field: usize) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_bytes(from, field))) }
}

/// Ands `vector`, shifted right by `RIGHT` or left by minus that, with a byte.
#[inline(always)]
unsafe fn part(vector: __m256i, right: usize, left: usize, mask: i8) -> __m256i {
    // SAFETY: the caller's promise. Shifts are of known width after inlining.
    unsafe {
        let shifted = match (right, left) {
            (1, 0) => _mm256_srli_epi16::<1>(vector),
            (2, 0) => _mm256_srli_epi16::<2>(vector),
            (3, 0) => _mm256_srli_epi16::<3>(vector),
            (4, 0) => _mm256_srli_epi16::<4>(vector),
            (5, 0) => _mm256_srli_epi16::<5>(vector),
            (6, 0) => _mm256_srli_epi16::<6>(vector),
            (0, 1) => _mm256_slli_epi16::<1>(vector),
            (0, 2) => _mm256_slli_epi16::<2>(vector),
            (0, 3) => _mm256_slli_epi16::<3>(vector),
            (0, 4) => _mm256_slli_epi16::<4>(vector),
            _ => vector,
        };
        _mm256_and_si256(shifted, _mm256_set1_epi8(mask))
    }
}

/// Puts bits `from_bit`.. of each byte, `width` of them, at bit `to_bit`.
#[inline(always)]
unsafe fn moved(vector: __m256i, from_bit: usize, width: usize, to_bit: usize) -> __m256i {
    let mask = (((1 << width) - 1) << to_bit) as i8;
    let right = from_bit.saturating_sub(to_bit);
    // SAFETY: the caller's promise.
    unsafe { part(vector, right, to_bit.saturating_sub(from_bit), mask) }
}

/// Takes the integers of a block apart.
#[inline(always)]
unsafe fn unpack<const BITS: usize>(from: *const u8) -> Groups {
    // SAFETY: the caller's promise: BITS vectors from `from`.
    unsafe {
        let mut groups = [_mm256_setzero_si256(); GROUPS];
        if BITS == 8 {
            for (group, to) in groups.iter_mut().enumerate() {
                *to = load(from, group);
            }
        } else if BITS >= 4 {
            for vector in 0..4 {
                let both = load(from, vector);
                groups[vector] = moved(both, 0, 4, 0);
                groups[vector + 4] = moved(both, 4, 4, 0);
            }
        } else {
            for (group, to) in groups.iter_mut().enumerate() {
                *to = moved(load(from, group / 4), group % 4 * 2, 2, 0);
            }
        }
        // The highest bits stand apart: one of 3 and 5 bits, two of 6.
        let (width, per_vector, to_bit) = match BITS {
            3 => (1, 8, 2),
            5 => (1, 8, 4),
            6 => (2, 4, 4),
            _ => return groups,
        };
        for (group, to) in groups.iter_mut().enumerate() {
            let high = load(from, to_bit + group / per_vector);
            let high = moved(high, group % per_vector * width, width, to_bit);
            *to = _mm256_or_si256(*to, high);
        }
        groups
    }
}

/// Products of a group with four values, summed by pairs, as i16.
///
/// Signed weights and values of magnitude 127 stay below 2^15.
#[inline(always)]
unsafe fn pairs<const BITS: usize>(group: __m256i, values: *const i8, index: usize) -> __m256i {
    // SAFETY: the caller's promise: 32 values.
    unsafe {
        let four = values.add(index * 4).cast::<[u8; 4]>().read();
        let four = _mm256_set1_epi32(i32::from_le_bytes(four));
        if BITS == 8 {
            _mm256_maddubs_epi16(_mm256_abs_epi8(group), _mm256_sign_epi8(four, group))
        } else {
            _mm256_maddubs_epi16(group, four)
        }
    }
}

/// Sums the products of the groups from `first` to `first + COUNT`, each pair times `factor`.
///
/// As many pairs are added as i16 as fit it: 2 * 127 * (2^BITS - 1) each.
#[inline(always)]
unsafe fn dot<const BITS: usize>(
    groups: &Groups,
    values: *const i8,
    indices: Range<usize>,
    factor: __m256i,
) -> __m256i {
    let fitting = match BITS {
        8 => 1,
        6 => 2,
        5 => 4,
        _ => 8,
    };
    // SAFETY: the caller's promise.
    unsafe {
        let mut total = _mm256_setzero_si256();
        let mut first = indices.start;
        while first < indices.end {
            let mut sum = pairs::<BITS>(groups[first], values, first);
            let end = indices.end.min(first + fitting);
            let mut index = first + 1;
            while index < end {
                sum = _mm256_add_epi16(sum, pairs::<BITS>(groups[index], values, index));
                index += 1;
            }
            let sum = _mm256_madd_epi16(sum, factor);
            total = if first == indices.start {
                sum
            } else {
                _mm256_add_epi32(total, sum)
            };
            first = end;
        }
        total
    }
}

/// Adds `scale * values.scale * product`.
#[inline(always)]
unsafe fn add_scaled(
    scale: __m256,
    of_values: *const BlockScale,
    product: __m256i,
    sums: __m256,
) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe {
        let scale = _mm256_mul_ps(scale, _mm256_set1_ps((*of_values).scale));
        _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(product), sums)
    }
}

/// Blocks without a superblock: f16 scale, and f16 minimum or a fixed offset.
struct Simple<const TYPE: usize, const BITS: usize, const OFFSET: i32, const MINIMUM: bool>;

struct SimpleBlock {
    groups: Groups,
    scale: __m256,
    minimum: __m256,
}

impl<const TYPE: usize, const BITS: usize, const OFFSET: i32, const MINIMUM: bool> Format
    for Simple<TYPE, BITS, OFFSET, MINIMUM>
{
    const LAYOUT: TileLayout = TileLayout::of(match TYPE {
        0 => BlockType::Q4_0,
        1 => BlockType::Q4_1,
        2 => BlockType::Q5_0,
        3 => BlockType::Q5_1,
        _ => BlockType::Q8_0,
    });

    type Head = ();
    type Block = SimpleBlock;

    #[inline(always)]
    unsafe fn read_head(_from: *const u8) {}

    #[inline(always)]
    unsafe fn read_block((): (), from: *const u8) -> SimpleBlock {
        // SAFETY: the caller's promise.
        unsafe {
            let scale = load_halves(from, 0);
            SimpleBlock {
                groups: unpack::<BITS>(from.add(Self::LAYOUT.scales_bytes())),
                scale,
                minimum: if MINIMUM { load_halves(from, 1) } else { scale },
            }
        }
    }

    #[inline(always)]
    unsafe fn add(
        block: &SimpleBlock,
        values: *const i8,
        scale: *const BlockScale,
        sums: __m256,
    ) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            let mut product = dot::<BITS>(&block.groups, values, 0..GROUPS, ones);
            if OFFSET != 0 {
                let [first, second] = (*scale).half_sums;
                let sum = i32::from(first) + i32::from(second);
                product = _mm256_sub_epi32(product, _mm256_set1_epi32(OFFSET * sum));
            }
            let sums = add_scaled(block.scale, scale, product, sums);
            if MINIMUM {
                let sum = _mm256_set1_ps((*scale).scaled_sum);
                return _mm256_fmadd_ps(block.minimum, sum, sums);
            }
            sums
        }
    }
}

/// Superblocks whose blocks have a scale and a minimum of 6 bits.
struct SuperMinimum<const BITS: usize>;

impl<const BITS: usize> Format for SuperMinimum<BITS> {
    const LAYOUT: TileLayout = TileLayout::of(if BITS == 4 {
        BlockType::Q4K
    } else {
        BlockType::Q5K
    });

    /// Scale, and minimum negated.
    type Head = (__m256, __m256);
    type Block = SimpleBlock;

    #[inline(always)]
    unsafe fn read_head(from: *const u8) -> Self::Head {
        // SAFETY: the caller's promise.
        unsafe {
            let minimum = _mm256_sub_ps(_mm256_set1_ps(-0.0), load_halves(from, 1));
            (load_halves(from, 0), minimum)
        }
    }

    #[inline(always)]
    unsafe fn read_block(head: Self::Head, from: *const u8) -> SimpleBlock {
        // SAFETY: the caller's promise.
        unsafe {
            SimpleBlock {
                groups: unpack::<BITS>(from.add(Self::LAYOUT.scales_bytes())),
                scale: _mm256_mul_ps(head.0, whole(from, 0)),
                minimum: _mm256_mul_ps(head.1, whole(from, 1)),
            }
        }
    }

    #[inline(always)]
    unsafe fn add(
        block: &SimpleBlock,
        values: *const i8,
        scale: *const BlockScale,
        sums: __m256,
    ) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { <Simple<1, BITS, 0, true> as Format>::add(block, values, scale, sums) }
    }
}

/// Superblocks whose halves of blocks have whole scales; integers less 2^SHIFT
/// where that is not 0, or with whole minima.
struct Halves<const BITS: usize, const SHIFT: i32, const MINIMUM: bool>;

struct HalvesBlock {
    groups: Groups,
    scale: __m256,
    minimum: __m256,
    /// Whole scale of each half, twice: what pairs are multiplied with.
    factors: [__m256i; 2],
    /// Whole scale of the first half, and of the second.
    both: __m256i,
    /// Whole minimum of the first half, and of the second.
    minima: __m256i,
}

/// Two i32 below 2^15 as pairs of i16.
#[inline(always)]
unsafe fn paired(first: __m256i, second: __m256i) -> __m256i {
    // SAFETY: the caller's promise.
    unsafe {
        let low = _mm256_and_si256(first, _mm256_set1_epi32(0xffff));
        _mm256_or_si256(low, _mm256_slli_epi32::<16>(second))
    }
}

impl<const BITS: usize, const SHIFT: i32, const MINIMUM: bool> Format
    for Halves<BITS, SHIFT, MINIMUM>
{
    const LAYOUT: TileLayout = TileLayout::of(match BITS {
        2 => BlockType::Q2K,
        3 => BlockType::Q3K,
        _ => BlockType::Q6K,
    });

    /// Scale, and minimum negated.
    type Head = (__m256, __m256);
    type Block = HalvesBlock;

    #[inline(always)]
    unsafe fn read_head(from: *const u8) -> Self::Head {
        // SAFETY: the caller's promise.
        unsafe {
            let scale = load_halves(from, 0);
            if MINIMUM {
                let minimum = load_halves(from, 1);
                return (scale, _mm256_sub_ps(_mm256_set1_ps(-0.0), minimum));
            }
            (scale, scale)
        }
    }

    #[inline(always)]
    unsafe fn read_block(head: Self::Head, from: *const u8) -> HalvesBlock {
        // SAFETY: the caller's promise.
        unsafe {
            let mut scales = [_mm256_setzero_si256(); 2];
            let mut minima = scales;
            for field in 0..2 {
                let bytes = load_bytes(from, field);
                if MINIMUM {
                    let bytes = _mm256_cvtepu8_epi32(bytes);
                    scales[field] = _mm256_and_si256(bytes, _mm256_set1_epi32(15));
                    minima[field] = _mm256_srli_epi16::<4>(bytes);
                } else {
                    scales[field] = _mm256_cvtepi8_epi32(bytes);
                }
            }
            HalvesBlock {
                groups: unpack::<BITS>(from.add(Self::LAYOUT.scales_bytes())),
                scale: head.0,
                minimum: head.1,
                factors: [paired(scales[0], scales[0]), paired(scales[1], scales[1])],
                both: paired(scales[0], scales[1]),
                minima: paired(minima[0], minima[1]),
            }
        }
    }

    #[inline(always)]
    unsafe fn add(
        block: &HalvesBlock,
        values: *const i8,
        scale: *const BlockScale,
        sums: __m256,
    ) -> __m256 {
        // SAFETY: the caller's promise; the sums of the halves are two i16.
        unsafe {
            let first = dot::<BITS>(&block.groups, values, 0..4, block.factors[0]);
            let second = dot::<BITS>(&block.groups, values, 4..8, block.factors[1]);
            let mut product = _mm256_add_epi32(first, second);
            let [low, high] = (*scale).half_sums;
            let half_sums = i32::from(low) & 0xffff | i32::from(high) << 16;
            let half_sums = _mm256_set1_epi32(half_sums);
            if SHIFT != 0 {
                let offset = _mm256_madd_epi16(block.both, half_sums);
                product = _mm256_sub_epi32(product, _mm256_slli_epi32::<SHIFT>(offset));
            }
            let sums = add_scaled(block.scale, scale, product, sums);
            if MINIMUM {
                let minimum = _mm256_madd_epi16(block.minima, half_sums);
                return add_scaled(block.minimum, scale, minimum, sums);
            }
            sums
        }
    }
}
