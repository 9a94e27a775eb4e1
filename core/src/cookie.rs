//! Cookies: what a request brought, and what a response sets (RFC 6265bis).
//!
//! Guarantee: reading allocates nothing, and a cookie that is set can neither
//! end its header line nor add an attribute of its own.

use std::time::Duration;

use http::HeaderMap;
use http::header::{COOKIE, HeaderValue};

use crate::gate::is_token_byte;
use crate::request::Request;

/// Pairs of a request that are read; browsers keep at most 180 for a site.
const MAX_COOKIES: usize = 200;

impl Request {
    /// Value of the first cookie of this name, without quotes around it.
    pub fn cookie(&self, name: &str) -> Option<&str> {
        cookies(self.headers()).find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Cookies in the order they were sent, at most 200; names may repeat.
    pub fn cookies(&self) -> impl Iterator<Item = (&str, &str)> {
        cookies(self.headers())
    }
}

/// Name and value of each cookie; what is not ASCII text is left out.
pub(crate) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = (&str, &str)> {
    headers
        .get_all(COOKIE)
        .iter()
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(';'))
        .take(MAX_COOKIES)
        .filter_map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let (name, value) = (name.trim_ascii(), value.trim_ascii());
            let bare = value
                .strip_prefix('"')
                .and_then(|value| value.strip_suffix('"'))
                .unwrap_or(value);
            (!name.is_empty()).then_some((name, bare))
        })
}

/// Whether `name` may be the name of a cookie: a token.
pub(crate) fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(is_token_byte)
}

/// `Set-Cookie` for all paths, out of reach of scripts and of other sites'
/// forms.
///
/// `name` is valid and `value` base64: the caller's guarantee.
pub(crate) fn set_cookie(
    name: &str,
    value: &str,
    max_age: Duration,
    is_secure: bool,
) -> HeaderValue {
    let secure = if is_secure { "; Secure" } else { "" };
    let max_age = max_age.as_secs();
    let text = format!("{name}={value}; Max-Age={max_age}; Path=/; HttpOnly; SameSite=Lax{secure}");
    HeaderValue::try_from(text).expect("a token and base64 are a valid value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[&str], expected: &[(&str, &str)]) {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(COOKIE, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        assert_eq!(cookies(&headers).collect::<Vec<_>>(), expected, "{lines:?}");
    }

    #[test]
    fn pairs_are_read_in_order() {
        check(&["a=1"], &[("a", "1")]);
        check(
            &["a=1; b=2;c=3 ;  d = 4"],
            &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")],
        );
        check(&["a=1", "a=2"], &[("a", "1"), ("a", "2")]);
        check(&["a=b=c; d="], &[("a", "b=c"), ("d", "")]);
        check(
            &["a=\"1 2\"; b=\"; c=\"\""],
            &[("a", "1 2"), ("b", "\""), ("c", "")],
        );
        check(&[";; a=1;;", "x", "=y", ""], &[("a", "1")]);
        check(&["a=caf\u{e9}", "b=1"], &[("b", "1")]);
    }

    #[test]
    fn the_number_of_pairs_is_bounded() {
        let mut headers = HeaderMap::new();
        headers.append(
            COOKIE,
            HeaderValue::try_from("a=1;".repeat(10_000)).unwrap(),
        );
        assert_eq!(cookies(&headers).count(), MAX_COOKIES);
    }

    #[test]
    fn names_are_tokens() {
        assert!(is_valid_name("__Host-session"));
        for bad in ["", "a b", "a=b", "a;b", "a\n", "caf\u{e9}", "a\""] {
            assert!(!is_valid_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn secure_only_where_told() {
        let set = |is_secure| set_cookie("s", "v", Duration::from_mins(1), is_secure);
        assert_eq!(
            set(false),
            "s=v; Max-Age=60; Path=/; HttpOnly; SameSite=Lax"
        );
        assert_eq!(
            set(true),
            "s=v; Max-Age=60; Path=/; HttpOnly; SameSite=Lax; Secure"
        );
    }
}
