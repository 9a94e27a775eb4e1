//! The demo that `justapi serve` serves: small routes that show what the
//! server does to a request.
//!
//! Guarantee: nothing is precomputed; each answer is made of its request, so
//! that a measurement of it measures the work.

use std::net::IpAddr;

use justapi_core::{
    Accepted, BodyError, Deflate, HeaderMap, HeaderValue, IntoResponse as _, Json, Method, OpenApi,
    Request, Response, RouteOptions, Router, Schema, SessionError, TraceContext, WebSocket,
    WebSocketUpgrade, header, inline, validated,
};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Value, json};

const GET: Method = Method::GET;
const POST: Method = Method::POST;

use crate::{demo_events, demo_form};

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
    let any_size = about("What the server received, of any request")
        .max_body_bytes(u64::MAX)
        .tags(&["echo"]);
    let greets = about("A small JSON object").tags(&["greetings"]);
    let echoes = about("The JSON that was sent, parsed and written again")
        .body_types(&["application/json"])
        .tags(&["echo"]);
    let forms = about("The fields of a form, files counted")
        .body_types(&["application/x-www-form-urlencoded", "multipart/form-data"])
        .tags(&["echo"]);
    let validates = about("Checks a user against a JSON Schema")
        .description("The answer to an invalid user lists every error with its place.")
        .tags(&["validation"]);
    let searches = about("Reads a query by its schema")
        .description("Texts become the numbers, booleans and arrays that the schema names.")
        .tags(&["validation"]);
    let socket = |deflate| WebSocketUpgrade::new().protocols(["echo"]).deflate(deflate);
    let plain = socket(Deflate::new());
    let keeping = socket(Deflate::new().context_takeover(true));
    Router::new()
        .get(
            "/events",
            inline(|request: Request| demo_events::events(&request)),
        )?
        .route_with(POST, "/form", forms, demo_form::form)?
        .get("/client", inline(|request: Request| client(&request)))?
        .get("/session", inline(|request: Request| session(&request)))?
        .post("/session", inline(|request: Request| visit(&request)))?
        .delete("/session", inline(|_: Request| leave()))?
        .route_with(
            GET,
            "/",
            RouteOptions::new().hidden(),
            inline(|_: Request| page()),
        )?
        .route_with(GET, "/hello", greets, inline(|_: Request| hello()))?
        .route_with(POST, "/echo", echoes, echo)?
        .route_with(
            POST,
            "/validate",
            validates,
            validated()
                .lazily()
                .body(user())
                .answers(verdict())
                .inline(valid),
        )?
        .route_with(
            GET,
            "/search",
            searches,
            validated().lazily().query(search()).inline(found),
        )?
        // OpenAPI describes no WebSockets.
        .route_with(
            GET,
            "/ws",
            RouteOptions::new().hidden(),
            inline(move |mut request: Request| match request.query() {
                Some("context=keep") => keeping.accept(&mut request, echo_messages),
                _ => plain.accept(&mut request, echo_messages),
            }),
        )?
        .any_with("/anything", any_size, anything)?
        .any_with("/anything/{*rest}", any_size, anything)
}

/// The description that the documentation shows.
pub(crate) fn description() -> OpenApi {
    OpenApi::new("justapi demo", env!("CARGO_PKG_VERSION"))
        .description("Small routes that show what the server does to a request.")
}

const fn about(summary: &'static str) -> RouteOptions {
    RouteOptions::new().summary(summary)
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

/// Who asks, for `/client`.
#[derive(Serialize)]
struct Caller<'a> {
    client: Option<IpAddr>,
    scheme: &'a str,
    host: Option<&'a str>,
    trace_id: Option<&'a str>,
    span_id: Option<&'a str>,
    parent_id: Option<&'a str>,
}

fn client(request: &Request) -> Response {
    let trace = request.trace();
    Response::json(&Caller {
        client: request.client(),
        scheme: request.scheme(),
        host: request.host(),
        trace_id: trace.map(TraceContext::trace_id),
        span_id: trace.map(TraceContext::span_id),
        parent_id: trace.and_then(TraceContext::parent_id),
    })
}

/// What the visitor's session holds, for `/session`.
#[derive(Serialize)]
struct Visits {
    visits: u64,
}

fn session(request: &Request) -> Json<Visits> {
    let visits = request.session().get("visits").unwrap_or(0);
    Json(Visits { visits })
}

fn visit(request: &Request) -> Result<Response, SessionError> {
    let mut session = request.session();
    let visits = session.get("visits").unwrap_or(0) + 1;
    session.insert("visits", visits)?;
    Ok(Response::json(&Visits { visits }).with_session(session))
}

fn leave() -> Response {
    Response::json(&Visits { visits: 0 }).without_session()
}

async fn echo(request: Request) -> Result<Json<Value>, BodyError> {
    request.json().await.map(Json)
}

/// A user with an address and orders, for `/validate`.
fn user() -> Schema {
    Schema::new(json!({
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
    }))
    .assert_formats()
}

/// What `/validate` answers to a valid user.
fn verdict() -> Schema {
    Schema::new(json!({
        "title": "Verdict",
        "type": "object",
        "properties": {"valid": {"const": true}},
        "required": ["valid"],
    }))
}

#[derive(Serialize)]
struct Valid {
    valid: bool,
}

/// Says of a user that the schema accepted it.
fn valid(_: Accepted<(), ()>) -> Json<Valid> {
    Json(Valid { valid: true })
}

/// The query of `/search`.
fn search() -> Schema {
    Schema::new(json!({
        "type": "object",
        "required": ["q"],
        "properties": {
            "q": {"type": "string", "minLength": 1, "description": "What to look for"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 10},
            "exact": {"type": "boolean"},
        },
        "additionalProperties": false,
    }))
}

fn found(accepted: Accepted<(), Value>) -> Json<Value> {
    Json(accepted.query)
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
