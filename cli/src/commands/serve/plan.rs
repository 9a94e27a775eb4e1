//! What the configuration asks of the server, checked before anything binds.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use justapi_core::{
    AccessLog, AccessLogFormat, Bound, Compression, Cors, CorsConfig, Error, FileCache, Files,
    Limits, Listen, MAX_PROXY_CONNECTIONS, MetricsMount, Proxy, RequestId, Router, Server,
    Symlinks, TlsFiles, num_inherited,
};

use super::guards::Guards;
use crate::config::{Config, Origin};
use crate::demo;
use crate::error::{CliError, Code, plain};
use crate::ui::access_writer;

/// Everything `serve` needs, in the server's types.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of the configuration"
)]
pub(crate) struct Plan {
    places: Vec<Place>,
    pub(super) lanes: usize,
    pub(super) limits: Limits,
    pub(super) pid_file: Option<PathBuf>,
    backlog: u32,
    tls: Option<TlsFiles>,
    cors: Vec<String>,
    has_request_id: bool,
    has_health: bool,
    has_docs: bool,
    proxies: Vec<(String, String)>,
    proxy_timeouts: [Duration; 4],
    proxy_authorities: Option<PathBuf>,
    proxy_max_connections: usize,
    compression: Option<Compression>,
    has_decompression: bool,
    access_log: Option<AccessLogFormat>,
    metrics: Metrics,
    files: Vec<Mount>,
    file_options: FileOptions,
    guards: Guards,
}

/// A folder and the route that its files are served under.
#[derive(Debug)]
struct Mount {
    route: String,
    folder: PathBuf,
}

/// What all folders have in common.
#[derive(Debug)]
struct FileOptions {
    index: Option<String>,
    serves_hidden: bool,
    symlinks: Symlinks,
    revalidate: Duration,
    cache: FileCache,
}

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Tcp { host: String, port: u16 },
    Unix { path: PathBuf, mode: u32 },
    Descriptor(i32),
    Inherited,
}

#[derive(Debug)]
enum Metrics {
    Off,
    Path(String),
    Address(SocketAddr),
}

impl Plan {
    /// Reads the configuration; no file is opened and nothing is bound.
    ///
    /// # Errors
    /// [`Code::FlagConflict`] or [`Code::SettingConflict`].
    pub(crate) fn new(config: &Config) -> Result<Self, CliError> {
        let path = |key| config.value(key).text().map(PathBuf::from);
        let lanes = match config.value("server.lanes").number() {
            Some(lanes) => lanes as usize,
            None => thread::available_parallelism().map_or(1, std::num::NonZero::get),
        };
        let plan = Self {
            places: places(config, num_inherited() > 0),
            lanes,
            limits: config.limits(),
            pid_file: path("server.pid_file"),
            backlog: config
                .value("server.backlog")
                .number()
                .map_or(1024, |backlog| backlog as u32),
            tls: tls(config)?,
            cors: cors(config)?,
            has_request_id: config.value("server.request_id").is_on(),
            has_health: config.value("server.health").is_on(),
            has_docs: config.value("server.docs").is_on(),
            proxies: proxies(config),
            proxy_timeouts: [
                "server.proxy_timeout_connect",
                "server.proxy_timeout_head",
                "server.proxy_timeout_body",
                "server.proxy_timeout_tunnel",
            ]
            .map(|key| config.value(key).time().unwrap_or_default()),
            proxy_authorities: path("server.proxy_ca"),
            proxy_max_connections: config
                .value("server.proxy_connections")
                .number()
                .map_or(MAX_PROXY_CONNECTIONS, |number| number as usize),
            compression: compression(config)?,
            has_decompression: config.value("server.decompression").is_on(),
            access_log: match config.value("log.access").text() {
                Some("text") => Some(AccessLogFormat::Text),
                Some("json") => Some(AccessLogFormat::Json),
                _ => None,
            },
            metrics: metrics(config),
            files: mounts(config),
            file_options: file_options(config),
            guards: Guards::new(config)?,
        };
        plan.limits
            .check()
            .map_err(|error| super::failure::explain(&error, &plan))?;
        Ok(plan)
    }

