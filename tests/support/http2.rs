//! HTTP/2 by hand (RFC 9113): frames go out exactly as a test writes them.
//!
//! Reading keeps to the protocol: SETTINGS and PING are acknowledged, so that
//! a peer who ends the connection does so for what the test sent.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::client::{Client, End};
use super::hpack::{self, Decoder, Headers};

/// The client's connection preface.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a peer may send on a stream, and on all of a connection, before it is
/// told more (RFC 9113 §6.9.2).
pub(crate) const INITIAL_WINDOW_BYTES: usize = 65_535;

/// Frame types.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const PRIORITY: u8 = 2;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const WINDOW_UPDATE: u8 = 8;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Frame flags.
pub(crate) mod flag {
    pub(crate) const END_STREAM: u8 = 1;
    pub(crate) const ACK: u8 = 1;
    pub(crate) const END_HEADERS: u8 = 4;
    pub(crate) const PADDED: u8 = 8;
    pub(crate) const PRIORITY: u8 = 32;
}

/// A frame as it came.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Response {
        status: u16,
        headers: Headers,
        body: Vec<u8>,
    },
    Reset(u32),
    GoAway(u32),
    Ended(End),
}

/// One connection after its preface.
pub(crate) struct Http2<S = TcpStream> {
    stream: S,
    buffer: Vec<u8>,
    decoder: Decoder,
    blocks: BTreeMap<u32, Vec<u8>>,
    answers: BTreeMap<u32, (Headers, Vec<u8>)>,
    outcomes: BTreeMap<u32, Outcome>,
    go_away: Option<u32>,
    /// Last stream that the peer's GOAWAY says it looked at.
    pub(crate) last_stream: u32,
}

impl Http2 {
    /// Cleartext with prior knowledge.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let mut client = Client::connect(address);
        let stream = client
            .stream()
            .try_clone()
            .expect("a socket can be duplicated");
        Self::over(stream)
    }
}

impl<S: Read + Write> Http2<S> {
    /// Sends preface and SETTINGS on a fresh connection.
    pub(crate) fn over(stream: S) -> Self {
        let mut connection = Self::after_preface(stream);
        let start = [PREFACE, &frame(kind::SETTINGS, 0, 0, &[])].concat();
        connection
            .send(&start)
            .expect("a fresh connection takes the preface");
        connection
    }

    /// A connection whose preface the test has sent itself.
    pub(crate) fn after_preface(stream: S) -> Self {
        Self {
            stream,
            buffer: Vec::new(),
            decoder: Decoder::default(),
            blocks: BTreeMap::new(),
            answers: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            go_away: None,
            last_stream: 0,
        }
    }

    /// The connection itself.
    pub(crate) const fn stream(&mut self) -> &mut S {
        &mut self.stream
    }

