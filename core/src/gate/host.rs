//! Host grammar: `uri-host [ ":" port ]` (RFC 9110 §7.2, RFC 3986 §3.2.2).
//!
//! User information, a path, white space and a port number above 65535 are all
//! refused, so that no URL built from Host can be steered.

use std::net::Ipv6Addr;

/// Whether `value` is empty or a host with an optional port.
pub(crate) fn is_valid_host(value: &[u8]) -> bool {
    // Almost every host is unreserved characters up to its port.
    let usual = value
        .iter()
        .position(|&byte| !IS_UNRESERVED[usize::from(byte)])
        .unwrap_or(value.len());
    if is_port_suffix(&value[usual..]) {
        return true;
    }
    let (host, port) = match value {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|&byte| byte == b']') else {
                return false;
            };
            if !is_ipv6(&rest[..end]) {
                return false;
            }
            (&b""[..], &rest[end + 1..])
        }
        _ => {
            let end = value
                .iter()
                .position(|&byte| byte == b':')
                .unwrap_or(value.len());
            (&value[..end], &value[end..])
        }
    };
    is_reg_name(host) && is_port_suffix(port)
}

fn is_ipv6(text: &[u8]) -> bool {
    std::str::from_utf8(text).is_ok_and(|text| text.parse::<Ipv6Addr>().is_ok())
}

/// Unreserved characters of RFC 3986: all that usual hosts consist of.
static IS_UNRESERVED: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_usize;
    while byte < 256 {
        table[byte] =
            (byte as u8).is_ascii_alphanumeric() || matches!(byte as u8, b'-' | b'.' | b'_' | b'~');
        byte += 1;
    }
    table
};

fn is_reg_name(host: &[u8]) -> bool {
    let mut bytes = host.iter();
    while let Some(&byte) = bytes.next() {
        let valid = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => true,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => true,
            b'%' => {
                bytes.next().is_some_and(u8::is_ascii_hexdigit)
                    && bytes.next().is_some_and(u8::is_ascii_hexdigit)
            }
            _ => false,
        };
        if !valid {
            return false;
        }
    }
    true
}

fn is_port_suffix(suffix: &[u8]) -> bool {
    match suffix {
        [] => true,
        [b':', digits @ ..] => {
            let add = |port: u32, digit: &u8| {
                let is_digit = digit.is_ascii_digit();
                is_digit.then(|| port * 10 + u32::from(digit - b'0'))
            };
            digits.len() <= 5
                && digits
                    .iter()
                    .try_fold(0_u32, add)
                    .is_some_and(|port| port <= 65_535)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_valid_host;

    #[track_caller]
    fn check(host: &str, expected: bool) {
        assert_eq!(is_valid_host(host.as_bytes()), expected, "{host:?}");
    }

    #[test]
    fn host_grammar() {
        for valid in [
            "",
            "a",
            "localhost:8000",
            "127.0.0.1",
            "[::1]",
            "[::1]:80",
            "a.b-c_d",
            "a%20b",
            "a:",
            "xn--caf-dma.example",
        ] {
            check(valid, true);
        }
        for invalid in [
            "a@b",
            "a b",
            "a/b",
            "a?b",
            "a#b",
            "[::1",
            "[::1]x",
            "[zz]",
            "a:0x50",
            "a:65536",
            "a:123456",
            "a:8:8",
            "::1",
            "a%2",
            "a\\b",
            "caf\u{e9}",
            "a\tb",
            "<a>",
        ] {
            check(invalid, false);
        }
    }
}
