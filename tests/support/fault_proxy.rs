//! A TCP proxy that does to a connection what networks do: cuts its bytes
//! small, delays them, stalls, half-closes, closes, resets.
//!
//! Guarantee: the bytes that pass are those that came, in their order.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often a waiting direction looks whether its connection is over.
const LOOK: Duration = Duration::from_millis(5);

/// What happens to the bytes of one direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    /// Bytes that pass at once.
    pub(crate) piece_bytes: usize,
    /// Time before each piece.
    pub(crate) delay: Duration,
    /// After so many bytes, what happens instead of the next one.
    pub(crate) cut: Option<(usize, Cut)>,
}

/// How a direction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Nothing passes any more, and nobody is told.
    Stall,
    /// The receiver sees the end; the other direction goes on.
    HalfClose,
    /// Both sides see the end.
    Close,
    /// The receiver sees a reset.
    Reset,
}

impl Faults {
    /// All passes as it comes.
    pub(crate) const NONE: Self = Self {
        piece_bytes: usize::MAX,
        delay: Duration::ZERO,
        cut: None,
    };

    /// All passes in pieces of this size.
    pub(crate) const fn pieces(piece_bytes: usize) -> Self {
        Self {
            piece_bytes,
            ..Self::NONE
        }
    }

    /// All passes up to a byte, where it is cut.
    pub(crate) const fn cut(after_bytes: usize, cut: Cut) -> Self {
        Self {
            cut: Some((after_bytes, cut)),
            ..Self::NONE
        }
    }
}

/// A proxy in front of one server, with the same faults for each connection.
pub(crate) struct FaultProxy {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl FaultProxy {
    /// Starts on a free port of 127.0.0.1.
    pub(crate) fn start(server: SocketAddr, to_server: Faults, to_client: Faults) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = listener.local_addr().expect("a bound socket");
        let is_over = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&is_over);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let upstream = TcpStream::connect(server);
                // A server that takes no connection shows as one that closes.
                if let Ok(upstream) = upstream {
                    join(client, upstream, to_server, to_client, &stop);
                }
            }
        });
        Self { address, is_over }
    }

    /// Where clients connect.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts; it may have ended by itself.
        drop(TcpStream::connect(self.address));
    }
}

/// One connection's two sockets, closed when both directions are done with them.
struct Pair {
    client: TcpStream,
    server: TcpStream,
    is_over: AtomicBool,
    is_proxy_over: Arc<AtomicBool>,
}

fn join(
    client: TcpStream,
    server: TcpStream,
    to_server: Faults,
    to_client: Faults,
    is_proxy_over: &Arc<AtomicBool>,
) {
    for socket in [&client, &server] {
        socket.set_nodelay(true).expect("an open socket");
        let timeouts = socket
            .set_read_timeout(Some(LOOK))
            .and_then(|()| socket.set_write_timeout(Some(LOOK)));
        timeouts.expect("an open socket");
    }
    let pair = Arc::new(Pair {
        client,
        server,
        is_over: AtomicBool::new(false),
        is_proxy_over: Arc::clone(is_proxy_over),
    });
    let other = Arc::clone(&pair);
    std::thread::spawn(move || pair.pump(&pair.client, &pair.server, to_server));
    std::thread::spawn(move || other.pump(&other.server, &other.client, to_client));
}

impl Pair {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst) || self.is_proxy_over.load(Ordering::SeqCst)
    }

    /// Moves bytes until one side ends or the cut.
    fn pump(&self, mut from: &TcpStream, to: &TcpStream, faults: Faults) {
        let mut left = faults
            .cut
            .map_or(usize::MAX, |(after_bytes, _)| after_bytes);
        let mut buffer = [0; 16 * 1024];
        while !self.is_over() {
            if left == 0 {
                return self.cut(to, faults.cut.map(|(_, cut)| cut));
            }
            let room = buffer.len().min(left);
            match from.read(&mut buffer[..room]) {
                Ok(0) => {
                    // The receiver may have left before.
                    drop(to.shutdown(Shutdown::Write));
                    return;
                }
                Ok(length) => {
                    left -= length;
                    for piece in buffer[..length].chunks(faults.piece_bytes) {
                        // The network's pace, not a wait for the server.
                        std::thread::sleep(faults.delay);
                        if self.pass_on(to, piece).is_err() {
                            self.is_over.store(true, Ordering::SeqCst);
                            return;
                        }
                    }
                }
                Err(error) if is_wait(&error) => {}
                Err(_) => self.is_over.store(true, Ordering::SeqCst),
            }
        }
    }

    fn pass_on(&self, mut to: &TcpStream, mut piece: &[u8]) -> io::Result<()> {
        while !piece.is_empty() {
            if self.is_over() {
                return Err(ErrorKind::BrokenPipe.into());
            }
            match to.write(piece) {
                Ok(length) => piece = &piece[length..],
                Err(error) if is_wait(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn cut(&self, to: &TcpStream, cut: Option<Cut>) {
        match cut {
            Some(Cut::HalfClose) => drop(to.shutdown(Shutdown::Write)),
            Some(Cut::Reset) => {
                rustix::net::sockopt::set_socket_linger(to, Some(Duration::ZERO))
                    .expect("linger can be set on a socket");
                self.is_over.store(true, Ordering::SeqCst);
            }
            Some(Cut::Close) => self.is_over.store(true, Ordering::SeqCst),
            Some(Cut::Stall) | None => {
                while !self.is_over() {
                    std::thread::sleep(LOOK);
                }
            }
        }
    }
}

fn is_wait(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}
