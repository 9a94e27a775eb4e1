//! Routes that are answered without Python.
//!
//! Guarantee: nothing here attaches to the interpreter once the route is made,
//! and what another server hands over is answered by the same code.

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use justapi_core::{
    Accepted, Error, Files, FutureSlot, Handler, IntoResponse as _, Problem, Request, Response,
    Schema, inline, validated,
};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::Value;

use crate::mount::{LaneCounter, count};

/// What a native route does; `justapi._plan.NativePlan`.
pub(crate) struct NativePlan {
    kind: String,
    schema: Option<Value>,
    query_schema: Option<Value>,
    template: Template,
    path: Option<std::path::PathBuf>,
}

/// Head and body of the answer, as far as they are known.
#[derive(Clone)]
struct Template {
    status: StatusCode,
    content_type: Option<HeaderValue>,
    /// What follows it.
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl Template {
    fn answer(&self, body: impl Into<justapi_core::Body>) -> Response {
        let mut response = match &self.content_type {
            Some(content_type) => Response::with_content(content_type.clone(), body.into()),
            None => Response::new(StatusCode::OK).with_body(body),
        };
        if self.status != StatusCode::OK {
            response = response.with_status(self.status);
        }
        for (name, value) in &self.headers {
            response.headers_mut().append(name, value.clone());
        }
        response
    }

    /// The answer with `document` as its body.
    fn document(&self, document: &Value) -> Response {
        match serde_json::to_vec(document) {
            Ok(bytes) => self.answer(bytes),
            Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR).into_response(),
        }
    }
}

impl NativePlan {
    pub(crate) fn read(plan: &Bound<'_, PyAny>) -> PyResult<Self> {
        let schema = |name: &str| -> PyResult<Option<Value>> {
            let text: Option<String> = plan.getattr(name)?.extract()?;
            text.map(|text| {
                serde_json::from_str(&text)
                    .map_err(|error| PyValueError::new_err(format!("{name}: {error}")))
            })
            .transpose()
        };
        let status: u16 = plan.getattr("status_code")?.extract()?;
        let headers: Vec<(Vec<u8>, Vec<u8>)> = plan.getattr("raw_headers")?.extract()?;
        let mut headers = headers
            .into_iter()
            .map(|(name, value)| {
                let name = HeaderName::from_bytes(&name);
                let value = HeaderValue::from_bytes(&value);
                Ok((
                    name.map_err(|_| PyValueError::new_err("a header name is not valid"))?,
                    value.map_err(|_| PyValueError::new_err("a header value is not valid"))?,
                ))
            })
            .filter(
                |header| !matches!(header, Ok((name, _)) if name == http::header::CONTENT_LENGTH),
            )
            .collect::<PyResult<Vec<_>>>()?;
        let content_type = match headers.first() {
            Some((name, _)) if name == http::header::CONTENT_TYPE => Some(headers.remove(0).1),
            _ => None,
        };
        Ok(Self {
            kind: plan.getattr("kind")?.extract()?,
            schema: schema("schema")?,
            query_schema: schema("query_schema")?,
            template: Template {
                status: StatusCode::from_u16(status)
                    .map_err(|_| PyValueError::new_err("the status code is not valid"))?,
                content_type,
                headers,
                body: plan.getattr("body")?.extract::<Vec<u8>>()?.into(),
            },
            path: plan.getattr("path")?.extract()?,
        })
    }

    /// The handler of the route, which counts what it answers.
    ///
    /// # Errors
    /// A file that cannot be served.
    pub(crate) fn into_handler(
        self,
        max_body_bytes: Option<u64>,
        answered: &LaneCounter,
    ) -> Result<NativeHandler, Error> {
        Ok(NativeHandler {
            handler: self.into_uncounted()?,
            max_body_bytes,
            answered: answered.clone(),
        })
    }

    fn into_uncounted(self) -> Result<Box<dyn Handler>, Error> {
        let template = self.template;
        if let Some(path) = self.path {
            return file(&path, template);
        }
        if self.kind == "constant" || self.kind == "redirect" {
            let body = template.body.clone();
            let answer = inline(move |_: Request| template.answer(body.clone()));
            return Ok(Box::new(answer));
        }
        let has_body = self.schema.is_some();
        let mut checks = validated();
        if let Some(schema) = self.schema {
            checks = checks.body(schema_of(schema));
        }
        if let Some(schema) = self.query_schema {
            checks = checks.query(schema_of(schema));
        }
        if !template.body.is_empty() {
            // No value is made of what nobody looks at.
            let answer = move |_: Accepted<(), ()>| template.answer(template.body.clone());
            return Ok(Box::new(checks.inline(answer)));
        }
        if has_body {
            let answer = move |accepted: Accepted<Value, ()>| template.document(&accepted.body);
            return Ok(Box::new(checks.inline(answer)));
        }
        let answer = move |accepted: Accepted<(), Value>| template.document(&accepted.query);
        Ok(Box::new(checks.inline(answer)))
    }
}

