//! A response body that Python sends piece by piece.
//!
//! Guarantee: at most [`MAX_QUEUED_BYTES`] and one piece are held; who sends
//! more waits. A body that is given up, by either side, ends the other's wait.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};
use justapi_core::BodyError;
use pyo3::prelude::*;

use crate::event_loop::EventLoop;
use crate::shared::{Shared, resolve};

/// Bytes that wait for the client before `send` waits; two TLS records.
const MAX_QUEUED_BYTES: usize = 64 * 1024;

/// The queue between `send` and the connection.
#[derive(Default)]
pub(crate) struct Stream(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    chunks: VecDeque<Bytes>,
    num_bytes: usize,
    end: End,
    waker: Option<Waker>,
    /// Futures of the sends that wait.
    senders: Vec<Py<PyAny>>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    /// The application has sent all.
    Complete,
    /// The application failed: the message is broken off.
    Broken,
    /// The connection does not want more.
    Unwanted,
}

/// How a piece was taken.
pub(crate) enum Pushed {
    /// There is room for more.
    Taken,
    /// The sender has to wait for room.
    Full,
    /// Nobody wants it any more.
    Unwanted,
}

impl Stream {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a piece; `is_last` completes the body.
    pub(crate) fn push(&self, chunk: Bytes, is_last: bool) -> Pushed {
        let mut queue = self.queue();
        if queue.end != End::Open {
            return match queue.end {
                End::Unwanted => Pushed::Unwanted,
                _ => Pushed::Taken,
            };
        }
        if !chunk.is_empty() {
            queue.num_bytes += chunk.len();
            queue.chunks.push_back(chunk);
        }
        if is_last {
            queue.end = End::Complete;
        }
        let is_full = queue.num_bytes > MAX_QUEUED_BYTES;
        wake(queue);
        if is_full && !is_last {
            Pushed::Full
        } else {
            Pushed::Taken
        }
    }

    /// Breaks the body off if it is not complete.
    pub(crate) fn break_off(&self) {
        let mut queue = self.queue();
        if queue.end == End::Open {
            queue.end = End::Broken;
            wake(queue);
        }
    }

    /// Keeps `future` until there is room.
    pub(crate) fn wait_for_room(&self, future: Py<PyAny>) {
        self.queue().senders.push(future);
    }
}

fn wake(mut queue: MutexGuard<'_, Queue>) {
    let waker = queue.waker.take();
    drop(queue);
    if let Some(waker) = waker {
        match EventLoop::current() {
            Some(event_loop) => event_loop.wake(waker),
            None => waker.wake(),
        }
    }
}

/// The connection's end of a [`Stream`].
pub(crate) struct StreamBody {
    stream: Arc<Stream>,
    shared: Arc<Shared>,
}

impl StreamBody {
    pub(crate) fn new(stream: &Arc<Stream>, shared: &Arc<Shared>) -> Self {
        Self {
            stream: Arc::clone(stream),
            shared: Arc::clone(shared),
        }
    }
}

impl HttpBody for StreamBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut queue = self.stream.queue();
        if let Some(chunk) = queue.chunks.pop_front() {
            queue.num_bytes -= chunk.len();
            if queue.num_bytes <= MAX_QUEUED_BYTES / 2 && !queue.senders.is_empty() {
                let senders = std::mem::take(&mut queue.senders);
                drop(queue);
                let_on(senders);
            }
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        match queue.end {
            End::Complete | End::Unwanted => Poll::Ready(None),
            End::Broken => Poll::Ready(Some(Err(BodyError::Producer))),
            End::Open => {
                queue.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        let mut queue = self.stream.queue();
        if queue.end == End::Open {
            queue.end = End::Unwanted;
        }
        let has_all = queue.end == End::Complete && queue.chunks.is_empty();
        queue.chunks.clear();
        let senders = std::mem::take(&mut queue.senders);
        drop(queue);
        let_on(senders);
        if has_all {
            self.shared.set_has_all();
        }
        Python::attach(|py| self.shared.leave(py));
    }
}

/// Ends the wait of senders.
fn let_on(senders: Vec<Py<PyAny>>) {
    if senders.is_empty() {
        return;
    }
    Python::attach(|py| {
        for future in senders {
            resolve(future.bind(py), py.None());
        }
        if let Some(event_loop) = EventLoop::current() {
            event_loop.after_call(py);
        }
    });
}
