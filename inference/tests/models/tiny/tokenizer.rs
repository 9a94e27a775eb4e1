//! Tokenizer of the tiny models: byte-level BPE with 40 merges, in both forms
//! that models come with. Source of the alphabet: GPT-2's `bytes_to_unicode`.

use serde_json::{Value as Json, json};

use super::files::Value;

/// Bytes, merges, two special tokens, and padding up to a size that no tile divides.
pub(crate) const VOCAB_SIZE: usize = 301;
pub(crate) const BOS: u32 = 296;
pub(crate) const EOS: u32 = 297;

const MERGES: [&str; 40] = [
    "Ġ t", "h e", "i n", "r e", "o n", "Ġt he", "e r", "a t", "Ġ a", "e n", "o r", "i s", "i t",
    "e s", "n d", "Ġ s", "Ġ w", "Ġ c", "o u", "a n", "Ġ o", "Ġa nd", "in g", "Ġ b", "Ġ f", "Ġ p",
    "e d", "Ġ m", "a r", "Ġ h", "l l", "Ġ in", "Ġo f", "Ġ d", "i on", "Ġt o", "a l", "l e", "o w",
    "Ġ n",
];

fn tokens() -> Vec<String> {
    let is_shown = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut hidden = 256..;
    let mut tokens: Vec<String> = (0..256)
        .map(|byte| {
            if is_shown(byte) {
                byte
            } else {
                hidden.next().expect("endless")
            }
        })
        .map(|code| {
            char::from_u32(code)
                .expect("below the surrogates")
                .to_string()
        })
        .collect();
    tokens.extend(MERGES.iter().map(|merge| merge.replace(' ', "")));
    tokens.extend(["<|begin|>".to_owned(), "<|end|>".to_owned()]);
    for index in tokens.len()..VOCAB_SIZE {
        tokens.push(format!("<|unused_{index}|>"));
    }
    tokens
}

/// Returns the entries of a GGUF file.
pub(crate) fn gguf_entries() -> Vec<(String, Value)> {
    const NORMAL: i32 = 1;
    const CONTROL: i32 = 3;
    const UNUSED: i32 = 5;
    let kind = |index| match index {
        0..296 => NORMAL,
        296..298 => CONTROL,
        _ => UNUSED,
    };
    let merges = MERGES.iter().map(|&merge| merge.to_owned()).collect();
    [
        ("model", Value::Text("gpt2".to_owned())),
        ("pre", Value::Text("gpt-2".to_owned())),
        ("tokens", Value::Texts(tokens())),
        (
            "token_type",
            Value::I32s((0..VOCAB_SIZE).map(kind).collect()),
        ),
        ("merges", Value::Texts(merges)),
        ("bos_token_id", Value::U32(BOS)),
        ("eos_token_id", Value::U32(EOS)),
        ("add_bos_token", Value::Bool(false)),
    ]
    .map(|(key, value)| (format!("tokenizer.ggml.{key}"), value))
    .into()
}

/// Returns `tokenizer.json` and `tokenizer_config.json`.
pub(crate) fn hugging_face_files() -> (Json, Json) {
    let tokens = tokens();
    let vocab: serde_json::Map<String, Json> = tokens
        .iter()
        .zip(0..)
        .map(|(token, id)| (token.clone(), json!(id as u32)))
        .collect();
    let special: Vec<Json> = tokens
        .iter()
        .enumerate()
        .skip(296)
        .map(|(id, token)| {
            json!({"id": id, "content": token, "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true})
        })
        .collect();
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false,
        "trim_offsets": true, "use_regex": true});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": special,
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "ignore_merges": false, "vocab": vocab, "merges": MERGES.as_slice()},
    });
    let config = json!({"tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|begin|>", "eos_token": "<|end|>", "add_bos_token": false,
        "clean_up_tokenization_spaces": false});
    (tokenizer, config)
}
