//! A response that is a stream of events, and the sender that feeds it.
//!
//! Guarantees: a slow client holds at most its queue; a quiet stream sends a
//! comment in each keep-alive interval, so that a client that left is found
//! out; a stream ends by itself when the server begins to drain, unless it is
//! one answer that has an end of its own.
//!
//! ```text
//! open ─▶ finishing (drain: what is queued, a last comment) ─▶ ended
//!   └──▶ ended (producer done, client cut off)
//! ```

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, mem};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, HeaderName, HeaderValue};
use http_body::{Body as HttpBody, Frame};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::broadcast::{Lagged, Subscription};
use super::event::EncodedEvent;
use crate::body::Body;
use crate::error::BodyError;
use crate::limits::Reject;
use crate::metrics::LaneMetrics;
use crate::response::{IntoResponse, Response};
use crate::server::{Drain, count_on_lane, count_rejected, with_limits};

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
/// Asks nginx, and those that follow it, to pass each event on at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Shows that both ends are still there.
const KEEP_ALIVE: Bytes = Bytes::from_static(b":\n\n");
/// The last words of a stream that ends because the server does.
const FAREWELL: Bytes = Bytes::from_static(b": the server is stopping\n\n");

/// A `text/event-stream` response (WHATWG HTML §9.2).
///
/// It ends when its producer does, when the client leaves, or when the server
/// begins to drain: what is queued is still sent, and clients reconnect.
///
/// ```
/// use std::time::Duration;
/// use justapi_core::{Event, Request, Router, Sse, inline};
///
/// let router = Router::new().get("/count", inline(|_: Request| {
///     Sse::produce(async |events| {
///         for number in 1..=3 {
///             let event = Event::new().with_data(number.to_string());
///             if events.send(event).await.is_err() {
///                 return;
///             }
///         }
///     })
/// }))?;
/// # drop(router);
/// # Ok::<(), justapi_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Sse {
    source: Source,
    keep_alive: Option<Duration>,
    is_one_answer: bool,
}

impl Sse {
    /// A stream, and the sender that another task feeds it with.
    ///
    /// The queue between them holds the server's `sse_queue_events`.
    pub fn channel() -> (EventSender, Self) {
        let (capacity, lag) =
            with_limits(|limits| (limits.sse_queue_events, limits.sse_lag_timeout));
        Self::with_queue(capacity, lag)
    }

    pub(super) fn with_queue(capacity: usize, lag: Duration) -> (EventSender, Self) {
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        let cut = Arc::new(Cut::default());
        let sender = EventSender {
            queue: sender,
            lag,
            cut: Arc::clone(&cut),
        };
        let queue = Queue {
            receiver,
            cut,
            producer: None,
        };
        (sender, Self::new(Source::Queue(queue)))
    }

    /// A stream that runs its producer itself, without a task.
    ///
    /// The producer goes on only while the client takes events, and is dropped
    /// when the client has left. Its panic breaks the stream off.
    pub fn produce<P, F>(producer: P) -> Self
    where
        P: FnOnce(EventSender) -> F,
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, mut sse) = Self::channel();
        if let Source::Queue(queue) = &mut sse.source {
            queue.producer = Some(Box::pin(producer(sender)));
        }
        sse
    }

    /// Replaces the server's `sse_keep_alive`; `None` sends no comments.
    #[must_use]
    pub const fn with_keep_alive(mut self, interval: Option<Duration>) -> Self {
        self.keep_alive = interval;
        self
    }

    /// Lets the stream come to its own end when the server begins to drain.
    ///
    /// For an answer in parts, which a client that reconnects cannot take up
    /// again. The grace time of the server bounds it as any other answer.
    #[must_use]
    pub const fn as_one_answer(mut self) -> Self {
        self.is_one_answer = true;
        self
    }

    fn new(source: Source) -> Self {
        Self {
            source,
            keep_alive: with_limits(|limits| limits.sse_keep_alive),
            is_one_answer: false,
        }
    }

    fn into_body(self) -> SseBody {
        let drain = if self.is_one_answer {
            Drain::never()
        } else {
            Drain::current()
        };
        SseBody {
            source: self.source,
            state: State::Open,
            is_lagged: false,
            is_quiet: true,
            tick: self.keep_alive.map(|interval| interval / 2),
            timer: None,
            drain_begun: Box::pin(drain.clone().begun()),
            drain,
        }
    }
}

