//! A lane: one thread that accepts, serves and drains its own connections.
//!
//! Guarantee: nothing of a connection ever leaves its lane's thread. Out of
//! descriptors, a lane sleeps instead of spinning, and turns waiting peers
//! away with the one descriptor it keeps for that.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::StatusCode;
use rustls::ServerConfig;
use socket2::SockRef;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout, timeout_at};

use super::connection::{Connection, Protocol, close_with, discard, serve};
use super::date::Date;
use super::listener::{self, LaneListener, LaneSocket};
use super::memory::MemoryStream;
use super::running::Phase;
use super::scope::{self, Scope};
use super::stream::Transport;
use super::tls::{TlsBuffers, TlsStream};
use super::{Observer, ServerEvent};
use crate::collected::BodyMemory;
use crate::handler::FutureSlot;
use crate::limits::{Limits, Reject};
use crate::metrics::{LaneMetrics, Metrics};
use crate::middleware::{Builtins, Middleware};
use crate::problem::Problem;
use crate::request::Peer;
use crate::router::{RouteId, Router};

/// Bytes read from a socket at once: a maximal TLS record and change.
const SCRATCH_BYTES: usize = 32 * 1024;
/// Pause of a lane that is out of descriptors: at most ten attempts a second.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Shortest time between two reports of failed accepts.
const ACCEPT_REPORT_INTERVAL: Duration = Duration::from_secs(10);
/// Connections taken from a backlog when it is closed: Linux' `somaxconn`.
const MAX_LAST_ACCEPTS: usize = 4096;
/// How long connections are still accepted after a stop signal.
const LAST_CALL: Duration = Duration::from_millis(50);
/// How long handshakes that have begun by then may take.
const LAST_HANDSHAKES: Duration = Duration::from_millis(5);
/// Connections over the limit that a lane answers at the same time; further
/// ones are closed unanswered.
const MAX_REFUSALS: usize = 64;
/// Time to tell a peer that there are too many connections.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// What all lanes of a server share; read-only while they serve.
pub(super) struct App {
    pub(super) router: Router,
    pub(super) middleware: Vec<Box<dyn Middleware>>,
    pub(super) builtins: Builtins,
    pub(super) limits: Limits,
    pub(super) metrics: Arc<Metrics>,
    pub(super) tls: Option<Arc<ServerConfig>>,
    pub(super) num_connections: AtomicUsize,
    pub(super) body_memory: Arc<BodyMemory>,
    pub(super) patterns: Vec<String>,
    pub(super) observer: Option<Observer>,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").finish_non_exhaustive()
    }
}

impl App {
    /// Pattern of a matched route.
    pub(super) fn pattern(&self, route: RouteId) -> Option<&str> {
        self.patterns.get(route.0 as usize).map(String::as_str)
    }
}

/// State of one lane, shared by its tasks.
pub(super) struct Lane {
    pub(super) app: Arc<App>,
    metrics: Arc<LaneMetrics>,
    /// Where every socket of the lane is read into first.
    pub(super) scratch: RefCell<Box<[u8]>>,
    /// A buffer for the next response head.
    pub(super) output: Cell<Vec<u8>>,
    pub(super) date: Date,
    tls_buffers: Rc<TlsBuffers>,
    /// Empty slots for handler futures.
    pub(super) future_slots: RefCell<Vec<FutureSlot>>,
    pub(super) draining_since: Cell<Option<Instant>>,
    connections: RefCell<Vec<Option<Rc<Connection>>>>,
    free_slots: RefCell<Vec<usize>>,
    num_open: Cell<usize>,
    num_refusals: Cell<usize>,
    emptied: Notify,
    last_accept_report: Cell<Option<Instant>>,
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").finish_non_exhaustive()
    }
}

impl Lane {
    pub(super) fn new(app: Arc<App>, index: usize) -> Rc<Self> {
        let metrics = app.metrics.lane(index);
        Rc::new(Self {
            app,
            metrics,
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
            output: Cell::new(Vec::new()),
            date: Date::default(),
            tls_buffers: Rc::default(),
            future_slots: RefCell::new(Vec::new()),
            draining_since: Cell::new(None),
            connections: RefCell::new(Vec::new()),
            free_slots: RefCell::new(Vec::new()),
            num_open: Cell::new(0),
            num_refusals: Cell::new(0),
            emptied: Notify::new(),
            last_accept_report: Cell::new(None),
        })
    }

