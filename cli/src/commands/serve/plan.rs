//! What the configuration asks of the server, checked before anything binds.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::thread;

use justapi_core::{
    Bound, Error, Limits, Listen, MetricsMount, Router, Server, ServerConfig, num_inherited,
};

use serde_json::Value;

use super::server::{Trusted, server_config, trust};
use crate::config::{Config, Origin};
use crate::demo;
use crate::error::{CliError, Code, plain};

/// Everything `serve` needs, in the server's types.
#[derive(Debug)]
pub(crate) struct Plan {
    places: Vec<Place>,
    pub(crate) lanes: usize,
    pub(crate) pid_file: Option<PathBuf>,
    pub(crate) backlog: u32,
    has_docs: bool,
    /// The server, but for the hosts that it trusts.
    server: ServerConfig,
    trusted: Trusted,
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Tcp { host: String, port: u16 },
    Unix { path: PathBuf, mode: u32 },
    Descriptor(i32),
    Inherited,
}

impl Plan {
    /// Reads the configuration; no file is opened and nothing is bound.
    ///
    /// # Errors
    /// [`Code::FlagConflict`] or [`Code::SettingConflict`].
    pub(crate) fn new(config: &Config) -> Result<Self, CliError> {
        let lanes = match config.value("server.lanes").number() {
            Some(lanes) => lanes as usize,
            None => thread::available_parallelism().map_or(1, std::num::NonZero::get),
        };
        let plan = Self {
            places: places(config, num_inherited() > 0),
            lanes,
            pid_file: config.value("server.pid_file").text().map(PathBuf::from),
            backlog: config
                .value("server.backlog")
                .number()
                .map_or(1024, |backlog| backlog as u32),
            has_docs: config.value("server.docs").is_on(),
            server: server_config(config)?,
            trusted: Trusted::new(config),
        };
        plan.limits()
            .check()
            .map_err(|error| super::failure::explain(&error, &plan))?;
        Ok(plan)
    }

    /// The limits of the server.
    pub(crate) const fn limits(&self) -> &Limits {
        &self.server.limits
    }

    /// Reads each file that the server would read.
    ///
    /// `has_app`: it serves an application, which has routes of its own.
    ///
    /// # Errors
    /// [`Code::TlsFile`], [`Code::StaticFolder`] and what is wrong with routes.
    pub(crate) fn check_files(&self, has_app: bool) -> Result<(), CliError> {
        let routes = || {
            if has_app {
                self.server.mount(Router::new())
            } else {
                self.router()
            }
        };
        let checked = self.server.check_files().and_then(|()| routes().map(drop));
        checked.map_err(|error| super::failure::explain(&error, self))
    }

    /// The routes of the proxies, or else of the demo with their documentation;
    /// and of the folders.
    ///
    /// # Errors
    /// A folder or an upstream that cannot be served, or a route that another
    /// one has.
    pub(crate) fn router(&self) -> Result<Router, Error> {
        let mut router = Router::new();
        if self.has_demo() {
            router = demo::router()?;
            if self.has_docs {
                router = demo::description().mount(router)?;
            }
        }
        self.server.mount(router)
    }

    /// Adds the proxies and folders to other routes.
    ///
    /// # Errors
    /// As [`Self::router`].
    pub(crate) fn mount(&self, router: Router) -> Result<Router, Error> {
        self.server.mount(router)
    }

    /// Whether folders are served.
    pub(crate) fn has_files(&self) -> bool {
        !self.server.files.folders.is_empty()
    }

    /// What is served, in a word or two.
    pub(crate) fn served(&self) -> String {
        let parts = [
            (self.has_demo(), "demo"),
            (!self.server.proxy.upstreams.is_empty(), "proxy"),
            (self.has_files(), "files"),
        ];
        let parts = parts
            .into_iter()
            .filter_map(|(is_served, name)| is_served.then_some(name));
        parts.collect::<Vec<_>>().join(", ")
    }

    /// Whether the demo is served; a folder on `/` and proxies take its place.
    pub(crate) fn has_demo(&self) -> bool {
        let mut folders = self.server.files.folders.iter();
        self.server.proxy.upstreams.is_empty() && folders.all(|(route, _)| route != "/")
    }

    /// Turns host names into addresses.
    ///
    /// # Errors
    /// [`Code::HostUnknown`].
    pub(crate) fn listens(&self) -> Result<Vec<Listen>, CliError> {
        self.places.iter().map(Place::listen).collect()
    }

