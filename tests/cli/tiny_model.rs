//! A language model of a few kilobytes, written as a GGUF: its weights are noise, and it talks nonsense
//! in no time. Its tokens are the 256 bytes (GPT-2's alphabet), a first and a last token.

use std::fs;
use std::path::Path;

const HIDDEN: usize = 32;
const FEED_FORWARD: usize = 64;
const NUM_BYTES: usize = 256;
const BEGIN: u32 = 256;
const END: u32 = 257;
const VOCABULARY: usize = 258;
/// Numbers of types in a GGUF.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const TEXT: u32 = 8;
const ARRAY: u32 = 9;

/// Longest context of the model.
pub(crate) const CONTEXT: u32 = 256;

/// The simplest template that tells who says what.
const TEMPLATE: &str =
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ";

/// Writes the model; a base model has no template for chats.
#[expect(
    clippy::too_many_lines,
    reason = "a file from its first to its last byte"
)]
pub(crate) fn write(path: &Path, is_base: bool) {
    let mut file = Gguf::default();
    let mut entries = 0;
    let mut number = |file: &mut Gguf, key: &str, value: u32| {
        file.key(key, U32);
        file.0.extend(value.to_le_bytes());
        entries += 1;
    };
    let mut head = Gguf::default();
    for (key, value) in [
        ("llama.context_length", CONTEXT),
        ("llama.embedding_length", HIDDEN as u32),
        ("llama.block_count", 1),
        ("llama.feed_forward_length", FEED_FORWARD as u32),
        ("llama.attention.head_count", 2),
        ("llama.attention.head_count_kv", 1),
        ("llama.rope.dimension_count", 16),
        ("llama.vocab_size", VOCABULARY as u32),
        ("tokenizer.ggml.bos_token_id", BEGIN),
        ("tokenizer.ggml.eos_token_id", END),
    ] {
        number(&mut head, key, value);
    }
    head.key("llama.attention.layer_norm_rms_epsilon", F32);
    head.0.extend(1e-5_f32.to_le_bytes());
    for (key, value) in [
        ("general.architecture", "llama"),
        ("tokenizer.ggml.model", "gpt2"),
        ("tokenizer.ggml.pre", "gpt-2"),
    ] {
        head.key(key, TEXT);
        head.text(value);
    }
    entries += 4;
    if !is_base {
        head.key("tokenizer.chat_template", TEXT);
        head.text(TEMPLATE);
        entries += 1;
    }
    let mut tokens = alphabet();
    tokens.extend(["<|begin|>".to_owned(), "<|end|>".to_owned()]);
    head.array("tokenizer.ggml.tokens", TEXT, VOCABULARY);
    for token in &tokens {
        head.text(token);
    }
    head.array("tokenizer.ggml.merges", TEXT, 0);
    head.array("tokenizer.ggml.token_type", I32, VOCABULARY);
    for index in 0..VOCABULARY {
        let kind: i32 = if index < NUM_BYTES { 1 } else { 3 };
        head.0.extend(kind.to_le_bytes());
    }
    entries += 3;

    let tensors = tensors();
    file.0.extend(b"GGUF");
    file.0.extend(3_u32.to_le_bytes());
    file.0.extend((tensors.len() as u64).to_le_bytes());
    file.0.extend((entries as u64).to_le_bytes());
    file.0.extend(head.0);
    let mut offset = 0_u64;
    for (name, shape) in &tensors {
        file.text(name);
        file.0.extend((shape.len() as u32).to_le_bytes());
        for axis in shape.iter().rev() {
            file.0.extend((*axis as u64).to_le_bytes());
        }
        // The type f32 is number 0.
        file.0.extend(0_u32.to_le_bytes());
        file.0.extend(offset.to_le_bytes());
        offset += (shape.iter().product::<usize>() * 4).next_multiple_of(32) as u64;
    }
    let mut noise = 1_u32;
    for (name, shape) in &tensors {
        file.align();
        for _ in 0..shape.iter().product::<usize>() {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = f32::from((noise >> 16) as u16) / 32_768.0 - 1.0;
            let value = if name.contains("norm") {
                1.0
            } else {
                value / 4.0
            };
            file.0.extend(value.to_le_bytes());
        }
    }
    file.align();
    fs::write(path, file.0).unwrap();
}

fn tensors() -> Vec<(&'static str, Vec<usize>)> {
    vec![
        ("token_embd.weight", vec![VOCABULARY, HIDDEN]),
        ("output_norm.weight", vec![HIDDEN]),
        ("output.weight", vec![VOCABULARY, HIDDEN]),
        ("blk.0.attn_norm.weight", vec![HIDDEN]),
        ("blk.0.attn_q.weight", vec![HIDDEN, HIDDEN]),
        ("blk.0.attn_k.weight", vec![HIDDEN / 2, HIDDEN]),
        ("blk.0.attn_v.weight", vec![HIDDEN / 2, HIDDEN]),
        ("blk.0.attn_output.weight", vec![HIDDEN, HIDDEN]),
        ("blk.0.ffn_norm.weight", vec![HIDDEN]),
        ("blk.0.ffn_gate.weight", vec![FEED_FORWARD, HIDDEN]),
        ("blk.0.ffn_up.weight", vec![FEED_FORWARD, HIDDEN]),
        ("blk.0.ffn_down.weight", vec![HIDDEN, FEED_FORWARD]),
    ]
}

/// The letters that stand for bytes: a byte that is no visible one has a letter from U+0100 on.
fn alphabet() -> Vec<String> {
    let is_shown = |byte: u32| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let mut others = 256..;
    let letters = (0..NUM_BYTES as u32).map(|byte| {
        let code = if is_shown(byte) {
            byte
        } else {
            others.next().unwrap()
        };
        char::from_u32(code).unwrap().to_string()
    });
    letters.collect()
}

/// The file, as far as it is written.
#[derive(Default)]
struct Gguf(Vec<u8>);

impl Gguf {
    fn text(&mut self, text: &str) {
        self.0.extend((text.len() as u64).to_le_bytes());
        self.0.extend(text.as_bytes());
    }

    fn key(&mut self, key: &str, kind: u32) {
        self.text(key);
        self.0.extend(kind.to_le_bytes());
    }

    fn array(&mut self, key: &str, kind: u32, length: usize) {
        self.key(key, ARRAY);
        self.0.extend(kind.to_le_bytes());
        self.0.extend((length as u64).to_le_bytes());
    }

    fn align(&mut self) {
        let length = self.0.len().next_multiple_of(32);
        self.0.resize(length, 0);
    }
}
