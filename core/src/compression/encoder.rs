//! The three encoders behind one interface, and the lane's spare ones.
//!
//! Guarantees: a lane has at most [`MAX_OPEN_ENCODERS`] encoders at work, and
//! gzip and zstd states are used again, because allocating and clearing one
//! costs more than compressing a small document. Brotli's state cannot be
//! reset, so its window is kept small instead.

use std::cell::{Cell, RefCell};
use std::io::Write as _;

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::{Compress, FlushCompress, Status};
use zstd::zstd_safe::zstd_sys::ZSTD_EndDirective as EndDirective;
use zstd::zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer, ResetDirective, compress_bound};

use super::{Coding, Compression};

/// Encoders at work for open responses of one lane: about 1 MiB each.
pub(super) const MAX_OPEN_ENCODERS: usize = 64;
/// Idle encoders that a lane keeps for each coding.
const MAX_SPARE_ENCODERS: usize = 4;
/// Window of zstd and brotli, as a power of two: 256 KiB hold what repeats in
/// an API's answers, at an eighth of the default memory.
const WINDOW_BITS: u8 = 18;
/// Window of gzip: the format's most, 32 KiB.
const GZIP_WINDOW_BITS: u8 = 15;
/// Room that is made for output at a time.
const OUTPUT_STEP_BYTES: usize = 4 * 1024;
/// Input that brotli's writer is given at a time.
const BROTLI_BUFFER_BYTES: usize = 4 * 1024;

/// The encoder's library gave up; out of memory in practice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EncoderFailed;

/// One stream being encoded.
pub(super) struct Encoder {
    coding: Coding,
    level: u8,
    state: State,
}

enum State {
    Gzip(Compress),
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Zstd(CCtx<'static>),
}

impl Encoder {
    /// A spare encoder of the lane, or a new one.
    pub(super) fn take(coding: Coding, settings: &Compression) -> Result<Self, EncoderFailed> {
        let level = settings.level(coding);
        let spare = LANE.with(|lane| {
            let mut spare = lane.spare.borrow_mut();
            let fits = |kept: &Self| kept.coding == coding && kept.level == level;
            let index = spare.iter().position(fits)?;
            Some(spare.swap_remove(index))
        });
        spare.map_or_else(|| Self::new(coding, level), Ok)
    }

    /// Leaves the encoder to the lane's next response.
    pub(super) fn put(mut self) {
        let is_reset = match &mut self.state {
            State::Gzip(state) => {
                state.reset();
                true
            }
            State::Brotli(_) => false,
            State::Zstd(state) => state.reset(ResetDirective::SessionOnly).is_ok(),
        };
        if !is_reset {
            return;
        }
        // At the end of its thread a lane has nobody to leave it to.
        let _gone = LANE.try_with(|lane| {
            let mut spare = lane.spare.borrow_mut();
            let is_same = |kept: &&Self| kept.coding == self.coding;
            if spare.iter().filter(is_same).count() < MAX_SPARE_ENCODERS {
                spare.push(self);
            }
        });
    }

    fn new(coding: Coding, level: u8) -> Result<Self, EncoderFailed> {
        let state = match coding {
            Coding::Gzip => {
                let level = flate2::Compression::new(level.into());
                State::Gzip(Compress::new_gzip(level, GZIP_WINDOW_BITS))
            }
            Coding::Brotli => {
                let parameters = BrotliEncoderParams {
                    quality: level.into(),
                    lgwin: WINDOW_BITS.into(),
                    ..BrotliEncoderParams::default()
                };
                let writer =
                    CompressorWriter::with_params(Vec::new(), BROTLI_BUFFER_BYTES, &parameters);
                State::Brotli(Box::new(writer))
            }
            Coding::Zstd => {
                let mut state = CCtx::try_create().ok_or(EncoderFailed)?;
                for parameter in [
                    CParameter::CompressionLevel(level.into()),
                    CParameter::WindowLog(WINDOW_BITS.into()),
                ] {
                    state.set_parameter(parameter).map_err(|_| EncoderFailed)?;
                }
                State::Zstd(state)
            }
        };
        Ok(Self {
            coding,
            level,
            state,
        })
    }

