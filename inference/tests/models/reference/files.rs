//! Weights of the reference out of a GGUF file or a folder of safetensors, by
//! readers of its own. Source: the GGUF specification (version 3) and the
//! description of the safetensors format.

use std::fs;
use std::path::Path;

use super::blocks::Type;
use super::matrix::{Matrix, Weights};

/// Reads the weights of a GGUF file, or of `model.safetensors` in a folder.
pub(crate) fn read(path: &Path) -> Weights {
    if path.is_dir() {
        read_safetensors(&path.join("model.safetensors"))
    } else {
        read_gguf(path)
    }
}

fn read_safetensors(path: &Path) -> Weights {
    let bytes = fs::read(path).expect("the file of the test can be read");
    let header_bytes = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes")) as usize;
    let header: serde_json::Value =
        serde_json::from_slice(&bytes[8..8 + header_bytes]).expect("the header is JSON");
    let data = &bytes[8 + header_bytes..];
    let mut weights = Weights::default();
    for (name, tensor) in header.as_object().expect("the header is an object") {
        if name == "__metadata__" {
            continue;
        }
        let number = |value: &serde_json::Value| value.as_u64().expect("a number") as usize;
        let kind = match tensor["dtype"].as_str() {
            Some("F32") => Type::F32,
            Some("F16") => Type::F16,
            Some("BF16") => Type::BF16,
            other => panic!("the reference does not read {other:?}"),
        };
        let range = number(&tensor["data_offsets"][0])..number(&tensor["data_offsets"][1]);
        let shape = tensor["shape"].as_array().expect("a shape");
        let columns = number(shape.last().expect("an axis"));
        weights.insert(
            name.clone(),
            Matrix::new(columns, kind.dequantize(&data[range])),
        );
    }
    weights
}

fn read_gguf(path: &Path) -> Weights {
    let bytes = fs::read(path).expect("the file of the test can be read");
    let mut cursor = Cursor {
        bytes: &bytes,
        at: 0,
    };
    assert_eq!(cursor.take(4), b"GGUF");
    assert_eq!(cursor.u32(), 3, "version");
    let (num_tensors, num_entries) = (cursor.u64(), cursor.u64());
    let mut alignment = 32;
    for _ in 0..num_entries {
        let key = cursor.string();
        let kind = cursor.u32();
        if key == "general.alignment" {
            alignment = cursor.u32() as usize;
        } else {
            cursor.skip_value(kind);
        }
    }
    let tensors: Vec<_> = (0..num_tensors)
        .map(|_| {
            let name = cursor.string();
            let num_axes = cursor.u32();
            let shape: Vec<usize> = (0..num_axes).map(|_| cursor.u64() as usize).collect();
            let kind = Type::from_number(cursor.u32());
            (name, shape, kind, cursor.u64() as usize)
        })
        .collect();
    let data = &bytes[cursor.at.next_multiple_of(alignment)..];
    // Gemma has a norm behind attention, by the name that others have for the next one.
    let is_sandwich = tensors
        .iter()
        .any(|(name, ..)| name.contains("post_attention_norm"));
    let mut weights = Weights::default();
    for (name, shape, kind, offset) in tensors {
        // Factors of frequencies are part of the configuration.
        if name == "rope_freqs.weight" {
            continue;
        }
        let (block_elements, block_bytes) = kind.block();
        let num_bytes = shape.iter().product::<usize>() / block_elements * block_bytes;
        let values = kind.dequantize(&data[offset..offset + num_bytes]);
        weights.insert(
            name_of_hugging_face(&name, is_sandwich),
            Matrix::new(shape[0], values),
        );
    }
    weights
}

fn name_of_hugging_face(name: &str, is_sandwich: bool) -> String {
    match name {
        "token_embd.weight" => return "model.embed_tokens.weight".to_owned(),
        "output_norm.weight" => return "model.norm.weight".to_owned(),
        "output.weight" => return "lm_head.weight".to_owned(),
        _ => {}
    }
    let mut parts = name.split('.');
    let (Some("blk"), Some(layer), Some(part), Some(kind), None) = (
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
    ) else {
        panic!("the reference does not know {name}");
    };
    let part = match part {
        "attn_norm" => "input_layernorm",
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "attn_q_norm" => "self_attn.q_norm",
        "attn_k_norm" => "self_attn.k_norm",
        "post_attention_norm" => "post_attention_layernorm",
        "ffn_norm" if is_sandwich => "pre_feedforward_layernorm",
        "ffn_norm" => "post_attention_layernorm",
        "post_ffw_norm" => "post_feedforward_layernorm",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        _ => panic!("the reference does not know {name}"),
    };
    format!("model.layers.{layer}.{part}.{kind}")
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let taken = &self.bytes[self.at..][..count];
        self.at += count;
        taken
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().expect("four bytes"))
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().expect("eight bytes"))
    }

    fn string(&mut self) -> String {
        let length = self.u64() as usize;
        String::from_utf8(self.take(length).to_vec()).expect("names are UTF-8")
    }

    fn skip_value(&mut self, kind: u32) {
        match kind {
            0 | 1 | 7 => _ = self.take(1),
            2 | 3 => _ = self.take(2),
            4..=6 => _ = self.take(4),
            10..=12 => _ = self.take(8),
            8 => drop(self.string()),
            9 => {
                let element = self.u32();
                for _ in 0..self.u64() {
                    self.skip_value(element);
                }
            }
            _ => panic!("no such type of value: {kind}"),
        }
    }
}
