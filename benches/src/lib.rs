//! The load engine, the statistics on its rounds, and the ledger that keeps the results.
//!
//! A verdict is computed from recorded rounds by a rule and can be recomputed by anyone
//! ([`ledger::verify`]); no number enters the ledger by hand.

pub mod ledger;
pub mod llm;
pub mod machine;
pub mod matrix;
pub mod profile;
pub mod stats;

mod chart;
mod error;
mod load;

pub use error::Error;
pub use ledger::VerifyFailure;
pub use load::{
    Address, ArrivalProcess, Client, EventFeed, Exchange, Expectation, ExpectedBody,
    InvalidThreshold, JsonRule, Judgement, LatencySummary, LoadPlan, LoadReport, NullServer,
    OpenLoop, OpenLoopReport, Outcome, OutcomeCounts, Pace, Progress, RawReport, RequestTemplate,
    ResponseDigest, Stage, Stop, Target, ThreadReport, Threshold, Tls, Trust, Verdict,
    WebSocketEcho, calibrate, parse_target, probe, probe_until, run as run_load, run_watched,
};
