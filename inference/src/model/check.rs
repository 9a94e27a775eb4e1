//! What has to hold of the numbers of any model, so that whoever computes with
//! them may rely on it: nothing is empty, overflows or is not a number.

use crate::ids::TokenId;

use super::{ModelConfig, RopeConfig, RopeScaling};

/// Wider than any model by far, and small enough that products of two do not overflow.
pub(super) const MAX_WIDTH: usize = 1 << 24;

/// Deeper than any model by far.
pub(super) const MAX_LAYERS: usize = 4096;

impl ModelConfig {
    /// Says which number makes no sense.
    pub(super) fn check(&self) -> Result<(), String> {
        for (name, value, most) in [
            ("vocab_size", self.vocab_size, MAX_WIDTH),
            ("hidden_size", self.hidden_size, MAX_WIDTH),
            ("intermediate_size", self.intermediate_size, MAX_WIDTH),
            ("num_hidden_layers", self.num_hidden_layers, MAX_LAYERS),
            ("num_attention_heads", self.num_attention_heads, MAX_WIDTH),
            ("num_key_value_heads", self.num_key_value_heads, MAX_WIDTH),
            ("head_dim", self.head_dim, MAX_WIDTH),
            (
                "max_position_embeddings",
                self.max_position_embeddings,
                u32::MAX as usize,
            ),
            (
                "sliding_window",
                self.sliding_window.unwrap_or(1),
                u32::MAX as usize,
            ),
            (
                "width of all heads",
                self.num_attention_heads.saturating_mul(self.head_dim),
                MAX_WIDTH,
            ),
        ] {
            if !(1..=most).contains(&value) {
                return Err(format!("{name} is {value}, 1 to {most}"));
            }
        }
        if !self
            .num_attention_heads
            .is_multiple_of(self.num_key_value_heads)
        {
            return Err(format!(
                "num_attention_heads is {}, no multiple of num_key_value_heads, {}",
                self.num_attention_heads, self.num_key_value_heads
            ));
        }
        if self.layer_is_local.len() != self.num_hidden_layers {
            return Err(format!(
                "windows of {} layers, and there are {}",
                self.layer_is_local.len(),
                self.num_hidden_layers
            ));
        }
        for (name, value) in [
            ("rms_norm_eps", Some(self.rms_norm_eps)),
            ("attention_scale", Some(self.attention_scale)),
            ("attn_logit_softcapping", self.attn_logit_softcapping),
            ("final_logit_softcapping", self.final_logit_softcapping),
        ] {
            positive(name, value.unwrap_or(1.0))?;
        }
        self.rope.check(self.head_dim)?;
        if let Some(rope) = &self.local_rope {
            rope.check(self.head_dim)?;
        }
        Ok(())
    }
}

impl ModelConfig {
    /// Takes out first and last tokens that the vocabulary does not have: some
    /// files say none by a number like 2³² − 1.
    pub(super) fn forget_unknown_tokens(&mut self) {
        let vocab_size = self.vocab_size;
        let is_known = |id: &TokenId| (*id as usize) < vocab_size;
        self.eos_token_ids.retain(is_known);
        self.bos_token_id = self.bos_token_id.filter(is_known);
    }
}

impl RopeConfig {
    fn check(&self, head_dim: usize) -> Result<(), String> {
        positive("rope_theta", self.theta)?;
        if self.num_rotated > head_dim || !self.num_rotated.is_multiple_of(2) {
            return Err(format!(
                "{} elements of a head are rotated, an even number up to {head_dim}",
                self.num_rotated
            ));
        }
        match &self.scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear { factor } => positive("rope factor", *factor),
            RopeScaling::PerFrequency { factors } => {
                (factors.iter()).try_for_each(|factor| positive("rope factor", *factor))
            }
            RopeScaling::Yarn {
                factor,
                original_max_position_embeddings,
                beta_fast,
                beta_slow,
                attention_factor,
            } => {
                positive("rope factor", *factor)?;
                positive("rope beta_fast", *beta_fast)?;
                positive("rope beta_slow", *beta_slow)?;
                positive("rope attention_factor", *attention_factor)?;
                match original_max_position_embeddings {
                    0 => Err("original_max_position_embeddings is 0".to_owned()),
                    _ => Ok(()),
                }
            }
        }
    }
}

fn positive(name: &str, value: f32) -> Result<(), String> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(format!("{name} is {value}"))
    }
}
