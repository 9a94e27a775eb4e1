//! Handlers behind schemas: what is checked, in which order, and what the
//! handler gets.
//!
//! Guarantee: query, media type, syntax, schema are checked in this order, and
//! what the schemas find wrong with query and body is one answer; no value is
//! made of a valid body unless the handler asks for one; a body that has
//! arrived with its head is answered without a future when the handler needs
//! none. The price of the one answer: a wrong query is told when the body has
//! come, unless its sender waits for a `100 Continue` and has sent none of it.

use std::fmt;
use std::future::{Future, Ready, poll_fn};
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use http::StatusCode;
use http::header::EXPECT;
use jsonschema::Validator;
use serde_json::Value;

use crate::handler::{Answer, FutureSlot, Handler};
use crate::problem::Problem;
use crate::request::Request;
use crate::response::{IntoResponse, Response};
use crate::validation::collect::Collect;
use crate::validation::content_type;
use crate::validation::contract::{Contract, Place, SchemaFault};
use crate::validation::document::{Document, FromJson};
use crate::validation::instance::Instance;
use crate::validation::query::QueryPlan;
use crate::validation::rejection::{self, Faults};
use crate::validation::schema::{BodyValidator, Schema};

/// Begins a handler whose requests are checked by schemas.
///
/// ```
/// use justapi_core::{Accepted, Json, Router, Schema, validated};
/// use serde::Deserialize;
/// use serde_json::json;
///
/// #[derive(Deserialize)]
/// struct User {
///     name: String,
/// }
///
/// # fn main() -> Result<(), justapi_core::Error> {
/// let user = Schema::new(json!({
///     "type": "object",
///     "properties": {"name": {"type": "string", "minLength": 1}},
///     "required": ["name"],
/// }));
/// let greet = async |accepted: Accepted<Json<User>>| {
///     let Json(user) = accepted.body;
///     format!("hello {}", user.name)
/// };
/// let router = Router::new().post("/users", validated().body(user).handle(greet))?;
/// # Ok(())
/// # }
/// ```
pub fn validated() -> Validated {
    Validated::default()
}

/// A handler under construction; made by [`validated`].
#[derive(Debug, Clone, Default)]
pub struct Validated {
    body: Option<Schema>,
    query: Option<Schema>,
    answer: Option<Schema>,
    is_lazy: bool,
}

impl Validated {
    /// Demands a JSON body that matches `schema`.
    ///
    /// Refusals: 415 when the content type is not JSON, 400 with line and
    /// column when it does not parse, 422 with the errors when it is invalid.
    #[must_use]
    pub fn body(mut self, schema: Schema) -> Self {
        self.body = Some(schema);
        self
    }

    /// Demands a query that matches `schema`, which describes an object.
    ///
    /// A text becomes null, a boolean or a number where the schema names that
    /// type and the text is its JSON spelling. A parameter that came several
    /// times is an array, and so is one that came once where the schema allows
    /// nothing but arrays. Types are found through `$ref` to a JSON pointer,
    /// `allOf`, `anyOf`, `oneOf` and `if`.
    #[must_use]
    pub fn query(mut self, schema: Schema) -> Self {
        self.query = Some(schema);
        self
    }

    /// Says what a success answers; for the description, not checked.
    #[must_use]
    pub fn answers(mut self, schema: Schema) -> Self {
        self.answer = Some(schema);
        self
    }

    /// Compiles the schemas at the first request instead of at registration.
    ///
    /// For a program that tests its own schemas and has to start at once:
    /// compiling the first one takes some milliseconds and megabytes. A bad
    /// schema is then a 500 of its route.
    #[must_use]
    pub const fn lazily(mut self) -> Self {
        self.is_lazy = true;
        self
    }

    /// Answers what was accepted with an async function.
    pub fn handle<F, Fut, B, Q>(self, function: F) -> impl Handler
    where
        F: Fn(Accepted<B, Q>) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
        Fut::Output: IntoResponse,
        B: FromJson + 'static,
        Q: FromJson + 'static,
    {
        Checked::new(self, Deferred(function))
    }

    /// Answers what was accepted with a plain function that never waits.
    pub fn inline<F, R, B, Q>(self, function: F) -> impl Handler
    where
        F: Fn(Accepted<B, Q>) -> R + Send + Sync + 'static,
        R: IntoResponse,
        B: FromJson + 'static,
        Q: FromJson + 'static,
    {
        Checked::new(self, Immediate(function))
    }
}

/// A request that its route's schemas accept.
#[derive(Debug)]
pub struct Accepted<B = Value, Q = Value> {
    /// The request; its body is empty when there is a body schema.
    pub request: Request,
    /// The parsed body; null without a body schema.
    pub body: B,
    /// The query as an object, coerced; null without a query schema.
    pub query: Q,
}

/// The schemas of one handler, compiled once.
struct Checks {
    schemas: Validated,
    compiled: OnceLock<Compiled>,
}

