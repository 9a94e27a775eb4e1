//! Bodies on their way through, watched for who keeps whom waiting.
//!
//! Guarantees: an upstream that breaks off or falls silent breaks the client's
//! message off, so that nobody takes a part for the whole; a client that is
//! gone ends the connection to the upstream.

use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

use super::pool::Connection;
use crate::body::Body;
use crate::error::BodyError;

/// How the request body of an exchange fares.
#[derive(Debug)]
pub(super) struct Progress {
    started: Instant,
    /// When the upstream last took something, in nanoseconds since `started`.
    taken_at: AtomicU64,
    /// Whether it is the client that keeps everybody waiting.
    waits_for_client: AtomicBool,
    error: Mutex<Option<BodyError>>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            started: Instant::now(),
            taken_at: AtomicU64::new(0),
            waits_for_client: AtomicBool::new(false),
            error: Mutex::new(None),
        }
    }

    /// How long the upstream has owed us something.
    pub(super) fn upstream_idle(&self) -> Duration {
        if self.waits_for_client.load(Ordering::Relaxed) {
            return Duration::ZERO;
        }
        let taken_at = Duration::from_nanos(self.taken_at.load(Ordering::Relaxed));
        self.started.elapsed().saturating_sub(taken_at)
    }

    /// What went wrong with the client's body, if that is what failed.
    pub(super) fn take_error(&self) -> Option<BodyError> {
        self.error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    fn note(&self, waits_for_client: bool) {
        let now = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.taken_at.store(now, Ordering::Relaxed);
        self.waits_for_client
            .store(waits_for_client, Ordering::Relaxed);
    }
}

/// The client's body as the upstream's connection reads it.
#[derive(Debug)]
pub(super) struct RequestBody {
    inner: Body,
    progress: Option<Arc<Progress>>,
}

impl RequestBody {
    pub(super) const fn new(inner: Body, progress: Option<Arc<Progress>>) -> Self {
        Self { inner, progress }
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(cx);
        let Some(progress) = &self.progress else {
            return polled;
        };
        progress.note(polled.is_pending());
        polled.map(|frame| match frame {
            Some(Err(error)) => {
                *progress
                    .error
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner) = Some(error);
                Some(Err(BodyError::Producer))
            }
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The upstream's body as the client's connection reads it.
pub(super) struct ResponseBody {
    inner: Incoming,
    /// Given back at the end of the body; dropped, and so closed, before.
    connection: Option<Connection>,
    timeout: Duration,
    /// Whether the connection serves again at the end.
    is_kept: bool,
    waiting_since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl ResponseBody {
    pub(super) const fn new(
        inner: Incoming,
        connection: Connection,
        timeout: Duration,
        is_kept: bool,
    ) -> Self {
        Self {
            inner,
            connection: Some(connection),
            timeout,
            is_kept,
            waiting_since: None,
            timer: None,
        }
    }

    fn give_back(&mut self) {
        if let Some(connection) = self.connection.take().filter(|_| self.is_kept) {
            connection.put();
        }
    }

    /// Whether the upstream has been silent for too long.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let deadline = since + self.timeout;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline.into())));
        // One timer for the whole body: it is moved only when it fires.
        while timer.as_mut().poll(cx).is_ready() {
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            timer.as_mut().reset(deadline.into());
        }
        Poll::Pending
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if this.connection.is_none() {
            return Poll::Ready(None);
        }
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.waiting_since = None;
                // Who knows the length does not ask for what follows it.
                if this.inner.is_end_stream() {
                    this.give_back();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(None) => {
                this.give_back();
                Poll::Ready(None)
            }
            Poll::Ready(Some(Err(_))) => {
                this.connection = None;
                Poll::Ready(Some(Err(BodyError::Producer)))
            }
            Poll::Pending if this.poll_stalled(cx).is_ready() => {
                this.connection = None;
                Poll::Ready(Some(Err(BodyError::Producer)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.connection.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody")
            .field("size_hint", &self.size_hint())
            .finish_non_exhaustive()
    }
}

/// The body of an answer to HEAD: none, of the length that GET's would have.
#[derive(Debug)]
pub(super) struct HeadBody(pub(super) Option<u64>);

impl HttpBody for HeadBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
