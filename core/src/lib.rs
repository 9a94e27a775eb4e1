//! HTTP server library: one thread does everything for a connection.
//!
//! A [`Server`] runs lanes; a lane accepts, reads, checks, routes, calls the
//! handler and writes. See `ARCHITECTURE.md` for the life of a request.

mod body;
mod error;
mod gate;
mod handler;
mod header_map_pool;
mod health;
pub mod limits;
mod metrics;
mod middleware;
mod problem;
mod request;
mod response;
mod router;
mod server;
mod upgrade;
mod websocket;

pub use crate::body::{Body, BodySender};
pub use crate::error::{BodyError, Error, WebSocketError};
pub use crate::handler::{FutureSlot, Handler, INLINE_FUTURE_BYTES, Inline, inline};
pub use crate::health::{HealthState, Probe};
pub use crate::limits::{Limits, Reject};
pub use crate::metrics::{Metrics, RouteLabel};
pub use crate::middleware::{
    AccessLog, AccessLogFormat, Cors, CorsConfig, Middleware, MiddlewareFuture, Next, RequestId,
    SecurityHeaders,
};
pub use crate::problem::Problem;
pub use crate::request::{PathParams, Peer, Request};
pub use crate::response::{IntoResponse, Json, Response};
pub use crate::router::{Lookup, Route, RouteId, RouteInfo, RouteOptions, Router, TrailingSlash};
pub use crate::server::{
    Bound, BoundAddress, DrainReport, Listen, MetricsMount, Running, Server, ServerEvent,
    StopSignals, TlsFiles, num_inherited,
};
pub use crate::upgrade::Upgraded;
pub use crate::websocket::{
    CloseCode, CloseFrame, Deflate, Message, WebSocket, WebSocketHandler, WebSocketLimits,
    WebSocketUpgrade, websocket,
};

pub use bytes::Bytes;
pub use http::header::{self, HeaderMap, HeaderName, HeaderValue};
pub use http::{Method, StatusCode, Uri, Version};
