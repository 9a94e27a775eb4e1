//! Forward pass of a decoder-only transformer as its papers define it: plain
//! loops, f64 throughout, nothing kept from call to call, nothing shared with
//! the engine but [`ModelConfig`].
//!
//! Sources: rotary embedding (arXiv 2104.09864), grouped queries (2305.13245),
//! `SwiGLU` (2002.05202), RMS norm (1910.07467), `YaRN` (2309.00071), Gemma 2
//! (2408.00118) and Gemma 3 (2503.19786).

mod blocks;
mod files;
mod matrix;

use justapi_inference::{
    Activation, ModelConfig, NormPlacement, RopeConfig, RopePairing, RopeScaling,
};

pub(crate) use self::blocks::Type;
pub(crate) use self::files::read;
pub(crate) use self::matrix::Weights;

/// Returns the logits behind each token. (`token_ids.len()`, `vocab_size`)
pub(crate) fn logits(config: &ModelConfig, weights: &Weights, token_ids: &[u32]) -> Vec<Vec<f64>> {
    let states = hidden_states(config, weights, token_ids);
    let output = if config.tie_word_embeddings {
        weights.get("model.embed_tokens.weight")
    } else {
        weights.get("lm_head.weight")
    };
    let mut logits = output.times(&states);
    if let Some(cap) = config.final_logit_softcapping {
        for logit in logits.iter_mut().flatten() {
            *logit = soft_cap(*logit, f64::from(cap));
        }
    }
    logits
}

/// Returns the states behind the last norm. (`token_ids.len()`, `hidden_size`)
fn hidden_states(config: &ModelConfig, weights: &Weights, token_ids: &[u32]) -> Vec<Vec<f64>> {
    let embedding = weights.get("model.embed_tokens.weight");
    let scale = f64::from(config.embedding_scale);
    let mut states: Vec<Vec<f64>> = token_ids
        .iter()
        .map(|&token| {
            let row = embedding.row(token as usize);
            row.iter().map(|&x| f64::from(x) * scale).collect()
        })
        .collect();
    for layer in 0..config.num_hidden_layers {
        let name = |part: &str| format!("model.layers.{layer}.{part}.weight");
        let norm = |part: &str, rows: &[Vec<f64>]| norm_rows(config, weights, &name(part), rows);
        let sandwich = config.norm_placement == NormPlacement::BeforeAndAfter;

        let mut change = attention(config, weights, layer, &norm("input_layernorm", &states));
        if sandwich {
            change = norm("post_attention_layernorm", &change);
        }
        add(&mut states, &change);

        let before = if sandwich {
            "pre_feedforward_layernorm"
        } else {
            "post_attention_layernorm"
        };
        change = feed_forward(config, weights, layer, &norm(before, &states));
        if sandwich {
            change = norm("post_feedforward_layernorm", &change);
        }
        add(&mut states, &change);
    }
    norm_rows(config, weights, "model.norm.weight", &states)
}

fn attention(
    config: &ModelConfig,
    weights: &Weights,
    layer: usize,
    rows: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let head_dim = config.head_dim;
    let is_local = config.layer_is_local[layer];
    let rope = match &config.local_rope {
        Some(local) if is_local => local,
        _ => &config.rope,
    };
    let project = |part: &str| {
        let name = format!("model.layers.{layer}.self_attn.{part}");
        let mut result = weights.get(&format!("{name}.weight")).times(rows);
        if config.attention_bias {
            let bias = weights.get(&format!("{name}.bias"));
            for row in &mut result {
                for (x, &b) in row.iter_mut().zip(bias.values()) {
                    *x += f64::from(b);
                }
            }
        }
        result
    };
    let (mut queries, mut keys, values) = (project("q_proj"), project("k_proj"), project("v_proj"));
    for (heads, norm) in [(&mut queries, "q_norm"), (&mut keys, "k_norm")] {
        for (position, row) in heads.iter_mut().enumerate() {
            for head in row.chunks_exact_mut(head_dim) {
                if config.qk_norm {
                    let name = format!("model.layers.{layer}.self_attn.{norm}.weight");
                    rms_norm(config, weights.get(&name).values(), head);
                }
                rotate(rope, position, head);
            }
        }
    }

    let queries_per_key = config.num_attention_heads / config.num_key_value_heads;
    let mut mixed = vec![vec![0.0; config.num_attention_heads * head_dim]; rows.len()];
    for (position, output) in mixed.iter_mut().enumerate() {
        let first = match config.sliding_window {
            Some(window) if is_local => (position + 1).saturating_sub(window),
            _ => 0,
        };
        for (head, output) in output.chunks_exact_mut(head_dim).enumerate() {
            let query = &queries[position][head * head_dim..][..head_dim];
            let key_start = head / queries_per_key * head_dim;
            let mut scores: Vec<f64> = (first..=position)
                .map(|other| {
                    let key = &keys[other][key_start..][..head_dim];
                    let product: f64 = query.iter().zip(key).map(|(q, k)| q * k).sum();
                    let score = product * f64::from(config.attention_scale);
                    match config.attn_logit_softcapping {
                        Some(cap) => soft_cap(score, f64::from(cap)),
                        None => score,
                    }
                })
                .collect();
            softmax(&mut scores);
            for (other, share) in (first..=position).zip(scores) {
                for (x, v) in output.iter_mut().zip(&values[other][key_start..]) {
                    *x += share * v;
                }
            }
        }
    }
    weights
        .get(&format!("model.layers.{layer}.self_attn.o_proj.weight"))
        .times(&mixed)
}

