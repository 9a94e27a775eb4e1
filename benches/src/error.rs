//! What can fail while loading, measuring and recording.
//!
//! Variants name what failed and carry fields; a caller prints the chain. Failures of a ledger
//! check are [`VerifyFailure`](crate::VerifyFailure), because the caller acts differently on them.

use std::io;
use std::path::PathBuf;

/// The failures of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be read, written, locked or synced.
    #[error("cannot {operation} {}", path.display())]
    File {
        /// What was tried: "read", "write", "lock".
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A program could not be started or waited for.
    #[error("cannot run {program}")]
    Program {
        /// The program as it was called.
        program: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A matrix file is not valid TOML of the expected shape.
    #[error("invalid matrix file {}", path.display())]
    MatrixSyntax {
        /// The matrix file.
        path: PathBuf,
        /// The parser's answer, with line and column.
        source: Box<toml::de::Error>,
    },
    /// A matrix file declares something that cannot be measured.
    #[error("matrix {item}: {problem}")]
    Matrix {
        /// The arm or cell.
        item: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A measured program is not a release build.
    #[error("{program} is built with profile {found}, the ledger takes release builds only")]
    NotReleaseBuild {
        /// The program.
        program: String,
        /// The profile it reports, or "unknown".
        found: String,
    },
    /// The ledger is not in a state that can be appended to.
    #[error("the ledger cannot be appended to")]
    Ledger(#[from] crate::ledger::VerifyFailure),
    /// A record that is asked for is not in the ledger.
    #[error("the ledger has no record {name}")]
    NoRecord {
        /// The name as given.
        name: String,
    },
    /// A self-signed certificate could not be made.
    #[error("cannot generate a self-signed certificate")]
    Certificate(#[from] rcgen::Error),
    /// A load plan cannot be run.
    #[error("load plan: {field}: {problem}")]
    LoadPlan {
        /// The field.
        field: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A thread of the load engine could not work.
    #[error("cannot {operation} a load thread")]
    LoadThread {
        /// What was tried, completing "cannot … a load thread".
        operation: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// Two numbers of a load report contradict each other: a bug in the client.
    #[error("load report contradicts itself: {invariant}, found {left} and {right}")]
    LoadInvariant {
        /// The relation that does not hold.
        invariant: &'static str,
        /// Its left side.
        left: u64,
        /// Its right side.
        right: u64,
    },
    /// The request that validates a target had no whole response.
    #[error("the probing request ended in {outcome}")]
    Probe {
        /// How it ended.
        outcome: crate::load::Outcome,
    },
    /// A target URL cannot be used.
    #[error("invalid URL {url:?}: {problem}")]
    Url {
        /// The URL as given.
        url: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A host name has no address.
    #[error("cannot resolve {name}")]
    Resolve {
        /// The name.
        name: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A file of trusted certificates cannot be used.
    #[error("cannot read certificates from {}", path.display())]
    CaFile {
        /// The PEM file.
        path: PathBuf,
        /// The parser's answer.
        source: rustls_pki_types::pem::Error,
    },
    /// The TLS library refused its configuration.
    #[error("invalid TLS configuration")]
    Tls(#[from] rustls::Error),
    /// A model server cannot be measured.
    #[error("model server, {path}: {problem}")]
    ModelServer {
        /// What was asked for.
        path: String,
        /// What was wrong with the answer.
        problem: String,
    },
    /// The numbers of a run against a model server may not be recorded.
    #[error("the run cannot be recorded: {reason}")]
    NotUsable {
        /// What makes them unusable.
        reason: String,
    },
    /// A prompt of the wanted length could not be made.
    #[error("no prompt of {target} tokens can be made, the nearest has {found}")]
    Calibration {
        /// Tokens wanted.
        target: u64,
        /// Tokens of the last one that was counted.
        found: u64,
    },
    /// A file of prompts cannot be used.
    #[error("data set {}{}: {problem}", path.display(), line.map_or_else(String::new, |line| format!(":{line}")))]
    Dataset {
        /// The file.
        path: PathBuf,
        /// Line from 1, where one is at fault.
        line: Option<usize>,
        /// What is wrong with it.
        problem: String,
    },
    /// The machine does something else, so that nothing can be measured on it.
    #[error("the machine is busy: {reasons}")]
    Busy {
        /// What is too much.
        reasons: String,
    },
    /// The run was stopped from outside before it was complete.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// Returns a closure that wraps an I/O error with its operation and path.
    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            operation,
            path,
            source,
        }
    }
}
