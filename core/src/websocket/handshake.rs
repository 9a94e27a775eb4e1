//! The opening handshake: RFC 6455 §4.2, and RFC 8441 over HTTP/2.
//!
//! Guarantee: nothing is switched unless every rule holds; each broken one has
//! its own answer: 405, 426 (with what to use instead), 400, or 403 for a page
//! of another origin (cross-site WebSocket hijacking).

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    ALLOW, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, SEC_WEBSOCKET_ACCEPT,
    SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{Method, StatusCode, Version};
use http_body::Body as _;
use sha1::{Digest as _, Sha1};

use super::deflate::Agreement;
use super::extension::{Deflate, negotiate};
use super::limits::MAX_PROTOCOL_OFFERS;
use crate::gate::is_token_byte;
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};

/// Appended to the key before it is hashed (RFC 6455 §1.3).
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADE_OPTION: HeaderValue = HeaderValue::from_static("upgrade");
const GET: HeaderValue = HeaderValue::from_static("GET");
/// The only version there is (RFC 6455 §4.1).
const VERSION: HeaderValue = HeaderValue::from_static("13");

/// Marks a request that came as an extended CONNECT with the `websocket`
/// protocol (RFC 8441): the server shows it to routes as a GET.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExtendedConnect;

impl Request {
    /// Whether it asks for a WebSocket, by an upgrade or an extended CONNECT.
    ///
    /// Says nothing about whether the handshake is right.
    pub fn wants_websocket(&self) -> bool {
        let is_tunnel =
            !self.extensions().is_empty() && self.extensions().get::<ExtendedConnect>().is_some();
        is_tunnel
            || self.fields().any(|(name, value)| {
                name.eq_ignore_ascii_case(b"upgrade") && value.eq_ignore_ascii_case(b"websocket")
            })
    }
}

/// Which pages may open the socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origins {
    Same,
    Any,
    These(Vec<Box<str>>),
}

/// What a handshake needs of the server's configuration.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) protocols: Vec<Arc<str>>,
    pub(super) origins: Origins,
    pub(super) deflate: Option<Deflate>,
}

/// A handshake that succeeded: its response, and what was agreed.
#[derive(Debug)]
pub(super) struct Accepted {
    pub(super) response: Response,
    pub(super) protocol: Option<Arc<str>>,
    pub(super) agreement: Option<Agreement>,
}

/// Why there is no WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refusal {
    status: StatusCode,
    detail: &'static str,
}

impl Refusal {
    const fn new(status: StatusCode, detail: &'static str) -> Self {
        Self { status, detail }
    }

    const fn bad_request(detail: &'static str) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    const fn upgrade_required(detail: &'static str) -> Self {
        Self::new(StatusCode::UPGRADE_REQUIRED, detail)
    }

    /// A problem document, with the headers that RFC 9110 §15.5.6, §15.5.22
    /// and RFC 6455 §4.4 ask for.
    pub(super) fn into_response(self, version: Version) -> Response {
        let response = Problem::new(self.status)
            .with_detail(self.detail)
            .into_response();
        match self.status {
            StatusCode::METHOD_NOT_ALLOWED => response.with_header(ALLOW, GET),
            StatusCode::UPGRADE_REQUIRED => {
                let response = response
                    .with_header(SEC_WEBSOCKET_VERSION, VERSION)
                    .with_header(UPGRADE, WEBSOCKET);
                match version {
                    Version::HTTP_11 => response.with_header(CONNECTION, UPGRADE_OPTION),
                    _ => response,
                }
            }
            _ => response,
        }
    }
}

/// Checks `request` and makes the response that accepts it.
pub(super) fn shake(request: &mut Request, terms: &Terms) -> Result<Accepted, Refusal> {
    let is_tunnel = request.extensions().get::<ExtendedConnect>().is_some();
    if request.method() != Method::GET {
        return Err(Refusal::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "a WebSocket begins with GET",
        ));
    }
    if !is_tunnel {
        check_upgrade(request)?;
    }
    let headers = request.headers();
    if !is_only_value(headers, &SEC_WEBSOCKET_VERSION, b"13") {
        return Err(Refusal::upgrade_required(
            "Sec-WebSocket-Version has to be 13, once",
        ));
    }
    check_origin(request, &terms.origins)?;
    let accept = if is_tunnel {
        None
    } else {
        Some(accept_key(headers).ok_or(Refusal::bad_request(
            "Sec-WebSocket-Key has to be 16 bytes in base64, once",
        ))?)
    };
    let protocol = choose_protocol(headers, &terms.protocols).map_err(|()| {
        Refusal::bad_request("Sec-WebSocket-Protocol is not a short list of distinct tokens")
    })?;
    let agreed = negotiate(headers, terms.deflate).map_err(|_| {
        Refusal::bad_request("Sec-WebSocket-Extensions is not a list of extensions")
    })?;
    if !request.body_mut().is_end_stream() {
        // Its bytes would be read as frames.
        return Err(Refusal::bad_request("a WebSocket handshake has no body"));
    }

    let mut response = match accept {
        None => Response::new(StatusCode::OK),
        Some(accept) => Response::new(StatusCode::SWITCHING_PROTOCOLS)
            .with_header(CONNECTION, UPGRADE_OPTION)
            .with_header(UPGRADE, WEBSOCKET)
            .with_header(SEC_WEBSOCKET_ACCEPT, accept),
    };
    if let Some(protocol) = &protocol {
        let value = HeaderValue::from_str(protocol).expect("it was equal to a token");
        response = response.with_header(SEC_WEBSOCKET_PROTOCOL, value);
    }
    let mut agreement = None;
    if let Some((terms, value)) = agreed {
        agreement = Some(terms);
        response = response.with_header(SEC_WEBSOCKET_EXTENSIONS, value);
    }
    Ok(Accepted {
        response,
        protocol,
        agreement,
    })
}

