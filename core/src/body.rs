//! One concrete body type for requests and responses.
//!
//! Guarantees: a request body never yields more than its limit, a response
//! body of known size carries that size, and streaming holds at most the
//! channel's capacity in memory. No boxing unless a custom body is given.

use std::convert::Infallible;
use std::fmt;
use std::fs::File;
use std::future::{Future as _, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use crate::collected::Collected;
use crate::decompression::DecodedBody;
use crate::error::BodyError;
use crate::feed::FedBody;
use crate::files::FileSpan;
use crate::limits::Reject;
use crate::pace::Pace;
use crate::server::scope;

type BoxBody = Pin<Box<dyn HttpBody<Data = Bytes, Error = BodyError> + Send>>;

/// A request or response body.
///
/// Dropping it before its end tells the connection that nobody wants the rest.
#[derive(Default)]
pub struct Body(Kind);

#[derive(Default)]
enum Kind {
    #[default]
    Empty,
    Full(Bytes),
    File(FileSpan),
    Received {
        source: Source,
        remaining: u64,
        limit: u64,
    },
    Channel(mpsc::Receiver<Result<Bytes, BodyError>>),
    Custom(BoxBody),
    Decoded(Box<DecodedBody>),
}

/// Where the rest of a request body comes from.
enum Source {
    /// It came with its head.
    Whole(Bytes),
    Http1(FedBody),
    Http2(Box<Http2Body>),
}

impl Source {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self {
            Self::Whole(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Http1(body) => body
                .poll_chunk(cx)
                .map(|chunk| chunk.map(|chunk| chunk.map(Frame::data))),
            Self::Http2(body) => body.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Http1(body) => body.is_end(),
            Self::Http2(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Http1(body) => match body.remaining() {
                Some(length) => SizeHint::with_exact(length),
                None => SizeHint::default(),
            },
            Self::Http2(body) => body.incoming.size_hint(),
        }
    }
}

/// A request body of HTTP/2, with a limit on the wait for its next frame.
struct Http2Body {
    incoming: Incoming,
    pace: Pace,
    /// Since when nothing comes, and until when that is good.
    wait: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Http2Body {
    fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) {
            let wait = self.wait.take();
            let waited = wait.map_or(Duration::ZERO, |(since, _)| since.elapsed());
            let data = frame
                .as_ref()
                .and_then(|frame| frame.as_ref().ok()?.data_ref());
            self.pace.note(waited, data.map_or(0, Bytes::len) as u64);
            return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::incomplete)));
        }
        let pace = self.pace;
        let (_, timer) = self.wait.get_or_insert_with(|| {
            let now = Instant::now();
            (now, Box::pin(tokio::time::sleep_until(now + pace.left())))
        });
        ready!(timer.as_mut().poll(cx));
        scope::count_rejected(if pace.is_slow() {
            Reject::BodyRate
        } else {
            Reject::BodyStall
        });
        Poll::Ready(Some(Err(BodyError::Stalled)))
    }
}

impl Body {
    /// A body of zero bytes.
    pub const fn empty() -> Self {
        Self(Kind::Empty)
    }

    /// Wraps any `http_body::Body`; the one constructor that allocates.
    pub fn custom<B>(body: B) -> Self
    where
        B: HttpBody<Data = Bytes, Error = BodyError> + Send + 'static,
    {
        Self(Kind::Custom(Box::pin(body)))
    }

    /// Bytes of an open regular file, read when the connection wants them.
    ///
    /// At most 64 KiB are held in memory. Reading blocks the lane where the
    /// pages are not cached. A file that ends before `range` does breaks the
    /// message off.
    pub fn file(file: Arc<File>, range: Range<u64>) -> Self {
        Self(Kind::File(FileSpan::new(file, range)))
    }

    /// Whether it is the range of a file.
    pub(crate) const fn is_file(&self) -> bool {
        matches!(self.0, Kind::File(_))
    }

    /// The range of a file, to be sent without a copy; the body itself when it
    /// is something else.
    pub(crate) fn into_file(self) -> Result<FileSpan, Self> {
        match self.0 {
            Kind::File(span) => Ok(span),
            other => Err(Self(other)),
        }
    }

