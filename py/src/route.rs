//! A route as Python compiled it: `justapi._plan.Plan`, read once.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::HeaderName;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyType};

use justapi_core::HeaderValue;

use crate::decode::Root;
use crate::json;
use crate::shape::{Codec, Shape};
use crate::shape_encode::encode_shaped;

/// Where the value of an input is found; `justapi._plan.Source`.
#[derive(Debug)]
pub(crate) enum Source {
    Path(String),
    Query(String),
    QueryList(String),
    Header(HeaderName),
    HeaderList(HeaderName),
    Cookie(String),
    Body,
    Exchange,
}

/// What needs no call into Python; `justapi._plan.Coercion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coercion {
    Text,
    Int,
    Float,
    Bool,
    Call,
    Json(Root),
    /// Only the slow path knows.
    Unknown,
}

/// Where the target is called; `justapi._plan.Kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Inline,
    Async,
    Thread,
}

/// One value that the target takes.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) source: Source,
    pub(crate) coercion: Coercion,
    pub(crate) convert: Option<Py<PyAny>>,
    pub(crate) is_required: bool,
    pub(crate) default: Py<PyAny>,
    /// The least and the greatest number that [`Coercion::Int`] may make.
    pub(crate) bounds: RangeInclusive<i64>,
    /// Shape of a JSON body that needs no converter.
    pub(crate) shape: Option<Arc<Shape>>,
}

/// What is known of a route's results; `justapi._plan.Known`.
#[derive(Debug, Default)]
pub(crate) struct Known {
    class: Option<Py<PyType>>,
    encode: Option<Py<PyAny>>,
    shape: Option<Arc<Shape>>,
}

/// What the lane does for requests of one route.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of the compiled route"
)]
pub(crate) struct Plan {
    pub(crate) target: Py<PyAny>,
    pub(crate) kind: Kind,
    pub(crate) inputs: Vec<Input>,
    pub(crate) needs_query: bool,
    pub(crate) collects_body: bool,
    pub(crate) always_binds: bool,
    pub(crate) bind: Py<PyAny>,
    pub(crate) bind_is_async: bool,
    pub(crate) fail: Py<PyAny>,
    encode: Option<Py<PyAny>>,
    encode_default: Py<PyAny>,
    known: Known,
    pub(crate) status: u16,
    pub(crate) media_type: Option<HeaderValue>,
    pub(crate) path_converters: Option<Py<PyAny>>,
    pub(crate) max_body_bytes: Option<u64>,
    /// Whether slow calls may move the route to threads.
    pub(crate) may_be_demoted: bool,
    pub(crate) endpoint: Py<PyAny>,
    pub(crate) route: Py<PyAny>,
    /// What the supervisor is told if this route is the last that a thread ran.
    pub(crate) last_words: &'static str,
}

impl Plan {
    /// Reads a plan of the Python layer.
    pub(crate) fn read(plan: &Bound<'_, PyAny>) -> PyResult<Self> {
        let inputs = plan.getattr("inputs")?.cast_into::<PyList>()?;
        let converters = plan.getattr("path_converters")?;
        let mut inputs = inputs
            .iter()
            .map(|input| Input::read(&input))
            .collect::<PyResult<Vec<_>>>()?;
        for input in &mut inputs {
            // What a converter of the pattern has made is no text any more.
            if let Source::Path(name) = &input.source
                && input.coercion == Coercion::Text
                && converters.contains(name)?
            {
                input.coercion = Coercion::Unknown;
            }
        }
        let kind = match plan.getattr("kind")?.extract::<u8>()? {
            0 => Kind::Inline,
            1 => Kind::Async,
            _ => Kind::Thread,
        };
        let optional = |name: &str| -> PyResult<Option<Py<PyAny>>> {
            let value = plan.getattr(name)?;
            Ok((!value.is_none()).then(|| value.unbind()))
        };
        let media_type: Option<String> = plan.getattr("media_type")?.extract()?;
        let media_type = media_type
            .map(HeaderValue::try_from)
            .transpose()
            .map_err(|_| PyValueError::new_err("the media type is no header value"))?;
        let streams_body: bool = plan.getattr("streams_body")?.extract()?;
        let json_body: bool = plan.getattr("json_body")?.extract()?;
        let needs = |wanted: fn(&Source) -> bool| inputs.iter().any(|one| wanted(&one.source));
        let blocking: Option<bool> = plan.getattr("blocking")?.extract()?;
        Ok(Self {
            target: plan.getattr("target")?.unbind(),
            kind,
            needs_query: needs(|source| matches!(source, Source::Query(_) | Source::QueryList(_))),
            collects_body: !streams_body && (json_body || needs(|s| matches!(s, Source::Body))),
            inputs,
            always_binds: plan.getattr("always_bind")?.extract()?,
            bind: plan.getattr("bind")?.unbind(),
            bind_is_async: plan.getattr("bind_is_async")?.extract()?,
            fail: plan.getattr("fail")?.unbind(),
            encode: optional("encode")?,
            encode_default: plan.getattr("encode_default")?.unbind(),
            known: Known::read(&plan.getattr("known")?)?,
            status: plan.getattr("status_code")?.extract()?,
            media_type,
            path_converters: (converters.len()? > 0).then(|| converters.unbind()),
            max_body_bytes: plan.getattr("max_body_bytes")?.extract()?,
            may_be_demoted: kind == Kind::Inline && blocking.is_none(),
            endpoint: plan.getattr("endpoint")?.unbind(),
            last_words: last_words(&plan.getattr("route")?)?,
            route: plan.getattr("route")?.unbind(),
        })
    }
}