/// The parts of the handshake that HTTP/1.1 alone has.
fn check_upgrade(request: &Request) -> Result<(), Refusal> {
    match request.version() {
        Version::HTTP_11 => {}
        Version::HTTP_2 => {
            return Err(Refusal::bad_request(
                "over HTTP/2 a WebSocket begins with an extended CONNECT",
            ));
        }
        _ => return Err(Refusal::upgrade_required("a WebSocket needs HTTP/1.1")),
    }
    let headers = request.headers();
    if !has_option(headers, &UPGRADE, "websocket") || !has_option(headers, &CONNECTION, "upgrade") {
        return Err(Refusal::upgrade_required(
            "this is a WebSocket: Upgrade has to name websocket and Connection has to name upgrade",
        ));
    }
    Ok(())
}

/// Whether a comma-separated list has `wanted`, in any case.
pub(crate) fn has_option(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    headers.get_all(name).iter().any(|value| {
        let mut options = value.as_bytes().split(|byte| *byte == b',');
        options.any(|option| option.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes()))
    })
}

fn only_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let first = values.next()?;
    values.next().is_none().then_some(first)
}

fn is_only_value(headers: &HeaderMap, name: &HeaderName, wanted: &[u8]) -> bool {
    only_value(headers, name).is_some_and(|value| value.as_bytes() == wanted)
}

/// The answer to the client's key; `None` for a key that is none.
pub(crate) fn accept_key(headers: &HeaderMap) -> Option<HeaderValue> {
    let key = only_value(headers, &SEC_WEBSOCKET_KEY)?.as_bytes();
    let mut nonce = [0; 18];
    let length = STANDARD.decode_slice(key, &mut nonce).ok()?;
    if length != 16 {
        return None;
    }
    let digest = Sha1::new().chain_update(key).chain_update(KEY_SUFFIX);
    let mut accept = [0; 28];
    let length = STANDARD.encode_slice(digest.finalize(), &mut accept).ok()?;
    HeaderValue::from_bytes(&accept[..length]).ok()
}

/// The first protocol of the client's list, which is in order of preference,
/// that the server has; `Err` for a list that is none (RFC 6455 §4.1).
fn choose_protocol(headers: &HeaderMap, ours: &[Arc<str>]) -> Result<Option<Arc<str>>, ()> {
    let mut chosen = None;
    let mut seen: Vec<&[u8]> = Vec::new();
    for value in headers.get_all(SEC_WEBSOCKET_PROTOCOL) {
        for name in value.as_bytes().split(|byte| *byte == b',') {
            let name = name.trim_ascii();
            let is_token = !name.is_empty() && name.iter().copied().all(is_token_byte);
            if !is_token || seen.contains(&name) || seen.len() == MAX_PROTOCOL_OFFERS {
                return Err(());
            }
            seen.push(name);
            chosen = chosen.or_else(|| ours.iter().find(|our| our.as_bytes() == name));
        }
    }
    Ok(chosen.cloned())
}

/// Refuses a page that may not open the socket; other clients send no origin.
fn check_origin(request: &Request, allowed: &Origins) -> Result<(), Refusal> {
    let headers = request.headers();
    if *allowed == Origins::Any || !headers.contains_key(ORIGIN) {
        return Ok(());
    }
    let origin = only_value(headers, &ORIGIN).and_then(|value| value.to_str().ok());
    let is_allowed = origin.is_some_and(|origin| match allowed {
        Origins::Any => true,
        Origins::These(list) => list.iter().any(|known| known.eq_ignore_ascii_case(origin)),
        Origins::Same => is_same_origin(origin, request),
    });
    if is_allowed {
        return Ok(());
    }
    Err(Refusal::new(
        StatusCode::FORBIDDEN,
        "a page of this origin may not open the WebSocket",
    ))
}

/// Whether `origin` has the host and port of the request.
///
/// The scheme is not compared: TLS may end before us.
fn is_same_origin(origin: &str, request: &Request) -> bool {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return false;
    };
    let default_port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let bare = |authority: &str| {
        let authority = authority.to_ascii_lowercase();
        match authority.strip_suffix(default_port) {
            Some(host) => host.to_owned(),
            None => authority,
        }
    };
    let host = match request.uri().authority() {
        Some(authority) => Some(authority.as_str()),
        None => only_value(request.headers(), &HOST).and_then(|value| value.to_str().ok()),
    };
    host.is_some_and(|host| bare(host) == bare(authority))
}
