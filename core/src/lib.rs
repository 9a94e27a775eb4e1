//! HTTP server library: one thread does everything for a connection.
//!
//! A [`Server`] runs lanes; a lane accepts, reads, checks, routes, calls the
//! handler and writes. See `ARCHITECTURE.md` for the life of a request.

mod body;
mod cache;
mod collected;
mod compression;
mod config;
mod cookie;
mod decompression;
mod error;
mod feed;
mod files;
mod forms;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod gate;
mod handler;
mod head;
mod header_map_pool;
mod health;
pub mod limits;
mod metrics;
mod middleware;
mod openapi;
mod pace;
mod problem;
mod proxy;
mod request;
mod response;
mod router;
mod server;
mod session;
mod sse;
mod upgrade;
mod validation;
mod vary;
mod websocket;

pub use crate::body::{Body, BodySender};
pub use crate::cache::{
    CacheCounts, CacheLimits, CachePolicy, Cached, MAX_CACHE_BYTES, MAX_CACHE_ENTRIES,
    MAX_CACHE_ENTRY_BYTES, ResponseCache,
};
pub use crate::compression::{
    BROTLI_LEVEL, Compression, GZIP_LEVEL, MAX_ONE_GO_BYTES, MIN_COMPRESSED_BYTES, ZSTD_LEVEL,
};
pub use crate::config::{
    CompressionLevels, FilesConfig, ProxyConfig, ServerConfig, SessionConfig, TraceConfig,
};
pub use crate::error::{BodyError, Error, FormError, SessionError, WebSocketError};
pub use crate::files::{FileCache, Files, Symlinks};
pub use crate::forms::{Form, FormLimits, Multipart, Part};
pub use crate::handler::{FutureSlot, Handler, INLINE_FUTURE_BYTES, Inline, inline};
pub use crate::health::{HealthState, Probe};
pub use crate::limits::{Limits, Reject};
pub use crate::metrics::{Metrics, RouteLabel};
pub use crate::middleware::{
    AccessLog, AccessLogFormat, Cors, CorsConfig, Forwarded, ForwardedHeader, HostPattern,
    HttpsRedirect, Middleware, MiddlewareFuture, Next, OtlpEndpoint, Rate, RateLimit,
    RateLimitConfig, RateLimitKey, RequestId, SecurityHeaders, Trace, TraceContext, TrustedHosts,
    TrustedPeer,
};
pub use crate::openapi::{DOCS_PATH, OPENAPI_PATH, OpenApi};
pub use crate::problem::Problem;
pub use crate::proxy::{
    Forwarder, MAX_PROXY_CONNECTIONS, PROXY_BODY_TIMEOUT, PROXY_CONNECT_TIMEOUT,
    PROXY_HEAD_TIMEOUT, PROXY_TUNNEL_TIMEOUT, Proxy,
};
pub use crate::request::{PathParams, Peer, Request};
pub use crate::response::{IntoResponse, Json, Response, SharedFields};
pub use crate::router::{
    Begun, Finish, Layer, Lookup, Route, RouteId, RouteInfo, RouteOptions, Router, TrailingSlash,
};
pub use crate::server::{
    Bound, BoundAddress, Drain, DrainReport, EmbeddedLane, LaneSeat, Listen, MemoryClient,
    MetricsMount, ParkHooks, Running, Server, ServerEvent, SharedListener, StopSignals, TlsFiles,
    num_inherited,
};
pub use crate::session::{Session, Sessions};
pub use crate::sse::{
    EncodedEvent, Event, EventBroadcast, EventDecoder, EventError, EventSender, EventTooLarge, Lag,
    MAX_RECEIVED_EVENT_BYTES, ReceivedEvent, SendEventError, Sse,
};

pub use crate::upgrade::Upgraded;
pub use crate::validation::{
    Accepted, Contract, Document, FromJson, Schema, SchemaFault, Validated, validated,
};
pub use crate::websocket::{
    CloseCode, CloseFrame, Deflate, Message, WebSocket, WebSocketHandler, WebSocketLimits,
    WebSocketUpgrade, websocket,
};

pub use bytes::Bytes;
pub use http::header::{self, HeaderMap, HeaderName, HeaderValue};
pub use http::{Method, StatusCode, Uri, Version};
