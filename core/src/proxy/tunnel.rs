//! Bytes between a client and an upstream that have both left HTTP for
//! WebSocket.
//!
//! Guarantees: bytes pass as they came, and a direction whose receiver is slow
//! holds one read of them; a drain says Close to both sides between two frames
//! of theirs; a tunnel that nobody uses ends.
//!
//! ```text
//! Open ── drain or idle ──▶ Closing ── end of a frame ──▶ Said ── shut ──▶ Dropping
//! Open, Closing ── end of the sender ──▶ Ending ── shut ─────────────────▶ Ended
//! Dropping ── end of the sender ─────────────────────────────────────────▶ Ended
//! ```

use std::cell::RefCell;
use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, timeout};

use super::pool::Connection;
use crate::metrics::LaneMetrics;
use crate::server::count_on_lane;
use crate::upgrade::{Host, Upgraded};

/// Bytes read at once, through one buffer of the thread.
const SCRATCH_BYTES: usize = 16 * 1024;
/// Going away (RFC 6455 §7.4.1).
const GOING_AWAY: u16 = 1001;
/// First byte of a whole Close frame.
const CLOSE: u8 = 0x88;
/// Longest frame header: two bytes, a 64-bit length, a mask.
const MAX_HEADER_BYTES: usize = 14;

thread_local! {
    /// Where both sides of every tunnel of the thread are read into first.
    static SCRATCH: RefCell<Box<[u8]>> =
        RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

/// How long a tunnel waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Without a byte in either direction.
    pub(super) idle: Duration,
    /// For the other side once one has ended, or both have been told to.
    pub(super) close: Duration,
}

/// Passes bytes in both directions until both have ended.
pub(super) async fn run(
    client: Upgraded,
    upstream: hyper::upgrade::OnUpgrade,
    connection: Connection,
    patience: Patience,
) {
    let _open = Open::new();
    let host = client.host();
    // It is there once the upstream's connection has noticed its own answer.
    if let Ok(Ok(upstream)) = timeout(patience.close, upstream).await {
        let mut tunnel = Tunnel::new(client, TokioIo::new(upstream), host, patience);
        poll_fn(|cx| tunnel.poll(cx)).await;
    }
    // The lane's place for a connection to this upstream was taken until now.
    drop(connection);
}

/// Counts an open tunnel.
struct Open;

impl Open {
    fn new() -> Self {
        count_on_lane(LaneMetrics::websocket_opened);
        Self
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        count_on_lane(LaneMetrics::websocket_closed);
    }
}

