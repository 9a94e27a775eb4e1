//! Listening sockets: TCP with one socket a lane, Unix, inherited.
//!
//! Guarantee: a port that somebody else serves is an error, although the
//! lanes' own sockets share it; a Unix socket file is only removed when nobody
//! answers on it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use socket2::{Domain, Protocol, SockAddr, SockFilter, SockRef, Socket, Type};

use crate::error::Error;

/// First descriptor of the `LISTEN_FDS` protocol, see `sd_listen_fds(3)`.
const FIRST_INHERITED_FD: RawFd = 3;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A TCP address; port 0 picks a free one.
    Tcp(SocketAddr),
    /// A Unix socket, created with these permission bits.
    ///
    /// The kernel has no reset here: to an HTTP/1.0 client, for which the end
    /// of a stream is that of its connection, one that broke off looks whole.
    Unix {
        /// Path of the socket file.
        path: PathBuf,
        /// Permission bits, such as 0o660.
        mode: u32,
    },
    /// A listening socket that was inherited under this descriptor.
    Fd(i32),
    /// A listening socket under this descriptor that nobody else has: what
    /// waits in its backlog at the end is answered before it is closed.
    OwnFd(i32),
    /// Every socket passed by `LISTEN_FDS`, if `LISTEN_PID` is this process.
    Inherited,
}

/// Where a server really listens, as a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundAddress {
    /// A TCP socket.
    Tcp {
        /// Address with the port that was picked.
        address: SocketAddr,
        /// Whether it speaks TLS.
        tls: bool,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

impl fmt::Display for BoundAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { address, tls } => {
                let scheme = if *tls { "https" } else { "http" };
                write!(f, "{scheme}://{address}")
            }
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A bound listening socket of one lane.
#[derive(Debug)]
pub(super) struct LaneListener {
    pub(super) socket: LaneSocket,
    /// Whether other processes may go on with the socket after us.
    pub(super) is_inherited: bool,
}

#[derive(Debug)]
pub(super) enum LaneSocket {
    Tcp(std::net::TcpListener),
    Unix(UnixListener),
}

/// The sockets of one [`Listen`], one for each lane.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) address: BoundAddress,
    pub(super) lanes: Vec<LaneListener>,
    /// Socket file to remove at the end.
    pub(super) unlink: Option<PathBuf>,
}

/// A listening socket that other processes are to serve.
#[derive(Debug)]
pub struct SharedListener {
    /// Where it listens.
    pub address: BoundAddress,
    /// The socket, not passed on to programs until somebody sees to it.
    pub socket: OwnedFd,
    /// Socket file to remove at the end.
    pub unlink: Option<PathBuf>,
    /// Whether somebody else gave it, who may go on with it.
    pub is_inherited: bool,
}

impl SharedListener {
    /// Lets nobody new in, unless the socket was inherited.
    ///
    /// Called before the processes that serve it are asked to end: what is in
    /// the backlog by then is theirs to answer.
    pub fn refuse_newcomers(&self) {
        if let (BoundAddress::Tcp { .. }, false) = (&self.address, self.is_inherited) {
            refuse_newcomers(&SockRef::from(&self.socket));
        }
    }

    /// Binds what `listen` names, for processes that inherit the sockets.
    ///
    /// # Errors
    /// As [`Server::bind`](crate::Server::bind).
    pub fn bind(listen: &Listen, backlog: u32, tls: bool) -> Result<Vec<Self>, Error> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        let bound = bind(listen, 1, backlog, tls)?;
        let shared = bound.into_iter().flat_map(|bound| {
            let Bound {
                address,
                lanes,
                unlink,
            } = bound;
            lanes.into_iter().map(move |lane| Self {
                address: address.clone(),
                is_inherited: lane.is_inherited,
                socket: match lane.socket {
                    LaneSocket::Tcp(socket) => socket.into(),
                    LaneSocket::Unix(socket) => socket.into(),
                },
                unlink: unlink.clone(),
            })
        });
        Ok(shared.collect())
    }
}

/// Makes the kernel drop every further SYN for a TCP socket.
///
/// Without it a connection that is made between the last accept and the close
/// would be reset with its request in it. A client whose SYN is dropped sends
/// it again, and is then refused or reaches the next server; handshakes that
/// have begun are completed.
pub(super) fn refuse_newcomers(listener: &SockRef<'_>) {
    /// Loads the byte at this offset of the TCP header: its flags.
    const LOAD_FLAGS: SockFilter = SockFilter::new(0x30, 0, 0, 13);
    /// Goes on if SYN is set, else skips one instruction.
    const IF_SYN: SockFilter = SockFilter::new(0x45, 0, 1, 0x02);
    const DROP: SockFilter = SockFilter::new(0x06, 0, 0, 0);
    const PASS: SockFilter = SockFilter::new(0x06, 0, 0, u32::MAX);
    // Failing only leaves the gap as it was.
    drop(listener.attach_filter(&[LOAD_FLAGS, IF_SYN, DROP, PASS]));
}

/// Binds `listen` for `num_lanes` lanes.
pub(super) fn bind(
    listen: &Listen,
    num_lanes: usize,
    backlog: i32,
    tls: bool,
) -> Result<Vec<Bound>, Error> {
    match listen {
        Listen::Tcp(address) => bind_tcp(*address, num_lanes, backlog, tls)
            .map(|bound| vec![bound])
            .map_err(|source| Error::Bind {
                address: address.to_string(),
                source,
            }),
        Listen::Unix { path, mode } => {
            bind_unix(path, *mode, num_lanes, backlog).map(|bound| vec![bound])
        }
        Listen::Fd(fd) => inherit(*fd, num_lanes, tls).map(|bound| vec![bound]),
        Listen::OwnFd(fd) => {
            let mut bound = inherit(*fd, num_lanes, tls)?;
            for lane in &mut bound.lanes {
                lane.is_inherited = false;
            }
            Ok(vec![bound])
        }
        Listen::Inherited => (FIRST_INHERITED_FD..FIRST_INHERITED_FD + num_inherited())
            .map(|fd| inherit(fd, num_lanes, tls))
            .collect(),
    }
}