    /// The settings of the server that is to listen on `listens`.
    pub(crate) fn server_config(&self, listens: &[Listen]) -> ServerConfig {
        let mut server = self.server.clone();
        trust(&mut server, &self.trusted, listens);
        server
    }

    /// The settings that an application's routes are tried with: nothing is
    /// listened on, so metrics have no address of their own.
    pub(crate) fn config_without_sockets(&self) -> ServerConfig {
        let mut server = self.server_config(&[]);
        if matches!(server.metrics, MetricsMount::Address(_)) {
            server.metrics = MetricsMount::Off;
        }
        server
    }

    /// The document of what [`Self::router`] routes.
    ///
    /// # Errors
    /// As [`Self::router`].
    pub(crate) fn document(&self) -> Result<Value, CliError> {
        let router = self
            .router()
            .map_err(|error| super::failure::explain(&error, self))?;
        Ok(demo::description().document(&router))
    }

    /// Where the first TCP listener is to be.
    pub(crate) fn tcp_place(&self) -> Option<(&str, u16)> {
        self.places.iter().find_map(|place| match place {
            Place::Tcp { host, port } => Some((host.as_str(), *port)),
            _ => None,
        })
    }

    /// Connections that may wait to be accepted.
    pub(crate) const fn backlog(&self) -> u32 {
        self.backlog
    }

    /// The server, not started yet.
    ///
    /// # Errors
    /// A setting that cannot be used.
    pub(crate) fn server(&self, router: Router, listens: Vec<Listen>) -> Result<Server, Error> {
        let server = Server::new(router).lanes(self.lanes).backlog(self.backlog);
        let server = self.server_config(&listens).apply(server)?;
        Ok(listens.into_iter().fold(server, Server::listen))
    }

    /// Whether clients speak TLS.
    pub(crate) const fn has_tls(&self) -> bool {
        self.server.tls.is_some()
    }

    /// Address of their own that metrics are to have.
    pub(crate) const fn metrics_address(&self) -> Option<SocketAddr> {
        match self.server.metrics {
            MetricsMount::Address(address) => Some(address),
            _ => None,
        }
    }

    /// Whether `path` is the one that metrics are to have.
    pub(crate) fn has_metrics_at(&self, path: &str) -> bool {
        matches!(&self.server.metrics, MetricsMount::Path(metrics) if metrics == path)
    }

    /// Where `bound` has its metrics: a path or a URL; `None` when off.
    pub(crate) fn metrics_place(&self, bound: &Bound) -> Option<String> {
        match &self.server.metrics {
            MetricsMount::Path(path) => Some(path.clone()),
            _ => Some(format!("http://{}/metrics", bound.metrics_address()?)),
        }
    }
}

impl Place {
    fn listen(&self) -> Result<Listen, CliError> {
        Ok(match self {
            Self::Tcp { host, port } => Listen::Tcp(resolve(host, *port)?),
            Self::Unix { path, mode } => Listen::Unix {
                path: path.clone(),
                mode: *mode,
            },
            Self::Descriptor(descriptor) => Listen::Fd(*descriptor),
            Self::Inherited => Listen::Inherited,
        })
    }
}

/// The error of a TLS file that cannot be used.
pub(super) fn unreadable_tls_file(path: &Path, cause: &str) -> CliError {
    CliError::new(Code::TlsFile, format!("cannot read {}", path.display()))
        .with_detail("cause", cause)
        .with_hint("`--tls-cert` and `--tls-key` name PEM files; check the paths and permissions")
}

/// Listening places: those of the highest layer that names one.
///
/// A layer above replaces the places of the layers below, so that `--uds`
/// turns the TCP port of a file off. Inherited sockets come from the
/// environment and count as its layer.
fn places(config: &Config, inherits: bool) -> Vec<Place> {
    const ENVIRONMENT: u8 = 2;
    let layer = |keys: &[&str]| {
        keys.iter()
            .filter(|key| **key == "server.host" || **key == "server.port" || is_set(config, key))
            .map(|key| config.origin(key).layer())
            .max()
            .unwrap_or_default()
    };
    let tcp = layer(&["server.host", "server.port"]);
    let uds = layer(&["server.uds"]);
    let fd = layer(&["server.fd"]);
    let top = tcp.max(uds).max(fd);
    if inherits && top < ENVIRONMENT {
        return vec![Place::Inherited];
    }
    let mut places = Vec::new();
    if tcp == top {
        places.push(Place::Tcp {
            host: config
                .value("server.host")
                .text()
                .unwrap_or_default()
                .to_owned(),
            port: config
                .value("server.port")
                .number()
                .and_then(|port| u16::try_from(port).ok())
                .unwrap_or_default(),
        });
    }
    if let Some(path) = config.value("server.uds").text().filter(|_| uds == top) {
        places.push(Place::Unix {
            path: PathBuf::from(path),
            mode: config
                .value("server.uds_mode")
                .number()
                .map_or(0o660, |mode| mode as u32),
        });
    }
    if let Some(descriptor) = config.value("server.fd").number().filter(|_| fd == top) {
        places.push(Place::Descriptor(descriptor as i32));
    }
    places
}

