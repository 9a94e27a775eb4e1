//! Small vocabularies under each pre-tokenizer, and with and without a space
//! before a text.

use std::collections::{BTreeMap, BTreeSet};

use justapi_inference::{GgufTokenizer, SpecialTokens, Tokenizer};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::texts::{self, Hashes};

#[derive(Debug, Deserialize)]
pub(crate) struct Golden {
    pub(crate) fragments: Vec<String>,
    byte_level: Vocabulary,
    sentencepiece: Vocabulary,
    hashes: BTreeMap<String, Hashes>,
}

#[derive(Clone, Debug, Deserialize)]
struct Vocabulary {
    model: String,
    tokens: Vec<String>,
    token_type: Vec<i32>,
    #[serde(default)]
    scores: Vec<f32>,
    #[serde(default)]
    merges: Vec<String>,
    bos_token_id: u32,
    eos_token_id: u32,
    unknown_token_id: Option<u32>,
}

impl Vocabulary {
    fn source(&self) -> GgufTokenizer {
        let vocabulary = self.clone();
        GgufTokenizer {
            path: "small.gguf".into(),
            model: vocabulary.model,
            tokens: vocabulary.tokens,
            token_types: vocabulary.token_type,
            scores: vocabulary.scores,
            merges: vocabulary.merges,
            bos: Some(vocabulary.bos_token_id),
            eos: Some(vocabulary.eos_token_id),
            unknown: vocabulary.unknown_token_id,
            ..GgufTokenizer::default()
        }
    }
}

pub(crate) fn golden() -> Golden {
    serde_json::from_str(include_str!("../golden/tokenizer_small.json"))
        .expect("the golden data is of this form")
}

pub(crate) fn tokenizer(golden: &Golden, name: &str) -> Tokenizer {
    let source = match name.strip_prefix("sentencepiece ") {
        Some(prefix) => GgufTokenizer {
            add_space_prefix: Some(prefix == "True"),
            ..golden.sentencepiece.source()
        },
        None => GgufTokenizer {
            pre: Some(name.to_owned()),
            ..golden.byte_level.source()
        },
    };
    Tokenizer::from_gguf(source).expect("a sound vocabulary")
}

#[test]
fn every_pre_tokenizer_agrees_with_llama_cpp() {
    let golden = golden();
    assert_eq!(golden.hashes.len(), 11);
    let differences = golden.hashes.iter().map(|(name, hashes)| {
        (
            name,
            texts::difference(&tokenizer(&golden, name), &golden.fragments, hashes),
        )
    });
    let differences: Vec<_> = differences
        .filter(|(_, difference)| difference.is_some())
        .collect();
    assert!(differences.is_empty(), "{differences:#?}");
}

#[test]
fn unknown_kinds_are_named() {
    let golden = golden();
    let check = |source: GgufTokenizer, expected: &str| {
        let error = Tokenizer::from_gguf(source).expect_err("no tokenizer of this kind");
        assert_eq!(error.to_string(), expected);
    };
    let byte_level = || golden.byte_level.source();
    let pre = Some("no-such".to_owned());
    let unsupported = "not supported: tokenizer.ggml";
    check(
        GgufTokenizer {
            pre,
            ..byte_level()
        },
        &format!("{unsupported}.pre \"no-such\""),
    );
    let model = "rwkv".to_owned();
    check(
        GgufTokenizer {
            model,
            ..byte_level()
        },
        &format!("{unsupported}.model \"rwkv\""),
    );
    let merges = vec!["a b c".to_owned()];
    let expected = "small.gguf: tokenizer.ggml.merges[0] \"a b c\" names or makes no token";
    check(
        GgufTokenizer {
            merges,
            ..byte_level()
        },
        expected,
    );
    let expected = "small.gguf: tokenizer.ggml.tokens has 0 elements";
    check(
        GgufTokenizer {
            path: "small.gguf".into(),
            ..GgufTokenizer::default()
        },
        expected,
    );
    let scores = vec![0.0];
    let num_tokens = golden.sentencepiece.tokens.len();
    let expected =
        format!("small.gguf: tokenizer.ggml.scores has 1 elements for {num_tokens} tokens");
    check(
        GgufTokenizer {
            scores,
            ..golden.sentencepiece.source()
        },
        &expected,
    );
}

#[test]
fn one_long_word_is_no_harder_than_many() {
    let golden = golden();
    for name in ["llama-bpe", "sentencepiece False"] {
        let tokenizer = tokenizer(&golden, name);
        for word in ["a", "ab", " ", "é"] {
            let text = word.repeat(50_000);
            let ids = tokenizer.encode(&text, SpecialTokens::Parse);
            assert!(tokenizer.decode(&ids) == text, "{name}: {word}");
        }
    }
}

