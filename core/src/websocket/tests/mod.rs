//! WebSocket tests: a client's half of the codec, written for the tests alone.

mod decoding;
mod handshaking;
mod round_trips;
mod sessions;

use super::deflate::Agreement;
use super::frame::unmask;

/// Any mask would do; this one has four different bytes.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

const TAKEOVER: Agreement = Agreement {
    server_window_bits: 15,
    client_window_bits: 15,
    server_takeover: true,
    client_takeover: true,
};

/// A masked frame whose first byte is `first`.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ ..=125 => bytes.push(0x80 | length as u8),
        length @ ..=0xffff => {
            bytes.push(0x80 | 0x7e);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 0x7f);
            bytes.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&MASK);
    let start = bytes.len();
    bytes.extend_from_slice(payload);
    unmask(&mut bytes[start..], MASK, 0);
    bytes
}

fn text(payload: &str) -> Vec<u8> {
    frame(0x81, payload.as_bytes())
}

fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    frame(0x88, &[&code.to_be_bytes(), reason].concat())
}

/// A frame of the server: first byte and payload.
type ServerFrame = (u8, Vec<u8>);

/// Splits what a server sent; a masked or incomplete frame panics.
fn server_frames(mut bytes: &[u8]) -> Vec<ServerFrame> {
    let mut frames = Vec::new();
    while let [first, second, rest @ ..] = bytes {
        assert!(second & 0x80 == 0, "a server's frame is not masked");
        let (num_length_bytes, shortest) = match second {
            126 => (2, 126),
            127 => (8, 0x1_0000),
            _ => (0, 0),
        };
        let (field, rest) = rest.split_at(num_length_bytes);
        let length = match num_length_bytes {
            0 => u64::from(*second),
            _ => field
                .iter()
                .fold(0, |value, byte| value << 8 | u64::from(*byte)),
        };
        assert!(length >= shortest, "the shortest encoding is used");
        let (payload, rest) = rest.split_at(length as usize);
        frames.push((*first, payload.to_vec()));
        bytes = rest;
    }
    assert!(bytes.is_empty(), "a frame is incomplete");
    frames
}
