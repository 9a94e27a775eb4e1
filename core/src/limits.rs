//! Every bound that a client can run into, by name, unit and reason.
//!
//! A constant is the default of one field of [`Limits`], one configuration key
//! and one flag, or says why it is no setting; a refusal counts in
//! `justapi_rejected_total` under its [`Reject`] reason.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Open connections over all lanes; nginx's order of magnitude for one box.
pub const MAX_CONNECTIONS: usize = 10_000;
/// TLS handshake, from accept to its end.
pub const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Whole request head; the first one counts from accept.
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Kept-alive connection without a request; nginx's 75 s.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// Wait for the next byte of a request body that somebody reads.
pub const BODY_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Wait for the peer to take the next byte of a response.
pub const WRITE_STALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for what is in flight after a stop signal. It has no [`Reject`]: the
/// process ends with it, and tells of what it cut off by its exit code.
pub const GRACE: Duration = Duration::from_secs(30);
/// Method, target and version with their spaces; nginx's 8 KiB.
pub const MAX_REQUEST_LINE_BYTES: usize = 8 * 1024;
/// Request line and all header lines together.
pub const MAX_HEADER_BYTES: usize = 32 * 1024;
/// Header lines; hyper's and nginx's order of magnitude.
pub const MAX_HEADERS: usize = 100;
/// Highest request line: hyper refuses a target above 65,534 bytes.
pub const HIGHEST_REQUEST_LINE_BYTES: usize = 65_534;
/// Highest head: it is held in memory until it is complete.
pub const HIGHEST_HEADER_BYTES: usize = 256 * 1024;
/// Highest number of header lines: the `http` crate holds 24,576.
pub const HIGHEST_HEADERS: usize = 10_000;
/// Request body; axum's 2 MB, in binary units.
pub const MAX_BODY_BYTES: u64 = 2 * 1024 * 1024;
/// Request bodies that are read as a whole, urlencoded forms included, over
/// all requests of a process: a quarter of a small machine's GiB, and 128 of
/// the largest bodies at once. What comes in one read is not counted, because
/// connections bound it, nor are the parts of a multipart form.
pub const MAX_BODY_MEMORY_BYTES: u64 = 256 * 1024 * 1024;
/// Bytes a second of a request body, once its sender has been waited for as
/// long as for a stall; Kestrel's.
pub const MIN_BODY_RATE: u32 = 240;
/// Bytes a second that a client takes of what waits for it, once it has been
/// waited for as long as for a stall; Kestrel's. Without it a byte now and then
/// would hold an answer, and its handler, for ever.
pub const MIN_WRITE_RATE: u32 = 240;
/// Decoded bytes for each byte of a compressed request body; JSON seldom
/// shrinks to less than a fiftieth.
pub const MAX_DECOMPRESSION_RATIO: u32 = 100;
/// Content codings of one request body: a second one would multiply what the
/// first one can grow to, and no client of ours needs it. No setting: more
/// than one is an attack, and none is `server.decompression` left off.
pub const MAX_CONTENT_CODINGS: usize = 1;
/// Levels of arrays and objects in a JSON body. No setting: it is what
/// `serde_json` is compiled with, because it recurses on the lane's stack.
pub const MAX_JSON_DEPTH: u64 = 128;
/// Ranges of a file that one request may ask for; with more, the header is
/// ignored. A reader of an archive or a document asks for a handful; each
/// costs a part with a head of its own (CVE-2011-3192, CVE-2025-62727).
pub const MAX_RANGES: usize = 16;
/// Path of a static file below its mount, decoded: Linux' `PATH_MAX`, above
/// which nothing can be opened.
pub const MAX_STATIC_PATH_BYTES: usize = 4096;
/// Body bytes read and thrown away after an early answer, before closing.
pub const MAX_DRAIN_BYTES: u64 = 256 * 1024;
/// Chunk extensions of one request: they carry nothing that we use.
pub const MAX_CHUNK_EXTENSION_BYTES: usize = 4 * 1024;
/// Validation errors in one answer: more than anybody reads.
pub const MAX_VALIDATION_ERRORS: usize = 100;
/// Each text of a validation error; 100 errors then fit 200 KiB.
pub const MAX_VALIDATION_TEXT_BYTES: usize = 512;
/// JSON body whose errors are counted and listed; of a larger one only the
/// first is. An error takes about 400 bytes, and two bytes can cause one.
pub const MAX_LISTED_DOCUMENT_BYTES: usize = 64 * 1024;
/// Parameters of a query that a schema describes; PHP's and Django's 1000. No
/// setting: the schema names the few that mean something. It has no [`Reject`],
/// as no other bound of validation has: the request is well-formed HTTP, and its
/// 400 says what the contract of the route refuses, and names the limit.
pub const MAX_QUERY_PARAMETERS: usize = 1000;
/// Levels of a schema document: compiling it recurses; the JSON parser's 128.
pub const MAX_SCHEMA_DEPTH: usize = 128;
/// References and combinators followed to find the type of a parameter.
pub const MAX_SCHEMA_HOPS: usize = 16;
/// Subschemas looked at to find the types of one query's parameters.
pub const MAX_SCHEMA_VISITS: usize = 10_000;
/// Compiled regular expression of a schema; the `regex` crate's order of
/// magnitude.
pub const MAX_PATTERN_BYTES: usize = 8 * 1024 * 1024;
/// HTTP/2 streams open at once on a connection; Envoy's edge profile.
pub const H2_MAX_STREAMS: u32 = 100;
/// HTTP/2 header list after decompression; hyper's default.
pub const H2_MAX_HEADER_LIST_BYTES: u32 = 16 * 1024;
/// HTTP/2 flow-control window of one stream; Envoy's edge profile.
pub const H2_STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// HTTP/2 flow-control window of a connection; Envoy's edge profile.
pub const H2_CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Streams reset by the peer and not yet accepted (CVE-2023-44487); h2's 20.
pub const H2_MAX_PENDING_RESETS: usize = 20;
/// Streams that we reset for the peer's errors (CVE-2025-8671); h2's 1024.
pub const H2_MAX_LOCAL_RESETS: usize = 1024;
/// Events that wait for one client of an event stream before its producer
/// waits: a minute of one event a second.
pub const SSE_QUEUE_EVENTS: usize = 64;
/// Longest silence of an event stream; the specification suggests about 15 s
/// (WHATWG HTML §9.2.7).
pub const SSE_KEEP_ALIVE: Duration = Duration::from_secs(15);
/// Wait of an event for room in its client's queue; as for any write.
pub const SSE_LAG_TIMEOUT: Duration = Duration::from_secs(30);
/// Fields of a form, or parts of a multipart one; Starlette's and PHP's 1,000.
pub const MAX_FORM_FIELDS: usize = 1000;
/// Name or value of a form field, which is held in memory; Starlette's 1 MiB.
pub const MAX_FORM_FIELD_BYTES: usize = 1024 * 1024;
/// File in a form: it is streamed, so this guards what a handler stores of a
/// route whose body limit was raised.
pub const MAX_FORM_FILE_BYTES: u64 = 1024 * 1024 * 1024;
/// Header lines of one part of a form, as a request line; they name a file.
pub const MAX_FORM_HEADER_BYTES: usize = 8 * 1024;
/// Message from a WebSocket client, after decompression; uvicorn's and
/// Autobahn's largest.
pub const WS_MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Frame from a WebSocket client, as sent: a message may come in one.
pub const WS_MAX_FRAME_BYTES: usize = WS_MAX_MESSAGE_BYTES;
/// Message on its way to a WebSocket client: one at a time is all that is
/// buffered for it, so that an echo of the largest fits.
pub const WS_BUFFER_BYTES: usize = WS_MAX_MESSAGE_BYTES;
/// Silence after which a WebSocket client is pinged; below the 60 s after which
/// proxies drop a quiet connection.
pub const WS_PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time that a pinged WebSocket client has to send anything; uvicorn's.
pub const WS_PONG_TIMEOUT: Duration = Duration::from_secs(20);

