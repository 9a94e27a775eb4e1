//! A response body, compared while it arrives.
//!
//! It guarantees that memory does not depend on the length of the body.

use sha2::{Digest as _, Sha256};

use super::plan::ExpectedBody;

/// What is known of a response body without keeping it.
#[derive(Debug)]
pub(super) struct BodyCheck {
    length: u64,
    /// Whether the body so far is a prefix of the expected bytes.
    equal: bool,
    hasher: Option<Sha256>,
}

impl BodyCheck {
    pub(super) const fn new() -> Self {
        Self {
            length: 0,
            equal: true,
            hasher: None,
        }
    }

    /// Begins another body; `digest` asks for its hash.
    pub(super) fn start(&mut self, digest: bool) {
        self.length = 0;
        self.equal = true;
        self.hasher = digest.then(Sha256::new);
    }

    /// Takes the next part of it.
    pub(super) fn update(&mut self, expected: Option<&ExpectedBody>, part: &[u8]) {
        if let (Some(ExpectedBody::Bytes(expected)), true) = (expected, self.equal) {
            let start = usize::try_from(self.length).unwrap_or(usize::MAX);
            let window = start
                .checked_add(part.len())
                .and_then(|end| expected.get(start..end));
            self.equal = window == Some(part);
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(part);
        }
        self.length += part.len() as u64;
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    pub(super) const fn is_hashing(&self) -> bool {
        self.hasher.is_some()
    }

    /// SHA-256 of the body, if it was asked for.
    pub(super) fn sha256(&self) -> Option<[u8; 32]> {
        self.hasher.clone().map(|hasher| hasher.finalize().into())
    }

    pub(super) fn matches(&self, expected: &ExpectedBody) -> bool {
        match expected {
            ExpectedBody::Bytes(bytes) => self.equal && self.length == bytes.len() as u64,
            ExpectedBody::Sha256(digest) => self.sha256() == Some(*digest),
        }
    }
}
