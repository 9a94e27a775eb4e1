//! The two models that tests run, from the folder that `tests/models/fetch` fills.

use std::collections::BTreeMap;
use std::path::PathBuf;

use justapi_inference::Tokenizer;
use serde::Deserialize;

use crate::metadata;
use crate::texts::{self, Hashes};

#[derive(Debug, Deserialize)]
struct Golden {
    fragments: Vec<String>,
    models: BTreeMap<String, Hashes>,
}

/// `JUSTAPI_MODELS`, or where `tests/models/fetch` puts them without it.
fn path(file_name: &str) -> PathBuf {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let folder = variable("JUSTAPI_MODELS").unwrap_or_else(|| {
        let cache =
            variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
        cache.expect("a home").join("justapi/models")
    });
    let path = folder.join(file_name);
    assert!(
        path.is_file(),
        "{} is not there: run tests/models/fetch",
        path.display()
    );
    path
}

fn check(name: &str, file_name: &str, vocab_size: usize) {
    let golden: Golden = serde_json::from_str(include_str!("../golden/tokenizer_models.json"))
        .expect("the golden data is of this form");
    let source = metadata::read(&path(file_name));
    let tokenizer = Tokenizer::from_gguf(source).expect("a sound vocabulary");
    assert_eq!(tokenizer.vocab_size(), vocab_size);
    assert_eq!(
        texts::difference(&tokenizer, &golden.fragments, &golden.models[name]),
        None
    );
}

#[test]
fn smollm2_agrees_with_llama_cpp() {
    check("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", 49_152);
}

#[test]
fn gemma3_agrees_with_llama_cpp() {
    check("gemma3", "gemma-3-270m-q4_k_m.gguf", 262_144);
}