/// Bounds of one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// See [`MAX_CONNECTIONS`].
    pub max_connections: usize,
    /// See [`TLS_HANDSHAKE_TIMEOUT`].
    pub tls_handshake_timeout: Duration,
    /// See [`HEADER_TIMEOUT`].
    pub header_timeout: Duration,
    /// See [`IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
    /// See [`BODY_STALL_TIMEOUT`].
    pub body_stall_timeout: Duration,
    /// See [`WRITE_STALL_TIMEOUT`].
    pub write_stall_timeout: Duration,
    /// Whole handler, up to its response head; none by default.
    pub request_timeout: Option<Duration>,
    /// See [`GRACE`].
    pub grace: Duration,
    /// See [`MAX_REQUEST_LINE_BYTES`].
    pub max_request_line_bytes: usize,
    /// See [`MAX_HEADER_BYTES`].
    pub max_header_bytes: usize,
    /// See [`MAX_HEADERS`].
    pub max_headers: usize,
    /// See [`MAX_BODY_BYTES`].
    pub max_body_bytes: u64,
    /// See [`MAX_BODY_MEMORY_BYTES`].
    pub max_body_memory_bytes: u64,
    /// See [`MIN_BODY_RATE`]; 0 for no minimum.
    pub min_body_rate: u32,
    /// See [`MIN_WRITE_RATE`]; 0 for no minimum.
    pub min_write_rate: u32,
    /// See [`MAX_DECOMPRESSION_RATIO`].
    pub max_decompression_ratio: u32,
    /// See [`MAX_RANGES`].
    pub max_ranges: usize,
    /// See [`MAX_STATIC_PATH_BYTES`].
    pub max_static_path_bytes: usize,
    /// See [`H2_MAX_STREAMS`].
    pub h2_max_streams: u32,
    /// See [`H2_MAX_HEADER_LIST_BYTES`].
    pub h2_max_header_list_bytes: u32,
    /// See [`H2_STREAM_WINDOW_BYTES`].
    pub h2_stream_window_bytes: u32,
    /// See [`H2_CONNECTION_WINDOW_BYTES`].
    pub h2_connection_window_bytes: u32,
    /// See [`H2_MAX_PENDING_RESETS`].
    pub h2_max_pending_resets: usize,
    /// See [`H2_MAX_LOCAL_RESETS`].
    pub h2_max_local_resets: usize,
    /// See [`SSE_QUEUE_EVENTS`].
    pub sse_queue_events: usize,
    /// See [`SSE_KEEP_ALIVE`]; `None` sends no comments.
    pub sse_keep_alive: Option<Duration>,
    /// See [`SSE_LAG_TIMEOUT`].
    pub sse_lag_timeout: Duration,
    /// See [`MAX_FORM_FIELDS`].
    pub max_form_fields: usize,
    /// See [`MAX_FORM_FIELD_BYTES`].
    pub max_form_field_bytes: usize,
    /// See [`MAX_FORM_FILE_BYTES`].
    pub max_form_file_bytes: u64,
    /// See [`MAX_FORM_HEADER_BYTES`].
    pub max_form_header_bytes: usize,
    /// See [`WS_MAX_MESSAGE_BYTES`].
    pub ws_max_message_bytes: usize,
    /// See [`WS_MAX_FRAME_BYTES`].
    pub ws_max_frame_bytes: usize,
    /// See [`WS_BUFFER_BYTES`].
    pub ws_buffer_bytes: usize,
    /// See [`WS_PING_INTERVAL`]; with `None` a silent client is never found out.
    pub ws_ping_interval: Option<Duration>,
    /// See [`WS_PONG_TIMEOUT`].
    pub ws_pong_timeout: Duration,
    /// WebSocket without a message in either direction; none by default.
    pub ws_idle_timeout: Option<Duration>,
}

