//! HTTP/2 response bodies that tell their connection how they fare.
//!
//! Guarantee: a connection knows when the last frame of its last stream was
//! handed over (so that it is about to be idle), and since when no stream got
//! rid of data (so that the write-stall limit also holds where flow control,
//! not the socket, is what blocks). Data goes out in small frames, because one
//! that is handed over counts as gone.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::connection::{Connection, Waiting};
use super::exchange;
use crate::body::Body;
use crate::error::BodyError;

/// Largest piece handed over at once; HTTP/2's default frame.
const MAX_FRAME_BYTES: usize = 16 * 1024;

/// One open stream of a connection, from its request to its last frame.
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
            // What the peer has taken of the last frame shows as a write.
            (true, true) => return,
            (false, false) => {}
        }
        self.blocked = blocked;
        self.connection.note_h2_progress();
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
    /// Data of the last frame that has not been passed on.
    rest: Bytes,
    tracker: StreamTracker,
}

impl TrackedBody {
    pub(super) const fn new(body: Body, tracker: StreamTracker) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            tracker,
        }
    }
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = if self.rest.is_empty() {
            let Self { body, tracker, .. } = &mut *self;
            exchange::poll_body(body, &tracker.connection.lane, cx)
        } else {
            Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.rest)))))
        };
        let frame = match frame {
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(mut data) => {
                    if data.len() > MAX_FRAME_BYTES {
                        self.rest = data.split_off(MAX_FRAME_BYTES);
                    }
                    Poll::Ready(Some(Ok(Frame::data(data))))
                }
                Err(frame) => Poll::Ready(Some(Ok(frame))),
            },
            other => other,
        };
        // hyper asks for the next frame once there is room for it: until then
        // this one waits for the peer.
        let blocked = matches!(frame, Poll::Ready(Some(Ok(_))));
        self.tracker.set_blocked(blocked);
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use super::super::lane::{App, Lane};
    use super::*;
    use crate::limits::Limits;
    use crate::request::Peer;
    use crate::router::Router;

    struct Panics;

    impl HttpBody for Panics {
        type Data = Bytes;
        type Error = BodyError;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            panic!("a bug in a body")
        }
    }

    #[test]
    fn a_body_that_panics_fails_its_stream() {
        let lane = Lane::new(Arc::new(App::new(Router::new(), Limits::DEFAULT, 1)), 0);
        let connection = Connection::new(lane, Peer::Unknown, false, Instant::now());
        let tracker = StreamTracker::new(Rc::clone(&connection));
        let mut body = TrackedBody::new(Body::custom(Panics), tracker);
        let frame = Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(frame, Poll::Ready(Some(Err(BodyError::Producer)))));
        drop(body);
        assert_eq!(connection.open_streams.get(), 0);
    }
}
