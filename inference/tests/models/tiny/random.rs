//! Random weights that depend on a name alone. Source: `splitmix64`, seeded by
//! FNV-1a of the name.

use half::{bf16, f16};

use crate::reference::Type;

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(name: &str) -> Self {
        let hash = |state: u64, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, hash))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn byte(&mut self) -> u8 {
        (self.next() >> 56) as u8
    }

    /// Token below a limit.
    pub(crate) fn below(&mut self, limit: usize) -> u32 {
        (self.next() % limit as u64) as u32
    }

    /// Whole numbers of -127 to 127 times a scale, plus an offset.
    pub(crate) fn numbers(&mut self, kind: Type, count: usize, scale: f32, offset: f32) -> Vec<u8> {
        (0..count)
            .flat_map(|_| {
                let number = f32::from(self.byte().cast_signed().max(-127));
                // A norm near 1 keeps the last bits that bf16 has there.
                let value = if offset == 0.0 {
                    number * scale
                } else {
                    bf16::from_f32(offset + number * scale * 4.0).to_f32()
                };
                match kind {
                    Type::F32 => value.to_le_bytes().to_vec(),
                    Type::F16 => f16::from_f32(value).to_le_bytes().to_vec(),
                    Type::BF16 => bf16::from_f32(value).to_le_bytes().to_vec(),
                    _ => panic!("{kind:?} has blocks"),
                }
            })
            .collect()
    }

    /// Blocks of random bits, with scales that give numbers around zero of this spread.
    pub(crate) fn blocks(&mut self, kind: Type, count: usize, spread: f32) -> Vec<u8> {
        let (elements, bytes) = kind.block();
        // Where the scale stands, the spread of what it multiplies, where the minimum stands and
        // how much of the scale centres the block.
        let (scale_at, unit, min_at, centre) = match kind {
            Type::Q4_0 => (0, 4.6, None, 0.0),
            Type::Q4_1 => (0, 4.6, Some(2), -7.5),
            Type::Q5_0 => (0, 9.2, None, 0.0),
            Type::Q5_1 => (0, 9.2, Some(2), -15.5),
            Type::Q8_0 => (0, 74.0, None, 0.0),
            Type::Q2_K => (80, 15.0, Some(82), 1.5),
            Type::Q3_K => (108, 46.0, None, 0.0),
            Type::Q4_K => (0, 340.0, Some(2), 7.5),
            Type::Q5_K => (0, 700.0, Some(2), 15.5),
            Type::Q6_K => (208, 1370.0, None, 0.0),
            Type::F32 | Type::F16 | Type::BF16 => panic!("{kind:?} has no blocks"),
        };
        let mut result: Vec<u8> = Vec::with_capacity(count / elements * bytes);
        for _ in 0..count / elements {
            let start = result.len();
            result.extend((0..bytes).map(|_| self.byte()));
            let scale = spread / unit * (0.5 + f32::from(self.byte()) / 255.0);
            let mut put = |at: usize, value: f32| {
                let bytes = f16::from_f32(value).to_le_bytes();
                result[start + at..start + at + 2].copy_from_slice(&bytes);
            };
            put(scale_at, scale);
            if let Some(at) = min_at {
                put(at, scale * centre);
            }
        }
        result
    }
}
