//! Random models of each architecture: the reference against transformers and
//! llama.cpp, the engine against all three.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::path::PathBuf;

use justapi_inference::ModelConfig;

use crate::comparison::{Difference, compare, report};
use crate::golden::{self, TinyGolden};
use crate::mutations::{MUTATIONS, mutants};
use crate::reference::{self, Type};
use crate::tiny::{self, TinyModel};

/// Where models of a test are written: a folder of its own, or the one that the scripts beside
/// golden data name.
pub(crate) struct Folder {
    path: PathBuf,
    _temporary: Option<tempfile::TempDir>,
}

impl Folder {
    pub(crate) fn new() -> Self {
        match env::var_os("JUSTAPI_TINY_MODELS") {
            Some(path) => {
                let path = PathBuf::from(path);
                fs::create_dir_all(&path).expect("the folder of the test can be made");
                let token_ids = serde_json::to_vec(&tiny::token_ids()).expect("numbers");
                fs::write(path.join("token_ids.json"), token_ids).expect("it can be written");
                Self {
                    path,
                    _temporary: None,
                }
            }
            None => {
                let temporary = tempfile::tempdir().expect("a temporary folder can be made");
                Self {
                    path: temporary.path().to_owned(),
                    _temporary: Some(temporary),
                }
            }
        }
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.path
    }
}

/// GGUF files of all tiny models, with what they have to be read as.
pub(crate) fn gguf_models(folder: &Folder) -> Vec<(String, PathBuf, ModelConfig)> {
    let mut result = Vec::new();
    let mut add = |model: &TinyModel, kind: Type| {
        let label = format!("{kind:?}");
        let path = model.write_gguf(folder.path(), &[kind], &label);
        result.push((
            format!("{}-{label}", model.name),
            path,
            model.model_config(true),
        ));
    };
    for model in tiny::models().iter().filter(|model| model.has_gguf()) {
        add(model, Type::F32);
    }
    for kind in tiny::BLOCK_TYPES {
        add(&tiny::quantized_model(), kind);
    }
    result
}

/// Rows of some positions.
pub(crate) fn at(positions: &[usize], rows: &[Vec<f64>]) -> Vec<Vec<f64>> {
    positions
        .iter()
        .map(|&position| rows[position].clone())
        .collect()
}

pub(crate) fn check(name: &str, found: &Difference, limit: &Difference) {
    let passes = found.max_abs <= limit.max_abs
        && found.rms <= limit.rms
        && found.cosine >= limit.cosine
        && found.mean_kl <= limit.mean_kl
        && found.top1 >= limit.top1;
    report(name, found);
    assert!(passes, "{name}: {found}\nis not within {limit}");
}

/// Limits for weights that are not quantised and a cache of f16.
pub(crate) const F16_CACHE: Difference = Difference {
    max_abs: 1e-2,
    rms: 2e-3,
    cosine: 0.999_999,
    mean_kl: 1e-6,
    top1: 1.0,
};

/// Limits where what meets quantised weights is rounded to eight bits, which random blocks of two
/// layers make more of than a real model does; a block that is misread gives a cosine near zero.
/// Random logits have many near the greatest, so that it says little which one that is.
pub(crate) const QUANTIZED: Difference = Difference {
    max_abs: 1.5,
    rms: 0.25,
    cosine: 0.99,
    mean_kl: 2e-2,
    top1: 0.0,
};

#[test]
fn random_blocks_of_all_types_can_be_read() {
    let folder = Folder::new();
    let model = tiny::quantized_model();
    for kind in tiny::BLOCK_TYPES {
        let path = model.write_gguf(folder.path(), &[kind], &format!("{kind:?}"));
        let config = model.model_config(true);
        let logits = reference::logits(&config, &reference::read(&path), &tiny::token_ids()[..4]);
        let spread = compare(&logits, &vec![vec![0.0; tiny::VOCAB_SIZE]; 4]).rms;
        assert!((0.5..5.0).contains(&spread), "{kind:?}: logits of {spread}");
    }
}

#[test]
fn both_forms_of_a_model_give_the_same_logits() {
    let folder = Folder::new();
    for model in tiny::models() {
        let hugging_face = model.write_folder(folder.path(), Type::F32);
        if !model.has_gguf() {
            continue;
        }
        let gguf = model.write_gguf(folder.path(), &[Type::F32], "F32");
        let logits = |path: &std::path::Path, is_gguf| {
            let weights = reference::read(path);
            reference::logits(&model.model_config(is_gguf), &weights, &tiny::token_ids())
        };
        let difference = compare(&logits(&hugging_face, false), &logits(&gguf, true));
        assert!(difference.max_abs < 1e-5, "{}: {difference}", model.name);
    }
}

/// What f32 of another engine may be away from f64; logits are of size 1 to 5.
const EXACT: f64 = 3e-4;

#[test]
fn the_reference_agrees_with_transformers() {
    let folder = Folder::new();
    let golden: TinyGolden = golden::read("transformers.json");
    assert_eq!(golden.token_ids, tiny::token_ids());
    assert_eq!(golden.models.len(), tiny::models().len());
    for model in tiny::models() {
        let path = model.write_folder(folder.path(), Type::F32);
        let expected = &golden.models[model.name];
        assert_eq!(
            golden::sha256(&path.join("model.safetensors")),
            expected.sha256
        );
        let config = model.model_config(false);
        let logits = reference::logits(&config, &reference::read(&path), &golden.token_ids);
        let logits = at(&golden.positions, &logits);
        let difference = compare(&expected.logits(1e-5), &logits);
        assert!(difference.max_abs < EXACT, "{}: {difference}", model.name);
    }
}

/// llama.cpp keeps keys and values in f16, and rounds what it multiplies with quantised weights.
#[test]
fn the_reference_agrees_with_llama_cpp() {
    let folder = Folder::new();
    let golden: TinyGolden = golden::read("llama_cpp_tiny.json");
    assert_eq!(golden.token_ids, tiny::token_ids());
    for (name, path, config) in gguf_models(&folder) {
        let expected = &golden.models[&name];
        assert_eq!(golden::sha256(&path), expected.sha256, "{name}");
        let logits = reference::logits(&config, &reference::read(&path), &golden.token_ids);
        let difference = compare(&expected.logits(1e-4), &at(&golden.positions, &logits));
        let limit = if name.contains("quantized") {
            QUANTIZED
        } else {
            F16_CACHE
        };
        check(&name, &difference, &limit);
    }
}

#[test]
fn no_wrong_detail_passes_for_the_right_model() {
    let folder = Folder::new();
    let golden: TinyGolden = golden::read("transformers.json");
    let mut seen = BTreeSet::new();
    for model in tiny::models() {
        let path = model.write_folder(folder.path(), Type::F32);
        let weights = reference::read(&path);
        let expected = golden.models[model.name].logits(1e-5);
        for (detail, config) in mutants(&model.model_config(false)) {
            let logits = reference::logits(&config, &weights, &golden.token_ids);
            let difference = compare(&expected, &at(&golden.positions, &logits));
            let margin = 10.0;
            assert!(
                difference.max_abs > margin * EXACT,
                "{}, {detail}: {difference}",
                model.name
            );
            seen.insert(detail);
        }
    }
    let all: BTreeSet<_> = MUTATIONS.iter().map(|(detail, _)| *detail).collect();
    assert_eq!(seen, all, "each detail is of some model");
}