    /// A streamed body fed from another task, at most `capacity` chunks ahead.
    ///
    /// The stream ends when the sender is dropped, and fails when it sends an
    /// error, so that the client sees a truncated message.
    pub fn channel(capacity: usize) -> (BodySender, Self) {
        let (sender, receiver) = mpsc::channel(capacity.max(1));
        (BodySender(sender), Self(Kind::Channel(receiver)))
    }

    /// A request body that came with its head.
    pub(crate) fn whole(bytes: Bytes, limit: u64) -> Self {
        Self::received(Source::Whole(bytes), limit)
    }

    /// A request body that its HTTP/1.1 connection feeds.
    pub(crate) fn fed(body: FedBody, limit: u64) -> Self {
        Self::received(Source::Http1(body), limit)
    }

    /// A request body of HTTP/2; `pace` bounds the wait for each frame.
    pub(crate) fn http2(incoming: Incoming, limit: u64, pace: Pace) -> Self {
        if incoming.is_end_stream() {
            return Self(Kind::Empty);
        }
        let body = Http2Body {
            incoming,
            pace,
            wait: None,
        };
        Self::received(Source::Http2(Box::new(body)), limit)
    }

    const fn received(source: Source, limit: u64) -> Self {
        Self(Kind::Received {
            source,
            remaining: limit,
            limit,
        })
    }

    /// The limit of a request body that announced more bytes than that.
    pub(crate) fn exceeded_limit(&self) -> Option<u64> {
        match &self.0 {
            Kind::Received { source, limit, .. } if source.size_hint().lower() > *limit => {
                Some(*limit)
            }
            Kind::Decoded(body) => body.inner().exceeded_limit(),
            _ => None,
        }
    }

    /// A body that is decoded while it is read.
    pub(crate) fn decoded(body: DecodedBody) -> Self {
        Self(Kind::Decoded(Box::new(body)))
    }

