//! A non-blocking byte stream to the server: TCP or Unix, plain or TLS.
//!
//! It guarantees one receive system call per [`Transport::receive`], and it says
//! whether that call drained the socket, so that edge-triggered readiness needs no
//! second call that only finds it empty.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use mio::net::{TcpStream, UnixStream};
use mio::{Interest, Registry, Token};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::{ClientConfig, ClientConnection};

use super::outcome::Outcome;
use super::target::{Address, Target};

/// Bytes asked for in one receive call.
///
/// Four TLS records or one large kernel segment; a fuller socket is read again.
const RECEIVE_BYTES: usize = 64 * 1024;

/// Bytes dropped in one receive call.
///
/// What a socket holds at most on loopback is of this size; a fuller one is read again.
const DISCARD_BYTES: usize = 1024 * 1024;

/// Receive buffers, one set per thread.
#[derive(Debug)]
pub(super) struct Buffers {
    wire: Vec<u8>,
    /// What stands for bytes that were dropped: zeros that nobody writes or reads.
    dropped: Vec<u8>,
    decrypted: Vec<u8>,
}

impl Buffers {
    pub(super) fn new() -> Self {
        Self {
            wire: vec![0; RECEIVE_BYTES],
            dropped: Vec::new(),
            decrypted: Vec::new(),
        }
    }
}

/// What one receive call gave.
#[derive(Debug)]
pub(super) enum Received<'a> {
    /// Application bytes, maybe none.
    Bytes {
        bytes: &'a [u8],
        /// The socket was empty afterwards.
        drained: bool,
        /// The peer said that no more will follow.
        ended: bool,
    },
    /// Nothing to receive.
    WouldBlock,
    /// End of the stream; `clean` unless TLS was cut without its close alert.
    End { clean: bool },
}

/// Why a stream failed.
#[derive(Debug)]
pub(super) enum TransportError {
    Io(io::Error),
    Tls,
}

impl TransportError {
    /// Class of a failure after the connection was there.
    pub(super) const fn request_outcome(&self) -> Outcome {
        match self {
            Self::Tls => Outcome::TlsError,
            Self::Io(_) => Outcome::Reset,
        }
    }

    /// Class of a failure to connect.
    pub(super) fn connect_outcome(&self) -> Outcome {
        let error = match self {
            Self::Tls => return Outcome::TlsError,
            Self::Io(error) => error,
        };
        match Errno::from_io_error(error) {
            // This machine ran out of ports, descriptors or memory: no server failed.
            Some(
                Errno::ADDRNOTAVAIL | Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM,
            ) => Outcome::NotSent,
            Some(Errno::TIMEDOUT) => Outcome::ConnectTimeout,
            Some(Errno::CONNRESET | Errno::CONNABORTED | Errno::PIPE) => Outcome::Reset,
            // Refused, unreachable, no such socket, a Unix backlog that is full.
            _ => Outcome::ConnectRefused,
        }
    }
}

impl From<io::Error> for TransportError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// A stream to the target.
#[derive(Debug)]
pub(super) struct Transport {
    socket: Socket,
    token: Token,
    interest: Interest,
    tls: Option<Box<ClientConnection>>,
    peer_closed_tls: bool,
}

impl Transport {
    /// Starts to connect; a Unix socket is connected when this returns.
    pub(super) fn open(
        target: &Target,
        tls_config: Option<&Arc<ClientConfig>>,
        registry: &Registry,
        token: Token,
    ) -> Result<Self, TransportError> {
        let tls = match (&target.tls, tls_config) {
            (Some(tls), Some(config)) => {
                let name = tls.server_name.clone();
                let connection = ClientConnection::new(Arc::clone(config), name);
                Some(Box::new(connection.map_err(|_| TransportError::Tls)?))
            }
            _ => None,
        };
        let (mut socket, interest) = match &target.address {
            Address::Tcp(address) => {
                // TCP wakes a writer only after a write that found no room, so the
                // interest in writing costs nothing and never has to be changed.
                let interest = Interest::READABLE | Interest::WRITABLE;
                (Socket::Tcp(TcpStream::connect(*address)?), interest)
            }
            Address::Unix(path) => (Socket::Unix(UnixStream::connect(path)?), Interest::READABLE),
        };
        match &mut socket {
            Socket::Tcp(stream) => registry.register(stream, token, interest)?,
            Socket::Unix(stream) => registry.register(stream, token, interest)?,
        }
        Ok(Self {
            socket,
            token,
            interest,
            tls,
            peer_closed_tls: false,
        })
    }

