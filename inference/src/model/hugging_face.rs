//! The configuration as a folder of Hugging Face has it: `config.json`, and
//! `generation_config.json` for the tokens that end a text. Source:
//! `configuration_*.py` (transformers), defaults too.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::architecture::{Architecture, local_layers};
use super::check::MAX_LAYERS;
use super::rope::{Llama3Rule, yarn_attention_factor};
use super::{Activation, ModelConfig, RopeConfig, RopePairing, RopeScaling};
use crate::error::Error;
use crate::ids::TokenId;

/// Both files have some kilobytes.
const MAX_CONFIG_BYTES: u64 = 4 * 1024 * 1024;

/// `config.json`. A key that is null is absent, but where a default would come in its place.
#[derive(Debug, Deserialize)]
#[expect(clippy::option_option, reason = "null and absent differ")]
struct ConfigFile {
    model_type: String,
    vocab_size: Option<usize>,
    hidden_size: Option<usize>,
    intermediate_size: Option<usize>,
    num_hidden_layers: Option<usize>,
    num_attention_heads: Option<usize>,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    max_position_embeddings: Option<usize>,
    rms_norm_eps: Option<f32>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    hidden_act: Option<String>,
    hidden_activation: Option<String>,
    rope_theta: Option<f32>,
    rope_local_base_freq: Option<f32>,
    partial_rotary_factor: Option<f32>,
    rope_scaling: Option<RopeParameters>,
    rope_parameters: Option<Value>,
    #[serde(default, deserialize_with = "present")]
    sliding_window: Option<Option<usize>>,
    use_sliding_window: Option<bool>,
    max_window_layers: Option<usize>,
    sliding_window_pattern: Option<usize>,
    /// The same; a newer transformers writes both, of an older file.
    #[serde(rename = "_sliding_window_pattern")]
    private_sliding_window_pattern: Option<usize>,
    layer_types: Option<Vec<String>>,
    query_pre_attn_scalar: Option<f32>,
    #[serde(default, deserialize_with = "present")]
    attn_logit_softcapping: Option<Option<f32>>,
    #[serde(default, deserialize_with = "present")]
    final_logit_softcapping: Option<Option<f32>>,
    tie_word_embeddings: Option<bool>,
    use_bidirectional_attention: Option<bool>,
    quantization_config: Option<Value>,
    bos_token_id: Option<TokenId>,
    eos_token_id: Option<Tokens>,
}

/// `generation_config.json`.
#[derive(Debug, Default, Deserialize)]
struct GenerationFile {
    bos_token_id: Option<TokenId>,
    eos_token_id: Option<Tokens>,
}

/// One token or several.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Tokens {
    One(TokenId),
    Several(Vec<TokenId>),
}

#[derive(Clone, Debug, Default, Deserialize)]
struct RopeParameters {
    rope_type: Option<String>,
    /// The older name; many files have both.
    #[serde(rename = "type")]
    older_type: Option<String>,
    rope_theta: Option<f32>,
    partial_rotary_factor: Option<f32>,
    factor: Option<f32>,
    low_freq_factor: Option<f32>,
    high_freq_factor: Option<f32>,
    original_max_position_embeddings: Option<usize>,
    attention_factor: Option<f32>,
    beta_fast: Option<f32>,
    beta_slow: Option<f32>,
}

impl ModelConfig {
    /// Reads the configuration of a folder.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an architecture that the engine does not
    /// have, [`Error::Malformed`] for a key that is absent or makes no sense.
    pub fn from_folder(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("config.json");
        let text = read_small(&path)?;
        let file: ConfigFile = decode(&path, &text)?;
        let generation_path = folder.join("generation_config.json");
        let generation = match read_small(&generation_path) {
            Ok(text) => decode(&generation_path, &text)?,
            Err(Error::Read { source, .. }) if source.kind() == ErrorKind::NotFound => {
                GenerationFile::default()
            }
            Err(error) => return Err(error),
        };
        let Some(architecture) = Architecture::from_name(&file.model_type) else {
            return Err(unsupported(Architecture::unsupported(&file.model_type)));
        };
        let reader = Reader {
            path,
            file,
            architecture,
        };
        let mut config = reader.config(&generation)?;
        config.forget_unknown_tokens();
        config.check().map_err(|what| reader.malformed(what))?;
        Ok(config)
    }
}

