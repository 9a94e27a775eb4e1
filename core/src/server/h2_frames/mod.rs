//! What h2 leaves unchecked of the frames that a peer sends, or answers with
//! a vaguer error than is due (RFC 9113 §3.4, §4, §5.1, §6, §8.1).
//!
//! Guarantee: a frame passes as it came, or the connection ends with the error
//! that the RFC names: h2 is shown one that it answers with `PROTOCOL_ERROR`,
//! and [`Replies`] puts the code that is due into its GOAWAY. The one that
//! passes changed is trailers with a pseudo-header, which h2 would serve
//! without it: they lose their `END_STREAM`, and h2 resets the stream.

mod header_block;
mod replies;

pub(super) use header_block::BlockWalk;
pub(super) use replies::Replies;

/// The connection preface, which comes before all frames.
const PREFACE_BYTES: usize = 24;
const HEAD_BYTES: usize = 9;
/// The most that a frame may have: this server announces no more.
const MAX_PAYLOAD_BYTES: usize = 16_384;
const MAX_WINDOW_BYTES: u32 = 0x7fff_ffff;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const HAS_PRIORITY: u8 = 32;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// DATA on stream 0, which h2 answers with `PROTOCOL_ERROR` at any time.
pub(super) const SPOILED: &[u8] = &[0; HEAD_BYTES];

/// An error that ends a connection, by its code (RFC 9113 §7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    Protocol = 1,
    FlowControl = 3,
    StreamClosed = 5,
    FrameSize = 6,
    Compression = 9,
}

/// Reads the heads of a peer's frames as they pass, and the header blocks.
#[derive(Debug)]
pub(super) struct FrameCheck {
    /// Bytes of a head, or of a frame that is read as a whole, that is not
    /// complete.
    held: Vec<u8>,
    /// Bytes to come that need no look.
    passing: usize,
    /// No frame has come.
    is_first: bool,
    /// The error that has come.
    wrong: Option<Code>,
    streams: EndedStreams,
    blocks: BlockWalk,
    /// A header block that has not ended.
    open_block: Option<OpenBlock>,
}

#[derive(Debug, Clone, Copy)]
struct OpenBlock {
    stream: u32,
    is_trailers: bool,
}

/// What to do with bytes that were read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    /// So many pass; the rest is kept for the next read, or is of no interest.
    pub(super) passed: usize,
    /// A wrong frame follows, in whose place [`SPOILED`] is shown; nothing
    /// passes after it.
    pub(super) is_wrong: bool,
}

