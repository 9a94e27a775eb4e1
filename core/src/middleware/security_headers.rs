//! Security headers on every response, made once at construction.
//!
//! Guarantee: a header that the handler has set is never changed. The default
//! set suits an API (OWASP REST Security cheat sheet); pages that need scripts
//! of other hosts or popups change it.

use std::time::Duration;

use http::header::{
    CONTENT_SECURITY_POLICY, Entry, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};

use crate::error::Error;
use crate::middleware::write_field;

/// Adds security headers to responses that lack them.
#[derive(Debug, Clone)]
pub struct SecurityHeaders {
    set: Vec<(HeaderName, HeaderValue)>,
    /// The set as field lines, in clear and over HTTPS.
    lines: [Vec<u8>; 2],
}

impl Default for SecurityHeaders {
    fn default() -> Self {
        let set = [
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "no-referrer"),
            // Not `default-src`: it would break the documentation pages.
            (CONTENT_SECURITY_POLICY, "frame-ancestors 'none'"),
        ];
        Self::from_set(
            set.map(|(name, text)| (name, HeaderValue::from_static(text)))
                .into(),
        )
    }
}

impl SecurityHeaders {
    /// The default set; no `Strict-Transport-Security`.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `Strict-Transport-Security` to answers that go out over HTTPS.
    ///
    /// Never over plain HTTP (RFC 6797 §7.2).
    #[must_use]
    pub fn with_strict_transport_security(
        self,
        max_age: Duration,
        include_subdomains: bool,
    ) -> Self {
        let mut text = format!("max-age={}", max_age.as_secs());
        if include_subdomains {
            text.push_str("; includeSubDomains");
        }
        self.with_value(STRICT_TRANSPORT_SECURITY, permanent(text))
    }

    /// Sets or replaces one header of the set.
    ///
    /// # Errors
    /// [`Error::Config`] when `value` has characters that a header cannot carry.
    pub fn with_header(self, name: HeaderName, value: &str) -> Result<Self, Error> {
        if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(Error::Config {
                key: "server.security_headers",
                reason: format!("{name}: {value:?} is not printable ASCII"),
            });
        }
        Ok(self.with_value(name, permanent(value.to_owned())))
    }

    /// Removes one header from the set.
    #[must_use]
    pub fn without_header(mut self, name: &HeaderName) -> Self {
        self.set.retain(|(known, _)| known != name);
        Self::from_set(self.set)
    }

    /// Adds what `headers` lacks; `is_secure` says whether the client used HTTPS.
    pub(crate) fn apply(&self, headers: &mut HeaderMap, is_secure: bool) {
        headers.reserve(self.set.len());
        for (name, value) in &self.set {
            if !is_secure && !is_for_clear(name) {
                continue;
            }
            if let Entry::Vacant(entry) = headers.entry(name) {
                entry.insert(value.clone());
            }
        }
    }

    /// The fields of the set.
    pub(super) fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.set.iter().map(|(name, _)| name)
    }

    /// What [`Self::apply`] adds to a response that has nothing of it, as lines.
    pub(super) fn lines(&self, is_secure: bool) -> &[u8] {
        &self.lines[usize::from(is_secure)]
    }

    /// [`Self::apply`] for a head that is being written.
    pub(super) fn write(&self, headers: &HeaderMap, is_secure: bool, head: &mut Vec<u8>) {
        let lacking = self
            .set
            .iter()
            .filter(|(name, _)| !headers.contains_key(name));
        for (name, value) in lacking.filter(|(name, _)| is_secure || is_for_clear(name)) {
            write_field(head, name.as_str().as_bytes(), value.as_bytes());
        }
    }

    fn from_set(set: Vec<(HeaderName, HeaderValue)>) -> Self {
        let lines = [false, true].map(|is_secure| {
            let mut lines = Vec::new();
            for (name, value) in &set {
                if is_secure || is_for_clear(name) {
                    write_field(&mut lines, name.as_str().as_bytes(), value.as_bytes());
                }
            }
            lines
        });
        Self { set, lines }
    }

    fn with_value(mut self, name: HeaderName, value: HeaderValue) -> Self {
        match self.set.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => self.set.push((name, value)),
        }
        Self::from_set(self.set)
    }
}

/// Whether a header may be sent over plain HTTP (RFC 6797 §7.2).
fn is_for_clear(name: &HeaderName) -> bool {
    name != STRICT_TRANSPORT_SECURITY
}

/// Makes a value whose clones touch no reference count that lanes would share.
fn permanent(text: String) -> HeaderValue {
    HeaderValue::from_static(text.leak())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(set: &SecurityHeaders, expected: &[(&str, &str)]) {
        let mut headers = HeaderMap::new();
        set.apply(&mut headers, true);
        let found: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        assert_eq!(found, expected);
    }

    const DEFAULT: [(&str, &str); 4] = [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("referrer-policy", "no-referrer"),
        ("content-security-policy", "frame-ancestors 'none'"),
    ];

    #[test]
    fn the_default_set_has_no_transport_security() {
        check(&SecurityHeaders::new(), &DEFAULT);
    }

    #[test]
    fn transport_security_is_added_when_told() {
        let year = Duration::from_hours(365 * 24);
        let text = |include_subdomains| {
            let mut headers = HeaderMap::new();
            SecurityHeaders::new()
                .with_strict_transport_security(year, include_subdomains)
                .apply(&mut headers, true);
            headers[STRICT_TRANSPORT_SECURITY]
                .to_str()
                .unwrap()
                .to_owned()
        };
        assert_eq!(text(false), "max-age=31536000");
        assert_eq!(text(true), "max-age=31536000; includeSubDomains");
    }

    #[test]
    fn transport_security_is_never_sent_in_clear() {
        let mut headers = HeaderMap::new();
        SecurityHeaders::new()
            .with_strict_transport_security(Duration::from_hours(1), false)
            .apply(&mut headers, false);
        assert_eq!(headers.len(), DEFAULT.len());
        assert!(!headers.contains_key(STRICT_TRANSPORT_SECURITY));
    }

    #[test]
    fn a_header_of_the_handler_is_kept() {
        let mut headers = HeaderMap::new();
        headers.append(X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"));
        SecurityHeaders::new().apply(&mut headers, false);
        let values: Vec<_> = headers.get_all(X_FRAME_OPTIONS).iter().collect();
        assert_eq!(values, ["SAMEORIGIN"]);
        assert_eq!(headers.len(), DEFAULT.len());
    }

    #[test]
    fn headers_are_replaced_added_and_removed() {
        let set = SecurityHeaders::new()
            .with_header(REFERRER_POLICY, "origin")
            .unwrap()
            .with_header(HeaderName::from_static("x-added"), "yes")
            .unwrap()
            .without_header(&CONTENT_SECURITY_POLICY);
        let mut expected = DEFAULT.to_vec();
        expected[2].1 = "origin";
        expected[3] = ("x-added", "yes");
        check(&set, &expected);
    }

    #[test]
    fn a_value_that_would_split_the_header_is_refused() {
        for value in ["a\r\nb: c", "a\nb", "a\0", "é"] {
            assert!(
                SecurityHeaders::new()
                    .with_header(REFERRER_POLICY, value)
                    .is_err()
            );
        }
    }
}
