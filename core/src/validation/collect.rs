//! Reading a body to its end, one poll at a time.
//!
//! Guarantee: a body of one chunk is not copied, and one that has arrived
//! already is complete after the first poll, without a waker.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body as _, Frame};

use crate::body::Body;
use crate::collected::Collected;
use crate::error::BodyError;

/// A body that is being read.
pub(super) struct Collect {
    body: Body,
    collected: Collected,
}

impl Collect {
    pub(super) fn new(body: Body) -> Self {
        Self {
            body,
            collected: Collected::default(),
        }
    }

    /// Whether a byte of it has come; after a poll that is pending.
    pub(super) fn has_begun(&self) -> bool {
        !self.collected.is_empty()
    }

    /// The whole body, once; cancel safe until then.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, BodyError>> {
        loop {
            let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
            let Some(frame) = frame.transpose()? else {
                return Poll::Ready(Ok(self.collected.take()));
            };
            // Trailers say nothing about the document.
            self.collected
                .push(Frame::into_data(frame).unwrap_or_default())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Polls after each of `chunks` has been sent, then after the end.
    fn collected(chunks: &[&'static str]) -> Bytes {
        let (sender, body) = Body::channel(8);
        let mut collect = Collect::new(body);
        let mut cx = Context::from_waker(Waker::noop());
        for chunk in chunks {
            let mut send = std::pin::pin!(sender.send(*chunk));
            assert!(send.as_mut().poll(&mut cx).is_ready());
            assert!(collect.poll(&mut cx).is_pending());
        }
        drop(sender);
        let Poll::Ready(Ok(bytes)) = collect.poll(&mut cx) else {
            panic!("the sender is gone");
        };
        bytes
    }

    #[test]
    fn chunks_are_joined_in_order() {
        assert_eq!(collected(&[]), "");
        assert_eq!(collected(&["", "one"]), "one");
        assert_eq!(collected(&["a", "", "bc", "def"]), "abcdef");
    }

    #[test]
    fn a_body_that_has_arrived_is_not_copied() {
        let bytes = Bytes::from_static(b"{}");
        let mut collect = Collect::new(Body::from(bytes.clone()));
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(read)) = collect.poll(&mut cx) else {
            panic!("everything is there");
        };
        assert_eq!(read.as_ptr(), bytes.as_ptr());
    }
}
