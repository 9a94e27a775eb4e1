//! Which hosts this server answers for: the defence against DNS rebinding and
//! forged `Host` headers.
//!
//! Guarantee: with a list, a request for any other host gets 421 (RFC 9110
//! §15.5.20) before a handler sees it. Names are compared without case and
//! without the dot at their end. An entry with a port matches that port only,
//! one without matches every port.

use std::net::{IpAddr, Ipv6Addr};
use std::str::FromStr;

use http::StatusCode;
use memchr::memchr;

use crate::error::Error;
use crate::gate::is_valid_host;
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};

/// A host that the server answers for.
///
/// Parsed from `example.com`, `*.example.com` (every subdomain, at any depth,
/// and not the domain itself), `192.0.2.1` or `[2001:db8::1]`, each with an
/// optional `:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    name: Name,
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Name {
    /// In lower case.
    Exact(Box<str>),
    /// What stands after the `*`, with its dot, in lower case.
    Below(Box<str>),
    V6(Ipv6Addr),
    /// `localhost`, names below it, and every loopback address.
    Loopback,
}

impl FromStr for HostPattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (below, host) = match text.strip_prefix('*') {
            Some(rest) if rest.starts_with('.') => (true, &rest[1..]),
            Some(_) => return Err("a pattern begins with `*.`"),
            None => (false, text),
        };
        if host.contains('*') || !is_valid_host(host.as_bytes()) {
            return Err("not a host, or a host with a port");
        }
        let (name, port) = split(host);
        let port = match port {
            "" => None,
            digits => Some(digits.parse().map_err(|_| "the port is not a number")?),
        };
        let lower = name.to_ascii_lowercase();
        let name = match lower.strip_prefix('[').and_then(|v6| v6.strip_suffix(']')) {
            Some(_) if below => return Err("an address has no subdomains"),
            Some(v6) => Name::V6(v6.parse().map_err(|_| "not an IPv6 address")?),
            None if lower.is_empty() => return Err("the host is empty"),
            None if below => Name::Below(format!(".{lower}").into()),
            None => Name::Exact(lower.into()),
        };
        Ok(Self { name, port })
    }
}

impl HostPattern {
    /// `name` has no port and no dot at its end.
    fn matches(&self, name: &[u8], port: impl Fn() -> Option<u16>) -> bool {
        if self.port.is_some() && self.port != port() {
            return false;
        }
        match &self.name {
            Name::Exact(known) => known.as_bytes().eq_ignore_ascii_case(name),
            Name::Below(suffix) => is_below(name, suffix.as_bytes()),
            Name::V6(address) => in_brackets(name).and_then(parse) == Some(*address),
            Name::Loopback => is_loopback(name),
        }
    }
}

/// Refuses requests for hosts that are not listed.
#[derive(Debug, Clone)]
pub struct TrustedHosts {
    patterns: Vec<HostPattern>,
}

impl TrustedHosts {
    /// Answers for these hosts only.
    ///
    /// # Errors
    /// [`Error::Config`] for an empty list, which would refuse everything.
    pub fn new(patterns: Vec<HostPattern>) -> Result<Self, Error> {
        if patterns.is_empty() {
            return Err(Error::Config {
                key: "server.trusted_hosts",
                reason: "name at least one host".to_owned(),
            });
        }
        Ok(Self { patterns })
    }

    /// Answers for this machine's own names only: `localhost`, names below it,
    /// and loopback addresses, on every port.
    ///
    /// For a server on a loopback address: a page whose name is rebound to
    /// 127.0.0.1 sends its own name as Host, and is refused.
    pub fn loopback() -> Self {
        Self {
            patterns: vec![HostPattern {
                name: Name::Loopback,
                port: None,
            }],
        }
    }

    /// Answers for one host more.
    #[must_use]
    pub fn and(mut self, pattern: HostPattern) -> Self {
        self.patterns.push(pattern);
        self
    }

    /// The refusal, unless the request's host is listed.
    pub(crate) fn check(&self, request: &Request) -> Option<Response> {
        let is_https = request.arrival().is_secure();
        let is_trusted = request
            .host_bytes()
            .is_some_and(|host| self.contains(host, is_https));
        if is_trusted {
            return None;
        }
        let problem = Problem::new(StatusCode::MISDIRECTED_REQUEST).with_detail(
            "this server does not answer for the requested host; \
             server.trusted_hosts lists those that it answers for",
        );
        Some(problem.into_response())
    }

    /// Whether `host`, a valid `Host` value, is listed.
    fn contains(&self, host: &[u8], is_https: bool) -> bool {
        let (name, port) = split_bytes(host);
        let name = name.strip_suffix(b".").unwrap_or(name);
        let port = || match port {
            b"" => Some(if is_https { 443 } else { 80 }),
            digits => parse(digits),
        };
        !name.is_empty()
            && self
                .patterns
                .iter()
                .any(|pattern| pattern.matches(name, port))
    }
}