struct Reader {
    path: PathBuf,
    file: ConfigFile,
    architecture: Architecture,
}

impl Reader {
    fn config(&self, generation: &GenerationFile) -> Result<ModelConfig, Error> {
        self.refuse_what_is_not_supported()?;
        let (file, architecture) = (&self.file, self.architecture);
        let is_gemma = architecture.is_gemma();
        let hidden_size = self.required("hidden_size", file.hidden_size)?;
        let num_attention_heads = self.required("num_attention_heads", file.num_attention_heads)?;
        let num_hidden_layers = self.required("num_hidden_layers", file.num_hidden_layers)?;
        let max_position_embeddings =
            self.required("max_position_embeddings", file.max_position_embeddings)?;
        let head_dim = file.head_dim.unwrap_or(match architecture {
            Architecture::Qwen3 => 128,
            Architecture::Gemma2 | Architecture::Gemma3 => 256,
            _ => hidden_size.checked_div(num_attention_heads).unwrap_or(0),
        });
        let (sliding_window, layer_is_local) = self.windows(num_hidden_layers)?;
        let (global, local) = self.rope_parameters()?;
        let rope = self.rope(&global, head_dim, max_position_embeddings)?;
        let local_rope = match local {
            Some(local) => Some(self.rope(&local, head_dim, max_position_embeddings)?),
            None => None,
        };
        let query_scalar = file.query_pre_attn_scalar.filter(|_| is_gemma);
        let query_scalar = query_scalar.unwrap_or(if is_gemma { 256.0 } else { head_dim as f32 });
        // Those of Gemma 2 have defaults, and the others' are none.
        let cap = |value: Option<Option<f32>>, default: f32| {
            let default = (architecture == Architecture::Gemma2).then_some(default);
            value.unwrap_or(default).filter(|_| is_gemma)
        };
        Ok(ModelConfig {
            architecture: architecture.name().to_owned(),
            vocab_size: self.required("vocab_size", file.vocab_size)?,
            hidden_size,
            intermediate_size: self.required("intermediate_size", file.intermediate_size)?,
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads: file.num_key_value_heads.unwrap_or(num_attention_heads),
            head_dim,
            max_position_embeddings,
            rms_norm_eps: file.rms_norm_eps.unwrap_or(1e-6),
            norm_weight_is_offset: is_gemma,
            norm_placement: architecture.norm_placement(),
            qk_norm: architecture.qk_norm(),
            attention_bias: architecture == Architecture::Qwen2,
            hidden_act: self.activation()?,
            rope,
            local_rope: local_rope.filter(|_| sliding_window.is_some()),
            sliding_window,
            layer_is_local,
            embedding_scale: architecture.embedding_scale(hidden_size),
            attention_scale: 1.0 / query_scalar.sqrt(),
            attn_logit_softcapping: cap(file.attn_logit_softcapping, 50.0),
            final_logit_softcapping: cap(file.final_logit_softcapping, 30.0),
            tie_word_embeddings: file.tie_word_embeddings.unwrap_or(is_gemma),
            bos_token_id: generation.bos_token_id.or(file.bos_token_id),
            eos_token_ids: eos_token_ids(generation, file),
        })
    }

    fn malformed(&self, what: impl Into<String>) -> Error {
        Error::Malformed {
            path: self.path.clone(),
            what: what.into(),
        }
    }

    fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, Error> {
        value.ok_or_else(|| self.malformed(format!("{key}: is missing")))
    }

