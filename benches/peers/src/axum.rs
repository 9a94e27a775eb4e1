//! The axum peer: the same routes as a careful axum user writes them.
//!
//! One current-thread runtime, `axum::serve` with `TCP_NODELAY`, typed JSON out and
//! `serde_json::Value` through; events go through tokio's broadcast channel and get axum's
//! keep-alive, the echo of messages has axum's defaults. Takes `--addr HOST:PORT` or `--version`;
//! prints nothing else.

mod version;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use axum::{Json, Router};
use jsonschema::{PatternOptions, Validator};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::broadcast;
use tokio_stream::Stream;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError;

use self::version::print_version;

/// Events that a slow listener may be behind before its stream breaks off.
const FEED_EVENTS: usize = 256;

#[derive(Serialize)]
struct Hello {
    message: &'static str,
}

async fn hello() -> Json<Hello> {
    Json(Hello { message: "hello" })
}

async fn echo(Json(value): Json<Value>) -> Json<Value> {
    Json(value)
}

#[derive(Serialize)]
struct Valid {
    valid: bool,
}

async fn validate(State(user): State<Arc<Validator>>, Json(value): Json<Value>) -> Response {
    if user.is_valid(&value) {
        return Json(Valid { valid: true }).into_response();
    }
    let errors: Vec<String> = user
        .iter_errors(&value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    (StatusCode::UNPROCESSABLE_ENTITY, Json(errors)).into_response()
}

/// What is posted to `/feed`, for everybody who listens to it.
struct Feed {
    events: broadcast::Sender<Event>,
    last_id: AtomicU64,
}

impl Feed {
    fn new() -> Self {
        Self {
            events: broadcast::Sender::new(FEED_EVENTS),
            last_id: AtomicU64::new(0),
        }
    }
}

async fn post_to_feed(State(feed): State<Arc<Feed>>, text: String) -> StatusCode {
    let id = feed.last_id.fetch_add(1, Ordering::Relaxed) + 1;
    // Fails when nobody listens, which is nobody's error.
    feed.events
        .send(Event::default().id(id.to_string()).data(text))
        .ok();
    StatusCode::NO_CONTENT
}

async fn listen_to_feed(
    State(feed): State<Arc<Feed>>,
) -> Sse<impl Stream<Item = Result<Event, BroadcastStreamRecvError>>> {
    Sse::new(BroadcastStream::new(feed.events.subscribe())).keep_alive(KeepAlive::default())
}

async fn open_websocket(upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(echo_messages)
}

async fn echo_messages(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        let is_sent = match message {
            Message::Text(_) | Message::Binary(_) => socket.send(message).await.is_ok(),
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => true,
        };
        if !is_sent {
            break;
        }
    }
}

/// The schema that the demo of justapi has on the same route, by the same library.
fn user() -> io::Result<Validator> {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "User",
        "type": "object",
        "required": ["id", "name", "email", "address"],
        "additionalProperties": false,
        "properties": {
            "id": {"type": "integer", "minimum": 1},
            "name": {"type": "string", "minLength": 1, "maxLength": 100},
            "email": {"type": "string", "format": "email"},
            "active": {"type": "boolean"},
            "address": {
                "type": "object",
                "required": ["street", "city"],
                "properties": {
                    "street": {"type": "string", "maxLength": 200},
                    "city": {"type": "string", "maxLength": 100},
                    "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
                    "geo": {
                        "type": "object",
                        "required": ["lat", "lng"],
                        "properties": {
                            "lat": {"type": "number", "minimum": -90, "maximum": 90},
                            "lng": {"type": "number", "minimum": -180, "maximum": 180},
                        },
                    },
                },
            },
            "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": true, "maxItems": 20},
            "orders": {"type": "array", "items": {"$ref": "#/$defs/order"}},
        },
        "$defs": {
            "order": {
                "type": "object",
                "required": ["id", "total"],
                "properties": {
                    "id": {"type": "integer"},
                    "total": {"type": "number", "exclusiveMinimum": 0},
                    "items": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                },
            },
        },
    });
    jsonschema::options()
        .with_pattern_options(PatternOptions::regex())
        .should_validate_formats(true)
        .build(&schema)
        .map_err(|error| io::Error::other(error.to_string()))
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let address = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--addr", address] => address.to_owned(),
        ["--version"] => return print_version("peer-axum"),
        _ => return Err(io::Error::other("usage: peer-axum --addr HOST:PORT")),
    };
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(serve(&address))
}

async fn serve(address: &str) -> io::Result<()> {
    let router = Router::new()
        .route("/hello", get(hello))
        .route("/echo", post(echo))
        .route("/validate", post(validate).with_state(Arc::new(user()?)))
        .route("/ws", get(open_websocket))
        .route(
            "/feed",
            get(listen_to_feed)
                .post(post_to_feed)
                .with_state(Arc::new(Feed::new())),
        );
    let listener = TcpListener::bind(address).await?.tap_io(|stream| {
        // A socket that refuses the option still serves.
        stream.set_nodelay(true).ok();
    });
    axum::serve(listener, router).await
}
