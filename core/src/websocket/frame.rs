//! Frame headers: read byte by byte, checked as early as they can be; written
//! in one go. RFC 6455 §5.2.
//!
//! Guarantee: a header that is returned has a known opcode, a mask, the
//! shortest length encoding, and keeps the rules of control frames.

use super::message::CloseCode;
use crate::limits::Reject;

/// Longest header: two bytes, a 64-bit length, a mask.
const MAX_HEADER_BYTES: usize = 14;
/// Longest payload of a control frame (RFC 6455 §5.5).
pub(super) const MAX_CONTROL_BYTES: usize = 125;

const FIN: u8 = 0x80;
const RSV1: u8 = 0x40;
const RSV2_AND_3: u8 = 0x30;
const MASKED: u8 = 0x80;

/// A rule that the peer broke, and the code to close with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) code: CloseCode,
    pub(super) reason: &'static str,
    /// What it counts as.
    pub(super) reject: Reject,
}

impl Violation {
    pub(super) const fn new(code: CloseCode, reason: &'static str) -> Self {
        Self {
            code,
            reason,
            reject: Reject::WsProtocol,
        }
    }

    /// A size beyond a limit.
    pub(super) const fn too_big(reject: Reject, reason: &'static str) -> Self {
        Self {
            code: CloseCode::TOO_BIG,
            reason,
            reject,
        }
    }

    pub(super) const fn protocol(reason: &'static str) -> Self {
        Self::new(CloseCode::PROTOCOL_ERROR, reason)
    }
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    const fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }

    const fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xa,
        }
    }

    pub(super) const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// A checked header of a client's frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) is_final: bool,
    /// RSV1: the first frame of a compressed message (RFC 7692 §6).
    pub(super) is_compressed: bool,
    pub(super) opcode: Opcode,
    pub(super) length: u64,
    pub(super) mask: [u8; 4],
}

/// Collects the bytes of one header after another.
#[derive(Debug, Default)]
pub(super) struct HeaderReader {
    bytes: [u8; MAX_HEADER_BYTES],
    length: usize,
    /// Opcode of the frame, once its two first bytes have passed.
    opcode: Option<Opcode>,
}

impl HeaderReader {
    /// Whether no byte of a header has come.
    pub(super) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Takes bytes from `input`: how many, and the header once it is whole.
    ///
    /// `may_compress` says whether permessage-deflate was negotiated.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        may_compress: bool,
    ) -> Result<(usize, Option<Header>), Violation> {
        let mut used = 0;
        loop {
            let needed = match self.opcode {
                None => 2,
                Some(_) => 2 + self.num_length_bytes() + 4,
            };
            let taken = (needed - self.length).min(input.len() - used);
            self.bytes[self.length..][..taken].copy_from_slice(&input[used..][..taken]);
            self.length += taken;
            used += taken;
            if self.length < needed {
                return Ok((used, None));
            }
            match self.opcode {
                None => self.opcode = Some(self.check_first_bytes(may_compress)?),
                Some(opcode) => {
                    let header = self.finish(opcode)?;
                    *self = Self::default();
                    return Ok((used, Some(header)));
                }
            }
        }
    }

    const fn num_length_bytes(&self) -> usize {
        match self.bytes[1] & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        }
    }

    fn check_first_bytes(&self, may_compress: bool) -> Result<Opcode, Violation> {
        let [first, second, ..] = self.bytes;
        let opcode = Opcode::from_bits(first & 0x0f)
            .ok_or_else(|| Violation::protocol("the opcode is reserved"))?;
        let starts_message = matches!(opcode, Opcode::Text | Opcode::Binary);
        if first & RSV2_AND_3 != 0 || (first & RSV1 != 0 && !(may_compress && starts_message)) {
            return Err(Violation::protocol("a reserved bit is set"));
        }
        if opcode.is_control() {
            if first & FIN == 0 {
                return Err(Violation::protocol("a control frame is fragmented"));
            }
            if usize::from(second & !MASKED) > MAX_CONTROL_BYTES {
                return Err(Violation::protocol("a control frame is too long"));
            }
        }
        if second & MASKED == 0 {
            return Err(Violation::protocol("a frame of a client is not masked"));
        }
        Ok(opcode)
    }

    fn finish(&self, opcode: Opcode) -> Result<Header, Violation> {
        let field = &self.bytes[2..2 + self.num_length_bytes()];
        let (length, shortest) = match field.len() {
            0 => (u64::from(self.bytes[1] & !MASKED), 0),
            2 => (big_endian(field), 126),
            _ => (big_endian(field), 1 << 16),
        };
        if length < shortest || length >> 63 != 0 {
            return Err(Violation::protocol("a payload length is badly encoded"));
        }
        let mut mask = [0; 4];
        mask.copy_from_slice(&self.bytes[self.length - 4..self.length]);
        Ok(Header {
            is_final: self.bytes[0] & FIN != 0,
            is_compressed: self.bytes[0] & RSV1 != 0,
            opcode,
            length,
            mask,
        })
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Appends the header of a server's frame, which has no mask.
pub(super) fn write_header(
    output: &mut Vec<u8>,
    opcode: Opcode,
    is_final: bool,
    is_compressed: bool,
    length: usize,
) {
    let fin = if is_final { FIN } else { 0 };
    let rsv1 = if is_compressed { RSV1 } else { 0 };
    output.push(fin | rsv1 | opcode.bits());
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length @ ..=125), _) => output.push(length),
        (_, Ok(length)) => {
            output.push(126);
            output.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            output.push(127);
            output.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
}

/// Removes the mask from `bytes`, which begin at `offset` of their payload.
pub(super) fn unmask(bytes: &mut [u8], mask: [u8; 4], offset: usize) {
    let mut turned = mask;
    turned.rotate_left(offset % 4);
    let [a, b, c, d] = turned;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(turned.into_iter().cycle()) {
        *byte ^= mask;
    }
}
