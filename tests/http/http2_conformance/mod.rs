//! HTTP/2 conformance (RFC 9113, RFC 7541, RFC 8441): what every frame in
//! every state of a stream must lead to, over TLS and in cleartext.
//!
//! A case is named by its section and passes only with the error that the RFC
//! names, by GOAWAY and the end of the connection, or by `RST_STREAM` on a
//! connection that goes on serving.

mod flow_control;
mod frames;
mod header_compression;
mod messages;
mod starting;
mod streams;

use std::collections::BTreeMap;

use crate::support::Failures;
use crate::support::client::End;
use crate::support::hpack;
use crate::support::http2::{Frame, Http2, Outcome, PREFACE, flag, frame, kind, number};
use crate::support::transports::{Servers, TRANSPORTS, Wire};

/// Error codes (RFC 9113 §7).
mod code {
    pub(super) const PROTOCOL_ERROR: u32 = 1;
    pub(super) const FLOW_CONTROL_ERROR: u32 = 3;
    pub(super) const STREAM_CLOSED: u32 = 5;
    pub(super) const FRAME_SIZE_ERROR: u32 = 6;
    pub(super) const REFUSED_STREAM: u32 = 7;
    pub(super) const CANCEL: u32 = 8;
    pub(super) const COMPRESSION_ERROR: u32 = 9;
}