struct Tunnel<C, U> {
    client: C,
    upstream: U,
    to_upstream: Direction,
    to_client: Direction,
    host: Rc<dyn Host>,
    patience: Patience,
    last_progress: Instant,
    closing_since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl<C, U> Tunnel<C, U>
where
    C: AsyncRead + AsyncWrite + Unpin,
    U: AsyncRead + AsyncWrite + Unpin,
{
    fn new(client: C, upstream: U, host: Rc<dyn Host>, patience: Patience) -> Self {
        let now = Instant::now();
        Self {
            client,
            upstream,
            // A client masks its frames (RFC 6455 §5.3), and to the upstream we
            // are one.
            to_upstream: Direction::new(true),
            to_client: Direction::new(false),
            host,
            patience,
            last_progress: now,
            closing_since: None,
            timer: Box::pin(tokio::time::sleep_until((now + patience.idle).into())),
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.closing_since.is_none() && self.host.poll_draining(cx).is_ready() {
                self.close("the server goes down");
            }
            let up = self
                .to_upstream
                .poll(&mut self.client, &mut self.upstream, cx);
            let down = self
                .to_client
                .poll(&mut self.upstream, &mut self.client, cx);
            if up.is_ready() && down.is_ready() {
                return Poll::Ready(());
            }
            for direction in [&mut self.to_upstream, &mut self.to_client] {
                if std::mem::take(&mut direction.has_progress) {
                    self.last_progress = Instant::now();
                }
            }
            let deadline = self.deadline();
            if deadline < self.timer.deadline().into_std() {
                self.timer.as_mut().reset(deadline.into());
            }
            ready!(self.timer.as_mut().poll(cx));
            // The timer only ever moves earlier, or when it fires.
            self.timer.as_mut().reset(deadline.into());
            if Instant::now() >= deadline {
                if self.closing_since.is_some() || self.is_half_closed() {
                    return Poll::Ready(());
                }
                self.close("nothing came for too long");
            }
        }
    }

    fn is_half_closed(&self) -> bool {
        self.to_upstream.state == State::Ended || self.to_client.state == State::Ended
    }

    fn deadline(&self) -> Instant {
        let Patience { idle, close } = self.patience;
        match self.closing_since {
            Some(since) => since + close,
            None if self.is_half_closed() => self.last_progress + idle.min(close),
            None => self.last_progress + idle,
        }
    }

    fn close(&mut self, reason: &'static str) {
        self.closing_since = Some(Instant::now());
        self.to_upstream.close(reason);
        self.to_client.close(reason);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// A Close frame follows the frame that is passing.
    Closing(&'static str),
    /// It is on its way, and the end is to follow.
    Said,
    /// Both have been sent; what still comes is dropped.
    Dropping,
    /// The sender has ended, and the receiver is to be told.
    Ending,
    Ended,
}

/// Bytes from one side to the other.
#[derive(Debug)]
struct Direction {
    /// Read and not written yet, from `num_written` on.
    held: Vec<u8>,
    num_written: usize,
    frames: Frames,
    state: State,
    is_masked: bool,
    is_dirty: bool,
    /// Whether bytes have moved since the tunnel last looked.
    has_progress: bool,
}

impl Direction {
    fn new(is_masked: bool) -> Self {
        Self {
            held: Vec::new(),
            num_written: 0,
            frames: Frames::default(),
            state: State::Open,
            is_masked,
            is_dirty: false,
            has_progress: false,
        }
    }

    fn close(&mut self, reason: &'static str) {
        if self.state == State::Open {
            self.state = State::Closing(reason);
        }
    }

    /// Moves what can be moved; ready at the end.
    ///
    /// A receiver that is gone ends its direction alone: what it has sent
    /// before may still be on its way.
    fn poll(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        if self.state != State::Ended {
            drop(ready!(self.poll_move(from, to, cx)));
            self.state = State::Ended;
            self.held = Vec::new();
        }
        Poll::Ready(())
    }

    fn poll_move(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_write_held(to, cx))?;
            if let State::Closing(reason) = self.state
                && self.frames.is_between()
            {
                self.held = close_frame(reason, self.is_masked);
                self.state = State::Said;
                continue;
            }
            match self.state {
                State::Open | State::Closing(_) | State::Dropping => {
                    ready!(self.poll_read(from, to, cx))?;
                }
                State::Said => {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.state = State::Dropping;
                }
                State::Ending => {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.state = State::Ended;
                }
                State::Ended => return Poll::Ready(Ok(())),
            }
        }
    }

    fn poll_write_held(
        &mut self,
        to: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.num_written < self.held.len() {
            let rest = &self.held[self.num_written..];
            let length = ready!(Pin::new(&mut *to).poll_write(cx, rest))?;
            if length == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.num_written += length;
            self.is_dirty = true;
            self.has_progress = true;
        }
        if !self.held.is_empty() {
            self.held = Vec::new();
            self.num_written = 0;
        }
        if self.is_dirty {
            ready!(Pin::new(to).poll_flush(cx))?;
            self.is_dirty = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Reads once, and writes what the receiver takes at once.
    fn poll_read(
        &mut self,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut buffer = ReadBuf::new(scratch);
            let read = ready!(Pin::new(from).poll_read(cx, &mut buffer));
            let bytes = buffer.filled();
            // A reset is an end too: the receiver has to learn of it.
            if read.is_err() || bytes.is_empty() {
                self.state = match self.state {
                    State::Dropping => State::Ended,
                    _ => State::Ending,
                };
                return Poll::Ready(Ok(()));
            }
            self.has_progress = true;
            let is_closing = match self.state {
                State::Open => false,
                State::Closing(_) => true,
                _ => return Poll::Ready(Ok(())),
            };
            let taken = self.frames.advance(bytes, is_closing);
            let bytes = &bytes[..taken];
            let written = match Pin::new(to).poll_write(cx, bytes) {
                Poll::Ready(written) => written?,
                Poll::Pending => 0,
            };
            self.is_dirty |= written > 0;
            self.held.extend_from_slice(&bytes[written..]);
            Poll::Ready(Ok(()))
        })
    }
}

fn close_frame(reason: &str, is_masked: bool) -> Vec<u8> {
    let mut payload = GOING_AWAY.to_be_bytes().to_vec();
    payload.extend_from_slice(reason.as_bytes());
    let length = u8::try_from(payload.len()).expect("our reasons are short");
    let mut frame = vec![CLOSE];
    if is_masked {
        let mask = fastrand::u32(..).to_ne_bytes();
        frame.push(0x80 | length);
        frame.extend_from_slice(&mask);
        let masked = payload.iter().zip(mask.iter().cycle());
        frame.extend(masked.map(|(byte, mask)| byte ^ mask));
    } else {
        frame.push(length);
        frame.extend_from_slice(&payload);
    }
    frame
}

/// Where the frames of a direction end (RFC 6455 §5.2).
#[derive(Debug, Default)]
struct Frames {
    header: [u8; MAX_HEADER_BYTES],
    num_header_bytes: usize,
    payload_left: u64,
}

impl Frames {
    /// Whether the next byte begins a frame.
    const fn is_between(&self) -> bool {
        self.num_header_bytes == 0 && self.payload_left == 0
    }

