//! Clients of other libraries: HTTP/2 by hyper, and reqwest with all that it does.
//!
//! They give the same outcome classes as the raw engine. Requests are the same bytes, taken
//! apart once before the run.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::header::{CONNECTION, HOST, HeaderName, TRANSFER_ENCODING, UPGRADE};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

use super::body::BodyCheck;
use super::outcome::Outcome;
use super::plan::LoadPlan;
use super::target::{Address, Target};
use super::template::RequestTemplate;
use super::transport::TransportError;
use crate::Error;

/// Header fields that belong to an HTTP/1.1 connection (RFC 9113 §8.2.2), and Host, which is
/// part of the URI.
static OF_THE_CONNECTION: [HeaderName; 4] = [CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE];

/// Most header fields of a request.
const MAX_HEADERS: usize = 128;

/// A request as libraries take it.
pub(super) type Message = http::Request<Bytes>;

/// Takes a serialised request apart.
pub(super) fn message(target: &Target, bytes: &[u8]) -> Result<Message, Error> {
    let invalid = |problem| Error::LoadPlan {
        field: "requests",
        problem,
    };
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Request::new(&mut headers);
    let Ok(httparse::Status::Complete(length)) = head.parse(bytes) else {
        return Err(invalid("not an HTTP/1.1 request"));
    };
    let authority = (head.headers.iter())
        .find(|header| header.name.eq_ignore_ascii_case("host"))
        .and_then(|header| std::str::from_utf8(header.value).ok())
        .unwrap_or(&target.host);
    let scheme = if target.tls.is_some() {
        "https"
    } else {
        "http"
    };
    let path = head.path.unwrap_or("/");
    let mut request = http::Request::builder()
        .method(head.method.unwrap_or("GET"))
        .uri(format!("{scheme}://{authority}{path}"));
    for header in &*head.headers {
        let name = HeaderName::try_from(header.name).map_err(|_| invalid("a header name"))?;
        if !OF_THE_CONNECTION.contains(&name) {
            request = request.header(name, header.value);
        }
    }
    request
        .body(Bytes::copy_from_slice(&bytes[length..]))
        .map_err(|_| invalid("cannot be sent by this client"))
}

/// What makes connections of HTTP/2.
#[derive(Debug)]
pub(super) struct Http2 {
    tls: Option<Arc<ClientConfig>>,
}

impl Http2 {
    pub(super) fn new(target: &Target) -> Self {
        let tls = target.tls.as_ref().map(|tls| {
            let mut config = ClientConfig::clone(&tls.config);
            config.alpn_protocols = vec![b"h2".to_vec()];
            Arc::new(config)
        });
        Self { tls }
    }

    /// Opens a connection; without TLS the server must know that HTTP/2 comes.
    pub(super) async fn connect(
        &self,
        target: &Target,
    ) -> Result<SendRequest<Full<Bytes>>, Outcome> {
        let refused = |error| TransportError::Io(error).connect_outcome();
        match &target.address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(refused)?;
                stream.set_nodelay(true).map_err(refused)?;
                self.secure(target, stream).await
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await.map_err(refused)?;
                self.secure(target, stream).await
            }
        }
    }

    async fn secure<S>(
        &self,
        target: &Target,
        stream: S,
    ) -> Result<SendRequest<Full<Bytes>>, Outcome>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (Some(config), Some(tls)) = (&self.tls, &target.tls) else {
            return start(stream).await;
        };
        let stream = TlsConnector::from(Arc::clone(config))
            .connect(tls.server_name.clone(), stream)
            .await
            .map_err(|_| Outcome::TlsError)?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err(Outcome::ExchangeRefused);
        }
        start(stream).await
    }
}

async fn start<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, Outcome>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|error| outcome_of(&error))?;
    tokio::spawn(async move {
        // Requests on it learn why it ended.
        drop(connection.await);
    });
    Ok(sender)
}

/// A whole answer of a library.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) status: u16,
    /// When its head was there.
    pub(super) head_at: Instant,
}

/// Sends a request over HTTP/2 and reads the answer.
pub(super) async fn exchange_http2(
    sender: &mut SendRequest<Full<Bytes>>,
    message: Message,
    plan: &LoadPlan,
    check: &mut BodyCheck,
) -> Result<Received, Outcome> {
    let response = sender
        .send_request(message.map(Full::new))
        .await
        .map_err(|error| outcome_of(&error))?;
    let head_at = Instant::now();
    let status = response.status().as_u16();
    let mut body = response.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| outcome_of(&error))?;
        if let Some(data) = frame.data_ref() {
            check.update(plan.expect.body.as_ref(), data);
        }
    }
    Ok(Received { status, head_at })
}

