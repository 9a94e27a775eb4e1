//! Middleware of an application that the lane does itself.
//!
//! Guarantee: what is answered is what the classes of `justapi.middleware`
//! answer, from whose objects the settings are read; Python is asked for
//! redirects and for origins that an expression has to match, and for nothing
//! else.

use std::ops::ControlFlow;
use std::sync::Arc;

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body::Body as _;
use justapi_core::{BROTLI_LEVEL, Begun, Compression, Layer, Request, Response, ZSTD_LEVEL};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::exchange::base_scope;
use crate::mount::Mount;
use crate::respond::{self, Outside, Shape};

const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");
const REQUEST_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const TRUE: HeaderValue = HeaderValue::from_static("true");
const GZIP: HeaderValue = HeaderValue::from_static("gzip");

/// The middleware of one application, as a layer around its routes.
pub(crate) struct Stack(Arc<Members>);

struct Members {
    /// Outermost first.
    all: Vec<Member>,
    mount: Arc<Mount>,
    /// Whether a member has to see answers.
    changes_answers: bool,
}

enum Member {
    Cors(Box<Cors>),
    Gzip(Gzip),
    Hosts(Hosts),
    /// Calls what makes the redirect of a scope.
    Https(Py<PyAny>),
}

/// What members keep of a request for its answer.
#[derive(Default)]
struct Seen {
    is_socket: bool,
    origin: Option<HeaderValue>,
    accepts_gzip: bool,
}

impl Seen {
    fn of(request: &Request) -> Self {
        let mut seen = Self {
            is_socket: request.wants_websocket(),
            ..Self::default()
        };
        if seen.is_socket {
            return seen;
        }
        let mut accepted = None;
        for (name, value) in request.fields() {
            match name.len() {
                6 if seen.origin.is_none() && name.eq_ignore_ascii_case(b"origin") => {
                    seen.origin = HeaderValue::from_bytes(value).ok();
                }
                15 if accepted.is_none() && name.eq_ignore_ascii_case(b"accept-encoding") => {
                    accepted = Some(value);
                }
                _ => {}
            }
        }
        let codings = accepted.unwrap_or_default();
        seen.accepts_gzip = codings.windows(4).any(|four| four == b"gzip");
        seen
    }
}

impl Stack {
    /// Reads the objects of `justapi._layers`; `None` where there are none.
    ///
    /// # Errors
    /// A field that HTTP does not allow.
    pub(crate) fn read(layers: &Bound<'_, PyAny>, mount: &Arc<Mount>) -> PyResult<Option<Self>> {
        let members = layers
            .try_iter()?
            .map(|layer| Member::read(&layer?))
            .collect::<PyResult<Vec<_>>>()?;
        let changes = |member: &Member| matches!(member, Member::Cors(_) | Member::Gzip(_));
        Ok((!members.is_empty()).then(|| {
            Self(Arc::new(Members {
                changes_answers: members.iter().any(changes),
                all: members,
                mount: Arc::clone(mount),
            }))
        }))
    }
}

impl Layer for Stack {
    fn begin(&self, request: &Request) -> Begun {
        let stack = &self.0;
        let seen = Seen::of(request);
        for (index, member) in stack.all.iter().enumerate() {
            if let Some(response) = member.answer(request, &seen, &stack.mount) {
                return ControlFlow::Break(stack.finish(index, &seen, response));
            }
        }
        if seen.is_socket || !stack.changes_answers {
            return ControlFlow::Continue(None);
        }
        let stack = Arc::clone(stack);
        ControlFlow::Continue(Some(Box::new(move |response| {
            stack.finish(stack.all.len(), &seen, response)
        })))
    }
}

impl Members {
    /// Passes an answer out through the first `num_members`.
    fn finish(&self, num_members: usize, seen: &Seen, mut response: Response) -> Response {
        if seen.is_socket || response.extensions().get::<Outside>().is_some() {
            return response;
        }
        for member in self.all[..num_members].iter().rev() {
            match member {
                Member::Cors(cors) => cors.finish(seen, response.headers_mut(), &self.mount),
                Member::Gzip(gzip) => response = gzip.finish(seen, response),
                Member::Hosts(_) | Member::Https(_) => {}
            }
        }
        response
    }
}

