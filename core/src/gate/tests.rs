//! Every framing rule as one line, and the same verdict at every split point.

use super::{Gate, GateLimits};
use crate::limits::Limits;

/// Feeds `input` in two pieces cut at `split`; admitted bytes and status.
fn run(input: &[u8], split: usize) -> (Vec<u8>, Option<u16>) {
    let mut gate = Gate::new(GateLimits::from(&Limits::DEFAULT));
    let mut pending = Vec::new();
    let mut admitted = Vec::new();
    for piece in [&input[..split], &input[split..]] {
        pending.extend_from_slice(piece);
        // What comes before the broken rule is admitted message by message.
        loop {
            let step = if gate.is_in_body() {
                gate.read_body(&pending, &mut |_| {})
            } else {
                gate.read_head(&pending)
                    .map(|head| head.map_or(0, |head| head.end))
            };
            match step {
                Ok(0) => break,
                Ok(length) => admitted.extend(pending.drain(..length)),
                Err(refusal) => return (admitted, Some(refusal.status.as_u16())),
            }
        }
    }
    (admitted, None)
}

#[track_caller]
fn check(input: impl AsRef<[u8]>, expected: Option<u16>) {
    let input = input.as_ref();
    let text = String::from_utf8_lossy(&input[..input.len().min(200)]).into_owned();
    for split in 0..=input.len().min(300) {
        let (admitted, status) = run(input, split);
        assert_eq!(status, expected, "{text:?} cut at {split}");
        if expected.is_none() {
            assert_eq!(admitted, input, "{text:?} cut at {split}");
        }
    }
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n";

fn post(headers: &str, body: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\n{headers}\r\n{body}")
}

fn chunked(body: &str) -> String {
    post("Transfer-Encoding: chunked\r\n", body)
}

#[test]
fn valid_messages_pass_whole() {
    check(format!("{GET}\r\n"), None);
    check("GET / HTTP/1.0\r\n\r\n", None);
    check("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", None);
    check("\r\n\r\nGET / HTTP/1.1\r\nhOsT:a\r\n\r\n", None);
    check(format!("{GET}X:\r\nY: \t b \t\r\nZ: \u{e9}\r\n\r\n"), None);
    check("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", None);
    check("GET http://a:80/x?y HTTP/1.1\r\nHost: a\r\n\r\n", None);
    check("GET HTTPS://[::1] HTTP/1.1\r\nHost: [::1]\r\n\r\n", None);
    check("M-SEARCH /a%20b HTTP/1.1\r\nHost: a\r\n\r\n", None);
    check(post("Content-Length: 3\r\n", "abc"), None);
    check(post("Content-Length: 0\r\n", ""), None);
    check(post("Content-Length: 007\r\n", "abcdefg"), None);
    check(
        post("Expect: 100-Continue\r\nContent-Length: 1\r\n", "a"),
        None,
    );
    check(chunked("3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"), None);
    check(
        chunked("3;a=b;c=\"d\"\r\nabc\r\n0\r\nX: y\r\nZ:\r\n\r\n"),
        None,
    );
    check(chunked("3 ;a\r\nabc\r\n0000\r\n\r\n"), None);
    check(format!("{GET}\r\n{GET}\r\n"), None);
    check(
        format!("{}{GET}\r\n", post("Content-Length: 3\r\n", "abc")),
        None,
    );
    check(format!("{}{GET}\r\n", chunked("1\r\na\r\n0\r\n\r\n")), None);
}

#[test]
fn ambiguous_lengths_are_refused() {
    for headers in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding:\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: -3\r\n",
        "Content-Length: 0x3\r\n",
        "Content-Length: 3_0\r\n",
        "Content-Length:\r\n",
        "Content-Length: 3, 3\r\n",
        "Content-Length: 3 3\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 18446744073709551616\r\n",
        "Content-Length: 18446744073709551615\r\n",
    ] {
        check(post(headers, ""), Some(400));
    }
    check(
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
        Some(400),
    );
}