/// A client that keeps cookies, follows redirects, decodes bodies and obeys proxies.
pub(super) fn reqwest_client(plan: &LoadPlan) -> Result<reqwest::Client, Error> {
    let target = &plan.target;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = match &target.tls {
        Some(tls) => ClientConfig::clone(&tls.config),
        // Where a redirect leads to https nothing is trusted.
        None => ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let mut builder = reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .cookie_store(true)
        .connect_timeout(plan.connect_timeout)
        .tcp_nodelay(true);
    if !plan.keep_alive {
        builder = builder.pool_max_idle_per_host(0);
    }
    builder = match &target.address {
        // Names are resolved once, before the run, by every client.
        Address::Tcp(address) => builder.resolve(host_name(&target.host), *address),
        Address::Unix(path) => builder.unix_socket(path.clone()),
    };
    builder.build().map_err(|_| Error::LoadPlan {
        field: "client",
        problem: "reqwest cannot be set up for it",
    })
}

/// The name without port and brackets.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => host.split_once(':').map_or(host, |(name, _)| name),
    }
}

/// Sends a request with reqwest and reads the answer, that of the last response.
pub(super) async fn exchange_reqwest(
    client: &reqwest::Client,
    message: Message,
    plan: &LoadPlan,
    check: &mut BodyCheck,
) -> Result<Received, Outcome> {
    let request = reqwest::Request::try_from(message).map_err(|_| Outcome::NotSent)?;
    let mut response = client
        .execute(request)
        .await
        .map_err(|error| reqwest_outcome(&error))?;
    let head_at = Instant::now();
    let status = response.status().as_u16();
    while let Some(part) = response
        .chunk()
        .await
        .map_err(|error| reqwest_outcome(&error))?
    {
        check.update(plan.expect.body.as_ref(), &part);
    }
    Ok(Received { status, head_at })
}

fn reqwest_outcome(error: &reqwest::Error) -> Outcome {
    if error.is_redirect() {
        return Outcome::ExchangeRefused;
    }
    if error.is_connect() {
        if error.is_timeout() {
            return Outcome::ConnectTimeout;
        }
        let cause = cause(error);
        return match cause {
            Some(Cause::Tls) => Outcome::TlsError,
            Some(Cause::Io(kind, number)) => {
                let error = number.map_or_else(|| kind.into(), io::Error::from_raw_os_error);
                TransportError::Io(error).connect_outcome()
            }
            // A name that a redirect or a proxy brought up.
            Some(Cause::Other(_)) | None => Outcome::DnsError,
        };
    }
    if error.is_decode() {
        return match cause(error) {
            Some(Cause::Io(io::ErrorKind::UnexpectedEof, _)) => Outcome::EofEarly,
            Some(Cause::Io(io::ErrorKind::ConnectionReset, _)) => Outcome::Reset,
            Some(Cause::Other(outcome)) => outcome,
            _ => Outcome::ParseError,
        };
    }
    outcome_of(error)
}

/// Class of a failure after the connection was there.
fn outcome_of(error: &(dyn std::error::Error + 'static)) -> Outcome {
    match cause(error) {
        Some(Cause::Tls) => Outcome::TlsError,
        Some(Cause::Io(io::ErrorKind::UnexpectedEof, _)) => Outcome::EofEarly,
        Some(Cause::Io(..)) => Outcome::Reset,
        Some(Cause::Other(outcome)) => outcome,
        None => Outcome::EofEarly,
    }
}

/// What lies at the bottom of an error.
enum Cause {
    Io(io::ErrorKind, Option<i32>),
    Tls,
    Other(Outcome),
}

fn cause(error: &(dyn std::error::Error + 'static)) -> Option<Cause> {
    let mut found = None;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            let is_tls = error
                .get_ref()
                .is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>);
            if is_tls {
                return Some(Cause::Tls);
            }
            found = Some(Cause::Io(error.kind(), error.raw_os_error()));
        } else if error.is::<rustls::Error>() {
            return Some(Cause::Tls);
        } else if let Some(error) = error.downcast_ref::<h2::Error>() {
            found = Some(match error.get_io() {
                Some(error) => Cause::Io(error.kind(), error.raw_os_error()),
                // What the peer says about a stream or the connection ends it; what h2 itself
                // found is a peer that breaks the protocol.
                None if error.is_remote() => Cause::Other(Outcome::Reset),
                None => Cause::Other(Outcome::ParseError),
            });
        } else if let Some(error) = error.downcast_ref::<hyper::Error>() {
            if error.is_parse() {
                found = Some(Cause::Other(Outcome::ParseError));
            } else if error.is_incomplete_message() {
                found = Some(Cause::Other(Outcome::EofEarly));
            }
        }
        next = error.source();
    }
    found
}

/// Every request of a plan, taken apart; `None` where slots make each one different.
pub(super) fn messages(plan: &LoadPlan) -> Result<Vec<Option<Message>>, Error> {
    (plan.requests.iter())
        .map(|request: &RequestTemplate| {
            let message = message(&plan.target, &request.bytes)?;
            Ok((!request.has_slots()).then_some(message))
        })
        .collect()
}
