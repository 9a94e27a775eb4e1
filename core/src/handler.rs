//! What answers a request, and where its future lives.
//!
//! Guarantee: calling a handler allocates nothing while its future fits
//! [`INLINE_FUTURE_BYTES`]: it is put into a [`FutureSlot`] that the lane
//! uses again and again. A larger future is boxed inside its slot.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use stackfuture::StackFuture;

use crate::request::Request;
use crate::response::{IntoResponse, Response};
use crate::validation::Contract;

/// Size up to which a handler's future fits its slot.
///
/// A JSON handler that holds the request and its body buffer takes about
/// 700 bytes.
pub const INLINE_FUTURE_BYTES: usize = 1024;

type HandlerFuture = StackFuture<'static, Response, INLINE_FUTURE_BYTES>;

/// What is done to a response once it is there.
pub type Finish = Box<dyn FnOnce(Response) -> Response + Send>;

/// A place for one handler future at a time, reused from request to request.
pub struct FutureSlot {
    future: Pin<Box<Option<HandlerFuture>>>,
    finish: Option<Finish>,
}

impl FutureSlot {
    /// An empty slot; the one allocation in its life.
    pub fn new() -> Self {
        Self {
            future: Box::pin(None),
            finish: None,
        }
    }

    /// Puts `future` in, dropping what was there.
    pub fn set(&mut self, future: impl Future<Output = Response> + Send + 'static) {
        self.future
            .as_mut()
            .set(Some(StackFuture::from_or_box(future)));
    }

    /// Has `finish` done to the response of the future that is in it.
    pub(crate) fn finish_with(&mut self, finish: Finish) {
        self.finish = Some(finish);
    }

    /// Drops the future, if there is one.
    pub fn clear(&mut self) {
        self.future.as_mut().set(None);
        self.finish = None;
    }

    /// The future that was put in; pending for ever when there is none.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Response> {
        let Some(future) = self.future.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        let polled = future.poll(cx);
        match (polled, &self.finish) {
            (Poll::Ready(response), Some(_)) => {
                let finish = self.finish.take().expect("it was there a moment ago");
                Poll::Ready(finish(response))
            }
            (polled, _) => polled,
        }
    }
}

impl Default for FutureSlot {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FutureSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FutureSlot")
            .field("occupied", &self.future.is_some())
            .finish_non_exhaustive()
    }
}

/// Answers requests of a route; implemented by `async fn(Request) -> impl IntoResponse`.
pub trait Handler: Send + Sync + 'static {
    /// Answers `request` at once, or leaves the work in `slot` as a future.
    fn call(&self, request: Request, slot: &mut FutureSlot) -> Option<Response>;

    /// What it demands of requests: checked at registration, and described.
    fn contract(&self) -> Contract<'_> {
        Contract::default()
    }
}

impl<F, Fut> Handler for F
where
    F: Fn(Request) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
    Fut::Output: IntoResponse,
{
    fn call(&self, request: Request, slot: &mut FutureSlot) -> Option<Response> {
        slot.set(Answer::new(self(request)));
        None
    }
}

pin_project! {
    /// A handler's future whose output becomes a response.
    ///
    /// An `async` block around it would hold the future twice.
    pub(crate) struct Answer<F> {
        #[pin]
        future: F,
    }
}

impl<F> Answer<F> {
    pub(crate) const fn new(future: F) -> Self {
        Self { future }
    }
}

impl<F> Future for Answer<F>
where
    F: Future,
    F::Output: IntoResponse,
{
    type Output = Response;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response> {
        self.project()
            .future
            .poll(cx)
            .map(IntoResponse::into_response)
    }
}

/// A handler without a future, made by [`inline`].
#[derive(Debug, Clone, Copy)]
pub struct Inline<F>(F);

/// Makes a handler of a plain function that answers at once.
///
/// For work that never waits: it runs on the lane, so anything slow in it
/// delays that lane's other connections.
pub const fn inline<F>(function: F) -> Inline<F> {
    Inline(function)
}

impl<F, R> Handler for Inline<F>
where
    F: Fn(Request) -> R + Send + Sync + 'static,
    R: IntoResponse,
{
    fn call(&self, request: Request, _slot: &mut FutureSlot) -> Option<Response> {
        Some((self.0)(request).into_response())
    }
}