    /// Looks at bytes that pass: all of them, or up to the end of the frame
    /// that has begun. Returns how many.
    fn advance(&mut self, bytes: &[u8], stops_between: bool) -> usize {
        let mut used = 0;
        while used < bytes.len() && !(stops_between && self.is_between()) {
            if self.payload_left > 0 {
                let passing = self.payload_left.min((bytes.len() - used) as u64);
                self.payload_left -= passing;
                used += passing as usize;
                continue;
            }
            self.header[self.num_header_bytes] = bytes[used];
            self.num_header_bytes += 1;
            used += 1;
            if let Some(length) = self.whole_header() {
                self.payload_left = length;
                self.num_header_bytes = 0;
            }
        }
        used
    }

    /// Length of the payload, once the header is whole.
    fn whole_header(&self) -> Option<u64> {
        let [_, second, ..] = self.header;
        let short = second & 0x7f;
        let num_length_bytes = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let num_mask_bytes = if second & 0x80 == 0 { 0 } else { 4 };
        if self.num_header_bytes < 2
            || self.num_header_bytes < 2 + num_length_bytes + num_mask_bytes
        {
            return None;
        }
        if num_length_bytes == 0 {
            return Some(short.into());
        }
        let long = self.header[2..2 + num_length_bytes].iter();
        Some(long.fold(0, |length, byte| length << 8 | u64::from(*byte)))
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    /// A server that never drains.
    struct Lasting;

    impl Host for Lasting {
        fn poll_draining(&self, _cx: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }

        fn panicked(&self) {}
    }

    const PATIENCE: Patience = Patience {
        idle: Duration::from_secs(5),
        close: Duration::from_secs(5),
    };

    /// Runs a tunnel between two sides, and `talk` at their other ends.
    fn between<T, Talking: Future<Output = T>>(
        talk: impl FnOnce(DuplexStream, DuplexStream) -> Talking,
    ) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build_local(tokio::runtime::LocalOptions::default())
            .expect("a runtime starts");
        let (client, far_client) = duplex(1024);
        let (upstream, far_upstream) = duplex(1024);
        runtime.block_on(async {
            let mut tunnel = Tunnel::new(client, upstream, Rc::new(Lasting), PATIENCE);
            let passing =
                tokio::task::spawn_local(async move { poll_fn(|cx| tunnel.poll(cx)).await });
            let result = talk(far_client, far_upstream).await;
            passing.await.expect("it ends");
            result
        })
    }

