//! Python functions as handlers of core.
//!
//! Guarantees: a sync function is called on the lane, in a context of its own;
//! a coroutine runs in a real task whose first step is made at once; what it
//! raises is answered by the application's own handlers of exceptions.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Method;
use justapi_core::{FutureSlot, Handler, IntoResponse as _, Problem, Request, Response};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::arguments::{self, Arguments};
use crate::demotion::Demotion;
use crate::event_loop::EventLoop;
use crate::exchange::{Content, Exchange};
use crate::interpreter::{Entered, set_last_words};
use crate::mount::{Mount, count};
use crate::pool::{self, Submitted};
use crate::respond::{self, Shape};
use crate::route::{Kind, Plan};
use crate::shared::{Outcome, Shared, guarded, report, result_of};
use crate::witness::Witness;

/// A route of the Python layer.
#[derive(Clone)]
pub(crate) struct PythonHandler {
    plan: Arc<Plan>,
    mount: Arc<Mount>,
    demotion: Arc<Demotion>,
}

impl PythonHandler {
    pub(crate) fn new(plan: Plan, mount: &Arc<Mount>) -> Self {
        Self {
            plan: Arc::new(plan),
            mount: Arc::clone(mount),
            demotion: Arc::default(),
        }
    }
}

impl Handler for PythonHandler {
    fn call(&self, mut request: Request, slot: &mut FutureSlot) -> Option<Response> {
        if let Some(limit) = self.plan.max_body_bytes {
            request.body_mut().set_limit(limit);
        }
        let mut content = Content::Unread(request.take_body());
        if self.plan.collects_body {
            let Content::Unread(body) = content else {
                return None;
            };
            match body.into_ready() {
                Ok(bytes) => content = Content::Ready(bytes),
                Err(body) => {
                    let handler = self.clone();
                    slot.set(async move {
                        match body.bytes().await {
                            Ok(bytes) => handler.later(request, Content::Ready(bytes)).await,
                            Err(error) => Problem::from(&error).into_response(),
                        }
                    });
                    return None;
                }
            }
        }
        match Python::attach(|py| self.begin(py, request, content)) {
            Step::Answer(response) => Some(response),
            Step::Wait(waiting) => {
                slot.set(waiting);
                None
            }
        }
    }
}

/// What a step towards the answer came to.
#[expect(
    clippy::large_enum_variant,
    reason = "it is moved once, and a box would be an allocation for each wait"
)]
enum Step {
    Answer(Response),
    Wait(Waiting),
}

impl PythonHandler {
    /// Answers a request whose body had to be waited for.
    async fn later(self, request: Request, content: Content) -> Response {
        match Python::attach(|py| self.begin(py, request, content)) {
            Step::Answer(response) => response,
            Step::Wait(waiting) => waiting.await,
        }
    }

    fn begin(&self, py: Python<'_>, request: Request, content: Content) -> Step {
        set_last_words(self.plan.last_words);
        let mut call = Call {
            handler: self,
            request: Some(request),
            content: Some(content),
            exchange: None,
        };
        let step = guarded(|| call.start(py)).unwrap_or_else(|error| call.failed(py, error));
        if let Some(event_loop) = EventLoop::current() {
            event_loop.after_call(py);
        }
        step
    }
}

/// The way of one request from its arguments to its first answer or wait.
struct Call<'a, 'py> {
    handler: &'a PythonHandler,
    request: Option<Request>,
    content: Option<Content>,
    exchange: Option<Bound<'py, Exchange>>,
}

