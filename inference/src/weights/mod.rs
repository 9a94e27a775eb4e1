//! Weights on disk: what tensors a model's files hold, and their bytes.
//!
//! Files are read at positions, never mapped: one that is cut short while it
//! is read is an error and not a signal.

mod data_type;
mod dequantize;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gguf;
mod safetensors;
mod source;
mod tensor_table;

#[cfg(test)]
pub(crate) use self::gguf::builder;

pub use self::data_type::DataType;
pub use self::gguf::{GgufFile, Metadata, Strings};
pub use self::safetensors::SafetensorsFiles;
pub use self::source::{StoredTensor, WeightSource};
