//! Cross-origin resource sharing (Fetch standard, §3.2).
//!
//! Guarantee: an origin is allowed only when it equals a configured one byte
//! for byte, and `*` is never combined with credentials. Header values are
//! made at construction: a request clones static values and allocates nothing
//! for them. Preflight answers are not cached here: making one takes less than
//! a microsecond, and browsers keep it for `max_age`.

use std::time::Duration;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, ALLOW, HeaderMap, HeaderName,
    HeaderValue, ORIGIN, VARY,
};
use http::{Method, StatusCode};

use crate::error::Error;
use crate::middleware::write_field;
use crate::response::Response;
use crate::vary;

/// How long a browser may keep a preflight answer; Starlette's 10 minutes.
const DEFAULT_MAX_AGE: Duration = Duration::from_mins(10);
const ANY: HeaderValue = HeaderValue::from_static("*");
const TRUE: HeaderValue = HeaderValue::from_static("true");
const VARY_ORIGIN: HeaderValue = HeaderValue::from_static("Origin");
const VARY_PREFLIGHT: HeaderValue = HeaderValue::from_static(
    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
);
/// What a preflight may ask for when neither the configuration nor the route says.
const COMMON_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");

/// What other origins may do; checked by [`Cors::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CorsConfig {
    /// Origins as browsers send them, like `https://app.example`; or only `*`.
    pub origins: Vec<String>,
    /// Methods to allow; empty for those that the route has.
    pub methods: Vec<Method>,
    /// Request headers to allow; `None` for those that the browser asks for.
    pub headers: Option<Vec<HeaderName>>,
    /// Response headers that scripts may read.
    pub exposed_headers: Vec<HeaderName>,
    /// Whether requests may carry cookies and HTTP authentication.
    pub credentials: bool,
    /// How long a browser may keep a preflight answer; 10 minutes by default.
    pub max_age: Duration,
}

impl Default for CorsConfig {
    fn default() -> Self {
        Self {
            origins: Vec::new(),
            methods: Vec::new(),
            headers: None,
            exposed_headers: Vec::new(),
            credentials: false,
            max_age: DEFAULT_MAX_AGE,
        }
    }
}

/// Answers preflights and marks responses for the origins that may read them.
#[derive(Debug)]
pub struct Cors {
    origins: Origins,
    methods: Option<HeaderValue>,
    headers: AllowedHeaders,
    exposed_headers: Option<HeaderValue>,
    credentials: bool,
    max_age: HeaderValue,
}

impl Cors {
    /// Checks and renders a configuration.
    ///
    /// The rendered values live as long as the process, because a shared
    /// reference count would be contended by all lanes.
    ///
    /// # Errors
    /// [`Error::Config`] for no origin, for an origin that no browser would
    /// ever send, for `*` beside other origins, and for any `*` together with
    /// credentials.
    pub fn new(config: CorsConfig) -> Result<Self, Error> {
        let any_header = |names: &[HeaderName]| names.iter().any(|name| name.as_str() == "*");
        if config.credentials {
            if config.origins.iter().any(|origin| origin == "*") {
                return Err(invalid(
                    ORIGINS,
                    "\"*\" together with credentials would let every site act as the user; \
                     list the origins",
                ));
            }
            if any_header(&config.exposed_headers)
                || any_header(config.headers.as_deref().unwrap_or_default())
            {
                return Err(invalid(
                    "server.cors.headers",
                    "\"*\" means nothing to a browser together with credentials; list the names",
                ));
            }
        }
        Ok(Self {
            origins: Origins::parse(config.origins)?,
            methods: rendered_list(config.methods.iter().map(Method::as_str)),
            headers: match config.headers {
                None => AllowedHeaders::Requested,
                Some(names) => {
                    AllowedHeaders::Listed(rendered_list(names.iter().map(HeaderName::as_str)))
                }
            },
            exposed_headers: rendered_list(config.exposed_headers.iter().map(HeaderName::as_str)),
            credentials: config.credentials,
            max_age: HeaderValue::from(config.max_age.as_secs()),
        })
    }

