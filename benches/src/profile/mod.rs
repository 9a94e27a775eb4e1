//! Where the time of a route goes: one load seen by the client, by the server's own counters and
//! by the kernel at once.
//!
//! ```text
//! measure ──► load engine            ──► client side ─┐
//!    ├─ scrape ──► exposition ──► counters ──► server ─┼─► report ──► text, JSON, page
//!    └─ process usage (/proc)        ──► process cost ─┘
//! ```
//!
//! It guarantees that the three sides are of the same seconds, and that a side that could not be
//! seen is absent with a reason, never zero.

mod counters;
mod exposition;
mod measure;
mod page;
mod report;
mod scrape;
#[cfg(test)]
mod tests;
mod text;

pub use counters::{HandlerTime, RouteCounters, ServerSide, TimeBucket};
pub use exposition::{Exposition, NotPrometheus, Sample};
pub use measure::{Measured, Subject, measure};
pub use page::page;
pub use report::{Application, ProcessCost, ProfileReport, RequestSummary, RouteProfile};
pub use scrape::{ScrapeFailure, Scraper};