/// The head of a frame.
#[derive(Debug, Clone, Copy)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let &[high, middle, low, kind, flags, stream @ ..] = bytes.first_chunk::<HEAD_BYTES>()?;
        Some(Self {
            length: u32::from_be_bytes([0, high, middle, low]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & MAX_STREAM,
        })
    }

    const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl FrameCheck {
    /// Expects the preface.
    pub(super) const fn new() -> Self {
        Self {
            held: Vec::new(),
            passing: PREFACE_BYTES,
            is_first: true,
            wrong: None,
            streams: EndedStreams::new(),
            blocks: BlockWalk::new(),
            open_block: None,
        }
    }

    /// The error of the wrong frame that has come: what follows it is of no
    /// interest.
    pub(super) const fn wrong(&self) -> Option<Code> {
        self.wrong
    }

    /// Puts what has been kept at the start of `buffer`; its length.
    ///
    /// The next [`Self::check`] has to see it again.
    pub(super) fn restore(&mut self, buffer: &mut [u8]) -> usize {
        let length = self.held.len();
        buffer[..length].copy_from_slice(&self.held);
        self.held.clear();
        length
    }

    /// Looks at the next bytes, and takes `END_STREAM` from wrong trailers.
    pub(super) fn check(&mut self, bytes: &mut [u8]) -> Verdict {
        let mut at = 0;
        loop {
            let passed = self.passing.min(bytes.len() - at);
            at += passed;
            self.passing -= passed;
            if at == bytes.len() {
                return Verdict {
                    passed: at,
                    is_wrong: false,
                };
            }
            let rest = &mut bytes[at..];
            let Some(head) = Head::parse(rest) else {
                return self.keep(rest, at);
            };
            if let Err(code) = self.judge_head(head) {
                return self.end(code, at);
            }
            let whole = HEAD_BYTES + head.length;
            let is_read = matches!(head.kind, HEADERS | SETTINGS | CONTINUATION);
            if is_read && head.length <= MAX_PAYLOAD_BYTES {
                let Some(frame) = rest.get_mut(..whole) else {
                    return self.keep(rest, at);
                };
                let (bytes, payload) = frame.split_at_mut(HEAD_BYTES);
                match self.judge_payload(head, payload) {
                    Ok(Passing::AsItIs) => {}
                    Ok(Passing::WithoutEnd) => bytes[4] &= !END_STREAM,
                    Err(code) => return self.end(code, at),
                }
            }
            self.is_first = false;
            self.passing = whole;
        }
    }

    /// What is due for a frame by its head alone.
    fn judge_head(&mut self, head: Head) -> Result<(), Code> {
        let length = head.length;
        let is_ack = head.has(ACK);
        let is_sized = match head.kind {
            PRIORITY => length == 5,
            RST_STREAM | WINDOW_UPDATE => length == 4,
            SETTINGS if is_ack => length == 0,
            SETTINGS => length.is_multiple_of(6),
            PING => length == 8,
            GOAWAY => length >= 8,
            _ => true,
        };
        if self.is_first && (head.kind != SETTINGS || is_ack) {
            return Err(Code::Protocol);
        }
        if !is_sized {
            return Err(Code::FrameSize);
        }
        if let Some(block) = self.open_block {
            let goes_on = head.kind == CONTINUATION && head.stream == block.stream;
            return if goes_on { Ok(()) } else { Err(Code::Protocol) };
        }
        match head.kind {
            CONTINUATION => Err(Code::Protocol),
            DATA | HEADERS if self.streams.has_ended(head.stream) => Err(Code::StreamClosed),
            DATA if head.has(END_STREAM) => {
                self.streams.end(head.stream);
                Ok(())
            }
            RST_STREAM => {
                self.streams.end(head.stream);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// What is due for a frame that is here as a whole.
    fn judge_payload(&mut self, head: Head, payload: &[u8]) -> Result<Passing, Code> {
        match head.kind {
            SETTINGS if has_too_wide_window(payload) => Err(Code::FlowControl),
            HEADERS => {
                // h2 refuses a stream that depends on itself without a look at
                // its block: the next ones would be decoded by another table.
                let part = block_part(head, payload).ok_or(Code::Protocol)?;
                let is_trailers = self.streams.is_known(head.stream);
                self.streams.open(head.stream);
                if head.has(END_STREAM) {
                    self.streams.end(head.stream);
                }
                self.blocks.begin();
                let block = OpenBlock {
                    stream: head.stream,
                    is_trailers,
                };
                self.read_block(head, block, part)?;
                Ok(if is_trailers && self.blocks.has_pseudo() {
                    Passing::WithoutEnd
                } else {
                    Passing::AsItIs
                })
            }
            CONTINUATION => {
                let Some(block) = self.open_block else {
                    return Err(Code::Protocol);
                };
                let had_pseudo = self.blocks.has_pseudo();
                self.read_block(head, block, payload)?;
                // What began the trailers has passed as it came.
                if block.is_trailers && self.blocks.has_pseudo() && !had_pseudo {
                    return Err(Code::Protocol);
                }
                Ok(Passing::AsItIs)
            }
            _ => Ok(Passing::AsItIs),
        }
    }

    fn read_block(&mut self, head: Head, block: OpenBlock, part: &[u8]) -> Result<(), Code> {
        let invalid = |_| Code::Compression;
        self.blocks.read(part).map_err(invalid)?;
        if head.has(END_HEADERS) {
            self.blocks.end().map_err(invalid)?;
            self.open_block = None;
        } else {
            self.open_block = Some(block);
        }
        Ok(())
    }

    fn keep(&mut self, rest: &[u8], passed: usize) -> Verdict {
        self.held.extend_from_slice(rest);
        Verdict {
            passed,
            is_wrong: false,
        }
    }

    const fn end(&mut self, code: Code, passed: usize) -> Verdict {
        self.wrong = Some(code);
        Verdict {
            passed,
            is_wrong: true,
        }
    }
}

/// How a right frame passes.
#[derive(Debug, Clone, Copy)]
enum Passing {
    AsItIs,
    WithoutEnd,
}

/// The part of a header block in HEADERS; none where what is around it is wrong.
fn block_part(head: Head, payload: &[u8]) -> Option<&[u8]> {
    let mut part = payload;
    let mut padding = 0;
    if head.has(PADDED) {
        let (length, rest) = part.split_first()?;
        (padding, part) = (usize::from(*length), rest);
    }
    if head.has(HAS_PRIORITY) {
        let (dependency, rest) = part.split_first_chunk::<5>()?;
        let [stream @ .., _weight] = *dependency;
        if u32::from_be_bytes(stream) & MAX_STREAM == head.stream {
            return None;
        }
        part = rest;
    }
    part.get(..part.len().checked_sub(padding)?)
}

fn has_too_wide_window(settings: &[u8]) -> bool {
    let (settings, _) = settings.as_chunks::<6>();
    settings.iter().any(|&[high, low, value @ ..]| {
        u16::from_be_bytes([high, low]) == INITIAL_WINDOW_SIZE
            && u32::from_be_bytes(value) > MAX_WINDOW_BYTES
    })
}

const MAX_STREAM: u32 = 0x7fff_ffff;
/// Streams whose end is remembered; of those before h2 says what is due.
const NUM_REMEMBERED: u32 = 1024;

/// Which of the newest streams the peer has ended or reset: on those it may
/// send nothing that belongs to a message (RFC 9113 §5.1).
///
/// What the server has reset is not among them: frames may be on their way.
#[derive(Debug)]
struct EndedStreams {
    /// Number of the newest stream; 0 before the first.
    newest: u32,
    /// A bit for each, at its number's place modulo [`NUM_REMEMBERED`].
    ended: [u64; (NUM_REMEMBERED / 64) as usize],
}

impl EndedStreams {
    const fn new() -> Self {
        Self {
            newest: 0,
            ended: [0; (NUM_REMEMBERED / 64) as usize],
        }
    }

    /// Whether the stream has been opened, or left out.
    const fn is_known(&self, stream: u32) -> bool {
        stream <= self.newest
    }

    const fn open(&mut self, stream: u32) {
        if stream <= self.newest || stream.is_multiple_of(2) {
            return;
        }
        // One place for each two numbers, because a client's are odd.
        let num_new = (stream - self.newest).div_ceil(2);
        if num_new >= NUM_REMEMBERED {
            self.ended = [0; (NUM_REMEMBERED / 64) as usize];
        } else {
            let mut new = 0;
            while new < num_new {
                self.set(stream - 2 * new, false);
                new += 1;
            }
        }
        self.newest = stream;
    }

    const fn end(&mut self, stream: u32) {
        if self.is_remembered(stream) {
            self.set(stream, true);
        }
    }

    const fn has_ended(&self, stream: u32) -> bool {
        let (word, bit) = Self::place(stream);
        self.is_remembered(stream) && self.ended[word] & bit != 0
    }

    const fn is_remembered(&self, stream: u32) -> bool {
        !stream.is_multiple_of(2)
            && stream <= self.newest
            && self.newest - stream < 2 * NUM_REMEMBERED
    }

    const fn set(&mut self, stream: u32, has_ended: bool) {
        let (word, bit) = Self::place(stream);
        if has_ended {
            self.ended[word] |= bit;
        } else {
            self.ended[word] &= !bit;
        }
    }

    const fn place(stream: u32) -> (usize, u64) {
        let place = stream / 2 % NUM_REMEMBERED;
        ((place / 64) as usize, 1 << (place % 64))
    }
}

#[cfg(test)]
mod tests;