    /// Answers a preflight: 204, with permissions if the origin is allowed.
    ///
    /// `allow` is the `Allow` value of the matched path. `None` for everything
    /// that is not a preflight. The answer is complete: [`Self::apply`] need
    /// not see it.
    pub(crate) fn preflight(
        &self,
        method: &Method,
        request: &HeaderMap,
        allow: Option<&HeaderValue>,
    ) -> Option<Response> {
        if method != Method::OPTIONS || !request.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
            return None;
        }
        let origin = request.get(ORIGIN)?;
        let mut response = Response::new(StatusCode::NO_CONTENT);
        let headers = response.headers_mut();
        headers.reserve(8);
        headers.insert(VARY, VARY_PREFLIGHT);
        if let Some(allow) = allow {
            headers.insert(ALLOW, allow.clone());
        }
        let Some(allowed_origin) = self.origins.answer(Some(origin)) else {
            // Without permissions the browser refuses; an error status would
            // add nothing but noise in the log.
            return Some(response);
        };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed_origin);
        if self.credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        }
        let methods = self.methods.as_ref().or(allow);
        headers.insert(
            ACCESS_CONTROL_ALLOW_METHODS,
            methods.cloned().unwrap_or(COMMON_METHODS),
        );
        let allowed_headers = match &self.headers {
            AllowedHeaders::Listed(names) => names.as_ref(),
            AllowedHeaders::Requested => request.get(ACCESS_CONTROL_REQUEST_HEADERS),
        };
        if let Some(names) = allowed_headers {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
        }
        headers.insert(ACCESS_CONTROL_MAX_AGE, self.max_age.clone());
        Some(response)
    }

    /// Whether the answer depends on the request's `Origin`.
    pub(crate) const fn asks_origin(&self) -> bool {
        matches!(self.origins, Origins::Listed(_))
    }

    /// Marks a response for the request's `Origin`, if it has one.
    ///
    /// Replaces an `Access-Control-Allow-Origin` of the handler, because a
    /// browser refuses two; keeps what its `Vary` says.
    pub(crate) fn apply(&self, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
        if matches!(self.origins, Origins::Listed(_)) {
            // On every answer, also one without an Origin: a cache must not
            // give that one to a script of another origin.
            vary::add(headers, &ORIGIN, VARY_ORIGIN);
        }
        let Some(allowed_origin) = self.origins.answer(origin) else {
            return;
        };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed_origin);
        if self.credentials {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        }
        if let Some(names) = &self.exposed_headers {
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, names.clone());
        }
    }

    /// The fields that [`Self::apply`] looks at or sets.
    pub(super) fn names(&self) -> impl Iterator<Item = HeaderName> {
        let vary = self.asks_origin().then_some(VARY);
        let credentials = self.credentials.then_some(ACCESS_CONTROL_ALLOW_CREDENTIALS);
        let exposed = self.exposed_headers.as_ref();
        let exposed = exposed.map(|_| ACCESS_CONTROL_EXPOSE_HEADERS);
        [
            Some(ACCESS_CONTROL_ALLOW_ORIGIN),
            vary,
            credentials,
            exposed,
        ]
        .into_iter()
        .flatten()
    }

    /// What [`Self::apply`] adds for every origin to a response that has none
    /// of [`Self::names`], as lines.
    pub(super) fn lines(&self) -> Vec<u8> {
        let mut headers = HeaderMap::new();
        self.apply(None, &mut headers);
        let mut lines = Vec::new();
        for (name, value) in &headers {
            write_field(&mut lines, name.as_str().as_bytes(), value.as_bytes());
        }
        lines
    }

    /// Adds what [`Self::lines`] lacks for `origin` to a head that is being
    /// written.
    pub(super) fn write_for(&self, origin: Option<&HeaderValue>, head: &mut Vec<u8>) {
        let Origins::Listed(_) = &self.origins else {
            return;
        };
        if let Some(allowed) = self.origins.answer(origin) {
            write_field(head, b"access-control-allow-origin", allowed.as_bytes());
            if self.credentials {
                head.extend_from_slice(b"access-control-allow-credentials: true\r\n");
            }
            if let Some(names) = &self.exposed_headers {
                write_field(head, b"access-control-expose-headers", names.as_bytes());
            }
        }
    }
}

const ORIGINS: &str = "server.cors.origins";

#[derive(Debug)]
enum Origins {
    Any,
    /// Sorted by bytes.
    Listed(Vec<HeaderValue>),
}

impl Origins {
    fn parse(origins: Vec<String>) -> Result<Self, Error> {
        if origins.is_empty() {
            return Err(invalid(ORIGINS, "name at least one origin, or \"*\""));
        }
        if origins.iter().any(|origin| origin == "*") {
            return if origins.iter().all(|origin| origin == "*") {
                Ok(Self::Any)
            } else {
                Err(invalid(ORIGINS, "\"*\" includes every other origin"))
            };
        }
        let mut listed = Vec::with_capacity(origins.len());
        for origin in origins {
            if let Err(reason) = check_origin(&origin) {
                return Err(invalid(ORIGINS, format!("{origin:?}: {reason}")));
            }
            listed.push(permanent(origin));
        }
        listed.sort_unstable();
        listed.dedup();
        Ok(Self::Listed(listed))
    }

