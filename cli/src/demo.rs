//! The demo that `justapi serve` serves: small routes that show what the
//! server does to a request.
//!
//! Guarantee: nothing is precomputed; each answer is made of its request, so
//! that a measurement of it measures the work.

use justapi_core::{
    BodyError, Deflate, HeaderMap, HeaderValue, IntoResponse as _, Json, Request, Response,
    RouteOptions, Router, WebSocket, WebSocketUpgrade, header, inline,
};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::Value;

/// The page on `/`; it loads nothing from anywhere else.
const PAGE: &str = include_str!("demo.html");

/// Keeps the page from loading anything but its own style.
const PAGE_POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'");

/// The routes of the demo.
///
/// # Errors
/// Never in practice: the patterns are constants that a test registers.
pub(crate) fn router() -> Result<Router, justapi_core::Error> {
    // `/anything` counts the body and throws it away: its size costs no memory.
    let any_size = RouteOptions::new().max_body_bytes(u64::MAX);
    let socket = |deflate| WebSocketUpgrade::new().protocols(["echo"]).deflate(deflate);
    let plain = socket(Deflate::new());
    let keeping = socket(Deflate::new().context_takeover(true));
    Router::new()
        .get("/", inline(|_: Request| page()))?
        .get("/hello", inline(|_: Request| hello()))?
        .post("/echo", echo)?
        .get(
            "/ws",
            inline(move |mut request: Request| match request.query() {
                Some("context=keep") => keeping.accept(&mut request, echo_messages),
                _ => plain.accept(&mut request, echo_messages),
            }),
        )?
        .any_with("/anything", any_size, anything)?
        .any_with("/anything/{*rest}", any_size, anything)
}

#[derive(Serialize)]
struct Hello {
    message: &'static str,
}

fn hello() -> Json<Hello> {
    Json(Hello { message: "hello" })
}

fn page() -> Response {
    Response::html(PAGE).with_header(header::CONTENT_SECURITY_POLICY, PAGE_POLICY)
}

async fn echo(request: Request) -> Result<Json<Value>, BodyError> {
    request.json().await.map(Json)
}

/// Sends each message back as it came.
async fn echo_messages(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            break;
        }
    }
}

/// What was received, for `/anything`.
#[derive(Serialize)]
struct Received<'a> {
    method: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    headers: Headers<'a>,
    body_length: u64,
}

async fn anything(mut request: Request) -> Response {
    let mut body_length = 0;
    while let Some(chunk) = request.body_mut().chunk().await {
        match chunk {
            Ok(data) => body_length += data.len() as u64,
            Err(error) => return error.into_response(),
        }
    }
    Response::json(&Received {
        method: request.method().as_str(),
        path: request.path(),
        query: request.query(),
        headers: Headers(request.headers()),
        body_length,
    })
}

/// Writes each name once: a string for one value, an array for several.
struct Headers<'a>(&'a HeaderMap);

impl Serialize for Headers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.keys_len()))?;
        for name in self.0.keys() {
            let values: Vec<_> = self.0.get_all(name).iter().map(latin1).collect();
            match values.as_slice() {
                [value] => map.serialize_entry(name.as_str(), value)?,
                values => map.serialize_entry(name.as_str(), values)?,
            }
        }
        map.end()
    }
}

/// The value as text; bytes that are not UTF-8 are read as ISO 8859-1, which
/// header values were before RFC 7230.
fn latin1(value: &HeaderValue) -> String {
    std::str::from_utf8(value.as_bytes()).map_or_else(
        |_| {
            value
                .as_bytes()
                .iter()
                .map(|byte| char::from(*byte))
                .collect()
        },
        str::to_owned,
    )
}
