//! Digests that a hub gives for its files: SHA-256 of large ones, git's of small ones.

use std::fmt::Write as _;

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// A digest that is being computed, of the kind that the promised one is.
#[derive(Clone, Debug)]
pub(super) enum Hasher {
    /// SHA-256, 64 digits.
    Sha256(Box<Sha256>),
    /// SHA-1 of git's blob, 40 digits.
    Git(Box<Sha1>),
    /// The promise is not a digest that is known.
    None,
}

impl Hasher {
    /// Makes the hasher for a promised digest of a file of this size.
    pub(super) fn for_promise(digest: &str, num_bytes: Option<u64>) -> Self {
        let is_hex = digest.bytes().all(|byte| byte.is_ascii_hexdigit());
        match (digest.len(), num_bytes) {
            (64, _) if is_hex => Self::Sha256(Box::default()),
            (40, Some(num_bytes)) if is_hex => {
                let mut hasher = Sha1::new();
                hasher.update(format!("blob {num_bytes}\0"));
                Self::Git(Box::new(hasher))
            }
            _ => Self::None,
        }
    }

    /// Takes the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Git(hasher) => hasher.update(bytes),
            Self::None => {}
        }
    }

    /// Returns the name of the digest and its digits; nothing if there is no promise.
    pub(super) fn finish(self) -> Option<(&'static str, String)> {
        match self {
            Self::Sha256(hasher) => Some(("SHA-256", hex(&hasher.finalize()))),
            Self::Git(hasher) => Some(("git's SHA-1", hex(&hasher.finalize()))),
            Self::None => None,
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("strings can always grow");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(content: &[u8], promise: &str, expected: Option<&str>) {
        let mut hasher = Hasher::for_promise(promise, Some(content.len() as u64));
        for part in content.chunks(3) {
            hasher.update(part);
        }
        let found = hasher.finish().map(|(_, digits)| digits);
        assert_eq!(found.as_deref(), expected);
    }

    #[test]
    fn digests_are_those_of_coreutils_and_git() {
        let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        check(b"hello", sha256, Some(sha256));
        // `printf 'hello\n' | git hash-object --stdin`.
        let git = "ce013625030ba8dba906f756967f9e9ca394464a";
        check(b"hello\n", git, Some(git));
        check(b"hello", "some-other-etag", None);
    }
}