    /// All bytes of a body that is in memory as a whole.
    pub(crate) fn as_full(&self) -> Option<&Bytes> {
        match &self.0 {
            Kind::Full(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The content, if all of it is here; else the body as it is.
    pub(crate) fn into_whole(self) -> Result<Bytes, Self> {
        match self.0 {
            Kind::Empty => Ok(Bytes::new()),
            Kind::Full(bytes) => Ok(bytes),
            Kind::File(span) if span.remaining() == 0 => Ok(Bytes::new()),
            kind => Err(Self(kind)),
        }
    }

    /// The content of a request body that came with its head and is within
    /// its limit.
    pub(crate) fn take_received(&mut self) -> Option<Bytes> {
        let Kind::Received {
            source: Source::Whole(bytes),
            remaining,
            ..
        } = &mut self.0
        else {
            return None;
        };
        if bytes.len() as u64 > *remaining {
            return None;
        }
        let bytes = std::mem::take(bytes);
        self.0 = Kind::Empty;
        Some(bytes)
    }

    /// Replaces the byte limit of a request body; no effect on other kinds.
    pub fn set_limit(&mut self, bytes: u64) {
        match &mut self.0 {
            Kind::Received {
                remaining, limit, ..
            } => {
                let used = *limit - *remaining;
                *limit = bytes;
                *remaining = bytes.saturating_sub(used);
            }
            Kind::Decoded(body) => body.set_limit(bytes),
            _ => {}
        }
    }

    /// Next piece of data; trailers are skipped.
    ///
    /// Cancel safe: no data is lost when the future is dropped.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, BodyError>> {
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut *self).poll_frame(cx)).await?;
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) if data.is_empty() => {}
                Ok(Ok(data)) => return Some(Ok(data)),
                Ok(Err(_trailers)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The content, if all of it has come and is within the limit; else the
    /// body as it is.
    pub fn into_ready(self) -> Result<Bytes, Self> {
        match self.0 {
            Kind::Received {
                source: Source::Whole(bytes),
                remaining,
                ..
            } if bytes.len() as u64 <= remaining => Ok(bytes),
            kind => Self(kind).into_whole(),
        }
    }

    /// Reads the body to its end; a body of one chunk is not copied.
    ///
    /// # Errors
    /// [`BodyError::TooLarge`] above the limit, [`BodyError::Incomplete`] when
    /// the peer leaves or breaks the framing, [`BodyError::OutOfMemory`] when
    /// other bodies leave no room.
    pub async fn bytes(mut self) -> Result<Bytes, BodyError> {
        match self.0 {
            Kind::Full(bytes) => return Ok(bytes),
            Kind::Received {
                source: Source::Whole(bytes),
                remaining,
                ..
            } if bytes.len() as u64 <= remaining => return Ok(bytes),
            _ => {}
        }
        let Some(first) = self.chunk().await.transpose()? else {
            return Ok(Bytes::new());
        };
        let Some(second) = self.chunk().await.transpose()? else {
            return Ok(first);
        };
        let mut all = Collected::default();
        all.push(first)?;
        all.push(second)?;
        while let Some(chunk) = self.chunk().await {
            all.push(chunk?)?;
        }
        Ok(all.take())
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Kind::Empty => Poll::Ready(None),
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                self.0 = Kind::Empty;
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Kind::File(span) => Poll::Ready(span.next_chunk().map(|chunk| chunk.map(Frame::data))),
            Kind::Received {
                source,
                remaining,
                limit,
            } => {
                let Some(frame) = ready!(source.poll_frame(cx)) else {
                    return Poll::Ready(None);
                };
                let frame = match frame {
                    Ok(frame) => frame,
                    Err(error) => {
                        self.0 = Kind::Empty;
                        return Poll::Ready(Some(Err(error)));
                    }
                };
                if let Some(data) = frame.data_ref() {
                    let Some(left) = remaining.checked_sub(data.len() as u64) else {
                        let limit = *limit;
                        self.0 = Kind::Empty;
                        return Poll::Ready(Some(Err(BodyError::TooLarge { limit })));
                    };
                    *remaining = left;
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Kind::Channel(receiver) => receiver
                .poll_recv(cx)
                .map(|item| item.map(|chunk| chunk.map(Frame::data))),
            Kind::Custom(body) => body.as_mut().poll_frame(cx),
            Kind::Decoded(body) => Pin::new(&mut **body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Empty => true,
            Kind::Full(bytes) => bytes.is_empty(),
            Kind::Received { source, .. } => source.is_end_stream(),
            Kind::File(span) => span.remaining() == 0,
            Kind::Channel(_) => false,
            Kind::Custom(body) => body.is_end_stream(),
            Kind::Decoded(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Received { source, .. } => source.size_hint(),
            Kind::File(span) => SizeHint::with_exact(span.remaining()),
            Kind::Channel(_) => SizeHint::default(),
            Kind::Custom(body) => body.size_hint(),
            Kind::Decoded(body) => body.size_hint(),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.0 {
            Kind::Empty => "Empty",
            Kind::Full(_) => "Full",
            Kind::Received { .. } => "Received",
            Kind::File(_) => "File",
            Kind::Channel(_) => "Channel",
            Kind::Custom(_) => "Custom",
            Kind::Decoded(_) => "Decoded",
        };
        f.debug_struct("Body")
            .field("kind", &kind)
            .field("size_hint", &self.size_hint())
            .finish()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(Kind::Full(bytes))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Kind::Full(bytes.into()))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Self(Kind::Full(text.into()))
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Self(Kind::Full(Bytes::from_static(text.as_bytes())))
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Self {
        Self(Kind::Full(Bytes::from_static(bytes)))
    }
}

impl From<Infallible> for BodyError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// Feeds a streamed body; made by [`Body::channel`].
#[derive(Debug, Clone)]
pub struct BodySender(mpsc::Sender<Result<Bytes, BodyError>>);

impl BodySender {
    /// Sends one chunk, waiting while the client is slower than the producer.
    ///
    /// # Errors
    /// [`BodyError::Producer`] when the client has left: stop producing.
    pub async fn send(&self, chunk: impl Into<Bytes>) -> Result<(), BodyError> {
        self.0
            .send(Ok(chunk.into()))
            .await
            .map_err(|_| BodyError::Producer)
    }

    /// Breaks the stream off, so that the client sees a truncated message.
    pub async fn abort(self) {
        // A send error means that the client has left already.
        drop(self.0.send(Err(BodyError::Producer)).await);
    }

    /// Resolves when the connection knows that the client has left.
    ///
    /// A client that leaves in silence is found out by the next write: a quiet
    /// stream has to send something now and then.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}