fn is_set(config: &Config, key: &str) -> bool {
    *config.value(key) != crate::config::Value::Unset
}

fn resolve(host: &str, port: u16) -> Result<SocketAddr, CliError> {
    let unknown = |cause: &str| {
        CliError::new(
            Code::HostUnknown,
            format!("cannot find the address of host `{host}`"),
        )
        .with_detail("cause", cause)
        .with_hint("use an IP address: 127.0.0.1 for this machine, 0.0.0.0 for every interface")
    };
    let addresses: Vec<_> = (host, port)
        .to_socket_addrs()
        .map_err(|error| unknown(&plain(&error)))?
        .collect();
    // A name such as localhost often has both; IPv4 is what most clients try.
    addresses
        .iter()
        .find(|address| address.is_ipv4())
        .or_else(|| addresses.first())
        .copied()
        .ok_or_else(|| unknown("it has none"))
}

/// Settings that do not work together: a usage error when a flag is at fault.
pub(crate) fn conflict(config: &Config, key: &str, message: String) -> CliError {
    let origin = config.origin(key);
    let code = match origin {
        Origin::Flag(_) => Code::FlagConflict,
        _ => Code::SettingConflict,
    };
    CliError::new(code, message).at_any(origin.location())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Given, find};

    fn flag(key: &str, text: &str) -> Given {
        given(key, text, Origin::Flag("--x".to_owned()))
    }

    fn file(key: &str, text: &str) -> Given {
        let path = PathBuf::from("justapi.toml");
        given(key, text, Origin::File { path, line: 1 })
    }

    fn given(key: &str, text: &str, origin: Origin) -> Given {
        let setting = find(key).unwrap();
        (setting, setting.kind.parse(text).unwrap(), origin)
    }

    fn check(given: &[Given], inherits: bool, expected: &[&str]) {
        let config = Config::of(given);
        let shown: Vec<_> = places(&config, inherits)
            .into_iter()
            .map(|place| match place {
                Place::Tcp { host, port } => format!("{host}:{port}"),
                Place::Unix { path, mode } => format!("{} {mode:o}", path.display()),
                Place::Descriptor(descriptor) => format!("fd {descriptor}"),
                Place::Inherited => "inherited".to_owned(),
            })
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_highest_layer_that_names_a_place_decides() {
        check(&[], false, &["127.0.0.1:8000"]);
        check(&[], true, &["inherited"]);
        check(&[flag("server.port", "1")], true, &["127.0.0.1:1"]);
        check(&[file("server.port", "1")], true, &["inherited"]);
        check(&[flag("server.uds", "/s")], false, &["/s 660"]);
        check(
            &[file("server.port", "1"), flag("server.uds", "/s")],
            false,
            &["/s 660"],
        );
        check(
            &[file("server.uds", "/s"), flag("server.port", "1")],
            false,
            &["127.0.0.1:1"],
        );
        check(
            &[
                flag("server.port", "1"),
                flag("server.uds", "/s"),
                flag("server.fd", "3"),
            ],
            false,
            &["127.0.0.1:1", "/s 660", "fd 3"],
        );
    }

    #[test]
    fn half_a_certificate_is_refused() {
        let error = Plan::new(&Config::of(&[flag("server.tls.cert", "c.pem")])).unwrap_err();
        assert_eq!(error.code(), Code::FlagConflict);
        let error = Plan::new(&Config::of(&[file("server.tls.key", "k.pem")])).unwrap_err();
        assert_eq!(error.code(), Code::SettingConflict);
        assert_eq!(error.location().unwrap().line, 1);
    }
}
