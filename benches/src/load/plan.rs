//! What to send, where, how much of it, and what answer to expect.
//!
//! A plan is data: nothing here opens a socket. A plan that passes
//! [`LoadPlan::validate`] can run without a division by zero or an endless wait.

use std::time::Duration;

use super::events::{self, EventFeed};
use super::target::Target;
use super::websocket::{self, WebSocketEcho};
use crate::Error;

/// One closed-loop run: what is sent next waits for the answer to what was sent.
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
    /// Processors to pin the threads to, in turn.
    pub cpus: Option<Vec<usize>>,
}

impl LoadPlan {
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

/// The body that counts as correct; not applied to answers of HEAD requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExpectedBody {
    /// These bytes: a comparison in memory, nearly free.
    Bytes(Vec<u8>),
    /// Bytes with this SHA-256: hashes each body, about 1 ns per byte.
    Sha256([u8; 32]),
}

/// One request, serialised once and sent as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestTemplate {
    /// Method: decides whether the answer has a body and whether to send again.
    pub method: String,
    /// The whole request, head and body.
    pub bytes: Vec<u8>,
}

impl RequestTemplate {
    /// Serialises an HTTP/1.1 request for `target`.
    ///
    /// `path` is the request target in origin form, with its query. `Host`,
    /// `Content-Length` and, without `keep_alive`, `Connection: close` are added
    /// where `headers` does not have them.
    ///
    /// # Errors
    ///
    /// [`Error::LoadPlan`] if a part could change the framing of the request.
    pub fn serialise(
        target: &Target,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &[u8],
        keep_alive: bool,
    ) -> Result<Self, Error> {
        let invalid = |field, problem| Err(Error::LoadPlan { field, problem });
        if method.is_empty() || !method.bytes().all(is_token) {
            return invalid("method", "not a token");
        }
        if !path.starts_with(['/', '*']) || !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return invalid("path", "not in origin form");
        }
        let mut bytes = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
        let mut field = |name: &str, value: &str| {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        };
        let has = |name: &str| {
            headers
                .iter()
                .any(|(have, _)| have.eq_ignore_ascii_case(name))
        };
        if !has("host") {
            field("host", &target.host);
        }
        for (name, value) in headers {
            if name.is_empty() || !name.bytes().all(is_token) {
                return invalid("header name", "not a token");
            }
            if value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
                return invalid("header value", "contains a line break");
            }
            field(name, value);
        }
        let wants_length = !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH");
        if wants_length && !has("content-length") && !has("transfer-encoding") {
            field("content-length", &body.len().to_string());
        }
        if !keep_alive && !has("connection") {
            field("connection", "close");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        Ok(Self {
            method: method.to_owned(),
            bytes,
        })
    }

    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Whether sending twice has the effect of sending once (RFC 9110 §9.2.2).
    pub(super) fn is_idempotent(&self) -> bool {
        matches!(
            self.method.as_str(),
            "GET" | "HEAD" | "OPTIONS" | "TRACE" | "PUT" | "DELETE"
        )
    }
}

/// Token characters of RFC 9110 §5.6.2.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::target::Address;

    fn serialise(
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
        keep_alive: bool,
    ) -> Result<String, Error> {
        let target = Target {
            address: Address::Tcp(([127, 0, 0, 1], 80).into()),
            host: "example:80".to_owned(),
            tls: None,
        };
        let headers: Vec<_> = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        RequestTemplate::serialise(&target, method, path, &headers, body.as_bytes(), keep_alive)
            .map(|template| String::from_utf8(template.bytes).unwrap())
    }

    #[test]
    fn missing_fields_are_added() {
        assert_eq!(
            serialise("GET", "/a?b", &[], "", true).unwrap(),
            "GET /a?b HTTP/1.1\r\nhost: example:80\r\n\r\n"
        );
        assert_eq!(
            serialise("POST", "/", &[("X", "1")], "hi", false).unwrap(),
            "POST / HTTP/1.1\r\nhost: example:80\r\nX: 1\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi"
        );
    }

    #[test]
    fn given_fields_are_kept() {
        assert_eq!(
            serialise("GET", "/", &[("Host", "h"), ("Connection", "x")], "", false).unwrap(),
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: x\r\n\r\n"
        );
    }

    #[test]
    fn parts_that_change_the_framing_are_refused() {
        assert!(serialise("GE T", "/", &[], "", true).is_err());
        assert!(serialise("GET", "/a b", &[], "", true).is_err());
        assert!(serialise("GET", "http://x/", &[], "", true).is_err());
        assert!(serialise("GET", "/", &[("a:", "b")], "", true).is_err());
        assert!(serialise("GET", "/", &[("a", "b\r\nc: d")], "", true).is_err());
    }
}