impl From<Subscription> for Sse {
    fn from(subscription: Subscription) -> Self {
        Self::new(Source::Shared(subscription))
    }
}

impl IntoResponse for Sse {
    fn into_response(self) -> Response {
        Response::with_content(EVENT_STREAM, Body::custom(self.into_body()))
            .with_header(CACHE_CONTROL, NO_CACHE)
            .with_header(X_ACCEL_BUFFERING, HeaderValue::from_static("no"))
    }
}

/// Why an event did not reach its client's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendEventError {
    /// The client has left, or the stream has ended: stop producing.
    #[error("the event stream is closed")]
    Closed,
    /// The queue is full; from [`EventSender::send`] the client is now cut off.
    #[error("the client is too slow for the event stream")]
    Lagging,
}

/// Feeds one client's stream; the stream ends when every clone is dropped.
#[derive(Debug, Clone)]
pub struct EventSender {
    queue: mpsc::Sender<Bytes>,
    lag: Duration,
    cut: Arc<Cut>,
}

impl EventSender {
    /// Sends one event, waiting while the client is a whole queue behind.
    ///
    /// A client that makes it wait longer than the server's `sse_lag_timeout`
    /// is cut off, so that a reader of one byte a second cannot hold its
    /// producer for ever.
    ///
    /// # Errors
    /// [`SendEventError`]: in both cases nothing more can be sent.
    pub async fn send(&self, event: impl Into<EncodedEvent>) -> Result<(), SendEventError> {
        let bytes = match self.offer(event.into().into()) {
            Ok(()) => return Ok(()),
            Err(TrySendError::Closed(_)) => return Err(SendEventError::Closed),
            Err(TrySendError::Full(bytes)) => bytes,
        };
        match timeout(self.lag, self.queue.send(bytes)).await {
            Ok(sent) => sent.map_err(|_| SendEventError::Closed),
            Err(_) => {
                self.cut.is_lagged.store(true, Ordering::Relaxed);
                self.cut_off();
                Err(SendEventError::Lagging)
            }
        }
    }

    /// Sends one event if the queue has room, never waiting.
    ///
    /// For a producer that rather drops an event than waits.
    ///
    /// # Errors
    /// [`SendEventError`]; after [`SendEventError::Lagging`] the client is
    /// still there.
    pub fn try_send(&self, event: impl Into<EncodedEvent>) -> Result<(), SendEventError> {
        self.offer(event.into().into())
            .map_err(|error| match error {
                TrySendError::Closed(_) => SendEventError::Closed,
                TrySendError::Full(_) => SendEventError::Lagging,
            })
    }

    /// Breaks the stream off without what is queued.
    ///
    /// The client sees a truncated response, and reconnects.
    pub fn cut_off(&self) {
        self.cut.is_set.store(true, Ordering::Release);
        // Wakes the stream; when the queue is full it is not asleep.
        drop(self.queue.try_send(Bytes::new()));
    }

    /// Resolves when the stream has ended or the client is known to have left.
    pub async fn closed(&self) {
        self.queue.closed().await;
    }

    fn offer(&self, bytes: Bytes) -> Result<(), TrySendError<Bytes>> {
        if self.cut.is_set.load(Ordering::Acquire) {
            return Err(TrySendError::Closed(bytes));
        }
        self.queue.try_send(bytes)
    }
}

/// Whether a client has been cut off by its sender, and why.
#[derive(Debug, Default)]
struct Cut {
    is_set: AtomicBool,
    is_lagged: AtomicBool,
}

/// Where the events of a stream come from.
#[derive(Debug)]
enum Source {
    Queue(Queue),
    Shared(Subscription),
}

impl Source {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        match self {
            Self::Queue(queue) => queue.poll(cx),
            Self::Shared(subscription) => subscription
                .poll(cx)
                .map(|event| event.map(|event| event.map_err(|Lagged| BodyError::Producer))),
        }
    }

    /// Takes no events beyond those that have been sent.
    fn finish(&mut self) {
        match self {
            Self::Queue(queue) => {
                queue.receiver.close();
                queue.producer = None;
            }
            Self::Shared(subscription) => subscription.finish(),
        }
    }
}

