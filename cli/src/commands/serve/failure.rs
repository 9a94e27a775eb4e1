//! A start that failed, in the user's words: what was asked for, who is in
//! the way, what to do.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use justapi_core::Error;

use super::plan::{Plan, unreadable_tls_file};
use crate::error::{CliError, Code, plain};
use crate::holder::Holder;

/// Ports after the wanted one that are tried for the hint.
const PORTS_TRIED: u16 = 20;

pub(crate) fn explain(error: &Error, plan: &Plan) -> CliError {
    match error {
        Error::Bind { address, source } => address.parse().map_or_else(
            |_| unix_bind(address, source),
            |socket| {
                let is_metrics = plan.metrics_address() == Some(socket);
                tcp_bind(
                    socket,
                    source,
                    if is_metrics { "--metrics" } else { "--port" },
                )
            },
        ),
        Error::RouteConflict { path, existing, .. } if plan.has_metrics_at(path) => CliError::new(
            Code::SettingConflict,
            format!("metrics cannot be on {path}: the application serves {existing}"),
        )
        .with_hint("choose another path with `--metrics`, or an address of its own"),
        Error::RouteConflict { path, existing, .. } if plan.has_files() => CliError::new(
            Code::SettingConflict,
            format!("{path} and {existing} match the same requests, and one is of `server.static`"),
        )
        .with_hint("choose another route for the folder, such as `--static /static=DIR`"),
        Error::RoutePattern { path, reason } if plan.has_files() => CliError::new(
            Code::SettingConflict,
            format!("files cannot be served on {path}: {reason}"),
        )
        .with_hint("choose a plain route, such as `--static /static=DIR`"),
        Error::FilesRoot { path, source } => CliError::new(
            Code::StaticFolder,
            format!("cannot serve the files of {}", path.display()),
        )
        .with_cause(source)
        .with_hint("`--static ROUTE=DIR` names a folder; check its path and permissions"),
        Error::RouteConflict { .. } | Error::RoutePattern { .. } => {
            CliError::new(Code::SettingConflict, error.to_string())
                .with_hint("each `--proxy` needs a route of its own, such as `/api`")
        }
        Error::UnixSocketInUse { path } => unix_in_use(path),
        Error::InheritedListener { fd, source } => CliError::new(
            Code::InheritedListener,
            format!("descriptor {fd} is not a listening stream socket"),
        )
        .with_cause(source)
        .with_hint("the program that starts justapi must bind, listen and pass the socket on"),
        Error::TlsFile { path, source } => unreadable_tls_file(path, &plain(source)),
        Error::TlsConfig { path, reason } => CliError::new(
            Code::TlsConfig,
            format!("cannot use the certificate of {}", path.display()),
        )
        .with_detail("cause", reason.clone())
        .with_hint("check that certificate and key belong together"),
        Error::Config { key, reason } => {
            CliError::new(Code::SettingConflict, format!("`{key}`: {reason}"))
                .with_hint("`justapi config show --origin` says where each value comes from")
        }
        Error::Lane { lane, source } => CliError::new(
            Code::LaneStart,
            format!("cannot start lane {lane} of {}", plan.lanes),
        )
        .with_cause(source)
        .with_hint("use fewer `--lanes`, or raise `ulimit -u` and `ulimit -n`"),
        Error::Signals { source } => {
            CliError::new(Code::SignalWatch, "cannot watch for stop signals")
                .with_cause(source)
                .with_hint("raise `ulimit -u` and `ulimit -n`")
        }
        other => CliError::new(Code::Internal, other.to_string()),
    }
}

fn tcp_bind(address: SocketAddr, source: &io::Error, flag: &str) -> CliError {
    let message = format!("cannot listen on {address}: {}", plain(source));
    let port_hint = |port: Option<u16>| match (flag, port) {
        ("--port", Some(port)) => format!("use `--port {port}` (free now), `--port 0` to pick one"),
        ("--port", None) => "use `--port 0` to pick a free one".to_owned(),
        (_, Some(port)) => {
            let free = SocketAddr::new(address.ip(), port);
            format!("use `{flag} {free}` (free now)")
        }
        (_, None) => format!("choose another address for `{flag}`"),
    };
    match source.kind() {
        io::ErrorKind::AddrInUse => {
            let error = CliError::new(Code::AddressInUse, message);
            let hint = port_hint(free_port(address));
            match Holder::of_tcp(address) {
                Some(holder) => {
                    let pid = holder.pid;
                    error
                        .with_detail("held by", holder.describe())
                        .with_hint(format!("{hint}, or stop it with `kill {pid}`"))
                }
                None => error.with_hint(hint),
            }
        }
        io::ErrorKind::PermissionDenied => CliError::new(Code::AddressForbidden, message)
            .with_hint(if address.port() < 1024 {
                "ports below 1024 need a privilege; use a higher one, such as `--port 8000`"
            } else {
                "the system's security policy forbids it; try another address"
            }),
        io::ErrorKind::AddrNotAvailable => CliError::new(Code::AddressUnavailable, message)
            .with_hint(
                "no interface has this address; use `--host 127.0.0.1`, or `--host 0.0.0.0` for all",
            ),
        _ => CliError::new(Code::ListenFailed, message)
            .with_hint("`--host 127.0.0.1 --port 0` works on every machine"),
    }
}

fn unix_bind(address: &str, source: &io::Error) -> CliError {
    let path = address.strip_prefix("unix:").unwrap_or(address);
    let message = format!("cannot listen on {address}: {}", plain(source));
    match source.kind() {
        io::ErrorKind::AddrInUse => unix_in_use(&PathBuf::from(path)),
        io::ErrorKind::PermissionDenied => CliError::new(Code::AddressForbidden, message)
            .with_hint("choose a path in a writable folder with `--uds`"),
        io::ErrorKind::AlreadyExists => CliError::new(Code::ListenFailed, message)
            .with_hint("the path holds another kind of file; choose another one with `--uds`"),
        _ => CliError::new(Code::ListenFailed, message)
            .with_hint("the folder must exist, and the path be shorter than 108 bytes"),
    }
}

fn unix_in_use(path: &Path) -> CliError {
    let error = CliError::new(
        Code::UnixSocketInUse,
        format!(
            "cannot listen on {}: a live process serves it",
            path.display()
        ),
    );
    match Holder::of_unix(path) {
        Some(holder) => {
            let hint = format!(
                "choose another path with `--uds`, or stop it with `kill {}`",
                holder.pid
            );
            error
                .with_detail("held by", holder.describe())
                .with_hint(hint)
        }
        None => error.with_hint("choose another path with `--uds`"),
    }
}

/// The next port on the same interface that nobody holds at this moment.
fn free_port(address: SocketAddr) -> Option<u16> {
    (1..=PORTS_TRIED)
        .filter_map(|step| address.port().checked_add(step))
        .find(|port| TcpListener::bind((address.ip(), *port)).is_ok())
}
