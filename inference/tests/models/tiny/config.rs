//! What a reader has to find in the files of a tiny model, said once more in
//! the engine's own words.

use justapi_inference::{
    Activation, ModelConfig, NormPlacement, RopeConfig, RopePairing, RopeScaling,
};

use super::{
    ATTENTION_CAP, CONTEXT, EPS, FINAL_CAP, Family, LINEAR_FACTOR, ORIGINAL_CONTEXT, Scaling,
    TinyModel, VOCAB_SIZE, WINDOW, YARN_FACTOR, llama3_factors, tokenizer,
};

impl TinyModel {
    /// Returns the configuration of the GGUF file, or of the folder.
    #[expect(clippy::too_many_lines, reason = "one field after the other")]
    pub(crate) fn model_config(&self, is_gguf: bool) -> ModelConfig {
        let family = self.family;
        let gemma = self.is_gemma();
        let scaling = match self.scaling {
            Scaling::None => RopeScaling::None,
            Scaling::Linear => RopeScaling::Linear {
                factor: LINEAR_FACTOR,
            },
            Scaling::Llama3 => RopeScaling::PerFrequency {
                factors: llama3_factors(self.head_dim),
            },
            Scaling::Yarn => RopeScaling::Yarn {
                factor: YARN_FACTOR,
                original_max_position_embeddings: ORIGINAL_CONTEXT as usize,
                beta_fast: 32.0,
                beta_slow: 1.0,
                attention_factor: 0.1 * YARN_FACTOR.ln() + 1.0,
            },
        };
        let rope = RopeConfig {
            theta: self.theta(),
            num_rotated: self.head_dim,
            pairing: if is_gguf && family == Family::Llama {
                RopePairing::Interleaved
            } else {
                RopePairing::Halves
            },
            scaling,
        };
        let local_rope = (family == Family::Gemma3).then(|| RopeConfig {
            theta: 10_000.0,
            scaling: RopeScaling::None,
            ..rope.clone()
        });
        let is_local = |layer: usize| match family {
            Family::Mistral => true,
            Family::Gemma2 => layer.is_multiple_of(2),
            Family::Gemma3 => layer % 6 != 5,
            Family::Llama | Family::Qwen2 | Family::Qwen3 => false,
        };
        let has_window = matches!(family, Family::Mistral | Family::Gemma2 | Family::Gemma3);
        let query_scalar = self.query_scalar.unwrap_or(self.head_dim as u32);
        let gemma2 = family == Family::Gemma2;
        ModelConfig {
            architecture: match family {
                Family::Llama => "llama",
                Family::Mistral => "mistral",
                Family::Qwen2 => "qwen2",
                Family::Qwen3 => "qwen3",
                Family::Gemma2 => "gemma2",
                Family::Gemma3 => "gemma3",
            }
            .to_owned(),
            vocab_size: VOCAB_SIZE,
            hidden_size: self.hidden_size,
            intermediate_size: self.intermediate_size,
            num_hidden_layers: self.num_layers,
            num_attention_heads: self.num_heads,
            num_key_value_heads: self.num_kv_heads,
            head_dim: self.head_dim,
            max_position_embeddings: CONTEXT as usize,
            rms_norm_eps: EPS,
            norm_weight_is_offset: gemma && !is_gguf,
            norm_placement: if gemma {
                NormPlacement::BeforeAndAfter
            } else {
                NormPlacement::Before
            },
            qk_norm: matches!(family, Family::Qwen3 | Family::Gemma3),
            attention_bias: family == Family::Qwen2,
            hidden_act: if gemma {
                Activation::GeluTanh
            } else {
                Activation::Silu
            },
            rope,
            local_rope,
            sliding_window: has_window.then_some(WINDOW as usize),
            layer_is_local: (0..self.num_layers).map(is_local).collect(),
            embedding_scale: if gemma {
                (self.hidden_size as f32).sqrt()
            } else {
                1.0
            },
            attention_scale: 1.0 / (query_scalar as f32).sqrt(),
            attn_logit_softcapping: gemma2.then_some(ATTENTION_CAP),
            final_logit_softcapping: gemma2.then_some(FINAL_CAP),
            tie_word_embeddings: self.tied,
            bos_token_id: Some(tokenizer::BOS),
            eos_token_ids: vec![tokenizer::EOS],
        }
    }
}
