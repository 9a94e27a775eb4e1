//! Exponentials and sums over a row of logits, in lanes that a compiler can
//! keep in vector registers; the order of additions is fixed, so results are
//! the same on each processor.

/// Elements whose sum is kept beside them, so that a walk can skip them.
pub(super) const CHUNK_LEN: usize = 1024;

const NUM_LANES: usize = 16;

/// Returns e to a power of at most 0, with 2 units in the last place; below -87.3 it is 0.
pub(super) fn exp(x: f32) -> f32 {
    // ln 2 in two parts, so that a multiple of it is taken off without rounding.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    // 1.5 · 2^23: the sum's last bit is worth one.
    const ROUND: f32 = 12_582_912.0;
    let is_tiny = x < -87.3;
    let x = if is_tiny { 0.0 } else { x };
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let power = rounded - ROUND;
    let r = (x - power * LN_2_HIGH) - power * LN_2_LOW;
    // Taylor's series at most ln 2 / 2 from 0: the rest is below 2^-27.
    let mut sum = 1.0 / 5040.0;
    for factor in [
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    ] {
        sum = sum * r + factor;
    }
    // The low bits of `rounded` are the power; a conversion of floats would keep lanes apart.
    let scale = f32::from_bits(rounded.to_bits().wrapping_add(127) << 23);
    if is_tiny { 0.0 } else { sum * scale }
}

/// Returns the greatest of a row, or `None` if one is not a number or is +∞.
pub(super) fn max(row: &[f32]) -> Option<f32> {
    let mut lanes = [f32::NEG_INFINITY; NUM_LANES];
    let mut is_nan = [false; NUM_LANES];
    let (chunks, rest) = row.as_chunks::<NUM_LANES>();
    for chunk in chunks {
        for lane in 0..NUM_LANES {
            let x = chunk[lane];
            lanes[lane] = if x > lanes[lane] { x } else { lanes[lane] };
            is_nan[lane] |= x.is_nan();
        }
    }
    let max = lanes
        .iter()
        .chain(rest)
        .copied()
        .fold(f32::NEG_INFINITY, f32::max);
    let is_sound =
        max < f32::INFINITY && !is_nan.contains(&true) && !rest.iter().any(|x| x.is_nan());
    is_sound.then_some(max)
}

/// Returns the sum of a row.
pub(super) fn sum(row: &[f32]) -> f64 {
    let mut lanes = [0.0_f64; NUM_LANES];
    let (chunks, rest) = row.as_chunks::<NUM_LANES>();
    for chunk in chunks {
        for lane in 0..NUM_LANES {
            lanes[lane] += f64::from(chunk[lane]);
        }
    }
    let rest: f64 = rest.iter().copied().map(f64::from).sum();
    lanes.iter().sum::<f64>() + rest
}

/// Returns the logarithm of the sum of exp(x - max).
pub(super) fn log_sum_exp(row: &[f32], max: f32) -> f64 {
    let mut buffer = [0.0; CHUNK_LEN];
    let total: f64 = row
        .chunks(CHUNK_LEN)
        .map(|chunk| {
            let buffer = &mut buffer[..chunk.len()];
            for (y, &x) in buffer.iter_mut().zip(chunk) {
                *y = exp(x - max);
            }
            sum(buffer)
        })
        .sum();
    total.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_in_the_last_place() {
        assert_eq!(exp(0.0).to_bits(), 1.0_f32.to_bits());
        assert_eq!(exp(f32::NEG_INFINITY).to_bits(), 0);
        assert_eq!(exp(-1000.0).to_bits(), 0);
        for step in 0..87_300 {
            let x = -(step as f32) / 1000.0;
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(x)) - expected).abs() / expected;
            assert!(error <= 2.0 * f64::from(f32::EPSILON), "{x}: {error}");
        }
    }

    #[test]
    fn sums_and_maxima_agree_with_plain_loops_at_any_length() {
        for len in 0..100 {
            let row: Vec<f32> = (0..len).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
            let expected = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            assert_eq!(max(&row), Some(expected));
            let expected: f64 = row.iter().copied().map(f64::from).sum();
            assert!((sum(&row) - expected).abs() < 1e-9);
        }
    }

    #[test]
    fn a_row_with_no_number_in_any_place_is_found() {
        for index in 0..35 {
            for bad in [f32::NAN, f32::INFINITY] {
                let mut row = vec![1.0; 35];
                row[index] = bad;
                assert_eq!(max(&row), None, "{bad} at {index}");
            }
        }
    }
}
