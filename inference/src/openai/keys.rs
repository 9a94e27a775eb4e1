//! Keys that clients show, each with a name.
//!
//! Guarantees: a key is kept as its SHA-256 alone, and is never printed; the
//! time of a comparison says nothing of how much of a key was right, nor which
//! of them.

use std::fmt;
use std::fs::{self, File};
use std::hint::black_box;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use justapi_core::{HeaderMap, header};
use sha2::{Digest as _, Sha256};

use crate::Error;

/// Largest file of keys: ten thousand long ones.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The keys that a server accepts.
///
/// One a line, as `KEY` or `NAME:KEY`; a key without a name is called after its
/// line. Empty lines and those that begin with `#` are skipped.
#[derive(Clone)]
pub struct ApiKeys(Arc<[Key]>);

struct Key {
    name: Arc<str>,
    digest: [u8; 32],
}

impl ApiKeys {
    /// Reads the keys of a file that nobody but its owner can read.
    ///
    /// # Errors
    /// [`Error::Read`], and [`Error::Malformed`] for a file that others may
    /// read, that is too large, or that has no key.
    pub fn from_file(path: &Path) -> Result<Self, Error> {
        let read_error = |source| Error::Read {
            path: path.to_owned(),
            source,
        };
        let malformed = |what: String| Error::Malformed {
            path: path.to_owned(),
            what,
        };
        let mode = fs::metadata(path).map_err(read_error)?.permissions().mode();
        if mode & 0o077 != 0 {
            let what = format!(
                "others than its owner may read these keys (mode {:03o}, at most 600)",
                mode & 0o777
            );
            return Err(malformed(what));
        }
        let mut text = String::new();
        let file = File::open(path).map_err(read_error)?;
        let mut limited = file.take(MAX_FILE_BYTES + 1);
        limited.read_to_string(&mut text).map_err(read_error)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(malformed(format!("more than {MAX_FILE_BYTES} bytes")));
        }
        Self::parse(&text).map_err(|what| malformed(what.to_owned()))
    }

    /// Reads the keys of a text, such as the value of an environment variable.
    ///
    /// # Errors
    /// [`Error::Setting`] if it has no key; the text itself is not repeated.
    pub fn from_text(text: &str) -> Result<Self, Error> {
        Self::parse(text).map_err(|reason| Error::Setting {
            setting: "api-key",
            value: "***".to_owned(),
            reason: reason.to_owned(),
        })
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut keys = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, key) = match line.split_once(':') {
                Some((name, key)) => (name.trim().to_owned(), key.trim()),
                None => (format!("key-{}", index + 1), line),
            };
            if key.is_empty() || name.is_empty() {
                return Err("a line has an empty key or an empty name");
            }
            keys.push(Key {
                name: name.into(),
                digest: Sha256::digest(key).into(),
            });
        }
        if keys.is_empty() {
            return Err("no key");
        }
        Ok(Self(keys.into()))
    }

    /// Name of the key that a request shows; `None` if it shows none of these.
    ///
    /// `Authorization: Bearer` is OpenAI's, `x-api-key` Anthropic's.
    pub(super) fn name_of(&self, headers: &HeaderMap) -> Option<Arc<str>> {
        let shown = shown_key(headers).unwrap_or_default();
        let digest: [u8; 32] = Sha256::digest(shown).into();
        let mut name = None;
        for key in self.0.iter() {
            if is_equal(&key.digest, &digest) {
                name = Some(&key.name);
            }
        }
        name.cloned()
    }
}

/// The key that a request shows, of whatever scheme it says.
fn shown_key(headers: &HeaderMap) -> Option<&[u8]> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let value = value.as_bytes();
        let (scheme, key) = value.split_at_checked("Bearer ".len())?;
        return scheme
            .eq_ignore_ascii_case(b"Bearer ")
            .then(|| key.trim_ascii());
    }
    Some(headers.get("x-api-key")?.as_bytes())
}

/// Compares all bytes, wherever the first difference is.
fn is_equal(left: &[u8; 32], right: &[u8; 32]) -> bool {
    let pairs = left.iter().zip(right);
    let difference = pairs.fold(0, |all, (left, right)| black_box(all | (left ^ right)));
    difference == 0
}

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|key| &key.name);
        f.debug_list().entries(names).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use justapi_core::{HeaderName, HeaderValue};

    use super::*;

    const KEYS: &str = "# of the team\nalice: s3cret \n\nplain-key\n";

    #[track_caller]
    fn check(field: &'static str, value: &'static str, expected: Option<&str>) {
        let keys = ApiKeys::from_text(KEYS).expect("two keys");
        let mut headers = HeaderMap::new();
        headers.insert(
            HeaderName::from_static(field),
            HeaderValue::from_static(value),
        );
        assert_eq!(keys.name_of(&headers).as_deref(), expected, "{value}");
    }

    #[test]
    fn a_key_is_known_by_its_name() {
        check("authorization", "Bearer s3cret", Some("alice"));
        check("authorization", "bearer  s3cret", Some("alice"));
        check("x-api-key", "plain-key", Some("key-4"));
        check("authorization", "Bearer s3cre", None);
        check("authorization", "Bearer alice", None);
        check("authorization", "Basic s3cret", None);
        check("authorization", "s3cret", None);
        check("authorization", "Bearer ", None);
        check("x-other", "s3cret", None);
    }

    #[test]
    fn texts_without_a_key_are_refused_and_not_repeated() {
        for text in ["", "# only", "name:", ":key"] {
            let error = ApiKeys::from_text(text).expect_err("no key");
            assert!(error.to_string().starts_with("api-key = ***"), "{error}");
        }
        let shown = format!("{:?}", ApiKeys::from_text(KEYS).expect("two keys"));
        assert_eq!(shown, r#"["alice", "key-4"]"#);
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(KEYS.as_bytes()).expect("room");
        let set_mode = |mode| {
            fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).expect("own file");
        };
        set_mode(0o640);
        let error = ApiKeys::from_file(file.path()).expect_err("the group may read it");
        assert!(error.to_string().contains("mode 640"), "{error}");
        set_mode(0o600);
        let keys = ApiKeys::from_file(file.path()).expect("two keys");
        assert_eq!(keys.0.len(), 2);
    }
}
