//! Asks a server for its page of metrics, over one connection that is kept.
//!
//! Guarantee: as long as the server keeps the connection, the same process answers, whatever number
//! of workers share its address. A page is bounded in size and time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{ACCEPT, HOST};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use super::exposition::{Exposition, NotPrometheus};
use crate::load::{Address, Target};

/// Limit for the size of a page: that of a server with many thousand routes.
const MAX_PAGE_BYTES: usize = 16 * 1024 * 1024;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScrapeFailure {
    /// No connection, or none that lasted.
    #[error("no answer: {0}")]
    NoAnswer(#[from] io::Error),
    /// Another status than 200.
    #[error("status {0}")]
    Status(u16),
    /// More bytes than any page has.
    #[error("longer than {MAX_PAGE_BYTES} bytes")]
    TooLong,
    /// Something else than metrics.
    #[error("not Prometheus text, {0}")]
    NotPrometheus(#[from] NotPrometheus),
}

/// Looks at one page again and again.
#[derive(Debug)]
pub struct Scraper {
    runtime: Runtime,
    target: Target,
    path: String,
    connection: Option<SendRequest<Empty<Bytes>>>,
}

trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

impl Scraper {
    /// A scraper of `path` at `target`; nothing is connected yet.
    ///
    /// # Errors
    ///
    /// The system has no descriptors left.
    pub fn new(target: Target, path: String) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Self {
            runtime,
            target,
            path,
            connection: None,
        })
    }

    /// Path of the page.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Reads the page as it is now, within `limit`.
    ///
    /// # Errors
    ///
    /// [`ScrapeFailure`] says how far it came.
    pub fn scrape(&mut self, limit: Duration) -> Result<Exposition, ScrapeFailure> {
        let Self {
            runtime,
            target,
            path,
            connection,
        } = self;
        let page = runtime.block_on(async {
            let work = page(target, path, connection);
            let timed_out = |_| io::Error::from(io::ErrorKind::TimedOut);
            tokio::time::timeout(limit, work).await.map_err(timed_out)
        });
        let page = match page {
            Ok(page) => page?,
            Err(timed_out) => {
                // Its answer may come yet, and would be taken for the next one.
                self.connection = None;
                return Err(timed_out.into());
            }
        };
        let text = String::from_utf8(page).map_err(|_| NotPrometheus {
            line: 1,
            problem: "the page is not UTF-8",
        })?;
        Ok(Exposition::parse(&text)?)
    }
}

/// Asks on the connection that there is; a new one is made where it has ended.
async fn page(
    target: &Target,
    path: &str,
    connection: &mut Option<SendRequest<Empty<Bytes>>>,
) -> Result<Vec<u8>, ScrapeFailure> {
    if let Some(mut kept) = connection.take()
        && kept.ready().await.is_ok()
        && let Ok(answer) = kept.send_request(request(target, path)?).await
    {
        let page = read(answer).await?;
        *connection = Some(kept);
        return Ok(page);
    }
    let mut fresh = connect(target).await?;
    let sent = fresh.send_request(request(target, path)?).await;
    let page = read(sent.map_err(io::Error::other)?).await?;
    *connection = Some(fresh);
    Ok(page)
}

fn request(target: &Target, path: &str) -> io::Result<Request<Empty<Bytes>>> {
    Request::get(path)
        .header(HOST, &target.host)
        .header(ACCEPT, "text/plain; version=0.0.4")
        .body(Empty::new())
        .map_err(io::Error::other)
}

async fn read(answer: hyper::Response<hyper::body::Incoming>) -> Result<Vec<u8>, ScrapeFailure> {
    let status = answer.status().as_u16();
    if status != 200 {
        return Err(ScrapeFailure::Status(status));
    }
    let mut body = answer.into_body();
    let mut page = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(io::Error::other)?;
        if let Ok(bytes) = frame.into_data() {
            page.extend_from_slice(&bytes);
        }
        if page.len() > MAX_PAGE_BYTES {
            return Err(ScrapeFailure::TooLong);
        }
    }
    Ok(page)
}

async fn connect(target: &Target) -> io::Result<SendRequest<Empty<Bytes>>> {
    let socket: Box<dyn Socket> = match &target.address {
        Address::Tcp(address) => {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Box::new(stream)
        }
        Address::Unix(path) => Box::new(UnixStream::connect(path).await?),
    };
    let stream: Box<dyn Socket> = match &target.tls {
        Some(tls) => {
            let connector = TlsConnector::from(Arc::clone(&tls.config));
            let name = tls.server_name.clone();
            Box::new(connector.connect(name, socket).await?)
        }
        None => socket,
    };
    let (sender, driver) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    tokio::spawn(async move {
        // How it ended is told to whoever waits for an answer.
        drop(driver.await);
    });
    Ok(sender)
}
