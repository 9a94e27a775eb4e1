//! How one request to a model server ended: exactly one class for each attempt.

use std::collections::BTreeMap;

use serde::Serialize;

/// How one request to a model server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ServingOutcome {
    /// A complete stream with tokens and, where it is demanded, their count.
    Ok,
    /// An error event in a stream that had begun with status 200.
    StreamError,
    /// The stream ended without saying so.
    Truncated,
    /// The stream ended properly without a single token.
    Empty,
    /// A complete stream without token counts.
    UsageMissing,
    /// The answer is not an event stream of completions.
    InvalidStream,
    /// A status from 400 to 499.
    #[serde(rename = "http_4xx")]
    Http4xx,
    /// A status from 500 to 599.
    #[serde(rename = "http_5xx")]
    Http5xx,
    /// Another status than 200.
    HttpOther,
    /// No connection, or no TLS session.
    ConnectFailed,
    /// The connection ended before there was a whole head.
    ConnectionLost,
    /// The time limit of the request passed.
    Timeout,
    /// The run was stopped while the request was under way.
    Interrupted,
}

impl ServingOutcome {
    /// The class of a status that is not 200.
    pub(super) const fn of_status(status: u16) -> Self {
        match status {
            400..=499 => Self::Http4xx,
            500..=599 => Self::Http5xx,
            _ => Self::HttpOther,
        }
    }

    /// The name, as reports have it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::StreamError => "stream_error",
            Self::Truncated => "truncated",
            Self::Empty => "empty",
            Self::UsageMissing => "usage_missing",
            Self::InvalidStream => "invalid_stream",
            Self::Http4xx => "http_4xx",
            Self::Http5xx => "http_5xx",
            Self::HttpOther => "http_other",
            Self::ConnectFailed => "connect_failed",
            Self::ConnectionLost => "connection_lost",
            Self::Timeout => "timeout",
            Self::Interrupted => "interrupted",
        }
    }
}

/// Number of attempts in each class that occurred.
pub type ServingOutcomes = BTreeMap<ServingOutcome, u64>;