    fn refuse_what_is_not_supported(&self) -> Result<(), Error> {
        let file = &self.file;
        let has_output_bias = file.attention_bias == Some(true)
            && matches!(
                self.architecture,
                Architecture::Llama | Architecture::Mistral
            );
        let refused = [
            (file.quantization_config.is_some(), "quantization_config"),
            (file.mlp_bias == Some(true), "mlp_bias"),
            (has_output_bias, "attention_bias with a bias of the output"),
            (
                file.attention_bias == Some(true)
                    && !has_output_bias
                    && self.architecture != Architecture::Qwen2,
                "attention_bias",
            ),
            (
                file.use_bidirectional_attention == Some(true),
                "use_bidirectional_attention",
            ),
        ];
        match refused.iter().find(|(is_set, _)| *is_set) {
            Some((_, what)) => Err(unsupported(format!("{what} of {}", self.file.model_type))),
            None => Ok(()),
        }
    }

    fn activation(&self) -> Result<Activation, Error> {
        let name = self.file.hidden_activation.as_deref();
        match name.or(self.file.hidden_act.as_deref()) {
            None => Ok(self.architecture.hidden_act()),
            Some("silu" | "swish") => Ok(Activation::Silu),
            Some("gelu_pytorch_tanh") => Ok(Activation::GeluTanh),
            Some(name) => Err(unsupported(format!(
                "hidden_act {name}; supported: silu, gelu_pytorch_tanh"
            ))),
        }
    }

    /// The window, and which layers see it alone.
    fn windows(&self, num_layers: usize) -> Result<(Option<usize>, Vec<bool>), Error> {
        let file = &self.file;
        let num_layers = num_layers.min(MAX_LAYERS);
        let whole = (None, vec![false; num_layers]);
        let window = match self.architecture {
            Architecture::Gemma2 | Architecture::Gemma3 | Architecture::Mistral => {
                file.sliding_window.unwrap_or(Some(4096))
            }
            Architecture::Qwen2 | Architecture::Qwen3 => {
                let is_used = file.use_sliding_window == Some(true);
                file.sliding_window.flatten().filter(|_| is_used)
            }
            Architecture::Llama => None,
        };
        let Some(window) = window else {
            return Ok(whole);
        };
        let layers = match (
            &file.layer_types,
            self.architecture.sliding_window_pattern(),
        ) {
            (Some(types), _) => types
                .iter()
                .map(|kind| match kind.as_str() {
                    "sliding_attention" => Ok(true),
                    "full_attention" => Ok(false),
                    _ => Err(unsupported(format!("layer_types with {kind}"))),
                })
                .collect::<Result<_, Error>>()?,
            (None, Some(pattern)) => {
                let named = file
                    .sliding_window_pattern
                    .or(file.private_sliding_window_pattern);
                local_layers(num_layers, named.unwrap_or(pattern))
            }
            (None, None) if self.architecture == Architecture::Mistral => vec![true; num_layers],
            (None, None) => {
                let first = file.max_window_layers.unwrap_or(num_layers);
                (0..num_layers).map(|layer| layer >= first).collect()
            }
        };
        if layers.contains(&true) {
            Ok((Some(window), layers))
        } else {
            Ok((None, layers))
        }
    }

    /// What is said of rotation in global layers, and in local ones where that
    /// differs: since transformers 5 under `rope_parameters`.
    fn rope_parameters(&self) -> Result<(RopeParameters, Option<RopeParameters>), Error> {
        let file = &self.file;
        let local_theta = self.architecture.local_rope_theta();
        let plain_local = local_theta.map(|theta| RopeParameters {
            rope_theta: Some(file.rope_local_base_freq.unwrap_or(theta)),
            ..RopeParameters::default()
        });
        let Some(parameters) = &file.rope_parameters else {
            return Ok((file.rope_scaling.clone().unwrap_or_default(), plain_local));
        };
        let decode = |value: &Value| {
            RopeParameters::deserialize(value)
                .map_err(|error| self.malformed(format!("rope_parameters: {error}")))
        };
        match parameters.get("full_attention") {
            Some(full) => {
                let sliding = parameters
                    .get("sliding_attention")
                    .map(decode)
                    .transpose()?;
                Ok((decode(full)?, sliding.or(plain_local)))
            }
            None => Ok((decode(parameters)?, plain_local)),
        }
    }

