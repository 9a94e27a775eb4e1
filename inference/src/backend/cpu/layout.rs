//! Numbers of a model as the forward pass reads them.

use crate::kernels::rope::Rope;
use crate::model::{Activation, ModelConfig};

/// Sizes and constants of the forward pass.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) hidden_size: usize,
    pub(super) intermediate_size: usize,
    pub(super) vocab_size: usize,
    pub(super) num_heads: usize,
    pub(super) num_kv_heads: usize,
    pub(super) head_dim: usize,
    pub(super) eps: f32,
    pub(super) activation: Activation,
    pub(super) embedding_scale: f32,
    pub(super) attention_scale: f32,
    pub(super) score_cap: Option<f32>,
    pub(super) logit_cap: Option<f32>,
    pub(super) rope: Rope,
    pub(super) local_rope: Option<Rope>,
    /// Tokens that each layer sees, and whether it is local.
    pub(super) windows: Vec<(usize, bool)>,
}

impl Layout {
    /// Reads a configuration.
    pub(super) fn new(config: &ModelConfig) -> Self {
        let window = |layer: usize| {
            let is_local = config.layer_is_local.get(layer).copied().unwrap_or(false);
            let window = config.sliding_window.filter(|_| is_local);
            (window.unwrap_or(usize::MAX), is_local)
        };
        Self {
            hidden_size: config.hidden_size,
            intermediate_size: config.intermediate_size,
            vocab_size: config.vocab_size,
            num_heads: config.num_attention_heads,
            num_kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            eps: config.rms_norm_eps,
            activation: config.hidden_act,
            embedding_scale: config.embedding_scale,
            attention_scale: config.attention_scale,
            score_cap: config.attn_logit_softcapping,
            logit_cap: config.final_logit_softcapping,
            rope: Rope::new(&config.rope),
            local_rope: config.local_rope.as_ref().map(Rope::new),
            windows: (0..config.num_hidden_layers).map(window).collect(),
        }
    }

    /// Elements of all queries of a row.
    pub(super) fn query_width(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Elements of all keys of a row.
    pub(super) fn kv_width(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }
}
