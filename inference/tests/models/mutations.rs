//! Models that are wrong in one detail: each comparison has to see each of them.

use justapi_inference::{Activation, ModelConfig, RopePairing, RopeScaling};

type Change = fn(&mut ModelConfig);

/// Details, each with what makes it wrong. One that a model does not have changes nothing there.
pub(crate) const MUTATIONS: [(&str, Change); 26] = [
    ("base of the rotation", |config| config.rope.theta *= 1.5),
    ("local base of the rotation", |config| {
        if let Some(rope) = &mut config.local_rope {
            rope.theta *= 1.5;
        }
    }),
    ("local and global rotation swapped", |config| {
        if let Some(rope) = &mut config.local_rope {
            std::mem::swap(rope, &mut config.rope);
        }
    }),
    ("local rotation forgotten", |config| {
        config.local_rope = None;
    }),
    ("pairing of the rotation", |config| {
        config.rope.pairing = match config.rope.pairing {
            RopePairing::Interleaved => RopePairing::Halves,
            RopePairing::Halves => RopePairing::Interleaved,
        };
    }),
    ("half of the head rotated", |config| {
        config.rope.num_rotated /= 2;
        if let RopeScaling::PerFrequency { factors } = &mut config.rope.scaling {
            factors.truncate(config.rope.num_rotated / 2);
        }
    }),
    ("scaling forgotten", |config| {
        config.rope.scaling = RopeScaling::None;
    }),
    ("factor of the scaling", |config| {
        match &mut config.rope.scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } | RopeScaling::Yarn { factor, .. } => *factor *= 1.25,
            RopeScaling::PerFrequency { factors } => factors.reverse(),
        }
    }),
    ("size of YaRN", |config| {
        if let RopeScaling::Yarn {
            attention_factor, ..
        } = &mut config.rope.scaling
        {
            *attention_factor = 1.0;
        }
    }),
    ("fast end of YaRN", |config| {
        if let RopeScaling::Yarn { beta_fast, .. } = &mut config.rope.scaling {
            *beta_fast = 0.5;
        }
    }),
    ("slow end of YaRN", |config| {
        if let RopeScaling::Yarn { beta_slow, .. } = &mut config.rope.scaling {
            *beta_slow = 0.1;
        }
    }),
    ("scale of embeddings", |config| {
        if config.embedding_scale > 1.0 {
            config.embedding_scale = 1.0;
        }
    }),
    ("window one too short", |config| {
        config.sliding_window = config.sliding_window.map(|window| window - 1);
    }),
    ("window one too long", |config| {
        config.sliding_window = config.sliding_window.map(|window| window + 1);
    }),
    ("window forgotten", |config| config.sliding_window = None),
    ("wrong layers are local", |config| {
        if config.sliding_window.is_some() {
            let last = config.layer_is_local.len() - 1;
            config.layer_is_local[last] ^= true;
        }
    }),
    ("function of the gate", |config| {
        config.hidden_act = match config.hidden_act {
            Activation::Silu => Activation::GeluTanh,
            Activation::GeluTanh => Activation::Silu,
        };
    }),
    ("norm of queries and keys forgotten", |config| {
        config.qk_norm = false;
    }),
    ("biases forgotten", |config| config.attention_bias = false),
    ("scale of attention", |config| config.attention_scale *= 0.8),
    ("limit of attention forgotten", |config| {
        config.attn_logit_softcapping = None;
    }),
    ("limit of attention", |config| {
        config.attn_logit_softcapping = config.attn_logit_softcapping.map(|cap| cap * 1.25);
    }),
    ("limit of logits forgotten", |config| {
        config.final_logit_softcapping = None;
    }),
    ("offset of norms", |config| {
        config.norm_weight_is_offset ^= true;
    }),
    ("epsilon of norms", |config| config.rms_norm_eps = 1e-6),
    ("output matrix for the embedding", |config| {
        config.tie_word_embeddings = true;
    }),
];

/// Returns the configurations that differ from the right one.
pub(crate) fn mutants(right: &ModelConfig) -> Vec<(&'static str, ModelConfig)> {
    let mutants = MUTATIONS.iter().map(|(name, change)| {
        let mut config = right.clone();
        change(&mut config);
        (*name, config)
    });
    mutants.filter(|(_, config)| config != right).collect()
}