impl<'py> Call<'_, 'py> {
    fn exchange(&mut self, py: Python<'py>) -> PyResult<Bound<'py, Exchange>> {
        if let Some(exchange) = &self.exchange {
            return Ok(exchange.clone());
        }
        let request = self.request.take().expect("no exchange was made yet");
        let content = self.content.take().expect("no exchange was made yet");
        let handler = self.handler;
        let made = Exchange::new(py, request, content, &handler.mount, Some(&handler.plan))?;
        Ok(self.exchange.insert(made).clone())
    }

    fn start(&mut self, py: Python<'py>) -> PyResult<Step> {
        let plan = &self.handler.plan;
        let body = match &self.content {
            Some(Content::Ready(bytes)) if plan.collects_body => bytes.clone(),
            _ => Bytes::new(),
        };
        let arguments = if plan.always_binds {
            None
        } else {
            self.fast_arguments(py, &body)?
        };
        let arguments = match arguments {
            Some(arguments) => arguments,
            None => {
                count(&self.handler.mount.counters.slow_path);
                let exchange = self.exchange(py)?;
                let body = PyBytes::new(py, &body);
                if plan.bind_is_async {
                    return self.bind_in_task(py, &exchange, &body);
                }
                let bound = plan.bind.bind(py).call1((&exchange, body))?;
                match as_arguments(&bound) {
                    Some(arguments) => arguments,
                    None => return self.finish(py, Ok(bound)),
                }
            }
        };
        self.call(py, &arguments)
    }

    /// The arguments, if nothing about them needs the slow path.
    fn fast_arguments(
        &mut self,
        py: Python<'py>,
        body: &Bytes,
    ) -> PyResult<Option<Arguments<'py>>> {
        let plan = &self.handler.plan;
        let Some(request) = &self.request else {
            return Ok(None);
        };
        if plan.inputs.is_empty() {
            return Ok(Some(Arguments::new()));
        }
        let Ok(values) = arguments::collect(py, plan, request, body) else {
            return Ok(None);
        };
        let mut arguments = Arguments::with_capacity(values.len());
        for (value, input) in values.into_iter().zip(&plan.inputs) {
            arguments.push(match value {
                Some(value) => value,
                None => {
                    let exchange = self.exchange(py)?;
                    match &input.convert {
                        Some(convert) => match convert.bind(py).call1((exchange,)) {
                            Ok(value) => value,
                            Err(_) => return Ok(None),
                        },
                        None => exchange.into_any(),
                    }
                }
            });
        }
        Ok(Some(arguments))
    }

    fn bind_in_task(
        &mut self,
        py: Python<'py>,
        exchange: &Bound<'py, Exchange>,
        body: &Bound<'py, PyBytes>,
    ) -> PyResult<Step> {
        let handler = self.handler;
        let plan = &handler.plan;
        let coroutine = handler.mount.helpers.bind_and_call.bind(py).call1((
            plan.bind.bind(py),
            plan.target.bind(py),
            plan.kind as u8,
            exchange,
            body,
        ))?;
        self.run(py, coroutine, Stage::Handler)
    }

    /// Calls the target.
    fn call(&mut self, py: Python<'py>, arguments: &[Bound<'py, PyAny>]) -> PyResult<Step> {
        let handler = self.handler;
        let plan = &handler.plan;
        let target = plan.target.bind(py);
        match plan.kind {
            Kind::Async => {
                let coroutine = call(target, arguments)?;
                self.run(py, coroutine, Stage::Handler)
            }
            Kind::Inline if !(plan.may_be_demoted && handler.demotion.is_demoted()) => {
                count(&handler.mount.counters.inline);
                let entered = Entered::copy_of_current(py)?;
                let result = if plan.may_be_demoted {
                    let measured = handler.demotion.begin();
                    let result = call(target, arguments);
                    if handler.demotion.end(&measured) {
                        self.say_demoted(py);
                    }
                    result
                } else {
                    call(target, arguments)
                };
                drop(entered);
                self.finish(py, result)
            }
            Kind::Inline | Kind::Thread => {
                let shared = self.shared();
                match pool::submit(py, plan, arguments, &shared, handler.mount.cancels)? {
                    Submitted::Taken => {
                        count(&handler.mount.counters.threaded);
                        Ok(Step::Wait(self.waiting(shared)))
                    }
                    Submitted::Full(limit) => Ok(Step::Answer(respond::queue_is_full(limit))),
                }
            }
        }
    }

    fn say_demoted(&self, py: Python<'_>) {
        let logged = py
            .import(intern!(py, "justapi._lane"))
            .and_then(|module| module.getattr(intern!(py, "say_demoted")))
            .and_then(|say| say.call1((self.handler.plan.route.bind(py),)));
        report(py, logged.map(drop));
    }

    fn shared(&self) -> Arc<Shared> {
        match &self.exchange {
            Some(exchange) => Arc::clone(exchange.get().shared()),
            None => {
                let request = self.request.as_ref();
                let request = request.expect("it is there until an exchange is made of it");
                Shared::new(&self.handler.mount, request)
            }
        }
    }

    /// Runs a coroutine in a task to its first wait.
    fn run(
        &mut self,
        py: Python<'py>,
        coroutine: Bound<'py, PyAny>,
        stage: Stage,
    ) -> PyResult<Step> {
        let event_loop = EventLoop::of_lane()?;
        let task = event_loop.start_task(py, coroutine)?;
        if task.call_method0(intern!(py, "done"))?.is_truthy()? {
            let result = result_of(&task);
            count(&self.handler.mount.counters.eager);
            if stage == Stage::Handler {
                return self.finish(py, result);
            }
            let shared = self.shared();
            end_of_answer(py, &self.handler.mount, &shared, result);
            return Ok(Step::Wait(self.waiting(shared)));
        }
        count(&self.handler.mount.counters.suspended);
        let shared = self.shared();
        watch(&event_loop, &task, &shared, &self.handler.mount, stage)?;
        Ok(Step::Wait(self.waiting(shared)))
    }

    fn waiting(&mut self, shared: Arc<Shared>) -> Waiting {
        Waiting {
            handler: self.handler.clone(),
            request: self.request.take(),
            exchange: self.exchange.take().map(Bound::unbind),
            shared,
            is_done: false,
        }
    }

    /// Makes the answer of what the handler returned or raised.
    fn finish(&mut self, py: Python<'py>, result: PyResult<Bound<'py, PyAny>>) -> PyResult<Step> {
        // What cannot be serialised is the handler's failure, too.
        self.answer(py, &result?)
    }

    fn answer(&mut self, py: Python<'py>, object: &Bound<'py, PyAny>) -> PyResult<Step> {
        let handler = self.handler;
        if handler.plan.knows(object) || is_plain(object) {
            let response = respond::encoded(&handler.plan, object)?;
            return self.complete(py, response);
        }
        let witness = self.witness();
        match respond::shape(&handler.mount, object, self.is_head(), witness)? {
            Shape::Value => {
                let response = respond::encoded(&handler.plan, object)?;
                self.complete(py, response)
            }
            Shape::Whole(response) => self.complete(py, response),
            Shape::Callable => {
                let exchange = self.exchange(py)?;
                let coroutine = handler
                    .mount
                    .helpers
                    .answer
                    .bind(py)
                    .call1((object, exchange))?;
                self.run(py, coroutine, Stage::Answer)
            }
        }
    }

    /// Adds what the request itself has to say of its answer.
    fn complete(&self, py: Python<'py>, response: Response) -> PyResult<Step> {
        let response = match &self.exchange {
            Some(exchange) => exchange.get().complete(py, response)?,
            None => response,
        };
        Ok(Step::Answer(response))
    }

    /// Who watches the request, if anybody does.
    fn witness(&self) -> Option<Witness> {
        match (&self.exchange, &self.request) {
            (Some(exchange), _) => exchange.get().shared().witness().cloned(),
            (None, Some(request)) => Witness::of(&self.handler.mount, request),
            (None, None) => None,
        }
    }

    fn is_head(&self) -> bool {
        match (&self.request, &self.exchange) {
            (Some(request), _) => request.method() == Method::HEAD,
            (None, Some(exchange)) => exchange.get().is_head(),
            (None, None) => false,
        }
    }

    /// Answers with what the application makes of an exception.
    fn failed(&mut self, py: Python<'py>, error: PyErr) -> Step {
        guarded(|| self.try_failed(py, error)).unwrap_or_else(|error| {
            let shared = self
                .exchange
                .as_ref()
                .map(|exchange| exchange.get().shared());
            let witness = shared.and_then(|shared| shared.witness());
            self.handler.mount.failed(py, witness, error);
            Step::Answer(respond::server_error())
        })
    }

    fn try_failed(&mut self, py: Python<'py>, error: PyErr) -> PyResult<Step> {
        let handler = self.handler;
        let exchange = self.exchange(py)?;
        let made = handler
            .plan
            .fail
            .bind(py)
            .call1((exchange, error.into_value(py)))?;
        if made.hasattr(intern!(py, "__await__"))? {
            let coroutine = handler.mount.helpers.wait_for.bind(py).call1((made,))?;
            return self.run(py, coroutine, Stage::Handler);
        }
        self.answer(py, &made)
    }
}

