//! The HTTP server as its users meet it: the built binary over real sockets.
//!
//! One file per subject; a case is one line of a table or one short test.

#[path = "../support/mod.rs"]
mod support;

mod clock;
mod compression;
mod decompression;
mod drain;
mod drain_states;
mod fault_proxy;
mod faults;
mod file_paths;
mod files;
mod forms;
mod framing;
mod guards;
mod header_bytes;
mod host_target;
mod http2;
mod http2_conformance;
mod http2_floods;
mod http2_flow;
mod json_documents;
mod keepalive;
mod limit_table;
mod limits;
mod memory;
mod metrics;
mod openapi;
mod overload;
mod proxy;
mod proxy_upgrade;
mod rolling;
mod sessions;
mod slow_clients;
mod soak;
mod sockets;
mod sse;
mod storms;
mod tls;
mod tls_stream;
mod traces;
mod validation;
mod websocket;
mod websocket_crowd;
mod websocket_limits;
mod websocket_tls;
