//! A body that is compressed while it is sent.
//!
//! Guarantees: what the producer has given so far is flushed as soon as it has
//! nothing more at hand, so no chunk waits for the next one; at most
//! [`PIECE_BYTES`] are compressed before the lane's other connections have
//! their turn; a body that breaks off stays broken off.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::encoder::{Encoder, EncoderFailed, Permit};
use super::{Coding, Compression};
use crate::body::Body;
use crate::error::BodyError;

/// Input compressed in one turn of the lane: some 300 µs of gzip.
pub(super) const PIECE_BYTES: usize = 16 * 1024;

/// A compressed body.
pub(super) struct CompressedBody {
    inner: Body,
    encoder: EncoderState,
    /// Taken from `inner` and not yet compressed.
    rest: Bytes,
    out: Vec<u8>,
    /// Whether the encoder may hold something back.
    is_dirty: bool,
    /// Whether this turn's share is used up.
    has_worked: bool,
    trailers: Option<HeaderMap>,
    _permit: Permit,
}

enum EncoderState {
    /// Not needed yet, and never for an answer to HEAD.
    Wanted(Coding, Compression),
    Working(Encoder),
    Ended,
}

impl CompressedBody {
    pub(super) fn new(inner: Body, coding: Coding, settings: &Compression, permit: Permit) -> Self {
        Self {
            inner,
            encoder: EncoderState::Wanted(coding, settings.clone()),
            rest: Bytes::new(),
            out: Vec::new(),
            is_dirty: false,
            has_worked: false,
            trailers: None,
            _permit: permit,
        }
    }

    fn encoder(&mut self) -> Result<&mut Encoder, EncoderFailed> {
        if let EncoderState::Wanted(coding, settings) = &self.encoder {
            self.encoder = EncoderState::Working(Encoder::take(*coding, settings)?);
        }
        match &mut self.encoder {
            EncoderState::Working(encoder) => Ok(encoder),
            EncoderState::Wanted(..) | EncoderState::Ended => Err(EncoderFailed),
        }
    }

    fn compress_piece(&mut self) -> Result<(), EncoderFailed> {
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        let mut out = std::mem::take(&mut self.out);
        let result = self.encoder()?.write(&piece, &mut out);
        self.out = out;
        self.is_dirty = true;
        self.has_worked = true;
        result
    }

    fn flush(&mut self) -> Result<(), EncoderFailed> {
        let mut out = std::mem::take(&mut self.out);
        let result = self.encoder()?.flush(&mut out);
        self.out = out;
        self.is_dirty = false;
        result
    }

    fn finish(&mut self) -> Result<(), EncoderFailed> {
        let mut out = std::mem::take(&mut self.out);
        self.encoder()?;
        let state = std::mem::replace(&mut self.encoder, EncoderState::Ended);
        if let EncoderState::Working(encoder) = state {
            encoder.finish(&[], &mut out)?;
        }
        self.out = out;
        self.is_dirty = false;
        Ok(())
    }

    /// What has been compressed, as a frame.
    fn take_out(&mut self) -> Frame<Bytes> {
        Frame::data(Bytes::from(std::mem::take(&mut self.out)))
    }

    fn fail(&mut self, error: BodyError) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        self.encoder = EncoderState::Ended;
        self.inner = Body::empty();
        self.rest = Bytes::new();
        self.out = Vec::new();
        Poll::Ready(Some(Err(error)))
    }

    fn is_ended(&self) -> bool {
        matches!(self.encoder, EncoderState::Ended)
    }
}

impl HttpBody for CompressedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        if std::mem::take(&mut this.has_worked) {
            // The lane's other connections first; hyper sends meanwhile.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        loop {
            if this.is_ended() {
                let trailers = this.trailers.take();
                return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
            }
            let compressed = if this.rest.is_empty() {
                match Pin::new(&mut this.inner).poll_frame(cx) {
                    Poll::Ready(Some(Ok(frame))) => {
                        match frame.into_data() {
                            Ok(data) => this.rest = data,
                            Err(frame) => this.trailers = frame.into_trailers().ok(),
                        }
                        continue;
                    }
                    Poll::Ready(Some(Err(error))) => return this.fail(error),
                    Poll::Ready(None) => this.finish(),
                    Poll::Pending => {
                        // The wait for the producer is the others' turn.
                        this.has_worked = false;
                        if !this.is_dirty {
                            return Poll::Pending;
                        }
                        this.flush()
                    }
                }
            } else if this.has_worked {
                cx.waker().wake_by_ref();
                this.has_worked = false;
                return Poll::Pending;
            } else {
                this.compress_piece()
            };
            if compressed.is_err() {
                return this.fail(BodyError::Producer);
            }
            // Output of a piece that is followed by more can wait for it: one
            // large frame is cheaper than two small ones.
            let is_worth_sending = this.out.len() >= PIECE_BYTES / 4 || !this.is_dirty;
            if is_worth_sending && !this.out.is_empty() {
                return Poll::Ready(Some(Ok(this.take_out())));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended() && self.trailers.is_none() && self.out.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

impl Drop for CompressedBody {
    fn drop(&mut self) {
        // Of a client that left: the state is as good as any after a reset.
        let state = std::mem::replace(&mut self.encoder, EncoderState::Ended);
        if let EncoderState::Working(encoder) = state {
            encoder.put();
        }
    }
}

impl fmt::Debug for CompressedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressedBody")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