/// Whether a result is certainly no response.
fn is_plain(object: &Bound<'_, PyAny>) -> bool {
    use pyo3::types::{PyDict, PyList, PyString};
    object.is_exact_instance_of::<PyDict>()
        || object.is_exact_instance_of::<PyList>()
        || object.is_exact_instance_of::<PyString>()
        || object.is_none()
}

fn as_arguments<'py>(bound: &Bound<'py, PyAny>) -> Option<Arguments<'py>> {
    if let Ok(tuple) = bound.cast::<PyTuple>() {
        return Some(tuple.iter().collect());
    }
    let list = bound.cast::<pyo3::types::PyList>().ok()?;
    Some(list.iter().collect())
}

/// Calls without a tuple where there are few arguments.
fn call<'py>(
    target: &Bound<'py, PyAny>,
    arguments: &[Bound<'py, PyAny>],
) -> PyResult<Bound<'py, PyAny>> {
    match arguments {
        [] => target.call0(),
        [first] => target.call1((first,)),
        [first, second] => target.call1((first, second)),
        [first, second, third] => target.call1((first, second, third)),
        [first, second, third, fourth] => target.call1((first, second, third, fourth)),
        more => target.call1(PyTuple::new(target.py(), more)?),
    }
}

/// What a task of a request is there for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its result is to be answered.
    Handler,
    /// It sends the answer itself.
    Answer,
}

