//! Random numbers that depend on seed and position alone: Philox4x32-10
//! (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

const MULTIPLIERS: [u32; 2] = [0xd251_1f53, 0xcd9e_8d57];
/// Golden ratio and √3 − 1, added to the key behind each round.
const KEY_STEPS: [u32; 2] = [0x9e37_79b9, 0xbb67_ae85];
const NUM_ROUNDS: usize = 10;

/// Returns the number of a seed at a position, uniform in [0, 1) with 53 bits.
pub(super) fn uniform(seed: u64, position: u64) -> f64 {
    let counter = [position as u32, (position >> 32) as u32, 0, 0];
    let [high, low, _, _] = philox4x32(counter, [seed as u32, (seed >> 32) as u32]);
    let bits = (u64::from(high) << 32 | u64::from(low)) >> 11;
    bits as f64 * (-53_f64).exp2()
}

fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..NUM_ROUNDS {
        let [a, b, c, d] = counter;
        let first = u64::from(a) * u64::from(MULTIPLIERS[0]);
        let second = u64::from(c) * u64::from(MULTIPLIERS[1]);
        counter = [
            (second >> 32) as u32 ^ b ^ key[0],
            second as u32,
            (first >> 32) as u32 ^ d ^ key[1],
            first as u32,
        ];
        key = [
            key[0].wrapping_add(KEY_STEPS[0]),
            key[1].wrapping_add(KEY_STEPS[1]),
        ];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of Random123, `tests/kat_vectors`.
    #[test]
    fn agrees_with_the_published_vectors() {
        let check = |counter, key, expected| assert_eq!(philox4x32(counter, key), expected);
        check(
            [0; 4],
            [0; 2],
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8],
        );
        check(
            [u32::MAX; 4],
            [u32::MAX; 2],
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd],
        );
        check(
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        );
    }

    #[test]
    fn numbers_are_uniform_over_positions_and_over_seeds() {
        const NUM_DRAWS: u64 = 20_000;
        for is_seed in [false, true] {
            let mut counts = [0_u32; 20];
            for n in 0..NUM_DRAWS {
                let number = if is_seed {
                    uniform(n, 7)
                } else {
                    uniform(7, n)
                };
                counts[(number * 20.0) as usize] += 1;
            }
            let expected = NUM_DRAWS as f64 / 20.0;
            let chi_squared: f64 = counts
                .iter()
                .map(|&count| (f64::from(count) - expected).powi(2) / expected)
                .sum();
            // 19 degrees of freedom: p = 1e-4 at 50.8.
            assert!(chi_squared < 50.8, "{chi_squared}: {counts:?}");
        }
    }
}