struct Queue {
    receiver: mpsc::Receiver<Bytes>,
    cut: Arc<Cut>,
    producer: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Queue {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        loop {
            if self.cut.is_set.load(Ordering::Acquire) {
                return Poll::Ready(Some(Err(BodyError::Producer)));
            }
            match (self.receiver.poll_recv(cx), &mut self.producer) {
                (Poll::Ready(event), _) => return Poll::Ready(event.map(Ok)),
                (Poll::Pending, None) => return Poll::Pending,
                (Poll::Pending, Some(producer)) => {
                    let num_queued = self.receiver.len();
                    let polled = catch_unwind(AssertUnwindSafe(|| producer.as_mut().poll(cx)));
                    match polled {
                        // Its sender goes with it, and ends the stream.
                        Ok(Poll::Ready(())) => self.producer = None,
                        Ok(Poll::Pending) if self.receiver.len() == num_queued => {
                            return Poll::Pending;
                        }
                        Ok(Poll::Pending) => {}
                        Err(_) => {
                            self.producer = None;
                            return Poll::Ready(Some(Err(BodyError::Producer)));
                        }
                    }
                }
            }
        }
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("num_queued", &self.receiver.len())
            .field("has_producer", &self.producer.is_some())
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Finishing,
    Ended,
}

/// The body of an [`Sse`] response.
struct SseBody {
    source: Source,
    state: State,
    /// Whether it broke off because the client is too slow.
    is_lagged: bool,
    /// Whether nothing has been sent since the last tick.
    is_quiet: bool,
    /// Half of the keep-alive interval: a comment after two quiet ticks is
    /// never later than one interval behind the last event.
    tick: Option<Duration>,
    timer: Option<Pin<Box<Sleep>>>,
    drain: Drain,
    drain_begun: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl SseBody {
    fn finish(&mut self) {
        self.state = State::Finishing;
        self.source.finish();
    }

    /// Whether it is time for a comment; arranges to be woken otherwise.
    fn poll_keep_alive(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(tick) = self.tick else {
            return false;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(tick)));
        while timer.as_mut().poll(cx).is_ready() {
            timer.as_mut().reset(Instant::now() + tick);
            if mem::replace(&mut self.is_quiet, true) {
                return true;
            }
        }
        false
    }
}

impl HttpBody for SseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        loop {
            if self.state == State::Ended {
                return Poll::Ready(None);
            }
            if self.state == State::Open && self.drain.has_begun() {
                self.finish();
            }
            match self.source.poll(cx) {
                // Woke the stream to be cut off.
                Poll::Ready(Some(Ok(bytes))) if bytes.is_empty() => {}
                Poll::Ready(Some(Ok(bytes))) => {
                    count_on_lane(LaneMetrics::sse_event);
                    self.is_quiet = false;
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Poll::Ready(Some(Err(error))) => {
                    self.is_lagged = matches!(self.source, Source::Shared(_));
                    self.state = State::Ended;
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(None) => {
                    let state = mem::replace(&mut self.state, State::Ended);
                    if state == State::Finishing {
                        return Poll::Ready(Some(Ok(Frame::data(FAREWELL))));
                    }
                }
                Poll::Pending if self.state == State::Finishing => return Poll::Pending,
                Poll::Pending => {
                    if self.drain_begun.as_mut().poll(cx).is_ready() {
                        self.finish();
                        continue;
                    }
                    if self.poll_keep_alive(cx) {
                        return Poll::Ready(Some(Ok(Frame::data(KEEP_ALIVE))));
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.state == State::Ended
    }
}

impl Drop for SseBody {
    fn drop(&mut self) {
        let is_lagged = match &self.source {
            Source::Queue(queue) => queue.cut.is_lagged.load(Ordering::Relaxed),
            Source::Shared(_) => self.is_lagged,
        };
        if is_lagged {
            count_rejected(Reject::SseLag);
        }
    }
}
