//! A WebSocket client that shows every byte: handshake of RFC 6455 §1.3,
//! masked frames out, a server's frames in, and the same over HTTP/2 (RFC 8441).

use std::io::{Read, Write};

use super::client::Client;
use super::hpack;
use super::http2::{Http2, Outcome, flag, frame as h2_frame, kind};

/// The key of RFC 6455 §1.3.
pub(crate) const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// What accepts [`KEY`].
pub(crate) const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// The handshake for `path`, with more header lines.
pub(crate) fn handshake(path: &str, more: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
         Connection: keep-alive, Upgrade\r\nSec-WebSocket-Key: {KEY}\r\n\
         Sec-WebSocket-Version: 13\r\n{more}\r\n"
    )
}

/// Makes a socket of a connection.
pub(crate) fn upgrade<S: Read + Write>(client: &mut Client<S>, path: &str) {
    let response = client.ask(handshake(path, ""));
    assert_eq!(response.status, 101, "{response:?}");
}

/// A masked frame of any length; the mask is zero, so that the bytes stay readable.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ ..=125), _) => frame.push(0x80 | length),
        (_, Ok(length)) => {
            frame.push(0xfe);
            frame.extend(length.to_be_bytes());
        }
        _ => {
            frame.push(0xff);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// Reads one frame of the server: first byte and payload.
pub(crate) fn read_frame<S: Read + Write>(client: &mut Client<S>) -> (u8, Vec<u8>) {
    let stream = client.stream();
    let mut head = [0; 2];
    stream.read_exact(&mut head).expect("a frame");
    let num_length_bytes = match head[1] {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let mut length = [0; 8];
    stream
        .read_exact(&mut length[8 - num_length_bytes..])
        .expect("a length");
    let length = match num_length_bytes {
        0 => u64::from(head[1]),
        _ => u64::from_be_bytes(length),
    };
    let mut payload = vec![0; usize::try_from(length).expect("a length of ours")];
    stream.read_exact(&mut payload).expect("a whole frame");
    (head[0], payload)
}

/// The code of the Close frame that comes next.
pub(crate) fn close_code<S: Read + Write>(client: &mut Client<S>) -> u16 {
    let (first, payload) = read_frame(client);
    assert_eq!(first, 0x88, "{payload:?}");
    u16::from_be_bytes([payload[0], payload[1]])
}

/// The header list of an extended CONNECT for `path`.
pub(crate) fn connect<'a>(path: &'a str, protocol: &'a str) -> [(&'a str, &'a str); 6] {
    [
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", path),
        ("sec-websocket-version", "13"),
    ]
}

/// Opens stream 1 with `headers`, sends a text and a Close, and reads to its end.
pub(crate) fn exchange_over_h2<S: Read + Write>(
    connection: &mut Http2<S>,
    headers: &[(&str, &str)],
    text: &[u8],
) -> Outcome {
    let data = [frame(0x81, text), frame(0x88, b"\x03\xe8")].concat();
    let block = hpack::encode(headers);
    let bytes = [
        h2_frame(kind::HEADERS, flag::END_HEADERS, 1, &block),
        h2_frame(kind::DATA, 0, 1, &data),
    ];
    connection.send(&bytes.concat()).expect("the server reads");
    connection.outcome(1)
}
