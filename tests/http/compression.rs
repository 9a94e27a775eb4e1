//! Compressed answers of the built server, decoded by independent decoders.
//!
//! Source: RFC 9110 §8.4 (codings), §12.5.3 (`Accept-Encoding`), §12.5.5
//! (`Vary`).

use std::io::Read as _;

use crate::support::client::Response;
use crate::support::server::Server;

/// Decodes a body by the response's own `Content-Encoding`.
fn decoded(response: &Response) -> Vec<u8> {
    let body = response.body.as_slice();
    let mut plain = Vec::new();
    match response.header("content-encoding") {
        None => return body.to_vec(),
        Some("gzip") => flate2::read::GzDecoder::new(body).read_to_end(&mut plain),
        Some("br") => brotli::Decompressor::new(body, 4096).read_to_end(&mut plain),
        Some("zstd") => zstd::stream::read::Decoder::new(body)
            .expect("a decoder")
            .read_to_end(&mut plain),
        Some(other) => panic!("coding {other} in {response:?}"),
    }
    .expect("a valid body");
    plain
}

fn request(method: &str, path: &str, accept: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accept}\r\n\r\n")
}

#[test]
fn the_client_chooses_the_coding() {
    let server = Server::start(&["--compression"]);
    let plain = server.get("/");
    assert_eq!(plain.header("vary"), Some("Accept-Encoding"));
    let mut client = server.connect();
    for (accept, coding) in [
        ("gzip", Some("gzip")),
        ("x-gzip", Some("gzip")),
        ("br", Some("br")),
        ("zstd", Some("zstd")),
        ("gzip, deflate, br, zstd", Some("zstd")),
        ("gzip, deflate, br", Some("br")),
        ("gzip;q=1, zstd;q=0.5", Some("gzip")),
        ("deflate", None),
        ("gzip;q=0", None),
        ("identity;q=1, gzip;q=0.1", None),
        ("gzip;q=7", None),
    ] {
        let answer = client.ask(request("GET", "/", accept));
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-encoding"), coding, "{accept}");
        assert_eq!(answer.header("vary"), Some("Accept-Encoding"), "{accept}");
        assert_eq!(decoded(&answer), plain.body, "{accept}");
        let length = answer.header("content-length").expect("a known length");
        assert_eq!(length, answer.body.len().to_string());
        assert!(coding.is_none() || answer.body.len() < plain.body.len() / 2);
    }
}

#[test]
fn head_says_what_get_would() {
    let server = Server::start(&["--compression"]);
    let mut client = server.connect();
    for accept in ["gzip", "br", "zstd", "identity"] {
        let get = client.ask(request("GET", "/", accept));
        let head = client.ask(request("HEAD", "/", accept));
        for name in ["content-encoding", "content-length", "content-type", "vary"] {
            assert_eq!(head.header(name), get.header(name), "{accept}: {name}");
        }
    }
    let after = client.get("/hello");
    assert_eq!(after.status, 200, "the connection is in step");
}

#[test]
fn a_large_answer_is_sent_in_pieces() {
    let server = Server::start(&[
        "--compression",
        "--limit-request-line=60KiB",
        "--limit-header=128KiB",
    ]);
    let mut client = server.connect();
    let path = format!("/anything?{}", "name=value&".repeat(5000));
    let get = format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let answer = client.ask(get);
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
    assert_eq!(answer.header("content-length"), None);
    let document: serde_json::Value =
        serde_json::from_slice(&decoded(&answer)).expect("a JSON document");
    assert_eq!(document["query"].as_str().map(str::len), Some(55_000));
    let head = client.ask(request("HEAD", &path, "gzip"));
    assert_eq!(head.header("content-encoding"), Some("gzip"));
    assert_eq!(
        client.get("/hello").status,
        200,
        "the connection is in step"
    );
}

#[test]
fn small_answers_are_left_alone() {
    let server = Server::start(&["--compression"]);
    let answer = server.connect().ask(request("GET", "/hello", "gzip"));
    assert_eq!(answer.header("content-encoding"), None);
    assert_eq!(answer.header("vary"), None);
    let server = Server::start(&["--compression", "--compression-min-size=1"]);
    let answer = server.connect().ask(request("GET", "/hello", "gzip"));
    assert_eq!(answer.header("vary"), Some("Accept-Encoding"));
    assert_eq!(decoded(&answer), b"{\"message\":\"hello\"}");
    let never = Server::start(&["--compression", "--compression-min-size=1GiB"]);
    let answer = never.connect().ask(request("GET", "/", "gzip"));
    assert_eq!(answer.header("content-encoding"), None);
}

#[test]
fn without_the_switch_nothing_is_coded() {
    let server = Server::start(&[]);
    let answer = server.connect().ask(request("GET", "/", "gzip, br, zstd"));
    assert_eq!(answer.header("content-encoding"), None);
    assert_eq!(answer.header("vary"), None);
}

#[test]
fn vary_of_cors_and_of_compression_stand_together() {
    let server = Server::start(&["--compression", "--cors=https://a.example"]);
    let answer = server.connect().ask(request("GET", "/", "gzip"));
    let vary: Vec<_> = answer
        .headers
        .iter()
        .filter(|(name, _)| name == "vary")
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(vary, ["Accept-Encoding", "Origin"]);
}

#[test]
fn levels_are_settings() {
    let sizes: Vec<usize> = ["1", "9"]
        .map(|level| {
            let flag = format!("--compression-gzip-level={level}");
            let server = Server::start(&["--compression", &flag]);
            let answer = server.connect().ask(request("GET", "/", "gzip"));
            assert_eq!(answer.header("content-encoding"), Some("gzip"));
            answer.body.len()
        })
        .to_vec();
    assert!(sizes[1] < sizes[0], "{sizes:?}");
}
