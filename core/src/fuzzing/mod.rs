//! What must hold of the parsers for every input, as functions of bytes.
//!
//! Guarantee: a check returns, or panics with the property that is broken.
//! Only built for tests, which replay `fuzz/corpus`, and with `--cfg fuzzing`
//! for the fuzzer in `fuzz/`. Properties of private parts stand beside them,
//! in files of the same name. Decisions are taken off an input's end, so that
//! its beginning is text as it comes over the wire.

mod chunked;
mod cookie;
mod host;
mod request_head;
mod sse;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::body::Body;
use crate::gate::{AdmittedHead, Gate, GateLimits};
use crate::limits::{Limits, Reject};
use crate::{compression, files, forms, middleware, server, validation, websocket};

/// Properties of one parser.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Name of its folder in `fuzz/corpus`.
    pub name: &'static str,
    /// Panics when a property is broken.
    pub check: fn(&[u8]),
    /// Most memory that one input may take at any moment, in bytes.
    pub max_memory_bytes: usize,
}

const MIB: usize = 1024 * 1024;

/// Every target of this crate.
pub const TARGETS: &[Target] = &[
    Target::new("request_head", request_head::check, MIB),
    Target::new("host", host::check, MIB),
    Target::new("chunked", chunked::check, MIB),
    Target::new("query", validation::fuzzing::check_query, MIB),
    Target::new("cookie", cookie::check, MIB),
    Target::new("range", files::fuzzing::check, MIB),
    Target::new("multipart", forms::fuzzing::check_multipart, MIB),
    Target::new("urlencoded", forms::fuzzing::check_urlencoded, MIB),
    // A compressor of zlib takes 300 KiB, and there are up to three.
    Target::new("websocket", websocket::fuzzing::check, 4 * MIB),
    // One compiled pattern may take 8 MiB twice, and a schema may have several.
    Target::new("json_schema", validation::fuzzing::check_schema, 128 * MIB),
    // Memory is a multiple of the text, and bounded by it.
    Target::new("json_text", validation::fuzzing::check_json_text, MIB),
    Target::new("accept_encoding", compression::fuzzing::check, MIB),
    Target::new("forwarded", middleware::fuzzing::check_forwarded, MIB),
    Target::new("traceparent", middleware::fuzzing::check_trace_context, MIB),
    Target::new("sse", sse::check, MIB),
    Target::new("h2_frames", server::fuzzing::check_h2_frames, MIB),
    // Streams of up to 200 KB, with what was sealed and what is read of them.
    Target::new("tls_records", server::fuzzing::check_tls_records, 4 * MIB),
];

impl Target {
    /// A target called `name`.
    pub const fn new(name: &'static str, check: fn(&[u8]), max_memory_bytes: usize) -> Self {
        Self {
            name,
            check,
            max_memory_bytes,
        }
    }
}

/// An input: text, and behind it the bytes that decide what is done with it.
#[derive(Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of an input.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next decision; 0 when there are no more bytes.
    pub const fn byte(&mut self) -> u8 {
        match self.0 {
            [rest @ .., last] => {
                self.0 = rest;
                *last
            }
            [] => 0,
        }
    }

    /// A decision between 0 and `most`.
    pub const fn up_to(&mut self, most: usize) -> usize {
        let wide = (self.byte() as usize) << 8 | self.byte() as usize;
        wide % (most + 1)
    }

    /// What no decision has taken.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Cuts what no decision has taken into one to four pieces.
    pub fn pieces(&mut self) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        let num_cuts = self.byte() % 4;
        let cuts: Vec<_> = (0..num_cuts).map(|_| self.up_to(u16::MAX.into())).collect();
        let mut rest = self.0;
        for cut in cuts {
            let (piece, after) = rest.split_at(cut % (rest.len() + 1));
            pieces.push(piece);
            rest = after;
        }
        pieces.push(rest);
        pieces
    }
}

