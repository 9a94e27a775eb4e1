//! Incremental HTTP/1.1 response parser: bytes in, one response out.
//!
//! It does no input or output, so any split of the stream gives the same result.
//! It guarantees that a response ends exactly where RFC 9112 §6.3 says, and that
//! a response whose length two readers could disagree on is an error.

use std::mem::MaybeUninit;

/// Longest accepted status line plus header section, in bytes.
///
/// Four times the 16 KiB that common servers accept: larger is not a benchmark.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Most header fields accepted in one response.
const MAX_HEADERS: usize = 128;

/// Longest accepted chunk-size line or trailer section, in bytes.
const MAX_CHUNK_LINE_BYTES: usize = 16 * 1024;

/// Why the bytes received are not an HTTP/1.1 response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ParseError {
    /// The first byte cannot begin a status line.
    NotHttp,
    /// The head is malformed, or has too many fields.
    Head,
    /// The head is longer than [`MAX_HEAD_BYTES`].
    HeadTooLarge,
    /// The status is not one that can end this exchange.
    Status,
    /// The length of the body is ambiguous (RFC 9112 §6.3).
    Framing,
    /// The chunked coding is malformed (RFC 9112 §7.1).
    Chunk,
}

/// How far one call of [`ResponseParser::feed`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fed {
    /// All input is consumed and the response goes on.
    NeedMore,
    /// The response ended after this many bytes of the input.
    Complete { consumed: usize },
}

/// Parser of one response after the other on one connection.
#[derive(Debug)]
pub(super) struct ResponseParser {
    state: State,
    head_request: bool,
    /// Start of a head that did not arrive in one piece.
    partial_head: Vec<u8>,
    untouched: bool,
    status: u16,
    keep_alive: bool,
}

impl ResponseParser {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Head,
            head_request: false,
            partial_head: Vec::new(),
            untouched: true,
            status: 0,
            keep_alive: false,
        }
    }

    /// Forgets the previous response and expects the answer to a new request.
    pub(super) fn start(&mut self, head_request: bool) {
        self.state = State::Head;
        self.head_request = head_request;
        self.partial_head.clear();
        self.untouched = true;
        self.status = 0;
        self.keep_alive = false;
    }

    /// Whether no byte of the response has arrived yet.
    pub(super) const fn is_untouched(&self) -> bool {
        self.untouched
    }

    /// Status of the final response; 0 until its head is complete.
    pub(super) const fn status(&self) -> u16 {
        self.status
    }

    /// Bytes of the body that are still to come, where that is known and there are any.
    pub(super) const fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Length {
                remaining: remaining @ 1..,
            } => Some(remaining),
            _ => None,
        }
    }

    /// Whether the connection may carry another request after this response.
    pub(super) const fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Consumes `input` up to the end of the response, passing the body to `body`.
    pub(super) fn feed(
        &mut self,
        input: &[u8],
        body: &mut impl FnMut(&[u8]),
    ) -> Result<Fed, ParseError> {
        let mut consumed = 0;
        if !input.is_empty() {
            self.untouched = false;
        }
        loop {
            let rest = &input[consumed..];
            match &mut self.state {
                State::Head => match self.feed_head(rest)? {
                    Some(used) => consumed += used,
                    None => return Ok(Fed::NeedMore),
                },
                State::Length { remaining } => {
                    let take = clamp(*remaining, rest.len());
                    body(&rest[..take]);
                    consumed += take;
                    *remaining -= take as u64;
                    if *remaining > 0 {
                        return Ok(Fed::NeedMore);
                    }
                    self.state = State::Done;
                }
                State::Chunked(chunked) => {
                    let (used, done) = chunked.feed(rest, body)?;
                    consumed += used;
                    if !done {
                        return Ok(Fed::NeedMore);
                    }
                    self.state = State::Done;
                }
                State::UntilClose => {
                    body(rest);
                    return Ok(Fed::NeedMore);
                }
                State::Done => return Ok(Fed::Complete { consumed }),
            }
        }
    }

    /// Takes the end of the stream; true if it is the end of the response too.
    pub(super) fn end_of_stream(&mut self) -> bool {
        if matches!(self.state, State::UntilClose) {
            self.state = State::Done;
        }
        matches!(self.state, State::Done)
    }

    /// Parses a head, or stores its beginning; returns the bytes of `input` used.
    fn feed_head(&mut self, input: &[u8]) -> Result<Option<usize>, ParseError> {
        if input.is_empty() {
            return Ok(None);
        }
        if self.partial_head.is_empty() {
            if input[0] != b'H' {
                return Err(ParseError::NotHttp);
            }
            if let Some((used, head)) = parse_head(input, self.head_request)? {
                self.accept(head);
                return Ok(Some(used));
            }
            if input.len() > MAX_HEAD_BYTES {
                return Err(ParseError::HeadTooLarge);
            }
            self.partial_head.extend_from_slice(input);
            return Ok(None);
        }
        let stored = self.partial_head.len();
        let room = (MAX_HEAD_BYTES + 1).saturating_sub(stored);
        self.partial_head
            .extend_from_slice(&input[..input.len().min(room)]);
        // A head ends with a line feed: without a new one there is nothing to find,
        // and a head that dribbles in byte by byte is not parsed at each byte.
        if memchr::memchr(b'\n', &self.partial_head[stored..]).is_some()
            && let Some((used, head)) = parse_head(&self.partial_head, self.head_request)?
        {
            self.partial_head.clear();
            self.accept(head);
            return Ok(Some(used - stored));
        }
        if self.partial_head.len() > MAX_HEAD_BYTES {
            return Err(ParseError::HeadTooLarge);
        }
        Ok(None)
    }

    fn accept(&mut self, head: Head) {
        match head {
            Head::Interim => {}
            Head::Final {
                status,
                keep_alive,
                body,
            } => {
                self.status = status;
                self.keep_alive = keep_alive;
                self.state = body;
            }
        }
    }
}

