//! Which request paths may name a file.
//!
//! Guarantee: what passes is relative, has no empty, `.` or `..` segment and
//! no byte that some layer reads as a separator; names that begin with a dot
//! pass only when the mount allows them. Opening checks the rest.

/// A path below the mount that may name a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    /// Segments with single slashes between; empty for the root.
    pub(super) path: &'a str,
    /// Whether it ended with a slash, so that only a folder will do.
    pub(super) is_folder: bool,
}

/// Why a path names nothing that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unwanted {
    /// No file can have it.
    NoName,
    /// It has more bytes than are allowed.
    TooLong,
}

impl<'a> Wanted<'a> {
    /// The root of the mount.
    pub(super) const ROOT: Self = Self {
        path: "",
        is_folder: true,
    };

    /// Checks a decoded path, which may have `max_bytes`.
    pub(super) fn new(
        decoded: &'a str,
        serves_hidden: bool,
        max_bytes: usize,
    ) -> Result<Self, Unwanted> {
        let path = decoded.strip_suffix('/');
        let is_folder = path.is_some();
        let path = path.unwrap_or(decoded);
        let is_plain = |byte: u8| byte >= b' ' && byte != 0x7f && byte != b'\\';
        let is_name = |name: &str| match name {
            "" | "." | ".." => false,
            name => serves_hidden || !name.starts_with('.'),
        };
        if path.len() > max_bytes {
            return Err(Unwanted::TooLong);
        }
        if path.bytes().all(is_plain) && path.split('/').all(is_name) {
            Ok(Self { path, is_folder })
        } else {
            Err(Unwanted::NoName)
        }
    }
}

/// Whether a raw path holds an encoded slash, which names no file: decoded, it
/// would split a segment that the router saw whole.
pub(super) fn has_encoded_slash(raw: &str) -> bool {
    triplets(raw).any(|(high, low)| high == b'2' && low.eq_ignore_ascii_case(&b'f'))
}

/// Whether a raw path encodes only what has to be, with upper-case digits.
///
/// Other spellings of the same file are served but not kept: a client could
/// fill a cache with them.
pub(super) fn is_canonical(raw: &str) -> bool {
    triplets(raw).all(|(high, low)| {
        let is_upper = |digit: u8| digit.is_ascii_digit() || (b'A'..=b'F').contains(&digit);
        let value = |digit: u8| char::from(digit).to_digit(16).unwrap_or_default() as u8;
        let byte = value(high) << 4 | value(low);
        is_upper(high)
            && is_upper(low)
            && !(byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@".contains(&byte))
    })
}

/// The two digits after each percent sign; zeros where one is missing.
fn triplets(raw: &str) -> impl Iterator<Item = (u8, u8)> {
    let bytes = raw.as_bytes();
    memchr::memchr_iter(b'%', bytes).map(|index| {
        let digit = |offset| bytes.get(index + offset).copied().unwrap_or_default();
        (digit(1), digit(2))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_STATIC_PATH_BYTES;

    #[track_caller]
    fn check(decoded: &str, expected: Option<(&str, bool)>) {
        let found = Wanted::new(decoded, false, MAX_STATIC_PATH_BYTES);
        let found = found.map(|wanted| (wanted.path, wanted.is_folder));
        assert_eq!(found, expected.ok_or(Unwanted::NoName), "{decoded:?}");
    }

    #[test]
    fn files_and_folders_pass() {
        check("a", Some(("a", false)));
        check("a/", Some(("a", true)));
        check("a/b c/ü.txt", Some(("a/b c/ü.txt", false)));
        check("a..b/c.", Some(("a..b/c.", false)));
        check("C:", Some(("C:", false)));
    }

    #[test]
    fn what_could_leave_or_be_misread_does_not() {
        for bad in [
            "", "/", "//", "a//", "/a", "a//b", ".", "..", "../a", "a/..", "a/../b", "a/./b",
            "..\\a", "a\\b", "a\0b", "a\nb", "\t/evil", "a\x7f", ".git", "a/.env", "...", ".a/b",
        ] {
            check(bad, None);
        }
        check(&"a/".repeat(2048), Some((&"a/".repeat(2048)[..4095], true)));
    }

    #[test]
    fn a_long_path_is_told_from_a_wrong_one() {
        let new = |decoded: &str, most| Wanted::new(decoded, false, most).map(|_| ());
        let long = "a".repeat(4097);
        assert_eq!(new(&long, 4096), Err(Unwanted::TooLong));
        assert_eq!(new(&long[1..], 4096), Ok(()));
        assert_eq!(new("abc/", 3), Ok(()));
        assert_eq!(new("abcd", 3), Err(Unwanted::TooLong));
        assert_eq!(new("..", 3), Err(Unwanted::NoName));
    }

    #[test]
    fn hidden_names_pass_where_they_are_served() {
        let check = |decoded, expected| {
            let found = Wanted::new(decoded, true, MAX_STATIC_PATH_BYTES);
            assert_eq!(found.is_ok(), expected, "{decoded}");
        };
        check(".well-known/x", true);
        check("...", true);
        check("..", false);
        check("a/..", false);
        check("./a", false);
    }

    #[test]
    fn encoded_slashes_are_seen() {
        assert!(has_encoded_slash("/a%2fb") && has_encoded_slash("/%2e%2e%2Fetc"));
        for fine in ["/a/b", "/a%252Fb", "/%2", "/a%20b%5C"] {
            assert!(!has_encoded_slash(fine), "{fine}");
        }
    }

    #[test]
    fn one_spelling_is_canonical() {
        for canonical in ["/a-b_c.~/d", "/a%20b", "/%C3%BC", "/a%2Fb"] {
            assert!(is_canonical(canonical), "{canonical}");
        }
        for other in ["/%61", "/%c3%bc", "/a%2Eb", "/%2a", "/%", "/%4"] {
            assert!(!is_canonical(other), "{other}");
        }
    }
}
