//! The engine on random models of each architecture: what it reads, what it
//! computes, and that neither chunks nor neighbours change a bit.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use justapi_inference::ModelConfig;

use crate::comparison::compare;
use crate::golden::{self, TinyGolden};
use crate::mutations::mutants;
use crate::reference::{self, Type};
use crate::runner::{Runner, to_f64};
use crate::tiny;
use crate::tiny_models::{F16_CACHE, Folder, QUANTIZED, at, check, gguf_models};

/// Types of blocks of 32, one tensor after another.
const MIXED: [Type; 7] = [
    Type::Q4_0,
    Type::Q8_0,
    Type::Q5_1,
    Type::F16,
    Type::Q4_1,
    Type::Q5_0,
    Type::BF16,
];

/// Each model in each form.
fn all_models(folder: &Folder) -> Vec<(String, PathBuf, ModelConfig)> {
    let mut result = gguf_models(folder);
    for model in tiny::models() {
        for kind in [Type::F32, Type::F16, Type::BF16] {
            let path = model.write_folder(folder.path(), kind);
            let name = format!("{} folder {kind:?}", model.name);
            result.push((name, path, model.model_config(false)));
        }
        if model.has_gguf() {
            for (label, types) in [
                ("F16", &[Type::F16][..]),
                ("BF16", &[Type::BF16]),
                ("mixed", &MIXED),
            ] {
                let path = model.write_gguf(folder.path(), types, label);
                result.push((
                    format!("{}-{label}", model.name),
                    path,
                    model.model_config(true),
                ));
            }
        }
    }
    let model = tiny::quantized_model();
    let path = model.write_gguf(folder.path(), &tiny::BLOCK_TYPES, "mixed");
    result.push((
        "llama-quantized-mixed".to_owned(),
        path,
        model.model_config(true),
    ));
    result
}

fn is_quantized(name: &str) -> bool {
    name.contains("quantized") || name.contains("mixed")
}

#[test]
fn files_are_read_as_what_they_are() {
    let folder = Folder::new();
    for (name, path, expected) in all_models(&folder) {
        let runner = Runner::open(&path, 1, 16);
        assert_eq!(runner.config(), &expected, "{name}");
    }
}

/// Newer versions of transformers write `rope_parameters` in place of three entries.
#[test]
fn configurations_of_both_forms_are_read_alike() {
    let folder = Folder::new();
    let configs: BTreeMap<String, serde_json::Value> = golden::read("transformers_configs.json");
    for model in tiny::models() {
        let path = model.write_folder(folder.path(), Type::BF16);
        let text = configs[model.name].to_string();
        fs::write(path.join("config.json"), text).expect("the folder can be written");
        let runner = Runner::open(&path, 1, 16);
        assert_eq!(
            runner.config(),
            &model.model_config(false),
            "{}",
            model.name
        );
    }
}

#[test]
fn the_engine_agrees_with_the_reference() {
    let folder = Folder::new();
    let ids = tiny::token_ids();
    for (name, path, config) in all_models(&folder) {
        let expected = reference::logits(&config, &reference::read(&path), &ids);
        let logits = to_f64(&Runner::open_as(&path, &config, ids.len()).logits(&ids, ids.len()));
        let limit = if is_quantized(&name) {
            QUANTIZED
        } else {
            F16_CACHE
        };
        check(&name, &compare(&expected, &logits), &limit);
    }
}

#[test]
fn the_engine_agrees_with_transformers() {
    let folder = Folder::new();
    let golden: TinyGolden = golden::read("transformers.json");
    let ids = &golden.token_ids;
    for model in tiny::models() {
        let path = model.write_folder(folder.path(), Type::F32);
        let logits = to_f64(&Runner::open(&path, 1, ids.len()).logits(ids, ids.len()));
        let expected = golden.models[model.name].logits(1e-5);
        let difference = compare(&expected, &at(&golden.positions, &logits));
        check(model.name, &difference, &F16_CACHE);
    }
}

#[test]
fn the_engine_agrees_with_llama_cpp() {
    let folder = Folder::new();
    let golden: TinyGolden = golden::read("llama_cpp_tiny.json");
    let ids = &golden.token_ids;
    for (name, path, _) in gguf_models(&folder) {
        let logits = to_f64(&Runner::open(&path, 1, ids.len()).logits(ids, ids.len()));
        let expected = golden.models[&name].logits(1e-4);
        let limit = if is_quantized(&name) {
            QUANTIZED
        } else {
            F16_CACHE
        };
        check(
            &name,
            &compare(&expected, &at(&golden.positions, &logits)),
            &limit,
        );
    }
}

/// Each number of the configuration is followed: a wrong one gives what the reference gives for it.
#[test]
fn the_engine_follows_each_detail() {
    let folder = Folder::new();
    let ids = tiny::token_ids();
    for model in tiny::models() {
        let path = model.write_folder(folder.path(), Type::F32);
        let weights = reference::read(&path);
        let right = reference::logits(&model.model_config(false), &weights, &ids);
        for (detail, config) in mutants(&model.model_config(false)) {
            let expected = reference::logits(&config, &weights, &ids);
            let logits = Runner::open_as(&path, &config, ids.len()).logits(&ids, ids.len());
            let name = format!("{}, {detail}", model.name);
            // Some make all states larger, and differences with them: the size is not compared.
            let difference = compare(&expected, &to_f64(&logits));
            assert!(difference.cosine >= 0.999_95, "{name}: {difference}");
            let away = compare(&right, &to_f64(&logits));
            assert!(
                away.rms > 5.0 * difference.rms,
                "{name}: {away}, {difference}"
            );
        }
    }
}

#[test]
fn chunks_and_neighbours_do_not_change_a_bit() {
    let folder = Folder::new();
    let ids = tiny::token_ids();
    for (name, path, config) in all_models(&folder) {
        let mut alone = Runner::open_as(&path, &config, ids.len());
        let expected = alone.logits(&ids, ids.len());
        for chunk in [1, 7, 16] {
            assert!(
                alone.logits(&ids, chunk) == expected,
                "{name}, chunks of {chunk}"
            );
        }

        // Texts of several lengths, each a beginning of the same.
        let lengths = [ids.len(), 1, 17, 5, 32];
        let mut together = Runner::open_with_texts(&path, &config, lengths.len(), ids.len());
        let mut sent = [0; 5];
        for sizes in [[3, 1, 9, 0, 31], [20, 0, 8, 5, 0], [17, 0, 0, 0, 1]] {
            let parts: Vec<&[u32]> = (0..5)
                .map(|text| &ids[sent[text]..sent[text] + sizes[text]])
                .collect();
            together.extend(&parts, |text, position, logits| {
                assert!(
                    logits == expected[position],
                    "{name}, text {text} at {position}"
                );
            });
            for (sent, size) in sent.iter_mut().zip(sizes) {
                *sent += size;
            }
        }
        assert_eq!(sent, lengths);
    }
}