fn feed_forward(
    config: &ModelConfig,
    weights: &Weights,
    layer: usize,
    rows: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let project = |part: &str, rows: &[Vec<f64>]| {
        weights
            .get(&format!("model.layers.{layer}.mlp.{part}.weight"))
            .times(rows)
    };
    let mut gated = project("gate_proj", rows);
    for (gate, up) in gated
        .iter_mut()
        .flatten()
        .zip(project("up_proj", rows).iter().flatten())
    {
        *gate = up
            * match config.hidden_act {
                Activation::Silu => *gate / (1.0 + (-*gate).exp()),
                Activation::GeluTanh => {
                    let inner = *gate + 0.044_715 * gate.powi(3);
                    let inner = (2.0 / std::f64::consts::PI).sqrt() * inner;
                    0.5 * *gate * (1.0 + inner.tanh())
                }
            };
    }
    project("down_proj", &gated)
}

/// Rotates one head in place.
fn rotate(rope: &RopeConfig, position: usize, head: &mut [f64]) {
    let half = rope.num_rotated / 2;
    for pair in 0..half {
        let (frequency, size) = frequency(rope, pair);
        let angle = position as f64 * frequency;
        let (first, second) = match rope.pairing {
            RopePairing::Interleaved => (2 * pair, 2 * pair + 1),
            RopePairing::Halves => (pair, pair + half),
        };
        let (x, y) = (head[first], head[second]);
        head[first] = size * (x * angle.cos() - y * angle.sin());
        head[second] = size * (x * angle.sin() + y * angle.cos());
    }
}

/// Returns the angle a pair turns for each position, and the factor of its length.
fn frequency(rope: &RopeConfig, pair: usize) -> (f64, f64) {
    let (dim, base) = (rope.num_rotated as f64, f64::from(rope.theta));
    let plain = base.powf(-2.0 * pair as f64 / dim);
    match &rope.scaling {
        RopeScaling::None => (plain, 1.0),
        RopeScaling::Linear { factor } => (plain / f64::from(*factor), 1.0),
        RopeScaling::PerFrequency { factors } => (plain / f64::from(factors[pair]), 1.0),
        RopeScaling::Yarn {
            factor,
            original_max_position_embeddings,
            beta_fast,
            beta_slow,
            attention_factor,
        } => {
            // The pair that makes this many turns within the original context.
            let pair_of_turns = |turns: f32| {
                let context = *original_max_position_embeddings as f64;
                let length = context / (f64::from(turns) * 2.0 * std::f64::consts::PI);
                dim * length.ln() / (2.0 * base.ln())
            };
            let low = pair_of_turns(*beta_fast).floor().max(0.0);
            let high = pair_of_turns(*beta_slow).ceil().min(dim - 1.0);
            let width = (high - low).max(0.001);
            let divided = ((pair as f64 - low) / width).clamp(0.0, 1.0);
            let mixed = plain / f64::from(*factor) * divided + plain * (1.0 - divided);
            (mixed, f64::from(*attention_factor))
        }
    }
}

fn norm_rows(
    config: &ModelConfig,
    weights: &Weights,
    name: &str,
    rows: &[Vec<f64>],
) -> Vec<Vec<f64>> {
    let weight = weights.get(name).values();
    let mut rows = rows.to_vec();
    for row in &mut rows {
        rms_norm(config, weight, row);
    }
    rows
}

fn rms_norm(config: &ModelConfig, weight: &[f32], row: &mut [f64]) {
    assert_eq!(weight.len(), row.len(), "length of a norm");
    let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
    let root = (mean + f64::from(config.rms_norm_eps)).sqrt();
    let offset = if config.norm_weight_is_offset {
        1.0
    } else {
        0.0
    };
    for (x, &w) in row.iter_mut().zip(weight) {
        *x = *x / root * (f64::from(w) + offset);
    }
}

fn softmax(scores: &mut [f64]) {
    let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for score in &mut *scores {
        *score = (*score - greatest).exp();
    }
    let sum: f64 = scores.iter().sum();
    for score in scores {
        *score /= sum;
    }
}

fn soft_cap(x: f64, cap: f64) -> f64 {
    cap * (x / cap).tanh()
}

fn add(states: &mut [Vec<f64>], change: &[Vec<f64>]) {
    for (x, d) in states.iter_mut().flatten().zip(change.iter().flatten()) {
        *x += d;
    }
}
