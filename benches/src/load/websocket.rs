//! The client's side of a WebSocket whose server sends every message back (RFC 6455).
//!
//! It does no input or output, so any split of the stream gives the same result. It guarantees
//! that a message counts as echoed only if opcode and every byte of the payload are those that
//! were sent, and that a frame a client must not accept is an error.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

use super::outcome::Outcome;
use super::response::Fed;
use crate::stats::SplitMix64;

/// Appended to the key before it is hashed (RFC 6455 §1.3).
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Longest answer to the handshake, in bytes; real ones have about 200.
const MAX_HEAD_BYTES: usize = 16 * 1024;

const MAX_HEADERS: usize = 64;

/// Longest payload of a control frame (RFC 6455 §5.5).
const MAX_CONTROL_BYTES: u64 = 125;

/// Bytes at the start of each message that tell it from every other one.
pub(super) const NUMBER_BYTES: usize = 16;

const FINAL: u8 = 0x80;
const RESERVED: u8 = 0x70;
const MASKED: u8 = 0x80;
/// Lengths of 126 and 127 say that the length stands in the 2 or 8 bytes behind.
const LENGTH_IN_2_BYTES: u8 = 0x7e;
const LENGTH_IN_8_BYTES: u8 = 0x7f;
const CONTINUATION: u8 = 0x0;
const TEXT: u8 = 0x1;
const BINARY: u8 = 0x2;
const CLOSE: u8 = 0x8;
const PING: u8 = 0x9;
const PONG: u8 = 0xa;

/// A WebSocket on which each message must come back as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSocketEcho {
    /// Whether messages are text; else they are binary.
    pub is_text: bool,
    /// Payload of each message.
    pub bytes: usize,
    /// `Sec-WebSocket-Key`, drawn once for all connections of the plan.
    key: String,
    /// The only right answer to it.
    accept: String,
}

impl WebSocketEcho {
    /// Messages of `bytes`, at least 16, in which each has a number of its own.
    pub fn new(is_text: bool, bytes: usize) -> Self {
        let key = STANDARD.encode(fastrand::u128(..).to_ne_bytes());
        let digest = Sha1::new().chain_update(&key).chain_update(KEY_SUFFIX);
        Self {
            is_text,
            bytes,
            accept: STANDARD.encode(digest.finalize()),
            key,
        }
    }