    #[test]
    fn bytes_pass_in_both_directions_up_to_the_end_of_both() {
        let sent: Vec<u8> = (0..100_000_u32).map(|index| index as u8).collect();
        let expected = sent.clone();
        let (up, down) = between(|client, upstream| async move {
            let exchange = |stream: DuplexStream, sent: Vec<u8>| async move {
                let (mut reader, mut writer) = tokio::io::split(stream);
                let sending = tokio::task::spawn_local(async move {
                    writer.write_all(&sent).await.expect("it is read");
                    writer.shutdown().await.expect("it is read");
                });
                let mut received = Vec::new();
                let read = reader.read_to_end(&mut received).await;
                read.expect("memory does not fail");
                sending.await.expect("it ends");
                received
            };
            let one = tokio::task::spawn_local(exchange(client, sent.clone()));
            let other = exchange(upstream, sent).await;
            (other, one.await.expect("it ends"))
        });
        assert!(up == expected && down == expected);
    }

    /// An upstream that says its last and hangs up, while the client goes on.
    #[test]
    fn last_words_arrive_from_a_side_that_can_be_told_nothing() {
        let received = between(|mut client, mut upstream| async move {
            client.write_all(b"more and more").await.expect("room");
            upstream.write_all(b"\x88\x02\x03\xe9").await.expect("room");
            drop(upstream);
            let mut received = Vec::new();
            client
                .read_to_end(&mut received)
                .await
                .expect("a clean end");
            received
        });
        assert_eq!(received, b"\x88\x02\x03\xe9");
    }

    fn frame(length: usize, is_masked: bool) -> Vec<u8> {
        let mask = if is_masked { 0x80 } else { 0 };
        let mut frame = vec![0x82];
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(length @ ..=125), _) => frame.push(mask | length),
            (_, Ok(length)) => {
                frame.push(mask | 0x7e);
                frame.extend(length.to_be_bytes());
            }
            _ => {
                frame.push(mask | 0x7f);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        if is_masked {
            frame.extend([1, 2, 3, 4]);
        }
        frame.resize(frame.len() + length, 0x88);
        frame
    }

    proptest! {
        #[test]
        fn the_end_of_a_frame_is_found_at_every_split(
            lengths in proptest::collection::vec((0_usize..300, any::<bool>()), 1..5),
            large in proptest::option::of(65_000_usize..70_000),
            piece in 1_usize..40,
        ) {
            let lengths = lengths.into_iter().chain(large.map(|length| (length, true)));
            let frames: Vec<_> = lengths.map(|(length, masked)| frame(length, masked)).collect();
            let stream = frames.concat();
            let mut seen = Frames::default();
            let mut ends = Vec::new();
            let mut at = 0;
            while at < stream.len() {
                // One byte first: between frames nothing passes that has to stop.
                at += seen.advance(&stream[at..=at], false);
                let end = stream.len().min(at + piece);
                at += seen.advance(&stream[at..end], true);
                if seen.is_between() {
                    ends.push(at);
                }
            }
            let expected: Vec<_> = frames
                .iter()
                .scan(0, |end, frame| {
                    *end += frame.len();
                    Some(*end)
                })
                .collect();
            ends.dedup();
            prop_assert_eq!(ends, expected);
        }
    }

    #[test]
    fn a_close_frame_is_masked_towards_a_server() {
        let plain = close_frame("gone", false);
        assert_eq!(plain, b"\x88\x06\x03\xe9gone");
        let masked = close_frame("gone", true);
        let payload: Vec<_> = masked[6..]
            .iter()
            .zip(masked[2..6].iter().cycle())
            .map(|(byte, mask)| byte ^ mask)
            .collect();
        assert_eq!(masked[..2], [0x88, 0x86]);
        assert_eq!(payload, b"\x03\xe9gone");
    }
}
