//! The ledger: immutable records in `benches/results`, chained by hash, rendered to `BENCHMARKS.md`.
//!
//! Guarantee: after [`append`] returns, record and section are on disk; any later change of one
//! byte in either makes [`verify`] fail and name the file. A wrong row stays, struck through by an
//! entry of its own ([`supersede`]).

mod append;
mod chain;
mod charts;
mod claims;
mod compare;
mod decimal;
mod digest;
mod entry;
mod failure;
mod history;
mod metric;
mod page;
mod record;
mod recurrence;
mod reload;
mod render;
mod serving;
mod serving_charts;
mod standing;
mod strike;
mod verify;

#[cfg(test)]
mod recurrence_tests;
#[cfg(test)]
mod serving_tests;
#[cfg(test)]
mod strike_tests;
#[cfg(test)]
mod tests;

pub use append::{Appended, append, supersede};
pub use charts::{Drawn, draw, throughput};
pub use claims::{Claimed, fill_claims};
pub use compare::{Compared, Comparison, compare_records, compare_reports, find_record};
pub use decimal::Decimal;
pub(crate) use digest::hexadecimal;
pub use digest::{sha256_hex, utc_timestamp};
pub use failure::VerifyFailure;
pub use history::History;
pub(crate) use history::git_command;
pub(crate) use metric::Judged;
pub use metric::Metric;
pub use page::page;
pub use record::{
    ArmRecord, Background, BeforeRecord, Bound, CellKind, CellRecord, ClientRecord, Coding,
    EchoedMessages, EngagementRecord, Estimate, FileDigest, LoadRecord, OpenRecord, PostedEvents,
    Previous, Program, RULES, Record, ReportForm, RoundFixture, RoundRecord, Row, SCHEMA_VERSION,
    ServedFile, Source, Summary, Target, Verdict, VerdictRow, Workload,
};
pub(crate) use recurrence::EarlierRuns;
pub use reload::{NEW, ReloadRecord, Saves, TOLD};
pub(crate) use serving::row as serving_row;
pub use serving::{ServedModel, ServedRequest, ServingCell, ServingScenario};
pub use strike::{Strike, StrikeReason, Struck};
pub use verify::{VerifyReport, check, verify};

/// The rendered document, relative to the root.
pub const BENCHMARKS: &str = "BENCHMARKS.md";

/// The folder of records, relative to the root.
pub const RESULTS: &str = "benches/results";

/// The folder of charts, inside that of the records.
pub const CHARTS_FOLDER: &str = "charts";
