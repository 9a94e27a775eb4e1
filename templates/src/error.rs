//! What can be wrong with a template or with the answers to it.

use std::io;
use std::path::PathBuf;

/// Why a template cannot be read or rendered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder of the template could not be read.
    #[error("cannot read `{path}`")]
    Read {
        /// Where it is.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no `template.toml`.
    #[error("there is no template.toml in `{folder}`")]
    NoManifest {
        /// Where it should be.
        folder: PathBuf,
    },
    /// `template.toml` says something that it cannot.
    #[error("template.toml: {reason}")]
    Manifest {
        /// What is wrong.
        reason: String,
        /// Line from 1, where known.
        line: Option<usize>,
    },
    /// A path that could lead out of the project, or that no project may have.
    #[error("the path `{path}` {reason}")]
    Path {
        /// As the template has it.
        path: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// More files or bytes than a template may have.
    #[error("a template has at most {limit} {unit}")]
    TooLarge {
        /// The limit.
        limit: u64,
        /// Of what.
        unit: &'static str,
    },
    /// A file or an expression of it could not be rendered.
    #[error("cannot render `{path}`: {reason}")]
    Render {
        /// File of the template, or what else was rendered.
        path: String,
        /// What is wrong.
        reason: String,
        /// Line from 1, where known.
        line: Option<usize>,
    },
}

/// Why an answer cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerFault {
    /// The template asks nothing of that name.
    #[error("there is no question `{name}`")]
    UnknownQuestion {
        /// What was answered.
        name: String,
    },
    /// The answer is not one of those that are possible.
    #[error("`{answer}` is no answer to `{name}`")]
    Impossible {
        /// The question.
        name: String,
        /// What was given.
        answer: String,
        /// What could have been.
        expected: String,
    },
    /// A question that has no default was not answered.
    #[error("the question `{name}` has no answer")]
    Missing {
        /// The question.
        name: String,
    },
}
