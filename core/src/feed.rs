//! The way of an HTTP/1.1 request body from its connection to its reader.
//!
//! Guarantees: the connection reads from the socket only while the reader
//! waits, so that at most one read's worth of a body is held here; a reader
//! always gets an end. Usually both run in one task, but a handler may hand
//! its body to another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::error::BodyError;

/// The reader's end; dropping it says that nobody wants the rest.
#[derive(Debug)]
pub(crate) struct FedBody(Arc<Mutex<State>>);

/// The connection's end; dropping it before [`Feeder::end`] fails the reader.
#[derive(Debug)]
pub(crate) struct Feeder(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// What the reader has not taken; never empty.
    chunk: Option<Bytes>,
    end: Option<Result<(), BodyError>>,
    /// Whether the reader waits.
    is_wanted: bool,
    is_dropped: bool,
    reader: Option<Waker>,
    connection: Waker,
    /// Length that the head announced.
    length: Option<u64>,
    taken: u64,
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing here panics halfway.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body of which `first` has come, and what feeds the rest of it.
///
/// `connection` is woken when the reader begins to wait.
pub(crate) fn feed(first: Bytes, length: Option<u64>, connection: Waker) -> (Feeder, FedBody) {
    let state = State {
        chunk: (!first.is_empty()).then_some(first),
        end: None,
        is_wanted: false,
        is_dropped: false,
        reader: None,
        connection,
        length,
        taken: 0,
    };
    let state = Arc::new(Mutex::new(state));
    (Feeder(Arc::clone(&state)), FedBody(state))
}

impl FedBody {
    pub(crate) fn poll_chunk(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyError>>> {
        let mut state = lock(&self.0);
        if let Some(chunk) = state.chunk.take() {
            state.taken += chunk.len() as u64;
            return Poll::Ready(Some(Ok(chunk)));
        }
        match state.end.take() {
            Some(Ok(())) => {
                state.end = Some(Ok(()));
                return Poll::Ready(None);
            }
            Some(Err(error)) => {
                state.end = Some(Ok(()));
                return Poll::Ready(Some(Err(error)));
            }
            None => {}
        }
        if !state
            .reader
            .as_ref()
            .is_some_and(|reader| reader.will_wake(cx.waker()))
        {
            state.reader = Some(cx.waker().clone());
        }
        if !state.is_wanted {
            state.is_wanted = true;
            // In the connection's own task it looks here after the handler.
            if !state.connection.will_wake(cx.waker()) {
                state.connection.wake_by_ref();
            }
        }
        Poll::Pending
    }

    pub(crate) fn is_end(&self) -> bool {
        let state = lock(&self.0);
        state.chunk.is_none() && matches!(state.end, Some(Ok(())))
    }

    /// Bytes that are to come, where the head said so.
    pub(crate) fn remaining(&self) -> Option<u64> {
        let state = lock(&self.0);
        state
            .length
            .map(|length| length.saturating_sub(state.taken))
    }
}

impl Drop for FedBody {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        state.is_dropped = true;
        state.is_wanted = false;
        state.chunk = None;
    }
}

impl Feeder {
    /// Whether the reader waits for more.
    pub(crate) fn is_wanted(&self) -> bool {
        lock(&self.0).is_wanted
    }

    /// Whether nobody can ask for more.
    pub(crate) fn is_dropped(&self) -> bool {
        lock(&self.0).is_dropped
    }

    /// Passes on what came; only while it is wanted.
    pub(crate) fn push(&self, chunk: Bytes) {
        let mut state = lock(&self.0);
        if !state.is_dropped && !chunk.is_empty() {
            state.chunk = Some(chunk);
            state.is_wanted = false;
            wake(state);
        }
    }

    /// Tells the reader that this was all, or why there will be no more.
    pub(crate) fn end(&self, end: Result<(), BodyError>) {
        let mut state = lock(&self.0);
        if state.end.is_none() {
            state.end = Some(end);
            state.is_wanted = false;
            wake(state);
        }
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.end(Err(BodyError::disconnected()));
    }
}

fn wake(mut state: MutexGuard<'_, State>) {
    let reader = state.reader.take();
    drop(state);
    if let Some(reader) = reader {
        reader.wake();
    }
}