impl Checks {
    fn new(schemas: Validated) -> Self {
        let checks = Self {
            schemas,
            compiled: OnceLock::new(),
        };
        if !checks.schemas.is_lazy {
            checks.compiled();
        }
        checks
    }

    fn compiled(&self) -> &Compiled {
        self.compiled.get_or_init(|| Compiled::new(&self.schemas))
    }
}

/// What requests are checked with.
struct Compiled {
    body: Option<BodyValidator>,
    query: Option<(QueryPlan, Validator)>,
    fault: Option<SchemaFault>,
}

impl Compiled {
    fn new(schemas: &Validated) -> Self {
        let compile = |schema: &Option<Schema>, place| {
            let compiled = schema.as_ref().map(|schema| schema.compile(place));
            compiled.transpose()
        };
        let query = compile(&schemas.query, Place::Query);
        let body = schemas.body.as_ref().map(Schema::compile_for_body);
        let body = body.transpose();
        let answer = compile(&schemas.answer, Place::Answer);
        let faults = [
            query.as_ref().err(),
            body.as_ref().err(),
            answer.as_ref().err(),
        ];
        let fault = faults.into_iter().flatten().next().cloned();
        let plan = schemas.query.as_ref().map(QueryPlan::new);
        Self {
            body: body.ok().flatten(),
            query: plan.zip(query.ok().flatten()),
            fault,
        }
    }

    /// The query as the schema reads it, or the answer to one that is none.
    #[expect(clippy::result_large_err, reason = "the answer leaves as it is")]
    fn query(&self, request: &Request) -> Result<Query, Response> {
        let Some((plan, validator)) = &self.query else {
            return Ok(Query::accepted(Value::Null));
        };
        let text = request.query().unwrap_or_default();
        let value = plan.read(text).map_err(rejection::bad_query)?;
        if validator.is_valid(&value) {
            return Ok(Query::accepted(value));
        }
        Ok(Query {
            faults: Some(Faults::of(Place::Query, validator, &value, text.len())),
            value,
        })
    }

    /// The document in `bytes`, or the answer to a bad one, or to a bad query.
    ///
    /// A query that is invalid is said whatever the body is; what is wrong
    /// with a body is said beside it where it is the schema that says so.
    #[expect(clippy::result_large_err, reason = "the answer leaves as it is")]
    fn body<'b>(
        validator: &BodyValidator,
        bytes: &'b [u8],
        query: Option<Faults>,
    ) -> Result<Document<'b>, Response> {
        match (Self::document(validator, bytes), query) {
            (Ok(document), None) => Ok(document),
            (Ok(_) | Err(Unaccepted::Malformed(_)), query @ Some(_)) => {
                Err(rejection::invalid(query, None))
            }
            (Err(Unaccepted::Malformed(error)), None) => Err(rejection::malformed(&error)),
            (Err(Unaccepted::Invalid(body)), query) => Err(rejection::invalid(query, Some(body))),
        }
    }

    fn document<'b>(
        validator: &BodyValidator,
        bytes: &'b [u8],
    ) -> Result<Document<'b>, Unaccepted> {
        if let Ok(text) = std::str::from_utf8(bytes) {
            if let Some(acceptance) = validator.accept(text) {
                return Ok(Document::accepted(text, acceptance));
            }
            if let Some(instance) = Instance::read(text)
                && validator.accepts(&instance)
            {
                return Ok(Document::of_text(instance));
            }
        }
        let value = serde_json::from_slice(bytes).map_err(Unaccepted::Malformed)?;
        let validator = validator.exact();
        if validator.is_valid(&value) {
            return Ok(Document::of_value(value));
        }
        let faults = Faults::of(Place::Body, validator, &value, bytes.len());
        Err(Unaccepted::Invalid(faults))
    }
}

/// A query that could be read, and what its schema finds wrong with it.
struct Query {
    value: Value,
    faults: Option<Faults>,
}

impl Query {
    const fn accepted(value: Value) -> Self {
        Self {
            value,
            faults: None,
        }
    }
}

/// Why a body is not the document that was asked for.
enum Unaccepted {
    Malformed(serde_json::Error),
    Invalid(Faults),
}

/// A handler behind its checks.
struct Checked<R, B, Q> {
    /// Shared with the future of a request whose body is still on its way.
    parts: Arc<(Checks, R)>,
    types: PhantomData<fn() -> (B, Q)>,
}

impl<R, B, Q> Checked<R, B, Q> {
    fn new(schemas: Validated, respond: R) -> Self {
        Self {
            parts: Arc::new((Checks::new(schemas), respond)),
            types: PhantomData,
        }
    }
}

impl<R, B, Q> fmt::Debug for Checked<R, B, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked").finish_non_exhaustive()
    }
}