/// Names of settings (RFC 9113 §6.5.2, RFC 8441 §3).
mod setting {
    pub(super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(super) const ENABLE_PUSH: u16 = 2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(super) const MAX_FRAME_SIZE: u16 = 5;
    pub(super) const MAX_HEADER_LIST_SIZE: u16 = 6;
    pub(super) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// Both flags of a request that is one frame.
const WHOLE: u8 = flag::END_STREAM | flag::END_HEADERS;

const GET: (&str, &str) = (":method", "GET");
const POST: (&str, &str) = (":method", "POST");
const SCHEME: (&str, &str) = (":scheme", "https");
const AUTHORITY: (&str, &str) = (":authority", "localhost");
const PATH: (&str, &str) = (":path", "/anything");

/// The header list of a GET, in the order that most clients send.
const BASE: [(&str, &str); 4] = [GET, SCHEME, AUTHORITY, PATH];

/// What a case says of its connection.
type Verdict = Result<(), String>;

/// Fails with what there was unless the case is as it has to be.
fn due(is_so: bool, found: impl FnOnce() -> String) -> Verdict {
    if is_so { Ok(()) } else { Err(found()) }
}

/// A name that begins with the section, and what is done and must follow.
type Case = (&'static str, fn(&mut Peer) -> Verdict);

/// Runs every case on connections of its own, one over each transport.
fn check_on(servers: &Servers, cases: &[Case]) {
    let mut failures = Failures::default();
    for (name, case) in cases {
        for transport in TRANSPORTS {
            let mut peer = Peer::over(Http2::over(servers.connect(transport)));
            failures.case(&format!("{name}, {transport:?}"), case(&mut peer));
        }
    }
    failures.finish();
}

/// Runs every case against the demo as it is served by default.
fn check(cases: &[Case]) {
    check_on(&Servers::start(&[]), cases);
}

/// One connection to the server, and what has been seen of it.
struct Peer {
    http2: Http2<Box<dyn Wire>>,
    /// Every frame that came, without those of the last look at the service.
    seen: Vec<Frame>,
    /// Highest number of a stream that has been used.
    last_stream: u32,
}

impl Peer {
    fn over(http2: Http2<Box<dyn Wire>>) -> Self {
        Self {
            http2,
            seen: Vec::new(),
            last_stream: 0,
        }
    }

    /// Sends bytes; a server that hung up is seen when reading.
    fn send(&mut self, bytes: &[u8]) -> &mut Self {
        let _hung_up = self.http2.send(bytes);
        self
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> &mut Self {
        if kind == kind::HEADERS {
            self.last_stream = self.last_stream.max(stream);
        }
        self.send(&frame(kind, flags, stream, payload))
    }

    /// HEADERS that hold a whole block.
    fn headers(&mut self, flags: u8, stream: u32, block: &[u8]) -> &mut Self {
        self.frame(kind::HEADERS, flags | flag::END_HEADERS, stream, block)
    }

    /// A whole request of exactly these headers.
    fn ask(&mut self, stream: u32, headers: &[(&str, &str)]) -> &mut Self {
        self.headers(flag::END_STREAM, stream, &hpack::encode(headers))
    }

    /// A whole request, with headers besides those that each has.
    fn ask_with(&mut self, stream: u32, extra: &[(&str, &str)]) -> &mut Self {
        self.ask(stream, &[&BASE[..], extra].concat())
    }

    /// A request whose body is still to come: the stream is open.
    fn open(&mut self, stream: u32) -> &mut Self {
        self.open_with(stream, &[])
    }

    fn open_with(&mut self, stream: u32, extra: &[(&str, &str)]) -> &mut Self {
        let list = [&[POST, SCHEME, AUTHORITY, PATH][..], extra].concat();
        self.headers(0, stream, &hpack::encode(&list))
    }

    fn data(&mut self, flags: u8, stream: u32, payload: &[u8]) -> &mut Self {
        self.frame(kind::DATA, flags, stream, payload)
    }

    fn settings(&mut self, settings: &[(u16, u32)]) -> &mut Self {
        let entry =
            |(name, value): &(u16, u32)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat();
        let payload: Vec<u8> = settings.iter().flat_map(entry).collect();
        self.frame(kind::SETTINGS, 0, 0, &payload)
    }

    fn window_update(&mut self, stream: u32, increment: u32) -> &mut Self {
        self.frame(kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
    }

    fn reset(&mut self, stream: u32) -> &mut Self {
        self.frame(kind::RST_STREAM, 0, stream, &code::CANCEL.to_be_bytes())
    }

    /// A stream that is closed because both sides have ended it.
    fn answered(&mut self, stream: u32) -> Result<&mut Self, String> {
        self.ask_with(stream, &[]).status(stream, 200)?;
        Ok(self)
    }

    /// A stream whose request is complete and whose answer cannot be: its
    /// window is shut.
    fn half_closed(&mut self, stream: u32) -> Result<&mut Self, String> {
        self.settings(&[(setting::INITIAL_WINDOW_SIZE, 0)])
            .ask_with(stream, &[]);
        self.wait_for("response head", |frame| {
            frame.kind == kind::HEADERS && frame.stream == stream
        })?;
        Ok(self)
    }

    /// A stream that the peer has closed by a reset, seen by the server.
    fn cancelled(&mut self, stream: u32) -> Result<&mut Self, String> {
        self.open(stream).reset(stream).wait_for_pong()?;
        Ok(self)
    }

    /// Reads one frame.
    fn read(&mut self) -> Result<&Frame, End> {
        let frame = self.http2.read()?;
        self.seen.push(frame);
        Ok(self.seen.last().expect("a frame was just added"))
    }

    /// Reads until a frame is the one that is waited for; its payload.
    fn wait_for(&mut self, what: &str, is_it: impl Fn(&Frame) -> bool) -> Result<Vec<u8>, String> {
        if let Some(frame) = self.seen.iter().find(|frame| is_it(frame)) {
            return Ok(frame.payload.clone());
        }
        loop {
            match self.read() {
                Ok(frame) if is_it(frame) => return Ok(frame.payload.clone()),
                Ok(_) => {}
                Err(end) => return Err(format!("{end:?} and no {what}: {}", self.story())),
            }
        }
    }

    /// The settings that the server has sent.
    fn server_settings(&mut self) -> Result<BTreeMap<u16, u32>, String> {
        let payload = self.wait_for("SETTINGS", |frame| {
            frame.kind == kind::SETTINGS && frame.flags & flag::ACK == 0
        })?;
        let entry = |entry: &[u8]| {
            let name = u16::from_be_bytes([entry[0], entry[1]]);
            (name, number(&entry[2..]))
        };
        Ok(payload.chunks_exact(6).map(entry).collect())
    }

    /// What became of the request on `stream`.
    fn outcome(&mut self, stream: u32) -> Outcome {
        self.http2.outcome(stream)
    }

    /// GOAWAY with one of the codes, then the end of the connection.
    fn connection_error(&mut self, codes: &[u32]) -> Verdict {
        let end = self.read_to_end();
        let last = self.seen.iter().rfind(|frame| frame.kind == kind::GOAWAY);
        let found = last.map(|frame| number(&frame.payload[4..]));
        match found {
            Some(code) if codes.contains(&code) && end != End::StillOpen => Ok(()),
            _ => Err(format!(
                "{end:?} after {}, due was GOAWAY {codes:?}",
                self.story()
            )),
        }
    }

    /// The end of the connection, with or without a GOAWAY before it.
    fn hang_up(&mut self) -> Verdict {
        match self.read_to_end() {
            End::StillOpen => Err(format!("still open after {}", self.story())),
            End::Closed | End::Reset => Ok(()),
        }
    }

    fn read_to_end(&mut self) -> End {
        loop {
            if let Err(end) = self.read() {
                return end;
            }
        }
    }

    /// `RST_STREAM` with one of the codes on a connection that goes on, or the
    /// connection error that a stream error may be made into (§5.4.1).
    fn stream_error(&mut self, stream: u32, codes: &[u32]) -> Verdict {
        self.error(stream, codes)?;
        let is_over = self.seen.iter().any(|frame| frame.kind == kind::GOAWAY);
        if is_over { Ok(()) } else { self.serves() }
    }

    /// The same, without a look at the connection if it goes on.
    fn error(&mut self, stream: u32, codes: &[u32]) -> Verdict {
        let due = format!("due was RST_STREAM {codes:?} on {stream}");
        loop {
            let last = match self.read() {
                Ok(frame) => frame,
                Err(end) => return Err(format!("{end:?} after {}, {due}", self.story())),
            };
            let found = match last.kind {
                kind::RST_STREAM if last.stream == stream => number(&last.payload),
                kind::GOAWAY => number(&last.payload[4..]),
                _ => continue,
            };
            let is_connection = last.kind == kind::GOAWAY;
            return match (codes.contains(&found), is_connection) {
                (false, _) => Err(format!("{}, {due}", self.story())),
                (true, true) => self.connection_error(codes),
                (true, false) => Ok(()),
            };
        }
    }

    /// A malformed message: 400, or a stream error (§8.1.1).
    fn refused(&mut self, stream: u32) -> Verdict {
        match self.outcome(stream) {
            Outcome::Response { status: 400, .. } => self.serves(),
            Outcome::Reset(code::PROTOCOL_ERROR) => self.serves(),
            other => Err(format!("{other:?}, due was 400 or a stream error")),
        }
    }

    /// Nothing came of it: no reset, no GOAWAY, and a request is answered.
    fn ignored(&mut self) -> Verdict {
        self.serves()?;
        let is_error = |frame: &Frame| matches!(frame.kind, kind::RST_STREAM | kind::GOAWAY);
        due(!self.seen.iter().any(is_error), || {
            format!("{}, due was nothing", self.story())
        })
    }

    /// The request on `stream` is answered with `status`.
    fn status(&mut self, stream: u32, status: u16) -> Verdict {
        match self.outcome(stream) {
            Outcome::Response { status: found, .. } if found == status => Ok(()),
            other => Err(format!("{other:?}, due was {status}")),
        }
    }

    /// The request on `stream` is answered, and its answer says `text`.
    fn answer_says(&mut self, stream: u32, text: &str) -> Verdict {
        let outcome = self.outcome(stream);
        let body = outcome.text().replace(' ', "");
        due(outcome.status() == Some(200) && body.contains(text), || {
            format!("{outcome:?}, due was 200 with {text}")
        })
    }

    /// A PING comes back: what was sent before it has been read.
    fn wait_for_pong(&mut self) -> Verdict {
        self.frame(kind::PING, 0, 0, b"are you?");
        let is_pong = |frame: &Frame| frame.kind == kind::PING && frame.payload == b"are you?";
        self.wait_for("PING ACK", is_pong)?;
        self.seen.retain(|frame| !is_pong(frame));
        Ok(())
    }

    /// A new request, which needs no window, is answered.
    fn serves(&mut self) -> Verdict {
        let stream = (self.last_stream + 1) | 1;
        let head = [(":method", "HEAD"), SCHEME, AUTHORITY, (":path", "/hello")];
        self.ask(stream, &head);
        loop {
            match self.read() {
                Ok(frame) if frame.kind == kind::HEADERS && frame.stream == stream => {
                    self.seen.pop();
                    return self.status(stream, 200);
                }
                Ok(_) => {}
                Err(end) => {
                    let story = self.story();
                    return Err(format!("{end:?} after {story}, due was an answer"));
                }
            }
        }
    }

    /// What has come, in words.
    fn story(&self) -> String {
        let tell = |frame: &Frame| {
            let Frame {
                kind,
                flags,
                stream,
                payload,
            } = frame;
            match *kind {
                kind::RST_STREAM => format!("RST_STREAM {} on {stream}", number(payload)),
                kind::GOAWAY => format!("GOAWAY {}", number(&payload[4..])),
                kind => format!("frame {kind}/{flags:#x} on {stream}"),
            }
        };
        self.seen.iter().map(tell).collect::<Vec<_>>().join(", ")
    }
}

/// The document maps each case of h2spec to one of these: each of them is there.
#[test]
fn the_table_of_h2spec_names_cases_that_exist() {
    let document = include_str!("../../../docs/conformance.md");
    let sources = [
        include_str!("flow_control.rs"),
        include_str!("frames.rs"),
        include_str!("header_compression.rs"),
        include_str!("messages.rs"),
        include_str!("starting.rs"),
        include_str!("streams.rs"),
    ]
    .concat();
    let (_, table) = document
        .split_once("## h2spec, case by case")
        .expect("the document has the table");
    let mut num_cases = 0;
    for line in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let name = line.rsplit('`').nth(1).unwrap_or_default();
        let is_there =
            sources.contains(&format!("\"{name}\"")) || sources.contains(&format!("fn {name}()"));
        assert!(is_there, "no case for {line}");
        num_cases += 1;
    }
    assert_eq!(num_cases, 140);
}
