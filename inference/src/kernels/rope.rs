//! Rotary position embedding (arXiv 2104.09864): angles in f64, so that a far
//! position is turned as exactly as a near one, and rotations in f32.

use crate::model::{RopeConfig, RopePairing, RopeScaling};

/// Rotations of one model's layers.
#[derive(Clone, Debug)]
pub(crate) struct Rope {
    /// Radians for each position, of each pair.
    frequencies: Vec<f64>,
    /// Factor of cosine and sine.
    magnitude: f64,
    pairing: RopePairing,
}

impl Rope {
    /// Follows a configuration.
    pub(crate) fn new(config: &RopeConfig) -> Self {
        let width = config.num_rotated as f64;
        let theta = f64::from(config.theta);
        let plain = |pair: usize| theta.powf(-2.0 * pair as f64 / width);
        let num_pairs = config.num_rotated / 2;
        let (frequencies, magnitude) = match &config.scaling {
            RopeScaling::None => ((0..num_pairs).map(plain).collect(), 1.0),
            RopeScaling::Linear { factor } => {
                let scaled = |pair| plain(pair) / f64::from(*factor);
                ((0..num_pairs).map(scaled).collect(), 1.0)
            }
            RopeScaling::PerFrequency { factors } => {
                let scaled =
                    |pair: usize| plain(pair) / factors.get(pair).copied().map_or(1.0, f64::from);
                ((0..num_pairs).map(scaled).collect(), 1.0)
            }
            RopeScaling::Yarn {
                factor,
                original_max_position_embeddings,
                beta_fast,
                beta_slow,
                attention_factor,
            } => {
                let context = *original_max_position_embeddings as f64;
                // The pair that turns this often within the context.
                let pair_of = |turns: f32| {
                    let length = context / (f64::from(turns) * std::f64::consts::TAU);
                    width * length.ln() / (2.0 * theta.ln())
                };
                let low = pair_of(*beta_fast).floor().max(0.0);
                let high = pair_of(*beta_slow).ceil().min(width - 1.0);
                let span = if high > low { high - low } else { 0.001 };
                let scaled = |pair: usize| {
                    let ramp = ((pair as f64 - low) / span).clamp(0.0, 1.0);
                    plain(pair) * (1.0 - ramp) + plain(pair) / f64::from(*factor) * ramp
                };
                let frequencies = (0..num_pairs).map(scaled).collect();
                (frequencies, f64::from(*attention_factor))
            }
        };
        Self {
            frequencies,
            magnitude,
            pairing: config.pairing,
        }
    }

    /// Returns the numbers of a position's [`Self::angles`].
    pub(crate) fn num_angles(&self) -> usize {
        self.frequencies.len() * 2
    }

    /// Writes the cosines of all pairs at a position, then the sines.
    pub(crate) fn angles(&self, position: u32, to: &mut [f32]) {
        let (cosines, sines) = to.split_at_mut(self.frequencies.len());
        let pairs = cosines.iter_mut().zip(sines);
        for ((cosine, sine), frequency) in pairs.zip(&self.frequencies) {
            let (s, c) = (f64::from(position) * frequency).sin_cos();
            *cosine = (c * self.magnitude) as f32;
            *sine = (s * self.magnitude) as f32;
        }
    }