    /// The header fields that make a GET the opening handshake; no extension is offered.
    pub fn headers(&self) -> Vec<(String, String)> {
        [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", &self.key),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }
}

/// One connection's messages and the echoes of them.
#[derive(Debug)]
pub(super) struct EchoStream {
    accept: String,
    opcode: u8,
    /// Start of an answer to the handshake that did not arrive in one piece.
    partial_head: Vec<u8>,
    is_open: bool,
    next_number: u64,
    /// The message in flight, as it must come back.
    payload: Vec<u8>,
    /// Frames on their way out, masked.
    outgoing: Vec<u8>,
    reader: FrameReader,
}

impl EchoStream {
    /// `index` keeps the messages of two connections apart.
    pub(super) fn new(plan: &WebSocketEcho, index: usize) -> Self {
        Self {
            accept: plan.accept.clone(),
            opcode: if plan.is_text { TEXT } else { BINARY },
            partial_head: Vec::new(),
            is_open: false,
            next_number: (index as u64) << 32,
            payload: filler(plan.is_text, plan.bytes),
            outgoing: Vec::new(),
            reader: FrameReader::default(),
        }
    }

    /// Forgets the connection before this one.
    pub(super) fn reset(&mut self) {
        self.partial_head.clear();
        self.is_open = false;
        self.outgoing.clear();
        self.reader = FrameReader::default();
    }

    /// Queues the next message behind what is queued and not `written`.
    pub(super) fn begin_message(&mut self, written: usize) {
        self.outgoing.drain(..written);
        let number = format!("{:016x}", self.next_number);
        self.next_number += 1;
        self.payload[..NUMBER_BYTES].copy_from_slice(number.as_bytes());
        self.reader.expect();
        let mask = fastrand::u32(..).to_ne_bytes();
        write_frame(&mut self.outgoing, self.opcode, &self.payload, mask);
    }

    /// The bytes to write.
    pub(super) fn outgoing(&self) -> &[u8] {
        &self.outgoing
    }

    /// The message in flight.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Whether what came back is what was sent.
    pub(super) const fn is_equal(&self) -> bool {
        self.reader.is_equal
    }

    /// Takes bytes of the server: `Complete` at the end of the handshake, and at that of an echo.
    ///
    /// Behind it only control frames may follow, which are taken too; of anything else the
    /// first byte is not consumed.
    pub(super) fn feed(&mut self, input: &[u8]) -> Result<Fed, Outcome> {
        if self.is_open {
            return self.feed_frames(input, false);
        }
        let Some(used) = self.feed_head(input)? else {
            return Ok(Fed::NeedMore);
        };
        self.is_open = true;
        Ok(match self.feed_frames(&input[used..], true)? {
            Fed::Complete { consumed } => Fed::Complete {
                consumed: used + consumed,
            },
            Fed::NeedMore => Fed::Complete {
                consumed: input.len(),
            },
        })
    }

    /// `is_done`: no message is awaited, so a data frame is one too many.
    fn feed_frames(&mut self, input: &[u8], mut is_done: bool) -> Result<Fed, Outcome> {
        let mut used = 0;
        loop {
            let (taken, event) =
                self.reader
                    .feed(&input[used..], self.opcode, &self.payload, is_done)?;
            used += taken;
            match event {
                None if is_done => return Ok(Fed::Complete { consumed: used }),
                None => return Ok(Fed::NeedMore),
                Some(FrameEvent::Echo) => is_done = true,
                Some(FrameEvent::Ping) => {
                    let mask = fastrand::u32(..).to_ne_bytes();
                    write_frame(&mut self.outgoing, PONG, &self.reader.control, mask);
                }
                Some(FrameEvent::Other) => {}
            }
        }
    }

    /// Checks the answer to the handshake; the bytes of `input` used when it is whole.
    fn feed_head(&mut self, input: &[u8]) -> Result<Option<usize>, Outcome> {
        let stored = self.partial_head.len();
        self.partial_head.extend_from_slice(input);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let used = match response.parse(&self.partial_head) {
            Ok(httparse::Status::Complete(used)) => used,
            Ok(httparse::Status::Partial) if self.partial_head.len() <= MAX_HEAD_BYTES => {
                return Ok(None);
            }
            Ok(httparse::Status::Partial) | Err(_) => return Err(Outcome::ParseError),
        };
        let is_only = |name: &str, value: &str, sensitive: bool| {
            let mut values = (response.headers.iter())
                .filter(|header| header.name.eq_ignore_ascii_case(name))
                .map(|header| header.value);
            let is_equal = |found: &[u8]| {
                found == value.as_bytes()
                    || !sensitive && found.eq_ignore_ascii_case(value.as_bytes())
            };
            values.next().is_some_and(is_equal) && values.next().is_none()
        };
        let offered_nothing = !(response.headers.iter())
            .any(|header| (header.name).eq_ignore_ascii_case("sec-websocket-extensions"));
        let is_accepted = response.code == Some(101)
            && is_only("upgrade", "websocket", false)
            && is_only("connection", "upgrade", false)
            && is_only("sec-websocket-accept", &self.accept, true)
            && offered_nothing;
        if !is_accepted {
            return Err(Outcome::ExchangeRefused);
        }
        self.partial_head.clear();
        Ok(Some(used - stored))
    }
}

/// What every message of a plan has behind its number.
fn filler(is_text: bool, bytes: usize) -> Vec<u8> {
    let mut random = SplitMix64(bytes as u64);
    (0..bytes.max(NUMBER_BYTES))
        .map(|_| match random.next() {
            value if is_text => b' ' + (value % 95) as u8,
            value => value as u8,
        })
        .collect()
}

/// Appends a masked frame (RFC 6455 §5.2, §5.3).
fn write_frame(out: &mut Vec<u8>, opcode: u8, payload: &[u8], mask: [u8; 4]) {
    out.push(FINAL | opcode);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ ..=125), _) => out.push(MASKED | length),
        (_, Ok(length)) => {
            out.push(MASKED | LENGTH_IN_2_BYTES);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(MASKED | LENGTH_IN_8_BYTES);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(&mask);
    let start = out.len();
    out.extend_from_slice(payload);
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = out[start..].as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.into_iter().cycle()) {
        *byte ^= mask;
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FrameEvent {
    /// The last byte of a message.
    Echo,
    /// A ping, with its payload in `control`.
    Ping,
    Other,
}

/// Reads frames and compares messages without keeping them.
#[derive(Debug, Default)]
struct FrameReader {
    header: [u8; 10],
    header_length: usize,
    frame: Option<Frame>,
    /// Whether a message has begun and not ended.
    is_amid_message: bool,
    /// Bytes of the message so far.
    length: usize,
    is_equal: bool,
    control: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Frame {
    opcode: u8,
    is_final: bool,
    remaining: u64,
}

impl FrameReader {
    /// Begins to compare with a new message.
    fn expect(&mut self) {
        self.length = 0;
        self.is_equal = true;
    }

    /// Takes bytes up to the next event: how many, and which.
    ///
    /// Without an event all is taken, unless `only_control` and a data frame begins.
    fn feed(
        &mut self,
        input: &[u8],
        opcode: u8,
        expected: &[u8],
        only_control: bool,
    ) -> Result<(usize, Option<FrameEvent>), Outcome> {
        let mut used = 0;
        loop {
            let Some(frame) = &mut self.frame else {
                if only_control
                    && self.header_length == 0
                    && input.get(used).is_some_and(|first| first & 0x08 == 0)
                {
                    return Ok((used, None));
                }
                used += self.feed_header(&input[used..])?;
                if self.frame.is_none() {
                    return Ok((used, None));
                }
                continue;
            };
            let taken = usize::try_from(frame.remaining)
                .map_or(input.len() - used, |rest| rest.min(input.len() - used));
            let part = &input[used..used + taken];
            used += taken;
            frame.remaining -= taken as u64;
            let frame = *frame;
            if frame.opcode & 0x08 == 0 {
                let is_right = frame.opcode == CONTINUATION || frame.opcode == opcode;
                let window = expected.get(self.length..self.length + taken);
                self.is_equal &= is_right && window == Some(part);
                self.length += taken;
            } else {
                self.control.extend_from_slice(part);
            }
            if frame.remaining > 0 {
                return Ok((used, None));
            }
            self.frame = None;
            match (frame.opcode, frame.is_final) {
                // Whoever closes amid an exchange does not answer it.
                (CLOSE, _) => return Err(Outcome::EofEarly),
                (PING, _) => return Ok((used, Some(FrameEvent::Ping))),
                (PONG, _) => return Ok((used, Some(FrameEvent::Other))),
                (_, false) => {}
                (_, true) => {
                    self.is_amid_message = false;
                    self.is_equal &= self.length == expected.len();
                    return Ok((used, Some(FrameEvent::Echo)));
                }
            }
        }
    }

    /// Takes bytes of a header, and begins the frame once it is whole.
    fn feed_header(&mut self, input: &[u8]) -> Result<usize, Outcome> {
        let mut used = 0;
        loop {
            let needed = match (self.header_length, self.header[1] & !MASKED) {
                (0 | 1, _) => 2,
                (_, LENGTH_IN_2_BYTES) => 4,
                (_, LENGTH_IN_8_BYTES) => 10,
                _ => 2,
            };
            let taken = (needed - self.header_length).min(input.len() - used);
            self.header[self.header_length..][..taken].copy_from_slice(&input[used..][..taken]);
            self.header_length += taken;
            used += taken;
            if self.header_length < needed {
                return Ok(used);
            }
            if needed > 2 || self.header[1] & !MASKED < LENGTH_IN_2_BYTES {
                self.begin_frame()?;
                return Ok(used);
            }
        }
    }

    fn begin_frame(&mut self) -> Result<(), Outcome> {
        let [first, second, ..] = self.header;
        let short = u64::from(second & !MASKED);
        let field = &self.header[2..self.header_length];
        let long = field
            .iter()
            .fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
        let (length, shortest) = match field.len() {
            0 => (short, 0),
            2 => (long, 126),
            _ => (long, 1 << 16),
        };
        let opcode = first & 0x0f;
        let is_final = first & FINAL != 0;
        let is_allowed = match opcode {
            CONTINUATION => self.is_amid_message,
            TEXT | BINARY => !self.is_amid_message,
            CLOSE | PING | PONG => is_final && length <= MAX_CONTROL_BYTES,
            _ => false,
        };
        if !is_allowed
            || first & RESERVED != 0
            || second & MASKED != 0
            || length < shortest
            || length >> 63 != 0
        {
            return Err(Outcome::ParseError);
        }
        self.header_length = 0;
        if opcode & 0x08 == 0 {
            self.is_amid_message = true;
        } else {
            self.control.clear();
        }
        self.frame = Some(Frame {
            opcode,
            is_final,
            remaining: length,
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A server's frame: no mask.
    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![first];
        match payload.len() {
            length @ ..=125 => bytes.push(length as u8),
            length @ ..=0xffff => {
                bytes.push(126);
                bytes.extend((length as u16).to_be_bytes());
            }
            length => {
                bytes.push(127);
                bytes.extend((length as u64).to_be_bytes());
            }
        }
        bytes.extend_from_slice(payload);
        bytes
    }

    /// A stream behind its handshake, with a text message of 24 bytes in flight.
    fn open() -> EchoStream {
        let plan = WebSocketEcho::new(true, 24);
        let mut stream = EchoStream::new(&plan, 0);
        let accept = &plan.accept;
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        let consumed = head.len();
        assert_eq!(stream.feed(head.as_bytes()), Ok(Fed::Complete { consumed }));
        stream.begin_message(0);
        stream
    }

    /// How a stream ends: whether its message is echoed and how much is left, or why not.
    fn feed(pieces: &[&[u8]]) -> Result<Option<(bool, usize)>, Outcome> {
        let mut stream = open();
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        for piece in pieces {
            match stream.feed(piece)? {
                Fed::NeedMore => left -= piece.len(),
                Fed::Complete { consumed } => {
                    return Ok(Some((stream.is_equal(), left - consumed)));
                }
            }
        }
        Ok(None)
    }

    /// The same end wherever the stream is split, also into single bytes.
    ///
    /// What follows an echo may come in a later piece, and is then left.
    #[track_caller]
    fn check(stream: &[u8], expected: Result<Option<bool>, Outcome>) {
        let ends = |pieces: &[&[u8]]| feed(pieces).map(|end| end.map(|(is_equal, _)| is_equal));
        for split in 0..=stream.len() {
            let found = ends(&[&stream[..split], &stream[split..]]);
            assert_eq!(found, expected, "split at {split}");
        }
        let single: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(ends(&single), expected, "byte by byte");
    }

    fn sent() -> Vec<u8> {
        open().payload
    }

    #[test]
    fn an_echo_is_equal_however_it_is_framed_and_split() {
        let sent = sent();
        check(&frame(FINAL | TEXT, &sent), Ok(Some(true)));
        for cut in 0..=sent.len() {
            let parts = [
                frame(TEXT, &sent[..cut]),
                frame(FINAL | PING, b"?"),
                frame(CONTINUATION, b""),
                frame(FINAL | CONTINUATION, &sent[cut..]),
            ];
            check(&parts.concat(), Ok(Some(true)));
        }
        check(&frame(TEXT, &sent), Ok(None));
        check(&frame(FINAL | TEXT, &sent)[..20], Ok(None));
    }

    #[test]
    fn what_differs_from_the_message_is_no_echo() {
        let sent = sent();
        for at in 0..sent.len() {
            let mut other = sent.clone();
            other[at] ^= 1;
            check(&frame(FINAL | TEXT, &other), Ok(Some(false)));
        }
        check(&frame(FINAL | BINARY, &sent), Ok(Some(false)));
        check(&frame(FINAL | TEXT, &sent[1..]), Ok(Some(false)));
        check(&frame(FINAL | TEXT, &sent[..23]), Ok(Some(false)));
        check(&frame(FINAL | TEXT, b""), Ok(Some(false)));
        let long = [&sent[..], b"x"].concat();
        check(&frame(FINAL | TEXT, &long), Ok(Some(false)));
        // The message before this one.
        let mut stream = open();
        stream.begin_message(0);
        stream.feed(&frame(FINAL | TEXT, &sent)).unwrap();
        assert!(!stream.is_equal());
    }

    #[test]
    fn frames_that_a_client_must_not_accept_are_errors() {
        let masked = [&[FINAL | TEXT, MASKED | 1][..], b"mask", b"x"].concat();
        let long_control = frame(FINAL | PING, &[0; 126]);
        for stream in [
            &masked[..],
            &frame(FINAL | 0x40 | TEXT, b"x"),
            &frame(FINAL | 0x20 | TEXT, b"x"),
            &frame(FINAL | 0x10 | TEXT, b"x"),
            &frame(FINAL | 0x3, b"x"),
            &frame(FINAL | 0xb, b"x"),
            &frame(FINAL | CONTINUATION, b"x"),
            &[frame(TEXT, b"x"), frame(FINAL | TEXT, b"x")].concat(),
            &frame(PING, b"x"),
            &long_control,
            &[FINAL | TEXT, 126, 0, 24],
            &[FINAL | TEXT, 127, 0, 0, 0, 0, 0, 0, 0xff, 0xff],
            &[FINAL | TEXT, 127, 0x80, 0, 0, 0, 0, 1, 0, 0],
        ] {
            check(stream, Err(Outcome::ParseError));
        }
        check(&frame(FINAL | CLOSE, &[3, 0xe8]), Err(Outcome::EofEarly));
    }

    #[test]
    fn a_second_message_is_left_and_a_close_behind_one_is_seen() {
        let echo = frame(FINAL | TEXT, &sent());
        let twice = [&echo[..], &echo].concat();
        assert_eq!(feed(&[&twice]), Ok(Some((true, echo.len()))));
        let pinged = [&echo[..], &frame(FINAL | PING, b"?")].concat();
        assert_eq!(feed(&[&pinged]), Ok(Some((true, 0))));
        let closed = [&echo[..], &frame(FINAL | CLOSE, b"")].concat();
        assert_eq!(feed(&[&closed]), Err(Outcome::EofEarly));
    }

    #[test]
    fn a_ping_is_answered_with_its_payload() {
        let mut stream = open();
        let written = stream.outgoing().len();
        stream.feed(&frame(FINAL | PING, b"are you there")).unwrap();
        let [
            first,
            second,
            mask @ ..,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
        ] = &stream.outgoing()[written..]
        else {
            panic!("no pong of 13 bytes");
        };
        assert_eq!((*first, *second), (FINAL | PONG, MASKED | 0x0d));
        let masked = &stream.outgoing()[stream.outgoing().len() - 13..];
        let plain: Vec<u8> = masked
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask)
            .collect();
        assert_eq!(plain, b"are you there");
        // It goes out before the next message.
        let pong = stream.outgoing()[written..].to_vec();
        stream.begin_message(written);
        assert!(stream.outgoing().starts_with(&pong));
    }

    #[test]
    fn only_the_right_answer_opens_the_socket() {
        let plan = WebSocketEcho::new(false, 16);
        let good = format!(
            "HTTP/1.1 101 OK\r\nupgrade: WebSocket\r\nconnection: upgrade\r\n\
             sec-websocket-accept: {}\r\n\r\n",
            plan.accept
        );
        for (from, to, expected) in [
            ("101", "101", None),
            ("101", "200", Some(Outcome::ExchangeRefused)),
            ("WebSocket", "h2c", Some(Outcome::ExchangeRefused)),
            ("upgrade\r\ns", "close\r\ns", Some(Outcome::ExchangeRefused)),
            ("accept: ", "accept: x", Some(Outcome::ExchangeRefused)),
            (
                "upgrade: ",
                "sec-websocket-extensions: permessage-deflate\r\nupgrade: ",
                Some(Outcome::ExchangeRefused),
            ),
            ("HTTP/1.1", "SSH-2.0", Some(Outcome::ParseError)),
        ] {
            assert!(good.contains(from), "{from}");
            let answer = good.replacen(from, to, 1);
            for split in 0..answer.len() {
                let mut stream = EchoStream::new(&plan, 0);
                let (one, two) = answer.as_bytes().split_at(split);
                let found = stream.feed(one).and_then(|_| stream.feed(two));
                let consumed = two.len();
                match expected {
                    None => assert_eq!(found, Ok(Fed::Complete { consumed }), "{split}"),
                    Some(outcome) => assert_eq!(found, Err(outcome), "{to}"),
                }
            }
        }
    }

    #[test]
    fn the_accept_key_is_the_one_of_the_rfc() {
        let digest = Sha1::new()
            .chain_update("dGhlIHNhbXBsZSBub25jZQ==")
            .chain_update(KEY_SUFFIX);
        let accept = STANDARD.encode(digest.finalize());
        assert_eq!(accept, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn messages_of_all_connections_differ() {
        let plan = WebSocketEcho::new(true, 64);
        let mut seen = std::collections::BTreeSet::new();
        for index in 0..3 {
            let mut stream = EchoStream::new(&plan, index);
            for _ in 0..3 {
                stream.begin_message(stream.outgoing().len());
                assert_eq!(stream.payload().len(), 64);
                assert!(std::str::from_utf8(stream.payload()).is_ok());
                assert!(seen.insert(stream.payload().to_vec()));
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_unmasks_to_the_payload(
            payload in proptest::collection::vec(any::<u8>(), 0..300),
            mask: [u8; 4],
        ) {
            let mut bytes = Vec::new();
            write_frame(&mut bytes, BINARY, &payload, mask);
            let header = if payload.len() < 126 { 2 } else { 4 };
            prop_assert_eq!(bytes[0], FINAL | BINARY);
            prop_assert_eq!(bytes[1] & MASKED, MASKED);
            prop_assert_eq!(&bytes[header..header + 4], &mask);
            let plain: Vec<u8> = bytes[header + 4..]
                .iter()
                .zip(mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask)
                .collect();
            prop_assert_eq!(plain, payload);
        }

        #[test]
        fn long_echoes_are_compared_at_any_split(
            bytes in 16..70_000_usize,
            at in any::<prop::sample::Index>(),
            split in any::<prop::sample::Index>(),
            is_changed: bool,
        ) {
            let plan = WebSocketEcho::new(false, bytes);
            let mut stream = EchoStream::new(&plan, 0);
            stream.is_open = true;
            stream.begin_message(0);
            let mut echo = stream.payload().to_vec();
            if is_changed {
                echo[at.index(bytes)] ^= 0x80;
            }
            let echo = frame(FINAL | BINARY, &echo);
            let (one, two) = echo.split_at(split.index(echo.len()));
            prop_assert_eq!(stream.feed(one), Ok(Fed::NeedMore));
            prop_assert_eq!(stream.feed(two), Ok(Fed::Complete { consumed: two.len() }));
            prop_assert_eq!(stream.is_equal(), !is_changed);
        }
    }
}