/// Name and port digits of a valid host; the digits may be missing.
pub(super) fn split(host: &str) -> (&str, &str) {
    let (name, port) = split_bytes(host.as_bytes());
    // Both are cut at ASCII characters.
    (&host[..name.len()], &host[host.len() - port.len()..])
}

fn split_bytes(host: &[u8]) -> (&[u8], &[u8]) {
    let end = match host.first() {
        Some(b'[') => memchr(b']', host).map_or(host.len(), |bracket| bracket + 1),
        _ => memchr(b':', host).unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    (name, port.strip_prefix(b":").unwrap_or(port))
}

/// Whether `name` ends with `suffix` and has something before it.
fn is_below(name: &[u8], suffix: &[u8]) -> bool {
    name.len() > suffix.len() && name[name.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
}

/// What stands between the brackets of an IPv6 address.
fn in_brackets(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(b"[")?.strip_suffix(b"]")
}

fn parse<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn is_loopback(name: &[u8]) -> bool {
    if name == b"127.0.0.1" || name.eq_ignore_ascii_case(b"localhost") {
        return true;
    }
    let address: Option<IpAddr> = parse(in_brackets(name).unwrap_or(name));
    address.is_some_and(|address| address.to_canonical().is_loopback())
        || is_below(name, b".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(patterns: &[&str], host: &str, expected: bool) {
        let patterns = patterns.iter().map(|text| text.parse().unwrap()).collect();
        let hosts = TrustedHosts::new(patterns).unwrap();
        assert_eq!(hosts.contains(host.as_bytes(), false), expected, "{host}");
    }

    #[test]
    fn names_are_exact_without_case_and_dot() {
        for host in [
            "a.example",
            "A.EXAMPLE",
            "a.example.",
            "a.example:8000",
            "a.example:",
        ] {
            check(&["A.example"], host, true);
        }
        for host in [
            "b.a.example",
            "a.exampl",
            "a.example.evil",
            "",
            ":80",
            ".",
            "xa.example",
        ] {
            check(&["a.example"], host, false);
        }
    }

    #[test]
    fn a_star_matches_every_subdomain_and_not_the_domain() {
        for host in ["a.example.com", "b.a.Example.com", "a.example.com.:80"] {
            check(&["*.example.com"], host, true);
        }
        for host in [
            "example.com",
            "xexample.com",
            ".example.com",
            "a.example.com.evil",
        ] {
            check(&["*.example.com"], host, false);
        }
    }

    #[test]
    fn a_port_in_the_list_must_match() {
        check(&["a:8000"], "a:8000", true);
        check(&["a:8000"], "a:8001", false);
        check(&["a:8000"], "a", false);
        check(&["a:80"], "a", true);
        check(&["*.a:80"], "b.a:81", false);
        let hosts = TrustedHosts::new(vec!["a:443".parse().unwrap()]).unwrap();
        assert!(hosts.contains(b"a", true) && !hosts.contains(b"a", false));
    }

    #[test]
    fn ipv6_literals_are_compared_as_addresses() {
        check(&["[2001:db8::1]"], "[2001:DB8:0:0::1]:80", true);
        check(&["[2001:db8::1]:80"], "[2001:db8::1]", true);
        check(&["[2001:db8::1]"], "[2001:db8::2]", false);
        check(&["192.0.2.1"], "192.0.2.1:9", true);
    }

    #[test]
    fn loopback_is_this_machine_and_nobody_else() {
        let hosts = TrustedHosts::loopback();
        for host in [
            "localhost",
            "LocalHost:8000",
            "localhost.",
            "app.localhost",
            "127.0.0.1",
            "127.0.0.1:80",
            "127.1.2.3",
            "[::1]",
            "[::1]:8000",
            "[0:0::1]",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(hosts.contains(host.as_bytes(), false), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "0.0.0.0",
            "[::]",
            "[::2]",
            "127.1",
            "2130706433",
            "",
            "xlocalhost",
        ] {
            assert!(!hosts.contains(host.as_bytes(), false), "{host}");
        }
        let hosts = hosts.and("dev.example".parse().unwrap());
        assert!(hosts.contains(b"dev.example:1", false));
    }

    #[test]
    fn patterns_that_cannot_match_are_refused() {
        for bad in [
            "", "*", "*a", "a.*", "*.*.a", "*.", "a b", "http://a", "a/", "a:x", "a:65536", "[::1",
            "::1", "*.[::1]", ":80", "a@b",
        ] {
            assert!(bad.parse::<HostPattern>().is_err(), "{bad}");
        }
        assert!(TrustedHosts::new(Vec::new()).is_err());
    }
}
