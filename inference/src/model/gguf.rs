//! The configuration as a GGUF has it: metadata under the name of the
//! architecture, and what only the tensors tell. Source: `docs/gguf.md`
//! (ggml-org/ggml), and for what is absent `src/llama-model.cpp`
//! (ggml-org/llama.cpp).

use super::architecture::{Architecture, local_layers};
use super::rope::yarn_attention_factor;
use super::{ModelConfig, RopeConfig, RopePairing, RopeScaling};
use crate::error::Error;
use crate::ids::TokenId;
use crate::weights::{GgufFile, Metadata, WeightSource as _};

const EMBEDDING: &str = "token_embd.weight";
const ROPE_FREQS: &str = "rope_freqs.weight";

/// Control tokens that end a turn, whatever the metadata says of them: files
/// made before there was a key for it have them too, as llama.cpp assumes.
const END_OF_TURN: &[&str] = &[
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<end_of_turn>",
];

/// Type of a control token in `tokenizer.ggml.token_type`.
const CONTROL_TOKEN: i64 = 3;

impl ModelConfig {
    /// Reads the configuration of a GGUF.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an architecture that the engine does not
    /// have, [`Error::Malformed`] for a key that is absent or makes no sense.
    pub fn from_gguf(file: &GgufFile) -> Result<Self, Error> {
        let metadata = file.metadata();
        let name = metadata.string("general.architecture")?;
        let name = metadata.require("general.architecture", name)?;
        let architecture = Architecture::from_name(name);
        let Some(architecture) = architecture.filter(|known| known.name() == name) else {
            return Err(Error::Unsupported {
                what: Architecture::unsupported(name),
            });
        };
        let reader = Reader {
            file,
            metadata,
            architecture,
        };
        let mut config = reader.config()?;
        config.forget_unknown_tokens();
        config
            .check()
            .map_err(|what| metadata.malformed(name, what))?;
        Ok(config)
    }
}

struct Reader<'file> {
    file: &'file GgufFile,
    metadata: &'file Metadata,
    architecture: Architecture,
}