    /// Encodes `input`; some of the result may stay inside.
    pub(super) fn write(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<(), EncoderFailed> {
        match &mut self.state {
            State::Gzip(state) => deflate(state, input, out, FlushCompress::None),
            State::Brotli(writer) => {
                writer.write_all(input).map_err(|_| EncoderFailed)?;
                out.append(writer.get_mut());
                Ok(())
            }
            State::Zstd(state) => {
                let directive = EndDirective::ZSTD_e_continue;
                zstd_step(state, input, out, directive)
            }
        }
    }

    /// Gives out everything that was written, so that it can be decoded.
    pub(super) fn flush(&mut self, out: &mut Vec<u8>) -> Result<(), EncoderFailed> {
        match &mut self.state {
            State::Gzip(state) => deflate(state, &[], out, FlushCompress::Sync),
            State::Brotli(writer) => {
                writer.flush().map_err(|_| EncoderFailed)?;
                out.append(writer.get_mut());
                Ok(())
            }
            State::Zstd(state) => zstd_step(state, &[], out, EndDirective::ZSTD_e_flush),
        }
    }

    /// Room for `num_bytes` encoded in one go, so that it takes one step.
    ///
    /// With less than the bound zstd goes through buffers of its own.
    pub(super) fn room(&self, num_bytes: usize) -> usize {
        match self.state {
            State::Gzip(_) | State::Brotli(_) => num_bytes / 2,
            State::Zstd(_) => compress_bound(num_bytes),
        }
    }

    /// Ends the stream after `input`, and leaves the encoder to the lane.
    pub(super) fn finish(self, input: &[u8], out: &mut Vec<u8>) -> Result<(), EncoderFailed> {
        let state = match self.state {
            State::Gzip(mut state) => {
                deflate(&mut state, input, out, FlushCompress::Finish)?;
                State::Gzip(state)
            }
            State::Brotli(mut writer) => {
                writer.write_all(input).map_err(|_| EncoderFailed)?;
                out.append(&mut writer.into_inner());
                return Ok(());
            }
            State::Zstd(mut state) => {
                zstd_step(&mut state, input, out, EndDirective::ZSTD_e_end)?;
                State::Zstd(state)
            }
        };
        Self { state, ..self }.put();
        Ok(())
    }
}

fn deflate(
    state: &mut Compress,
    mut input: &[u8],
    out: &mut Vec<u8>,
    flush: FlushCompress,
) -> Result<(), EncoderFailed> {
    loop {
        out.reserve(OUTPUT_STEP_BYTES);
        let before = state.total_in();
        let status = state.compress_vec(input, out, flush);
        input = &input[(state.total_in() - before) as usize..];
        let is_done = match (status, flush) {
            (Err(_), _) => return Err(EncoderFailed),
            (Ok(Status::StreamEnd), _) => true,
            (Ok(_), FlushCompress::Finish) => false,
            // Room that was left over means that nothing is held back.
            (Ok(_), _) => input.is_empty() && out.len() < out.capacity(),
        };
        if is_done {
            return Ok(());
        }
    }
}

fn zstd_step(
    state: &mut CCtx<'static>,
    input: &[u8],
    out: &mut Vec<u8>,
    directive: EndDirective,
) -> Result<(), EncoderFailed> {
    let mut input = InBuffer::around(input);
    loop {
        out.reserve(OUTPUT_STEP_BYTES);
        let start = out.len();
        let mut output = OutBuffer::around_pos(out, start);
        let left = state
            .compress_stream2(&mut output, &mut input, directive)
            .map_err(|_| EncoderFailed)?;
        let is_taken = input.pos() == input.src.len();
        if is_taken && (left == 0 || directive == EndDirective::ZSTD_e_continue) {
            return Ok(());
        }
    }
}

/// What a lane's thread has of encoders.
struct Lane {
    num_open: Cell<usize>,
    spare: RefCell<Vec<Encoder>>,
}

thread_local! {
    static LANE: Lane = const {
        Lane {
            num_open: Cell::new(0),
            spare: RefCell::new(Vec::new()),
        }
    };
}

/// The right to have one encoder open, given back when dropped.
#[derive(Debug)]
pub(super) struct Permit(());

impl Permit {
    /// `None` when [`MAX_OPEN_ENCODERS`] are at work.
    pub(super) fn take() -> Option<Self> {
        LANE.with(|lane| {
            let open = lane.num_open.get();
            (open < MAX_OPEN_ENCODERS).then(|| {
                lane.num_open.set(open + 1);
                Self(())
            })
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        // At the end of its thread nobody counts any more.
        let _gone = LANE.try_with(|lane| lane.num_open.set(lane.num_open.get().saturating_sub(1)));
    }
}