    /// Value of `Access-Control-Allow-Origin` for a request's `Origin`.
    fn answer(&self, origin: Option<&HeaderValue>) -> Option<HeaderValue> {
        match self {
            // Also without an Origin: the answer may be cached for one that has it.
            Self::Any => Some(ANY),
            Self::Listed(listed) => {
                let index = listed.binary_search(origin?).ok()?;
                Some(listed[index].clone())
            }
        }
    }
}

#[derive(Debug)]
enum AllowedHeaders {
    Listed(Option<HeaderValue>),
    Requested,
}

fn invalid(key: &'static str, reason: impl Into<String>) -> Error {
    Error::Config {
        key,
        reason: reason.into(),
    }
}

/// Checks that `origin` is one as browsers serialise it (RFC 6454, §6.2):
/// anything else would be an entry that never matches.
fn check_origin(origin: &str) -> Result<(), &'static str> {
    let Some((scheme, authority)) = origin.split_once("://") else {
        return Err("expected scheme://host or scheme://host:port");
    };
    let scheme_is_valid = scheme.starts_with(|first: char| first.is_ascii_lowercase())
        && scheme
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'+' | b'-' | b'.'));
    if !scheme_is_valid {
        return Err("the scheme is not lower-case letters, digits, \"+\", \"-\" and \".\"");
    }
    if authority.contains('*') {
        return Err("patterns are not supported; list each origin");
    }
    if authority.contains(['/', '?', '#', '@']) {
        return Err("an origin has no path, query, fragment or user, and no slash at its end");
    }
    let (host, port) = split_port(authority)?;
    let host_is_valid = match host.strip_prefix('[') {
        Some(rest) => rest
            .strip_suffix(']')
            .and_then(|address| address.parse::<std::net::Ipv6Addr>().ok())
            .is_some_and(|address| host == format!("[{address}]")),
        None => {
            !host.is_empty()
                && host
                    .bytes()
                    .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_'))
        }
    };
    if !host_is_valid {
        return Err("the host is not as browsers write it: lower case, ASCII (punycode)");
    }
    match (scheme, port) {
        ("http", Some("80")) | ("https", Some("443")) => {
            Err("browsers leave the default port out; so must the entry")
        }
        (_, Some(port)) if port.parse::<u16>().is_err() || port.starts_with(['0', '+']) => {
            Err("the port is not a number from 1 to 65535")
        }
        _ => Ok(()),
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<&str>), &'static str> {
    let host_end = match authority.rfind(']') {
        Some(bracket) => bracket + 1,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, rest) = authority.split_at(host_end);
    if rest.is_empty() {
        return Ok((host, None));
    }
    match rest.strip_prefix(':') {
        Some(port) => Ok((host, Some(port))),
        None => Err("expected a port after the host"),
    }
}

fn rendered_list<'a>(items: impl Iterator<Item = &'a str>) -> Option<HeaderValue> {
    let list = items.collect::<Vec<_>>().join(", ");
    (!list.is_empty()).then(|| permanent(list))
}

