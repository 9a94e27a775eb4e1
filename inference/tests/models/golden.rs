//! Golden data as the scripts beside it write it.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Logits of the tiny models, by another engine.
#[derive(Debug, Deserialize)]
pub(crate) struct TinyGolden {
    pub(crate) token_ids: Vec<u32>,
    pub(crate) positions: Vec<usize>,
    pub(crate) models: std::collections::BTreeMap<String, TinyLogits>,
}

/// Logits of one of them. (`positions`, `vocab_size`)
#[derive(Debug, Deserialize)]
pub(crate) struct TinyLogits {
    pub(crate) sha256: String,
    logits: Vec<Vec<i64>>,
}

impl TinyLogits {
    pub(crate) fn logits(&self, unit: f64) -> Vec<Vec<f64>> {
        let row = |row: &Vec<i64>| row.iter().map(|&logit| logit as f64 * unit).collect();
        self.logits.iter().map(row).collect()
    }
}

/// What llama.cpp says of a real model.
#[derive(Debug, Deserialize)]
pub(crate) struct ModelGolden {
    pub(crate) model: ModelFile,
    pub(crate) text: TextGolden,
    pub(crate) continuations: Vec<Continuation>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ModelFile {
    file: String,
    sha256: String,
}

/// One pass over a text. Log-probabilities are in units of [`UNIT`], negated.
#[derive(Debug, Deserialize)]
pub(crate) struct TextGolden {
    pub(crate) ids: Vec<u32>,
    /// Of each token but the first, behind those before it.
    pub(crate) logprobs: Vec<i64>,
    /// Likeliest token behind each.
    pub(crate) best_ids: Vec<u32>,
    /// What the second is behind the likeliest.
    pub(crate) best_gaps: Vec<i64>,
    /// Tokens all over the vocabulary.
    pub(crate) spread_ids: Vec<u32>,
    pub(crate) perplexity: f64,
    pub(crate) positions: Vec<PositionGolden>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct PositionGolden {
    pub(crate) position: usize,
    pub(crate) top_ids: Vec<u32>,
    pub(crate) top_logprobs: Vec<i64>,
    pub(crate) spread_logprobs: Vec<i64>,
}

/// Greedy text behind a prompt.
#[derive(Debug, Deserialize)]
pub(crate) struct Continuation {
    pub(crate) prompt_ids: Vec<u32>,
    pub(crate) ids: Vec<u32>,
    pub(crate) top_ids: Vec<Vec<u32>>,
    pub(crate) top_logprobs: Vec<Vec<i64>>,
}

/// Embeddings of a few texts: of length 1, the mean of the states behind the last norm.
#[derive(Debug, Deserialize)]
pub(crate) struct EmbeddingsGolden {
    pub(crate) models: Vec<ModelEmbeddings>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct ModelEmbeddings {
    pub(crate) model: ModelFile,
    pub(crate) texts: Vec<TextEmbedding>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct TextEmbedding {
    pub(crate) ids: Vec<u32>,
    pub(crate) embedding: Vec<f64>,
}

pub(crate) const UNIT: f64 = 1e-4;

pub(crate) fn read<T: for<'de> Deserialize<'de>>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    let text = fs::read_to_string(&path).expect("the golden data is in the repository");
    serde_json::from_str(&text).expect("the golden data is of this form")
}

impl ModelFile {
    /// Finds the model that the data is of.
    pub(crate) fn path(&self) -> PathBuf {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let folder = variable("JUSTAPI_MODELS").map_or_else(
            || {
                let cache = variable("XDG_CACHE_HOME").map_or_else(
                    || PathBuf::from(variable("HOME").expect("a home")).join(".cache"),
                    PathBuf::from,
                );
                cache.join("justapi/models")
            },
            PathBuf::from,
        );
        let path = folder.join(&self.file);
        assert!(
            path.exists(),
            "{} is missing: tests/models/fetch brings it",
            path.display()
        );
        assert_eq!(sha256(&path), self.sha256, "another {}", path.display());
        path
    }
}

pub(crate) fn sha256(path: &Path) -> String {
    let digest = Sha256::digest(fs::read(path).expect("the file can be read"));
    digest.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes all");
        text
    })
}
