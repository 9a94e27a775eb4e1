//! Where a request came from, as the server knows it before routing.
//!
//! Guarantee: client, scheme and host are those of the connection unless a
//! listed proxy said otherwise ([`super::Forwarded`]); while neither proxies
//! nor traces are configured nothing is allocated.

use std::net::IpAddr;
use std::sync::Arc;

use super::Builtins;
use super::forwarded::Source;
use super::trace_context::{SpanStart, TraceContext};
use crate::head::Head;
use crate::request::{Peer, Request};

/// What the request, its record and its span share.
#[derive(Debug, Clone, Default)]
pub(crate) struct Arrival {
    is_tls: bool,
    facts: Option<Arc<Facts>>,
}

/// What only proxies and traces add.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// What a trusted proxy said.
    pub(super) source: Source,
    pub(super) span: Option<SpanStart>,
}

impl Arrival {
    /// Reads what the switched-on members need of a request head.
    pub(crate) fn of(builtins: &Builtins, head: &Head, peer: Peer, is_tls: bool) -> Self {
        if builtins.forwarded.is_none() && builtins.trace.is_none() {
            return Self {
                is_tls,
                facts: None,
            };
        }
        let source = builtins
            .forwarded
            .as_ref()
            .and_then(|forwarded| forwarded.resolve(head.headers(), peer))
            .unwrap_or_default();
        let is_secure = source.is_https.unwrap_or(is_tls);
        let span = builtins
            .trace
            .as_ref()
            .map(|trace| trace.begin(head, source.client.or(address(peer)), is_secure));
        Self {
            is_tls,
            facts: Some(Arc::new(Facts { source, span })),
        }
    }

    /// Whether the client speaks HTTPS, to us or to a trusted proxy.
    pub(crate) fn is_secure(&self) -> bool {
        self.source()
            .and_then(|source| source.is_https)
            .unwrap_or(self.is_tls)
    }

    /// The client in place of the connection's peer, for the access log.
    pub(crate) fn client_of(&self, peer: Peer) -> Peer {
        match self.source().and_then(|source| source.client) {
            Some(client) => Peer::Tcp((client, 0).into()),
            None => peer,
        }
    }

    /// The trace that the request is part of.
    pub(crate) fn trace(&self) -> Option<&TraceContext> {
        let span = self.facts.as_ref()?.span.as_ref()?;
        Some(&span.context)
    }

    pub(super) const fn facts(&self) -> Option<&Arc<Facts>> {
        self.facts.as_ref()
    }

    fn source(&self) -> Option<&Source> {
        self.facts.as_ref().map(|facts| &facts.source)
    }
}

impl Request {
    /// Address of the client: the peer's, or what a listed proxy said it is.
    ///
    /// `None` for a Unix socket without a proxy that names the client. See
    /// [`Forwarded`](crate::Forwarded).
    pub fn client(&self) -> Option<IpAddr> {
        match self.arrival().client_of(*self.peer()) {
            Peer::Tcp(address) => Some(address.ip().to_canonical()),
            Peer::Unix | Peer::Memory(_) | Peer::Unknown => None,
        }
    }

    /// Scheme that the client used: `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.arrival().is_secure() {
            "https"
        } else {
            "http"
        }
    }

    /// Host that the client asked for, with its port if it named one.
    ///
    /// What a listed proxy said, else `:authority` or `Host`; a valid host by
    /// RFC 9110 §7.2, but one that the client chose: see
    /// [`TrustedHosts`](crate::TrustedHosts).
    pub fn host(&self) -> Option<&str> {
        let source = self.arrival().source();
        source
            .and_then(|source| source.host.as_deref())
            .or_else(|| self.head().host())
    }

    /// [`Request::host`] for who compares it.
    pub(super) fn host_bytes(&self) -> Option<&[u8]> {
        let source = self.arrival().source();
        let said = source.and_then(|source| source.host.as_deref());
        said.map(str::as_bytes).or_else(|| self.head().host_bytes())
    }

    /// Trace context of this request, where the server takes part in traces.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.arrival().trace()
    }
}

fn address(peer: Peer) -> Option<IpAddr> {
    match peer {
        Peer::Tcp(address) => Some(address.ip().to_canonical()),
        Peer::Unix | Peer::Memory(_) | Peer::Unknown => None,
    }
}
