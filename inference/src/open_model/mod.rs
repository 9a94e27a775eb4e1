//! A model's files put together: numbers, tokenizer, template, and weights that
//! are read when they are wanted.
//!
//! Guarantee: a GGUF and a folder of Hugging Face give the same kind of model;
//! whoever has one need not know which it was.

mod folder;
mod gguf;

use std::path::Path;
use std::sync::Arc;

use crate::backend::{CpuBackend, CpuOptions};
use crate::error::Error;
use crate::model::{ModelConfig, ModelFiles};
use crate::tokenizer::Tokenizer;
use crate::weights::WeightSource;

/// A model whose files are open and whose weights are still on the disk.
#[derive(Debug)]
pub struct OpenModel {
    files: ModelFiles,
    config: ModelConfig,
    tokenizer: Arc<Tokenizer>,
    chat_template: Option<String>,
}

impl OpenModel {
    /// Opens a GGUF file, or a folder with `config.json`, safetensors and `tokenizer.json`.
    ///
    /// # Errors
    /// [`Error`]: a file that is absent, damaged, or of a kind that is not run.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (files, config) = ModelFiles::open(path)?;
        let (tokenizer, chat_template) = match &files {
            ModelFiles::Gguf(file) => gguf::texts(file)?,
            ModelFiles::Folder(_) => folder::texts(path, &config)?,
        };
        let tokenizer = tokenizer.with_eos(&config.eos_token_ids);
        Ok(Self {
            files,
            config,
            tokenizer: Arc::new(tokenizer),
            chat_template,
        })
    }

    /// Returns the numbers of the model.
    pub const fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Returns the tokenizer.
    pub const fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Returns the template of chats (Jinja); base models have none.
    pub fn chat_template(&self) -> Option<&str> {
        self.chat_template.as_deref()
    }

    /// Returns the weights as they are in the files.
    pub fn weights(&self) -> &dyn WeightSource {
        self.files.weights()
    }

    /// Returns the bytes that the weights take in the files.
    pub fn weight_bytes(&self) -> u64 {
        let tensors = self.weights().tensors().iter();
        tensors.map(|tensor| tensor.num_bytes() as u64).sum()
    }

    /// Reads the weights, to be run on this machine's processors.
    ///
    /// # Errors
    /// As [`CpuBackend::load`].
    pub fn load(&self, options: CpuOptions) -> Result<CpuBackend, Error> {
        let naming = self.files.naming();
        CpuBackend::load(self.weights(), self.config.clone(), naming, options)
    }
}
