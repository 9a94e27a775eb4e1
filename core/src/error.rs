//! Everything that can fail in this crate, one enum for set-up and running,
//! one each for bodies, forms and sessions, because a caller answers each in
//! its own way.

use std::io;
use std::path::PathBuf;

use crate::limits::Reject;
use crate::validation::SchemaFault;

/// Failures of set-up: registering routes, binding, loading TLS, starting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Two routes would match the same requests.
    #[error("route conflict: {method} {path} and {method} {existing} match the same requests")]
    RouteConflict {
        /// Method that both routes answer.
        method: http::Method,
        /// Pattern that was being registered.
        path: String,
        /// Pattern that was registered before.
        existing: String,
    },
    /// A route pattern does not follow the grammar.
    #[error("route pattern {path:?}: {reason}")]
    RoutePattern {
        /// Pattern as written.
        path: String,
        /// Rule that it breaks.
        reason: &'static str,
    },
    /// A route's JSON Schema cannot be compiled.
    #[error("route {method} {path}: {fault}")]
    RouteSchema {
        /// Method that the route answers; `*` for every method.
        method: String,
        /// Pattern that was being registered.
        path: String,
        /// Which schema, where in it, and why.
        fault: SchemaFault,
    },
    /// An address could not be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// Address or socket path as the user would write it.
        address: String,
        /// What the operating system said.
        source: io::Error,
    },
    /// An inherited file descriptor is not a listening socket.
    #[error("inherited descriptor {fd} is not a listening stream socket")]
    InheritedListener {
        /// Descriptor number.
        fd: i32,
        /// What the operating system said.
        source: io::Error,
    },
    /// A Unix socket path is served by a live process.
    #[error("{path} is served by a live process")]
    UnixSocketInUse {
        /// Path of the socket.
        path: PathBuf,
    },
    /// A certificate, key or authority file could not be read.
    #[error("cannot read {path}")]
    TlsFile {
        /// File that was asked for.
        path: PathBuf,
        /// What the operating system or the parser said.
        source: io::Error,
    },
    /// A certificate and key do not form a usable TLS configuration.
    #[error("TLS configuration from {path}: {reason}")]
    TlsConfig {
        /// File that is at fault.
        path: PathBuf,
        /// What rustls or we found.
        reason: String,
    },
    /// A folder of files to serve that is not there or no folder.
    #[error("cannot serve files of {path}")]
    FilesRoot {
        /// Folder that was asked for.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// A configuration value that cannot work.
    #[error("{key}: {reason}")]
    Config {
        /// Name of the setting.
        key: &'static str,
        /// Why it cannot work.
        reason: String,
    },
    /// A lane's thread or runtime could not be started.
    #[error("cannot start lane {lane}")]
    Lane {
        /// Lane number from 0.
        lane: usize,
        /// What the operating system said.
        source: io::Error,
    },
    /// Stop signals cannot be waited for.
    #[error("cannot watch for stop signals")]
    Signals {
        /// What the operating system said.
        source: io::Error,
    },
}

/// Why a body could not be read or produced to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// More bytes than the limit of the route or server.
    #[error("body exceeds {limit} bytes")]
    TooLarge {
        /// Limit in bytes.
        limit: u64,
    },
    /// No room is left for the bodies of all requests together.
    #[error("bodies of all requests exceed {limit} bytes")]
    OutOfMemory {
        /// Limit in bytes.
        limit: u64,
    },
    /// A compressed body that grows beyond the ratio allowed.
    #[error("body decompresses to more than {limit} times its size")]
    Ratio {
        /// Most decoded bytes for each byte received.
        limit: u32,
    },
    /// A compressed body that is damaged or ends early.
    #[error("body is not valid {coding}")]
    Coding {
        /// Content coding that the request named.
        coding: &'static str,
    },
    /// The peer left or broke the framing before the end.
    #[error("body ended early")]
    Incomplete {
        /// What the transport or the framing rules said.
        source: io::Error,
    },
    /// The body is not JSON, or not the JSON that was asked for.
    #[error("body is not the expected JSON: {source}")]
    Json {
        /// Position and reason.
        source: serde_json::Error,
    },
    /// The peer sent nothing for longer than the body-stall limit, or less
    /// than the lowest rate.
    #[error("body stalled")]
    Stalled,
    /// A file could not be read as far as was announced.
    #[error("file ended early or cannot be read")]
    File {
        /// What the operating system said; `UnexpectedEof` when it shrank.
        source: io::Error,
    },
    /// The producer of a streamed body failed or went away.
    #[error("body producer failed")]
    Producer,
}

impl BodyError {
    pub(crate) fn incomplete(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Incomplete {
            source: io::Error::other(source),
        }
    }

    /// The peer left in the middle of the body.
    pub(crate) fn disconnected() -> Self {
        Self::Incomplete {
            source: io::ErrorKind::UnexpectedEof.into(),
        }
    }
}

/// Why a form could not be read; it converts into the answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormError {
    /// The body has another media type: 415.
    #[error("body is not {expected}")]
    ContentType {
        /// Media type that was expected.
        expected: &'static str,
    },
    /// The form or its boundary does not follow the grammar: 400.
    #[error("malformed form: {reason}")]
    Malformed {
        /// Rule that it breaks.
        reason: &'static str,
    },
    /// The fields are not those that were asked for: 400.
    #[error("unexpected form fields: {source}")]
    Fields {
        /// Field and reason.
        source: serde_urlencoded::de::Error,
    },
    /// A limit other than that of the whole body: 413.
    #[error("form exceeds {name} of {limit}")]
    Limit {
        /// Reason under which it is counted.
        reject: Reject,
        /// Name of the setting.
        name: &'static str,
        /// Its value.
        limit: u64,
    },
    /// The body could not be read to its end.
    #[error(transparent)]
    Body(#[from] BodyError),
}

/// Why a value could not be put into a session.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The session would not fit its cookie.
    #[error("session has {num_bytes} bytes, more than {limit}")]
    TooLarge {
        /// Bytes of JSON that it would have.
        num_bytes: usize,
        /// Most bytes that it may have.
        limit: usize,
    },
    /// The value has no JSON form.
    #[error("value has no JSON form: {source}")]
    Value {
        /// What serde found.
        source: serde_json::Error,
    },
}

/// Why a WebSocket cannot be used any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WebSocketError {
    /// The peer broke a rule or a limit; it was told so.
    #[error("websocket closed with {code}: {reason}")]
    Violation {
        /// Close code that was sent.
        code: u16,
        /// Rule that was broken.
        reason: &'static str,
    },
    /// The connection ended without a Close frame.
    #[error("websocket connection lost")]
    Lost {
        /// What the transport said.
        source: io::Error,
    },
    /// The peer did not answer a ping, or did not read, in time.
    #[error("websocket {what} timed out")]
    TimedOut {
        /// What was waited for: `pong`, `write` or `message`.
        what: &'static str,
    },
    /// A message to send is larger than what may be buffered for the peer.
    #[error("websocket message of {size} bytes is over the limit of {limit}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The largest that is sent.
        limit: usize,
    },
    /// The socket is closing or closed.
    #[error("websocket is closed")]
    Closed,
}