/// Has the lane told when `task` ends.
pub(crate) fn watch(
    event_loop: &EventLoop,
    task: &Bound<'_, PyAny>,
    shared: &Arc<Shared>,
    mount: &Arc<Mount>,
    stage: Stage,
) -> PyResult<()> {
    let py = task.py();
    if stage == Stage::Handler && mount.cancels {
        shared.set_task(Some(task.clone().unbind()));
    } else {
        shared.set_task(None);
    }
    let callback = TaskEnd {
        shared: Arc::clone(shared),
        mount: Arc::clone(mount),
        stage,
    };
    event_loop.keep(py, task)?;
    if let Some(witness) = shared.witness() {
        witness.begin(task);
    }
    task.call_method1(
        intern!(py, "add_done_callback"),
        (Bound::new(py, callback)?,),
    )?;
    Ok(())
}

/// Hears of the end of a request's task.
#[pyclass(frozen)]
pub(crate) struct TaskEnd {
    shared: Arc<Shared>,
    mount: Arc<Mount>,
    stage: Stage,
}

#[pymethods]
impl TaskEnd {
    fn __call__(&self, task: &Bound<'_, PyAny>) {
        self.hear(task, result_of(task));
    }
}

impl TaskEnd {
    /// Hears of the end before the loop's next turn, where only the lane has to.
    ///
    /// A task that failed counts what it raised as unseen once it has named
    /// those who are to hear of it, so these have to come later.
    pub(crate) fn hear_now(&self, task: &Bound<'_, PyAny>) -> bool {
        if self.stage != Stage::Handler || self.shared.witness().is_some() {
            return false;
        }
        match result_of(task) {
            Ok(result) => {
                self.hear(task, Ok(result));
                true
            }
            Err(_) => false,
        }
    }

    fn hear<'py>(&self, task: &Bound<'py, PyAny>, result: PyResult<Bound<'py, PyAny>>) {
        let py = task.py();
        if let Some(event_loop) = EventLoop::current() {
            report(py, event_loop.release(py, task));
        }
        // The task holds the request, which holds what is shared.
        self.shared.set_task(None);
        match self.stage {
            Stage::Handler => self
                .shared
                .settle(Outcome::Result(result.map(Bound::unbind))),
            Stage::Answer => end_of_answer(py, &self.mount, &self.shared, result),
        }
        if let Some(witness) = self.shared.witness() {
            witness.end(task);
        }
    }
}

/// Sees to it that an answer that a task sent is whole or broken off.
pub(crate) fn end_of_answer(
    py: Python<'_>,
    mount: &Mount,
    shared: &Arc<Shared>,
    result: PyResult<Bound<'_, PyAny>>,
) {
    // What it raises because nobody listens is no failure; what follows a
    // whole answer may be one.
    let has_left = shared.has_left_early();
    if let Err(error) = result {
        if let Some(witness) = shared.witness() {
            witness.failed(py, &error);
        }
        if !has_left {
            mount.log(py, error);
        }
    }
    if !shared.is_answered() {
        shared.settle(Outcome::Response(respond::server_error()));
    } else if let Some(stream) = shared.stream() {
        stream.break_off();
    }
}

