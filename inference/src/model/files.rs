//! A model on disk, found by one path: a GGUF, or a folder of Hugging Face.

use std::path::Path;

use super::{ModelConfig, TensorNaming};
use crate::error::Error;
use crate::weights::{GgufFile, SafetensorsFiles, WeightSource};

/// Files of a model, open.
#[derive(Debug)]
pub enum ModelFiles {
    /// One GGUF; its metadata hold the tokenizer and the template too.
    Gguf(GgufFile),
    /// A folder with `config.json` and safetensors.
    Folder(SafetensorsFiles),
}

impl ModelFiles {
    /// Opens a GGUF or a folder, and reads what the model is.
    ///
    /// # Errors
    /// Of [`GgufFile::open`], [`SafetensorsFiles::open_folder`],
    /// [`ModelConfig::from_gguf`] and [`ModelConfig::from_folder`].
    pub fn open(path: &Path) -> Result<(Self, ModelConfig), Error> {
        if path.is_dir() {
            let config = ModelConfig::from_folder(path)?;
            Ok((Self::Folder(SafetensorsFiles::open_folder(path)?), config))
        } else {
            let file = GgufFile::open(path)?;
            let config = ModelConfig::from_gguf(&file)?;
            Ok((Self::Gguf(file), config))
        }
    }

    /// Returns the tensors.
    pub fn weights(&self) -> &dyn WeightSource {
        match self {
            Self::Gguf(file) => file,
            Self::Folder(files) => files,
        }
    }

    /// Says whose names the tensors have.
    pub const fn naming(&self) -> TensorNaming {
        match self {
            Self::Gguf(_) => TensorNaming::Gguf,
            Self::Folder(_) => TensorNaming::HuggingFace,
        }
    }
}
