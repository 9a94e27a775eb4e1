//! Everything that can fail in this crate while a model is found, read and
//! set up. What a single request can do wrong is [`crate::Refusal`].

use std::io;
use std::path::PathBuf;

/// Failures of finding, reading and setting up a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of the model cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// File that was read.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not what its name or its first bytes promise.
    #[error("{path}: {what}", path = path.display())]
    Malformed {
        /// File that was read.
        path: PathBuf,
        /// Rule that it breaks, with the place and the numbers.
        what: String,
    },
    /// The model is sound, and of a kind that this engine cannot run.
    #[error("not supported: {what}")]
    Unsupported {
        /// Architecture, type of weights, tokenizer or option.
        what: String,
    },
    /// A tensor that the architecture needs is absent or has another shape.
    #[error("tensor {name}: expected {expected}, found {found}")]
    Tensor {
        /// Name in the file.
        name: String,
        /// Shape, outermost axis first, or `any`.
        expected: String,
        /// Shape in the file, or `none`.
        found: String,
    },
    /// A setting of the engine cannot be met.
    #[error("{setting} = {value}: {reason}")]
    Setting {
        /// Name as on the command line, without dashes.
        setting: &'static str,
        /// What was asked for.
        value: String,
        /// Rule that it breaks.
        reason: String,
    },
}