/// The last words of threads that run `route`, as a line of JSON.
fn last_words(route: &Bound<'_, PyAny>) -> PyResult<&'static str> {
    // A handler of signals may read them at any time, so they live for ever, but
    // those of one route once.
    static KNOWN: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let methods: Vec<String> = route
        .getattr("methods")?
        .try_iter()?
        .map(|method| method?.extract())
        .collect::<PyResult<_>>()?;
    let path: String = route.getattr("path")?.extract()?;
    let name = format!("{} {path}", methods.join("|"));
    let words = format!("\n{}\n", serde_json::json!({ "ran": name }));
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known.get(words.as_str()) {
        return Ok(known);
    }
    let words = words.leak();
    known.insert(words);
    Ok(words)
}

impl Plan {
    /// Whether `result` is certainly no response.
    pub(crate) fn knows(&self, result: &Bound<'_, PyAny>) -> bool {
        let class = self.known.class.as_ref();
        class.is_some_and(|class| result.is_exact_instance(class.bind(result.py())))
    }

    /// Makes the body of a result that is no response.
    pub(crate) fn encode(&self, result: &Bound<'_, PyAny>) -> PyResult<Bytes> {
        let py = result.py();
        if let Some(shape) = &self.known.shape
            && let Some(bytes) = encode_shaped(result, shape)
        {
            return Ok(bytes);
        }
        let encode = match (&self.known.encode, &self.encode) {
            (Some(encode), _) if self.knows(result) => encode,
            (_, Some(encode)) => encode,
            (_, None) => return json::encode(result, Some(self.encode_default.bind(py))),
        };
        let encoded = encode.bind(py).call1((result,))?;
        Ok(Bytes::copy_from_slice(
            encoded.cast::<PyBytes>()?.as_bytes(),
        ))
    }
}

impl Known {
    fn read(known: &Bound<'_, PyAny>) -> PyResult<Self> {
        if known.is_none() {
            return Ok(Self::default());
        }
        let optional = |name: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
            let value = known.getattr(name)?;
            Ok((!value.is_none()).then_some(value))
        };
        let class = optional("cls")?;
        let class = class.map(Bound::cast_into::<PyType>).transpose()?;
        Ok(Self {
            class: class.map(Bound::unbind),
            encode: optional("encode")?.map(Bound::unbind),
            shape: Codec::shape_of(&known.getattr("codec")?)?,
        })
    }
}

impl Input {
    fn read(input: &Bound<'_, PyAny>) -> PyResult<Self> {
        let name: String = input.getattr("name")?.extract()?;
        let header = |name: &str| {
            HeaderName::try_from(name)
                .map_err(|_| PyValueError::new_err(format!("{name:?} is no header name")))
        };
        let source = match input.getattr("source")?.extract::<u8>()? {
            0 => Source::Path(name),
            1 => Source::Query(name),
            2 => Source::QueryList(name),
            3 => Source::Header(header(&name)?),
            4 => Source::HeaderList(header(&name)?),
            5 => Source::Cookie(name),
            6 => Source::Body,
            _ => Source::Exchange,
        };
        let coercion = match input.getattr("coercion")?.extract::<u8>()? {
            0 => Coercion::Text,
            1 => Coercion::Int,
            2 => Coercion::Float,
            3 => Coercion::Bool,
            5 => Coercion::Json(Root::Any),
            6 => Coercion::Json(Root::Object),
            7 => Coercion::Json(Root::Array),
            _ => Coercion::Call,
        };
        let convert = input.getattr("convert")?;
        let (low, high): (Option<i64>, Option<i64>) = input.getattr("bounds")?.extract()?;
        Ok(Self {
            source,
            coercion,
            convert: (!convert.is_none()).then(|| convert.unbind()),
            is_required: input.getattr("required")?.extract()?,
            default: input.getattr("default")?.unbind(),
            bounds: low.unwrap_or(i64::MIN)..=high.unwrap_or(i64::MAX),
            shape: Codec::shape_of(&input.getattr("codec")?)?,
        })
    }
}