    pub(super) fn metrics(&self) -> &LaneMetrics {
        &self.metrics
    }

    /// Serves until the phase says to drain, then until empty or `grace`.
    ///
    /// Returns whether everything in flight was finished.
    pub(super) async fn run(
        self: Rc<Self>,
        listeners: Vec<Listener>,
        mut phase: watch::Receiver<Phase>,
    ) -> bool {
        for listener in listeners {
            // Taken here and not in the task: a drain may begin before it runs.
            let open = OpenGuard::new(&self);
            let accepting = Rc::clone(&self).accept(listener, phase.clone());
            tokio::task::spawn_local(async move {
                let _open = open;
                accepting.await;
            });
        }
        // An error means that the server is gone, which also ends the lane.
        drop(phase.wait_for(|phase| *phase != Phase::Serving).await);
        self.drain();
        let finished = timeout(self.app.limits.grace, self.wait_until_empty());
        let killed = phase.wait_for(|phase| *phase == Phase::Killed);
        let (mut finished, mut killed) = (pin!(finished), pin!(killed));
        poll_fn(|cx| {
            if let Poll::Ready(result) = finished.as_mut().poll(cx) {
                return Poll::Ready(result.is_ok());
            }
            killed.as_mut().poll(cx).map(|_| false)
        })
        .await
    }

    /// Lets every connection know that it should end.
    fn drain(&self) {
        self.draining_since.set(Some(Instant::now()));
        for connection in self.connections.borrow().iter().flatten() {
            connection.wake();
        }
    }

    async fn wait_until_empty(&self) {
        while self.num_open.get() > 0 {
            self.emptied.notified().await;
        }
    }

    /// Accepts until draining has found the backlog empty.
    async fn accept(self: Rc<Self>, listener: Listener, mut phase: watch::Receiver<Phase>) {
        let mut reserve = File::open("/dev/null").ok();
        loop {
            let next = {
                let mut changed = pin!(phase.changed());
                // The phase first: a flood of connections must not hide it.
                poll_fn(|cx| match changed.as_mut().poll(cx) {
                    Poll::Ready(_) => Poll::Ready(None),
                    Poll::Pending => listener.poll_accept(cx).map(Some),
                })
                .await
            };
            match next {
                Some(Ok(accepted)) => self.admit(accepted),
                Some(Err(error)) => self.accept_failed(&listener, &mut reserve, &error).await,
                None => break,
            }
        }
        // Clients that were on their way when the signal came are let in, then
        // the backlog itself is asked: the runtime's readiness may be stale.
        self.accept_for(LAST_CALL, &listener, &mut reserve).await;
        listener.refuse_newcomers();
        self.accept_for(LAST_HANDSHAKES, &listener, &mut reserve)
            .await;
        listener.close(|accepted| self.admit(accepted));
    }

    /// Accepts until `time` is over.
    async fn accept_for(
        self: &Rc<Self>,
        time: Duration,
        listener: &Listener,
        reserve: &mut Option<File>,
    ) {
        let end = Instant::now() + time;
        // The clock too: a flood of connections never lets the timer have its turn.
        while Instant::now() < end
            && let Ok(accepted) =
                timeout_at(end.into(), poll_fn(|cx| listener.poll_accept(cx))).await
        {
            match accepted {
                Ok(accepted) => self.admit(accepted),
                Err(error) => self.accept_failed(listener, reserve, &error).await,
            }
        }
    }