impl Member {
    fn read(layer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let kind: String = layer.getattr("kind")?.extract()?;
        match kind.as_str() {
            "cors" => Cors::read(layer).map(|cors| Self::Cors(Box::new(cors))),
            "gzip" => Gzip::read(layer).map(Self::Gzip),
            "hosts" => Hosts::read(layer).map(Self::Hosts),
            "https" => Ok(Self::Https(layer.getattr("redirect")?.unbind())),
            other => Err(PyValueError::new_err(format!("{other:?} is no layer"))),
        }
    }

    /// Answers a request in place of what is inside.
    fn answer(&self, request: &Request, seen: &Seen, mount: &Arc<Mount>) -> Option<Response> {
        match self {
            Self::Cors(cors) => cors.preflight(request, seen, mount),
            Self::Gzip(_) => None,
            Self::Hosts(hosts) => hosts.refuse(request, seen, mount),
            Self::Https(redirect) => {
                (request.scheme() == "http").then(|| ask(redirect, request, seen, mount))
            }
        }
    }
}

/// Has Python make the answer to a request.
fn ask(make: &Py<PyAny>, request: &Request, seen: &Seen, mount: &Arc<Mount>) -> Response {
    Python::attach(|py| {
        let is_head = request.method() == Method::HEAD;
        let made = base_scope(py, request, mount, seen.is_socket)
            .and_then(|scope| make.bind(py).call1((scope,)))
            .and_then(|made| respond::shape(mount, &made, is_head, None));
        match made {
            Ok(Shape::Whole(response)) => response,
            Ok(Shape::Value | Shape::Callable) => respond::server_error(),
            Err(error) => {
                mount.log(py, error);
                respond::server_error()
            }
        }
    })
}

/// `justapi.middleware.cors.CORSMiddleware`.
#[expect(clippy::struct_excessive_bools, reason = "as the class has them")]
struct Cors {
    names_origin: bool,
    allows_all_origins: bool,
    origins: Vec<Vec<u8>>,
    /// `fullmatch` of the expression of origins.
    matches: Option<Py<PyAny>>,
    methods: Vec<Vec<u8>>,
    allows_all_headers: bool,
    /// In lower case.
    headers: Vec<Vec<u8>>,
    allows_private_network: bool,
    simple: Vec<(HeaderName, HeaderValue)>,
    preflight: Vec<(HeaderName, HeaderValue)>,
}

impl Cors {
    fn read(layer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let matches = layer.getattr("matches")?;
        Ok(Self {
            names_origin: layer.getattr("names_origin")?.extract()?,
            allows_all_origins: layer.getattr("allows_all_origins")?.extract()?,
            origins: layer.getattr("origins")?.extract()?,
            matches: (!matches.is_none()).then(|| matches.unbind()),
            methods: layer.getattr("methods")?.extract()?,
            allows_all_headers: layer.getattr("allows_all_headers")?.extract()?,
            headers: layer.getattr("headers")?.extract()?,
            allows_private_network: layer.getattr("allows_private_network")?.extract()?,
            simple: fields(&layer.getattr("simple")?)?,
            preflight: fields(&layer.getattr("preflight")?)?,
        })
    }

    fn allows(&self, origin: &HeaderValue, mount: &Mount) -> bool {
        let origin = origin.as_bytes();
        if self.allows_all_origins || self.origins.iter().any(|known| known == origin) {
            return true;
        }
        let Some(matches) = &self.matches else {
            return false;
        };
        let text: String = origin.iter().map(|byte| char::from(*byte)).collect();
        Python::attach(|py| match matches.bind(py).call1((text,)) {
            Ok(found) => !found.is_none(),
            Err(error) => {
                mount.log(py, error);
                false
            }
        })
    }

