//! Words as a POSIX shell reads them back, for the commands that are shown to people.

use std::path::Path;

/// A word as a POSIX shell reads it back.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    if !word.is_empty() && !word.starts_with('-') && word.bytes().all(plain) {
        word.to_owned()
    } else if word.starts_with('-') {
        // A folder that looks like a flag.
        quoted(&format!("./{word}"))
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A path as a POSIX shell reads it back.
pub(crate) fn quoted_path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, expected) in [
            ("demo", "demo"),
            ("../a/b_c.d", "../a/b_c.d"),
            ("my api", "'my api'"),
            ("a b'ü$x", "'a b'\\''ü$x'"),
            ("-x", "./-x"),
            ("", "''"),
            ("a\nb", "'a\nb'"),
            ("/a b/c'd", r"'/a b/c'\''d'"),
        ] {
            assert_eq!(quoted(word), expected);
            assert_eq!(quoted_path(Path::new(word)), expected);
        }
    }
}
