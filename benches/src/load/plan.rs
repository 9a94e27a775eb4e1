//! What to send, where, how much of it, and what answer to expect.
//!
//! A plan is data: nothing here opens a socket. A plan that passes
//! [`LoadPlan::validate`] can run without a division by zero or an endless wait.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use super::arrivals::OpenLoop;
use super::events::{self, EventFeed};
use super::outcome::Outcome;
use super::target::Target;
use super::template::RequestTemplate;
use super::websocket::{self, WebSocketEcho};
use crate::Error;

/// Limit for one request unless the plan says otherwise.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Values that may be made up for one slow answer: more would be felt by what is measured.
const MAX_CORRECTIONS: u32 = 1_000_000;

/// Limit for a connection with its TLS handshake unless the plan says otherwise.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// One run.
#[derive(Debug, Clone)]
pub struct LoadPlan {
    /// Where the requests go.
    pub target: Target,
    /// Requests, sent in turn by each thread.
    pub requests: Vec<RequestTemplate>,
    /// Connections, all threads together.
    pub connections: usize,
    /// Threads; no more are started than there are connections.
    pub threads: usize,
    /// When to stop.
    pub stop: Stop,
    /// Time before the measured part; attempts begun in it are not counted.
    pub warm_up: Duration,
    /// Limit from the first byte sent to the last byte received.
    pub request_timeout: Duration,
    /// Limit for the connection and its TLS handshake.
    pub connect_timeout: Duration,
    /// Whether a connection is used for more than one request.
    pub keep_alive: bool,
    /// What a correct answer is.
    pub expect: Expectation,
    /// What goes over the connections.
    pub exchange: Exchange,
    /// When requests are sent.
    pub pace: Pace,
    /// What sends them.
    pub client: Client,
    /// Distance at which requests would come that did not wait for one another, for what a closed
    /// loop leaves out (coordinated omission); for each connection.
    pub expected_interval: Option<Duration>,
    /// File that gets a line of JSON for each measured attempt.
    pub raw: Option<PathBuf>,
    /// Whether percentiles of too few samples are reported as well.
    pub all_percentiles: bool,
    /// Processors to pin the threads to, in turn.
    pub cpus: Option<Vec<usize>>,
}

impl LoadPlan {
    /// A closed loop of one connection on one thread with the limits that suit most servers.
    pub fn new(target: Target, requests: Vec<RequestTemplate>) -> Self {
        Self {
            target,
            requests,
            connections: 1,
            threads: 1,
            stop: Stop::Requests(1),
            warm_up: Duration::ZERO,
            request_timeout: REQUEST_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            keep_alive: true,
            expect: Expectation::default(),
            exchange: Exchange::Requests,
            pace: Pace::Closed,
            client: Client::Raw,
            expected_interval: None,
            raw: None,
            all_percentiles: false,
            cpus: None,
        }
    }

    pub(super) const fn is_open_loop(&self) -> bool {
        matches!(self.pace, Pace::Open(_))
    }

    /// Seed of everything random in the run.
    pub(super) const fn seed(&self) -> u64 {
        match &self.pace {
            Pace::Closed => 0,
            Pace::Open(schedule) => schedule.seed,
        }
    }

    /// Why the latencies cannot be corrected as asked for.
    fn correction_problem(&self) -> Option<&'static str> {
        let interval = self.expected_interval?;
        if self.is_open_loop() || self.exchange != Exchange::Requests {
            Some("only a closed loop of requests needs it")
        } else if self.request_timeout > interval.saturating_mul(MAX_CORRECTIONS) {
            Some("one answer could stand for more than a million others")
        } else {
            None
        }
    }

    /// Checks that the plan can be run.
    ///
    /// # Errors
    ///
    /// [`Error::LoadPlan`] names the first field that makes it impossible.
    pub fn validate(&self) -> Result<(), Error> {
        let invalid = |field, problem| Err(Error::LoadPlan { field, problem });
        if self.requests.is_empty() {
            return invalid("requests", "empty");
        }
        if self.connections == 0 {
            return invalid("connections", "zero");
        }
        if self.threads == 0 {
            return invalid("threads", "zero");
        }
        if self.request_timeout.is_zero() {
            return invalid("request_timeout", "zero");
        }
        if self.connect_timeout.is_zero() {
            return invalid("connect_timeout", "zero");
        }
        let bytes = match &self.exchange {
            Exchange::Requests => None,
            Exchange::Echo(echo) => Some((echo.bytes, websocket::NUMBER_BYTES)),
            // A second thread's events would come on the streams of the first.
            Exchange::Feed(_) if self.threads > 1 => {
                return invalid("threads", "an event feed needs one alone");
            }
            Exchange::Feed(feed) => Some((feed.bytes(), events::NUMBER_BYTES)),
        };
        match bytes {
            Some((bytes, least)) if bytes < least => {
                return invalid("exchange", "messages too short");
            }
            Some(_) if !self.keep_alive => return invalid("keep_alive", "a stream needs it"),
            _ => {}
        }
        if self.client != Client::Raw && self.exchange != Exchange::Requests {
            return invalid("client", "streams need the raw one");
        }
        if let Client::Http2 { streams } = self.client {
            if streams == 0 {
                return invalid("streams", "zero");
            }
            if !self.keep_alive {
                return invalid("keep_alive", "HTTP/2 needs it");
            }
        }
        if let Pace::Open(schedule) = &self.pace {
            if let Some(problem) = schedule.problem() {
                return invalid("rate", problem);
            }
            // Its events are posted when the one before has come everywhere.
            if matches!(self.exchange, Exchange::Feed(_)) {
                return invalid("rate", "an event feed has none");
            }
        }
        if let Some(problem) = self.correction_problem() {
            return invalid("expected_interval", problem);
        }
        if self.cpus.as_ref().is_some_and(Vec::is_empty) {
            return invalid("cpus", "empty");
        }
        match self.stop {
            Stop::Duration(duration) if duration.is_zero() => invalid("stop", "zero"),
            Stop::Requests(0) => invalid("stop", "zero"),
            Stop::Duration(_) | Stop::Requests(_) => Ok(()),
        }
    }
}

