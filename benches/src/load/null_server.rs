//! A server that does nothing but answer, to learn how fast the client is without one.
//!
//! It reads a request as far as it must to know where it ends, and sends the same bytes every
//! time: one receive and one send for each, from one thread. What a run against it reaches is
//! the ceiling of the client on this machine.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use memchr::memmem::Finder;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use super::thread::pin;
use crate::Error;

/// Longest wait for events: the delay with which the end is seen.
const MAX_WAIT: Duration = Duration::from_millis(20);

/// Bytes received at once.
const RECEIVE_BYTES: usize = 64 * 1024;

/// Longest request head that is looked through.
const MAX_HEAD_BYTES: usize = 64 * 1024;

const LISTENER: Token = Token(usize::MAX);

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub struct NullServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NullServer {
    /// Listens on a free port of 127.0.0.1 and answers with `status` and as many bytes.
    ///
    /// `cpu` pins its thread.
    ///
    /// # Errors
    ///
    /// [`Error::LoadThread`] if the system refuses a socket or a thread.
    pub fn start(status: u16, body_bytes: u64, cpu: Option<usize>) -> Result<Self, Error> {
        Self::start_on(([127, 0, 0, 1], 0).into(), status, body_bytes, cpu)
    }

    /// Listens on `address` and answers with `status` and as many bytes, as [`NullServer::start`]
    /// does.
    ///
    /// # Errors
    ///
    /// [`Error::LoadThread`] if the system refuses a socket or a thread.
    pub fn start_on(
        address: SocketAddr,
        status: u16,
        body_bytes: u64,
        cpu: Option<usize>,
    ) -> Result<Self, Error> {
        let failed = |operation| move |source| Error::LoadThread { operation, source };
        let listener = TcpListener::bind(address).map_err(failed("listen in"))?;
        let address = listener.local_addr().map_err(failed("listen in"))?;
        let poll = Poll::new().map_err(failed("create a poll for"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut server = Serving {
            poll,
            listener,
            peers: Vec::new(),
            free: Vec::new(),
            response: response(status, body_bytes),
            head_end: Finder::new(b"\r\n\r\n").into_owned(),
            buffer: vec![0; RECEIVE_BYTES],
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("null-server".to_owned())
            .spawn(move || {
                // Where it may not be pinned it is slower, and the ceiling that it finds lower.
                cpu.map(pin).transpose().ok();
                server.run(&stopped);
            })
            .map_err(failed("start"))?;
        Ok(Self {
            address,
            stop,
            thread: Some(thread),
        })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for NullServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed; the measurement shows it as well.
            drop(thread.join());
        }
    }
}

struct Serving {
    poll: Poll,
    listener: TcpListener,
    peers: Vec<Option<Peer>>,
    free: Vec<usize>,
    response: Response,
    head_end: Finder<'static>,
    buffer: Vec<u8>,
}

struct Peer {
    stream: TcpStream,
    /// Start of a head that did not arrive in one piece.
    partial: Vec<u8>,
    /// Bytes of a request body that are still to come.
    body: u64,
    /// Whether the request in question is answered without a body.
    is_head: bool,
    /// What the socket did not take.
    unsent: Vec<u8>,
}

struct Response {
    bytes: Vec<u8>,
    head_bytes: usize,
}

fn response(status: u16, body_bytes: u64) -> Response {
    let has_body = !matches!(status, 100..200 | 204 | 304);
    let length = if has_body {
        format!("content-length: {body_bytes}\r\n")
    } else {
        String::new()
    };
    let mut bytes = format!("HTTP/1.1 {status} OK\r\n{length}\r\n").into_bytes();
    let head_bytes = bytes.len();
    if has_body {
        let body_bytes = usize::try_from(body_bytes).unwrap_or(usize::MAX);
        bytes.resize(head_bytes.saturating_add(body_bytes), b'x');
    }
    Response { bytes, head_bytes }
}

impl Serving {
    fn run(&mut self, stop: &AtomicBool) {
        let interest = Interest::READABLE;
        if (self.poll.registry())
            .register(&mut self.listener, LISTENER, interest)
            .is_err()
        {
            return;
        }
        let mut events = Events::with_capacity(1024);
        while !stop.load(Ordering::Relaxed) {
            match self.poll.poll(&mut events, Some(MAX_WAIT)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return,
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept(),
                    Token(index) => {
                        let is_alive = self.advance(index).is_ok();
                        if !is_alive && self.peers[index].take().is_some() {
                            self.free.push(index);
                        }
                    }
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((mut stream, _)) = self.listener.accept() {
            let index = self.free.pop().unwrap_or_else(|| {
                self.peers.push(None);
                self.peers.len() - 1
            });
            let interest = Interest::READABLE | Interest::WRITABLE;
            let is_watched = stream.set_nodelay(true).is_ok()
                && (self.poll.registry())
                    .register(&mut stream, Token(index), interest)
                    .is_ok();
            if is_watched {
                self.peers[index] = Some(Peer {
                    stream,
                    partial: Vec::new(),
                    body: 0,
                    is_head: false,
                    unsent: Vec::new(),
                });
            } else {
                self.free.push(index);
            }
        }
    }

    /// Answers what has come; an error is the end of the connection.
    fn advance(&mut self, index: usize) -> io::Result<()> {
        let Some(peer) = &mut self.peers[index] else {
            return Ok(());
        };
        peer.flush()?;
        loop {
            let length = match peer.stream.read(&mut self.buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            peer.take(&self.buffer[..length], &self.head_end, &self.response)?;
            if length < self.buffer.len() {
                return Ok(());
            }
        }
    }
}

impl Peer {
    fn take(
        &mut self,
        mut input: &[u8],
        head_end: &Finder<'_>,
        response: &Response,
    ) -> io::Result<()> {
        while !input.is_empty() {
            if self.body > 0 {
                let taken = usize::try_from(self.body).map_or(input.len(), |b| b.min(input.len()));
                input = &input[taken..];
                self.body -= taken as u64;
                if self.body == 0 {
                    self.answer(response)?;
                }
                continue;
            }
            if self.partial.is_empty()
                && let Some(end) = head_end.find(input)
            {
                let (head, rest) = input.split_at(end + 4);
                self.read_head(head)?;
                input = rest;
            } else {
                let stored = self.partial.len();
                self.partial.extend_from_slice(input);
                let Some(end) = head_end.find(&self.partial) else {
                    if self.partial.len() > MAX_HEAD_BYTES {
                        return Err(io::ErrorKind::InvalidData.into());
                    }
                    return Ok(());
                };
                let head = std::mem::take(&mut self.partial);
                self.read_head(&head[..end + 4])?;
                input = &input[end + 4 - stored..];
            }
            if self.body == 0 {
                self.answer(response)?;
            }
        }
        Ok(())
    }

    fn read_head(&mut self, head: &[u8]) -> io::Result<()> {
        self.is_head = head.starts_with(b"HEAD ");
        self.body = 0;
        // What has no body in practice is not looked at.
        if head.starts_with(b"GET ") {
            return Ok(());
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        request
            .parse(head)
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let length = (request.headers.iter())
            .find(|header| header.name.eq_ignore_ascii_case("content-length"))
            .and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
        self.body = length.unwrap_or(0);
        Ok(())
    }

    fn answer(&mut self, response: &Response) -> io::Result<()> {
        let bytes = if self.is_head {
            &response.bytes[..response.head_bytes]
        } else {
            &response.bytes
        };
        if self.unsent.is_empty() {
            let sent = match self.stream.write(bytes) {
                Ok(sent) => sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error),
            };
            self.unsent.extend_from_slice(&bytes[sent..]);
        } else {
            self.unsent.extend_from_slice(bytes);
        }
        self.flush()
    }

    fn flush(&mut self) -> io::Result<()> {
        while !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