    /// Rotates a head by the angles of its position.
    pub(crate) fn rotate(&self, head: &mut [f32], angles: &[f32]) {
        let num_pairs = self.frequencies.len();
        let (cosines, sines) = angles.split_at(num_pairs);
        let turn = |x: f32, y: f32, pair: usize| {
            let (cosine, sine) = (cosines[pair], sines[pair]);
            (x * cosine - y * sine, x * sine + y * cosine)
        };
        match self.pairing {
            RopePairing::Interleaved => {
                let pairs = head.as_chunks_mut::<2>().0;
                for (index, pair) in pairs.iter_mut().take(num_pairs).enumerate() {
                    (pair[0], pair[1]) = turn(pair[0], pair[1], index);
                }
            }
            RopePairing::Halves => {
                let (first, second) = head[..2 * num_pairs].split_at_mut(num_pairs);
                for (index, (x, y)) in first.iter_mut().zip(second).enumerate() {
                    (*x, *y) = turn(*x, *y, index);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairing: RopePairing, num_rotated: usize, scaling: RopeScaling) -> RopeConfig {
        RopeConfig {
            theta: 10_000.0,
            num_rotated,
            pairing,
            scaling,
        }
    }

    /// Rotates a head of eight numbers, and compares with pairs turned by `angle(pair)` in f64.
    fn check(config: &RopeConfig, position: u32, angle: impl Fn(usize) -> f64, magnitude: f64) {
        let head: Vec<f32> = (1_u8..=8).map(|x| f32::from(x) / 3.0 - 1.1).collect();
        let rope = Rope::new(config);
        let mut angles = vec![0.0; rope.num_angles()];
        rope.angles(position, &mut angles);
        let mut rotated = head.clone();
        rope.rotate(&mut rotated, &angles);
        let num_pairs = config.num_rotated / 2;
        let mut expected: Vec<f64> = head.iter().map(|&x| f64::from(x)).collect();
        for pair in 0..num_pairs {
            let (a, b) = match config.pairing {
                RopePairing::Interleaved => (2 * pair, 2 * pair + 1),
                RopePairing::Halves => (pair, pair + num_pairs),
            };
            let (sine, cosine) = angle(pair).sin_cos();
            let (x, y) = (f64::from(head[a]), f64::from(head[b]));
            expected[a] = magnitude * (x * cosine - y * sine);
            expected[b] = magnitude * (x * sine + y * cosine);
        }
        for (found, expected) in rotated.iter().zip(&expected) {
            assert!(
                (f64::from(*found) - expected).abs() < 1e-6,
                "{rotated:?} {expected:?}"
            );
        }
    }

    /// Frequencies of four pairs: 1, 1/10, 1/100, 1/1000.
    fn plain(pair: usize) -> f64 {
        10_f64.powf(-(pair as f64))
    }

    #[test]
    fn pairs_turn_by_their_frequency() {
        for pairing in [RopePairing::Interleaved, RopePairing::Halves] {
            for position in [0, 1, 511, 131_071] {
                let config = config(pairing, 8, RopeScaling::None);
                check(
                    &config,
                    position,
                    |pair| plain(pair) * f64::from(position),
                    1.0,
                );
            }
        }
    }

    #[test]
    fn elements_behind_the_rotated_stay() {
        let config = config(RopePairing::Halves, 4, RopeScaling::None);
        check(&config, 3, |pair| 3.0 * 100_f64.powf(-(pair as f64)), 1.0);
    }

    #[test]
    fn factors_divide_frequencies() {
        let linear = config(RopePairing::Halves, 8, RopeScaling::Linear { factor: 8.0 });
        check(&linear, 100, |pair| plain(pair) * 12.5, 1.0);
        let factors = vec![1.0, 2.0, 4.0, 8.0];
        let each = config(
            RopePairing::Halves,
            8,
            RopeScaling::PerFrequency { factors },
        );
        check(
            &each,
            100,
            |pair| plain(pair) * 100.0 / 2_f64.powf(pair as f64),
            1.0,
        );
    }

    #[test]
    fn yarn_keeps_high_and_divides_low_frequencies() {
        // Pairs 1.309 and 2.814 turn 32 and 1 times in 4096 tokens: the ramp goes from 1 to 3.
        let scaling = RopeScaling::Yarn {
            factor: 4.0,
            original_max_position_embeddings: 4096,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: 1.25,
        };
        let yarn = config(RopePairing::Halves, 8, scaling);
        let angle = |pair: usize| {
            let ramp = [0.0, 0.0, 0.5, 1.0][pair];
            7.0 * plain(pair) * (1.0 - ramp + ramp / 4.0)
        };
        check(&yarn, 7, angle, 1.25);
    }
}
