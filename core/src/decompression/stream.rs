//! A request body that is decoded while it is read.
//!
//! Guarantees: the body limit counts decoded bytes, and they are never more
//! than the ratio allows for the bytes that came over the wire, so a bomb
//! costs no more than a body that was sent in full; a stream that ends early
//! is an error, never a short body.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame};

use super::decoder::Decoder;
use crate::body::Body;
use crate::compression::Coding;
use crate::error::BodyError;

/// Largest piece that is decoded at once.
const CHUNK_BYTES: usize = 16 * 1024;
/// Decoded bytes after which the lane's other connections have their turn.
const TURN_BYTES: usize = 128 * 1024;
/// Decoded bytes for which no ratio holds: a small body of one repeated value
/// is no attack.
const RATIO_FREE_BYTES: u64 = 64 * 1024;

/// A body that undoes one coding of another body.
pub(crate) struct DecodedBody {
    inner: Body,
    coding: Coding,
    decoder: Decoder,
    /// Taken from `inner` and not yet decoded.
    input: Bytes,
    /// Whether the decoder may hold output that had no room.
    has_more: bool,
    num_received: u64,
    num_decoded: u64,
    limit: u64,
    max_ratio: u32,
    decoded_this_turn: usize,
    is_ended: bool,
}

impl DecodedBody {
    pub(super) fn new(
        inner: Body,
        coding: Coding,
        limit: u64,
        max_ratio: u32,
    ) -> Result<Self, BodyError> {
        let decoder = Decoder::new(coding).map_err(|_| BodyError::Producer)?;
        Ok(Self {
            inner,
            coding,
            decoder,
            input: Bytes::new(),
            has_more: false,
            num_received: 0,
            num_decoded: 0,
            limit,
            max_ratio,
            decoded_this_turn: 0,
            is_ended: false,
        })
    }

    /// Replaces the limits of decoded bytes and of those on the wire.
    pub(crate) fn set_limit(&mut self, bytes: u64) {
        self.limit = bytes;
        self.inner.set_limit(bytes);
    }

    /// The body of the coding that was applied after this one.
    pub(crate) const fn inner(&self) -> &Body {
        &self.inner
    }

    fn fail(&mut self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.inner = Body::empty();
        self.input = Bytes::new();
        self.is_ended = true;
        Poll::Ready(Some(Err(error)))
    }

    /// The next piece of what is at hand; empty when there is none.
    fn decode(&mut self) -> Result<Vec<u8>, BodyError> {
        let corrupt = BodyError::Coding {
            coding: self.coding.token(),
        };
        let room = (4 * self.input.len()).clamp(1024, CHUNK_BYTES);
        let mut out = Vec::with_capacity(room);
        let before = self.input.len();
        if self.decoder.step(&mut self.input, &mut out).is_err() {
            return Err(corrupt);
        }
        self.has_more = out.len() == out.capacity();
        if out.is_empty() && !self.input.is_empty() && self.input.len() == before {
            return Err(corrupt);
        }
        self.num_decoded += out.len() as u64;
        self.decoded_this_turn += out.len();
        if self.num_decoded > self.limit {
            return Err(BodyError::TooLarge { limit: self.limit });
        }
        let most = self
            .num_received
            .saturating_mul(self.max_ratio.into())
            .max(RATIO_FREE_BYTES);
        if self.num_decoded > most {
            return Err(BodyError::Ratio {
                limit: self.max_ratio,
            });
        }
        Ok(out)
    }
}

impl HttpBody for DecodedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        loop {
            if this.is_ended {
                return Poll::Ready(None);
            }
            if this.decoded_this_turn >= TURN_BYTES {
                this.decoded_this_turn = 0;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            if this.has_more || !this.input.is_empty() {
                match this.decode() {
                    Ok(out) if out.is_empty() => {}
                    Ok(out) => return Poll::Ready(Some(Ok(Frame::data(out.into())))),
                    Err(error) => return this.fail(error),
                }
                continue;
            }
            match Pin::new(&mut this.inner).poll_frame(cx) {
                Poll::Pending => {
                    this.decoded_this_turn = 0;
                    return Poll::Pending;
                }
                // Trailers of a coded body say nothing about the decoded one.
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        this.num_received += data.len() as u64;
                        this.input = data;
                    }
                }
                Poll::Ready(Some(Err(error))) => return this.fail(error),
                Poll::Ready(None) if this.num_received == 0 || this.decoder.is_at_end() => {
                    this.is_ended = true;
                }
                Poll::Ready(None) => {
                    let coding = this.coding.token();
                    return this.fail(BodyError::Coding { coding });
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended
    }
}

impl fmt::Debug for DecodedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DecodedBody")
            .field("coding", &self.coding)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
