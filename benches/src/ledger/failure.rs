//! Why a ledger does not verify: always the file, where possible the line, and what differs.

use std::io;
use std::path::PathBuf;

/// The first thing found wrong with a ledger.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyFailure {
    /// A file of the ledger cannot be read.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A record is not what this program writes.
    #[error("{file}: not a valid record: {problem}")]
    Malformed {
        /// The record.
        file: String,
        /// What is wrong.
        problem: String,
    },
    /// A record is not the file that others vouch for.
    #[error("{file}: sha256 is {found}, but {witness} names {expected}")]
    RecordChanged {
        /// The record.
        file: String,
        /// Who holds the digest, with its line.
        witness: String,
        /// The digest held.
        expected: String,
        /// The digest of the file.
        found: String,
    },
    /// A record is named but not there.
    #[error("{file}: missing, but {witness} names it")]
    RecordMissing {
        /// The record.
        file: String,
        /// Who names it.
        witness: String,
    },
    /// A record is there but not part of the chain or of `BENCHMARKS.md`.
    #[error("{file}: {problem}")]
    Unchained {
        /// The record.
        file: String,
        /// How it falls out.
        problem: String,
    },
    /// A strike names what is not there to be struck through.
    #[error("{file}: cannot strike {item} through: {problem}")]
    Strike {
        /// The strike.
        file: String,
        /// What it names.
        item: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A chart shows something else than its record, or has none.
    #[error("{file}: {problem}")]
    Chart {
        /// The chart.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// What a record concludes does not follow from its rounds.
    #[error("{file}: {item} does not follow from the recorded rounds")]
    Conclusion {
        /// The record.
        file: String,
        /// The cell.
        item: String,
    },
    /// `BENCHMARKS.md` differs from what the records render to.
    #[error("{file}:{line}: expected {expected:?}, found {found:?} (byte {offset})")]
    Differs {
        /// The document.
        file: String,
        /// Line, from 1.
        line: usize,
        /// Byte of the first difference, from 0.
        offset: usize,
        /// The line as rendered.
        expected: String,
        /// The line as found.
        found: String,
    },
    /// `BENCHMARKS.md` stops in the middle of what the records render to.
    #[error(
        "{file}:{line}: the file ends at byte {offset}, the records render to {expected} bytes"
    )]
    TornTail {
        /// The document.
        file: String,
        /// Line of the end, from 1.
        line: usize,
        /// Length of the file.
        offset: usize,
        /// Length of the rendering.
        expected: usize,
    },
    /// A claim does not quote its record, or may not.
    #[error("{file}:{line}: claim {claim}: {problem}")]
    Claim {
        /// The document.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The reference in the marker.
        claim: String,
        /// What is wrong.
        problem: String,
    },
    /// A number that looks measured stands outside a claim.
    #[error("{file}:{line}: {text:?} is a performance number outside a claim")]
    Unclaimed {
        /// The document.
        file: String,
        /// Line, from 1.
        line: usize,
        /// The number as written.
        text: String,
    },
    /// A committed state of a file is not kept.
    #[error("{file}: {problem} (commit {commit})")]
    History {
        /// The file.
        file: String,
        /// The commit that has what is lost.
        commit: String,
        /// What was done.
        problem: String,
    },
}
