//! Connections of one lane to one upstream.
//!
//! Guarantees: a lane has at most the configured number of them; a connection
//! that is dropped in the middle of an exchange is closed, never used again;
//! everything runs on the lane's own thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use std::{fmt, io};

use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::body::RequestBody;
use super::target::{Place, Upstream};

/// Idle connections that a lane keeps for one upstream.
const MAX_IDLE_CONNECTIONS: usize = 32;
/// How long an idle connection is kept: below the 5 s after which Node.js and
/// uvicorn close theirs, so that requests seldom meet a closing one.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// Header lines of an upstream's response; as of a request.
const MAX_RESPONSE_HEADERS: usize = 100;
/// Head of an upstream's response, and what is read of its body at a time;
/// hyper's buffer may grow to twice that before it looks.
const MAX_RESPONSE_BUFFER_BYTES: usize = 64 * 1024;
/// How long a Unix socket whose backlog is full is left alone: an upstream
/// that accepts makes room within less.
const FULL_BACKLOG_PAUSE: Duration = Duration::from_millis(5);

/// Why there is no connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConnectError {
    /// The lane has as many as it may have.
    Full,
    /// No address took the connection.
    Refused,
    /// No TLS with it, or its certificate is not believed.
    Insecure,
    /// No answer in time.
    TimedOut,
}

#[derive(Default)]
struct LanePool {
    idle: Vec<Connection>,
    num_open: Arc<AtomicUsize>,
}

thread_local! {
    /// By number of the proxy.
    static POOLS: RefCell<HashMap<u32, LanePool>> = RefCell::new(HashMap::new());
}

/// An open connection to an upstream; closed when dropped.
pub(super) struct Connection {
    pub(super) sender: SendRequest<RequestBody>,
    /// Whether it has carried an exchange before this one.
    pub(super) is_reused: bool,
    proxy: u32,
    driver: AbortHandle,
    num_received: Arc<AtomicU64>,
    idle_since: Instant,
    /// Held by the driver too: whichever ends last gives it back.
    _permit: Arc<Permit>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("is_reused", &self.is_reused)
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// The idle connection that was used last, if one is still good.
    pub(super) async fn take(proxy: u32) -> Option<Self> {
        loop {
            // The borrow ends before a connection is dropped or awaited.
            let popped = POOLS.with(|pools| pools.borrow_mut().get_mut(&proxy)?.idle.pop());
            let mut connection = popped?;
            if connection.idle_since.elapsed() < IDLE_TIMEOUT
                && !connection.sender.is_closed()
                && connection.sender.ready().await.is_ok()
            {
                connection.is_reused = true;
                return Some(connection);
            }
        }
    }

    /// Opens a connection, trying each address in turn.
    pub(super) async fn open(
        proxy: u32,
        upstream: &Upstream,
        tls: Option<&TlsConnector>,
        max_connections: usize,
        limit: Duration,
    ) -> Result<Self, ConnectError> {
        let permit = Permit::take(proxy, max_connections).ok_or(ConnectError::Full)?;
        let opened = timeout(limit, async {
            let addresses = match &upstream.place {
                Place::Tcp(addresses) => addresses,
                Place::Unix(path) => {
                    let stream = connect_unix(path).await;
                    let stream = stream.map_err(|_| ConnectError::Refused)?;
                    return Self::start(proxy, stream, permit).await;
                }
            };
            let stream = connect(addresses).await;
            let stream = stream.map_err(|_| ConnectError::Refused)?;
            let (Some(tls), Some(name)) = (tls, &upstream.tls_name) else {
                return Self::start(proxy, stream, permit).await;
            };
            let stream = tls
                .connect(name.clone(), stream)
                .await
                .map_err(|_| ConnectError::Insecure)?;
            Self::start(proxy, stream, permit).await
        });
        opened.await.unwrap_or(Err(ConnectError::TimedOut))
    }

