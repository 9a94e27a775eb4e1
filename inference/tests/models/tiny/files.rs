//! Writers of GGUF files and of safetensors, as far as tests need them.

use std::fs;
use std::path::Path;

use serde_json::{Map, json};

/// One tensor. (`shape`, outermost axis first)
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    /// Number of the type in GGUF, or name of it in safetensors.
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) enum Kind {
    Gguf(u32),
    Safetensors(&'static str),
}

/// Value of an entry of a GGUF file.
pub(crate) enum Value {
    U32(u32),
    I32s(Vec<i32>),
    F32(f32),
    Bool(bool),
    Bools(Vec<bool>),
    Text(String),
    Texts(Vec<String>),
}

pub(crate) fn write_gguf(path: &Path, entries: &[(String, Value)], tensors: &[Tensor]) {
    const ALIGNMENT: usize = 32;
    let mut file = b"GGUF".to_vec();
    file.extend(3_u32.to_le_bytes());
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend((entries.len() as u64).to_le_bytes());
    for (key, value) in entries {
        write_text(&mut file, key);
        write_value(&mut file, value);
    }
    let mut offset = 0_usize;
    for tensor in tensors {
        write_text(&mut file, &tensor.name);
        file.extend((tensor.shape.len() as u32).to_le_bytes());
        for &axis in tensor.shape.iter().rev() {
            file.extend((axis as u64).to_le_bytes());
        }
        let Kind::Gguf(kind) = tensor.kind else {
            panic!("a type of GGUF")
        };
        file.extend(kind.to_le_bytes());
        file.extend((offset as u64).to_le_bytes());
        offset = (offset + tensor.bytes.len()).next_multiple_of(ALIGNMENT);
    }
    for tensor in tensors {
        file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
        file.extend(&tensor.bytes);
    }
    file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
    fs::write(path, file).expect("the folder of the test can be written");
}

fn write_text(file: &mut Vec<u8>, text: &str) {
    file.extend((text.len() as u64).to_le_bytes());
    file.extend(text.as_bytes());
}

fn write_value(file: &mut Vec<u8>, value: &Value) {
    let array = |file: &mut Vec<u8>, element: u32, length: usize| {
        file.extend(9_u32.to_le_bytes());
        file.extend(element.to_le_bytes());
        file.extend((length as u64).to_le_bytes());
    };
    match value {
        Value::U32(number) => {
            file.extend(4_u32.to_le_bytes());
            file.extend(number.to_le_bytes());
        }
        Value::I32s(numbers) => {
            array(file, 5, numbers.len());
            file.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        Value::F32(number) => {
            file.extend(6_u32.to_le_bytes());
            file.extend(number.to_le_bytes());
        }
        Value::Bool(truth) => {
            file.extend(7_u32.to_le_bytes());
            file.push(u8::from(*truth));
        }
        Value::Bools(truths) => {
            array(file, 7, truths.len());
            file.extend(truths.iter().map(|&truth| u8::from(truth)));
        }
        Value::Text(text) => {
            file.extend(8_u32.to_le_bytes());
            write_text(file, text);
        }
        Value::Texts(texts) => {
            array(file, 8, texts.len());
            for text in texts {
                write_text(file, text);
            }
        }
    }
}

pub(crate) fn write_safetensors(path: &Path, tensors: &[Tensor]) {
    let (mut header, mut offset) = (Map::new(), 0);
    for tensor in tensors {
        let Kind::Safetensors(kind) = tensor.kind else {
            panic!("a type of safetensors")
        };
        let end = offset + tensor.bytes.len();
        header.insert(
            tensor.name.clone(),
            json!({"dtype": kind, "shape": tensor.shape, "data_offsets": [offset, end]}),
        );
        offset = end;
    }
    let header = serde_json::to_vec(&header).expect("JSON of numbers and texts");
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    for tensor in tensors {
        file.extend(&tensor.bytes);
    }
    fs::write(path, file).expect("the folder of the test can be written");
}
