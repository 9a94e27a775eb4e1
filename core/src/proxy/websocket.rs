//! A WebSocket through a proxy: the opening handshake on its way to the upstream
//! and back (RFC 6455 §4, RFC 8441 where the client speaks HTTP/2).
//!
//! Guarantee: nothing but a WebSocket switches protocols (an upgrade to `h2c`
//! would lead past the gate), and only when the upstream's answer proves that
//! it has understood the handshake; until then all is HTTP.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    UPGRADE,
};
use http::response::Parts;
use http::{Method, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;

use super::forward::{add_via, remove_hop_by_hop};
use super::pool::Connection;
use super::tunnel::{self, Patience};
use crate::body::Body;
use crate::request::Request;
use crate::response::Response;
use crate::upgrade::OnUpgrade;
use crate::websocket::{ExtendedConnect, accept_key, has_option};

const WEBSOCKET: HeaderValue = HeaderValue::from_static("websocket");
const UPGRADE_OPTION: HeaderValue = HeaderValue::from_static("upgrade");

/// A request that asks for a WebSocket.
#[derive(Debug)]
pub(super) struct Upgrade {
    /// What an upstream answers that has understood it.
    accept: HeaderValue,
    /// Whether the client's side is a stream of HTTP/2.
    is_stream: bool,
}

impl Upgrade {
    /// What `request` asks for; a handshake without a valid key is none, and
    /// goes on as a plain GET.
    pub(super) fn of(request: &mut Request) -> Option<Self> {
        let is_stream = request.extensions().get::<ExtendedConnect>().is_some();
        let headers = request.headers();
        let is_asked = is_stream
            || request.version() == Version::HTTP_11
                && has_option(headers, &UPGRADE, "websocket")
                && has_option(headers, &CONNECTION, "upgrade");
        if !is_asked || request.method() != Method::GET || !request.body_mut().is_end_stream() {
            return None;
        }
        if is_stream {
            // HTTP/1.1 has a key, HTTP/2 has none (RFC 8441 §5).
            request.headers_mut().insert(SEC_WEBSOCKET_KEY, new_key());
        }
        Some(Self {
            accept: accept_key(request.headers())?,
            is_stream,
        })
    }

    /// Puts what belongs to this hop into the upstream's request.
    pub(super) fn ask(headers: &mut HeaderMap) {
        headers.insert(CONNECTION, UPGRADE_OPTION);
        headers.insert(UPGRADE, WEBSOCKET);
    }

    /// Whether an answer of status 101 is one to this handshake.
    fn is_agreed(&self, head: &Parts) -> bool {
        let mut accepts = head.headers.get_all(SEC_WEBSOCKET_ACCEPT).iter();
        has_option(&head.headers, &UPGRADE, "websocket")
            && has_option(&head.headers, &CONNECTION, "upgrade")
            && accepts.next() == Some(&self.accept)
            && accepts.next().is_none()
    }

    /// Turns the upstream's 101 into the client's answer; `None` when it is
    /// none to this handshake.
    pub(super) fn answer(
        &self,
        mut response: http::Response<Incoming>,
        connection: Connection,
        patience: Patience,
    ) -> Option<Response> {
        let upstream = hyper::upgrade::on(&mut response);
        let (mut head, _) = response.into_parts();
        if !self.is_agreed(&head) {
            return None;
        }
        remove_hop_by_hop(&mut head.headers);
        add_via(&mut head.headers, head.version);
        head.headers.remove(CONTENT_LENGTH);
        if self.is_stream {
            head.status = StatusCode::OK;
            head.headers.remove(SEC_WEBSOCKET_ACCEPT);
        } else {
            Self::ask(&mut head.headers);
        }
        head.version = Version::HTTP_11;
        let run = OnUpgrade::new(move |client| {
            Box::pin(tunnel::run(client, upstream, connection, patience))
        });
        let mut response = Response::from(http::Response::from_parts(head, Body::empty()));
        response.extensions_mut().insert(run);
        Some(response)
    }
}

/// A nonce that nobody has to guess: it tells a WebSocket server from others.
fn new_key() -> HeaderValue {
    let nonce: [u8; 16] = std::array::from_fn(|_| fastrand::u8(..));
    let mut key = [0; 24];
    STANDARD
        .encode_slice(nonce, &mut key)
        .expect("16 bytes are 24 characters of base64");
    HeaderValue::from_bytes(&key).expect("base64 is ASCII")
}