#[derive(Debug)]
enum State {
    Head,
    Length { remaining: u64 },
    Chunked(Chunked),
    UntilClose,
    Done,
}

enum Head {
    /// A 1xx response: another head follows.
    Interim,
    Final {
        status: u16,
        keep_alive: bool,
        body: State,
    },
}

/// Parses one head; `None` if it is not complete.
fn parse_head(input: &[u8], head_request: bool) -> Result<Option<(usize, Head)>, ParseError> {
    let mut headers = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        input,
        &mut headers,
    );
    let used = match parsed {
        Ok(httparse::Status::Complete(used)) => used,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(ParseError::Head),
    };
    let status = response.code.unwrap_or(0);
    match status {
        // 101 answers an Upgrade that we never ask for.
        101 => return Err(ParseError::Status),
        100..=199 => return Ok(Some((used, Head::Interim))),
        200..=599 => {}
        _ => return Err(ParseError::Status),
    }
    let version_1_1 = response.version == Some(1);
    let fields = Fields::read(response.headers)?;
    let (body, delimited) = if head_request || matches!(status, 204 | 304) {
        (State::Done, true)
    } else {
        fields.body(version_1_1)?
    };
    let persistent = if version_1_1 {
        !fields.close
    } else {
        fields.keep_alive && !fields.close
    };
    let keep_alive = persistent && delimited;
    Ok(Some((
        used,
        Head::Final {
            status,
            keep_alive,
            body,
        },
    )))
}

/// The header fields that decide where the response ends.
#[derive(Default)]
struct Fields {
    content_length: Option<Result<u64, ParseError>>,
    transfer_codings: u32,
    chunked_codings: u32,
    last_is_chunked: bool,
    close: bool,
    keep_alive: bool,
}