    /// Reads each file that the server would read.
    ///
    /// # Errors
    /// [`Code::TlsFile`], [`Code::StaticFolder`] and what is wrong with routes.
    pub(crate) fn check_files(&self) -> Result<(), CliError> {
        let tls = self.tls.as_ref().map_or(Ok(()), TlsFiles::check);
        tls.and_then(|()| self.guards.check_files())
            .and_then(|()| self.router().map(drop))
            .map_err(|error| super::failure::explain(&error, self))
    }

    /// The routes of the proxies, or else of the demo with their documentation;
    /// and of the folders.
    ///
    /// # Errors
    /// A folder or an upstream that cannot be served, or a route that another
    /// one has.
    pub(super) fn router(&self) -> Result<Router, Error> {
        let mut router = Router::new();
        if self.has_demo() {
            router = demo::router()?;
            if self.has_docs {
                router = demo::description().mount(router)?;
            }
        }
        let [connect, head, body, tunnel] = self.proxy_timeouts;
        for (route, url) in &self.proxies {
            let mut proxy = Proxy::new(url)?;
            if let Some(authorities) = &self.proxy_authorities {
                proxy = proxy.authorities(authorities);
            }
            router = proxy
                .timeouts(connect, head, body)
                .tunnel_timeout(tunnel)
                .max_connections(self.proxy_max_connections)
                .tls(self.tls.is_some())
                .mount(router, route)?;
        }
        let options = &self.file_options;
        self.files.iter().try_fold(router, |router, mount| {
            let files = Files::new(&mount.folder)?
                .index(options.index.as_deref())
                .hidden(options.serves_hidden)
                .symlinks(options.symlinks)
                .revalidate(options.revalidate)
                .cache(options.cache);
            router.files(&mount.route, files)
        })
    }

    /// Whether folders are served.
    pub(super) fn has_files(&self) -> bool {
        !self.files.is_empty()
    }

    /// What is served, in a word or two.
    pub(super) fn served(&self) -> String {
        let parts = [
            (self.has_demo(), "demo"),
            (!self.proxies.is_empty(), "proxy"),
            (self.has_files(), "files"),
        ];
        let parts = parts
            .into_iter()
            .filter_map(|(is_served, name)| is_served.then_some(name));
        parts.collect::<Vec<_>>().join(", ")
    }

    /// A folder on `/` and proxies take the demo's place.
    fn has_demo(&self) -> bool {
        self.proxies.is_empty() && self.files.iter().all(|mount| mount.route != "/")
    }

    /// Turns host names into addresses.
    ///
    /// # Errors
    /// [`Code::HostUnknown`].
    pub(super) fn listens(&self) -> Result<Vec<Listen>, CliError> {
        self.places.iter().map(Place::listen).collect()
    }

    /// The server, not started yet.
    ///
    /// # Errors
    /// What core finds wrong with a value.
    pub(super) fn server(&self, router: Router, listens: Vec<Listen>) -> Result<Server, Error> {
        let mut server = Server::new(router)
            .lanes(self.lanes)
            .limits(self.limits.clone())
            .backlog(self.backlog)
            .health(self.has_health)
            .decompression(self.has_decompression)
            .metrics(match &self.metrics {
                Metrics::Off => MetricsMount::Off,
                Metrics::Path(path) => MetricsMount::Path(path.clone()),
                Metrics::Address(address) => MetricsMount::Address(*address),
            });
        server = self.guards.apply(server, &listens)?;
        for listen in listens {
            server = server.listen(listen);
        }
        if let Some(tls) = &self.tls {
            server = server.tls(tls.clone());
        }
        if !self.cors.is_empty() {
            let cors = CorsConfig {
                origins: self.cors.clone(),
                ..CorsConfig::default()
            };
            server = server.cors(Cors::new(cors)?);
        }
        if self.has_request_id {
            server = server.request_id(RequestId::default());
        }
        if let Some(compression) = &self.compression {
            server = server.compression(compression.clone());
        }
        if let Some(format) = self.access_log {
            server = server.access_log(AccessLog::new(format, access_writer())?);
        }
        Ok(server)
    }

    /// Whether `address` is the one that metrics are to have.
    pub(super) fn has_metrics_on(&self, address: SocketAddr) -> bool {
        matches!(self.metrics, Metrics::Address(metrics) if metrics == address)
    }

    /// Whether `path` is the one that metrics are to have.
    pub(super) fn has_metrics_at(&self, path: &str) -> bool {
        matches!(&self.metrics, Metrics::Path(metrics) if metrics == path)
    }

