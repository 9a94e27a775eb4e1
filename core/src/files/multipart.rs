//! The body of an answer to a request for several ranges.
//!
//! Source: RFC 9110 §14.6, RFC 2046 §5.1. Its length is known in advance.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderValue;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::range::Parts;
use super::representation::Content;
use crate::body::Body;
use crate::error::BodyError;

/// Pieces that are sent one after another.
#[derive(Debug)]
pub(super) struct Multipart {
    pieces: VecDeque<Body>,
    remaining: u64,
}

impl Multipart {
    /// The parts of `content`, which has `size` bytes and `content_type`.
    ///
    /// `boundary` must not occur in the content; a long random one does not.
    pub(super) fn new(
        boundary: &str,
        parts: &Parts,
        content: &Content,
        size: u64,
        content_type: &HeaderValue,
    ) -> Self {
        let mut multipart = Self {
            pieces: VecDeque::with_capacity(2 * parts.len() + 1),
            remaining: 0,
        };
        for (index, part) in parts.iter().enumerate() {
            let line_end = if index == 0 { "" } else { "\r\n" };
            let mut head = format!("{line_end}--{boundary}\r\ncontent-type: ").into_bytes();
            head.extend_from_slice(content_type.as_bytes());
            let (start, last) = (part.start, part.end - 1);
            let range = format!("\r\ncontent-range: bytes {start}-{last}/{size}\r\n\r\n");
            head.extend_from_slice(range.as_bytes());
            multipart.push(head.into());
            multipart.push(content.body(part.clone()));
        }
        multipart.push(format!("\r\n--{boundary}--\r\n").into());
        multipart
    }

    fn push(&mut self, piece: Body) {
        let length = piece.size_hint().exact();
        self.remaining += length.expect("bytes and files know their length");
        self.pieces.push_back(piece);
    }
}

/// A boundary of 128 random bits.
pub(super) fn boundary() -> String {
    format!("{:032x}", fastrand::u128(..))
}

impl HttpBody for Multipart {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        while let Some(piece) = self.pieces.front_mut() {
            match ready!(Pin::new(piece).poll_frame(cx)) {
                Some(Ok(frame)) => {
                    let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                    self.remaining -= length;
                    return Poll::Ready(Some(Ok(frame)));
                }
                Some(Err(error)) => {
                    self.pieces.clear();
                    return Poll::Ready(Some(Err(error)));
                }
                None => drop(self.pieces.pop_front()),
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}
