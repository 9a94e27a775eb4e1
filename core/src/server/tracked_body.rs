//! HTTP/2 response bodies that tell their connection how they fare.
//!
//! Guarantee: a connection knows when its last stream has ended (so that it is
//! idle), and since when no stream got rid of data (so that the write-stall
//! limit also holds where flow control, not the socket, is what blocks).

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::connection::{Connection, Waiting};
use crate::body::Body;
use crate::error::BodyError;

/// One open stream of a connection, from its request to its last byte.
#[derive(Debug)]
pub(super) struct StreamTracker {
    connection: Rc<Connection>,
    blocked: bool,
}

impl StreamTracker {
    pub(super) fn new(connection: Rc<Connection>) -> Self {
        connection
            .open_streams
            .set(connection.open_streams.get() + 1);
        connection.waiting.set(Waiting::Nothing);
        Self {
            connection,
            blocked: false,
        }
    }

    fn set_blocked(&mut self, blocked: bool) {
        let count = &self.connection.blocked_streams;
        match (self.blocked, blocked) {
            (false, true) => count.set(count.get() + 1),
            (true, false) => count.set(count.get() - 1),
            _ => {}
        }
        self.blocked = blocked;
        self.connection.stream_progress.set(Instant::now());
    }
}

impl Drop for StreamTracker {
    fn drop(&mut self) {
        self.set_blocked(false);
        let open = self.connection.open_streams.get() - 1;
        self.connection.open_streams.set(open);
        if open == 0 {
            self.connection.wait_for(Waiting::Request, Instant::now());
        }
    }
}

/// A response body with its tracker.
#[derive(Debug)]
pub(super) struct TrackedBody {
    body: Body,
    tracker: StreamTracker,
}

impl TrackedBody {
    pub(super) const fn new(body: Body, tracker: StreamTracker) -> Self {
        Self { body, tracker }
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        // hyper asks for the next frame once the peer's window has room: until
        // then this one waits for the peer.
        let blocked = matches!(frame, Poll::Ready(Some(Ok(_))));
        self.tracker.set_blocked(blocked);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
