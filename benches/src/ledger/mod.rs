//! The ledger: immutable records in `benches/results`, chained by hash, rendered to `BENCHMARKS.md`.
//!
//! Guarantee: after [`append`] returns, record and section are on disk; any later change of one
//! byte in either makes [`verify`] fail and name the file.

mod append;
mod chain;
mod claims;
mod decimal;
mod digest;
mod failure;
mod history;
mod record;
mod render;
mod verify;

#[cfg(test)]
mod tests;

pub use append::{Appended, append};
pub use decimal::Decimal;
pub(crate) use digest::hexadecimal;
pub use digest::{sha256_hex, utc_timestamp};
pub use failure::VerifyFailure;
pub use history::History;
pub(crate) use history::git_command;
pub use record::{
    ArmRecord, Bound, CellKind, CellRecord, Coding, EchoedMessages, EngagementRecord, Estimate,
    FileDigest, LoadRecord, Metric, PostedEvents, Previous, Program, Record, RoundRecord, Row,
    SCHEMA_VERSION, ServedFile, Source, Summary, Target, Verdict, VerdictRow, Workload,
};
pub use verify::{VerifyReport, check, verify};

/// The rendered document, relative to the root.
pub const BENCHMARKS: &str = "BENCHMARKS.md";

/// The folder of records, relative to the root.
pub const RESULTS: &str = "benches/results";