impl Fields {
    fn read(headers: &[httparse::Header<'_>]) -> Result<Self, ParseError> {
        let mut fields = Self::default();
        for header in headers {
            // The length rejects nearly every field before the comparison.
            match header.name.len() {
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    fields.add_content_length(header.value);
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    for coding in list(header.value) {
                        let chunked = coding.eq_ignore_ascii_case(b"chunked");
                        fields.transfer_codings += 1;
                        fields.chunked_codings += u32::from(chunked);
                        fields.last_is_chunked = chunked;
                    }
                    if fields.transfer_codings == 0 {
                        return Err(ParseError::Framing);
                    }
                }
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    for option in list(header.value) {
                        fields.close |= option.eq_ignore_ascii_case(b"close");
                        fields.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                _ => {}
            }
        }
        Ok(fields)
    }

    /// Adds one Content-Length field; repeated equal values are one value.
    fn add_content_length(&mut self, value: &[u8]) {
        let mut empty = true;
        for item in list(value) {
            empty = false;
            let item = decimal(item);
            self.content_length = match self.content_length {
                None => Some(item),
                Some(earlier) if earlier == item => Some(earlier),
                Some(_) => Some(Err(ParseError::Framing)),
            };
        }
        if empty {
            self.content_length = Some(Err(ParseError::Framing));
        }
    }

    /// The body, and whether it ends before the connection does.
    fn body(&self, version_1_1: bool) -> Result<(State, bool), ParseError> {
        match (self.transfer_codings, self.content_length) {
            (0, None) => Ok((State::UntilClose, false)),
            (0, Some(length)) => Ok((State::Length { remaining: length? }, true)),
            // HTTP/1.0 has no transfer codings (RFC 9112 §6.1).
            (_, None) if version_1_1 => match (self.chunked_codings, self.last_is_chunked) {
                (0, _) => Ok((State::UntilClose, false)),
                (1, true) => Ok((State::Chunked(Chunked::new()), true)),
                _ => Err(ParseError::Framing),
            },
            _ => Err(ParseError::Framing),
        }
    }
}

/// Decoder of the chunked transfer coding (RFC 9112 §7.1).
#[derive(Debug)]
struct Chunked {
    part: ChunkPart,
    /// Size of the chunk, then what remains of it.
    remaining: u64,
    /// Bytes of the current line, or of the trailer section.
    line_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkPart {
    Size,
    Extension,
    SizeLineFeed,
    Data,
    DataCarriageReturn,
    DataLineFeed,
    TrailerStart,
    Trailer,
    TrailerLineFeed,
    LastLineFeed,
}

impl Chunked {
    const fn new() -> Self {
        Self {
            part: ChunkPart::Size,
            remaining: 0,
            line_bytes: 0,
        }
    }

    /// Returns the bytes used and whether the body ended.
    fn feed(
        &mut self,
        input: &[u8],
        body: &mut impl FnMut(&[u8]),
    ) -> Result<(usize, bool), ParseError> {
        let mut used = 0;
        while used < input.len() {
            if self.part == ChunkPart::Data {
                let take = clamp(self.remaining, input.len() - used);
                body(&input[used..used + take]);
                used += take;
                self.remaining -= take as u64;
                if self.remaining == 0 {
                    self.part = ChunkPart::DataCarriageReturn;
                }
                continue;
            }
            let byte = input[used];
            used += 1;
            if self.step(byte)? {
                return Ok((used, true));
            }
        }
        Ok((used, false))
    }

