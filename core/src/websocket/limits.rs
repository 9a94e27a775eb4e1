//! The bounds of one WebSocket: sizes, queues and times, each with its reason.

use std::time::Duration;

/// Message after decompression, in bytes; uvicorn's and Autobahn's largest.
pub(super) const MAX_MESSAGE_BYTES: usize = 16 * 1024 * 1024;
/// Payload of one frame as sent, in bytes: a message may come in one frame.
pub(super) const MAX_FRAME_BYTES: usize = MAX_MESSAGE_BYTES;
/// Silence after which a ping asks whether the peer is there; below the 60 s
/// after which proxies drop a quiet connection.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Time that a pinged peer has to send anything at all; uvicorn's.
pub(super) const PONG_TIMEOUT: Duration = Duration::from_secs(20);
/// Time without progress of a write that the peer does not take; as HTTP's.
pub(super) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for the peer's half of the closing handshake, and for it to hang up.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes read from a connection at once, through one buffer of the thread: four
/// TLS records, so that a message of 16 KiB with its header is one read.
pub(super) const SCRATCH_BYTES: usize = 64 * 1024;
/// Control frames queued for a peer that does not read; beyond it only the
/// latest pong is kept, which is all that RFC 6455 §5.5.3 asks for.
pub(super) const MAX_QUEUED_CONTROL_BYTES: usize = 4 * 1024;
/// Payloads up to this size share a buffer with their frame header; writing
/// a vector costs more than copying them.
pub(super) const MAX_COPIED_PAYLOAD_BYTES: usize = 4 * 1024;
/// Write buffer that an idle connection may keep.
pub(super) const MAX_KEPT_BUFFER_BYTES: usize = 1024;
/// First allocation for a message, however long its frame says that it is.
pub(super) const FIRST_ALLOCATION_BYTES: usize = 64 * 1024;
/// Bytes read and thrown away after a failure, so that the Close frame is not
/// overtaken by a reset.
pub(super) const MAX_LINGER_BYTES: u64 = 256 * 1024;
/// Offers of an extension that are looked at; browsers send one or two.
pub(super) const MAX_EXTENSION_OFFERS: usize = 16;
/// Subprotocols that a client may offer; real ones offer one or two.
pub(super) const MAX_PROTOCOL_OFFERS: usize = 32;

/// Bounds of one WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebSocketLimits {
    /// Message after decompression, in bytes; 16 MiB by default.
    ///
    /// A longer one ends the socket with 1009.
    pub max_message_bytes: usize,
    /// Payload of one frame as sent, in bytes; 16 MiB by default.
    ///
    /// A longer one ends the socket with 1009.
    pub max_frame_bytes: usize,
    /// Silence after which the peer is pinged; 20 s by default.
    ///
    /// Without it a silent peer is never found out.
    pub ping_interval: Option<Duration>,
    /// Time that a pinged peer has to send anything; 20 s by default.
    pub pong_timeout: Duration,
    /// Time without progress of a write; 30 s by default.
    pub write_timeout: Duration,
    /// Time for the closing handshake; 5 s by default.
    pub close_timeout: Duration,
}

impl WebSocketLimits {
    /// The defaults above.
    pub const DEFAULT: Self = Self {
        max_message_bytes: MAX_MESSAGE_BYTES,
        max_frame_bytes: MAX_FRAME_BYTES,
        ping_interval: Some(PING_INTERVAL),
        pong_timeout: PONG_TIMEOUT,
        write_timeout: WRITE_TIMEOUT,
        close_timeout: CLOSE_TIMEOUT,
    };
}

impl Default for WebSocketLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
