//! The bounds of one WebSocket: sizes, queues and times, each with its reason.

use std::time::Duration;

use crate::limits::Limits;

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
///
/// A route that chooses none has those of its server, `ws_*` in [`Limits`].
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
    /// Message of the application, in bytes; 16 MiB by default.
    ///
    /// One message is all that is buffered for a peer that does not read; a
    /// longer one is refused to the application.
    pub max_buffer_bytes: usize,
    /// Silence after which the peer is pinged; 20 s by default.
    ///
    /// Without it a silent peer is never found out.
    pub ping_interval: Option<Duration>,
    /// Time that a pinged peer has to send anything; 20 s by default.
    pub pong_timeout: Duration,
    /// Time without a message in either direction; none by default.
    ///
    /// Pings do not count: it ends the sockets that nobody uses, with 1001.
    pub idle_timeout: Option<Duration>,
    /// Time without progress of a write; 30 s by default, as HTTP's.
    pub write_timeout: Duration,
    /// Bytes a second that the peer takes of what waits for it, once it has been
    /// waited for as long as that; 240 by default, 0 for any.
    pub min_write_rate: u32,
    /// Time for the closing handshake; 5 s by default.
    pub close_timeout: Duration,
}

impl WebSocketLimits {
    /// The defaults above.
    pub const DEFAULT: Self = Self::of(&Limits::DEFAULT);

    /// Those of a server.
    pub(super) const fn of(limits: &Limits) -> Self {
        Self {
            max_message_bytes: limits.ws_max_message_bytes,
            max_frame_bytes: limits.ws_max_frame_bytes,
            max_buffer_bytes: limits.ws_buffer_bytes,
            ping_interval: limits.ws_ping_interval,
            pong_timeout: limits.ws_pong_timeout,
            idle_timeout: limits.ws_idle_timeout,
            write_timeout: limits.write_stall_timeout,
            min_write_rate: limits.min_write_rate,
            close_timeout: CLOSE_TIMEOUT,
        }
    }
}

impl Default for WebSocketLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
