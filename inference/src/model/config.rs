//! Shape and arithmetic of a decoder-only transformer, complete: two models
//! with the same configuration and weights give the same logits.

use crate::ids::TokenId;

/// Numbers of a model that the forward pass and the engine follow.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, named as its files name it"
)]
pub struct ModelConfig {
    /// Family as its file names it: `llama`, `qwen2`, `qwen3`, `gemma2`, `gemma3`, `mistral`.
    pub architecture: String,
    /// Rows of the embedding and of the output matrix.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Width between the two halves of the feed-forward part.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Query heads.
    pub num_attention_heads: usize,
    /// Key and value heads; divides the query heads.
    pub num_key_value_heads: usize,
    /// Width of one head; times the query heads it need not be `hidden_size`.
    pub head_dim: usize,
    /// Longest context in tokens.
    pub max_position_embeddings: usize,
    /// Added to the mean square before the root.
    pub rms_norm_eps: f32,
    /// Whether norm weights are stored less one (Gemma in safetensors; GGUF has them whole).
    pub norm_weight_is_offset: bool,
    /// Where norms stand in a layer.
    pub norm_placement: NormPlacement,
    /// Whether queries and keys of each head are normed before rotation (Qwen 3, Gemma 3).
    pub qk_norm: bool,
    /// Whether q, k and v have biases (Qwen 2).
    pub attention_bias: bool,
    /// Function of the gate.
    pub hidden_act: Activation,
    /// Rotation of layers that see the whole context.
    pub rope: RopeConfig,
    /// Rotation of layers that see a window, where it differs (Gemma 3).
    pub local_rope: Option<RopeConfig>,
    /// Tokens that a local layer sees, itself included.
    pub sliding_window: Option<usize>,
    /// For each layer, whether it sees `sliding_window` tokens only. `(num_hidden_layers)`
    pub layer_is_local: Vec<bool>,
    /// Factor of the embeddings (Gemma: √`hidden_size`), 1 otherwise.
    pub embedding_scale: f32,
    /// Factor of q·k.
    pub attention_scale: f32,
    /// Soft limit of attention scores (Gemma 2): `cap * tanh(x / cap)`.
    pub attn_logit_softcapping: Option<f32>,
    /// Soft limit of logits (Gemma 2).
    pub final_logit_softcapping: Option<f32>,
    /// Whether the output matrix is the embedding.
    pub tie_word_embeddings: bool,
    /// First token of a text, where the model has one.
    pub bos_token_id: Option<TokenId>,
    /// Tokens that end a text.
    pub eos_token_ids: Vec<TokenId>,
}

/// Where norms stand in a layer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NormPlacement {
    /// Before attention and before the feed-forward part (llama, Qwen).
    Before,
    /// Before and after each of the two (Gemma 2 and 3).
    BeforeAndAfter,
}

/// Function of the gate in the feed-forward part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Activation {
    /// `x * sigmoid(x)`.
    Silu,
    /// GELU by its tanh approximation.
    GeluTanh,
}

/// Rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Base of the frequencies.
    pub theta: f32,
    /// Elements of a head that are rotated, from the first; the rest stays.
    pub num_rotated: usize,
    /// Which elements make a pair.
    pub pairing: RopePairing,
    /// How frequencies are changed for longer contexts.
    pub scaling: RopeScaling,
}

/// Which elements of a head make a pair.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RopePairing {
    /// 0 with 1, 2 with 3: GGUF of llama, whose q and k rows are permuted for it.
    Interleaved,
    /// i with i + `num_rotated` / 2: safetensors, and GGUF of Qwen and Gemma.
    Halves,
}

/// How frequencies are changed for longer contexts.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// Positions are divided by the factor.
    Linear {
        /// Divisor.
        factor: f32,
    },
    /// Each frequency is divided by its own factor: `rope_freqs` of a GGUF,
    /// Llama 3's rule, long-context tables. `(num_rotated / 2)`
    PerFrequency {
        /// Divisors.
        factors: Vec<f32>,
    },
    /// `YaRN` (arXiv 2309.00071).
    Yarn {
        /// Divisor of low frequencies.
        factor: f32,
        /// Context that the model was trained on.
        original_max_position_embeddings: usize,
        /// Turns above which a frequency stays.
        beta_fast: f32,
        /// Turns below which a frequency is divided.
        beta_slow: f32,
        /// Factor of cosine and sine.
        attention_factor: f32,
    },
}
