//! A response body, compared while it arrives.
//!
//! It guarantees that memory does not depend on the length of the body, but for JSON, which is
//! kept up to a limit.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::outcome::Outcome;
use super::plan::ExpectedBody;

/// Longest JSON body that is looked into, in bytes: longer ones are mismatches.
const MAX_JSON_BYTES: usize = 16 * 1024 * 1024;

/// What is known of a response body without keeping it.
#[derive(Debug)]
pub(super) struct BodyCheck {
    length: u64,
    /// Whether the body so far is a prefix of the expected bytes.
    equal: bool,
    /// Bodies so far, for those that are compared in a sample.
    count: u64,
    /// Whether this one is compared, where that is a sample.
    sampled: bool,
    hasher: Option<Sha256>,
    /// The body, where its values are asked for.
    kept: Vec<u8>,
}

impl BodyCheck {
    pub(super) const fn new() -> Self {
        Self {
            length: 0,
            equal: true,
            count: 0,
            sampled: false,
            hasher: None,
            kept: Vec::new(),
        }
    }

    /// Begins another body; `digest` asks for its hash.
    pub(super) fn start(&mut self, expected: Option<&ExpectedBody>, digest: bool) {
        let digest = digest || matches!(expected, Some(ExpectedBody::Sha256(_)));
        self.length = 0;
        self.equal = true;
        self.sampled = match expected {
            Some(ExpectedBody::Sampled { every, .. }) => {
                self.count.is_multiple_of(every.get().into())
            }
            _ => false,
        };
        self.count += 1;
        self.hasher = digest.then(Sha256::new);
        self.kept.clear();
    }

    /// Takes the next part of it.
    pub(super) fn update(&mut self, expected: Option<&ExpectedBody>, part: &[u8]) {
        let bytes = match expected {
            Some(ExpectedBody::Bytes(bytes)) => Some(bytes),
            Some(ExpectedBody::Sampled { bytes, .. }) if self.sampled => Some(bytes),
            _ => None,
        };
        if let (Some(expected), true) = (bytes, self.equal) {
            let start = usize::try_from(self.length).unwrap_or(usize::MAX);
            let window = start
                .checked_add(part.len())
                .and_then(|end| expected.get(start..end));
            self.equal = window == Some(part);
        }
        if matches!(expected, Some(ExpectedBody::Json(_))) {
            self.equal &= self.kept.len() + part.len() <= MAX_JSON_BYTES;
            if self.equal {
                self.kept.extend_from_slice(part);
            }
        }
        if let Some(hasher) = &mut self.hasher {
            hasher.update(part);
        }
        self.length += part.len() as u64;
    }

    pub(super) const fn length(&self) -> u64 {
        self.length
    }

    /// Whether more than the length of this body is asked for.
    pub(super) const fn is_looked_at(&self, expected: Option<&ExpectedBody>) -> bool {
        let is_compared = match expected {
            None => false,
            Some(ExpectedBody::Sampled { .. }) => self.sampled,
            Some(_) => true,
        };
        is_compared || self.hasher.is_some()
    }

    /// Whether it belongs to the sample that is compared.
    pub(super) const fn is_sampled(&self) -> bool {
        self.sampled
    }

    pub(super) const fn is_hashing(&self) -> bool {
        self.hasher.is_some()
    }

    /// SHA-256 of the body, if it was asked for.
    pub(super) fn sha256(&self) -> Option<[u8; 32]> {
        self.hasher.clone().map(|hasher| hasher.finalize().into())
    }

    /// Class of a response with an accepted status.
    pub(super) fn judge(&self, expected: Option<&ExpectedBody>) -> Outcome {
        match expected {
            Some(expected) if !self.matches(expected) => Outcome::BodyMismatch,
            _ => Outcome::Ok,
        }
    }

    fn matches(&self, expected: &ExpectedBody) -> bool {
        match expected {
            ExpectedBody::Bytes(bytes) | ExpectedBody::Sampled { bytes, .. } => {
                self.equal && self.length == bytes.len() as u64
            }
            ExpectedBody::Sha256(digest) => self.sha256() == Some(*digest),
            ExpectedBody::Json(rules) if self.equal => serde_json::from_slice(&self.kept)
                .is_ok_and(|found: Value| {
                    (rules.iter()).all(|rule| found.pointer(&rule.pointer) == Some(&rule.value))
                }),
            ExpectedBody::Json(_) => false,
        }
    }
}
