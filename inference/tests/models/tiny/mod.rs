//! Random models of each architecture, small enough to run in no time, as
//! GGUF files and as folders of safetensors.
//!
//! Weights are integers of eight bits times a power of two: f32, f16 and bf16
//! hold the same numbers, so that all files of a model give the same logits.
//! They depend on the names of model and tensor alone.

mod config;
mod files;
mod random;
mod tokenizer;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use self::files::{Kind, Tensor, Value, write_gguf, write_safetensors};
pub(crate) use self::random::Random;
use crate::reference::Type;

pub(crate) use self::tokenizer::VOCAB_SIZE;

/// Tokens of a text that is long enough for windows and scalings to show.
pub(crate) fn token_ids() -> Vec<u32> {
    const LENGTH: usize = 40;
    let mut random = Random::new("text");
    (0..LENGTH).map(|_| random.below(VOCAB_SIZE)).collect()
}

/// Families as `model_type` names them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Family {
    Llama,
    Mistral,
    Qwen2,
    Qwen3,
    Gemma2,
    Gemma3,
}

/// How rotation is changed for longer contexts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scaling {
    None,
    Linear,
    Llama3,
    Yarn,
}

/// A random model.
#[derive(Clone, Debug)]
pub(crate) struct TinyModel {
    pub(crate) name: &'static str,
    pub(crate) family: Family,
    pub(crate) hidden_size: usize,
    pub(crate) intermediate_size: usize,
    pub(crate) num_layers: usize,
    pub(crate) num_heads: usize,
    pub(crate) num_kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) scaling: Scaling,
    pub(crate) tied: bool,
    /// `query_pre_attn_scalar` of Gemma where it is not `head_dim`; GGUF has no place for it.
    pub(crate) query_scalar: Option<u32>,
}

const LINEAR_FACTOR: f32 = 4.0;
const YARN_FACTOR: f32 = 4.0;
const LLAMA3_FACTOR: f32 = 8.0;
/// Short, so that a short text has angles in each of the ranges of Llama 3's rule and of `YaRN`.
const ORIGINAL_CONTEXT: u32 = 64;
const CONTEXT: u32 = 512;
const WINDOW: u32 = 8;
/// Large, so that a wrong one shows.
const EPS: f32 = 1e-2;
const ATTENTION_CAP: f32 = 3.0;
const FINAL_CAP: f32 = 5.0;

/// All models whose weights are not quantised.
#[expect(clippy::too_many_lines, reason = "a list")]
pub(crate) fn models() -> Vec<TinyModel> {
    let plain = TinyModel {
        name: "llama",
        family: Family::Llama,
        hidden_size: 64,
        intermediate_size: 160,
        num_layers: 3,
        num_heads: 4,
        num_kv_heads: 2,
        head_dim: 16,
        scaling: Scaling::None,
        tied: false,
        query_scalar: None,
    };
    let wide = TinyModel {
        head_dim: 32,
        ..plain.clone()
    };
    let gemma = TinyModel {
        num_layers: 4,
        tied: true,
        ..wide.clone()
    };
    vec![
        plain.clone(),
        TinyModel {
            name: "llama-linear",
            scaling: Scaling::Linear,
            ..plain.clone()
        },
        TinyModel {
            name: "llama3",
            scaling: Scaling::Llama3,
            tied: true,
            ..wide.clone()
        },
        TinyModel {
            name: "mistral",
            family: Family::Mistral,
            ..wide.clone()
        },
        TinyModel {
            name: "qwen2",
            family: Family::Qwen2,
            tied: true,
            ..plain.clone()
        },
        TinyModel {
            name: "qwen2-yarn",
            family: Family::Qwen2,
            scaling: Scaling::Yarn,
            ..plain
        },
        TinyModel {
            name: "qwen3",
            family: Family::Qwen3,
            num_kv_heads: 1,
            ..wide
        },
        TinyModel {
            name: "gemma2",
            family: Family::Gemma2,
            ..gemma.clone()
        },
        TinyModel {
            name: "gemma2-scalar",
            family: Family::Gemma2,
            query_scalar: Some(48),
            ..gemma.clone()
        },
        TinyModel {
            name: "gemma3",
            family: Family::Gemma3,
            num_layers: 7,
            num_kv_heads: 1,
            ..gemma.clone()
        },
        TinyModel {
            name: "gemma3-linear",
            family: Family::Gemma3,
            num_layers: 7,
            hidden_size: 96,
            scaling: Scaling::Linear,
            ..gemma
        },
    ]
}

