//! Where a proxied request goes: the upstream's URL, and the path there.
//!
//! Guarantee: the path stays below the URL's own; one with dot segments, in
//! whatever spelling, is refused, because the upstream might resolve them to
//! what the route does not expose.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;

use http::Uri;
use http::header::HeaderValue;
use http::uri::{PathAndQuery, Scheme};
use percent_encoding::percent_decode_str;
use rustls_pki_types::ServerName;

use crate::error::Error;

const KEY: &str = "server.proxy";

/// An upstream server.
#[derive(Debug)]
pub(super) struct Upstream {
    /// Host and port as in the URL.
    pub(super) host: HeaderValue,
    pub(super) place: Place,
    /// Name that its certificate has to have, where it is reached by TLS.
    pub(super) tls_name: Option<ServerName<'static>>,
    /// Path of the URL without a slash at its end.
    base: String,
}

/// How an upstream is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// What the host resolved to.
    Tcp(Vec<SocketAddr>),
    Unix(PathBuf),
}

impl Upstream {
    /// The server that listens on a Unix socket.
    pub(super) fn unix(path: PathBuf) -> Self {
        Self {
            host: HeaderValue::from_static("localhost"),
            place: Place::Unix(path),
            tls_name: None,
            base: String::new(),
        }
    }

    /// Reads a URL and resolves its host, once and for all.
    pub(super) fn parse(url: &str) -> Result<Self, Error> {
        let invalid = |reason: String| Error::Config { key: KEY, reason };
        let uri: Uri = url
            .parse()
            .map_err(|error| invalid(format!("{url:?} is not a URL: {error}")))?;
        let (is_tls, port) = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTP => (false, 80),
            Some(scheme) if *scheme == Scheme::HTTPS => (true, 443),
            _ => {
                return Err(invalid(format!(
                    "{url:?}: an upstream's URL begins with http:// or https://"
                )));
            }
        };
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') || uri.query().is_some() {
            return Err(invalid(format!(
                "{url:?}: an upstream's URL has neither user nor query"
            )));
        }
        let name = uri.host().unwrap_or_default();
        let bare = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(name);
        let addresses: Vec<SocketAddr> = (bare, uri.port_u16().unwrap_or(port))
            .to_socket_addrs()
            .map_err(|error| invalid(format!("cannot find the address of {name}: {error}")))?
            .collect();
        if addresses.is_empty() {
            return Err(invalid(format!("the host {name} has no address")));
        }
        let tls_name = is_tls.then(|| ServerName::try_from(bare.to_owned()));
        let tls_name = tls_name
            .transpose()
            .map_err(|_| invalid(format!("no certificate can be for the host {name}")))?;
        Ok(Self {
            tls_name,
            host: HeaderValue::from_str(authority)
                .map_err(|_| invalid(format!("{url:?}: the host is not ASCII")))?,
            place: Place::Tcp(addresses),
            base: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    /// The target for a path of which the first `num_segments` are the route.
    ///
    /// # Errors
    /// The reason, when the path must not be passed on.
    pub(super) fn target(
        &self,
        num_segments: usize,
        path: &str,
        query: Option<&str>,
    ) -> Result<Uri, &'static str> {
        let mut rest = path;
        for _ in 0..num_segments {
            let after = rest.strip_prefix('/').unwrap_or(rest);
            rest = memchr::memchr(b'/', after.as_bytes()).map_or("", |at| &after[at..]);
        }
        let decoded = percent_decode_str(rest).collect::<Vec<u8>>();
        if decoded
            .split(|byte| matches!(byte, b'/' | b'\\'))
            .any(|segment| matches!(segment, b"." | b".."))
        {
            return Err("the path has dot segments");
        }
        let mut target = String::with_capacity(path.len() + self.base.len() + 64);
        target.push_str(&self.base);
        target.push_str(rest);
        if target.is_empty() {
            target.push('/');
        }
        if let Some(query) = query {
            target.push('?');
            target.push_str(query);
        }
        let target = PathAndQuery::try_from(target).map_err(|_| "the path is not valid")?;
        Ok(Uri::from(target))
    }
}

/// Segments of a route pattern without parameters; `/` has none.
pub(super) fn num_segments(route: &str) -> usize {
    route
        .split('/')
        .filter(|segment| !segment.is_empty())
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, route: &str, path: &str, expected: Option<&str>) {
        let upstream = Upstream::parse(url).expect("a URL");
        let (path, query) = path
            .split_once('?')
            .map_or((path, None), |(path, query)| (path, Some(query)));
        let found = upstream.target(num_segments(route), path, query);
        let found = found.ok().map(|uri| uri.to_string());
        assert_eq!(found.as_deref(), expected, "{url} {route} {path}");
    }

    #[test]
    fn the_path_of_the_url_takes_the_place_of_the_route() {
        let url = "http://127.0.0.1:1";
        check(url, "/api", "/api/users/1", Some("/users/1"));
        check(url, "/api", "/api", Some("/"));
        check(url, "/api", "/api/", Some("/"));
        check(url, "/api/v1", "/api/v1/x?a=b&c", Some("/x?a=b&c"));
        check(url, "/", "/a/b", Some("/a/b"));
        check(url, "/", "/", Some("/"));
        check(url, "/", "/?q", Some("/?q"));
        check(
            "http://127.0.0.1:1/base/",
            "/api",
            "/api/x",
            Some("/base/x"),
        );
        check("http://127.0.0.1:1/base", "/api", "/api", Some("/base"));
        check("http://127.0.0.1:1/api", "/api", "/api/x", Some("/api/x"));
    }

    #[test]
    fn what_was_encoded_stays_encoded() {
        let url = "http://127.0.0.1:1";
        check(
            url,
            "/api",
            "/api/a%2Fb/%C3%A9//c",
            Some("/a%2Fb/%C3%A9//c"),
        );
        check(url, "/api", "/%61pi/x", Some("/x"));
    }

    #[test]
    fn dot_segments_are_refused_in_every_spelling() {
        for path in [
            "/api/..",
            "/api/../admin",
            "/api/./x",
            "/api/%2e%2e/admin",
            "/api/x/%2E./admin",
            "/api/x%2f..%2fadmin",
            "/api/..%5cadmin",
            "/api/..\\admin",
        ] {
            check("http://127.0.0.1:1", "/api", path, None);
        }
        check(
            "http://127.0.0.1:1",
            "/api",
            "/api/a..b/...",
            Some("/a..b/..."),
        );
    }

    #[test]
    fn urls_are_checked() {
        for url in [
            "ftp://127.0.0.1",
            "https://127.0.0.1/?q",
            "127.0.0.1:80",
            "http://user@127.0.0.1/",
            "http://127.0.0.1/?q",
            "/path",
            "",
        ] {
            assert!(Upstream::parse(url).is_err(), "{url}");
        }
        let upstream = Upstream::parse("http://[::1]:8080/x").expect("a URL");
        assert_eq!(upstream.host, "[::1]:8080");
        assert_eq!(upstream.tls_name, None);
        let place = |address: &str| Place::Tcp(vec![address.parse().expect("an address")]);
        assert_eq!(upstream.place, place("[::1]:8080"));
        let upstream = Upstream::parse("https://127.0.0.1/x").expect("a URL");
        assert_eq!(upstream.place, place("127.0.0.1:443"));
        assert!(matches!(upstream.tls_name, Some(ServerName::IpAddress(_))));
    }
}
