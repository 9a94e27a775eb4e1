//! Routes that are answered without Python.
//!
//! Guarantee: nothing here attaches to the interpreter once the route is made.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode};
use justapi_core::{
    Accepted, Error, Files, FutureSlot, Handler, IntoResponse as _, Problem, Request, Response,
    Schema, inline, validated,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::Value;

use crate::mount::count;

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
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
}

impl Template {
    fn answer(&self, body: impl Into<justapi_core::Body>) -> Response {
        let mut response = Response::new(self.status).with_body(body);
        for (name, value) in &self.headers {
            response.headers_mut().append(name, value.clone());
        }
        response
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
        let headers = headers
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
        Ok(Self {
            kind: plan.getattr("kind")?.extract()?,
            schema: schema("schema")?,
            query_schema: schema("query_schema")?,
            template: Template {
                status: StatusCode::from_u16(status)
                    .map_err(|_| PyValueError::new_err("the status code is not valid"))?,
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
    pub(crate) fn into_handler(self, answered: &Arc<AtomicU64>) -> Result<NativeHandler, Error> {
        Ok(NativeHandler {
            handler: self.into_uncounted()?,
            answered: Arc::clone(answered),
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
            checks = checks.body(Schema::new(schema));
        }
        if let Some(schema) = self.query_schema {
            checks = checks.query(Schema::new(schema));
        }
        let answer = move |accepted: Accepted| {
            if !template.body.is_empty() {
                return template.answer(template.body.clone());
            }
            let document = if has_body {
                &accepted.body
            } else {
                &accepted.query
            };
            match serde_json::to_vec(document) {
                Ok(bytes) => template.answer(bytes),
                Err(_) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR).into_response(),
            }
        };
        Ok(Box::new(checks.inline(answer)))
    }
}

/// A handler that needs no interpreter.
pub(crate) struct NativeHandler {
    handler: Box<dyn Handler>,
    answered: Arc<AtomicU64>,
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
    fn call(&self, request: Request, slot: &mut FutureSlot) -> Option<Response> {
        count(&self.answered);
        self.handler.call(request, slot)
    }

    fn contract(&self) -> justapi_core::Contract<'_> {
        self.handler.contract()
    }
}