impl Limits {
    /// The defaults above.
    pub const DEFAULT: Self = Self {
        max_connections: MAX_CONNECTIONS,
        tls_handshake_timeout: TLS_HANDSHAKE_TIMEOUT,
        header_timeout: HEADER_TIMEOUT,
        idle_timeout: IDLE_TIMEOUT,
        body_stall_timeout: BODY_STALL_TIMEOUT,
        write_stall_timeout: WRITE_STALL_TIMEOUT,
        request_timeout: None,
        grace: GRACE,
        max_request_line_bytes: MAX_REQUEST_LINE_BYTES,
        max_header_bytes: MAX_HEADER_BYTES,
        max_headers: MAX_HEADERS,
        max_body_bytes: MAX_BODY_BYTES,
        max_body_memory_bytes: MAX_BODY_MEMORY_BYTES,
        min_body_rate: MIN_BODY_RATE,
        min_write_rate: MIN_WRITE_RATE,
        max_decompression_ratio: MAX_DECOMPRESSION_RATIO,
        max_ranges: MAX_RANGES,
        max_static_path_bytes: MAX_STATIC_PATH_BYTES,
        h2_max_streams: H2_MAX_STREAMS,
        h2_max_header_list_bytes: H2_MAX_HEADER_LIST_BYTES,
        h2_stream_window_bytes: H2_STREAM_WINDOW_BYTES,
        h2_connection_window_bytes: H2_CONNECTION_WINDOW_BYTES,
        h2_max_pending_resets: H2_MAX_PENDING_RESETS,
        h2_max_local_resets: H2_MAX_LOCAL_RESETS,
        sse_queue_events: SSE_QUEUE_EVENTS,
        sse_keep_alive: Some(SSE_KEEP_ALIVE),
        sse_lag_timeout: SSE_LAG_TIMEOUT,
        max_form_fields: MAX_FORM_FIELDS,
        max_form_field_bytes: MAX_FORM_FIELD_BYTES,
        max_form_file_bytes: MAX_FORM_FILE_BYTES,
        max_form_header_bytes: MAX_FORM_HEADER_BYTES,
        ws_max_message_bytes: WS_MAX_MESSAGE_BYTES,
        ws_max_frame_bytes: WS_MAX_FRAME_BYTES,
        ws_buffer_bytes: WS_BUFFER_BYTES,
        ws_ping_interval: Some(WS_PING_INTERVAL),
        ws_pong_timeout: WS_PONG_TIMEOUT,
        ws_idle_timeout: None,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Limits {
    /// Checks that the parsers behind the gate can carry what the limits allow.
    ///
    /// # Errors
    /// [`Error::Config`] names the first limit that is too high.
    pub fn check(&self) -> Result<(), Error> {
        let bounds = [
            (
                "server.limits.request_line",
                self.max_request_line_bytes,
                HIGHEST_REQUEST_LINE_BYTES,
            ),
            (
                "server.limits.header",
                self.max_header_bytes,
                HIGHEST_HEADER_BYTES,
            ),
            ("server.limits.headers", self.max_headers, HIGHEST_HEADERS),
            (
                "server.limits.static_path",
                self.max_static_path_bytes,
                MAX_STATIC_PATH_BYTES,
            ),
        ];
        for (key, value, highest) in bounds {
            if value > highest {
                return Err(Error::Config {
                    key,
                    reason: format!("{value} is more than the highest possible {highest}"),
                });
            }
        }
        Ok(())
    }
}

/// Why a request or connection was refused: the fixed label set of
/// `justapi_rejected_total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reject {
    /// Framing, target, Host or header rule broken.
    BadRequest,
    /// [`MAX_REQUEST_LINE_BYTES`].
    RequestLine,
    /// [`MAX_HEADER_BYTES`].
    HeaderBytes,
    /// [`MAX_HEADERS`].
    HeaderCount,
    /// [`MAX_BODY_BYTES`].
    BodyBytes,
    /// [`HEADER_TIMEOUT`].
    HeaderTimeout,
    /// [`IDLE_TIMEOUT`].
    IdleTimeout,
    /// [`BODY_STALL_TIMEOUT`].
    BodyStall,
    /// [`MIN_BODY_RATE`].
    BodyRate,
    /// [`MAX_BODY_MEMORY_BYTES`].
    BodyMemory,
    /// [`WRITE_STALL_TIMEOUT`].
    WriteStall,
    /// [`MIN_WRITE_RATE`].
    WriteRate,
    /// [`TLS_HANDSHAKE_TIMEOUT`].
    TlsHandshakeTimeout,
    /// Handshake that failed before its time was up.
    TlsHandshake,
    /// `request_timeout`.
    RequestTimeout,
    /// [`MAX_CONNECTIONS`].
    MaxConnections,
    /// HTTP/2 connection ended for a flood or a protocol error.
    H2Protocol,
    /// [`H2_MAX_STREAMS`]: a stream beyond it, which was refused.
    H2Streams,
    /// [`H2_MAX_HEADER_LIST_BYTES`].
    H2HeaderList,
    /// [`H2_STREAM_WINDOW_BYTES`] or [`H2_CONNECTION_WINDOW_BYTES`] overrun.
    H2Window,
    /// [`H2_MAX_PENDING_RESETS`].
    H2PendingResets,
    /// [`H2_MAX_LOCAL_RESETS`].
    H2LocalResets,
    /// Expectation other than `100-continue`.
    Expectation,
    /// [`SSE_LAG_TIMEOUT`], or a client that fell out of a broadcast.
    SseLag,
    /// [`MAX_FORM_FIELDS`].
    FormFields,
    /// [`MAX_FORM_FIELD_BYTES`].
    FormFieldBytes,
    /// [`MAX_FORM_FILE_BYTES`].
    FormFileBytes,
    /// [`MAX_FORM_HEADER_BYTES`].
    FormHeaderBytes,
    /// Host that the server does not answer for.
    Host,
    /// Client that sends more than its rate.
    RateLimit,
    /// [`WS_MAX_MESSAGE_BYTES`].
    WsMessage,
    /// [`WS_MAX_FRAME_BYTES`].
    WsFrame,
    /// [`WS_BUFFER_BYTES`].
    WsBuffer,
    /// [`WS_PONG_TIMEOUT`].
    WsPong,
    /// `ws_idle_timeout`.
    WsIdle,
    /// WebSocket closed because its client broke a rule of the protocol.
    WsProtocol,
    /// [`MAX_DECOMPRESSION_RATIO`].
    DecompressionRatio,
    /// [`MAX_CONTENT_CODINGS`].
    ContentCodings,
    /// [`MAX_JSON_DEPTH`].
    JsonDepth,
    /// [`MAX_RANGES`]: the ranges were ignored.
    Ranges,
    /// [`MAX_STATIC_PATH_BYTES`].
    StaticPath,
    /// `python.thread_queue`: as many blocking handlers wait as may.
    ThreadQueue,
}

impl Reject {
    /// Every reason, in label order.
    pub const ALL: [Self; 42] = [
        Self::BadRequest,
        Self::RequestLine,
        Self::HeaderBytes,
        Self::HeaderCount,
        Self::BodyBytes,
        Self::HeaderTimeout,
        Self::IdleTimeout,
        Self::BodyStall,
        Self::BodyRate,
        Self::BodyMemory,
        Self::WriteStall,
        Self::WriteRate,
        Self::TlsHandshakeTimeout,
        Self::TlsHandshake,
        Self::RequestTimeout,
        Self::MaxConnections,
        Self::H2Protocol,
        Self::H2Streams,
        Self::H2HeaderList,
        Self::H2Window,
        Self::H2PendingResets,
        Self::H2LocalResets,
        Self::Expectation,
        Self::SseLag,
        Self::FormFields,
        Self::FormFieldBytes,
        Self::FormFileBytes,
        Self::FormHeaderBytes,
        Self::Host,
        Self::RateLimit,
        Self::WsMessage,
        Self::WsFrame,
        Self::WsBuffer,
        Self::WsPong,
        Self::WsIdle,
        Self::WsProtocol,
        Self::DecompressionRatio,
        Self::ContentCodings,
        Self::JsonDepth,
        Self::Ranges,
        Self::StaticPath,
        Self::ThreadQueue,
    ];