    /// 200 if all that a preflight asks for is allowed, 400 with what is not.
    fn preflight(&self, request: &Request, seen: &Seen, mount: &Mount) -> Option<Response> {
        let origin = seen.origin.as_ref()?;
        if request.method() != Method::OPTIONS {
            return None;
        }
        let asked = request.headers();
        let method = asked.get(ACCESS_CONTROL_REQUEST_METHOD)?;
        let mut headers = HeaderMap::new();
        set(&mut headers, &self.preflight);
        let mut refused = Vec::new();
        if !self.allows(origin, mount) {
            refused.push("origin");
        } else if self.names_origin {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
        }
        if !self.methods.iter().any(|known| known == method.as_bytes()) {
            refused.push("method");
        }
        if let Some(names) = asked.get(ACCESS_CONTROL_REQUEST_HEADERS) {
            let is_known = |name: &[u8]| {
                let name = name.trim_ascii();
                let mut known = self.headers.iter();
                known.any(|known| known.eq_ignore_ascii_case(name))
            };
            if self.allows_all_headers {
                headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
            } else if !names.as_bytes().split(|byte| *byte == b',').all(is_known) {
                refused.push("headers");
            }
        }
        if asked.contains_key(REQUEST_PRIVATE_NETWORK) {
            if self.allows_private_network {
                headers.insert(ALLOW_PRIVATE_NETWORK, TRUE);
            } else {
                refused.push("private-network");
            }
        }
        let mut response = if refused.is_empty() {
            Response::text("OK")
        } else {
            Response::text(format!("Disallowed CORS {}", refused.join(", ")))
                .with_status(StatusCode::BAD_REQUEST)
        };
        response.headers_mut().extend(headers);
        Some(response)
    }

    fn finish(&self, seen: &Seen, headers: &mut HeaderMap, mount: &Mount) {
        if let Some(origin) = &seen.origin {
            set(headers, &self.simple);
            if self.names_origin && self.allows(origin, mount) {
                headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            }
        }
        add_vary(headers, b"Origin");
    }
}

fn set(headers: &mut HeaderMap, fields: &[(HeaderName, HeaderValue)]) {
    for (name, value) in fields {
        headers.insert(name.clone(), value.clone());
    }
}

/// Puts a name at the end of what `Vary` says, in one line.
fn add_vary(headers: &mut HeaderMap, name: &[u8]) {
    let mut text = Vec::new();
    for value in headers.get_all(VARY) {
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b", ");
    }
    text.extend_from_slice(name);
    if let Ok(value) = HeaderValue::from_bytes(&text) {
        headers.insert(VARY, value);
    }
}

fn fields(given: &Bound<'_, PyAny>) -> PyResult<Vec<(HeaderName, HeaderValue)>> {
    let given: Vec<(Vec<u8>, Vec<u8>)> = given.extract()?;
    let fields = given.into_iter().map(|(name, value)| {
        let name = HeaderName::from_bytes(&name);
        let value = HeaderValue::from_bytes(&value);
        Ok((
            name.map_err(|_| PyValueError::new_err("a header name is not valid"))?,
            value.map_err(|_| PyValueError::new_err("a header value is not valid"))?,
        ))
    });
    fields.collect()
}

/// `justapi.middleware.gzip.GZipMiddleware`.
struct Gzip {
    minimum_size: u64,
    /// Largest body that is coded before anything else is served.
    one_go_size: usize,
    /// Media types in lower case, `main/*` among them.
    excluded: Vec<Vec<u8>>,
    compression: Compression,
}

impl Gzip {
    fn read(layer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let level: u8 = layer.getattr("level")?.extract()?;
        let compression = Compression::new().levels(level, BROTLI_LEVEL, ZSTD_LEVEL);
        Ok(Self {
            minimum_size: layer.getattr("minimum_size")?.extract()?,
            one_go_size: layer.getattr("one_go_size")?.extract()?,
            excluded: layer.getattr("excluded")?.extract()?,
            compression: compression.map_err(|error| PyValueError::new_err(error.to_string()))?,
        })
    }