    /// Where `bound` has its metrics: a path or a URL; `None` when off.
    pub(super) fn metrics_place(&self, bound: &Bound) -> Option<String> {
        match &self.metrics {
            Metrics::Off => None,
            Metrics::Path(path) => Some(path.clone()),
            Metrics::Address(asked) => {
                let address = bound.metrics_address().unwrap_or(*asked);
                Some(format!("http://{address}/metrics"))
            }
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

fn tls(config: &Config) -> Result<Option<TlsFiles>, CliError> {
    let path = |key| config.value(key).text().map(PathBuf::from);
    let missing = |given: &str, missing: &str, flag: &str| {
        conflict(
            config,
            given,
            format!("`{given}` is set without `{missing}`"),
        )
        .with_hint(format!("add `--{flag} FILE`, or set `{missing}`"))
    };
    match (
        path("server.tls.cert"),
        path("server.tls.key"),
        path("server.tls.client_ca"),
    ) {
        (Some(cert), Some(key), client_ca) => Ok(Some(TlsFiles {
            cert,
            key,
            client_ca,
        })),
        (Some(_), None, _) => Err(missing("server.tls.cert", "server.tls.key", "tls-key")),
        (None, Some(_), _) => Err(missing("server.tls.key", "server.tls.cert", "tls-cert")),
        (None, None, Some(_)) => Err(missing(
            "server.tls.client_ca",
            "server.tls.cert",
            "tls-cert",
        )),
        (None, None, None) => Ok(None),
    }
}

fn cors(config: &Config) -> Result<Vec<String>, CliError> {
    let origins = config.value("server.cors").list();
    if origins.len() > 1 && origins.iter().any(|origin| origin == "*") {
        return Err(conflict(
            config,
            "server.cors",
            "`server.cors` holds `*` and further origins".to_owned(),
        )
        .with_hint("give `*` alone for every origin, or only the origins that may call"));
    }
    Ok(origins.to_vec())
}

fn proxies(config: &Config) -> Vec<(String, String)> {
    let entries = config.value("server.proxy").list().iter();
    entries
        .filter_map(|entry| entry.split_once('='))
        .map(|(route, url)| (route.to_owned(), url.to_owned()))
        .collect()
}

fn compression(config: &Config) -> Result<Option<Compression>, CliError> {
    if !config.value("server.compression").is_on() {
        return Ok(None);
    }
    let number = |key| config.value(key).number().unwrap_or_default();
    let level = |key| u8::try_from(number(key)).unwrap_or(u8::MAX);
    Compression::new()
        .min_bytes(number("server.compression_min_size"))
        .levels(
            level("server.compression_gzip_level"),
            level("server.compression_br_level"),
            level("server.compression_zstd_level"),
        )
        .map(Some)
        .map_err(|error| conflict(config, "server.compression", error.to_string()))
}

fn metrics(config: &Config) -> Metrics {
    let address = config.value("metrics.addr").text();
    if let Some(address) = address.and_then(|address| address.parse().ok()) {
        return Metrics::Address(address);
    }
    config
        .value("metrics.path")
        .text()
        .map_or(Metrics::Off, |path| Metrics::Path(path.to_owned()))
}

fn mounts(config: &Config) -> Vec<Mount> {
    let list = config.value("server.static").list();
    list.iter()
        .filter_map(|mount| mount.split_once('='))
        .map(|(route, folder)| Mount {
            route: route.to_owned(),
            folder: folder.into(),
        })
        .collect()
}

fn file_options(config: &Config) -> FileOptions {
    FileOptions {
        index: config.value("server.static_index").text().map(Into::into),
        serves_hidden: config.value("server.static_hidden").is_on(),
        symlinks: match config.value("server.static_symlinks").text() {
            Some("refuse") => Symlinks::Refuse,
            Some("anywhere") => Symlinks::Anywhere,
            _ => Symlinks::Within,
        },
        revalidate: config
            .value("server.static_revalidate")
            .time()
            .unwrap_or(Files::REVALIDATE),
        cache: FileCache {
            max_bytes: config
                .value("server.static_cache")
                .number()
                .map_or(FileCache::DEFAULT.max_bytes, |bytes| bytes as usize),
            ..FileCache::DEFAULT
        },
    }
}

/// Settings that do not work together: a usage error when a flag is at fault.
pub(super) fn conflict(config: &Config, key: &str, message: String) -> CliError {
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
