//! The load engine, the statistics on its rounds, and the ledger that keeps the results.
//!
//! A verdict is computed from recorded rounds by a rule and can be recomputed by anyone
//! ([`ledger::verify`]); no number enters the ledger by hand.

pub mod ledger;
pub mod machine;
pub mod matrix;
pub mod stats;

mod error;
mod load;

pub use error::Error;
pub use ledger::VerifyFailure;
pub use load::{
    Address, EventFeed, Exchange, Expectation, ExpectedBody, LatencySummary, LoadPlan, LoadReport,
    Outcome, OutcomeCounts, RequestTemplate, ResponseDigest, Stop, Target, ThreadReport, Tls,
    Trust, WebSocketEcho, parse_target, probe, run as run_load,
};
