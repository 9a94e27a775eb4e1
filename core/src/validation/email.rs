//! The format `email`, at the speed of its usual form.
//!
//! Guarantee: the verdict is the library's. Addresses that are plainly valid
//! (RFC 5321 §4.1.2, without quotes, literals and internationalised names) are
//! seen to be so here; for all others the library is asked.

use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Value, json};

/// RFC 5321 §4.5.3.1.1.
const MAX_LOCAL_PART_BYTES: usize = 64;
/// RFC 1035 §2.3.4, without the length of the root.
const MAX_DOMAIN_BYTES: usize = 253;
const MAX_LABEL_BYTES: usize = 63;

/// Whether `text` has the format.
pub(super) fn is_valid(text: &str) -> bool {
    static LIBRARY: LazyLock<Validator> = LazyLock::new(|| {
        jsonschema::options()
            .should_validate_formats(true)
            .build(&json!({"format": "email"}))
            .expect("a valid schema")
    });
    is_plain(text.as_bytes()) || LIBRARY.is_valid(&Value::from(text))
}

/// Whether `text` is valid beyond doubt.
fn is_plain(text: &[u8]) -> bool {
    let Some(at) = memchr::memchr(b'@', text) else {
        return false;
    };
    let (local, domain) = (&text[..at], &text[at + 1..]);
    local.len() <= MAX_LOCAL_PART_BYTES
        && domain.len() <= MAX_DOMAIN_BYTES
        && local.split(|byte| *byte == b'.').all(is_plain_atom)
        && domain.split(|byte| *byte == b'.').all(is_plain_label)
}

fn is_plain_atom(atom: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'+');
    !atom.is_empty() && atom.iter().all(is_plain)
}

/// A label of letters, digits and inner hyphens that is not reserved for
/// internationalised names (RFC 5890 §2.3.1).
fn is_plain_label(label: &[u8]) -> bool {
    let (Some(first), Some(last)) = (label.first(), label.last()) else {
        return false;
    };
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'-';
    label.len() <= MAX_LABEL_BYTES
        && first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && label.get(2..4) != Some(b"--")
        && label.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Whether the library accepts it, asked in another way than above.
    fn library(text: &str) -> bool {
        let schema = json!({"type": "string", "format": "email"});
        let options = jsonschema::draft7::options().should_validate_formats(true);
        options.build(&schema).unwrap().is_valid(&json!(text))
    }

    #[track_caller]
    fn check(text: &str, expected: bool) {
        assert_eq!(
            (library(text), is_valid(text)),
            (expected, expected),
            "{text}"
        );
    }

    #[test]
    fn the_usual_form_is_seen_without_the_library() {
        for text in ["ada@example.com", "a.b+c_d-e@x-1.example.co", "1@2"] {
            check(text, true);
            assert!(is_plain(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn lengths_are_the_librarys() {
        let label = "l".repeat(63);
        let domain = [&*label, &*label, &*label, &label[..61]].join(".");
        check(&format!("{}@{domain}", "a".repeat(64)), true);
        check(&format!("{}@{domain}", "a".repeat(65)), false);
        check(&format!("a@{domain}d"), false);
        check(&format!("a@{label}l.com"), false);
    }

    #[test]
    fn unusual_forms_are_the_librarys() {
        for text in ["\"a b\"@example.com", "\"\"@example.com", "a@[127.0.0.1]"] {
            check(text, true);
            assert!(!is_plain(text.as_bytes()), "{text}");
        }
        for text in [
            "", "@", "a@", "@a", "a", "a..b@c", ".a@b", "a.@b", "a@b..c", "a@-b", "a@b-", "a@b_c",
            "a@xn--X", "a@ab--cd", "a@b@c", "a b@c", "ä@b.c", "a@b.c.",
        ] {
            check(text, false);
        }
    }

    proptest! {
        #[test]
        fn verdicts_are_the_librarys(text in "[a-zA0-9.@+_ä<\" -]{0,12}|[a-z.-]{0,4}@(xn--|[a-z]{2}--)?[a-z0-9.-]{0,8}") {
            prop_assert_eq!(is_valid(&text), library(&text));
        }
    }
}