/// The value of a future that has all it needs.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a future waits for something that cannot come"),
    }
}

/// A body of these chunks.
pub(crate) fn body_of(pieces: &[&[u8]]) -> Body {
    let (sender, body) = Body::channel(pieces.len());
    for piece in pieces {
        now(sender.send(piece.to_vec())).expect("there is room for each");
    }
    body
}

/// Everything that a gate says of a stream of bytes.
#[derive(Debug, Default)]
struct Verdict {
    /// Each admitted head with its bytes, empty lines in front included.
    heads: Vec<(Vec<u8>, AdmittedHead)>,
    /// Content of all bodies, one after the other.
    content: Vec<u8>,
    /// Bytes that belong to admitted heads and bodies.
    num_admitted: usize,
    refused: Option<Reject>,
}

impl Verdict {
    /// Limits small enough that inputs of a kilobyte meet them.
    fn limits() -> GateLimits {
        GateLimits::from(&Limits {
            max_request_line_bytes: 200,
            max_header_bytes: 600,
            max_headers: 12,
            ..Limits::DEFAULT
        })
    }

    /// Feeds `pieces` to a gate as a connection does.
    fn of(pieces: &[&[u8]]) -> Self {
        let mut gate = Gate::new(Self::limits());
        let mut verdict = Self::default();
        let mut pending = Vec::new();
        for piece in pieces {
            pending.extend_from_slice(piece);
            loop {
                let step = if gate.is_in_body() {
                    gate.read_body(&pending, &mut |data| verdict.content.extend(data))
                } else {
                    gate.read_head(&pending).map(|head| match head {
                        Some(head) => {
                            let bytes = pending[..head.end].to_vec();
                            verdict.heads.push((bytes, head));
                            head.end
                        }
                        None => 0,
                    })
                };
                match step {
                    Ok(0) => break,
                    Ok(length) => {
                        pending.drain(..length);
                        verdict.num_admitted += length;
                    }
                    Err(refusal) => {
                        verdict.refused = Some(refusal.reject);
                        return verdict;
                    }
                }
            }
        }
        verdict
    }

    /// Fails unless `other`, of the same bytes cut elsewhere, says the same.
    fn assert_same(&self, other: &Self) {
        let heads = |verdict: &Self| -> Vec<_> {
            let of = |(bytes, head): &(Vec<u8>, AdmittedHead)| {
                (bytes.clone(), head.start, head.framing, head.is_last)
            };
            verdict.heads.iter().map(of).collect()
        };
        assert_eq!(heads(self), heads(other), "the same heads are admitted");
        assert_eq!(self.content, other.content, "the same content is passed on");
        match (self.refused, other.refused) {
            (None, None) => assert_eq!(self.num_admitted, other.num_admitted),
            // A line that is malformed and too long is refused for whichever
            // shows first.
            (Some(one), Some(two)) if one != Reject::BadRequest || two != Reject::BadRequest => {}
            (one, two) => assert_eq!(one, two, "the same bytes are refused"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_seed_keeps_the_properties() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
        for target in TARGETS {
            let folder = corpus.join(target.name);
            let seeds: Vec<_> = fs::read_dir(&folder).unwrap().collect();
            assert!(!seeds.is_empty(), "{} has no seeds", target.name);
            for seed in seeds {
                let path = seed.unwrap().path();
                let bytes = fs::read(&path).unwrap();
                eprintln!("{}", path.display());
                (target.check)(&bytes);
            }
            (target.check)(b"");
        }
    }

    #[test]
    fn decisions_come_off_the_end() {
        let mut input = Input::new(b"text\x01\x02\x03");
        assert_eq!((input.byte(), input.up_to(0x200)), (3, 0x201 % 0x201));
        assert_eq!(input.rest(), b"text");
        let mut input = Input::new(b"abcdef\x02\x00\x01");
        assert_eq!(input.pieces(), [&b"ab"[..], b"cdef"]);
    }
}
