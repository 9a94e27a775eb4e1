//! The pieces of a body that is read as a whole: bytes, documents and
//! urlencoded forms.
//!
//! Guarantees: a body of one piece is not copied; all bodies of a server that
//! are put together on its lanes hold at most
//! [`MAX_BODY_MEMORY_BYTES`](crate::limits::MAX_BODY_MEMORY_BYTES) of pieces,
//! until the last user of their bytes has dropped them. Each process (a worker)
//! has as much. Not counted are a body of one piece, what a handler keeps of a
//! streamed one, and the parts of a multipart form.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};

use crate::error::BodyError;
use crate::limits::Reject;
use crate::server::scope;

/// What the bodies of one server hold.
#[derive(Debug, Default)]
pub(crate) struct BodyMemory {
    num_bytes: AtomicU64,
}

/// A share of it, given back when it is dropped.
#[derive(Debug)]
struct Share {
    memory: Arc<BodyMemory>,
    num_bytes: u64,
}

impl Share {
    /// Takes more, unless that would be more than `limit` in all.
    fn grow(&mut self, num_bytes: u64, limit: u64) -> Result<(), BodyError> {
        let add = |held: u64| held.checked_add(num_bytes).filter(|sum| *sum <= limit);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.memory.num_bytes.fetch_update(set, get, add) {
            Ok(_) => {
                self.num_bytes += num_bytes;
                Ok(())
            }
            Err(_) => Err(BodyError::OutOfMemory { limit }),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory
            .num_bytes
            .fetch_sub(self.num_bytes, Ordering::Relaxed);
    }
}

/// Bytes of a body with their share.
struct Shared {
    bytes: BytesMut,
    _share: Share,
}

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A body that is being put together.
#[derive(Debug, Default)]
pub(crate) struct Collected {
    first: Bytes,
    /// All of it, from the second piece on.
    all: BytesMut,
    /// None off a lane.
    share: Option<Share>,
}

impl Collected {
    /// Adds a piece.
    ///
    /// # Errors
    /// [`BodyError::OutOfMemory`] when there is no room for it.
    pub(crate) fn push(&mut self, piece: Bytes) -> Result<(), BodyError> {
        if piece.is_empty() {
            return Ok(());
        }
        if self.is_empty() {
            // What one read brings is bounded by the number of connections.
            self.first = piece;
            return Ok(());
        }
        let first = std::mem::take(&mut self.first);
        if self.all.is_empty() {
            self.share = scope::body_memory().map(|memory| Share {
                memory,
                num_bytes: 0,
            });
        }
        if let Some(share) = &mut self.share {
            let limit = scope::with_limits(|limits| limits.max_body_memory_bytes);
            let grown = share.grow((first.len() + piece.len()) as u64, limit);
            grown.inspect_err(|_| scope::count_rejected(Reject::BodyMemory))?;
        }
        if self.all.is_empty() {
            self.all.reserve(2 * (first.len() + piece.len()));
            self.all.extend_from_slice(&first);
        }
        self.all.extend_from_slice(&piece);
        Ok(())
    }

    /// Whether nothing has come, or nothing is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_empty() && self.all.is_empty()
    }

    /// The last byte that has come.
    pub(crate) fn last(&self) -> Option<u8> {
        self.all.last().or_else(|| self.first.last()).copied()
    }

    /// All pieces; nothing is left.
    pub(crate) fn take(&mut self) -> Bytes {
        if self.all.is_empty() {
            return std::mem::take(&mut self.first);
        }
        let bytes = std::mem::take(&mut self.all);
        match self.share.take() {
            Some(share) => Bytes::from_owner(Shared {
                bytes,
                _share: share,
            }),
            None => bytes.freeze(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(memory: &Arc<BodyMemory>) -> Share {
        Share {
            memory: Arc::clone(memory),
            num_bytes: 0,
        }
    }

    #[test]
    fn a_share_is_given_back_with_the_last_bytes() {
        let memory = Arc::new(BodyMemory::default());
        let held = || memory.num_bytes.load(Ordering::Relaxed);
        let mut first = share(&memory);
        first.grow(60, 100).unwrap();
        let refused = share(&memory).grow(41, 100);
        assert!(matches!(
            refused,
            Err(BodyError::OutOfMemory { limit: 100 })
        ));
        assert_eq!(held(), 60);
        let mut collected = Collected {
            first: Bytes::new(),
            all: BytesMut::from(&b"body"[..]),
            share: Some(first),
        };
        let bytes = collected.take();
        let clone = bytes.slice(1..3);
        drop((bytes, collected));
        assert_eq!((&clone[..], held()), (&b"od"[..], 60));
        drop(clone);
        assert_eq!(held(), 0);
    }

    #[test]
    fn no_number_of_bytes_overflows() {
        let memory = Arc::new(BodyMemory::default());
        let mut first = share(&memory);
        first.grow(u64::MAX, u64::MAX).unwrap();
        assert!(share(&memory).grow(1, u64::MAX).is_err());
    }
}