/// Types whose weights are quantised.
pub(crate) const BLOCK_TYPES: [Type; 10] = [
    Type::Q4_0,
    Type::Q4_1,
    Type::Q5_0,
    Type::Q5_1,
    Type::Q8_0,
    Type::Q2_K,
    Type::Q3_K,
    Type::Q4_K,
    Type::Q5_K,
    Type::Q6_K,
];

/// A model whose matrices fit the blocks of all types.
pub(crate) fn quantized_model() -> TinyModel {
    TinyModel {
        name: "llama-quantized",
        family: Family::Llama,
        hidden_size: 256,
        intermediate_size: 512,
        num_layers: 2,
        num_heads: 4,
        num_kv_heads: 2,
        head_dim: 64,
        scaling: Scaling::None,
        tied: false,
        query_scalar: None,
    }
}

impl TinyModel {
    /// Whether GGUF can say all that the model is.
    pub(crate) fn has_gguf(&self) -> bool {
        self.family != Family::Mistral && self.query_scalar.is_none()
    }

    fn is_gemma(&self) -> bool {
        matches!(self.family, Family::Gemma2 | Family::Gemma3)
    }

    /// Writes a GGUF file. Norms and biases are f32, matrices of the given types in turn.
    pub(crate) fn write_gguf(&self, folder: &Path, types: &[Type], label: &str) -> PathBuf {
        assert!(self.has_gguf());
        let path = folder.join(format!("{}-{label}.gguf", self.name));
        let mut tensors: Vec<Tensor> = self
            .shapes()
            .into_iter()
            .enumerate()
            .map(|(index, (name, shape))| {
                let kind = if shape.len() == 1 {
                    Type::F32
                } else {
                    types[index % types.len()]
                };
                let mut bytes = self.bytes(&name, &shape, kind);
                if self.family == Family::Llama
                    && (name.contains("q_proj") || name.contains("k_proj"))
                {
                    bytes = interleave_rows(&bytes, shape[0], self.head_dim);
                }
                if self.is_gemma() && name.contains("norm") {
                    bytes = Type::F32
                        .dequantize(&bytes)
                        .into_iter()
                        .flat_map(|weight| (weight + 1.0).to_le_bytes())
                        .collect();
                }
                let name = self.gguf_name(&name);
                Tensor {
                    name,
                    shape,
                    kind: Kind::Gguf(kind as u32),
                    bytes,
                }
            })
            .collect();
        if self.scaling == Scaling::Llama3 {
            let factors = llama3_factors(self.head_dim);
            tensors.push(Tensor {
                name: "rope_freqs.weight".to_owned(),
                shape: vec![factors.len()],
                kind: Kind::Gguf(Type::F32 as u32),
                bytes: factors.into_iter().flat_map(f32::to_le_bytes).collect(),
            });
        }
        let mut entries = self.gguf_entries();
        entries.extend(tokenizer::gguf_entries());
        write_gguf(&path, &entries, &tensors);
        path
    }

    /// Writes a folder as Hugging Face has it.
    pub(crate) fn write_folder(&self, folder: &Path, kind: Type) -> PathBuf {
        let path = folder.join(format!("{}-{kind:?}", self.name));
        let dtype = match kind {
            Type::F32 => "F32",
            Type::F16 => "F16",
            Type::BF16 => "BF16",
            _ => panic!("safetensors have no {kind:?}"),
        };
        fs::create_dir_all(&path).expect("the folder of the test can be written");
        let tensors: Vec<Tensor> = self
            .shapes()
            .into_iter()
            .map(|(name, shape)| Tensor {
                bytes: self.bytes(&name, &shape, kind),
                name,
                shape,
                kind: Kind::Safetensors(dtype),
            })
            .collect();
        write_safetensors(&path.join("model.safetensors"), &tensors);
        let (tokenizer, tokenizer_config) = tokenizer::hugging_face_files();
        for (name, json) in [
            ("config.json", self.config()),
            ("tokenizer.json", tokenizer),
            ("tokenizer_config.json", tokenizer_config),
        ] {
            fs::write(path.join(name), format!("{json:#}")).expect("the folder can be written");
        }
        path
    }

