//! Sends clients that came by plain HTTP to the same address by HTTPS.
//!
//! Guarantee: 308 (RFC 9110 §15.4.9), so method and body are kept; host and
//! target stay as they were asked for, and the host is one that passed the
//! gate and, where there is a list, [`super::TrustedHosts`], so the answer
//! leads nowhere else. A request that came by TLS, or by HTTPS to a trusted
//! proxy, is never redirected.

use http::StatusCode;
use http::header::{HeaderValue, LOCATION};
use http::uri::PathAndQuery;

use super::trusted_hosts::split;
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse as _, Response};

/// Answers plain HTTP with a redirect to HTTPS.
#[derive(Debug, Clone, Copy)]
pub struct HttpsRedirect {
    port: u16,
}

impl Default for HttpsRedirect {
    fn default() -> Self {
        Self { port: 443 }
    }
}

impl HttpsRedirect {
    /// Redirects to port 443.
    pub fn new() -> Self {
        Self::default()
    }

    /// Redirects to another port.
    #[must_use]
    pub const fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// The redirect, unless the request came by HTTPS.
    pub(crate) fn check(self, request: &Request) -> Option<Response> {
        if request.arrival().is_secure() {
            return None;
        }
        let name = request.host().map_or("", |host| split(host).0);
        let target = request
            .uri()
            .path_and_query()
            .map_or("/", PathAndQuery::as_str);
        let location = self.location(name, target);
        Some(match location {
            Some(location) => {
                Response::new(StatusCode::PERMANENT_REDIRECT).with_header(LOCATION, location)
            }
            None => Problem::new(StatusCode::BAD_REQUEST)
                .with_detail("this server speaks HTTPS only, and the request names no host")
                .into_response(),
        })
    }

    fn location(self, name: &str, target: &str) -> Option<HeaderValue> {
        // `OPTIONS *` has no address of its own.
        if name.is_empty() || !target.starts_with('/') {
            return None;
        }
        let location = match self.port {
            443 => format!("https://{name}{target}"),
            port => format!("https://{name}:{port}{target}"),
        };
        HeaderValue::try_from(location).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(port: u16, host: &str, target: &str, expected: Option<&str>) {
        let found = HttpsRedirect::new()
            .port(port)
            .location(split(host).0, target);
        let found = found.as_ref().map(|value| value.to_str().unwrap());
        assert_eq!(found, expected);
    }

    #[test]
    fn host_and_target_are_kept_and_the_port_is_replaced() {
        check(443, "a.example", "/", Some("https://a.example/"));
        check(
            443,
            "a.example:8000",
            "/b?c=%2F",
            Some("https://a.example/b?c=%2F"),
        );
        check(8443, "a.example:80", "/b", Some("https://a.example:8443/b"));
        check(443, "[::1]:80", "/b", Some("https://[::1]/b"));
        check(
            443,
            "a",
            "//evil.example/",
            Some("https://a//evil.example/"),
        );
        check(443, "a", "/\\evil", Some("https://a/\\evil"));
    }

    #[test]
    fn without_a_host_there_is_nowhere_to_send() {
        check(443, "", "/", None);
        check(443, ":80", "/", None);
        check(443, "a", "*", None);
    }
}