impl Reader<'_> {
    fn config(&self) -> Result<ModelConfig, Error> {
        self.refuse_experts()?;
        let architecture = self.architecture;
        let hidden_size = self.required("embedding_length")?;
        let num_hidden_layers = self.required("block_count")?;
        let num_attention_heads = self.required("attention.head_count")?;
        let head_dim = self.head_dim(hidden_size, num_attention_heads)?;
        let (sliding_window, layer_is_local) = self.windows(num_hidden_layers)?;
        let num_rotated = self.number("rope.dimension_count")?.unwrap_or(head_dim);
        let theta = self.float("rope.freq_base")?;
        let max_position_embeddings = self.required("context_length")?;
        let rope = RopeConfig {
            theta: theta.unwrap_or_else(|| architecture.rope_theta()),
            num_rotated,
            pairing: match architecture {
                Architecture::Llama | Architecture::Mistral => RopePairing::Interleaved,
                _ => RopePairing::Halves,
            },
            scaling: self.rope_scaling(num_rotated, max_position_embeddings)?,
        };
        let local_theta = self.float("rope.freq_base_swa")?;
        let local_rope = architecture.local_rope_theta().map(|theta| RopeConfig {
            theta: local_theta.unwrap_or(theta),
            scaling: RopeScaling::None,
            ..rope.clone()
        });
        let caps = architecture == Architecture::Gemma2;
        Ok(ModelConfig {
            architecture: architecture.name().to_owned(),
            vocab_size: self.vocab_size()?,
            hidden_size,
            intermediate_size: self.required("feed_forward_length")?,
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads: self
                .number("attention.head_count_kv")?
                .unwrap_or(num_attention_heads),
            head_dim,
            max_position_embeddings,
            rms_norm_eps: self.rms_norm_eps()?,
            // Added when the file was made.
            norm_weight_is_offset: false,
            norm_placement: architecture.norm_placement(),
            qk_norm: architecture.qk_norm(),
            attention_bias: self.attention_bias()?,
            hidden_act: architecture.hidden_act(),
            rope,
            local_rope: local_rope.filter(|_| sliding_window.is_some()),
            sliding_window,
            layer_is_local,
            embedding_scale: architecture.embedding_scale(hidden_size),
            attention_scale: self.float("attention.scale")?.unwrap_or_else(|| {
                self.attention_scale(
                    hidden_size,
                    num_hidden_layers,
                    num_attention_heads,
                    head_dim,
                )
            }),
            attn_logit_softcapping: self
                .float("attn_logit_softcapping")?
                .or(caps.then_some(50.0)),
            final_logit_softcapping: self
                .float("final_logit_softcapping")?
                .or(caps.then_some(30.0)),
            tie_word_embeddings: self.file.tensor("output.weight").is_none(),
            bos_token_id: self.token("bos")?,
            eos_token_ids: self.eos_token_ids()?,
        })
    }

    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture.name())
    }

    fn float(&self, name: &str) -> Result<Option<f32>, Error> {
        self.metadata.float(&self.key(name))
    }

    /// A number, or that of every layer where it is given for each.
    fn number(&self, name: &str) -> Result<Option<usize>, Error> {
        let key = self.key(name);
        if !self.metadata.is_array(&key) {
            return Ok(self.metadata.unsigned(&key)?.map(|number| number as usize));
        }
        let numbers = self.metadata.integers(&key)?.unwrap_or_default();
        match numbers.first() {
            Some(first) if *first >= 0 && numbers.iter().all(|number| number == first) => {
                Ok(Some(*first as usize))
            }
            _ => Err(Error::Unsupported {
                what: format!("{key} that differs from layer to layer: {numbers:?}"),
            }),
        }
    }

    fn required(&self, name: &str) -> Result<usize, Error> {
        let number = self.number(name)?;
        self.metadata.require(&self.key(name), number)
    }

    fn rms_norm_eps(&self) -> Result<f32, Error> {
        let key = self.key("attention.layer_norm_rms_epsilon");
        self.metadata.require(&key, self.metadata.float(&key)?)
    }

    fn refuse_experts(&self) -> Result<(), Error> {
        match self.number("expert_count")? {
            None | Some(0) => Ok(()),
            Some(count) => Err(Error::Unsupported {
                what: format!("{} with {count} experts", self.architecture.name()),
            }),
        }
    }

    fn vocab_size(&self) -> Result<usize, Error> {
        let embedding = self.file.tensor(EMBEDDING).ok_or_else(|| Error::Tensor {
            name: EMBEDDING.to_owned(),
            expected: "(vocab_size, hidden_size)".to_owned(),
            found: "none".to_owned(),
        })?;
        let rows = embedding.num_rows();
        let key = "tokenizer.ggml.tokens";
        match self.metadata.strings(key)? {
            Some(tokens) if tokens.len() != rows => {
                let what = format!("{} tokens, and {EMBEDDING} has {rows} rows", tokens.len());
                Err(self.metadata.malformed(key, what))
            }
            _ => Ok(rows),
        }
    }

    fn head_dim(&self, hidden_size: usize, num_heads: usize) -> Result<usize, Error> {
        let key_len = self.number("attention.key_length")?;
        let head_dim = key_len
            .or_else(|| hidden_size.checked_div(num_heads))
            .unwrap_or(0);
        match self.number("attention.value_length")? {
            Some(value_len) if value_len != head_dim => Err(Error::Unsupported {
                what: format!("keys of {head_dim} elements with values of {value_len}"),
            }),
            _ => Ok(head_dim),
        }
    }

    /// The window, and which layers see it alone. As in llama.cpp the key
    /// counts for Gemma only.
    fn windows(&self, num_layers: usize) -> Result<(Option<usize>, Vec<bool>), Error> {
        let whole = (None, vec![false; num_layers.min(super::check::MAX_LAYERS)]);
        let Some(pattern) = self.architecture.sliding_window_pattern() else {
            return Ok(whole);
        };
        let window = self.number("attention.sliding_window")?;
        let window = match self.architecture {
            Architecture::Gemma2 => window.or(Some(4096)),
            _ => window,
        };
        let Some(window) = window.filter(|window| *window > 0) else {
            return Ok(whole);
        };
        let key = self.key("attention.sliding_window_pattern");
        if self.metadata.is_array(&key) {
            let layers = self.metadata.booleans(&key)?.unwrap_or_default();
            return Ok((Some(window), layers));
        }
        let pattern = self
            .metadata
            .unsigned(&key)?
            .map_or(pattern, |pattern| pattern as usize);
        let layers = local_layers(whole.1.len(), pattern);
        Ok((Some(window), layers))
    }

    /// Gemma's largest models divide by the width of the residual stream for
    /// each head, and no key tells them apart.
    fn attention_scale(
        &self,
        hidden_size: usize,
        num_layers: usize,
        num_heads: usize,
        head_dim: usize,
    ) -> f32 {
        let is_largest = matches!(
            (self.architecture, num_layers),
            (Architecture::Gemma2, 46) | (Architecture::Gemma3, 62)
        );
        let width = if is_largest {
            hidden_size.checked_div(num_heads).unwrap_or(0)
        } else {
            head_dim
        };
        1.0 / (width as f32).sqrt()
    }

    fn attention_bias(&self) -> Result<bool, Error> {
        if self.file.tensor("blk.0.attn_output.bias").is_some() {
            return Err(Error::Unsupported {
                what: "a bias of the attention's output".to_owned(),
            });
        }
        Ok(self.file.tensor("blk.0.attn_q.bias").is_some())
    }

    fn rope_scaling(&self, num_rotated: usize, max_positions: usize) -> Result<RopeScaling, Error> {
        let frequencies = self.rope_frequencies(num_rotated)?;
        let kind = self.key("rope.scaling.type");
        let kind = self.metadata.string(&kind)?;
        let factor = self.float("rope.scaling.factor")?;
        // The name of old files.
        let factor = factor.or(self.float("rope.scale_linear")?).unwrap_or(1.0);
        match (kind, frequencies) {
            (Some("yarn"), None) => {
                let original = self.number("rope.scaling.original_context_length")?;
                let beta_fast = self.float("rope.scaling.yarn_beta_fast")?;
                let beta_slow = self.float("rope.scaling.yarn_beta_slow")?;
                let attention = self.float("rope.scaling.yarn_attn_factor")?;
                let attention = attention.or(self.float("rope.scaling.attn_factor")?);
                Ok(RopeScaling::Yarn {
                    factor,
                    original_max_position_embeddings: original.unwrap_or(max_positions),
                    beta_fast: beta_fast.unwrap_or(32.0),
                    beta_slow: beta_slow.unwrap_or(1.0),
                    attention_factor: attention.unwrap_or(1.0) * yarn_attention_factor(factor),
                })
            }
            (None | Some("none" | "linear"), Some(mut factors)) => {
                if kind != Some("none") {
                    for divisor in &mut factors {
                        *divisor *= factor;
                    }
                }
                Ok(RopeScaling::PerFrequency { factors })
            }
            (Some("none"), None) => Ok(RopeScaling::None),
            (None | Some("linear"), None) if factor.to_bits() == 1.0_f32.to_bits() => {
                Ok(RopeScaling::None)
            }
            (None | Some("linear"), None) => Ok(RopeScaling::Linear { factor }),
            (Some(kind), _) => Err(Error::Unsupported {
                what: format!("rope scaling {kind}; supported: none, linear, yarn, {ROPE_FREQS}"),
            }),
        }
    }

    /// Divisors of the frequencies, which Llama 3.1 and later have as a tensor.
    fn rope_frequencies(&self, num_rotated: usize) -> Result<Option<Vec<f32>>, Error> {
        let Some(tensor) = self.file.tensor(ROPE_FREQS) else {
            return Ok(None);
        };
        if tensor.shape != [num_rotated / 2] {
            return Err(Error::Tensor {
                name: tensor.name.clone(),
                expected: format!("[{}]", num_rotated / 2),
                found: format!("{:?}", tensor.shape),
            });
        }
        let mut bytes = Vec::new();
        self.file.read(tensor, &mut bytes)?;
        let mut factors = vec![0.0; num_rotated / 2];
        tensor.data_type.dequantize(&bytes, &mut factors);
        Ok(Some(factors))
    }

    fn token(&self, name: &str) -> Result<Option<TokenId>, Error> {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let Some(number) = self.metadata.unsigned(&key)? else {
            return Ok(None);
        };
        let wrong = |_| {
            self.metadata
                .malformed(&key, format!("{number} is no token"))
        };
        TokenId::try_from(number).map_err(wrong).map(Some)
    }

    fn eos_token_ids(&self) -> Result<Vec<TokenId>, Error> {
        let mut ids = Vec::new();
        for name in ["eos", "eot", "eom"] {
            ids.extend(self.token(name)?);
        }
        let types = self.metadata.integers("tokenizer.ggml.token_type")?;
        let tokens = self.metadata.strings("tokenizer.ggml.tokens")?;
        if let (Some(types), Some(tokens)) = (types, tokens) {
            let marked = (0..).zip(tokens).zip(types);
            ids.extend(marked.filter_map(|((id, token), kind)| {
                (kind == CONTROL_TOKEN && END_OF_TURN.contains(&token)).then_some(id)
            }));
        }
        let mut seen = Vec::new();
        ids.retain(|id| {
            !seen.contains(id) && {
                seen.push(*id);
                true
            }
        });
        Ok(ids)
    }
}
