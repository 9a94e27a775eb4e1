//! What a model is, apart from its weights: the numbers that the forward pass
//! follows. GGUF metadata and `config.json` are both read into this form;
//! names are Hugging Face's.

mod architecture;
mod check;
mod config;
mod files;
mod gguf;
mod hugging_face;
mod rope;
mod tensors;

pub use self::config::{
    Activation, ModelConfig, NormPlacement, RopeConfig, RopePairing, RopeScaling,
};
pub use self::files::ModelFiles;
pub use self::tensors::{LayerTensor, TensorNaming, TensorRole};

#[cfg(test)]
mod tests;
