//! Everything that can fail in this crate, one enum for set-up and running,
//! one for bodies, because a caller answers those two differently.

use std::io;
use std::path::PathBuf;

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
    /// The peer left or broke the framing before the end.
    #[error("body ended early")]
    Incomplete {
        /// What the transport said.
        source: hyper::Error,
    },
    /// The body is not JSON, or not the JSON that was asked for.
    #[error("body is not the expected JSON: {source}")]
    Json {
        /// Position and reason.
        source: serde_json::Error,
    },
    /// The peer sent nothing for longer than the body-stall limit.
    #[error("body stalled")]
    Stalled,
    /// The producer of a streamed body failed or went away.
    #[error("body producer failed")]
    Producer,
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
        /// What was waited for: `pong` or `write`.
        what: &'static str,
    },
    /// The socket is closing or closed.
    #[error("websocket is closed")]
    Closed,
}