    /// Takes one byte that is not chunk data; true at the end of the body.
    fn step(&mut self, byte: u8) -> Result<bool, ParseError> {
        self.line_bytes += 1;
        if self.line_bytes > MAX_CHUNK_LINE_BYTES {
            return Err(ParseError::Chunk);
        }
        self.part = match (self.part, byte) {
            (ChunkPart::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = (byte as char).to_digit(16).map_or(0, u64::from);
                let size = self
                    .remaining
                    .checked_mul(16)
                    .and_then(|size| size.checked_add(digit));
                self.remaining = size.ok_or(ParseError::Chunk)?;
                ChunkPart::Size
            }
            (ChunkPart::Size, b'\r') if self.line_bytes > 1 => ChunkPart::SizeLineFeed,
            (ChunkPart::Size, b';' | b' ' | b'\t') if self.line_bytes > 1 => ChunkPart::Extension,
            (ChunkPart::Extension, b'\r') => ChunkPart::SizeLineFeed,
            (ChunkPart::Extension, byte) if byte != b'\n' => ChunkPart::Extension,
            (ChunkPart::SizeLineFeed, b'\n') => {
                self.line_bytes = 0;
                if self.remaining == 0 {
                    ChunkPart::TrailerStart
                } else {
                    ChunkPart::Data
                }
            }
            (ChunkPart::DataCarriageReturn, b'\r') => ChunkPart::DataLineFeed,
            (ChunkPart::DataLineFeed, b'\n') => {
                self.line_bytes = 0;
                ChunkPart::Size
            }
            (ChunkPart::TrailerStart, b'\r') => ChunkPart::LastLineFeed,
            (ChunkPart::Trailer, b'\r') => ChunkPart::TrailerLineFeed,
            (ChunkPart::TrailerStart | ChunkPart::Trailer, byte) if byte != b'\n' => {
                ChunkPart::Trailer
            }
            (ChunkPart::TrailerLineFeed, b'\n') => ChunkPart::TrailerStart,
            (ChunkPart::LastLineFeed, b'\n') => return Ok(true),
            _ => return Err(ParseError::Chunk),
        };
        Ok(false)
    }
}

/// Non-empty items of a comma-separated field value.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|item| !item.is_empty())
}

/// Digits only: no sign, no white space, no overflow.
fn decimal(text: &[u8]) -> Result<u64, ParseError> {
    if text.is_empty() {
        return Err(ParseError::Framing);
    }
    text.iter()
        .try_fold(0_u64, |value, byte| {
            let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
            value.checked_mul(10)?.checked_add(digit)
        })
        .ok_or(ParseError::Framing)
}

/// The smaller of a 64-bit count and a length in memory.
fn clamp(remaining: u64, available: usize) -> usize {
    usize::try_from(remaining).map_or(available, |remaining| remaining.min(available))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: bool = false;
    const HEAD: bool = true;

    /// What a whole stream, then its end, gives.
    #[derive(Debug, PartialEq, Eq)]
    enum Outcome {
        Complete {
            status: u16,
            body: String,
            keep_alive: bool,
            extra: usize,
        },
        Truncated,
        Error(ParseError),
    }

    fn complete(status: u16, body: &str, keep_alive: bool) -> Outcome {
        Outcome::Complete {
            status,
            body: body.to_owned(),
            keep_alive,
            extra: 0,
        }
    }

    fn parse(parser: &mut ResponseParser, head_request: bool, pieces: &[&[u8]]) -> Outcome {
        let mut body = Vec::new();
        parser.start(head_request);
        let mut left: usize = pieces.iter().map(|piece| piece.len()).sum();
        let finish = |parser: &ResponseParser, body: Vec<u8>, extra| Outcome::Complete {
            status: parser.status(),
            body: String::from_utf8(body).unwrap(),
            keep_alive: parser.keep_alive(),
            extra,
        };
        for piece in pieces {
            match parser.feed(piece, &mut |bytes: &[u8]| body.extend_from_slice(bytes)) {
                Ok(Fed::NeedMore) => left -= piece.len(),
                Ok(Fed::Complete { consumed }) => return finish(parser, body, left - consumed),
                Err(error) => return Outcome::Error(error),
            }
        }
        if parser.end_of_stream() {
            finish(parser, body, 0)
        } else {
            Outcome::Truncated
        }
    }

    /// Feeds the stream whole, split at every point, and byte by byte.
    fn check(head_request: bool, stream: &str, expected: &Outcome) {
        let bytes = stream.as_bytes();
        let mut parser = ResponseParser::new();
        assert_eq!(
            &parse(&mut parser, head_request, &[bytes]),
            expected,
            "whole: {stream:?}"
        );
        for split in 0..=bytes.len() {
            let pieces = [&bytes[..split], &bytes[split..]];
            let found = parse(&mut parser, head_request, &pieces);
            assert_eq!(&found, expected, "split at {split}: {stream:?}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        let found = parse(&mut parser, head_request, &single);
        assert_eq!(&found, expected, "byte by byte: {stream:?}");
    }

    fn error(head_request: bool, stream: &str, expected: ParseError) {
        check(head_request, stream, &Outcome::Error(expected));
    }

    #[test]
    fn content_length_ends_the_body() {
        check(
            GET,
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            &complete(200, "hello", true),
        );
        check(
            GET,
            "HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n",
            &complete(404, "", true),
        );
        check(
            GET,
            "HTTP/1.1 200\r\nContent-Length: 2, 2\r\n\r\nhi",
            &complete(200, "hi", true),
        );
    }

    #[test]
    fn chunks_are_joined_and_trailers_skipped() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(GET, &format!("{head}0\r\n\r\n"), &complete(200, "", true));
        check(
            GET,
            &format!("{head}5\r\nhello\r\n0\r\n\r\n"),
            &complete(200, "hello", true),
        );
        check(
            GET,
            &format!("{head}1;a=b\r\nh\r\n0004 ;c\r\nello\r\n00\r\nX: 1\r\nYz: 2\r\n\r\n"),
            &complete(200, "hello", true),
        );
        check(
            GET,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n",
            &complete(200, "0123456789", true),
        );
    }

    #[test]
    fn malformed_chunks_are_errors() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        for tail in [
            "\r\n",
            "g\r\n",
            "-1\r\n",
            ";x\r\n",
            "1\nx",
            "1\r\nxy\r\n",
            "1\r\nx\n0\r\n\r\n",
            "0\r\n\n",
            "0\r\nX: 1\n",
            "10000000000000000\r\n",
            "1;a\n",
        ] {
            error(GET, &format!("{head}{tail}"), ParseError::Chunk);
        }
    }

    #[test]
    fn body_without_length_ends_with_the_stream() {
        check(
            GET,
            "HTTP/1.1 200 OK\r\n\r\nhello",
            &complete(200, "hello", false),
        );
        check(GET, "HTTP/1.0 200 OK\r\n\r\n", &complete(200, "", false));
        check(
            GET,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nxyz",
            &complete(200, "xyz", false),
        );
    }

    #[test]
    fn early_end_is_truncation() {
        for stream in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r",
        ] {
            check(GET, stream, &Outcome::Truncated);
        }
    }