#[test]
fn a_prompt_has_its_first_token_once() {
    let golden = golden();
    let tokenizer = tokenizer(&golden, "sentencepiece False");
    let bos = tokenizer.bos().expect("a first token");
    for text in ["hi", "<bos>hi", "<bos><bos>hi"] {
        let ids = tokenizer.encode_prompt(text, SpecialTokens::Parse);
        assert_eq!(ids.iter().filter(|&&id| id == bos).count(), 1, "{text}");
        assert_eq!(ids[0], bos);
    }
    let as_text = tokenizer.encode_prompt("<bos>", SpecialTokens::AsText);
    assert_eq!(as_text[0], bos);
    assert_eq!(tokenizer.decode(&as_text), "<bos>");
    assert_eq!(tokenizer.special_token("<bos>"), Some(bos));
    assert_eq!(tokenizer.special_token("bos"), None);
}

#[test]
fn texts_come_back() {
    let golden = golden();
    for name in golden.hashes.keys() {
        let tokenizer = tokenizer(&golden, name);
        for index in 0..100 {
            let text = texts::text(index, &golden.fragments);
            // SentencePiece writes spaces as this character, and cannot tell them apart.
            let text = text.replace('▁', "_");
            let ids = tokenizer.encode_prompt(&text, SpecialTokens::AsText);
            let num_bos = usize::from(tokenizer.adds_bos());
            assert_eq!(tokenizer.decode_prompt(&ids[num_bos..]), text, "{name}");
        }
    }
}

/// `tokenizer.json` of the small byte-level vocabulary.
fn byte_level_json(golden: &Golden, pattern: &str, takes_whole_words: bool) -> Value {
    let Vocabulary {
        tokens,
        merges,
        token_type,
        ..
    } = &golden.byte_level;
    json!({
        "version": "1.0",
        "added_tokens": added_tokens(tokens, token_type),
        "normalizer": null,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
        ]},
        "post_processor": null,
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": takes_whole_words, "vocab": ids(tokens), "merges": merges,
        },
    })
}

/// `tokenizer.json` of the small `SentencePiece` vocabulary, with the merges that its scores imply.
fn sentencepiece_json(golden: &Golden) -> Value {
    let Vocabulary {
        tokens,
        token_type,
        scores,
        ..
    } = &golden.sentencepiece;
    let normal = || (0..tokens.len()).filter(|&id| token_type[id] == 1);
    let known: BTreeSet<_> = normal().map(|id| tokens[id].as_str()).collect();
    let mut merges = Vec::new();
    for id in normal() {
        let token = &tokens[id];
        for (at, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(at);
            if known.contains(left) && known.contains(right) {
                merges.push((scores[id], [left, right]));
            }
        }
    }
    merges.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    let merges: Vec<_> = merges.iter().map(|(_, merge)| merge).collect();
    json!({
        "version": "1.0",
        "added_tokens": added_tokens(tokens, token_type),
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": null,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}},
        },
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
        ]},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true,
            "ignore_merges": false, "vocab": ids(tokens), "merges": merges,
        },
    })
}

fn ids(tokens: &[String]) -> Value {
    let ids = tokens
        .iter()
        .enumerate()
        .map(|(id, token)| (token.clone(), id.into()));
    Value::Object(ids.collect())
}

fn added_tokens(tokens: &[String], kinds: &[i32]) -> Value {
    let added = tokens.iter().zip(kinds).enumerate();
    let added = added.filter(|(_, (_, kind))| matches!(kind, 2..=4));
    let added = added.map(|(id, (token, kind))| {
        json!({
            "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": *kind != 4,
        })
    });
    added.collect()
}

fn check_json(golden: &Golden, name: &str, json: &Value) -> Tokenizer {
    let bytes = json.to_string().into_bytes();
    let tokenizer = Tokenizer::from_json("tokenizer.json".as_ref(), &bytes).expect("sound JSON");
    let difference = texts::difference(&tokenizer, &golden.fragments, &golden.hashes[name]);
    assert_eq!(difference, None, "{name}");
    for index in 0..100 {
        let text = texts::text(index, &golden.fragments).replace('▁', "_");
        let ids = tokenizer.encode(&text, SpecialTokens::AsText);
        assert_eq!(tokenizer.decode(&ids), text, "{name}");
    }
    tokenizer
}

#[test]
fn tokenizer_json_gives_the_same_as_gguf() {
    let golden = golden();
    let qwen2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let llama3 = qwen2.replace(r"|\p{N}|", r"|\p{N}{1,3}|");
    check_json(&golden, "qwen2", &byte_level_json(&golden, qwen2, false));
    let tokenizer = check_json(
        &golden,
        "llama-bpe",
        &byte_level_json(&golden, &llama3, true),
    );
    assert_eq!(tokenizer.bos(), None);
    assert_eq!(tokenizer.eos_ids(), [0, 2]);
    let tokenizer = check_json(&golden, "sentencepiece False", &sentencepiece_json(&golden));
    assert_eq!(tokenizer.bos(), Some(2));
    assert_eq!(tokenizer.encode_prompt("", SpecialTokens::AsText), [2]);
}
