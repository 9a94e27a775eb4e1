//! What the bytes of a GGUF tensor mean, one block at a time, as the
//! descriptions of the formats in ggml's documentation have it.

use half::{bf16, f16};

/// Types of tensors that the reference reads, by their number in GGUF.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(non_camel_case_types, reason = "the names of the formats")]
pub(crate) enum Type {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    BF16 = 30,
}

impl Type {
    const ALL: [Self; 13] = [
        Self::F32,
        Self::F16,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q8_0,
        Self::Q2_K,
        Self::Q3_K,
        Self::Q4_K,
        Self::Q5_K,
        Self::Q6_K,
        Self::BF16,
    ];

    pub(crate) fn from_number(number: u32) -> Self {
        let found = Self::ALL
            .into_iter()
            .find(|&candidate| candidate as u32 == number);
        found.unwrap_or_else(|| panic!("the reference does not read type {number}"))
    }

    /// Returns the elements of a block and its bytes.
    pub(crate) fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::BF16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q8_0 => (32, 34),
            Self::Q2_K => (256, 84),
            Self::Q3_K => (256, 110),
            Self::Q4_K => (256, 144),
            Self::Q5_K => (256, 176),
            Self::Q6_K => (256, 210),
        }
    }

    /// Returns the numbers that whole blocks stand for.
    pub(crate) fn dequantize(self, bytes: &[u8]) -> Vec<f32> {
        let (_, block_bytes) = self.block();
        assert!(
            bytes.len().is_multiple_of(block_bytes),
            "whole blocks of {self:?}"
        );
        let mut values = Vec::new();
        for block in bytes.chunks_exact(block_bytes) {
            self.dequantize_block(block, &mut values);
        }
        values
    }

    #[expect(clippy::too_many_lines, reason = "one arm per format")]
    fn dequantize_block(self, block: &[u8], values: &mut Vec<f32>) {
        let half_at = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        match self {
            Self::F32 => values.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
            Self::F16 => values.push(half_at(0)),
            Self::BF16 => values.push(bf16::from_le_bytes([block[0], block[1]]).to_f32()),
            Self::Q4_0 => {
                let numbers = nibbles(&block[2..]).map(|q| f32::from(q) - 8.0);
                values.extend(numbers.map(|q| q * half_at(0)));
            }
            Self::Q4_1 => {
                values.extend(nibbles(&block[4..]).map(|q| f32::from(q) * half_at(0) + half_at(2)));
            }
            Self::Q5_0 => {
                let numbers = with_fifth_bits(&block[2..6], nibbles(&block[6..]));
                values.extend(numbers.map(|q| (f32::from(q) - 16.0) * half_at(0)));
            }
            Self::Q5_1 => {
                let numbers = with_fifth_bits(&block[4..8], nibbles(&block[8..]));
                values.extend(numbers.map(|q| f32::from(q) * half_at(0) + half_at(2)));
            }
            Self::Q8_0 => {
                values.extend(
                    block[2..]
                        .iter()
                        .map(|&q| f32::from(q.cast_signed()) * half_at(0)),
                );
            }
            Self::Q2_K => {
                let (scales, quants) = (&block[..16], &block[16..80]);
                let (d, d_min) = (half_at(80), half_at(82));
                for index in 0..256 {
                    let scale = scales[index / 16];
                    let byte = quants[index / 128 * 32 + index % 32];
                    let q = byte >> (index % 128 / 32 * 2) & 3;
                    values.push(
                        d * f32::from(scale & 15) * f32::from(q) - d_min * f32::from(scale >> 4),
                    );
                }
            }
            Self::Q3_K => {
                let (high_bits, quants, scales) = (&block[..32], &block[32..96], &block[96..108]);
                let d = half_at(108);
                for index in 0..256 {
                    let group = index / 16;
                    let low = if group < 8 {
                        scales[group] & 15
                    } else {
                        scales[group - 8] >> 4
                    };
                    let high = scales[8 + group % 4] >> (group / 4 * 2) & 3;
                    let scale = f32::from(low | high << 4) - 32.0;
                    let q = quants[index / 128 * 32 + index % 32] >> (index % 128 / 32 * 2) & 3;
                    let is_high = high_bits[index % 32] >> (index / 32) & 1 == 1;
                    let q = f32::from(q) - if is_high { 0.0 } else { 4.0 };
                    values.push(d * scale * q);
                }
            }
            Self::Q4_K | Self::Q5_K => {
                let (d, d_min, scales) = (half_at(0), half_at(2), &block[4..16]);
                let quants = if self == Self::Q4_K {
                    &block[16..]
                } else {
                    &block[48..]
                };
                for index in 0..256 {
                    let group = index / 32;
                    let byte = quants[index / 64 * 32 + index % 32];
                    let mut q = if group.is_multiple_of(2) {
                        byte & 15
                    } else {
                        byte >> 4
                    };
                    if self == Self::Q5_K {
                        q |= (block[16 + index % 32] >> group & 1) << 4;
                    }
                    let (scale, min) = scale_and_min(scales, group);
                    values.push(d * f32::from(scale) * f32::from(q) - d_min * f32::from(min));
                }
            }
            Self::Q6_K => {
                let (low, high, scales) = (&block[..128], &block[128..192], &block[192..208]);
                let d = half_at(208);
                for index in 0..256 {
                    let (half, within) = (index / 128, index % 128);
                    let byte = low[half * 64 + within % 64];
                    let low_bits = if within < 64 { byte & 15 } else { byte >> 4 };
                    let high_bits = high[half * 32 + within % 32] >> (within / 32 * 2) & 3;
                    let q = f32::from(low_bits | high_bits << 4) - 32.0;
                    values.push(d * f32::from(scales[index / 16].cast_signed()) * q);
                }
            }
        }
    }
}

/// Low halves of all bytes, then their high halves.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes
        .iter()
        .map(|byte| byte & 15)
        .chain(bytes.iter().map(|byte| byte >> 4))
}

fn with_fifth_bits(bits: &[u8], low: impl Iterator<Item = u8>) -> impl Iterator<Item = u8> {
    let bits = u32::from_le_bytes([bits[0], bits[1], bits[2], bits[3]]);
    low.enumerate()
        .map(move |(index, q)| q | ((bits >> index & 1) as u8) << 4)
}

/// Six bits each of the scale and the minimum of a group of 32.
fn scale_and_min(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        (packed[group] & 63, packed[group + 4] & 63)
    } else {
        let low = packed[group + 4];
        (
            low & 15 | packed[group - 4] >> 6 << 4,
            low >> 4 | packed[group] >> 6 << 4,
        )
    }
}
