//! Why a model is not there: each kind wants something else of its user.

use std::io;
use std::path::PathBuf;

/// Failures of finding a model, or of bringing it here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocateError {
    /// What was asked for is neither a file, nor a short name, nor `org/name`.
    #[error("no model `{model}`: neither a file, nor a short name, nor `org/name` of a hub")]
    Unknown {
        /// What was asked for.
        model: String,
        /// Short name that may have been meant.
        near: Option<&'static str>,
    },
    /// A path that is not there.
    #[error("no file {path}", path = path.display())]
    NoFile {
        /// What was asked for.
        path: PathBuf,
    },
    /// A folder without what a model consists of.
    #[error("{path} is not a model: {missing}", path = path.display())]
    NotAModel {
        /// The folder or file.
        path: PathBuf,
        /// What is not there.
        missing: String,
    },
    /// It is not in the cache, and the network is not to be used.
    #[error("`{model}` is not in the cache, and nothing may be fetched")]
    Offline {
        /// What was asked for.
        model: String,
    },
    /// The hub has no such repository, revision or file, or shows it to others alone.
    #[error("{what} is not on the hub {endpoint}")]
    NotFound {
        /// Repository, revision or file.
        what: String,
        /// Address of the hub.
        endpoint: String,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// The hub wants terms accepted, or another token.
    #[error("the hub {endpoint} does not give {repository} to {whom}", whom = if *has_token { "this token" } else { "anybody" })]
    Forbidden {
        /// `org/name`.
        repository: String,
        /// Address of the hub.
        endpoint: String,
        /// Whether a token was sent.
        has_token: bool,
    },
    /// More than one file could be meant, or none.
    #[error("{repository} has {found}")]
    Ambiguous {
        /// `org/name`.
        repository: String,
        /// What it has, in words.
        found: String,
        /// What may be written behind `org/name:`.
        choices: Vec<String>,
    },
    /// The hub cannot be reached, or does not do what it should, however often it is asked.
    #[error("{url}: {reason}")]
    Network {
        /// Address without query and credentials.
        url: String,
        /// What happened.
        reason: String,
    },
    /// What came is not what was promised.
    #[error("{file}: {quantity} is {found}, not {expected}")]
    Mismatch {
        /// Name of the file.
        file: String,
        /// `size` or the kind of digest.
        quantity: &'static str,
        /// As promised.
        expected: String,
        /// As it came.
        found: String,
    },
    /// Python's package installer did not bring the package.
    #[error("{command} failed: {reason}")]
    Package {
        /// As it can be run by hand.
        command: String,
        /// Its last words.
        reason: String,
    },
    /// None of the places that have the model could give it.
    #[error("`{model}` could not be fetched from any of {num_sources} places", num_sources = reasons.len())]
    NoSource {
        /// Short name.
        model: String,
        /// Place, and why not.
        reasons: Vec<(String, String)>,
    },
    /// The folder of models cannot be read or written.
    #[error("cannot {operation} {path}: {source}", path = path.display())]
    Storage {
        /// What was tried.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The cache has no place: no home directory, and none was named.
    #[error("no folder to keep models in: neither HF_HOME nor HOME is set")]
    NoCache,
}

impl LocateError {
    /// Makes the error of a file operation at a path.
    pub(super) fn storage(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Storage {
            operation,
            path,
            source,
        }
    }

    /// Whether another place may still have the model.
    pub(super) fn is_of_the_source(&self) -> bool {
        !matches!(self, Self::Storage { .. } | Self::NoCache)
    }
}
