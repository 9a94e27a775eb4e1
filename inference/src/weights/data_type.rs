//! How the numbers of a tensor are stored: which formats there are, and the
//! sizes of their blocks. A row of a matrix is a whole number of blocks.
//! Source: the GGUF specification and `ggml-common.h` (ggml-org/ggml).

use std::fmt;

use super::dequantize;

/// Format that the numbers of a tensor are stored in.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum DataType {
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 half precision.
    F16,
    /// The upper half of a single precision number.
    BF16,
    /// 8 bits, signed, and a scale for 32 values.
    Q8_0,
    /// 4 bits less 8, and a scale for 32 values.
    Q4_0,
    /// 4 bits, a scale and a minimum for 32 values.
    Q4_1,
    /// 5 bits less 16, and a scale for 32 values.
    Q5_0,
    /// 5 bits, a scale and a minimum for 32 values.
    Q5_1,
    /// 2 bits; 4-bit scales and minima for 16 values, scaled for 256.
    Q2K,
    /// 3 bits less 4; 6-bit scales for 16 values, scaled for 256.
    Q3K,
    /// 4 bits; 6-bit scales and minima for 32 values, scaled for 256.
    Q4K,
    /// 5 bits; 6-bit scales and minima for 32 values, scaled for 256.
    Q5K,
    /// 6 bits less 32; 8-bit scales for 16 values, scaled for 256.
    Q6K,
}

impl DataType {
    /// Every format.
    pub const ALL: [Self; 13] = [
        Self::F32,
        Self::F16,
        Self::BF16,
        Self::Q8_0,
        Self::Q4_0,
        Self::Q4_1,
        Self::Q5_0,
        Self::Q5_1,
        Self::Q2K,
        Self::Q3K,
        Self::Q4K,
        Self::Q5K,
        Self::Q6K,
    ];

    /// Finds the format of a number in a GGUF's tensor table.
    pub fn from_gguf(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            10 => Self::Q2K,
            11 => Self::Q3K,
            12 => Self::Q4K,
            13 => Self::Q5K,
            14 => Self::Q6K,
            30 => Self::BF16,
            _ => return None,
        })
    }

    /// Names the format as GGUF tools do: `Q4_K`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "F32",
            Self::F16 => "F16",
            Self::BF16 => "BF16",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q2K => "Q2_K",
            Self::Q3K => "Q3_K",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// Returns the number of values in a block.
    pub const fn block_len(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::BF16 => 1,
            Self::Q8_0 | Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 => 32,
            Self::Q2K | Self::Q3K | Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Returns the number of bytes of a block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
            Self::Q8_0 => 2 + 32,
            Self::Q4_0 => 2 + 16,
            Self::Q4_1 => 2 + 2 + 16,
            Self::Q5_0 => 2 + 4 + 16,
            Self::Q5_1 => 2 + 2 + 4 + 16,
            Self::Q2K => 16 + 64 + 2 + 2,
            Self::Q3K => 32 + 64 + 12 + 2,
            Self::Q4K => 2 + 2 + 12 + 128,
            Self::Q5K => 2 + 2 + 12 + 32 + 128,
            Self::Q6K => 128 + 64 + 16 + 2,
        }
    }

    /// Returns the bytes of this many values, or `None` where they are not whole blocks.
    pub const fn num_bytes(self, num_values: usize) -> Option<usize> {
        if num_values.is_multiple_of(self.block_len()) {
            (num_values / self.block_len()).checked_mul(self.block_bytes())
        } else {
            None
        }
    }

    /// Computes the values of whole blocks, in the order of operations of the
    /// format's definition and without fused ones, so that every
    /// implementation of the definition gives the same bits.
    ///
    /// # Panics
    /// Unless `blocks` are whole blocks with `out.len()` values.
    pub fn dequantize(self, blocks: &[u8], out: &mut [f32]) {
        assert_eq!(
            Some(blocks.len()),
            self.num_bytes(out.len()),
            "bytes of {} values of {self}",
            out.len()
        );
        let each: fn(&[u8], &mut [f32]) = match self {
            Self::F32 => dequantize::f32,
            Self::F16 => dequantize::f16,
            Self::BF16 => dequantize::bf16,
            Self::Q8_0 => dequantize::q8_0,
            Self::Q4_0 => dequantize::q4_0,
            Self::Q4_1 => dequantize::q4_1,
            Self::Q5_0 => dequantize::q5_0,
            Self::Q5_1 => dequantize::q5_1,
            Self::Q2K => dequantize::q2_k,
            Self::Q3K => dequantize::q3_k,
            Self::Q4K => dequantize::q4_k,
            Self::Q5K => dequantize::q5_k,
            Self::Q6K => dequantize::q6_k,
        };
        let blocks = blocks.chunks_exact(self.block_bytes());
        for (block, values) in blocks.zip(out.chunks_exact_mut(self.block_len())) {
            each(block, values);
        }
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::DataType;

    fn bytes_of(hexadecimal: &str) -> Vec<u8> {
        let digits = hexadecimal.as_bytes().chunks_exact(2);
        digits
            .map(|pair| {
                let pair = std::str::from_utf8(pair).expect("ASCII");
                u8::from_str_radix(pair, 16).expect("hexadecimal")
            })
            .collect()
    }

    #[test]
    fn values_are_those_of_the_reference_to_the_last_bit() {
        let golden = include_str!("../../tests/golden/block_formats.txt");
        let mut names = Vec::new();
        for line in golden.lines() {
            let mut fields = line.split(' ');
            let mut field = || fields.next().expect("three fields");
            let (name, blocks, expected) = (field(), bytes_of(field()), bytes_of(field()));
            let data_type = DataType::ALL.into_iter().find(|kind| kind.name() == name);
            let data_type = data_type.unwrap_or_else(|| panic!("no format {name}"));
            let mut values = vec![f32::NAN; expected.len() / 4];
            data_type.dequantize(&blocks, &mut values);
            for (index, (value, bits)) in values.iter().zip(expected.chunks_exact(4)).enumerate() {
                let bits = u32::from_le_bytes(bits.try_into().expect("four bytes"));
                let reference = f32::from_bits(bits);
                assert_eq!(
                    value.to_bits(),
                    bits,
                    "{name}[{index}]: {value} {reference}"
                );
            }
            names.push(name);
        }
        let all: Vec<&str> = DataType::ALL.into_iter().map(DataType::name).collect();
        assert_eq!(names, all);
    }

    #[test]
    fn numbers_of_a_gguf_name_each_format_once() {
        let known: Vec<DataType> = (0..1000).filter_map(DataType::from_gguf).collect();
        assert_eq!(known.len(), DataType::ALL.len());
        for data_type in DataType::ALL {
            assert!(known.contains(&data_type), "{data_type}");
        }
    }

    #[test]
    fn parts_of_blocks_have_no_size() {
        assert_eq!(DataType::Q8_0.num_bytes(576), Some(18 * 34));
        assert_eq!(DataType::Q4K.num_bytes(640), None);
        assert_eq!(DataType::F32.num_bytes(usize::MAX), None);
    }

    #[test]
    #[should_panic(expected = "bytes of 64 values of Q8_0")]
    fn values_without_their_bytes_are_a_mistake_of_the_caller() {
        DataType::Q8_0.dequantize(&[0; 34], &mut [0.0; 64]);
    }
}