/// What goes over a connection once it is open.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Exchange {
    /// One request and its response after the other.
    #[default]
    Requests,
    /// Messages on the WebSocket that the request opens; each must come back.
    ///
    /// An attempt is one message, its latency the time until the whole echo is
    /// there. A WebSocket that ends is an error, also between two messages.
    Echo(WebSocketEcho),
    /// Events on the streams that the request opens, one on each connection.
    ///
    /// An attempt is one event on one stream, its latency the time from the
    /// post. The next event is posted when the last stream has the one before.
    /// The first error ends the run: with a listener less it is another load.
    Feed(EventFeed),
}

/// What sends the requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Client {
    /// This crate's own HTTP/1.1.
    #[default]
    Raw,
    /// HTTP/2 by hyper, so many requests at once on each connection.
    Http2 {
        /// Streams that are open at once.
        streams: usize,
    },
    /// reqwest: cookies, redirects, decoded bodies, proxies, HTTP/2 where TLS offers it.
    Reqwest,
}

impl Client {
    /// Requests that may be on their way on one connection.
    pub(super) const fn streams(self) -> usize {
        match self {
            Self::Raw | Self::Reqwest => 1,
            Self::Http2 { streams } => streams,
        }
    }
}

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Raw => f.write_str("raw HTTP/1.1"),
            Self::Http2 { streams } => write!(f, "hyper HTTP/2 x{streams}"),
            Self::Reqwest => f.write_str("reqwest"),
        }
    }
}

/// When requests are sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Pace {
    /// Closed loop: a connection sends when it has the answer to what it sent.
    #[default]
    Closed,
    /// Open loop: by a schedule, whatever is answered and when.
    ///
    /// A request for which no connection is free waits, and its time is also measured from the
    /// instant at which it should have been sent.
    Open(OpenLoop),
}

/// When a run stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// This long after the warm-up; what is in flight then is aborted.
    Duration(Duration),
    /// After this many measured attempts; what is in flight is awaited.
    Requests(u64),
}

/// The answer that counts as correct.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expectation {
    /// The only accepted status; without it, 2xx and 3xx are accepted.
    pub status: Option<u16>,
    /// The only accepted body of an accepted status.
    pub body: Option<ExpectedBody>,
}

impl Expectation {
    /// Class of a whole response as far as its status decides it.
    pub(super) const fn judge_status(&self, status: u16) -> Outcome {
        match self.status {
            Some(expected) if expected != status => Outcome::StatusMismatch,
            None if status >= 500 => Outcome::Http5xx,
            None if status >= 400 => Outcome::Http4xx,
            Some(_) | None => Outcome::Ok,
        }
    }
}

/// The body that counts as correct; not applied to answers of HEAD requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedBody {
    /// These bytes: a comparison in memory, nearly free.
    Bytes(Vec<u8>),
    /// These bytes, compared in a sample of the answers; of the others their length.
    ///
    /// For bodies so large that reading them would be what is measured: over plain TCP the kernel
    /// drops what is not compared.
    Sampled {
        /// The body.
        bytes: Vec<u8>,
        /// Each connection compares its first answer, and this many later the next.
        every: NonZeroU32,
    },
    /// Bytes with this SHA-256: hashes each body, about 1 ns per byte.
    Sha256([u8; 32]),
    /// JSON with these values in it: keeps and parses each body.
    Json(Vec<JsonRule>),
}

/// A value that a JSON body must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonRule {
    /// Where, as a JSON pointer (RFC 6901).
    pub pointer: String,
    /// What is there.
    pub value: serde_json::Value,
}
