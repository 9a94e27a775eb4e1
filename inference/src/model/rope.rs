//! Rules by which frequencies are changed for longer contexts, from the
//! numbers that files have for them.

use std::f32::consts::TAU;

use super::RopeScaling;

/// Numbers of Llama 3.1's rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Llama3Rule {
    pub(super) factor: f32,
    pub(super) low_freq_factor: f32,
    pub(super) high_freq_factor: f32,
    pub(super) original_max_position_embeddings: usize,
}

impl Llama3Rule {
    /// Computes the divisors: waves that turn often within the original context
    /// stay, those that hardly turn are divided, and between is a ramp.
    /// Source: `_compute_llama3_parameters` (transformers).
    pub(super) fn scaling(self, theta: f32, num_rotated: usize) -> RopeScaling {
        let original = self.original_max_position_embeddings as f32;
        let divisor = |pair: usize| {
            let wavelength = TAU * theta.powf((2 * pair) as f32 / num_rotated as f32);
            if wavelength < original / self.high_freq_factor {
                return 1.0;
            }
            if wavelength > original / self.low_freq_factor {
                return self.factor;
            }
            let ramp = (original / wavelength - self.low_freq_factor)
                / (self.high_freq_factor - self.low_freq_factor);
            1.0 / ((1.0 - ramp) / self.factor + ramp)
        };
        RopeScaling::PerFrequency {
            factors: (0..num_rotated / 2).map(divisor).collect(),
        }
    }
}

/// Computes the factor of cosine and sine that `YaRN` recommends for `factor`.
pub(super) fn yarn_attention_factor(factor: f32) -> f32 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * factor.ln() + 1.0
    }
}