/// Waits for an answer that is made in a task or in a thread.
struct Waiting {
    handler: PythonHandler,
    request: Option<Request>,
    exchange: Option<Py<Exchange>>,
    shared: Arc<Shared>,
    is_done: bool,
}

impl Future for Waiting {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        loop {
            let outcome = match self.shared.poll_outcome(cx) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => return Poll::Pending,
            };
            let result = match outcome {
                Outcome::Response(response) => {
                    self.is_done = true;
                    self.shared.complete();
                    return Poll::Ready(response);
                }
                Outcome::Result(result) => result,
            };
            let step = Python::attach(|py| {
                let handler = self.handler.clone();
                let mut call = Call {
                    handler: &handler,
                    request: self.request.take(),
                    content: Some(Content::Ended),
                    exchange: self.exchange.take().map(|exchange| exchange.into_bound(py)),
                };
                let result = result.map(|object| object.into_bound(py));
                let step = guarded(|| call.finish(py, result))
                    .unwrap_or_else(|error| call.failed(py, error));
                if let Some(event_loop) = EventLoop::current() {
                    event_loop.after_call(py);
                }
                step
            });
            match step {
                Step::Answer(response) => {
                    self.is_done = true;
                    self.shared.set_answered();
                    self.shared.complete();
                    return Poll::Ready(response);
                }
                Step::Wait(mut waiting) => {
                    self.request = waiting.request.take();
                    self.exchange = waiting.exchange.take();
                    self.shared = Arc::clone(&waiting.shared);
                    waiting.is_done = true;
                }
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_done {
            Python::attach(|py| self.shared.leave(py));
        }
    }
}

/// The whole application over ASGI.
pub(crate) struct AsgiHandler {
    mount: Arc<Mount>,
}

impl AsgiHandler {
    pub(crate) fn new(mount: &Arc<Mount>) -> Self {
        Self {
            mount: Arc::clone(mount),
        }
    }

    fn begin(&self, py: Python<'_>, mut request: Request) -> PyResult<AsgiWaiting> {
        count(&self.mount.counters.asgi);
        // Which of its routes it runs, only the application knows.
        set_last_words("");
        let content = Content::of(request.take_body());
        let exchange = Exchange::new(py, request, content, &self.mount, None)?;
        let shared = Arc::clone(exchange.get().shared());
        let app = self.mount.called.bind(py);
        let coroutine = if self.mount.is_coroutine_function {
            let (receive, send) = (intern!(py, "receive"), intern!(py, "send"));
            app.call1((
                exchange.get().scope(py)?,
                exchange.getattr(receive)?,
                exchange.getattr(send)?,
            ))?
        } else {
            self.mount
                .helpers
                .run_app
                .bind(py)
                .call1((app, &exchange))?
        };
        let event_loop = EventLoop::of_lane()?;
        let task = event_loop.start_task(py, coroutine)?;
        if task.call_method0(intern!(py, "done"))?.is_truthy()? {
            let result = result_of(&task);
            end_of_answer(py, &self.mount, &shared, result);
        } else {
            watch(&event_loop, &task, &shared, &self.mount, Stage::Answer)?;
        }
        event_loop.after_call(py);
        Ok(AsgiWaiting {
            shared,
            is_done: false,
        })
    }
}

impl Handler for AsgiHandler {
    fn call(&self, request: Request, slot: &mut FutureSlot) -> Option<Response> {
        let begun = Python::attach(|py| {
            let begun = guarded(|| self.begin(py, request));
            begun.map_err(|error| self.mount.log(py, error)).ok()
        });
        match begun {
            Some(mut waiting) => match waiting.shared.take_response() {
                Some(response) => {
                    waiting.is_done = true;
                    waiting.shared.complete();
                    Some(response)
                }
                None => {
                    slot.set(waiting);
                    None
                }
            },
            None => Some(respond::server_error()),
        }
    }
}

/// Waits for the head of an answer that comes over ASGI.
struct AsgiWaiting {
    shared: Arc<Shared>,
    is_done: bool,
}

impl Future for AsgiWaiting {
    type Output = Response;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        match self.shared.poll_outcome(cx) {
            Poll::Ready(Outcome::Response(response)) => {
                self.is_done = true;
                self.shared.complete();
                Poll::Ready(response)
            }
            Poll::Ready(Outcome::Result(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for AsgiWaiting {
    fn drop(&mut self) {
        if !self.is_done {
            Python::attach(|py| self.shared.leave(py));
        }
    }
}
