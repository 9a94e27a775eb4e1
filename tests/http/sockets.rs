//! Where a server listens: TCP, Unix sockets, inherited descriptors.
//!
//! Nothing is taken from a live owner; what cannot be bound is exit code 5.

use std::fs;
use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::client::Client;
use crate::support::server::{Server, serve, serve_after};
use crate::support::{PATIENCE, eventually};

const SOON: Duration = Duration::from_secs(3);
const CANNOT_BIND: Option<i32> = Some(5);

fn folder_with_socket() -> (TempDir, PathBuf) {
    let folder = TempDir::new().expect("a writable temporary folder");
    let path = folder.path().join("justapi.sock");
    (folder, path)
}

fn serve_unix(path: &Path, flags: &[&str]) -> Command {
    let mut command = serve();
    command.arg("--uds").arg(path).args(flags);
    command
}

fn get_unix(path: &Path) -> u16 {
    let mut client = eventually(PATIENCE, "the socket serves", || {
        Client::connect_unix(path).ok()
    });
    client.get("/hello").status
}

/// Runs to its end; the exit code and what it printed.
fn fails(command: Command) -> (Option<i32>, String) {
    let mut server = Server::spawn(command);
    let code = server.exit(SOON).code();
    (code, server.lines().join("\n"))
}

#[test]
fn a_unix_socket_is_served_with_its_mode_and_removed_at_the_end() {
    for (flags, mode) in [(&[][..], 0o660), (&["--uds-mode", "600"], 0o600)] {
        let (_folder, path) = folder_with_socket();
        let mut server = Server::spawn(serve_unix(&path, flags));
        assert_eq!(get_unix(&path), 200);
        let metadata = fs::metadata(&path).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, mode);
        server.signal(Signal::TERM);
        assert_eq!(server.exit(SOON).code(), Some(0));
        assert!(!path.exists());
    }
}

#[test]
fn a_stale_unix_socket_is_replaced() {
    let (_folder, path) = folder_with_socket();
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let _server = Server::spawn(serve_unix(&path, &[]));
    eventually(PATIENCE, "the stale socket is replaced", || {
        Client::connect_unix(&path)
            .ok()
            .map(|mut client| client.get("/hello").status)
    });
}

#[test]
fn a_live_unix_socket_is_not_taken() {
    let (_folder, path) = folder_with_socket();
    let _owner = Server::spawn(serve_unix(&path, &[]));
    assert_eq!(get_unix(&path), 200);
    let (code, message) = fails(serve_unix(&path, &[]));
    assert_eq!(code, CANNOT_BIND, "{message}");
    assert_eq!(get_unix(&path), 200);
}

/// A restart: the next server has the path before the last one has ended.
#[test]
fn a_unix_socket_of_the_next_server_is_not_removed() {
    let (_folder, path) = folder_with_socket();
    let mut last = Server::spawn(serve_unix(&path, &[]));
    assert_eq!(get_unix(&path), 200);
    let mut upload = Client::connect_unix(&path).unwrap();
    upload.send(
        "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
    );
    upload
        .stream()
        .read_exact(&mut [0; 25])
        .expect("100 Continue");
    last.signal(Signal::TERM);
    eventually(SOON, "the last server has stopped listening", || {
        Client::connect_unix(&path).is_err().then_some(())
    });
    let _next = Server::spawn(serve_unix(&path, &[]));
    assert_eq!(get_unix(&path), 200);
    assert_eq!(upload.ask("[1]").status, 200);
    assert_eq!(last.exit(SOON).code(), Some(0));
    assert!(path.exists(), "the last server took the next one's socket");
    assert_eq!(get_unix(&path), 200);
}