/// How many sockets `LISTEN_FDS` passes to this process; 0 for none.
pub fn num_inherited() -> i32 {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<i32>().ok())
    };
    match (number("LISTEN_PID"), number("LISTEN_FDS")) {
        (Some(pid), Some(count)) if u32::try_from(pid) == Ok(std::process::id()) => count.max(0),
        _ => 0,
    }
}

fn bind_tcp(address: SocketAddr, num_lanes: usize, backlog: i32, tls: bool) -> io::Result<Bound> {
    // Sockets with SO_REUSEPORT would silently share the port with another
    // server of the same user. One socket without it finds that out.
    let probe = tcp_socket(address)?;
    probe.bind(&address.into())?;
    let address = probe
        .local_addr()?
        .as_socket()
        .ok_or(io::ErrorKind::AddrNotAvailable)?;
    drop(probe);
    let lanes = (0..num_lanes)
        .map(|_| {
            let socket = tcp_socket(address)?;
            socket.set_reuse_port(true)?;
            socket.bind(&address.into())?;
            socket.listen(backlog)?;
            Ok(LaneListener {
                socket: LaneSocket::Tcp(socket.into()),
                is_inherited: false,
            })
        })
        .collect::<io::Result<Vec<_>>>()?;
    Ok(Bound {
        address: BoundAddress::Tcp { address, tls },
        lanes,
        unlink: None,
    })
}

fn tcp_socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    // A restart must not wait for the old connections' TIME-WAIT.
    socket.set_reuse_address(true)?;
    // Accepted sockets inherit it on Linux, which saves a call each.
    socket.set_tcp_nodelay(true)?;
    Ok(socket)
}

fn bind_unix(path: &Path, mode: u32, num_lanes: usize, backlog: i32) -> Result<Bound, Error> {
    let error = |source| Error::Bind {
        address: format!("unix:{}", path.display()),
        source,
    };
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).map_err(error)?;
    socket.set_nonblocking(true).map_err(error)?;
    socket
        .bind(&SockAddr::unix(path).map_err(error)?)
        .map_err(error)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(error)?;
    socket.listen(backlog).map_err(error)?;
    Ok(Bound {
        address: BoundAddress::Unix(path.to_owned()),
        lanes: share(socket, num_lanes, false).map_err(error)?,
        unlink: Some(path.to_owned()),
    })
}

/// Removes a socket file that nobody answers on.
fn remove_stale(path: &Path) -> Result<(), Error> {
    let error = |source| Error::Bind {
        address: format!("unix:{}", path.display()),
        source,
    };
    match std::fs::symlink_metadata(path) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(other) => return Err(error(other)),
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => {
            let occupied = io::Error::new(io::ErrorKind::AlreadyExists, "not a socket");
            return Err(error(occupied));
        }
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(Error::UnixSocketInUse {
            path: path.to_owned(),
        }),
        Err(refused) if refused.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(error)
        }
        Err(other) => Err(error(other)),
    }
}

/// Takes over an inherited listening socket for all lanes.
#[expect(unsafe_code, reason = "a descriptor number becomes an owned socket")]
fn inherit(fd: RawFd, num_lanes: usize, tls: bool) -> Result<Bound, Error> {
    let error = |source| Error::InheritedListener { fd, source };
    if fd < FIRST_INHERITED_FD {
        let standard = io::Error::new(io::ErrorKind::InvalidInput, "a standard stream");
        return Err(error(standard));
    }
    // SAFETY: only asked whether it is a listening socket; any other answer,
    // also that the number is not open, leaves it alone.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let asked = SockRef::from(&borrowed);
    let listening = asked.is_listener().map_err(error)?;
    if !listening || asked.r#type().map_err(error)? != Type::STREAM {
        return Err(error(io::ErrorKind::InvalidInput.into()));
    }
    // SAFETY: the descriptor is an open listening socket, which this process
    // has only because it was passed; the caller names it only once.
    let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(fd) });
    socket.set_nonblocking(true).map_err(error)?;
    socket.set_cloexec(true).map_err(error)?;
    let local = socket.local_addr().map_err(error)?;
    let address = match local.as_socket() {
        Some(address) => {
            socket.set_tcp_nodelay(true).map_err(error)?;
            BoundAddress::Tcp { address, tls }
        }
        None => BoundAddress::Unix(local.as_pathname().unwrap_or(Path::new("?")).to_owned()),
    };
    Ok(Bound {
        address,
        lanes: share(socket, num_lanes, true).map_err(error)?,
        unlink: None,
    })
}

/// One descriptor of the same socket for each lane.
fn share(socket: Socket, num_lanes: usize, is_inherited: bool) -> io::Result<Vec<LaneListener>> {
    let is_unix = socket.local_addr()?.domain() == Domain::UNIX;
    let wrap = |fd: OwnedFd| LaneListener {
        socket: if is_unix {
            LaneSocket::Unix(fd.into())
        } else {
            LaneSocket::Tcp(fd.into())
        },
        is_inherited,
    };
    let mut lanes = (1..num_lanes)
        .map(|_| socket.as_fd().try_clone_to_owned().map(wrap))
        .collect::<io::Result<Vec<_>>>()?;
    lanes.push(wrap(socket.into()));
    Ok(lanes)
}