/// A handler that needs no interpreter.
pub(crate) struct NativeHandler {
    handler: Box<dyn Handler>,
    /// Limit of the route's own, instead of the server's.
    max_body_bytes: Option<u64>,
    answered: LaneCounter,
}

/// A native route for requests that another server has read.
#[pyclass(frozen, module = "justapi._core")]
pub(crate) struct NativeRoute {
    handler: Box<dyn Handler>,
}

/// Status, header lines, and the body unless that is the route's file.
type Answer<'py> = (
    u16,
    Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>,
    Option<Bound<'py, PyBytes>>,
);

#[pymethods]
impl NativeRoute {
    /// Makes the route of a `justapi._plan.NativePlan`.
    #[new]
    fn new(plan: &Bound<'_, PyAny>) -> PyResult<Self> {
        let handler = NativePlan::read(plan)?.into_uncounted();
        let handler = handler.map_err(|error| PyValueError::new_err(error.to_string()))?;
        if let Some(fault) = handler.contract().fault() {
            return Err(PyValueError::new_err(fault.to_string()));
        }
        Ok(Self { handler })
    }

    /// Answers a request whose body is all here.
    fn answer<'py>(
        &self,
        py: Python<'py>,
        method: &str,
        query: &[u8],
        headers: Vec<(Vec<u8>, Vec<u8>)>,
        body: Vec<u8>,
    ) -> PyResult<Answer<'py>> {
        let request = request(method, query, headers, body)?;
        // What Python would wait for is done without it.
        let response = py.detach(|| self.handler.call(request, &mut FutureSlot::new()));
        let Some(response) = response else {
            return Err(PyRuntimeError::new_err("the answer was not there at once"));
        };
        let status = response.status().as_u16();
        let lines = response.headers().iter().map(|(name, value)| {
            let name = PyBytes::new(py, name.as_str().as_bytes());
            (name, PyBytes::new(py, value.as_bytes()))
        });
        let lines = lines.collect();
        let body = response.into_body().into_ready().ok();
        Ok((status, lines, body.map(|body| PyBytes::new(py, &body))))
    }
}

fn request(
    method: &str,
    query: &[u8],
    headers: Vec<(Vec<u8>, Vec<u8>)>,
    body: Vec<u8>,
) -> PyResult<Request> {
    let bad = |what: &str| PyValueError::new_err(format!("{what} is not valid"));
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| bad("the method"))?;
    let target = [b"/?", query].concat();
    let target = PathAndQuery::from_maybe_shared(target).map_err(|_| bad("the query"))?;
    let mut request = Request::new(method, Uri::from(target), body);
    for (name, value) in headers {
        let name = HeaderName::from_bytes(&name).map_err(|_| bad("a header name"))?;
        let value = HeaderValue::from_bytes(&value).map_err(|_| bad("a header value"))?;
        request.headers_mut().append(name, value);
    }
    Ok(request)
}

/// A schema that may bring its own meta-schema along, among its definitions.
///
/// `$schema` names it, as documents are bundled (JSON Schema Core §9.3).
fn schema_of(document: Value) -> Schema {
    let bundled = document.get("$defs").and_then(Value::as_object);
    let dialect = document.get("$schema").and_then(Value::as_str);
    let meta_schema = bundled.zip(dialect).and_then(|(bundled, dialect)| {
        let named = |one: &&Value| one.get("$id").and_then(Value::as_str) == Some(dialect);
        let found = bundled.values().find(named)?;
        Some((dialect.to_owned(), found.clone()))
    });
    match meta_schema {
        Some((dialect, found)) => Schema::new(document).with_resource(dialect, found),
        None => Schema::new(document),
    }
}

fn file(path: &std::path::Path, template: Template) -> Result<Box<dyn Handler>, Error> {
    // Opened for each request, so that a new file is seen.
    let path = path.to_owned();
    drop(Files::new(path.parent().unwrap_or(&path))?);
    let answer = inline(move |_: Request| {
        let opened = std::fs::File::open(&path).and_then(|file| {
            let length = file.metadata()?.len();
            Ok((file, length))
        });
        match opened {
            Ok((file, length)) => template.answer(justapi_core::Body::file(file.into(), 0..length)),
            Err(_) => Problem::new(StatusCode::NOT_FOUND).into_response(),
        }
    });
    Ok(Box::new(answer))
}

impl Handler for NativeHandler {
    fn call(&self, mut request: Request, slot: &mut FutureSlot) -> Option<Response> {
        count(&self.answered);
        if let Some(limit) = self.max_body_bytes {
            request.body_mut().set_limit(limit);
        }
        self.handler.call(request, slot)
    }

    fn contract(&self) -> justapi_core::Contract<'_> {
        self.handler.contract()
    }
}
