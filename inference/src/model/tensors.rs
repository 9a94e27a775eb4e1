//! Which tensors a model has, what they are called in a GGUF and in Hugging
//! Face's files, and which shapes they must have. Source of the names:
//! `gguf-py/gguf/constants.py` (ggml-org/ggml) and `modeling_*.py` (transformers).

use super::{ModelConfig, NormPlacement};
use crate::error::Error;
use crate::weights::{StoredTensor, WeightSource};

/// Whose names the tensors of a file have.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TensorNaming {
    /// `blk.0.attn_q.weight`.
    Gguf,
    /// `model.layers.0.self_attn.q_proj.weight`.
    HuggingFace,
}

/// Part that a tensor plays in the model. Matrices are `(outputs, inputs)`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TensorRole {
    /// Row of each token. `(vocab_size, hidden_size)`
    EmbedTokens,
    /// Weights of the last norm. `(hidden_size)`
    Norm,
    /// Output matrix, unless it is the embedding. `(vocab_size, hidden_size)`
    LmHead,
    /// Tensor of a layer.
    Layer(usize, LayerTensor),
}

/// Part that a tensor plays in a layer. `q` is `num_attention_heads * head_dim`
/// and `kv` is `num_key_value_heads * head_dim`.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum LayerTensor {
    /// Norm before attention. `(hidden_size)`
    AttentionNorm,
    /// `(q, hidden_size)`
    QProj,
    /// `(kv, hidden_size)`
    KProj,
    /// `(kv, hidden_size)`
    VProj,
    /// `(q)`
    QBias,
    /// `(kv)`
    KBias,
    /// `(kv)`
    VBias,
    /// Norm of each head's query. `(head_dim)`
    QNorm,
    /// Norm of each head's key. `(head_dim)`
    KNorm,
    /// `(hidden_size, q)`
    OProj,
    /// Norm behind attention. `(hidden_size)`
    AttentionOutputNorm,
    /// Norm before the feed-forward part. `(hidden_size)`
    FeedForwardNorm,
    /// `(intermediate_size, hidden_size)`
    GateProj,
    /// `(intermediate_size, hidden_size)`
    UpProj,
    /// `(hidden_size, intermediate_size)`
    DownProj,
    /// Norm behind the feed-forward part. `(hidden_size)`
    FeedForwardOutputNorm,
}

impl LayerTensor {
    /// Every part, in the order of the forward pass.
    pub const ALL: [Self; 16] = [
        Self::AttentionNorm,
        Self::QProj,
        Self::KProj,
        Self::VProj,
        Self::QBias,
        Self::KBias,
        Self::VBias,
        Self::QNorm,
        Self::KNorm,
        Self::OProj,
        Self::AttentionOutputNorm,
        Self::FeedForwardNorm,
        Self::GateProj,
        Self::UpProj,
        Self::DownProj,
        Self::FeedForwardOutputNorm,
    ];

    /// Says whether layers of the model have it.
    pub fn is_in(self, config: &ModelConfig) -> bool {
        match self {
            Self::QBias | Self::KBias | Self::VBias => config.attention_bias,
            Self::QNorm | Self::KNorm => config.qk_norm,
            Self::AttentionOutputNorm | Self::FeedForwardOutputNorm => {
                config.norm_placement == NormPlacement::BeforeAndAfter
            }
            _ => true,
        }
    }