impl<R, B, Q> Handler for Checked<R, B, Q>
where
    R: Respond<B, Q>,
    B: FromJson + 'static,
    Q: FromJson + 'static,
{
    fn call(&self, mut request: Request, slot: &mut FutureSlot) -> Option<Response> {
        let (checks, respond) = &*self.parts;
        let checks = checks.compiled();
        if checks.fault.is_some() {
            return Some(Problem::new(StatusCode::INTERNAL_SERVER_ERROR).into_response());
        }
        let (query, faults) = match checks.query(&request) {
            Ok(query) => (query.value, query.faults),
            Err(response) => return Some(response),
        };
        let Some(validator) = &checks.body else {
            if faults.is_some() {
                return Some(rejection::invalid(faults, None));
            }
            return respond
                .start(request, Document::of_value(Value::Null), query)
                .settle(slot);
        };
        if !content_type::is_json(request.head()) {
            return Some(match faults {
                None => rejection::not_json(),
                faults => rejection::invalid(faults, None),
            });
        }
        let mut body = std::mem::take(request.body_mut());
        if let Some(bytes) = body.take_received() {
            return match Compiled::body(validator, &bytes, faults) {
                Ok(document) => respond.start(request, document, query).settle(slot),
                Err(response) => Some(response),
            };
        }
        let mut body = Collect::new(body);
        // Whoever polls the future below registers the waker that counts.
        match body.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(bytes)) => match Compiled::body(validator, &bytes, faults) {
                Ok(value) => respond.start(request, value, query).settle(slot),
                Err(response) => Some(response),
            },
            Poll::Ready(Err(error)) => Some(error.into_response()),
            // Who waits with the body need not send it for a refusal.
            Poll::Pending
                if faults.is_some() && !body.has_begun() && expects_continue(&request) =>
            {
                Some(rejection::invalid(faults, None))
            }
            Poll::Pending => {
                let parts = Arc::clone(&self.parts);
                slot.set(async move {
                    let bytes = match poll_fn(|cx| body.poll(cx)).await {
                        Ok(bytes) => bytes,
                        Err(error) => return error.into_response(),
                    };
                    let (checks, respond) = &*parts;
                    let validator = checks.compiled().body.as_ref();
                    let validator = validator.expect("a body was asked for");
                    let started = match Compiled::body(validator, &bytes, faults) {
                        Ok(value) => respond.start(request, value, query),
                        Err(response) => return response,
                    };
                    drop(bytes);
                    match started {
                        Started::Done(response) => response,
                        Started::Waits(future) => future.await,
                    }
                });
                None
            }
        }
    }

    fn contract(&self) -> Contract<'_> {
        let (checks, _) = &*self.parts;
        Contract {
            body: checks.schemas.body.as_ref(),
            query: checks.schemas.query.as_ref(),
            answer: checks.schemas.answer.as_ref(),
            fault: checks
                .compiled
                .get()
                .and_then(|compiled| compiled.fault.as_ref()),
        }
    }
}

/// Whether the sender waits for a `100 Continue`, which is all that the gate
/// lets anybody expect.
fn expects_continue(request: &Request) -> bool {
    request.headers().contains_key(EXPECT)
}

/// The user's function, of either kind.
trait Respond<B: FromJson, Q: FromJson>: Send + Sync + 'static {
    type Future: Future<Output = Response> + Send + 'static;

    fn respond(&self, accepted: Accepted<B, Q>) -> Started<Self::Future>;

    fn start(&self, request: Request, body: Document<'_>, query: Value) -> Started<Self::Future> {
        let unfit = |place| move |error| Faults::unfit(place, &error);
        let body = B::from_json(body).map_err(unfit(Place::Body));
        let query = Q::from_json(Document::of_value(query)).map_err(unfit(Place::Query));
        match (body, query) {
            (Ok(body), Ok(query)) => self.respond(Accepted {
                request,
                body,
                query,
            }),
            (body, query) => Started::Done(rejection::invalid(query.err(), body.err())),
        }
    }
}

/// What became of calling the user's function.
enum Started<F> {
    Done(Response),
    Waits(F),
}

impl<F: Future<Output = Response> + Send + 'static> Started<F> {
    fn settle(self, slot: &mut FutureSlot) -> Option<Response> {
        match self {
            Self::Done(response) => Some(response),
            Self::Waits(future) => {
                slot.set(future);
                None
            }
        }
    }
}

struct Immediate<F>(F);

impl<F, R, B, Q> Respond<B, Q> for Immediate<F>
where
    F: Fn(Accepted<B, Q>) -> R + Send + Sync + 'static,
    R: IntoResponse,
    B: FromJson,
    Q: FromJson,
{
    type Future = Ready<Response>;

    fn respond(&self, accepted: Accepted<B, Q>) -> Started<Self::Future> {
        Started::Done((self.0)(accepted).into_response())
    }
}

struct Deferred<F>(F);

impl<F, Fut, B, Q> Respond<B, Q> for Deferred<F>
where
    F: Fn(Accepted<B, Q>) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: IntoResponse,
    B: FromJson,
    Q: FromJson,
{
    type Future = Answer<Fut>;

    fn respond(&self, accepted: Accepted<B, Q>) -> Started<Self::Future> {
        Started::Waits(Answer::new((self.0)(accepted)))
    }
}
