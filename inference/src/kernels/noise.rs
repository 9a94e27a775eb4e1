//! Numbers for tests: without order, and the same for the same seed.

use half::{bf16, f16};

use crate::weights::DataType;

/// Numbers without order; the same for the same seed.
#[derive(Debug)]
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    /// Returns 32 bits.
    pub(crate) fn bits(&mut self) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// Returns a number from -1 to 1.
    pub(crate) fn unit(&mut self) -> f32 {
        self.bits() as f32 / u32::MAX as f32 * 2.0 - 1.0
    }

    /// Returns stored values: random bits, or bytes that are all `fill`; f16
    /// scales are from `-scale` to `scale`, and so are values without scales.
    pub(crate) fn stored(
        &mut self,
        data_type: DataType,
        num_values: usize,
        scale: f32,
        fill: Option<u8>,
    ) -> Vec<u8> {
        let halves: &[usize] = match data_type {
            DataType::F32 => {
                let numbers = (0..num_values).flat_map(|_| (self.unit() * scale).to_le_bytes());
                return numbers.collect();
            }
            DataType::BF16 => {
                let number = |_| bf16::from_f32(self.unit() * scale).to_le_bytes();
                return (0..num_values).flat_map(number).collect();
            }
            DataType::F16 | DataType::Q4_0 | DataType::Q5_0 | DataType::Q8_0 => &[0],
            DataType::Q4_1 | DataType::Q5_1 | DataType::Q4K | DataType::Q5K => &[0, 2],
            DataType::Q2K => &[80, 82],
            DataType::Q3K => &[108],
            DataType::Q6K => &[208],
        };
        let mut bytes = Vec::new();
        for _ in 0..num_values / data_type.block_len() {
            let start = bytes.len();
            for _ in 0..data_type.block_bytes() {
                bytes.push(fill.unwrap_or_else(|| self.bits() as u8));
            }
            for &at in halves {
                let half = f16::from_f32(self.unit() * scale).to_le_bytes();
                bytes[start + at..][..2].copy_from_slice(&half);
            }
        }
        bytes
    }
}