/// Makes a value whose clones touch no reference count.
fn permanent(text: String) -> HeaderValue {
    HeaderValue::from_static(text.leak())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(origins: &[&str], change: impl FnOnce(&mut CorsConfig)) -> Result<Cors, Error> {
        let mut config = CorsConfig {
            origins: origins.iter().map(|&origin| origin.to_owned()).collect(),
            ..CorsConfig::default()
        };
        change(&mut config);
        Cors::new(config)
    }

    fn value(text: &str) -> HeaderValue {
        HeaderValue::from_str(text).unwrap()
    }

    fn one<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
        let mut values = headers.get_all(name).iter();
        let first = values.next().map(|value| value.to_str().unwrap());
        assert_eq!(values.next(), None, "{name} appears twice");
        first
    }

    fn fields(fields: &[(HeaderName, &str)]) -> HeaderMap {
        let fields = fields.iter();
        fields
            .map(|(name, text)| (name.clone(), value(text)))
            .collect()
    }

    fn preflight(cors: &Cors, origin: &str) -> HeaderMap {
        let request = fields(&[
            (ORIGIN, origin),
            (ACCESS_CONTROL_REQUEST_METHOD, "PUT"),
            (ACCESS_CONTROL_REQUEST_HEADERS, "authorization,content-type"),
        ]);
        let allow = value("GET, HEAD, PUT, OPTIONS");
        let response = cors
            .preflight(&Method::OPTIONS, &request, Some(&allow))
            .unwrap();
        assert_eq!(response.status(), StatusCode::NO_CONTENT);
        response.headers().clone()
    }

    fn applied(cors: &Cors, origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        cors.apply(origin.map(value).as_ref(), &mut headers);
        headers
    }

    #[test]
    fn only_the_exact_origin_is_allowed() {
        let cors = cors(&["https://good.com", "http://localhost:3000"], |_| {}).unwrap();
        for origin in ["https://good.com", "http://localhost:3000"] {
            let headers = applied(&cors, Some(origin));
            assert_eq!(one(&headers, &ACCESS_CONTROL_ALLOW_ORIGIN), Some(origin));
            let headers = preflight(&cors, origin);
            assert_eq!(one(&headers, &ACCESS_CONTROL_ALLOW_ORIGIN), Some(origin));
        }
        for origin in [
            "null",
            "*",
            "",
            "http://good.com",
            "https://good.com.evil",
            "https://evilgood.com",
            "https://sub.good.com",
            "https://good.com:443",
            "https://good.com:8443",
            "https://good.com/",
            "https://good.com, https://evil.com",
            "https://GOOD.com",
            "HTTPS://good.com",
            "https://good.co",
            "http://localhost",
            "http://localhost:30000",
            "https://good.com.",
        ] {
            let headers = applied(&cors, Some(origin));
            assert_eq!(
                one(&headers, &ACCESS_CONTROL_ALLOW_ORIGIN),
                None,
                "{origin}"
            );
            assert_eq!(one(&headers, &VARY), Some("Origin"), "{origin}");
            let headers = preflight(&cors, origin);
            for name in [
                ACCESS_CONTROL_ALLOW_ORIGIN,
                ACCESS_CONTROL_ALLOW_METHODS,
                ACCESS_CONTROL_ALLOW_HEADERS,
                ACCESS_CONTROL_ALLOW_CREDENTIALS,
            ] {
                assert_eq!(one(&headers, &name), None, "{origin}");
            }
        }
    }

    #[test]
    fn origins_that_no_browser_sends_are_refused() {
        for origin in [
            "",
            "null",
            "good.com",
            "//good.com",
            "https://",
            "https://Good.com",
            "HTTPS://good.com",
            "https://good.com/",
            "https://good.com/app",
            "https://good.com?x",
            "https://good.com#x",
            "https://user@good.com",
            "https://*.good.com",
            "https://good.com:443",
            "http://good.com:80",
            "https://good.com:",
            "https://good.com:0",
            "https://good.com:+8",
            "https://good.com:65536",
            "https://good.com:x",
            "https://go od.com",
            "https://good.com\n",
            "https://bücher.example",
            "https://[::1",
            "https://[::1]x",
            "https://[0:0::1]",
            "https://::1",
            "1http://good.com",
        ] {
            let error = cors(&[origin], |_| {}).unwrap_err();
            assert!(
                matches!(error, Error::Config { key: ORIGINS, .. }),
                "{origin:?} was taken: {error}"
            );
        }
        for origin in [
            "https://good.com",
            "http://good.com:443",
            "https://good.com:80",
            "http://127.0.0.1:5173",
            "http://[::1]:5173",
            "http://[2001:db8::1]",
            "https://xn--bcher-kva.example",
            "https://my_app.good.com",
            "chrome-extension://abcdefgh",
            "capacitor://localhost",
        ] {
            assert!(cors(&[origin], |_| {}).is_ok(), "{origin}");
        }
        assert!(cors(&[], |_| {}).is_err());
        assert!(cors(&["*", "https://good.com"], |_| {}).is_err());
    }

    #[test]
    fn any_origin_with_credentials_is_refused() {
        assert!(cors(&["*"], |config| config.credentials = true).is_err());
        let star = HeaderName::from_static("*");
        let exposed = cors(&["https://good.com"], |config| {
            config.credentials = true;
            config.exposed_headers = vec![star.clone()];
        });
        assert!(exposed.is_err());
        let allowed = cors(&["https://good.com"], |config| {
            config.credentials = true;
            config.headers = Some(vec![star]);
        });
        assert!(allowed.is_err());
    }

    #[test]
    fn any_origin_answers_a_star_and_does_not_vary() {
        let cors = cors(&["*"], |_| {}).unwrap();
        for origin in [None, Some("null"), Some("https://good.com")] {
            let headers = applied(&cors, origin);
            assert_eq!(one(&headers, &ACCESS_CONTROL_ALLOW_ORIGIN), Some("*"));
            assert_eq!(one(&headers, &ACCESS_CONTROL_ALLOW_CREDENTIALS), None);
            assert_eq!(one(&headers, &VARY), None);
        }
        let headers = preflight(&cors, "https://good.com");
        assert_eq!(one(&headers, &ACCESS_CONTROL_ALLOW_ORIGIN), Some("*"));
    }

    #[test]
    fn a_preflight_answer_is_complete() {
        let plain = cors(&["https://good.com"], |_| {}).unwrap();
        let headers = preflight(&plain, "https://good.com");
        let expected = [
            (
                ACCESS_CONTROL_ALLOW_METHODS,
                Some("GET, HEAD, PUT, OPTIONS"),
            ),
            (
                ACCESS_CONTROL_ALLOW_HEADERS,
                Some("authorization,content-type"),
            ),
            (ACCESS_CONTROL_ALLOW_CREDENTIALS, None),
            (ACCESS_CONTROL_MAX_AGE, Some("600")),
            (ALLOW, Some("GET, HEAD, PUT, OPTIONS")),
            (
                VARY,
                Some("Origin, Access-Control-Request-Method, Access-Control-Request-Headers"),
            ),
        ];
        for (name, text) in expected {
            assert_eq!(one(&headers, &name), text);
        }

        let configured = cors(&["https://good.com"], |config| {
            config.methods = vec![Method::GET, Method::PUT];
            config.headers = Some(vec![HeaderName::from_static("x-key")]);
            config.credentials = true;
            config.max_age = Duration::from_secs(5);
        })
        .unwrap();
        let headers = preflight(&configured, "https://good.com");
        let expected = [
            (ACCESS_CONTROL_ALLOW_METHODS, Some("GET, PUT")),
            (ACCESS_CONTROL_ALLOW_HEADERS, Some("x-key")),
            (ACCESS_CONTROL_ALLOW_CREDENTIALS, Some("true")),
            (ACCESS_CONTROL_MAX_AGE, Some("5")),
        ];
        for (name, text) in expected {
            assert_eq!(one(&headers, &name), text);
        }
    }

    #[test]
    fn what_is_not_a_preflight_is_left_to_the_router() {
        let cors = cors(&["https://good.com"], |_| {}).unwrap();
        let origin = (ORIGIN, "https://good.com");
        let method = (ACCESS_CONTROL_REQUEST_METHOD, "PUT");
        for (verb, request) in [
            (Method::OPTIONS, fields(&[])),
            (Method::OPTIONS, fields(std::slice::from_ref(&origin))),
            (Method::OPTIONS, fields(std::slice::from_ref(&method))),
            (Method::GET, fields(&[origin, method])),
        ] {
            assert!(cors.preflight(&verb, &request, None).is_none());
        }
    }

    #[test]
    fn responses_carry_credentials_and_exposed_headers() {
        let cors = cors(&["https://good.com"], |config| {
            config.credentials = true;
            config.exposed_headers = vec![
                HeaderName::from_static("x-request-id"),
                HeaderName::from_static("etag"),
            ];
        })
        .unwrap();
        let headers = applied(&cors, Some("https://good.com"));
        assert_eq!(
            one(&headers, &ACCESS_CONTROL_ALLOW_CREDENTIALS),
            Some("true")
        );
        assert_eq!(
            one(&headers, &ACCESS_CONTROL_EXPOSE_HEADERS),
            Some("x-request-id, etag")
        );
        assert_eq!(one(&applied(&cors, None), &VARY), Some("Origin"));
        assert_eq!(applied(&cors, None).len(), 1);
    }

    #[test]
    fn an_existing_vary_is_kept() {
        let cors = cors(&["https://good.com"], |_| {}).unwrap();
        let check = |before: &[&str], after: &[&str]| {
            let mut headers = HeaderMap::new();
            for text in before {
                headers.append(VARY, value(text));
            }
            cors.apply(None, &mut headers);
            let found: Vec<_> = headers.get_all(VARY).iter().collect();
            assert_eq!(found, after);
        };
        check(&["Accept-Encoding"], &["Accept-Encoding", "Origin"]);
        check(&["Accept", "Cookie"], &["Accept", "Cookie", "Origin"]);
        check(&["accept , ORIGIN"], &["accept , ORIGIN"]);
        check(&["X-Origin"], &["X-Origin", "Origin"]);
        check(&["*"], &["*"]);
    }

    #[test]
    fn a_second_allowed_origin_of_the_handler_is_replaced() {
        let cors = cors(&["https://good.com"], |_| {}).unwrap();
        let mut headers = HeaderMap::new();
        headers.append(ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
        cors.apply(Some(&value("https://good.com")), &mut headers);
        assert_eq!(
            one(&headers, &ACCESS_CONTROL_ALLOW_ORIGIN),
            Some("https://good.com")
        );
    }
}
