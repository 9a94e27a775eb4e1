//! Compressed request bodies at the built server: decoded, refused, defused.

use std::io::Write as _;
use std::time::Duration;

use crate::support::client::{Client, Response};
use crate::support::process;
use crate::support::server::Server;

fn encode(coding: &str, plain: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" | "x-gzip" => {
            let level = flate2::Compression::best();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(plain).expect("memory");
            encoder.finish().expect("memory")
        }
        "br" => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 20);
            encoder.write_all(plain).expect("memory");
            encoder.into_inner()
        }
        "zstd" => zstd::encode_all(plain, 3).expect("memory"),
        other => panic!("unknown coding {other}"),
    }
}

fn post(path: &str, coding: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
         Content-Encoding: {coding}\r\nContent-Length: {length}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

fn ask(server: &Server, path: &str, coding: &str, body: &[u8]) -> Response {
    server.connect().ask(post(path, coding, body))
}

const DOCUMENT: &[u8] = br#"{"name":"tea","tags":["a","b"]}"#;

#[test]
fn the_handler_reads_the_decoded_body() {
    let server = Server::start(&["--decompression"]);
    let mut client = server.connect();
    for coding in ["gzip", "x-gzip", "br", "zstd"] {
        let answer = client.ask(post("/echo", coding, &encode(coding, DOCUMENT)));
        assert_eq!(
            (answer.status, answer.body.as_slice()),
            (200, DOCUMENT),
            "{coding}"
        );
        let answer = client.ask(post("/anything", coding, &encode(coding, DOCUMENT)));
        let seen = answer.json();
        assert_eq!(seen["body_length"], DOCUMENT.len());
        assert_eq!(seen["headers"]["content-encoding"], serde_json::Value::Null);
        assert_eq!(seen["headers"]["content-length"], serde_json::Value::Null);
    }
}

#[test]
fn a_chunked_body_is_decoded_wherever_it_is_split() {
    let server = Server::start(&["--decompression"]);
    let coded = encode("gzip", DOCUMENT);
    for split in 1..coded.len() {
        let (first, second) = coded.split_at(split);
        let mut request = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n\
                            Transfer-Encoding: chunked\r\n\r\n"
            .to_vec();
        for part in [first, second, &[]] {
            request.extend_from_slice(format!("{:x}\r\n", part.len()).as_bytes());
            request.extend_from_slice(part);
            request.extend_from_slice(b"\r\n");
        }
        let answer = server.connect().ask(&request);
        assert_eq!(answer.body, DOCUMENT, "split at {split}");
    }
}

#[test]
fn what_cannot_be_decoded_is_refused_with_a_reason() {
    let server = Server::start(&["--decompression"]);
    for coding in ["deflate", "compress", "gzip, nothing"] {
        let answer = ask(&server, "/echo", coding, DOCUMENT);
        assert_eq!(answer.status, 415, "{coding}");
        assert_eq!(answer.header("accept-encoding"), Some("zstd, br, gzip"));
        assert_eq!(answer.json()["status"], 415);
    }
    // A second coding is what a bomb in a bomb needs, in one line or in two.
    let twice = encode("zstd", &encode("gzip", DOCUMENT));
    for codings in ["gzip, zstd", "gzip\r\nContent-Encoding: zstd"] {
        let answer = ask(&server, "/echo", codings, &twice);
        assert_eq!(answer.status, 415, "{codings}");
        let problem = answer.json();
        assert_eq!(problem["limit"], "max_content_codings");
        assert_eq!(problem["limit_value"], 1);
    }
    for coding in ["gzip", "br", "zstd"] {
        let coded = encode(coding, DOCUMENT);
        let cut = &coded[..coded.len() - 1];
        for body in [cut, DOCUMENT] {
            let answer = ask(&server, "/echo", coding, body);
            assert_eq!(answer.status, 400, "{coding}: {answer:?}");
            let detail = answer.json()["detail"].as_str().map(str::to_owned);
            assert!(detail.is_some_and(|detail| detail.contains(coding)));
        }
    }
    assert_eq!(server.get("/hello").status, 200);
}

#[test]
fn bombs_are_413_and_harm_nobody() {
    let server = Server::start(&["--decompression"]);
    let zeros = vec![b' '; 4 * 1024 * 1024];
    for coding in ["gzip", "br", "zstd"] {
        let bomb = encode(coding, &zeros);
        // `/anything` takes any size: only the ratio is in the way.
        let answer = ask(&server, "/anything", coding, &bomb);
        assert_eq!(answer.status, 413, "{coding}");
        let problem = answer.json();
        assert_eq!(problem["limit"], "server.limits.decompression_ratio");
        assert_eq!(problem["limit_value"], 100);
        server
            .answers_within(Duration::from_secs(2))
            .expect("the server is well");
    }
    let patient = Server::start(&["--decompression", "--limit-decompression-ratio=1000000"]);
    let answer = ask(&patient, "/echo", "zstd", &encode("zstd", &zeros));
    assert_eq!(answer.status, 413);
    assert_eq!(answer.json()["limit"], "server.limits.body");
}

/// 32 MiB of spaces in some KiB: what is decoded is not kept, whoever reads it.
#[test]
fn large_bombs_cost_no_memory() {
    const MIB: u64 = 1024 * 1024;
    const MEMBERS: usize = 8;
    let flags = ["--decompression", "--limit-decompression-ratio", "1000000"];
    let server = Server::start(&flags);
    assert_eq!(server.get("/hello").status, 200);
    let before = process::rss_bytes(server.pid());
    let part = vec![b' '; 4 << 20];
    for (coding, is_repeated) in [("gzip", true), ("zstd", true), ("br", false)] {
        // Members of gzip and frames of zstd may follow each other.
        let times = if is_repeated { MEMBERS } else { 1 };
        let bomb = encode(coding, &part).repeat(times);
        let mut most = 0;
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let mut client = server.connect();
                client.set_patience(Duration::from_mins(1));
                client.ask(post("/anything", coding, &bomb))
            });
            while !asked.is_finished() {
                most = most.max(process::rss_bytes(server.pid()));
                std::thread::yield_now();
            }
            let answer = asked.join().expect("it is answered");
            assert_eq!(answer.status, 200, "{coding}: {answer:?}");
            assert_eq!(answer.json()["body_length"], part.len() * times);
        });
        let grown = most.saturating_sub(before);
        assert!(grown < 12 * MIB, "{coding}: {} MiB more", grown / MIB);
        // Held as a whole it would be; so the limit of bodies ends it.
        let answer = ask(&server, "/echo", coding, &bomb);
        assert_eq!(answer.json()["limit"], "server.limits.body", "{coding}");
    }
    let grown = process::rss_bytes(server.pid()).saturating_sub(before);
    assert!(grown < 12 * MIB, "{} MiB more at the end", grown / MIB);
    assert_eq!(server.answers_within(Duration::from_secs(5)), Ok(()));
}

#[test]
fn a_client_that_leaves_inside_a_coded_body_harms_nobody() {
    let server = Server::start(&["--decompression"]);
    let request = post("/echo", "gzip", &encode("gzip", DOCUMENT));
    for length in (request.len() - 30..request.len()).step_by(7) {
        let mut client: Client = server.connect();
        client.send(&request[..length]);
        client.reset();
    }
    assert_eq!(server.get("/hello").status, 200);
}

#[test]
fn without_the_switch_the_coded_body_is_the_body() {
    let server = Server::start(&[]);
    let coded = encode("gzip", DOCUMENT);
    let answer = ask(&server, "/anything", "gzip", &coded);
    assert_eq!(answer.json()["body_length"], coded.len());
    assert_eq!(answer.json()["headers"]["content-encoding"], "gzip");
    assert_eq!(ask(&server, "/echo", "gzip", &coded).status, 400);
}
