//! Configurations of each family from both kinds of files: what is said, what
//! stands for what is not said, and what is refused.

use std::fs;

use serde_json::{Value, json};

use super::{LayerTensor, ModelConfig, RopePairing, RopeScaling, TensorNaming, TensorRole};
use crate::error::Error;
use crate::weights::builder::GgufBuilder;
use crate::weights::{DataType, GgufFile};

/// A GGUF of the architecture with 7 layers, 4 heads of 8 elements, 2 of them
/// for keys, and a vocabulary of 6.
fn gguf(architecture: &str) -> GgufBuilder {
    let key = |name| format!("{architecture}.{name}");
    GgufBuilder::new()
        .string("general.architecture", architecture)
        .u32(&key("embedding_length"), 32)
        .u32(&key("feed_forward_length"), 64)
        .u32(&key("block_count"), 7)
        .u32(&key("attention.head_count"), 4)
        .u32(&key("attention.head_count_kv"), 2)
        .u32(&key("context_length"), 256)
        .f32(&key("attention.layer_norm_rms_epsilon"), 1e-5)
        .u32("tokenizer.ggml.eos_token_id", 2)
        .tensor("token_embd.weight", DataType::Q8_0, &[6, 32], &[1; 6 * 34])
}

fn read_gguf(builder: &GgufBuilder) -> Result<ModelConfig, Error> {
    ModelConfig::from_gguf(&GgufFile::of_bytes(builder.bytes()).expect("a sound file"))
}

fn config_of(builder: &GgufBuilder) -> ModelConfig {
    read_gguf(builder).expect("a sound model")
}

/// `config.json` of the model type with the same numbers as `gguf`, and `changes` over them.
fn read_folder(
    model_type: &str,
    changes: &Value,
    generation: &Value,
) -> Result<ModelConfig, Error> {
    let mut config = json!({
        "model_type": model_type, "vocab_size": 6, "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "eos_token_id": 2,
    });
    let keys = config.as_object_mut().expect("an object");
    keys.extend(changes.as_object().expect("an object").clone());
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, value: &Value| {
        fs::write(folder.path().join(name), value.to_string()).expect("a file");
    };
    write("config.json", &config);
    if !generation.is_null() {
        write("generation_config.json", generation);
    }
    ModelConfig::from_folder(folder.path())
}

fn folder(model_type: &str, changes: &Value) -> ModelConfig {
    read_folder(model_type, changes, &Value::Null).expect("a sound model")
}

#[test]
fn families_differ_where_they_should_and_nowhere_else() {
    for (name, gguf_pairing) in [
        ("llama", RopePairing::Interleaved),
        ("qwen2", RopePairing::Halves),
        ("qwen3", RopePairing::Halves),
        ("gemma2", RopePairing::Halves),
        ("gemma3", RopePairing::Halves),
    ] {
        let mut builder = gguf(name);
        if name.starts_with("gemma") {
            builder = builder.u32(&format!("{name}.attention.sliding_window"), 4096);
        } else {
            builder = builder.tensor("output.weight", DataType::Q8_0, &[6, 32], &[1; 6 * 34]);
        }
        if name == "qwen2" {
            builder = builder.tensor("blk.0.attn_q.bias", DataType::F32, &[32], &[0; 128]);
        }
        let from_gguf = config_of(&builder);
        let query_scalar = json!({ "query_pre_attn_scalar": 8 });
        let mut from_folder = folder(name, &query_scalar);
        assert_eq!(from_gguf.rope.pairing, gguf_pairing, "{name}");
        assert_eq!(from_folder.rope.pairing, RopePairing::Halves, "{name}");
        let is_gemma = name.starts_with("gemma");
        assert_eq!(from_folder.norm_weight_is_offset, is_gemma, "{name}");
        assert!(!from_gguf.norm_weight_is_offset, "{name}");
        from_folder.norm_weight_is_offset = false;
        from_folder.rope.pairing = gguf_pairing;
        assert_eq!(from_gguf, from_folder, "{name}");
    }
}

