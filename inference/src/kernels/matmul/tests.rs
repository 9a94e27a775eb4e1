//! Products of every type: portable against AVX2 bit by bit, both against
//! f64, and a row alone against the same row among others.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;
use crate::kernels::noise::Noise;
use crate::kernels::quantize::{BLOCK, BlockScale, quantize};

/// Types in blocks.
const TYPES: [DataType; 10] = [
    DataType::Q4_0,
    DataType::Q4_1,
    DataType::Q5_0,
    DataType::Q5_1,
    DataType::Q8_0,
    DataType::Q2K,
    DataType::Q3K,
    DataType::Q4K,
    DataType::Q5K,
    DataType::Q6K,
];

/// Owned rows, quantised.
struct Rows {
    values: Vec<f32>,
    integers: Vec<i8>,
    scales: Vec<BlockScale>,
    width: usize,
}

impl Rows {
    fn new(values: Vec<f32>, width: usize) -> Self {
        let mut integers = vec![0; values.len()];
        let mut scales = vec![BlockScale::default(); values.len() / BLOCK];
        if width.is_multiple_of(BLOCK) {
            quantize(Isa::Portable, &values, &mut integers, &mut scales);
        }
        Self {
            values,
            integers,
            scales,
            width,
        }
    }

    fn input(&self) -> InputRows<'_> {
        InputRows {
            values: &self.values,
            quantized: QuantizedRows {
                values: &self.integers,
                scales: &self.scales,
                width: self.width,
            },
        }
    }

    fn row(&self, row: usize) -> Self {
        Self::new(
            self.values[row * self.width..][..self.width].to_vec(),
            self.width,
        )
    }
}

fn product(isa: Isa, matrix: &Matrix, rows: &Rows, cut: usize) -> Vec<u32> {
    let num_rows = rows.values.len() / rows.width;
    let mut result = vec![f32::NAN; num_rows * matrix.num_rows()];
    let shared = Shared::new(&mut result);
    for tiles in [
        0..cut.min(matrix.num_tiles()),
        cut.min(matrix.num_tiles())..matrix.num_tiles(),
    ] {
        // SAFETY: one thread.
        let mut output = unsafe { OutputRows::new(shared, matrix.num_rows()) };
        matrix.multiply(isa, rows.input(), tiles, &mut output);
    }
    result.iter().map(|x| x.to_bits()).collect()
}

fn check(matrix: &Matrix, rows: &Rows) {
    let whole = product(Isa::best(), matrix, rows, 0);
    assert_eq!(whole, product(Isa::Portable, matrix, rows, 1), "portable");
    let num_rows = rows.values.len() / rows.width;
    for row in [0, num_rows / 2, num_rows - 1] {
        let alone = product(Isa::best(), matrix, &rows.row(row), 2);
        assert_eq!(
            alone,
            whole[row * matrix.num_rows()..][..matrix.num_rows()],
            "row {row}"
        );
    }
    // Against f64, with the values that quantisation has left.
    let mut weights = vec![0.0; rows.width];
    for output in 0..matrix.num_rows() {
        matrix.read_row(output, &mut weights);
        for row in 0..num_rows {
            let (mut expected, mut magnitude) = (0.0, 0.0);
            for (column, &weight) in weights.iter().enumerate() {
                let at = row * rows.width + column;
                let value = if matrix.is_quantized() {
                    f64::from(rows.integers[at]) * f64::from(rows.scales[at / BLOCK].scale)
                } else {
                    f64::from(rows.values[at])
                };
                expected += f64::from(weight) * value;
                magnitude += (f64::from(weight) * value).abs();
            }
            let found = f64::from(f32::from_bits(whole[row * matrix.num_rows() + output]));
            // Minima cancel what integers add: their magnitudes count as well.
            let bound = 1e-6 * (magnitude * 30.0 + 1e-3) * (rows.width as f64 / 32.0).sqrt();
            assert!(
                (found - expected).abs() <= bound,
                "{found} {expected} {bound}"
            );
        }
    }
}

fn matrix(data_type: DataType, shape: [usize; 2], noise: &mut Noise, fill: Option<u8>) -> Matrix {
    let bytes = noise.stored(data_type, shape[0] * shape[1], 0.1, fill);
    let mut matrix = Matrix::zeroed(data_type, shape[0], shape[1]).unwrap();
    matrix.put_rows(0, &bytes);
    matrix
}

#[test]
fn extremes_do_not_overflow() {
    for data_type in TYPES {
        for fill in [0, 0x7f, 0x80, 0xff] {
            let mut noise = Noise(u64::from(fill));
            let matrix = matrix(data_type, [9, 256], &mut noise, Some(fill));
            for value in [-127.0, 127.0] {
                check(&matrix, &Rows::new(vec![value; 512], 256));
            }
        }
    }
}

#[test]
fn long_rows_are_exact() {
    let mut noise = Noise(5);
    for data_type in TYPES {
        let matrix = matrix(data_type, [3, 8192], &mut noise, None);
        let values = (0..8192).map(|_| noise.unit()).collect();
        check(&matrix, &Rows::new(values, 8192));
    }
}

#[test]
fn quantised_products_agree() {
    let mut runner = TestRunner::new(Config::with_cases(40));
    let cases = (
        0..TYPES.len(),
        1_usize..40,
        1_usize..4,
        1_usize..71,
        any::<u64>(),
    );
    runner
        .run(&cases, |(index, outputs, blocks, num_rows, seed)| {
            let data_type = TYPES[index];
            let width = blocks * data_type.block_len();
            let num_rows = if width > 256 {
                num_rows.min(9)
            } else {
                num_rows
            };
            let mut noise = Noise(seed);
            let matrix = matrix(data_type, [outputs, width], &mut noise, None);
            let values = (0..num_rows * width).map(|_| noise.unit()).collect();
            check(&matrix, &Rows::new(values, width));
            Ok(())
        })
        .unwrap();
}

#[test]
fn dense_products_agree() {
    let mut runner = TestRunner::new(Config::with_cases(20));
    let cases = (1_usize..50, 1_usize..100, 1_usize..10, any::<u64>());
    runner
        .run(&cases, |(outputs, width, num_rows, seed)| {
            let mut noise = Noise(seed);
            let values = (0..num_rows * width).map(|_| noise.unit()).collect();
            let rows = Rows::new(values, width);
            for data_type in [DataType::F32, DataType::F16, DataType::BF16] {
                check(
                    &matrix(data_type, [outputs, width], &mut noise, None),
                    &rows,
                );
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn weights_are_read_back_as_their_format_says() {
    let mut noise = Noise(9);
    for data_type in DataType::ALL {
        let (num_rows, width) = (21, 512);
        let row_bytes = data_type.num_bytes(width).unwrap();
        let mut matrix = Matrix::zeroed(data_type, num_rows, width).unwrap();
        let bytes = noise.stored(data_type, num_rows * width, 0.1, None);
        // In two parts, as a file is read.
        let (first, second) = bytes.split_at(16 * row_bytes);
        matrix.put_rows(16, second);
        matrix.put_rows(0, first);
        assert!(
            matrix.num_bytes() * 10 <= (bytes.len() * 24 / 21) * 11,
            "{data_type}"
        );
        for (row, bytes) in bytes.chunks(row_bytes).enumerate() {
            let (mut found, mut expected) = (vec![0.0; width], vec![0.0; width]);
            matrix.read_row(row, &mut found);
            data_type.dequantize(bytes, &mut expected);
            assert_eq!(found, expected, "{data_type}, row {row}");
        }
    }
}