    fn rope(
        &self,
        parameters: &RopeParameters,
        head_dim: usize,
        max_positions: usize,
    ) -> Result<RopeConfig, Error> {
        let file = &self.file;
        let theta = parameters.rope_theta.or(file.rope_theta);
        let theta = theta.unwrap_or_else(|| self.architecture.rope_theta());
        let share = parameters
            .partial_rotary_factor
            .or(file.partial_rotary_factor);
        let num_rotated = share.map_or(head_dim, |share| (head_dim as f32 * share) as usize);
        let factor = || self.required("rope_scaling: factor", parameters.factor);
        let original = parameters.original_max_position_embeddings;
        let kind = parameters.rope_type.as_deref();
        let scaling = match kind.or(parameters.older_type.as_deref()) {
            None | Some("default") => RopeScaling::None,
            Some("linear") => RopeScaling::Linear { factor: factor()? },
            Some("llama3") => {
                let low = parameters.low_freq_factor;
                let high = parameters.high_freq_factor;
                let rule = Llama3Rule {
                    factor: factor()?,
                    low_freq_factor: self.required("rope_scaling: low_freq_factor", low)?,
                    high_freq_factor: self.required("rope_scaling: high_freq_factor", high)?,
                    original_max_position_embeddings: self
                        .required("rope_scaling: original_max_position_embeddings", original)?,
                };
                // The ramp of widths that are no numbers, or of a width that takes all memory.
                if num_rotated > super::check::MAX_WIDTH {
                    return Err(self.malformed(format!("head_dim: {head_dim}")));
                }
                rule.scaling(theta, num_rotated)
            }
            Some("yarn") => {
                let factor = factor()?;
                RopeScaling::Yarn {
                    factor,
                    original_max_position_embeddings: original.unwrap_or(max_positions),
                    beta_fast: parameters.beta_fast.unwrap_or(32.0),
                    beta_slow: parameters.beta_slow.unwrap_or(1.0),
                    attention_factor: parameters
                        .attention_factor
                        .unwrap_or_else(|| yarn_attention_factor(factor)),
                }
            }
            Some(kind) => {
                return Err(unsupported(format!(
                    "rope scaling {kind}; supported: default, linear, llama3, yarn"
                )));
            }
        };
        Ok(RopeConfig {
            theta,
            num_rotated,
            pairing: RopePairing::Halves,
            scaling,
        })
    }
}

/// Those of both files, each once: what ends a turn is often in the second alone.
fn eos_token_ids(generation: &GenerationFile, file: &ConfigFile) -> Vec<TokenId> {
    let mut ids = Vec::new();
    for tokens in [&generation.eos_token_id, &file.eos_token_id] {
        let tokens = match tokens {
            None => &[],
            Some(Tokens::One(id)) => std::slice::from_ref(id),
            Some(Tokens::Several(ids)) => ids.as_slice(),
        };
        for id in tokens {
            if !ids.contains(id) {
                ids.push(*id);
            }
        }
    }
    ids
}

/// Tells a key that is null from one that is absent.
#[expect(clippy::option_option, reason = "null and absent differ")]
fn present<'text, D, T>(value: D) -> Result<Option<Option<T>>, D::Error>
where
    D: Deserializer<'text>,
    T: Deserialize<'text>,
{
    Option::deserialize(value).map(Some)
}

fn read_small(path: &Path) -> Result<Vec<u8>, Error> {
    let read = || {
        if fs::metadata(path)?.len() > MAX_CONFIG_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        fs::read(path)
    };
    read().map_err(|source| Error::Read {
        path: path.to_owned(),
        source,
    })
}

fn decode<'text, T: Deserialize<'text>>(path: &Path, text: &'text [u8]) -> Result<T, Error> {
    serde_json::from_slice(text).map_err(|error| Error::Malformed {
        path: path.to_owned(),
        what: error.to_string(),
    })
}

const fn unsupported(what: String) -> Error {
    Error::Unsupported { what }
}
