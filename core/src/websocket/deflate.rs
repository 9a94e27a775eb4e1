//! permessage-deflate's two halves (RFC 7692 §7.2), with bounded output.
//!
//! Guarantee: inflating stops with an error at the first byte beyond the limit
//! it is given, and never holds more than that. A context that is not taken
//! over is borrowed from its thread for one message, so an idle connection
//! without context takeover holds none (a compressor takes about 300 KiB, a
//! decompressor about 40 KiB).

use std::cell::RefCell;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

/// Largest window: 2^15 bytes.
pub(super) const MAX_WINDOW_BITS: u8 = 15;
/// Smallest window that zlib can compress with.
pub(super) const MIN_WINDOW_BITS: u8 = 9;
/// Level that a lane can afford: beyond it time grows much faster than the
/// ratio does.
const LEVEL: u32 = 3;
/// Message size from which compressing can pay: below it a deflate block
/// saves less than its overhead.
pub(super) const MIN_COMPRESSED_BYTES: usize = 64;
/// Input compressed at once, and so the largest fragment of a compressed
/// message: bounds the time for which a lane is held.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;
/// Decompressors that a thread keeps for messages to come.
const MAX_KEPT_DECOMPRESSORS: usize = 8;
/// Every compressed message ends in this; it is not sent.
const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];
/// Smallest step in which output grows.
const STEP_BYTES: usize = 4 * 1024;
const NUM_WINDOWS: usize = (MAX_WINDOW_BITS - MIN_WINDOW_BITS + 1) as usize;

thread_local! {
    /// One for each window size: compressing a message never waits.
    static COMPRESSORS: RefCell<[Option<Compress>; NUM_WINDOWS]> =
        const { RefCell::new([const { None }; NUM_WINDOWS]) };
    static DECOMPRESSORS: RefCell<Vec<Decompress>> = const { RefCell::new(Vec::new()) };
}

/// What was agreed with the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Agreement {
    /// Window that we compress with.
    pub(super) server_window_bits: u8,
    /// Window that the client compresses with, at most.
    pub(super) client_window_bits: u8,
    pub(super) server_takeover: bool,
    pub(super) client_takeover: bool,
}

/// Why a message could not be decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InflateError {
    TooLarge,
    Corrupt,
}

/// Decompresses the messages of one connection.
#[derive(Debug)]
pub(super) struct Inflater {
    takeover: bool,
    window_bits: u8,
    context: Option<Decompress>,
}

impl Inflater {
    pub(super) const fn new(agreement: Agreement) -> Self {
        Self {
            takeover: agreement.client_takeover,
            window_bits: agreement.client_window_bits,
            context: None,
        }
    }

    /// Appends what `input` decompresses to; `output` holds at most `limit`.
    pub(super) fn inflate(
        &mut self,
        mut input: &[u8],
        output: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(), InflateError> {
        let context = self.context.get_or_insert_with(|| {
            if self.takeover {
                let bits = self.window_bits.max(MIN_WINDOW_BITS);
                return Decompress::new_with_window_bits(false, bits);
            }
            let kept = DECOMPRESSORS.with_borrow_mut(Vec::pop);
            kept.unwrap_or_else(|| Decompress::new_with_window_bits(false, MAX_WINDOW_BITS))
        });
        loop {
            grow(output, limit);
            let (in_before, out_before) = (context.total_in(), output.len());
            let status = context
                .decompress_vec(input, output, FlushDecompress::Sync)
                .map_err(|_| InflateError::Corrupt)?;
            let consumed = (context.total_in() - in_before) as usize;
            input = &input[consumed..];
            if output.len() > limit {
                return Err(InflateError::TooLarge);
            }
            if status == Status::StreamEnd {
                // A block with BFINAL (RFC 7692 §7.2.3.4): zlib starts anew.
                context.reset(false);
                if input.is_empty() {
                    return Ok(());
                }
                continue;
            }
            let has_room = output.len() < output.capacity();
            if input.is_empty() && has_room {
                return Ok(());
            }
            if consumed == 0 && output.len() == out_before && has_room {
                return Err(InflateError::Corrupt);
            }
        }
    }

    /// Ends a message.
    pub(super) fn finish(
        &mut self,
        output: &mut Vec<u8>,
        limit: usize,
    ) -> Result<(), InflateError> {
        self.inflate(&TAIL, output, limit)?;
        if !self.takeover
            && let Some(mut context) = self.context.take()
        {
            DECOMPRESSORS.with_borrow_mut(|kept| {
                if kept.len() < MAX_KEPT_DECOMPRESSORS {
                    context.reset(false);
                    kept.push(context);
                }
            });
        }
        Ok(())
    }
}

/// Makes room in `output`, to one byte beyond `limit` and no further.
fn grow(output: &mut Vec<u8>, limit: usize) {
    if output.len() < output.capacity() {
        return;
    }
    let wanted = (2 * output.len()).max(output.len() + STEP_BYTES);
    let target = wanted.min(limit.saturating_add(1));
    output.reserve_exact(target.saturating_sub(output.len()));
}

/// Compresses the messages of one connection.
#[derive(Debug)]
pub(super) struct Deflater {
    takeover: bool,
    window_bits: u8,
    context: Option<Compress>,
}

impl Deflater {
    pub(super) const fn new(agreement: Agreement) -> Self {
        Self {
            takeover: agreement.server_takeover,
            window_bits: agreement.server_window_bits,
            context: None,
        }
    }

    /// Appends the compressed form of `input`, the next part of a message.
    ///
    /// # Panics
    /// When zlib refuses, which raw deflate with valid parameters never does.
    pub(super) fn deflate(&mut self, mut input: &[u8], output: &mut Vec<u8>, is_last: bool) {
        let slot = usize::from(self.window_bits - MIN_WINDOW_BITS);
        let context = self.context.get_or_insert_with(|| {
            let kept = COMPRESSORS.with_borrow_mut(|kept| kept[slot].take());
            kept.unwrap_or_else(|| {
                Compress::new_with_window_bits(Compression::new(LEVEL), false, self.window_bits)
            })
        });
        let flush = if is_last {
            FlushCompress::Sync
        } else {
            FlushCompress::None
        };
        loop {
            output.reserve(STEP_BYTES);
            let before = context.total_in();
            context
                .compress_vec(input, output, flush)
                .expect("raw deflate accepts any input");
            input = &input[(context.total_in() - before) as usize..];
            if input.is_empty() && output.len() < output.capacity() {
                break;
            }
        }
        if is_last {
            debug_assert!(output.ends_with(&TAIL), "a sync flush ends in its marker");
            output.truncate(output.len() - TAIL.len());
            if !self.takeover
                && let Some(mut context) = self.context.take()
            {
                context.reset();
                COMPRESSORS.with_borrow_mut(|kept| kept[slot] = Some(context));
            }
        }
    }
}