#[test]
fn a_file_that_is_no_socket_is_left_alone() {
    let (_folder, path) = folder_with_socket();
    fs::write(&path, "precious").unwrap();
    let (code, message) = fails(serve_unix(&path, &[]));
    assert_eq!(code, CANNOT_BIND, "{message}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_unix_path_that_cannot_be_bound_is_exit_code_5() {
    let (folder, _) = folder_with_socket();
    for path in [
        folder.path().join("a".repeat(120)),
        folder.path().join("absent/x.sock"),
    ] {
        let (code, message) = fails(serve_unix(&path, &[]));
        assert_eq!(code, CANNOT_BIND, "{message}");
    }
}

#[test]
fn port_0_is_a_free_port_of_loopback() {
    let (first, second) = (Server::start(&[]), Server::start(&[]));
    assert_ne!(first.address(), second.address());
    for server in [first, second] {
        assert!(server.address().ip().is_loopback());
        assert_ne!(server.address().port(), 0);
        assert_eq!(server.get("/hello").status, 200);
    }
}

#[test]
fn a_port_in_use_is_exit_code_5_and_named() {
    let owner = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = owner.local_addr().unwrap().port().to_string();
    let mut command = serve();
    command.args(["--port", &port]);
    let (code, message) = fails(command);
    assert_eq!(code, CANNOT_BIND, "{message}");
    assert!(message.contains(&port), "{message}");
}

/// `SO_REUSEPORT` between lanes must not share a port between servers.
#[test]
fn a_port_of_another_server_is_not_shared() {
    let owner = Server::start(&[]);
    let port = owner.address().port().to_string();
    let mut command = serve();
    command.args(["--port", &port]);
    let (code, message) = fails(command);
    assert_eq!(code, CANNOT_BIND, "{message}");
    for _ in 0..20 {
        assert_eq!(owner.get("/hello").status, 200);
    }
}

#[test]
fn an_address_of_another_machine_is_exit_code_5() {
    let mut command = serve();
    command.args(["--host", "192.0.2.1", "--port", "0"]);
    let (code, message) = fails(command);
    assert_eq!(code, CANNOT_BIND, "{message}");
}

/// A listener as descriptor 3 of a server started by `sh`.
pub(crate) fn inherited(listener: OwnedFd, prelude: &str, flags: &[&str]) -> Command {
    let prelude = format!("exec 3<&0 </dev/null; {prelude}");
    let mut command = serve_after(&prelude, flags);
    command.stdin(listener);
    command
}

fn tcp_listener() -> (OwnedFd, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("a bound socket");
    (listener.into(), address)
}

fn get_tcp(address: SocketAddr) -> u16 {
    Client::connect(address).get("/hello").status
}

#[test]
fn an_inherited_descriptor_is_served() {
    let (listener, address) = tcp_listener();
    let _server = Server::spawn(inherited(listener, "", &["--fd", "3"]));
    for _ in 0..10 {
        assert_eq!(get_tcp(address), 200);
    }
}

#[test]
fn an_inherited_unix_socket_is_served_and_left_in_place() {
    let (_folder, path) = folder_with_socket();
    let listener = UnixListener::bind(&path).unwrap();
    let mut server = Server::spawn(inherited(listener.into(), "", &["--fd", "3"]));
    assert_eq!(get_unix(&path), 200);
    server.signal(Signal::TERM);
    assert_eq!(server.exit(SOON).code(), Some(0));
    assert!(path.exists(), "its owner may start the next server on it");
}

#[test]
fn a_socket_of_systemd_is_served() {
    let (listener, address) = tcp_listener();
    let prelude = "export LISTEN_FDS=1 LISTEN_PID=$$;";
    let _server = Server::spawn(inherited(listener, prelude, &[]));
    assert_eq!(get_tcp(address), 200);
}

/// `LISTEN_PID` of another process: the variables are not for us.
#[test]
fn a_socket_for_another_process_is_not_served() {
    let (listener, address) = tcp_listener();
    let prelude = "export LISTEN_FDS=1 LISTEN_PID=1;";
    let server = Server::announced(inherited(listener, prelude, &["--port", "0"]));
    assert_ne!(server.address(), address);
    assert_eq!(server.get("/hello").status, 200);
}

#[test]
fn a_descriptor_that_is_no_listener_is_exit_code_5() {
    for redirection in ["exec 3</dev/null;", "exec 3<&-;"] {
        let (code, message) = fails(serve_after(redirection, &["--fd", "3"]));
        assert_eq!(code, CANNOT_BIND, "{redirection} {message}");
    }
}