    /// Value of the `reason` label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::RequestLine => "request_line",
            Self::HeaderBytes => "header_bytes",
            Self::HeaderCount => "header_count",
            Self::BodyBytes => "body",
            Self::HeaderTimeout => "header_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::BodyStall => "body_stall",
            Self::BodyRate => "body_rate",
            Self::BodyMemory => "body_memory",
            Self::WriteStall => "write_stall",
            Self::WriteRate => "write_rate",
            Self::TlsHandshakeTimeout => "tls_handshake_timeout",
            Self::TlsHandshake => "tls_handshake",
            Self::RequestTimeout => "request_timeout",
            Self::MaxConnections => "max_connections",
            Self::H2Protocol => "h2_protocol",
            Self::H2Streams => "h2_max_streams",
            Self::H2HeaderList => "h2_header_list",
            Self::H2Window => "h2_window",
            Self::H2PendingResets => "h2_max_pending_resets",
            Self::H2LocalResets => "h2_max_local_resets",
            Self::Expectation => "expectation",
            Self::SseLag => "sse_lag",
            Self::FormFields => "form_fields",
            Self::FormFieldBytes => "form_field",
            Self::FormFileBytes => "form_file",
            Self::FormHeaderBytes => "form_header",
            Self::Host => "host",
            Self::RateLimit => "rate_limit",
            Self::WsMessage => "ws_message",
            Self::WsFrame => "ws_frame",
            Self::WsBuffer => "ws_buffer",
            Self::WsPong => "ws_pong",
            Self::WsIdle => "ws_idle",
            Self::WsProtocol => "ws_protocol",
            Self::DecompressionRatio => "decompression_ratio",
            Self::ContentCodings => "content_codings",
            Self::JsonDepth => "json_depth",
            Self::Ranges => "ranges",
            Self::StaticPath => "static_path",
            Self::ThreadQueue => "thread_queue",
        }
    }
}
