//! What goes over a WebSocket: messages, and why it was closed.
//!
//! Guarantee: a [`CloseFrame`] that came from a peer has a code that may be
//! sent (RFC 6455 §7.4) and a reason that is UTF-8.

use std::fmt;

use bytes::Bytes;

/// A whole message, reassembled and decompressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// UTF-8 text.
    Text(String),
    /// Bytes.
    Binary(Bytes),
}

impl Message {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Binary(bytes) => bytes.len(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text of a text message.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Binary(_) => None,
        }
    }

    /// The bytes, whichever kind it is.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Text(text) => text.into(),
            Self::Binary(bytes) => bytes,
        }
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Bytes> for Message {
    fn from(bytes: Bytes) -> Self {
        Self::Binary(bytes)
    }
}

impl From<Vec<u8>> for Message {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Binary(bytes.into())
    }
}

/// Why a WebSocket was closed (RFC 6455 §7.4 and the IANA registry).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose is fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server goes down, or the browser left the page.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// The kind of data is not accepted.
    pub const UNSUPPORTED: Self = Self(1003);
    /// No code was in the Close frame; never sent.
    pub const NO_STATUS: Self = Self(1005);
    /// The connection ended without a Close frame; never sent.
    pub const ABNORMAL: Self = Self(1006);
    /// Text that is not UTF-8, or data that cannot be decompressed.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// A rule of the application was broken.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// A message or frame is too big.
    pub const TOO_BIG: Self = Self(1009);
    /// The server failed.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// The server restarts.
    pub const SERVICE_RESTART: Self = Self(1012);
    /// The server is overloaded.
    pub const TRY_AGAIN_LATER: Self = Self(1013);

    /// A code that may be sent: 1000–1003, 1007–1014, 3000–4999.
    pub const fn new(code: u16) -> Option<Self> {
        match code {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Some(Self(code)),
            _ => None,
        }
    }

    /// The number.
    pub const fn as_u16(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Code and reason of a close.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloseFrame {
    /// Why.
    pub code: CloseCode,
    /// For logs; at most 123 bytes are sent.
    pub reason: String,
}

/// Longest reason: a control frame's 125 bytes less the code.
const MAX_REASON_BYTES: usize = 123;

impl CloseFrame {
    /// Payload of the Close frame; a reason that is too long is cut.
    pub(super) fn payload(code: CloseCode, reason: &str) -> Vec<u8> {
        let mut payload = Vec::with_capacity(2 + reason.len().min(MAX_REASON_BYTES));
        if CloseCode::new(code.0).is_some() {
            payload.extend_from_slice(&code.0.to_be_bytes());
            let end = reason.floor_char_boundary(MAX_REASON_BYTES);
            payload.extend_from_slice(&reason.as_bytes()[..end]);
        }
        payload
    }
}