#[test]
fn gemma_3_sees_a_window_in_five_layers_of_six() {
    let builder = gguf("gemma3").u32("gemma3.attention.sliding_window", 512);
    let config = config_of(&builder.f32("gemma3.rope.freq_base", 2e6));
    let expected = [true, true, true, true, true, false, true];
    assert_eq!(config.layer_is_local, expected);
    assert_eq!(config.sliding_window, Some(512));
    assert_eq!(config.rope.theta.to_bits(), 2e6_f32.to_bits());
    let local = config.local_rope.expect("a base of its own");
    assert_eq!(local.theta.to_bits(), 1e4_f32.to_bits());
    assert!(config.qk_norm && config.tie_word_embeddings);
    assert_eq!(config.embedding_scale.to_bits(), 32_f32.sqrt().to_bits());
    assert_eq!(config.attn_logit_softcapping, None);
    // Factors of the long context are for global layers alone.
    let builder = gguf("gemma3").u32("gemma3.attention.sliding_window", 512);
    let builder = builder.string("gemma3.rope.scaling.type", "linear");
    let config = config_of(&builder.f32("gemma3.rope.scaling.factor", 8.0));
    assert_eq!(config.rope.scaling, RopeScaling::Linear { factor: 8.0 });
    let local = config.local_rope.expect("a base of its own");
    assert_eq!(local.scaling, RopeScaling::None);
    // Without a window there is nothing that is local.
    let config = config_of(&gguf("gemma3"));
    assert_eq!((config.sliding_window, config.local_rope), (None, None));
    assert_eq!(config.layer_is_local, [false; 7]);
}

#[test]
fn gemma_2_sees_a_window_in_every_other_layer_and_has_soft_limits() {
    let config = config_of(&gguf("gemma2"));
    let expected = [true, false, true, false, true, false, true];
    assert_eq!(config.layer_is_local, expected);
    assert_eq!(config.sliding_window, Some(4096));
    assert_eq!(config.attn_logit_softcapping, Some(50.0));
    assert_eq!(config.final_logit_softcapping, Some(30.0));
    let config = folder(
        "gemma2",
        &json!({ "attn_logit_softcapping": null, "sliding_window": null }),
    );
    assert_eq!(config.attn_logit_softcapping, None);
    assert_eq!(config.final_logit_softcapping, Some(30.0));
    assert_eq!(config.sliding_window, None);
}

#[test]
fn a_pattern_of_its_own_is_followed() {
    let window = || gguf("gemma3").u32("gemma3.attention.sliding_window", 4);
    let key = "gemma3.attention.sliding_window_pattern";
    let config = config_of(&window().u32(key, 3));
    let third = [true, true, false, true, true, false, true];
    assert_eq!(config.layer_is_local, third);
    let flags: Vec<Vec<u8>> = third.iter().map(|local| vec![u8::from(*local)]).collect();
    assert_eq!(
        config_of(&window().array(key, 7, &flags)).layer_is_local,
        third
    );
    let config = folder("gemma3_text", &json!({ "sliding_window_pattern": 3 }));
    assert_eq!(config.layer_is_local, third);
    let kinds = third.map(|local| {
        if local {
            "sliding_attention"
        } else {
            "full_attention"
        }
    });
    let config = folder("gemma3_text", &json!({ "layer_types": kinds }));
    assert_eq!(config.layer_is_local, third);
    let config = folder("mistral", &json!({ "sliding_window": 16 }));
    assert_eq!(
        (config.sliding_window, config.layer_is_local),
        (Some(16), vec![true; 7])
    );
    let config = folder("mistral", &json!({ "sliding_window": null }));
    assert_eq!(
        (config.sliding_window, config.layer_is_local),
        (None, vec![false; 7])
    );
    let used = json!({ "sliding_window": 16, "use_sliding_window": true, "max_window_layers": 5 });
    let config = folder("qwen2", &used);
    assert_eq!(
        config.layer_is_local,
        [false, false, false, false, false, true, true]
    );
    assert_eq!(
        folder("qwen2", &json!({ "sliding_window": 16 })).sliding_window,
        None
    );
}

#[test]
fn widths_of_heads_are_what_the_file_says_or_the_family_has() {
    let config = config_of(&gguf("qwen3").u32("qwen3.attention.key_length", 16));
    assert_eq!((config.head_dim, config.rope.num_rotated), (16, 16));
    assert_eq!(config.attention_scale.to_bits(), 0.25_f32.to_bits());
    let absent = json!({ "head_dim": null });
    for (name, expected) in [
        ("llama", 8),
        ("qwen2", 8),
        ("qwen3", 128),
        ("gemma3_text", 256),
    ] {
        assert_eq!(folder(name, &absent).head_dim, expected, "{name}");
    }
    let config = folder("gemma3_text", &json!({ "query_pre_attn_scalar": 64 }));
    assert_eq!(config.attention_scale.to_bits(), 0.125_f32.to_bits());
    let config = folder("llama", &json!({ "num_key_value_heads": null }));
    assert_eq!(config.num_key_value_heads, 4);
    let heads: Vec<Vec<u8>> = vec![4_i32.to_le_bytes().to_vec(); 7];
    let mut builder = gguf("llama");
    builder.entries.remove(4);
    let config = config_of(&builder.array("llama.attention.head_count", 5, &heads));
    assert_eq!(config.num_attention_heads, 4);
}