    /// Starts serving an accepted socket, or refuses it.
    pub(super) fn admit(self: &Rc<Self>, accepted: Accepted) {
        let open = OpenGuard::new(self);
        let taken = self.app.num_connections.fetch_add(1, Ordering::Relaxed);
        if taken >= self.app.limits.max_connections {
            self.app.num_connections.fetch_sub(1, Ordering::Relaxed);
            self.metrics.rejected(Reject::MaxConnections);
            return self.refuse(accepted, open);
        }
        let now = Instant::now();
        let tls = self.app.tls.clone();
        let lane = Rc::clone(self);
        match accepted {
            Accepted::Tcp(stream, peer) => match tls {
                None => {
                    let connection = Connection::new(lane, peer, false, now);
                    let slot = Slot::new(&connection, open);
                    tokio::task::spawn_local(async move {
                        let _slot = slot;
                        serve(stream, connection, Protocol::Sniffed).await;
                    });
                }
                Some(config) => {
                    let connection = Connection::new(lane, peer, true, now);
                    let slot = Slot::new(&connection, open);
                    tokio::task::spawn_local(async move {
                        let _slot = slot;
                        serve_tls(stream, connection, config, now).await;
                    });
                }
            },
            Accepted::Unix(stream) => {
                let connection = Connection::new(lane, Peer::Unix, false, now);
                let slot = Slot::new(&connection, open);
                tokio::task::spawn_local(async move {
                    let _slot = slot;
                    serve(stream, connection, Protocol::Sniffed).await;
                });
            }
            Accepted::Memory(stream, peer, is_tls, scope) => {
                let connection = Connection::new(lane, peer, is_tls, now);
                let slot = Slot::new(&connection, open);
                let serving = scope::within(scope, async move {
                    let _slot = slot;
                    serve(stream, connection, Protocol::Sniffed).await;
                });
                tokio::task::spawn_local(serving);
            }
        }
    }

    /// Says 503 to a peer beyond the connection limit, then closes.
    fn refuse(self: &Rc<Self>, accepted: Accepted, open: OpenGuard) {
        if self.app.tls.is_some() || self.num_refusals.get() >= MAX_REFUSALS {
            return;
        }
        match accepted {
            Accepted::Tcp(stream, _) => self.spawn_refusal(stream, open),
            Accepted::Unix(stream) => self.spawn_refusal(stream, open),
            Accepted::Memory(stream, ..) => self.spawn_refusal(stream, open),
        }
    }

    fn spawn_refusal<S: Transport>(self: &Rc<Self>, mut stream: S, open: OpenGuard) {
        self.num_refusals.set(self.num_refusals.get() + 1);
        let lane = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let _open = open;
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE)
                .with_detail("the server has as many connections as it takes")
                .with_limit(
                    "server.limits.max_connections",
                    lane.app.limits.max_connections as u64,
                );
            let answer = async {
                stream.write_all(&close_with(&problem)).await?;
                stream.shutdown().await?;
                discard(&mut stream).await
            };
            // A peer that does not take the refusal in time goes without.
            drop(timeout(REFUSAL_TIMEOUT, answer).await);
            lane.num_refusals.set(lane.num_refusals.get() - 1);
        });
    }

    /// Waits after a failed accept, so that no error can make the lane spin.
    async fn accept_failed(
        &self,
        listener: &Listener,
        reserve: &mut Option<File>,
        error: &io::Error,
    ) {
        self.metrics.accept_error();
        let kind = error.raw_os_error();
        if matches!(kind, Some(libc::ECONNABORTED | libc::EINTR | libc::EPROTO)) {
            return;
        }
        let now = Instant::now();
        let last = self.last_accept_report.get();
        if last.is_none_or(|last| now - last >= ACCEPT_REPORT_INTERVAL) {
            self.last_accept_report.set(Some(now));
            if let Some(observer) = &self.app.observer {
                observer(&ServerEvent::AcceptFailed { error });
            }
        }
        if matches!(kind, Some(libc::EMFILE | libc::ENFILE)) && reserve.take().is_some() {
            // With the reserve's descriptor one waiting peer learns at once
            // that it gets no connection.
            drop(poll_fn(|cx| Poll::Ready(listener.poll_accept(cx))).await);
        }
        sleep(ACCEPT_PAUSE).await;
        if reserve.is_none() {
            *reserve = File::open("/dev/null").ok();
        }
    }
}

/// Shakes hands, then serves the protocol that ALPN settled.
async fn serve_tls(
    stream: TcpStream,
    connection: Rc<Connection>,
    config: Arc<ServerConfig>,
    accepted: Instant,
) {
    let lane = Rc::clone(&connection.lane);
    let deadline = accepted + lane.app.limits.tls_handshake_timeout;
    let handshake = TlsStream::accept(stream, config, Rc::clone(&lane.tls_buffers));
    match timeout_at(deadline.into(), handshake).await {
        Ok(Ok(stream)) => {
            let protocol = match stream.alpn_protocol() {
                Some(b"h2") => Protocol::Http2,
                _ => Protocol::Http1,
            };
            connection.open();
            serve(stream, connection, protocol).await;
        }
        Ok(Err(_)) => lane.metrics.rejected(Reject::TlsHandshake),
        Err(_) => lane.metrics.rejected(Reject::TlsHandshakeTimeout),
    }
}