    const fn gguf_name(self) -> &'static str {
        match self {
            Self::AttentionNorm => "attn_norm.weight",
            Self::QProj => "attn_q.weight",
            Self::KProj => "attn_k.weight",
            Self::VProj => "attn_v.weight",
            Self::QBias => "attn_q.bias",
            Self::KBias => "attn_k.bias",
            Self::VBias => "attn_v.bias",
            Self::QNorm => "attn_q_norm.weight",
            Self::KNorm => "attn_k_norm.weight",
            Self::OProj => "attn_output.weight",
            Self::AttentionOutputNorm => "post_attention_norm.weight",
            Self::FeedForwardNorm => "ffn_norm.weight",
            Self::GateProj => "ffn_gate.weight",
            Self::UpProj => "ffn_up.weight",
            Self::DownProj => "ffn_down.weight",
            Self::FeedForwardOutputNorm => "post_ffw_norm.weight",
        }
    }

    /// The norm that Hugging Face calls `post_attention_layernorm` stands behind attention
    /// where norms stand on both sides, and before the feed-forward part where they do not.
    const fn hugging_face_name(self, placement: NormPlacement) -> &'static str {
        match self {
            Self::AttentionNorm => "input_layernorm.weight",
            Self::QProj => "self_attn.q_proj.weight",
            Self::KProj => "self_attn.k_proj.weight",
            Self::VProj => "self_attn.v_proj.weight",
            Self::QBias => "self_attn.q_proj.bias",
            Self::KBias => "self_attn.k_proj.bias",
            Self::VBias => "self_attn.v_proj.bias",
            Self::QNorm => "self_attn.q_norm.weight",
            Self::KNorm => "self_attn.k_norm.weight",
            Self::OProj => "self_attn.o_proj.weight",
            Self::AttentionOutputNorm => "post_attention_layernorm.weight",
            Self::FeedForwardNorm => match placement {
                NormPlacement::Before => "post_attention_layernorm.weight",
                NormPlacement::BeforeAndAfter => "pre_feedforward_layernorm.weight",
            },
            Self::GateProj => "mlp.gate_proj.weight",
            Self::UpProj => "mlp.up_proj.weight",
            Self::DownProj => "mlp.down_proj.weight",
            Self::FeedForwardOutputNorm => "post_feedforward_layernorm.weight",
        }
    }

    fn shape(self, config: &ModelConfig) -> Vec<usize> {
        let hidden = config.hidden_size;
        let inner = config.intermediate_size;
        let q = config.num_attention_heads * config.head_dim;
        let kv = config.num_key_value_heads * config.head_dim;
        match self {
            Self::QProj => vec![q, hidden],
            Self::KProj | Self::VProj => vec![kv, hidden],
            Self::QBias => vec![q],
            Self::KBias | Self::VBias => vec![kv],
            Self::QNorm | Self::KNorm => vec![config.head_dim],
            Self::OProj => vec![hidden, q],
            Self::GateProj | Self::UpProj => vec![inner, hidden],
            Self::DownProj => vec![hidden, inner],
            Self::AttentionNorm
            | Self::AttentionOutputNorm
            | Self::FeedForwardNorm
            | Self::FeedForwardOutputNorm => vec![hidden],
        }
    }
}

impl TensorRole {
    /// Lists what a model of this configuration consists of.
    pub fn all(config: &ModelConfig) -> impl Iterator<Item = Self> {
        let head = (!config.tie_word_embeddings).then_some(Self::LmHead);
        let layers = (0..config.num_hidden_layers).flat_map(|layer| {
            let parts = LayerTensor::ALL.into_iter();
            parts
                .filter(|part| part.is_in(config))
                .map(move |part| Self::Layer(layer, part))
        });
        [Self::EmbedTokens]
            .into_iter()
            .chain(layers)
            .chain([Self::Norm])
            .chain(head)
    }

    /// Names the tensor of a model with this configuration.
    pub fn name(self, naming: TensorNaming, config: &ModelConfig) -> String {
        match (naming, self) {
            (TensorNaming::Gguf, Self::EmbedTokens) => "token_embd.weight".to_owned(),
            (TensorNaming::Gguf, Self::Norm) => "output_norm.weight".to_owned(),
            (TensorNaming::Gguf, Self::LmHead) => "output.weight".to_owned(),
            (TensorNaming::Gguf, Self::Layer(layer, part)) => {
                format!("blk.{layer}.{}", part.gguf_name())
            }
            (TensorNaming::HuggingFace, Self::EmbedTokens) => {
                "model.embed_tokens.weight".to_owned()
            }
            (TensorNaming::HuggingFace, Self::Norm) => "model.norm.weight".to_owned(),
            (TensorNaming::HuggingFace, Self::LmHead) => "lm_head.weight".to_owned(),
            (TensorNaming::HuggingFace, Self::Layer(layer, part)) => {
                let part = part.hugging_face_name(config.norm_placement);
                format!("model.layers.{layer}.{part}")
            }
        }
    }

    /// Returns the shape that the tensor must have, outermost axis first.
    pub fn shape(self, config: &ModelConfig) -> Vec<usize> {
        match self {
            Self::EmbedTokens | Self::LmHead => vec![config.vocab_size, config.hidden_size],
            Self::Norm => vec![config.hidden_size],
            Self::Layer(_, part) => part.shape(config),
        }
    }

    /// Finds the tensor in a model's files.
    ///
    /// # Errors
    /// [`Error::Tensor`] where it is absent or has another shape.
    pub fn find<'source>(
        self,
        source: &'source dyn WeightSource,
        naming: TensorNaming,
        config: &ModelConfig,
    ) -> Result<&'source StoredTensor, Error> {
        let name = self.name(naming, config);
        let expected = self.shape(config);
        let found = source.tensor(&name);
        match found {
            Some(tensor) if tensor.shape == expected => Ok(tensor),
            _ => Err(Error::Tensor {
                name,
                expected: format!("{expected:?}"),
                found: found
                    .map_or_else(|| "none".to_owned(), |found| format!("{:?}", found.shape)),
            }),
        }
    }
}
