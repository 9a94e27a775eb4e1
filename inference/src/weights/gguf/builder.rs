//! Writes small GGUFs for tests, sound or not: nothing is checked here.

use crate::weights::DataType;

/// A file in the making.
#[derive(Clone, Debug)]
pub(crate) struct GgufBuilder {
    pub(crate) magic: [u8; 4],
    pub(crate) version: u32,
    pub(crate) num_tensors: Option<u64>,
    pub(crate) num_keys: Option<u64>,
    pub(crate) entries: Vec<Vec<u8>>,
    pub(crate) tensors: Vec<TensorInfo>,
    pub(crate) alignment: usize,
    pub(crate) data: Vec<u8>,
}

/// A line of the tensor table, as it is written.
#[derive(Clone, Debug)]
pub(crate) struct TensorInfo {
    pub(crate) name: Vec<u8>,
    pub(crate) num_dimensions: Option<u32>,
    /// Innermost first.
    pub(crate) dimensions: Vec<u64>,
    pub(crate) format: u32,
    pub(crate) offset: u64,
}

impl GgufBuilder {
    pub(crate) fn new() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3,
            num_tensors: None,
            num_keys: None,
            entries: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
            data: Vec::new(),
        }
    }

    pub(crate) fn raw(mut self, key: &[u8], kind: u32, value: &[u8]) -> Self {
        let entry = [string(key), kind.to_le_bytes().to_vec(), value.to_vec()].concat();
        self.entries.push(entry);
        self
    }

    pub(crate) fn u32(self, key: &str, value: u32) -> Self {
        self.raw(key.as_bytes(), 4, &value.to_le_bytes())
    }

    pub(crate) fn f32(self, key: &str, value: f32) -> Self {
        self.raw(key.as_bytes(), 6, &value.to_le_bytes())
    }

    pub(crate) fn string(self, key: &str, value: &str) -> Self {
        self.raw(key.as_bytes(), 8, &string(value.as_bytes()))
    }

    pub(crate) fn array(self, key: &str, element: u32, values: &[Vec<u8>]) -> Self {
        let value = array(element, values.len() as u64, &values.concat());
        self.raw(key.as_bytes(), 9, &value)
    }

    pub(crate) fn strings(self, key: &str, values: &[&str]) -> Self {
        let values: Vec<Vec<u8>> = values.iter().map(|text| string(text.as_bytes())).collect();
        self.array(key, 8, &values)
    }

    /// A tensor behind those that are there; `shape` is outermost first.
    pub(crate) fn tensor(
        mut self,
        name: &str,
        data_type: DataType,
        shape: &[usize],
        bytes: &[u8],
    ) -> Self {
        self.data
            .resize(self.data.len().next_multiple_of(self.alignment), 0);
        let number = (0..64).find(|number| DataType::from_gguf(*number) == Some(data_type));
        self.tensors.push(TensorInfo {
            name: name.as_bytes().to_vec(),
            num_dimensions: None,
            dimensions: shape.iter().rev().map(|len| *len as u64).collect(),
            format: number.expect("every format has a number"),
            offset: self.data.len() as u64,
        });
        self.data.extend_from_slice(bytes);
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let num_tensors = self.num_tensors.unwrap_or(self.tensors.len() as u64);
        let num_keys = self.num_keys.unwrap_or(self.entries.len() as u64);
        let mut bytes = [&self.magic[..], &self.version.to_le_bytes()].concat();
        bytes.extend(num_tensors.to_le_bytes());
        bytes.extend(num_keys.to_le_bytes());
        bytes.extend(self.entries.concat());
        for tensor in &self.tensors {
            let num_dimensions = tensor
                .num_dimensions
                .unwrap_or(tensor.dimensions.len() as u32);
            bytes.extend(string(&tensor.name));
            bytes.extend(num_dimensions.to_le_bytes());
            bytes.extend(tensor.dimensions.iter().flat_map(|len| len.to_le_bytes()));
            bytes.extend(tensor.format.to_le_bytes());
            bytes.extend(tensor.offset.to_le_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(self.alignment), 0);
        bytes.extend_from_slice(&self.data);
        bytes
    }
}

pub(crate) fn string(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text].concat()
}

pub(crate) fn array(element: u32, len: u64, values: &[u8]) -> Vec<u8> {
    [&element.to_le_bytes()[..], &len.to_le_bytes(), values].concat()
}