#[test]
fn broken_lines_are_refused() {
    for head in [
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\r b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\x7f\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\r\n",
        "\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        check(head, Some(400));
    }
}

/// Each byte at each place of a value, and a tab before it.
#[test]
fn a_value_ends_at_its_first_control_character() {
    for byte in 0..=255_u8 {
        let is_allowed = byte == b'\t' || byte >= b' ' && byte != 0x7f;
        for at in 0..20 {
            for tab in [None, Some(0), Some(9)] {
                let mut value = [b'a'; 20];
                if let Some(tab) = tab {
                    value[tab] = b'\t';
                }
                value[at] = byte;
                let head = b"GET / HTTP/1.1\r\nHost: a\r\nX:";
                let input = [&head[..], &value, b"a\r\n\r\n"].concat();
                let (admitted, status) = run(&input, 0);
                assert_eq!(status.is_none(), is_allowed, "{byte:#x} at {at}");
                assert_eq!(admitted == input, is_allowed, "{byte:#x} at {at}");
            }
        }
    }
}

#[test]
fn request_lines_and_targets() {
    for (line, status) in [
        ("GET / HTTP/2.0", 505),
        ("GET / HTTP/1.2", 505),
        ("GET / HTTP/11", 400),
        ("GET / http/1.1", 400),
        ("GET /", 400),
        ("GET", 400),
        ("GET  / HTTP/1.1", 400),
        ("GET /  HTTP/1.1", 400),
        ("GET / HTTP/1.1 ", 400),
        ("GET\t/ HTTP/1.1", 400),
        (" GET / HTTP/1.1", 400),
        ("G(T / HTTP/1.1", 400),
        ("GET a HTTP/1.1", 400),
        ("GET /a#b HTTP/1.1", 400),
        ("GET /\u{e9} HTTP/1.1", 400),
        ("GET /a\x01 HTTP/1.1", 400),
        ("GET * HTTP/1.1", 400),
        ("GET ftp://a/ HTTP/1.1", 400),
        ("GET http:///x HTTP/1.1", 400),
        ("GET http://a@b/ HTTP/1.1", 400),
        ("CONNECT a:443 HTTP/1.1", 400),
        ("CONNECT /hello HTTP/1.1", 400),
    ] {
        check(format!("{line}\r\nHost: a\r\n\r\n"), Some(status));
    }
    check(
        format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "A".repeat(33)),
        Some(400),
    );
}

#[test]
fn targets_are_those_that_the_uri_type_takes() {
    for byte in 0_u8..=0x7f {
        for (prefix, suffix) in [("/a", "b"), ("/?", ""), ("/a?b", "c"), ("http://h/", "")] {
            let mut target = prefix.as_bytes().to_vec();
            target.push(byte);
            target.extend_from_slice(suffix.as_bytes());
            let mut request = b"GET ".to_vec();
            request.extend_from_slice(&target);
            request.extend_from_slice(b" HTTP/1.1\r\nHost: a\r\n\r\n");
            let is_admitted = run(&request, 0).1.is_none();
            // The type drops a fragment, which the gate refuses.
            let is_taken = http::Uri::try_from(&target[..]).is_ok() && byte != b'#';
            assert_eq!(
                is_admitted,
                is_taken,
                "{:?}",
                String::from_utf8_lossy(&target)
            );
        }
    }
}

