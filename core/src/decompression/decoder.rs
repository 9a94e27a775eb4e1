//! The three decoders behind one interface that never gives out more than it
//! was given room for.

use brotli::enc::StandardAlloc;
use brotli::{BrotliDecompressStream, BrotliResult, BrotliState};
use bytes::{Buf as _, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

use crate::compression::Coding;

/// Window of gzip: the format's most, 32 KiB.
const GZIP_WINDOW_BITS: u8 = 15;
/// Largest zstd window, as a power of two: 8 MiB, which is what RFC 9659 lets
/// the content coding use.
const MAX_ZSTD_WINDOW_BITS: u32 = 23;

/// The bytes are not of this coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Corrupt;

/// One stream being decoded.
pub(super) struct Decoder {
    state: State,
    /// Whether the stream may end where it is.
    is_at_end: bool,
}

enum State {
    Gzip(Decompress),
    Brotli(Box<BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>>),
    Zstd(DCtx<'static>),
}

impl Decoder {
    pub(super) fn new(coding: Coding) -> Result<Self, Corrupt> {
        let state = match coding {
            Coding::Gzip => State::Gzip(Decompress::new_gzip(GZIP_WINDOW_BITS)),
            Coding::Brotli => State::Brotli(Box::new(BrotliState::new(
                StandardAlloc::default(),
                StandardAlloc::default(),
                StandardAlloc::default(),
            ))),
            Coding::Zstd => {
                let mut state = DCtx::try_create().ok_or(Corrupt)?;
                state
                    .set_parameter(DParameter::WindowLogMax(MAX_ZSTD_WINDOW_BITS))
                    .map_err(|_| Corrupt)?;
                State::Zstd(state)
            }
        };
        Ok(Self {
            state,
            is_at_end: false,
        })
    }

    /// Whether the stream is complete as far as it was decoded.
    pub(super) const fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// Decodes from `input` into the spare capacity of `out`.
    ///
    /// Stops when either is used up. Members of gzip and frames of zstd may
    /// follow each other; bytes after a brotli stream are an error.
    pub(super) fn step(&mut self, input: &mut Bytes, out: &mut Vec<u8>) -> Result<(), Corrupt> {
        let is_at_end = &mut self.is_at_end;
        match &mut self.state {
            State::Gzip(state) => inflate(state, is_at_end, input, out),
            State::Brotli(state) => unbrotli(state, is_at_end, input, out),
            State::Zstd(state) => unzstd(state, is_at_end, input, out),
        }
    }
}

fn inflate(
    state: &mut Decompress,
    is_at_end: &mut bool,
    input: &mut Bytes,
    out: &mut Vec<u8>,
) -> Result<(), Corrupt> {
    loop {
        if *is_at_end {
            if input.is_empty() {
                return Ok(());
            }
            *state = Decompress::new_gzip(GZIP_WINDOW_BITS);
            *is_at_end = false;
        }
        let before = state.total_in();
        let status = state
            .decompress_vec(input, out, FlushDecompress::None)
            .map_err(|_| Corrupt)?;
        input.advance((state.total_in() - before) as usize);
        *is_at_end = status == Status::StreamEnd;
        if !*is_at_end || out.len() == out.capacity() {
            return Ok(());
        }
    }
}

fn unbrotli(
    state: &mut BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>,
    is_at_end: &mut bool,
    input: &mut Bytes,
    out: &mut Vec<u8>,
) -> Result<(), Corrupt> {
    if *is_at_end {
        return input.is_empty().then_some(()).ok_or(Corrupt);
    }
    let start = out.len();
    out.resize(out.capacity(), 0);
    let (mut available_in, mut used) = (input.len(), 0);
    let (mut available_out, mut written) = (out.len() - start, 0);
    let result = BrotliDecompressStream(
        &mut available_in,
        &mut used,
        input,
        &mut available_out,
        &mut written,
        &mut out[start..],
        &mut 0,
        state,
    );
    out.truncate(start + written);
    input.advance(used);
    match result {
        BrotliResult::ResultFailure => return Err(Corrupt),
        BrotliResult::ResultSuccess => *is_at_end = true,
        BrotliResult::NeedsMoreInput | BrotliResult::NeedsMoreOutput => {}
    }
    Ok(())
}

fn unzstd(
    state: &mut DCtx<'static>,
    is_at_end: &mut bool,
    input: &mut Bytes,
    out: &mut Vec<u8>,
) -> Result<(), Corrupt> {
    let mut source = InBuffer::around(input);
    while out.len() < out.capacity() {
        let (start, used) = (out.len(), source.pos());
        let mut target = OutBuffer::around_pos(out, start);
        let left = state
            .decompress_stream(&mut target, &mut source)
            .map_err(|_| Corrupt)?;
        // An idle call says nothing about where the frame is.
        let has_moved = source.pos() > used || out.len() > start;
        if has_moved {
            *is_at_end = left == 0;
        }
        if !has_moved || source.pos() == source.src.len() && left == 0 {
            break;
        }
    }
    let used = source.pos();
    input.advance(used);
    Ok(())
}