    /// Begins to speak HTTP/1.1 on a byte stream.
    async fn start<S>(proxy: u32, stream: S, permit: Permit) -> Result<Self, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let num_received = Arc::new(AtomicU64::new(0));
        let counted = Counted {
            stream,
            num_received: Arc::clone(&num_received),
        };
        let (sender, driver) = http1::Builder::new()
            .max_headers(MAX_RESPONSE_HEADERS)
            .max_buf_size(MAX_RESPONSE_BUFFER_BYTES)
            .handshake(TokioIo::new(counted))
            .await
            .map_err(|_| ConnectError::Refused)?;
        let permit = Arc::new(permit);
        let driven = Arc::clone(&permit);
        let driver = tokio::spawn(async move {
            // Its failure reaches the exchange that is under way.
            drop(driver.with_upgrades().await);
            drop(driven);
        });
        Ok(Self {
            sender,
            is_reused: false,
            proxy,
            driver: driver.abort_handle(),
            num_received,
            idle_since: Instant::now(),
            _permit: permit,
        })
    }

    /// Bytes that the upstream has sent on it so far.
    pub(super) fn num_received(&self) -> u64 {
        self.num_received.load(Ordering::Relaxed)
    }

    /// Keeps the connection for the lane's next request.
    pub(super) fn put(mut self) {
        if self.sender.is_closed() {
            return;
        }
        self.idle_since = Instant::now();
        let surplus = POOLS.try_with(|pools| {
            let mut pools = pools.borrow_mut();
            let idle = &mut pools.entry(self.proxy).or_default().idle;
            idle.push(self);
            (idle.len() > MAX_IDLE_CONNECTIONS).then(|| idle.remove(0))
        });
        // Closed outside of the borrow.
        drop(surplus);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::ErrorKind::NotFound.into();
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Without it a small body may wait for an acknowledgement:
                // slower, and not worth failing.
                drop(stream.set_nodelay(true));
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects once there is room: unlike TCP, a Unix socket does not have a
/// newcomer wait, but says `EAGAIN` (connect(2)).
async fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                sleep(FULL_BACKLOG_PAUSE).await;
            }
            connected => return connected,
        }
    }
}

/// The right to one open connection.
#[derive(Debug)]
struct Permit(Arc<AtomicUsize>);

impl Permit {
    fn take(proxy: u32, max: usize) -> Option<Self> {
        let num_open = POOLS.with(|pools| {
            let mut pools = pools.borrow_mut();
            if !pools.contains_key(&proxy) {
                // Proxies come and go; what is left of those that have gone is empty by now.
                pools.retain(|_, pool| pool.num_open.load(Ordering::Relaxed) > 0);
            }
            Arc::clone(&pools.entry(proxy).or_default().num_open)
        });
        (num_open.load(Ordering::Relaxed) < max).then(|| {
            num_open.fetch_add(1, Ordering::Relaxed);
            Self(num_open)
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that counts what it receives.
struct Counted<S> {
    stream: S,
    num_received: Arc<AtomicU64>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let received = (buffer.filled().len() - before) as u64;
        self.num_received.fetch_add(received, Ordering::Relaxed);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future as _, poll_fn};
    use std::pin::pin;

    use socket2::{Domain, SockAddr, Socket, Type};

    use super::*;

    /// A Unix socket whose backlog is full, and those that fill it.
    fn full(path: &Path) -> (Socket, Vec<Socket>) {
        let address = SockAddr::unix(path).expect("a short path");
        let listener = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
        listener.bind(&address).expect("a free path");
        listener.listen(1).expect("a bound socket");
        listener.set_nonblocking(true).expect("a socket option");
        let mut waiting = Vec::new();
        loop {
            let one = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
            one.set_nonblocking(true).expect("a socket option");
            match one.connect(&address) {
                Ok(()) => waiting.push(one),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => panic!("no connection: {error}"),
            }
        }
        (listener, waiting)
    }

    #[test]
    fn a_full_backlog_is_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(wait_for_a_full_backlog());
    }

    async fn wait_for_a_full_backlog() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let (listener, waiting) = full(&path);
        let upstream = Upstream::unix(path);
        let soon = Duration::from_millis(50);
        let opened = Connection::open(u32::MAX, &upstream, None, 10, soon).await;
        assert_eq!(opened.err(), Some(ConnectError::TimedOut));
        let limit = Duration::from_mins(1);
        let mut open = pin!(Connection::open(u32::MAX, &upstream, None, 10, limit));
        let first = poll_fn(|cx| Poll::Ready(open.as_mut().poll(cx))).await;
        assert!(first.is_pending(), "{first:?}");
        for _ in &waiting {
            listener.accept().expect("one that waits");
        }
        let opened = open.await;
        assert!(opened.is_ok(), "{opened:?}");
    }
}