#[test]
fn llama_3_divides_slow_frequencies_alike_from_both_files() {
    let rule = json!({ "rope_theta": 500_000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192 } });
    let wide = json!({ "head_dim": 128 });
    let mut changes = rule.as_object().expect("an object").clone();
    changes.extend(wide.as_object().expect("an object").clone());
    let RopeScaling::PerFrequency { factors } = folder("llama", &changes.into()).rope.scaling
    else {
        panic!("factors of each frequency");
    };
    // From numpy and the formula of transformers, for Llama 3.1 8B.
    let ramp = [
        1.207_484, 1.553_415, 2.026_313, 2.694_53, 3.684_253, 5.257_327,
    ];
    assert_eq!(factors.len(), 64);
    assert!(
        factors[..29]
            .iter()
            .all(|factor| factor.to_bits() == 1.0_f32.to_bits())
    );
    assert!(
        factors[35..]
            .iter()
            .all(|factor| factor.to_bits() == 8.0_f32.to_bits())
    );
    for (factor, expected) in factors[29..35].iter().zip(ramp) {
        assert!(
            (factor / expected - 1.0_f32).abs() < 1e-4,
            "{factor} {expected}"
        );
    }

    let bytes: Vec<u8> = [1.0_f32, 1.0, 2.0, 8.0]
        .iter()
        .flat_map(|f| f.to_le_bytes())
        .collect();
    let builder = gguf("llama").tensor("rope_freqs.weight", DataType::F32, &[4], &bytes);
    let expected = RopeScaling::PerFrequency {
        factors: vec![1.0, 1.0, 2.0, 8.0],
    };
    assert_eq!(config_of(&builder).rope.scaling, expected);
}

#[test]
fn yarn_and_linear_scaling_are_alike_from_both_files() {
    let check = |builder: &GgufBuilder, rope: &Value, expected: &RopeScaling| {
        assert_eq!(&config_of(builder).rope.scaling, expected);
        for key in ["rope_scaling", "rope_parameters"] {
            assert_eq!(
                &folder("llama", &json!({ key: rope })).rope.scaling,
                expected,
                "{key}"
            );
        }
    };
    let scaled = |kind| {
        let builder = gguf("llama").string("llama.rope.scaling.type", kind);
        builder.f32("llama.rope.scaling.factor", 4.0)
    };
    let linear = json!({ "type": "linear", "factor": 4.0 });
    check(
        &scaled("linear"),
        &linear,
        &RopeScaling::Linear { factor: 4.0 },
    );
    let yarn =
        json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64 });
    let expected = RopeScaling::Yarn {
        factor: 4.0,
        original_max_position_embeddings: 64,
        beta_fast: 32.0,
        beta_slow: 1.0,
        attention_factor: 0.1 * 4.0_f32.ln() + 1.0,
    };
    let builder = scaled("yarn").u32("llama.rope.scaling.original_context_length", 64);
    check(&builder, &yarn, &expected);
    check(
        &gguf("llama"),
        &json!({ "rope_type": "default" }),
        &RopeScaling::None,
    );
    let by_layer = json!({ "rope_parameters": {
        "full_attention": { "rope_type": "linear", "factor": 8.0, "rope_theta": 1e6 },
        "sliding_attention": { "rope_type": "default", "rope_theta": 5e3 } } });
    let config = folder("gemma3_text", &by_layer);
    assert_eq!(config.rope.scaling, RopeScaling::Linear { factor: 8.0 });
    let local = config.local_rope.expect("a base of its own");
    assert_eq!(
        (local.theta.to_bits(), local.scaling),
        (5e3_f32.to_bits(), RopeScaling::None)
    );
}