    /// Finishes the connection; false if it is still under way.
    pub(super) fn finish_connect(&self) -> io::Result<bool> {
        let Socket::Tcp(stream) = &self.socket else {
            return Ok(true);
        };
        if let Some(error) = stream.take_error()? {
            return Err(error);
        }
        match stream.peer_addr() {
            Ok(_) => {
                stream.set_nodelay(true)?;
                Ok(true)
            }
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes the close of the socket a reset: what the peer still sends has nobody to read it.
    pub(super) fn reset_on_close(&self) {
        if let Socket::Tcp(stream) = &self.socket {
            // Without it the peer only learns later; there is nothing else to do about it.
            socket2::SockRef::from(stream)
                .set_linger(Some(std::time::Duration::ZERO))
                .ok();
        }
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_handshaking())
    }

    /// Receives once into `buffers`.
    pub(super) fn receive<'a>(
        &mut self,
        buffers: &'a mut Buffers,
    ) -> Result<Received<'a>, TransportError> {
        let length = loop {
            match self.socket.read(&mut buffers.wire) {
                Ok(0) => {
                    let clean = self.tls.is_none() || self.peer_closed_tls;
                    return Ok(Received::End { clean });
                }
                Ok(length) => break length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Received::WouldBlock);
                }
                Err(error) => return Err(error.into()),
            }
        };
        let drained = length < buffers.wire.len();
        let Some(tls) = &mut self.tls else {
            return Ok(Received::Bytes {
                bytes: &buffers.wire[..length],
                drained,
                ended: false,
            });
        };
        buffers.decrypted.clear();
        let mut wire = &buffers.wire[..length];
        while !wire.is_empty() {
            if tls.read_tls(&mut wire)? == 0 {
                break;
            }
            let Ok(state) = tls.process_new_packets() else {
                // The peer is told why; that it hears it does not matter here.
                drop(tls.write_tls(&mut self.socket));
                return Err(TransportError::Tls);
            };
            self.peer_closed_tls |= state.peer_has_closed();
            let start = buffers.decrypted.len();
            let end = start + state.plaintext_bytes_to_read();
            buffers.decrypted.resize(end, 0);
            tls.reader().read_exact(&mut buffers.decrypted[start..])?;
        }
        Ok(Received::Bytes {
            bytes: &buffers.decrypted,
            drained,
            ended: self.peer_closed_tls,
        })
    }

    /// Whether [`Transport::discard`] can be used: nothing has to be decrypted, and it is TCP.
    pub(super) const fn can_discard(&self) -> bool {
        self.tls.is_none() && matches!(self.socket, Socket::Tcp(_))
    }

    /// Receives up to `limit` bytes whose content nobody asks for; what it returns is as long.
    ///
    /// The kernel drops them without a copy (`MSG_TRUNC`, tcp(7)). Must not be called where
    /// [`Transport::can_discard`] says no.
    pub(super) fn discard<'a>(
        &self,
        limit: u64,
        buffers: &'a mut Buffers,
    ) -> Result<Received<'a>, TransportError> {
        let Socket::Tcp(stream) = &self.socket else {
            return Err(io::Error::from(io::ErrorKind::Unsupported).into());
        };
        buffers.dropped.resize(DISCARD_BYTES, 0);
        let asked = usize::try_from(limit).map_or(DISCARD_BYTES, |limit| limit.min(DISCARD_BYTES));
        let flags = RecvFlags::TRUNC | RecvFlags::DONTWAIT;
        let length = loop {
            match recv(stream, &mut buffers.dropped[..asked], flags) {
                Ok((0, _)) => return Ok(Received::End { clean: true }),
                Ok((length, _)) => break length,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::WouldBlock),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        };
        Ok(Received::Bytes {
            bytes: &buffers.dropped[..length],
            drained: length < asked,
            ended: false,
        })
    }

    /// Sends from `bytes` until the socket is full; returns the bytes taken and
    /// whether nothing taken is left unsent.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<(usize, bool)> {
        let mut taken = 0;
        let flushed = loop {
            let Some(tls) = &mut self.tls else {
                match write(&mut self.socket, &bytes[taken..])? {
                    Some(length) => taken += length,
                    None => break false,
                }
                if taken == bytes.len() {
                    break true;
                }
                continue;
            };
            if taken < bytes.len() && !tls.is_handshaking() {
                taken += tls.writer().write(&bytes[taken..])?;
            }
            if !tls.wants_write() {
                break true;
            }
            match tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break false,
                Err(error) => return Err(error),
            }
        };
        Ok((taken, flushed))
    }

    /// Asks to be woken when the socket takes bytes again, or no longer.
    pub(super) fn want_write(&mut self, registry: &Registry, wanted: bool) -> io::Result<()> {
        let Socket::Unix(stream) = &mut self.socket else {
            return Ok(());
        };
        let interest = if wanted {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        if interest != self.interest {
            registry.reregister(stream, self.token, interest)?;
            self.interest = interest;
        }
        Ok(())
    }
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl io::Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl io::Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write_vectored(parts),
            Self::Unix(stream) => stream.write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes once; `None` if the socket is full.
fn write(socket: &mut Socket, bytes: &[u8]) -> io::Result<Option<usize>> {
    loop {
        match socket.write(bytes) {
            Ok(length) => return Ok(Some(length)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
