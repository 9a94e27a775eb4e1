//! The tokenizer's part of a GGUF's metadata, read independently of the engine.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::Path;

use justapi_inference::GgufTokenizer;

#[derive(Debug)]
enum Value {
    Unsigned(u64),
    Integer(i64),
    Float(f64),
    Text(String),
    Array(Vec<Self>),
}

struct Reader(BufReader<File>);

impl Reader {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes).expect("a whole file");
        bytes
    }

    fn text(&mut self) -> String {
        let len = u64::from_le_bytes(self.bytes());
        let mut text = String::new();
        (&mut self.0)
            .take(len)
            .read_to_string(&mut text)
            .expect("a whole file");
        text
    }

    fn value(&mut self, kind: u32) -> Value {
        match kind {
            0 | 7 => Value::Unsigned(self.bytes::<1>()[0].into()),
            1 => Value::Integer(i8::from_le_bytes(self.bytes()).into()),
            2 => Value::Unsigned(u16::from_le_bytes(self.bytes()).into()),
            3 => Value::Integer(i16::from_le_bytes(self.bytes()).into()),
            4 => Value::Unsigned(u32::from_le_bytes(self.bytes()).into()),
            5 => Value::Integer(i32::from_le_bytes(self.bytes()).into()),
            6 => Value::Float(f32::from_le_bytes(self.bytes()).into()),
            8 => Value::Text(self.text()),
            9 => {
                let kind = u32::from_le_bytes(self.bytes());
                let len = u64::from_le_bytes(self.bytes());
                Value::Array((0..len).map(|_| self.value(kind)).collect())
            }
            10 => Value::Unsigned(u64::from_le_bytes(self.bytes())),
            11 => Value::Integer(i64::from_le_bytes(self.bytes())),
            12 => Value::Float(f64::from_le_bytes(self.bytes())),
            other => panic!("no type {other} in a GGUF"),
        }
    }
}

impl Value {
    fn into_text(self) -> String {
        let Self::Text(text) = self else {
            panic!("{self:?} is no text")
        };
        text
    }

    fn to_integer(&self) -> i64 {
        match self {
            Self::Unsigned(value) => i64::try_from(*value).expect("a small number"),
            Self::Integer(value) => *value,
            _ => panic!("{self:?} is no integer"),
        }
    }

    fn to_f32(&self) -> f32 {
        let Self::Float(value) = self else {
            panic!("{self:?} is no number")
        };
        *value as f32
    }

    fn into_array(self) -> Vec<Self> {
        let Self::Array(items) = self else {
            panic!("{self:?} is no array")
        };
        items
    }
}

/// Reads the fields of a file.
pub(crate) fn read(path: &Path) -> GgufTokenizer {
    let mut reader = Reader(BufReader::new(File::open(path).expect("a model")));
    assert_eq!(&reader.bytes(), b"GGUF");
    let _version: [u8; 4] = reader.bytes();
    let _num_tensors: [u8; 8] = reader.bytes();
    let num_fields = u64::from_le_bytes(reader.bytes());
    let mut fields = HashMap::new();
    for _ in 0..num_fields {
        let key = reader.text();
        let kind = u32::from_le_bytes(reader.bytes());
        let value = reader.value(kind);
        if let Some(name) = key.strip_prefix("tokenizer.ggml.") {
            fields.insert(name.to_owned(), value);
        }
    }
    let mut array = |name: &str| fields.remove(name).map_or(Vec::new(), Value::into_array);
    let tokens = array("tokens").into_iter().map(Value::into_text).collect();
    let merges = array("merges").into_iter().map(Value::into_text).collect();
    let scores = array("scores").iter().map(Value::to_f32).collect();
    let token_types = array("token_type")
        .iter()
        .map(|kind| kind.to_integer() as i32)
        .collect();
    let mut text = |name: &str| fields.remove(name).map(Value::into_text);
    let (model, pre) = (text("model").expect("a model"), text("pre"));
    let integer = |name: &str| fields.get(name).map(Value::to_integer);
    let id = |name: &str| integer(name).map(|id| id as u32);
    let flag = |name: &str| integer(name).map(|flag| flag != 0);
    GgufTokenizer {
        path: path.to_path_buf(),
        model,
        pre,
        tokens,
        scores,
        token_types,
        merges,
        bos: id("bos_token_id"),
        eos: id("eos_token_id"),
        eot: id("eot_token_id"),
        eom: id("eom_token_id"),
        unknown: id("unknown_token_id"),
        padding: id("padding_token_id"),
        add_bos: flag("add_bos_token"),
        add_space_prefix: flag("add_space_prefix"),
    }
}