#[test]
fn every_token_that_ends_a_text_is_known() {
    let tokens = ["<unk>", "<s>", "</s>", "<|im_end|>", "<end_of_turn>", "a"];
    let types: Vec<Vec<u8>> = [2_i32, 3, 3, 3, 1, 1]
        .iter()
        .map(|t| t.to_le_bytes().to_vec())
        .collect();
    let builder = gguf("llama")
        .strings("tokenizer.ggml.tokens", &tokens)
        .array("tokenizer.ggml.token_type", 5, &types)
        .u32("tokenizer.ggml.eot_token_id", 5)
        .u32("tokenizer.ggml.bos_token_id", 1);
    let config = config_of(&builder);
    // A token that is not a control token is text, whatever it looks like.
    assert_eq!(config.eos_token_ids, [2, 5, 3]);
    assert_eq!(config.bos_token_id, Some(1));
    let generation = json!({ "eos_token_id": [4, 2], "bos_token_id": 0 });
    let config = read_folder("llama", &json!({}), &generation).expect("a sound model");
    assert_eq!(
        (config.eos_token_ids, config.bos_token_id),
        (vec![4, 2], Some(0))
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn what_a_gguf_may_not_say_is_refused() {
    let check = |builder: GgufBuilder, expected: &str| {
        let message = match read_gguf(&builder) {
            Ok(_) => panic!("is read: {expected}"),
            Err(error) => error.to_string(),
        };
        assert!(message.contains(expected), "{message}\n{expected}");
    };
    let known = "architecture phi3; supported: llama, mistral, qwen2, qwen3, gemma2, gemma3";
    check(gguf("phi3"), known);
    check(gguf("gemma3_text"), "architecture gemma3_text; supported");
    check(GgufBuilder::new(), "general.architecture: is missing");
    for (index, key) in [
        "embedding_length",
        "feed_forward_length",
        "block_count",
        "attention.head_count",
        "attention.head_count_kv",
        "context_length",
        "attention.layer_norm_rms_epsilon",
    ]
    .iter()
    .enumerate()
    {
        let mut builder = gguf("llama");
        builder.entries.remove(index + 1);
        if *key != "attention.head_count_kv" {
            check(builder, &format!("llama.{key}: is missing"));
        }
    }
    let changed = |name: &str, value: u32| {
        let mut builder = gguf("llama");
        let key = format!("llama.{name}");
        builder
            .entries
            .retain(|entry| !entry[8..].starts_with(format!("{key}\x04").as_bytes()));
        builder.u32(&key, value)
    };
    check(
        changed("block_count", u32::MAX),
        "num_hidden_layers is 4294967295, 1 to 4096",
    );
    check(changed("embedding_length", 0), "hidden_size is 0");
    check(
        changed("attention.head_count", 0),
        "num_attention_heads is 0",
    );
    check(
        changed("attention.head_count_kv", 3),
        "no multiple of num_key_value_heads, 3",
    );
    check(
        changed("attention.head_count_kv", 0),
        "num_key_value_heads is 0",
    );
    check(changed("context_length", 0), "max_position_embeddings is 0");
    check(
        gguf("llama").u32("llama.expert_count", 8),
        "llama with 8 experts",
    );
    check(
        gguf("llama").u32("llama.attention.value_length", 4),
        "keys of 8 elements with values of 4",
    );
    check(
        gguf("llama").u32("llama.rope.dimension_count", 10),
        "10 elements of a head are rotated",
    );
    check(
        gguf("llama").u32("llama.rope.dimension_count", 3),
        "3 elements of a head are rotated",
    );
    check(
        gguf("llama").f32("llama.rope.freq_base", f32::NAN),
        "rope_theta is NaN",
    );
    check(
        gguf("llama").string("llama.rope.scaling.type", "longrope"),
        "rope scaling longrope; supported",
    );
    check(
        gguf("llama").f32("llama.rope.scale_linear", 0.0),
        "rope factor is 0",
    );
    check(
        gguf("llama").strings("tokenizer.ggml.tokens", &["a"]),
        "1 tokens, and token_embd.weight has 6 rows",
    );
    let bias = gguf("llama").tensor("blk.0.attn_output.bias", DataType::F32, &[32], &[0; 128]);
    check(bias, "a bias of the attention's output");
    let differ: Vec<Vec<u8>> = [2_i32, 1]
        .iter()
        .map(|n| n.to_le_bytes().to_vec())
        .collect();
    let mut builder = gguf("llama");
    builder.entries.remove(5);
    check(
        builder.array("llama.attention.head_count_kv", 5, &differ),
        "llama.attention.head_count_kv that differs from layer to layer: [2, 1]",
    );
}

#[test]
fn what_a_folder_may_not_say_is_refused() {
    let check = |changes: Value, expected: &str| {
        let message = match read_folder("llama", &changes, &Value::Null) {
            Ok(_) => panic!("is read: {changes}"),
            Err(error) => error.to_string(),
        };
        assert!(message.contains(expected), "{message}\n{expected}");
    };
    check(
        json!({ "model_type": "phi3" }),
        "architecture phi3; supported: llama, mistral",
    );
    check(
        json!({ "vocab_size": null }),
        "config.json: vocab_size: is missing",
    );
    check(json!({ "hidden_size": -1 }), "invalid value: integer `-1`");
    check(
        json!({ "num_hidden_layers": 1_u64 << 40 }),
        "num_hidden_layers is 1099511627776",
    );
    check(json!({ "rms_norm_eps": 0 }), "rms_norm_eps is 0");
    check(
        json!({ "hidden_act": "relu" }),
        "hidden_act relu; supported: silu, gelu_pytorch_tanh",
    );
    check(
        json!({ "attention_bias": true }),
        "attention_bias with a bias of the output of llama",
    );
    check(json!({ "mlp_bias": true }), "mlp_bias of llama");
    check(
        json!({ "quantization_config": {} }),
        "quantization_config of llama",
    );
    check(
        json!({ "rope_scaling": { "type": "dynamic" } }),
        "rope scaling dynamic; supported",
    );
    check(
        json!({ "rope_scaling": { "type": "linear" } }),
        "rope_scaling: factor: is missing",
    );
    check(
        json!({ "rope_scaling": { "type": "yarn", "factor": -1.0 } }),
        "rope factor is -1",
    );
    check(
        json!({ "model_type": "mistral", "layer_types": ["sliding_attention"] }),
        "windows of 1 layers",
    );
}

#[test]
fn tensors_have_the_names_of_their_files() {
    let llama = config_of(&gguf("llama"));
    let gemma = config_of(&gguf("gemma3"));
    let check = |config: &ModelConfig, part, gguf: &str, hugging_face: &str| {
        let role = TensorRole::Layer(3, part);
        assert_eq!(
            role.name(TensorNaming::Gguf, config),
            format!("blk.3.{gguf}")
        );
        let name = role.name(TensorNaming::HuggingFace, config);
        assert_eq!(name, format!("model.layers.3.{hugging_face}"));
    };
    check(
        &llama,
        LayerTensor::QProj,
        "attn_q.weight",
        "self_attn.q_proj.weight",
    );
    check(
        &llama,
        LayerTensor::FeedForwardNorm,
        "ffn_norm.weight",
        "post_attention_layernorm.weight",
    );
    check(
        &gemma,
        LayerTensor::FeedForwardNorm,
        "ffn_norm.weight",
        "pre_feedforward_layernorm.weight",
    );
    check(
        &gemma,
        LayerTensor::AttentionOutputNorm,
        "post_attention_norm.weight",
        "post_attention_layernorm.weight",
    );
    let roles = |config: &ModelConfig| TensorRole::all(config).count();
    assert_eq!(roles(&llama), 7 * 9 + 2);
    assert_eq!(roles(&gemma), 7 * 13 + 2);
    for naming in [TensorNaming::Gguf, TensorNaming::HuggingFace] {
        let mut names: Vec<String> = TensorRole::all(&gemma)
            .map(|role| role.name(naming, &gemma))
            .collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), roles(&gemma));
    }
}

#[test]
fn a_tensor_that_is_absent_or_of_another_shape_is_named() {
    let builder = gguf("llama").tensor("output_norm.weight", DataType::F32, &[31], &[0; 124]);
    let file = GgufFile::of_bytes(builder.bytes()).expect("a sound file");
    let config = ModelConfig::from_gguf(&file).expect("a sound model");
    let find = |role: TensorRole| {
        let found = role.find(&file, TensorNaming::Gguf, &config);
        found
            .map(crate::StoredTensor::num_bytes)
            .map_err(|error| error.to_string())
    };
    assert_eq!(find(TensorRole::EmbedTokens), Ok(6 * 34));
    let expected = "tensor output_norm.weight: expected [32], found [31]";
    assert_eq!(find(TensorRole::Norm), Err(expected.to_owned()));
    let expected = "tensor blk.0.attn_k.weight: expected [16, 32], found none";
    let role = TensorRole::Layer(0, LayerTensor::KProj);
    assert_eq!(find(role), Err(expected.to_owned()));
}