    #[test]
    fn interim_responses_are_skipped() {
        check(
            GET,
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            &complete(200, "hi", true),
        );
    }

    #[test]
    fn bodiless_responses_ignore_their_framing_fields() {
        let length = "Content-Length: 5\r\n\r\n";
        let chunked = "Transfer-Encoding: chunked\r\n\r\n";
        for fields in [length, chunked, "\r\n"] {
            check(
                HEAD,
                &format!("HTTP/1.1 200 OK\r\n{fields}"),
                &complete(200, "", true),
            );
            check(
                GET,
                &format!("HTTP/1.1 204 No Content\r\n{fields}"),
                &complete(204, "", true),
            );
            check(
                GET,
                &format!("HTTP/1.1 304 Not Modified\r\n{fields}"),
                &complete(304, "", true),
            );
        }
    }

    #[test]
    fn connection_options_decide_reuse() {
        let with = |version: &str, fields: &str| {
            format!("HTTP/{version} 200 OK\r\nContent-Length: 0\r\n{fields}\r\n")
        };
        check(
            GET,
            &with("1.1", "Connection: close\r\n"),
            &complete(200, "", false),
        );
        check(
            GET,
            &with("1.1", "Connection: foo, CLOSE\r\n"),
            &complete(200, "", false),
        );
        check(
            GET,
            &with("1.1", "Connection: keep-alive\r\n"),
            &complete(200, "", true),
        );
        check(GET, &with("1.0", ""), &complete(200, "", false));
        check(
            GET,
            &with("1.0", "Connection: Keep-Alive\r\n"),
            &complete(200, "", true),
        );
        check(
            GET,
            &with("1.0", "Connection: keep-alive, close\r\n"),
            &complete(200, "", false),
        );
    }

    #[test]
    fn ambiguous_length_is_an_error() {
        for fields in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: chunked\r\nContent-Length: 5",
            "Content-Length: 5\r\nContent-Length: 6",
            "Content-Length: 5, 6",
            "Content-Length: +5",
            "Content-Length:",
            "Content-Length: 18446744073709551616",
            "Transfer-Encoding: chunked, chunked",
            "Transfer-Encoding: chunked, gzip",
            "Transfer-Encoding:",
        ] {
            error(
                GET,
                &format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n"),
                ParseError::Framing,
            );
        }
        error(
            GET,
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            ParseError::Framing,
        );
    }

    #[test]
    fn what_is_not_http_is_an_error() {
        error(GET, "0\r\n\r\n", ParseError::NotHttp);
        error(GET, "\r\nHTTP/1.1 200 OK\r\n\r\n", ParseError::NotHttp);
        error(GET, "HTTP/3.0 200 OK\r\n\r\n", ParseError::Head);
        error(
            GET,
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            ParseError::Status,
        );
        error(GET, "HTTP/1.1 600 Big\r\n\r\n", ParseError::Status);
        error(GET, "HTTP/1.1 099 Small\r\n\r\n", ParseError::Status);
    }

    #[test]
    fn bytes_after_the_end_are_left() {
        let check_extra = |stream: &str, status, body: &str, extra| {
            let body = body.to_owned();
            check(
                GET,
                stream,
                &Outcome::Complete {
                    status,
                    body,
                    keep_alive: true,
                    extra,
                },
            );
        };
        check_extra(
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP",
            200,
            "hi",
            4,
        );
        check_extra("HTTP/1.1 204 No Content\r\n\r\n0\r\n\r\n", 204, "", 5);
        check_extra(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nx",
            200,
            "",
            1,
        );
    }

    #[test]
    fn endless_head_is_refused() {
        let head = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(MAX_HEAD_BYTES));
        let mut parser = ResponseParser::new();
        let error = Outcome::Error(ParseError::HeadTooLarge);
        assert_eq!(parse(&mut parser, GET, &[head.as_bytes()]), error);
        let pieces: Vec<&[u8]> = head.as_bytes().chunks(1000).collect();
        assert_eq!(parse(&mut parser, GET, &pieces), error);
    }
}
