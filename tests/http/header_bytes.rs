//! R2: bytes beyond ASCII in every header that the server reads, one at a time
//! and many, over both protocols.
//!
//! Each is answered as if the header meant nothing, or refused by name; no
//! answer is a 5xx, nothing panics, and the process stays the same.

use crate::files::Site;
use crate::support::Failures;
use crate::support::hpack;
use crate::support::http2::{Http2, flag, frame, kind};

/// Every request header that some part of the server reads.
const HEADERS: &[&str] = &[
    "accept",
    "accept-encoding",
    "accept-language",
    "access-control-request-headers",
    "access-control-request-method",
    "authorization",
    "cache-control",
    "content-encoding",
    "content-type",
    "cookie",
    "expect",
    "forwarded",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-event-id",
    "origin",
    "range",
    "referer",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "traceparent",
    "tracestate",
    "upgrade",
    "user-agent",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-request-id",
];

/// Each byte alone, and some of them in values that begin as a list.
fn values() -> Vec<Vec<u8>> {
    let alone = (0x80..=0xff).map(|byte| vec![byte]);
    let some = (0x80..=0xff).step_by(31);
    let many = some.clone().map(|byte| vec![byte; 300]);
    let within = some.map(|byte| [b"a=1, \"", &[byte][..], b"\";q=0.5"].concat());
    alone.chain(many).chain(within).collect()
}

const TARGETS: [(&str, &str); 4] = [
    ("GET", "/files/page.html"),
    ("POST", "/echo"),
    ("OPTIONS", "/anything"),
    ("GET", "/ws"),
];

fn site() -> Site {
    let site = Site::new(&[
        "--cors=*",
        "--trusted-proxy=127.0.0.1",
        "--compression",
        "--decompression",
        "--access-log=json",
    ]);
    site.write("page.html", "page ".repeat(1000));
    site
}

fn check_alive(site: &Site) {
    let metrics = site.server.get("/metrics").text();
    assert!(metrics.contains("\njustapi_panics_total 0\n"), "{metrics}");
    assert_eq!(site.server.get("/hello").status, 200);
}

#[test]
fn no_byte_of_any_header_can_hurt() {
    let mut site = site();
    let pid = site.server.pid();
    let mut failures = Failures::default();
    for (index, header) in HEADERS.iter().enumerate() {
        for (number, value) in values().into_iter().enumerate() {
            // Each value meets one of them, each header all.
            let (method, path) = TARGETS[(index + number) % TARGETS.len()];
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\
                 Connection: close\r\n{header}: "
            );
            let request = [head.as_bytes(), &value, b"\r\n\r\n"].concat();
            let mut client = site.server.connect();
            client.send(request);
            let result = match client.read() {
                Ok(response) if response.status < 500 => Ok(()),
                other => Err(format!("{other:?}")),
            };
            failures.case(&format!("{header} {value:x?} on {path}"), result);
        }
    }
    failures.finish();
    assert!(site.server.is_running() && site.server.pid() == pid);
    check_alive(&site);
}

/// A block with one literal whose value is any bytes.
fn block(headers: &[(&str, &str)], name: &str, value: &[u8]) -> Vec<u8> {
    let mut block = hpack::encode(headers);
    block.extend([0, u8::try_from(name.len()).expect("a short name")]);
    block.extend(name.as_bytes());
    match value.len() {
        length @ ..127 => block.push(length as u8),
        length => {
            let rest = length - 127;
            block.extend([127, (rest % 128) as u8 | 128, (rest / 128) as u8]);
        }
    }
    block.extend(value);
    block
}

#[test]
fn no_byte_of_any_header_of_http_2_can_hurt() {
    let site = site();
    let mut failures = Failures::default();
    for header in HEADERS.iter().filter(|header| **header != "upgrade") {
        let mut connection = Http2::connect(site.server.address());
        // All files of a connection fit its window.
        connection.widen_window(0, 1 << 24);
        for (number, value) in values().into_iter().enumerate() {
            let (method, path) = TARGETS[number % TARGETS.len()];
            let list = [
                (":method", method),
                (":scheme", "http"),
                (":authority", "localhost"),
                (":path", path),
            ];
            let stream = 2 * number as u32 + 1;
            let whole = flag::END_STREAM | flag::END_HEADERS;
            let request = frame(kind::HEADERS, whole, stream, &block(&list, header, &value));
            connection.send(&request).expect("the connection is open");
            let outcome = connection.outcome(stream);
            let result = match outcome.status() {
                Some(..500) => Ok(()),
                _ => Err(format!("{outcome:?}")),
            };
            failures.case(&format!("{header} {value:x?} on {path}"), result);
        }
    }
    failures.finish();
    check_alive(&site);
}
