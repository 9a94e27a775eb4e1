//! Chunked coding, byte by byte (RFC 9112 §7.1).
//!
//! ```text
//! Size ─▶ Extension ─▶ SizeLf ─▶ Data ─▶ DataCr ─▶ DataLf ─▶ Size
//!                         └─(size 0)─▶ Trailer ─▶ end
//! ```

use memchr::memchr;

use super::{GateLimits, Refusal, field};
use crate::limits::{MAX_CHUNK_EXTENSION_BYTES, Reject};

/// Digits of a chunk size: enough for 64 bits.
const MAX_SIZE_DIGITS: u8 = 16;

#[derive(Debug, Default)]
pub(super) struct Chunked {
    state: State,
    extension_bytes: usize,
    trailer: Vec<u8>,
    trailer_bytes: usize,
    trailer_lines: usize,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Size {
        size: u64,
        digits: u8,
    },
    /// White space after the size, which only a `;` may follow.
    SizeSpace {
        size: u64,
    },
    Extension {
        size: u64,
    },
    SizeLf {
        size: u64,
    },
    Data {
        remaining: u64,
    },
    DataCr,
    DataLf,
    Trailer,
}

impl Default for State {
    fn default() -> Self {
        Self::Size { size: 0, digits: 0 }
    }
}

/// Progress of one call.
#[derive(Debug)]
pub(super) struct Step {
    /// Input bytes that are valid so far.
    pub(super) length: usize,
    /// Whether the last of them ends the message.
    pub(super) finished: bool,
}

impl Chunked {
    /// Checks `input` up to its end or the end of the message.
    ///
    /// `data` gets the content of the chunks.
    pub(super) fn advance(
        &mut self,
        input: &[u8],
        limits: GateLimits,
        data: &mut impl FnMut(&[u8]),
    ) -> Result<Step, Refusal> {
        let mut index = 0;
        while let Some(&byte) = input.get(index) {
            match self.state {
                State::Data { remaining } => {
                    let taken = remaining.min((input.len() - index) as u64);
                    let start = index;
                    index += taken as usize;
                    data(&input[start..index]);
                    self.state = match remaining - taken {
                        0 => State::DataCr,
                        remaining => State::Data { remaining },
                    };
                    continue;
                }
                State::Trailer => {
                    let (taken, finished) = self.trailer(&input[index..], limits)?;
                    index += taken;
                    if finished {
                        return Ok(Step {
                            length: index,
                            finished: true,
                        });
                    }
                    continue;
                }
                _ => self.state = self.control(byte)?,
            }
            index += 1;
        }
        Ok(Step {
            length: index,
            finished: false,
        })
    }

    /// Next state after a byte of the size line or the end of data.
    fn control(&mut self, byte: u8) -> Result<State, Refusal> {
        const SIZE: Refusal = Refusal::bad_request("a chunk size is not a hexadecimal number");
        match (self.state, byte) {
            (State::Size { size, digits }, _) if byte.is_ascii_hexdigit() => {
                if digits == MAX_SIZE_DIGITS {
                    return Err(SIZE);
                }
                let digit = (byte as char).to_digit(16).ok_or(SIZE)?;
                Ok(State::Size {
                    size: size << 4 | u64::from(digit),
                    digits: digits + 1,
                })
            }
            (State::Size { digits: 0, .. }, _) => Err(SIZE),
            (State::Size { size, .. }, b'\r') => Ok(State::SizeLf { size }),
            (State::Size { size, .. } | State::SizeSpace { size }, b';') => {
                Ok(State::Extension { size })
            }
            (State::Size { size, .. } | State::SizeSpace { size }, b' ' | b'\t') => {
                self.count_extension()?;
                Ok(State::SizeSpace { size })
            }
            (State::Size { .. } | State::SizeSpace { .. }, _) => Err(SIZE),
            (State::Extension { size }, b'\r') => Ok(State::SizeLf { size }),
            (State::Extension { size }, _) if field::is_field_value(&[byte]) => {
                self.count_extension()?;
                Ok(State::Extension { size })
            }
            (State::Extension { .. }, _) => Err(Refusal::bad_request(
                "a chunk extension has a control character",
            )),
            (State::SizeLf { size: 0 }, b'\n') => Ok(State::Trailer),
            (State::SizeLf { size }, b'\n') => Ok(State::Data { remaining: size }),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(State::default()),
            _ => Err(Refusal::bad_request(
                "a chunk is not followed by CR LF where it should be",
            )),
        }
    }

    fn count_extension(&mut self) -> Result<(), Refusal> {
        self.extension_bytes += 1;
        if self.extension_bytes > MAX_CHUNK_EXTENSION_BYTES {
            return Err(Refusal::bad_request("the chunk extensions are too long"));
        }
        Ok(())
    }

    /// Collects one trailer line; bytes taken, and whether it was the last.
    fn trailer(&mut self, input: &[u8], limits: GateLimits) -> Result<(usize, bool), Refusal> {
        let (taken, complete) = match memchr(b'\n', input) {
            Some(index) => (index + 1, true),
            None => (input.len(), false),
        };
        self.trailer_bytes += taken;
        if self.trailer_bytes > limits.header_bytes {
            return Err(Refusal::limit(
                Reject::HeaderBytes,
                "server.limits.header",
                limits.header_bytes,
            ));
        }
        self.trailer.extend_from_slice(&input[..taken]);
        if !complete {
            return Ok((taken, false));
        }
        if self.trailer == b"\r\n" {
            return Ok((taken, true));
        }
        self.trailer_lines += 1;
        if self.trailer_lines > limits.headers {
            return Err(Refusal::limit(
                Reject::HeaderCount,
                "server.limits.headers",
                limits.headers,
            ));
        }
        field::read(&self.trailer)?;
        self.trailer.clear();
        Ok((taken, false))
    }
}