/// Keeps a lane from counting as empty.
#[derive(Debug)]
struct OpenGuard(Rc<Lane>);

impl OpenGuard {
    fn new(lane: &Rc<Lane>) -> Self {
        lane.num_open.set(lane.num_open.get() + 1);
        Self(Rc::clone(lane))
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        let open = self.0.num_open.get() - 1;
        self.0.num_open.set(open);
        if open == 0 {
            self.0.emptied.notify_one();
        }
    }
}

/// A connection's place in its lane and in the server's connection limit.
#[derive(Debug)]
struct Slot {
    index: usize,
    open: OpenGuard,
}

impl Slot {
    fn new(connection: &Rc<Connection>, open: OpenGuard) -> Self {
        let lane = &open.0;
        lane.metrics.connection_opened();
        let mut connections = lane.connections.borrow_mut();
        let entry = Some(Rc::clone(connection));
        let index = match lane.free_slots.borrow_mut().pop() {
            Some(index) => {
                connections[index] = entry;
                index
            }
            None => {
                connections.push(entry);
                connections.len() - 1
            }
        };
        drop(connections);
        Self { index, open }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let lane = &self.open.0;
        lane.connections.borrow_mut()[self.index] = None;
        lane.free_slots.borrow_mut().push(self.index);
        lane.app.num_connections.fetch_sub(1, Ordering::Relaxed);
        lane.metrics.connection_closed();
    }
}

/// A listening socket in the lane's runtime.
#[derive(Debug)]
pub(super) struct Listener {
    socket: Socket,
    is_inherited: bool,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A connection that has been accepted.
#[derive(Debug)]
pub(super) enum Accepted {
    Tcp(TcpStream, Peer),
    Unix(UnixStream),
    /// From a client in this process; whether it counts as secure, and the
    /// scope of its server, which may share the thread with others.
    Memory(MemoryStream, Peer, bool, Rc<Scope>),
}

impl Listener {
    /// Registers a bound socket with the current thread's runtime.
    pub(super) fn register(listener: LaneListener) -> io::Result<Self> {
        Ok(Self {
            socket: match listener.socket {
                LaneSocket::Tcp(socket) => Socket::Tcp(TcpListener::from_std(socket)?),
                LaneSocket::Unix(socket) => Socket::Unix(UnixListener::from_std(socket)?),
            },
            is_inherited: listener.is_inherited,
        })
    }

    /// Lets nobody new in, where the socket is the lane's own.
    fn refuse_newcomers(&self) {
        if let (Socket::Tcp(listener), false) = (&self.socket, self.is_inherited) {
            listener::refuse_newcomers(&SockRef::from(listener));
        }
    }

    /// Accepts what the backlog still holds, then closes the socket.
    ///
    /// An inherited socket's backlog stays for the others that have it.
    fn close(self, mut admit: impl FnMut(Accepted)) {
        if self.is_inherited {
            return;
        }
        match self.socket {
            Socket::Tcp(listener) => {
                let Ok(listener) = listener.into_std() else {
                    return;
                };
                for _ in 0..MAX_LAST_ACCEPTS {
                    let Ok((stream, address)) = listener.accept() else {
                        return;
                    };
                    if stream.set_nonblocking(true).is_ok()
                        && let Ok(stream) = TcpStream::from_std(stream)
                    {
                        admit(Accepted::Tcp(stream, Peer::Tcp(address)));
                    }
                }
            }
            Socket::Unix(listener) => {
                let Ok(listener) = listener.into_std() else {
                    return;
                };
                for _ in 0..MAX_LAST_ACCEPTS {
                    let Ok((stream, _)) = listener.accept() else {
                        return;
                    };
                    if stream.set_nonblocking(true).is_ok()
                        && let Ok(stream) = UnixStream::from_std(stream)
                    {
                        admit(Accepted::Unix(stream));
                    }
                }
            }
        }
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Accepted>> {
        match &self.socket {
            Socket::Tcp(listener) => listener.poll_accept(cx).map(|accepted| {
                accepted.map(|(stream, address)| Accepted::Tcp(stream, Peer::Tcp(address)))
            }),
            Socket::Unix(listener) => listener
                .poll_accept(cx)
                .map(|accepted| accepted.map(|(stream, _)| Accepted::Unix(stream))),
        }
    }
}