    /// Sends bytes, or says why not.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)?;
        self.stream.flush()
    }

    /// Sends a request and waits for what becomes of it.
    pub(crate) fn ask(&mut self, stream: u32, headers: &[(&str, &str)], body: &[u8]) -> Outcome {
        // A server that hung up is seen when reading.
        let _hung_up = self.send(&request(stream, headers, body));
        self.outcome(stream)
    }

    /// `GET path`, its outcome.
    pub(crate) fn get(&mut self, stream: u32, path: &str) -> Outcome {
        self.ask(stream, &get(path), b"")
    }

    /// Waits for what becomes of the request on `stream`.
    pub(crate) fn outcome(&mut self, stream: u32) -> Outcome {
        loop {
            if let Some(outcome) = self.outcomes.remove(&stream) {
                return outcome;
            }
            if let Err(end) = self.read() {
                return self.ended(end);
            }
        }
    }

    /// Reads and answers one frame.
    pub(crate) fn read(&mut self) -> Result<Frame, End> {
        let frame = self.read_frame()?;
        self.take(&frame);
        Ok(frame)
    }

    fn ended(&self, end: End) -> Outcome {
        self.go_away.map_or(Outcome::Ended(end), Outcome::GoAway)
    }

    /// Reads one window more of the answer on `stream`, its outcome once known.
    ///
    /// Opens the stream's window again first, if a part has been read before;
    /// the connection's has to be wide enough.
    pub(crate) fn read_window(&mut self, stream: u32) -> Option<Outcome> {
        let start = self.num_read(stream);
        if start > 0 {
            self.widen_window(stream, INITIAL_WINDOW_BYTES as u32);
        }
        while self.num_read(stream) < start + INITIAL_WINDOW_BYTES {
            if let Some(outcome) = self.outcomes.remove(&stream) {
                return Some(outcome);
            }
            if let Err(end) = self.read() {
                return Some(self.ended(end));
            }
        }
        self.outcomes.remove(&stream)
    }

    /// Lets the server send so many bytes more on `stream`, or on all for 0.
    pub(crate) fn widen_window(&mut self, stream: u32, num_bytes: u32) {
        let update = frame(kind::WINDOW_UPDATE, 0, stream, &num_bytes.to_be_bytes());
        // A server that hung up is seen when reading.
        let _hung_up = self.send(&update);
    }

    fn num_read(&self, stream: u32) -> usize {
        self.answers.get(&stream).map_or(0, |(_, body)| body.len())
    }

    /// Reads until the connection ends; the error code of a GOAWAY on the way.
    pub(crate) fn read_to_end(&mut self) -> (Option<u32>, End) {
        loop {
            if let Err(end) = self.read() {
                return (self.go_away, end);
            }
        }
    }

    /// Waits for a GOAWAY; its error code.
    pub(crate) fn wait_for_go_away(&mut self) -> Result<u32, End> {
        loop {
            if let Some(code) = self.go_away {
                return Ok(code);
            }
            self.read()?;
        }
    }

    fn take(&mut self, frame: &Frame) {
        let (flags, stream, payload) = (frame.flags, frame.stream, &frame.payload);
        match frame.kind {
            kind::SETTINGS if flags & flag::ACK == 0 => self.reply(kind::SETTINGS, &[]),
            kind::PING if flags & flag::ACK == 0 => self.reply(kind::PING, payload),
            kind::GOAWAY => {
                self.go_away = Some(number(&payload[4..8]));
                self.last_stream = number(&payload[..4]) & 0x7fff_ffff;
            }
            kind::RST_STREAM => {
                let reset = Outcome::Reset(number(payload));
                self.outcomes.entry(stream).or_insert(reset);
            }
            kind::HEADERS | kind::CONTINUATION => self.take_block(flags, stream, payload),
            kind::DATA => {
                let (_, body) = self.answers.entry(stream).or_default();
                body.extend(payload);
                self.finish(flags, stream);
            }
            _ => {}
        }
    }

    fn take_block(&mut self, flags: u8, stream: u32, payload: &[u8]) {
        let block = self.blocks.entry(stream).or_default();
        block.extend(payload);
        if flags & flag::END_HEADERS != 0 {
            let block = std::mem::take(block);
            let headers = self.decoder.decode(&block).expect("a valid header block");
            self.answers.entry(stream).or_default().0.extend(headers);
        }
        self.finish(flags, stream);
    }

    fn finish(&mut self, flags: u8, stream: u32) {
        if flags & flag::END_STREAM == 0 {
            return;
        }
        let (headers, body) = self.answers.remove(&stream).unwrap_or_default();
        let status = headers.iter().find(|(name, _)| name == ":status");
        let status = status
            .and_then(|(_, value)| value.parse().ok())
            .expect("a :status");
        self.outcomes.insert(
            stream,
            Outcome::Response {
                status,
                headers,
                body,
            },
        );
    }

    fn reply(&mut self, kind: u8, payload: &[u8]) {
        // A server that hung up is seen when reading.
        let _hung_up = self.send(&frame(kind, flag::ACK, 0, payload));
    }

    fn read_frame(&mut self) -> Result<Frame, End> {
        let head = self.read_exactly(9)?;
        let payload = self.read_exactly(number(&[0, head[0], head[1], head[2]]) as usize)?;
        let stream = number(&head[5..9]) & 0x7fff_ffff;
        Ok(Frame {
            kind: head[3],
            flags: head[4],
            stream,
            payload,
        })
    }

    fn read_exactly(&mut self, length: usize) -> Result<Vec<u8>, End> {
        let mut chunk = [0; 16 * 1024];
        while self.buffer.len() < length {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(End::Closed),
                Ok(read) => self.buffer.extend_from_slice(&chunk[..read]),
                Err(error) => match error.kind() {
                    io::ErrorKind::Interrupted => {}
                    io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                        return Err(End::StillOpen);
                    }
                    _ => return Err(End::Reset),
                },
            }
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }
}

impl Outcome {
    /// Status of a complete answer.
    pub(crate) const fn status(&self) -> Option<u16> {
        match self {
            Self::Response { status, .. } => Some(*status),
            Self::Reset(_) | Self::GoAway(_) | Self::Ended(_) => None,
        }
    }

    /// Body of a complete answer as text.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Response { body, .. } => String::from_utf8_lossy(body).into_owned(),
            Self::Reset(_) | Self::GoAway(_) | Self::Ended(_) => String::new(),
        }
    }

    /// Value of a header of a complete answer.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let Self::Response { headers, .. } = self else {
            return None;
        };
        headers
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, value)| value.as_str())
    }
}

/// One frame's bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head[..], &stream.to_be_bytes(), payload].concat()
}

/// HEADERS, and DATA when there is a body; the stream is ended.
pub(crate) fn request(stream: u32, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let end = if body.is_empty() { flag::END_STREAM } else { 0 };
    let mut bytes = frame(
        kind::HEADERS,
        end | flag::END_HEADERS,
        stream,
        &hpack::encode(headers),
    );
    let mut chunks = body.chunks(16 * 1024).peekable();
    while let Some(chunk) = chunks.next() {
        let end = if chunks.peek().is_none() {
            flag::END_STREAM
        } else {
            0
        };
        bytes.extend(frame(kind::DATA, end, stream, chunk));
    }
    bytes
}

/// Header list of a GET.
pub(crate) const fn get(path: &str) -> [(&str, &str); 4] {
    method("GET", path)
}

/// Header list of a request without a body.
pub(crate) const fn method<'a>(method: &'a str, path: &'a str) -> [(&'a str, &'a str); 4] {
    [
        (":method", method),
        (":scheme", "http"),
        (":authority", "localhost"),
        (":path", path),
    ]
}

/// The first four bytes as a number.
pub(crate) fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take(4)
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}
