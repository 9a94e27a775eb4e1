//! Routes that come from settings: folders of files, and upstream servers.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::files::{FileCache, Files, Symlinks};
use crate::proxy::{
    MAX_PROXY_CONNECTIONS, PROXY_BODY_TIMEOUT, PROXY_CONNECT_TIMEOUT, PROXY_HEAD_TIMEOUT,
    PROXY_TUNNEL_TIMEOUT, Proxy,
};
use crate::router::Router;

/// Folders that are served, each below a route, and what all have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FilesConfig {
    /// Route and folder.
    pub folders: Vec<(String, PathBuf)>,
    /// See [`Files::index`].
    pub index: Option<String>,
    /// See [`Files::hidden`].
    pub serves_hidden: bool,
    /// See [`Files::symlinks`].
    pub symlinks: Symlinks,
    /// See [`Files::revalidate`].
    pub revalidate: Duration,
    /// See [`Files::cache`].
    pub cache: FileCache,
}

impl Default for FilesConfig {
    fn default() -> Self {
        Self {
            folders: Vec::new(),
            index: Some("index.html".to_owned()),
            serves_hidden: false,
            symlinks: Symlinks::default(),
            revalidate: Files::REVALIDATE,
            cache: FileCache::DEFAULT,
        }
    }
}

impl FilesConfig {
    /// Adds the folders, after the routes that there are.
    pub(super) fn mount(&self, router: Router) -> Result<Router, Error> {
        self.folders.iter().try_fold(router, |router, mount| {
            let (route, folder) = mount;
            let files = Files::new(folder)?
                .index(self.index.as_deref())
                .hidden(self.serves_hidden)
                .symlinks(self.symlinks)
                .revalidate(self.revalidate)
                .cache(self.cache);
            router.files(route, files)
        })
    }
}

/// Upstream servers, each below a route, and what all have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProxyConfig {
    /// Route and URL of the server behind it, as [`Proxy::new`] takes it.
    pub upstreams: Vec<(String, String)>,
    /// See [`Proxy::timeouts`].
    pub connect_timeout: Duration,
    /// See [`Proxy::timeouts`].
    pub head_timeout: Duration,
    /// See [`Proxy::timeouts`].
    pub body_timeout: Duration,
    /// See [`Proxy::tunnel_timeout`].
    pub tunnel_timeout: Duration,
    /// See [`Proxy::authorities`].
    pub authorities: Option<PathBuf>,
    /// See [`Proxy::max_connections`].
    pub max_connections: usize,
}

impl Default for ProxyConfig {
    fn default() -> Self {
        Self {
            upstreams: Vec::new(),
            connect_timeout: PROXY_CONNECT_TIMEOUT,
            head_timeout: PROXY_HEAD_TIMEOUT,
            body_timeout: PROXY_BODY_TIMEOUT,
            tunnel_timeout: PROXY_TUNNEL_TIMEOUT,
            authorities: None,
            max_connections: MAX_PROXY_CONNECTIONS,
        }
    }
}

impl ProxyConfig {
    /// Adds the upstreams, after the routes that there are.
    ///
    /// `is_tls`: clients speak TLS to this server.
    pub(super) fn mount(&self, router: Router, is_tls: bool) -> Result<Router, Error> {
        self.upstreams.iter().try_fold(router, |router, upstream| {
            let (route, url) = upstream;
            let mut proxy = Proxy::new(url)?;
            if let Some(authorities) = &self.authorities {
                proxy = proxy.authorities(authorities);
            }
            proxy
                .timeouts(self.connect_timeout, self.head_timeout, self.body_timeout)
                .tunnel_timeout(self.tunnel_timeout)
                .max_connections(self.max_connections)
                .tls(is_tls)
                .mount(router, route)
        })
    }
}