#[test]
fn host_rules() {
    check("GET / HTTP/1.1\r\n\r\n", Some(400));
    check("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", Some(400));
    check("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n", Some(400));
    for host in ["a@b", "a b", "a/b", "a?x", "[::1", "a:0x50", "a, b"] {
        check(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"), Some(400));
    }
}

#[test]
fn broken_chunks_are_refused() {
    for body in [
        "0x3\r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "-3\r\nabc\r\n0\r\n\r\n",
        "3_0\r\nabc\r\n0\r\n\r\n",
        " 3\r\nabc\r\n0\r\n\r\n",
        "3 \r\nabc\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        ";a\r\nabc\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nabc",
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabc\r\n0\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "3\r\nabcXX0\r\n\r\n",
        "3;a\rb\r\nabc\r\n0\r\n\r\n",
        "3;a\0\r\nabc\r\n0\r\n\r\n",
        "3;a\nabc\r\n0\r\n\r\n",
        "0\r\nno colon\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\n\n",
    ] {
        check(chunked(body), Some(400));
    }
    let long = format!("3;{}\r\nabc\r\n0\r\n\r\n", "a".repeat(65_536));
    check(chunked(&long), Some(400));
}

#[test]
fn oversized_heads_are_refused_by_name() {
    check(
        format!("GET /{} HTTP/1.1\r\n", "a".repeat(9_000)),
        Some(414),
    );
    check("a".repeat(9_000), Some(414));
    check(format!("{GET}X: {}\r\n\r\n", "a".repeat(40_000)), Some(431));
    check(format!("{GET}{}\r\n", "X: y\r\n".repeat(100)), Some(431));
    check(format!("{GET}{}\r\n", "X: y\r\n".repeat(99)), None);
    let trailers = format!("0\r\n{}\r\n", "X: y\r\n".repeat(101));
    check(chunked(&trailers), Some(431));
}

#[test]
fn unknown_expectation_is_417() {
    check(post("Expect: 200-ok\r\n", ""), Some(417));
}

#[test]
fn nothing_after_a_refusal_is_admitted() {
    let smuggle = format!("{GET}\r\n{GET}X : y\r\n\r\n{GET}\r\n");
    let (admitted, status) = run(smuggle.as_bytes(), smuggle.len());
    assert_eq!(status, Some(400));
    assert_eq!(admitted, format!("{GET}\r\n").as_bytes());
}

#[test]
fn nothing_after_the_last_message_is_looked_at() {
    for head in [
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
    ] {
        let input = format!("{head}junk\r\n\r\n");
        let (admitted, status) = run(input.as_bytes(), input.len());
        assert_eq!(status, None);
        assert_eq!(admitted, head.as_bytes());
    }
}

#[test]
fn a_request_line_may_have_exactly_its_limit() {
    let line = |length: usize| format!("GET /{} HTTP/1.1", "a".repeat(length - 14));
    check(format!("{}\r\nHost: a\r\n\r\n", line(8192)), None);
    check(format!("{}\r\nHost: a\r\n\r\n", line(8193)), Some(414));
}

#[test]
fn the_gate_knows_where_in_a_message_it_stands() {
    let mut gate = Gate::new(GateLimits::from(&Limits::DEFAULT));
    assert!(!gate.is_in_head(0) && !gate.is_in_body());
    assert!(gate.read_head(b"\r\n").unwrap().is_none());
    assert!(!gate.is_in_head(2));
    assert!(gate.read_head(b"\r\nGET").unwrap().is_none());
    assert!(gate.is_in_head(5));
    let input = format!("\r\n{}", post("Content-Length: 2\r\n", "a"));
    let head = gate.read_head(input.as_bytes()).unwrap().unwrap();
    assert_eq!((head.start, head.end), (2, input.len() - 1));
    assert!(gate.is_in_body() && !gate.is_in_head(0));
    assert_eq!(gate.read_body(b"ab", &mut |_| {}).unwrap(), 2);
    assert!(!gate.is_in_body() && !gate.is_in_head(0));
}

#[test]
fn content_is_told_from_framing_at_every_split() {
    let body = "3;x=y\r\nabc\r\n0a\r\n0123456789\r\n0\r\nT: u\r\n\r\n";
    for split in 0..=body.len() {
        let mut gate = Gate::new(GateLimits::from(&Limits::DEFAULT));
        gate.read_head(chunked("").as_bytes()).unwrap().unwrap();
        let mut content = Vec::new();
        for piece in [&body[..split], &body[split..]] {
            let taken = gate.read_body(piece.as_bytes(), &mut |data| {
                content.extend_from_slice(data);
            });
            assert_eq!(taken.unwrap(), piece.len(), "cut at {split}");
        }
        assert!(!gate.is_in_body());
        assert_eq!(content, b"abc0123456789", "cut at {split}");
    }
}
