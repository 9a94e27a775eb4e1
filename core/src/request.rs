//! A request as handlers see it: head, path parameters, peer, body.
//!
//! Guarantee: it has passed the gate, so its framing, target and Host are
//! valid, and its path parameters are percent-decoded valid UTF-8.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, Uri, Version};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use smallvec::SmallVec;

use crate::body::Body;
use crate::error::BodyError;
use crate::head::Head;
use crate::middleware::{Arrival, Id};

/// A request on its way to a handler.
#[derive(Debug)]
pub struct Request {
    head: Head,
    body: Body,
    params: PathParams,
    peer: Peer,
    id: Option<Id>,
    arrival: Arrival,
    received_at: Instant,
}

impl Request {
    /// Builds a request without a socket, for tests and in-process clients.
    pub fn new(method: Method, uri: Uri, body: impl Into<Body>) -> Self {
        let mut request = http::Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let (head, ()) = request.into_parts();
        Self::from_head(head.into(), body.into(), Peer::Unknown, Instant::now())
    }

    pub(crate) fn from_head(head: Head, body: Body, peer: Peer, received_at: Instant) -> Self {
        Self {
            head,
            body,
            params: PathParams::default(),
            peer,
            id: None,
            arrival: Arrival::default(),
            received_at,
        }
    }

    /// Adds what the server gives it or knows of it besides its head.
    pub(crate) fn complete(&mut self, id: Option<Id>, arrival: Arrival) {
        self.id = id;
        self.arrival = arrival;
    }

    pub(crate) const fn head(&self) -> &Head {
        &self.head
    }

    pub(crate) const fn arrival(&self) -> &Arrival {
        &self.arrival
    }

    /// When its head was complete.
    pub(crate) const fn received_at(&self) -> Instant {
        self.received_at
    }

    /// Method.
    pub fn method(&self) -> &Method {
        self.head.method()
    }

    /// Target as it was sent.
    pub fn uri(&self) -> &Uri {
        self.head.uri()
    }

    /// Path as it was sent, percent-encoded.
    pub fn path(&self) -> &str {
        self.head.path()
    }

    /// Query as it was sent, without the `?`.
    pub fn query(&self) -> Option<&str> {
        self.head.query()
    }

    /// Protocol version.
    pub fn version(&self) -> Version {
        self.head.version()
    }

    /// Headers.
    pub fn headers(&self) -> &HeaderMap {
        self.head.headers()
    }

    /// Field lines as they came: names in any case, values as bytes.
    ///
    /// Cheaper than [`Self::headers`] for who reads all of them once.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.head.fields()
    }

    /// Headers, for middleware that rewrites them.
    pub fn headers_mut(&mut self) -> &mut HeaderMap {
        self.head.headers_mut()
    }

    /// Typed values that middleware attached.
    pub fn extensions(&self) -> &Extensions {
        self.head.extensions()
    }

    /// Typed values, to attach.
    pub fn extensions_mut(&mut self) -> &mut Extensions {
        self.head.extensions_mut()
    }

    /// Path parameter by name, percent-decoded.
    pub fn param(&self, name: &str) -> Option<&str> {
        self.params.get(name, self.path())
    }

    /// All path parameters in pattern order, percent-decoded.
    pub fn params(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.params.iter(self.path())
    }

    /// Who sent it.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Request id, where the server gives them: as in the response's header.
    pub fn id(&self) -> Option<&str> {
        self.id.as_ref().map(Id::as_str)
    }

    /// Body, to stream or to change its limit.
    pub fn body_mut(&mut self) -> &mut Body {
        &mut self.body
    }

    /// The body alone.
    pub fn into_body(self) -> Body {
        self.body
    }

    /// Takes the body out; an empty one stays.
    pub fn take_body(&mut self) -> Body {
        std::mem::take(&mut self.body)
    }

    /// Reads the body to its end.
    ///
    /// # Errors
    /// As [`Body::bytes`].
    pub fn bytes(self) -> impl Future<Output = Result<Bytes, BodyError>> + Send {
        // Not an `async fn`: its future would keep the head alive and large.
        self.body.bytes()
    }

    /// Reads the body and parses it as JSON, at most 128 levels deep.
    ///
    /// # Errors
    /// As [`Body::bytes`], and [`BodyError::Json`].
    pub fn json<T: DeserializeOwned>(self) -> impl Future<Output = Result<T, BodyError>> + Send {
        let body = self.body;
        async move {
            let bytes = body.bytes().await?;
            serde_json::from_slice(&bytes).map_err(|source| BodyError::Json { source })
        }
    }

    pub(crate) fn set_params(&mut self, params: PathParams) {
        self.params = params;
    }
}

/// The other end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A TCP peer.
    Tcp(SocketAddr),
    /// A peer on a Unix socket.
    Unix,
    /// A client in this process, by the number that it gave the connection.
    Memory(u64),
    /// No socket: an in-process request.
    Unknown,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.ip().fmt(f),
            Self::Unix => f.write_str("unix"),
            Self::Memory(_) | Self::Unknown => f.write_str("-"),
        }
    }
}

/// Path parameters of one matched request.
///
/// Values are spans, so that the usual match allocates nothing.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct PathParams {
    names: &'static [&'static str],
    spans: Spans,
    /// What the spans are cut from, when it is not the request path.
    decoded: Option<Box<str>>,
}

/// Byte ranges of parameters, in pattern order.
pub(crate) type Spans = SmallVec<[(u32, u32); 4]>;

impl PathParams {
    /// Pairs `names` with the `spans` of the request path.
    #[inline]
    pub(crate) fn new(names: &'static [&'static str], spans: Spans) -> Self {
        Self {
            names,
            spans,
            decoded: None,
        }
    }

    /// Percent-decodes the values, which are spans of `canonical` until now.
    ///
    /// `canonical` is UTF-8 when decoded, so each of its segments is.
    pub(crate) fn decode(&mut self, canonical: &str) {
        if self.spans.is_empty() {
            return;
        }
        let mut text = Vec::with_capacity(canonical.len());
        for (start, end) in &mut self.spans {
            let raw = &canonical[*start as usize..*end as usize];
            *start = text.len() as u32;
            text.extend(percent_decode_str(raw));
            *end = text.len() as u32;
        }
        let text = String::from_utf8(text).expect("segments are UTF-8");
        self.decoded = Some(text.into_boxed_str());
    }

    /// Value of `name`; `path` is the path that was matched.
    ///
    /// # Panics
    /// When `path` is another path.
    pub fn get<'a>(&'a self, name: &str, path: &'a str) -> Option<&'a str> {
        self.iter(path)
            .find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Pairs in pattern order; `path` is the path that was matched.
    ///
    /// # Panics
    /// When `path` is another path.
    pub fn iter<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'static str, &'a str)> {
        let text = self.decoded.as_deref().unwrap_or(path);
        let names = self.names.iter().copied();
        names.zip(&self.spans).map(move |(name, (start, end))| {
            let value = text.get(*start as usize..*end as usize);
            (name, value.expect("spans were cut from this path"))
        })
    }
}