    /// Tensors by Hugging Face's names, with their shapes.
    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let hidden = self.hidden_size;
        let (q, kv) = (
            self.num_heads * self.head_dim,
            self.num_kv_heads * self.head_dim,
        );
        let mut shapes = vec![(
            "model.embed_tokens.weight".to_owned(),
            vec![VOCAB_SIZE, hidden],
        )];
        for layer in 0..self.num_layers {
            let mut add = |part: &str, shape: &[usize]| {
                shapes.push((format!("model.layers.{layer}.{part}"), shape.to_vec()));
            };
            add("input_layernorm.weight", &[hidden]);
            add("self_attn.q_proj.weight", &[q, hidden]);
            add("self_attn.k_proj.weight", &[kv, hidden]);
            add("self_attn.v_proj.weight", &[kv, hidden]);
            add("self_attn.o_proj.weight", &[hidden, q]);
            if self.family == Family::Qwen2 {
                add("self_attn.q_proj.bias", &[q]);
                add("self_attn.k_proj.bias", &[kv]);
                add("self_attn.v_proj.bias", &[kv]);
            }
            if matches!(self.family, Family::Qwen3 | Family::Gemma3) {
                add("self_attn.q_norm.weight", &[self.head_dim]);
                add("self_attn.k_norm.weight", &[self.head_dim]);
            }
            add("post_attention_layernorm.weight", &[hidden]);
            if self.is_gemma() {
                add("pre_feedforward_layernorm.weight", &[hidden]);
                add("post_feedforward_layernorm.weight", &[hidden]);
            }
            add("mlp.gate_proj.weight", &[self.intermediate_size, hidden]);
            add("mlp.up_proj.weight", &[self.intermediate_size, hidden]);
            add("mlp.down_proj.weight", &[hidden, self.intermediate_size]);
        }
        shapes.push(("model.norm.weight".to_owned(), vec![hidden]));
        if !self.tied {
            shapes.push(("lm_head.weight".to_owned(), vec![VOCAB_SIZE, hidden]));
        }
        shapes
    }

    fn bytes(&self, name: &str, shape: &[usize], kind: Type) -> Vec<u8> {
        let mut random = Random::new(&format!("{}/{name}", self.name));
        let count = shape.iter().product();
        // Rows of unit variance come out of rows of unit variance; queries and keys a bit
        // larger, so that attention is no mere mean.
        let spread = if name.contains("norm") {
            -10
        } else if name.contains("bias") {
            -7
        } else if name.contains("embed_tokens") {
            match (self.is_gemma(), self.tied) {
                (true, _) => -9,
                (false, true) => -8,
                (false, false) => -6,
            }
        } else if ["q_proj", "k_proj", "lm_head"]
            .iter()
            .any(|part| name.contains(part))
        {
            -9
        } else {
            -10
        };
        if kind.block().0 > 1 {
            return random.blocks(kind, count, 73.0 * f32::powi(2.0, spread));
        }
        let offset = if name.contains("norm") && !self.is_gemma() {
            1.0
        } else {
            0.0
        };
        random.numbers(kind, count, f32::powi(2.0, spread), offset)
    }

    fn gguf_architecture(&self) -> &'static str {
        match self.family {
            Family::Llama | Family::Mistral => "llama",
            Family::Qwen2 => "qwen2",
            Family::Qwen3 => "qwen3",
            Family::Gemma2 => "gemma2",
            Family::Gemma3 => "gemma3",
        }
    }

    fn gguf_name(&self, name: &str) -> String {
        let name = name.strip_prefix("model.").unwrap_or(name);
        let Some(rest) = name.strip_prefix("layers.") else {
            return name
                .replace("embed_tokens", "token_embd")
                .replace("lm_head", "output")
                .replace("norm", "output_norm");
        };
        let mut parts: Vec<&str> = rest.split('.').collect();
        let kind = parts.pop().expect("a tensor has a kind");
        let layer = parts.remove(0);
        let part = match parts.join(".").as_str() {
            "input_layernorm" => "attn_norm",
            "self_attn.q_proj" => "attn_q",
            "self_attn.k_proj" => "attn_k",
            "self_attn.v_proj" => "attn_v",
            "self_attn.o_proj" => "attn_output",
            "self_attn.q_norm" => "attn_q_norm",
            "self_attn.k_norm" => "attn_k_norm",
            "post_attention_layernorm" if self.is_gemma() => "post_attention_norm",
            "post_attention_layernorm" | "pre_feedforward_layernorm" => "ffn_norm",
            "post_feedforward_layernorm" => "post_ffw_norm",
            "mlp.gate_proj" => "ffn_gate",
            "mlp.up_proj" => "ffn_up",
            "mlp.down_proj" => "ffn_down",
            other => panic!("{other} has no name in GGUF"),
        };
        format!("blk.{layer}.{part}.{kind}")
    }

    fn gguf_entries(&self) -> Vec<(String, Value)> {
        let architecture = self.gguf_architecture();
        let mut entries = vec![
            (
                "general.architecture".to_owned(),
                Value::Text(architecture.to_owned()),
            ),
            (
                "general.name".to_owned(),
                Value::Text(format!("tiny {}", self.name)),
            ),
            // Of no use here; a reader has to step over arrays of all types.
            (
                "general.test.truths".to_owned(),
                Value::Bools(vec![true, false]),
            ),
        ];
        let mut add = |key: &str, value: Value| {
            entries.push((format!("{architecture}.{key}"), value));
        };
        add("context_length", Value::U32(CONTEXT));
        add("embedding_length", Value::U32(self.hidden_size as u32));
        add("block_count", Value::U32(self.num_layers as u32));
        add(
            "feed_forward_length",
            Value::U32(self.intermediate_size as u32),
        );
        add("attention.head_count", Value::U32(self.num_heads as u32));
        add(
            "attention.head_count_kv",
            Value::U32(self.num_kv_heads as u32),
        );
        add("attention.key_length", Value::U32(self.head_dim as u32));
        add("attention.value_length", Value::U32(self.head_dim as u32));
        add("attention.layer_norm_rms_epsilon", Value::F32(EPS));
        add("rope.freq_base", Value::F32(self.theta()));
        match self.family {
            Family::Llama => add("rope.dimension_count", Value::U32(self.head_dim as u32)),
            Family::Gemma2 => {
                add("attn_logit_softcapping", Value::F32(ATTENTION_CAP));
                add("final_logit_softcapping", Value::F32(FINAL_CAP));
                add("attention.sliding_window", Value::U32(WINDOW));
            }
            Family::Gemma3 => add("attention.sliding_window", Value::U32(WINDOW)),
            Family::Mistral | Family::Qwen2 | Family::Qwen3 => {}
        }
        match self.scaling {
            Scaling::None | Scaling::Llama3 => {}
            Scaling::Linear => {
                add("rope.scaling.type", Value::Text("linear".to_owned()));
                add("rope.scaling.factor", Value::F32(LINEAR_FACTOR));
            }
            Scaling::Yarn => {
                add("rope.scaling.type", Value::Text("yarn".to_owned()));
                add("rope.scaling.factor", Value::F32(YARN_FACTOR));
                add(
                    "rope.scaling.original_context_length",
                    Value::U32(ORIGINAL_CONTEXT),
                );
            }
        }
        entries
    }

    fn theta(&self) -> f32 {
        match self.family {
            Family::Llama | Family::Mistral | Family::Gemma2 => 10_000.0,
            Family::Qwen2 | Family::Qwen3 | Family::Gemma3 => 1_000_000.0,
        }
    }

    fn config(&self) -> Json {
        let (model_type, architecture) = match self.family {
            Family::Llama => ("llama", "LlamaForCausalLM"),
            Family::Mistral => ("mistral", "MistralForCausalLM"),
            Family::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
            Family::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
            Family::Gemma2 => ("gemma2", "Gemma2ForCausalLM"),
            Family::Gemma3 => ("gemma3_text", "Gemma3ForCausalLM"),
        };
        let mut config = json!({
            "architectures": [architecture],
            "model_type": model_type,
            "vocab_size": VOCAB_SIZE,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": EPS,
            "rope_theta": self.theta(),
            "tie_word_embeddings": self.tied,
            "bos_token_id": tokenizer::BOS,
            "eos_token_id": tokenizer::EOS,
            "torch_dtype": "float32",
        });
        // Qwen 2 has no such entry: its heads share the hidden size.
        if self.family != Family::Qwen2 {
            config["head_dim"] = json!(self.head_dim);
        }
        let more = match self.family {
            Family::Llama => json!({"hidden_act": "silu", "attention_bias": false}),
            Family::Mistral => json!({"hidden_act": "silu", "sliding_window": WINDOW}),
            Family::Qwen2 => json!({"hidden_act": "silu", "use_sliding_window": false,
                "sliding_window": 4, "max_window_layers": 1}),
            Family::Qwen3 => json!({"hidden_act": "silu", "attention_bias": false,
                "use_sliding_window": false, "sliding_window": null}),
            Family::Gemma2 => json!({"hidden_activation": "gelu_pytorch_tanh",
                "query_pre_attn_scalar": self.query_scalar.unwrap_or(self.head_dim as u32),
                "attn_logit_softcapping": ATTENTION_CAP,
                "final_logit_softcapping": FINAL_CAP, "sliding_window": WINDOW}),
            Family::Gemma3 => json!({"hidden_activation": "gelu_pytorch_tanh",
                "query_pre_attn_scalar": self.query_scalar.unwrap_or(self.head_dim as u32),
                "attn_logit_softcapping": null, "final_logit_softcapping": null,
                "sliding_window": WINDOW, "sliding_window_pattern": 6,
                "rope_local_base_freq": 10_000.0}),
        };
        let scaling = match self.scaling {
            Scaling::None => json!(null),
            Scaling::Linear => json!({"type": "linear", "factor": LINEAR_FACTOR}),
            Scaling::Llama3 => json!({"rope_type": "llama3", "factor": LLAMA3_FACTOR,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": ORIGINAL_CONTEXT}),
            Scaling::Yarn => json!({"rope_type": "yarn", "type": "yarn", "factor": YARN_FACTOR,
                "original_max_position_embeddings": ORIGINAL_CONTEXT}),
        };
        config["rope_scaling"] = scaling;
        for (key, value) in more.as_object().expect("an object") {
            config[key] = value.clone();
        }
        config
    }
}

/// Divisors of frequencies by Llama 3's rule, as a GGUF file holds them.
fn llama3_factors(head_dim: usize) -> Vec<f32> {
    let context = f64::from(ORIGINAL_CONTEXT);
    (0..head_dim / 2)
        .map(|pair| {
            let frequency = 10_000_f64.powf(-2.0 * pair as f64 / head_dim as f64);
            let turns = context * frequency / (2.0 * std::f64::consts::PI);
            let kept = ((turns - 1.0) / (4.0 - 1.0)).clamp(0.0, 1.0);
            (1.0 / ((1.0 - kept) / f64::from(LLAMA3_FACTOR) + kept)) as f32
        })
        .collect()
}

/// Reorders rows of queries or keys for the interleaved rotation: pair i of a head, rows i and
/// i + half of it, becomes rows 2i and 2i + 1.
fn interleave_rows(bytes: &[u8], num_rows: usize, head_dim: usize) -> Vec<u8> {
    let row_bytes = bytes.len() / num_rows;
    (0..num_rows)
        .flat_map(|row| {
            let (head, within) = (row / head_dim, row % head_dim);
            let source = head * head_dim + within / 2 + within % 2 * (head_dim / 2);
            &bytes[source * row_bytes..][..row_bytes]
        })
        .copied()
        .collect()
}
