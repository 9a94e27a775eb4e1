//! Families of models that the engine runs, and what each of them fixes
//! whatever its files say. Source: `modeling_*.py` (transformers) and
//! `src/models/` (ggml-org/llama.cpp).

use super::{Activation, NormPlacement};

/// Family of models.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Architecture {
    /// Llama 2 and 3, `SmolLM2`; as a GGUF also Mistral.
    Llama,
    /// Llama with a window.
    Mistral,
    /// Qwen 2 and 2.5.
    Qwen2,
    Qwen3,
    Gemma2,
    Gemma3,
}

impl Architecture {
    const ALL: [Self; 6] = [
        Self::Llama,
        Self::Mistral,
        Self::Qwen2,
        Self::Qwen3,
        Self::Gemma2,
        Self::Gemma3,
    ];

    /// Finds the family that a file names.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        // What `config.json` of the text part alone says.
        let name = name.strip_suffix("_text").unwrap_or(name);
        Self::ALL.into_iter().find(|known| known.name() == name)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Mistral => "mistral",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gemma2 => "gemma2",
            Self::Gemma3 => "gemma3",
        }
    }

    /// Says which file and which model are not supported, and what is.
    pub(super) fn unsupported(name: &str) -> String {
        let known = Self::ALL.map(Self::name).join(", ");
        format!("architecture {name}; supported: {known}")
    }

    pub(super) const fn is_gemma(self) -> bool {
        matches!(self, Self::Gemma2 | Self::Gemma3)
    }

    pub(super) const fn qk_norm(self) -> bool {
        matches!(self, Self::Qwen3 | Self::Gemma3)
    }

    pub(super) const fn norm_placement(self) -> NormPlacement {
        if self.is_gemma() {
            NormPlacement::BeforeAndAfter
        } else {
            NormPlacement::Before
        }
    }

    pub(super) const fn hidden_act(self) -> Activation {
        if self.is_gemma() {
            Activation::GeluTanh
        } else {
            Activation::Silu
        }
    }

    pub(super) fn embedding_scale(self, hidden_size: usize) -> f32 {
        if self.is_gemma() {
            (hidden_size as f32).sqrt()
        } else {
            1.0
        }
    }

    /// Layers from one that sees the whole context to the next, where some do not.
    pub(super) const fn sliding_window_pattern(self) -> Option<usize> {
        match self {
            Self::Gemma2 => Some(2),
            Self::Gemma3 => Some(6),
            _ => None,
        }
    }

    /// Base of the frequencies where a file names none.
    pub(super) const fn rope_theta(self) -> f32 {
        match self {
            Self::Gemma3 => 1_000_000.0,
            _ => 10_000.0,
        }
    }

    /// Base in layers that see a window, where it is one of their own.
    pub(super) const fn local_rope_theta(self) -> Option<f32> {
        match self {
            Self::Gemma3 => Some(10_000.0),
            _ => None,
        }
    }
}

/// Marks as local all layers but each `pattern`th. `(num_layers)`
pub(super) fn local_layers(num_layers: usize, pattern: usize) -> Vec<bool> {
    (0..num_layers)
        .map(|layer| !(layer + 1).is_multiple_of(pattern.max(1)))
        .collect()
}