    fn is_excluded(&self, headers: &HeaderMap) -> bool {
        let kind = headers.get(CONTENT_TYPE).map_or(&[][..], |kind| {
            let kind = kind.as_bytes().split(|byte| *byte == b';').next();
            kind.unwrap_or_default().trim_ascii()
        });
        let kind = kind.to_ascii_lowercase();
        let main = kind.split(|byte| *byte == b'/').next().unwrap_or_default();
        self.excluded.iter().any(|known| {
            *known == kind
                || known.strip_suffix(b"/*") == Some(main)
                || (known == b"application/grpc" && kind.starts_with(b"application/grpc+"))
        })
    }

    fn finish(&self, seen: &Seen, mut response: Response) -> Response {
        let has_content = ![
            StatusCode::PARTIAL_CONTENT,
            StatusCode::NO_CONTENT,
            StatusCode::NOT_MODIFIED,
        ]
        .contains(&response.status());
        let headers = response.headers();
        if !has_content || headers.contains_key(CONTENT_ENCODING) || self.is_excluded(headers) {
            return response;
        }
        let size = response.body().size_hint().exact();
        if size.is_some_and(|size| size < self.minimum_size) {
            return response;
        }
        add_vary(response.headers_mut(), b"Accept-Encoding");
        if !seen.accepts_gzip {
            return response;
        }
        let (mut head, body) = response.into_http().into_parts();
        let body = match self.compression.gzip(body, self.one_go_size) {
            Ok(coded) => {
                head.headers.insert(CONTENT_ENCODING, GZIP);
                head.headers.remove(CONTENT_LENGTH);
                coded
            }
            // All encoders are at work: the client gets it as it is.
            Err(body) => body,
        };
        http::Response::from_parts(head, body).into()
    }
}

/// `justapi.middleware.trustedhost.TrustedHostMiddleware`.
struct Hosts {
    /// In lower case, with a `*` in front for all that end so.
    hosts: Vec<Vec<u8>>,
    /// Makes the answer to a scope, where it may be a redirect.
    refuse: Option<Py<PyAny>>,
}

impl Hosts {
    fn read(layer: &Bound<'_, PyAny>) -> PyResult<Self> {
        let refuse = layer.getattr("refuse")?;
        Ok(Self {
            hosts: layer.getattr("hosts")?.extract()?,
            refuse: (!refuse.is_none()).then(|| refuse.unbind()),
        })
    }

    fn refuse(&self, request: &Request, seen: &Seen, mount: &Arc<Mount>) -> Option<Response> {
        let mut fields = request.fields();
        let field = fields.find(|(name, _)| name.eq_ignore_ascii_case(b"host"));
        let host = match field {
            Some((_, host)) => host,
            None => request.host().unwrap_or_default().as_bytes(),
        };
        let name = name_of(host).map(<[u8]>::to_ascii_lowercase);
        if name.is_some_and(|name| self.allows(&name)) {
            return None;
        }
        Some(match &self.refuse {
            Some(refuse) => ask(refuse, request, seen, mount),
            None => Response::text("Invalid host header").with_status(StatusCode::BAD_REQUEST),
        })
    }

    fn allows(&self, name: &[u8]) -> bool {
        self.hosts.iter().any(|host| {
            let ending = host.strip_prefix(b"*");
            host == name || ending.is_some_and(|ending| name.ends_with(ending))
        })
    }
}

/// The host of a valid `Host` without its port.
fn name_of(host: &[u8]) -> Option<&[u8]> {
    let end = if host.first() == Some(&b'[') {
        host.iter().position(|byte| *byte == b']')? + 1
    } else {
        let colon = host.iter().position(|byte| *byte == b':');
        colon.unwrap_or(host.len())
    };
    let (name, port) = host.split_at(end);
    let is_port = match port {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let is_name = match name {
        [b'[', literal @ .., b']'] => {
            let is_part = |byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
            !literal.is_empty() && literal.iter().all(is_part)
        }
        name => {
            let ends = |byte: &u8| byte.is_ascii_whitespace() || b"/?#@:[]".contains(byte);
            !name.is_empty() && !name.iter().any(ends)
        }
    };
    (is_name && is_port).then_some(name)
}
