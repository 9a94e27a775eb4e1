//! Percent-encoding of paths: one canonical spelling, and decoding.
//!
//! Guarantee: two paths that RFC 3986 §6.2.2 calls equivalent by case and
//! percent-encoding have the same canonical spelling, with the same number
//! of `/`: an encoded slash stays encoded. Dot segments are left alone.

use percent_encoding::percent_decode_str;

const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";

/// Canonical spelling of a request path.
///
/// Encoded unreserved characters are decoded, other triplets get upper-case
/// digits, and raw non-ASCII is encoded. `None` when a triplet is invalid,
/// encodes NUL, or the decoded path is not UTF-8.
pub(super) fn canonical_path(path: &str) -> Option<String> {
    canonical(path, |byte| byte.is_ascii())
}

/// Canonical spelling of the fixed text of a route pattern.
///
/// As [`canonical_path`]; what no URI may hold raw is encoded too, because
/// that is how a client sends it.
pub(super) fn canonical_literal(text: &str) -> Option<String> {
    canonical(text, is_path_character)
}

/// Decodes text; `None` when it is not UTF-8.
pub(super) fn decode(text: &str) -> Option<Box<str>> {
    let bytes = percent_decode_str(text).collect();
    Some(String::from_utf8(bytes).ok()?.into_boxed_str())
}

fn canonical(text: &str, stays_raw: impl Fn(u8) -> bool) -> Option<String> {
    let mut out = String::with_capacity(text.len() + 8);
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = hex_digit(bytes.next()?)?;
            let low = hex_digit(bytes.next()?)?;
            match high << 4 | low {
                0 => return None,
                decoded if is_unreserved(decoded) => out.push(char::from(decoded)),
                decoded => push_encoded(&mut out, decoded),
            }
        } else if stays_raw(byte) {
            out.push(char::from(byte));
        } else {
            push_encoded(&mut out, byte);
        }
    }
    decode(&out)?;
    Some(out)
}

fn push_encoded(out: &mut String, byte: u8) {
    out.push('%');
    out.push(char::from(HEX_UPPER[usize::from(byte >> 4)]));
    out.push(char::from(HEX_UPPER[usize::from(byte & 0xf)]));
}

fn hex_digit(byte: u8) -> Option<u8> {
    let digit = char::from(byte).to_digit(16)?;
    u8::try_from(digit).ok()
}

/// RFC 3986 §2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// `pchar` of RFC 3986 §3.3 without triplets.
fn is_path_character(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(path: &str, canonical: Option<&str>) {
        assert_eq!(canonical_path(path).as_deref(), canonical, "{path}");
    }

    #[test]
    fn unreserved_is_decoded_and_the_rest_is_upper_case() {
        check("/%61%2d%7Eb", Some("/a-~b"));
        check("/caf%c3%a9", Some("/caf%C3%A9"));
        check("/café", Some("/caf%C3%A9"));
        check("/a%2fb%3f", Some("/a%2Fb%3F"));
        check("/%2e%2E/x", Some("/../x"));
        check("/%2541", Some("/%2541"));
    }

    #[test]
    fn broken_encoding_has_no_canonical_form() {
        for path in [
            "/%", "/%f", "/%zz", "/%+1", "/%00", "/%ff", "/%C3/%A9", "/%c3",
        ] {
            check(path, None);
        }
    }

    #[test]
    fn literals_encode_what_a_client_encodes() {
        assert_eq!(
            canonical_literal("a\"b|ü%7b").as_deref(),
            Some("a%22b%7C%C3%BC%7B")
        );
        assert_eq!(canonical_literal("~v1:@a+b").as_deref(), Some("~v1:@a+b"));
        assert_eq!(canonical_literal("100%"), None);
    }

    /// What a path says, read byte by byte by the words of RFC 3986 §2.1.
    fn said(path: &str) -> Option<String> {
        let mut said = Vec::new();
        let mut rest = path.as_bytes();
        while let [first, after @ ..] = rest {
            rest = after;
            if *first != b'%' {
                said.push(*first);
                continue;
            }
            let digits = rest
                .get(..2)
                .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
            let digits = std::str::from_utf8(digits).ok()?;
            said.push(
                u8::from_str_radix(digits, 16)
                    .ok()
                    .filter(|byte| *byte != 0)?,
            );
            rest = &rest[2..];
        }
        String::from_utf8(said).ok()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// What is routed means what was sent, and all of that is routed.
        #[test]
        fn a_path_is_decoded_as_the_rfc_says(
            path in "(/([a-c09._~é€!$&:@+-]|%[0-9A-Fa-f]{2}|%[46][0-9a-f]|%C3%A9|%e2%82%ac|%[0-9x+]{0,2}){0,4}){1,4}",
        ) {
            let canonical = canonical_path(&path);
            let decoded = canonical.as_deref().and_then(decode).map(String::from);
            prop_assert_eq!(&decoded, &said(&path));
            if let (Some(decoded), Some(canonical)) = (decoded, canonical) {
                let by_library = percent_decode_str(&path).decode_utf8().unwrap();
                prop_assert_eq!(&decoded, &*by_library);
                prop_assert_eq!(canonical.matches('/').count(), path.matches('/').count());
                prop_assert!(canonical.is_ascii());
            }
        }

        #[test]
        fn canonical_is_a_fixed_point_and_means_the_same(path in "(/[a-cé%2-6AFaf]{0,8}){1,4}") {
            if let Some(once) = canonical_path(&path) {
                prop_assert_eq!(canonical_path(&once), Some(once.clone()));
                prop_assert_eq!(decode(&once), decode(&path));
                prop_assert_eq!(once.matches('/').count(), path.matches('/').count());
            }
        }
    }
}
