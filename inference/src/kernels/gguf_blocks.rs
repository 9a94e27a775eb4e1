//! Blocks of quantised weights as GGUF stores them, taken apart without loss:
//! 32 unsigned integers a block, its scales, and those of its superblock.
//!
//! Layouts are those of ggml's `ggml-common.h` and `ggml-quants.c`.

/// Types of blocks. In formulas, q is a stored integer, d and m are f16.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum BlockType {
    /// d * (q - 8), 4 bits.
    Q4_0,
    /// d * q + m, 4 bits.
    Q4_1,
    /// d * (q - 16), 5 bits.
    Q5_0,
    /// d * q + m, 5 bits.
    Q5_1,
    /// d * q, 8 bits, signed.
    Q8_0,
    /// d * s * q - m * t, 2 bits; s and t of 4 bits for each 16.
    Q2K,
    /// d * s * (q - 4), 3 bits; s of 6 bits, signed, for each 16.
    Q3K,
    /// d * s * q - m * t, 4 bits; s and t of 6 bits for each 32.
    Q4K,
    /// d * s * q - m * t, 5 bits; s and t of 6 bits for each 32.
    Q5K,
    /// d * s * (q - 32), 6 bits; s of 8 bits, signed, for each 16.
    Q6K,
}

/// What a block of 32 weights holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawBlock {
    /// The integers, in order.
    pub(crate) quants: [u8; 32],
    /// Scales of the block: f16 of d and m, or one byte each of s and t, in
    /// the order of [`BlockType`]; Q2K has s and t in one byte, t above.
    pub(crate) scales: [u16; 2],
    /// Scales of the superblock: f16 of d and m.
    pub(crate) super_scales: [u16; 2],
}

impl BlockType {
    /// Weights of a superblock, or of a block where there are none.
    pub(crate) fn weights(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Bytes of [`Self::weights`].
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q2K => 84,
            Self::Q3K => 110,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Reads block `index` of 32 weights from a row. The row holds it.
    pub(crate) fn read(self, row: &[u8], index: usize) -> RawBlock {
        let blocks = self.weights() / 32;
        let bytes = &row[index / blocks * self.bytes()..][..self.bytes()];
        let part = index % blocks;
        match self {
            Self::Q4_0 => RawBlock {
                quants: nibbles(&bytes[2..]),
                scales: [word(bytes, 0), 0],
                ..RawBlock::default()
            },
            Self::Q4_1 => RawBlock {
                quants: nibbles(&bytes[4..]),
                scales: [word(bytes, 0), word(bytes, 2)],
                ..RawBlock::default()
            },
            Self::Q5_0 => RawBlock {
                quants: five_bits(&bytes[2..]),
                scales: [word(bytes, 0), 0],
                ..RawBlock::default()
            },
            Self::Q5_1 => RawBlock {
                quants: five_bits(&bytes[4..]),
                scales: [word(bytes, 0), word(bytes, 2)],
                ..RawBlock::default()
            },
            Self::Q8_0 => RawBlock {
                quants: std::array::from_fn(|i| bytes[2 + i]),
                scales: [word(bytes, 0), 0],
                ..RawBlock::default()
            },
            Self::Q2K => read_q2k(bytes, part),
            Self::Q3K => read_q3k(bytes, part),
            Self::Q4K => RawBlock {
                quants: half_bytes(&bytes[16..], part),
                scales: six_bit_scales(&bytes[4..16], part),
                super_scales: [word(bytes, 0), word(bytes, 2)],
            },
            Self::Q5K => {
                let mut quants = half_bytes(&bytes[48..], part);
                for (quant, high) in quants.iter_mut().zip(&bytes[16..48]) {
                    *quant |= (high >> part & 1) << 4;
                }
                RawBlock {
                    quants,
                    scales: six_bit_scales(&bytes[4..16], part),
                    super_scales: [word(bytes, 0), word(bytes, 2)],
                }
            }
            Self::Q6K => read_q6k(bytes, part),
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

/// Lower halves of 16 bytes, then upper halves.
fn nibbles(bytes: &[u8]) -> [u8; 32] {
    std::array::from_fn(|i| bytes[i % 16] >> (i / 16 * 4) & 15)
}

/// 32 fifth bits, then [`nibbles`].
fn five_bits(bytes: &[u8]) -> [u8; 32] {
    let mut quants = nibbles(&bytes[4..]);
    for (i, quant) in quants.iter_mut().enumerate() {
        *quant |= (bytes[i / 8] >> (i % 8) & 1) << 4;
    }
    quants
}

/// Half of 32 bytes: each pair of blocks shares them.
fn half_bytes(bytes: &[u8], part: usize) -> [u8; 32] {
    std::array::from_fn(|i| bytes[part / 2 * 32 + i] >> (part % 2 * 4) & 15)
}

/// Scale and minimum of one of eight blocks, from 12 bytes.
fn six_bit_scales(bytes: &[u8], part: usize) -> [u16; 2] {
    let (scale, minimum) = if part < 4 {
        (bytes[part] & 63, bytes[part + 4] & 63)
    } else {
        (
            bytes[part + 4] & 15 | bytes[part - 4] >> 6 << 4,
            bytes[part + 4] >> 4 | bytes[part] >> 6 << 4,
        )
    };
    [scale.into(), minimum.into()]
}

fn read_q2k(bytes: &[u8], part: usize) -> RawBlock {
    let quants = &bytes[16 + part / 4 * 32..];
    RawBlock {
        quants: std::array::from_fn(|i| quants[i] >> (part % 4 * 2) & 3),
        scales: [bytes[part * 2].into(), bytes[part * 2 + 1].into()],
        super_scales: [word(bytes, 80), word(bytes, 82)],
    }
}

fn read_q3k(bytes: &[u8], part: usize) -> RawBlock {
    let (high, low, scales) = (&bytes[..32], &bytes[32..96], &bytes[96..108]);
    let scale = |i: usize| {
        let lower = scales[i % 8] >> (i / 8 * 4) & 15;
        let upper = scales[8 + i % 4] >> (i / 4 * 2) & 3;
        u16::from((lower | upper << 4).wrapping_sub(32))
    };
    RawBlock {
        quants: std::array::from_fn(|i| {
            (low[part / 4 * 32 + i] >> (part % 4 * 2) & 3) | (high[i] >> part & 1) << 2
        }),
        scales: [scale(part * 2), scale(part * 2 + 1)],
        super_scales: [word(bytes, 108), 0],
    }
}

fn read_q6k(bytes: &[u8], part: usize) -> RawBlock {
    let (half, quarter) = (part / 4, part % 4);
    let low = &bytes[half * 64 + quarter % 2 * 32..];
    let high = &bytes[128 + half * 32..];
    RawBlock {
        quants: std::array::from_fn(|i| {
            (low[i] >> (quarter / 2 * 4) & 15) | (high[i] >> (quarter * 2) & 3) << 4
        }),
        scales: [
            bytes[192 + part * 2].into(),
            bytes[192 + part * 2 + 1].into(),
        ],
        super_scales: [word(bytes, 208), 0],
    }
}
