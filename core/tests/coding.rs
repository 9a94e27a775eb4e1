//! Content codings of a server in this process: streams that only a handler
//! of our own can produce.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use justapi_core::{
    Body, BoundAddress, Compression, HeaderValue, Listen, Request, Response, Router, Running,
    Server, header, inline,
};
use tokio::sync::mpsc;

/// Starts a server of `router` on a free port.
fn serve(router: Router, set_up: impl FnOnce(Server) -> Server) -> (Running, SocketAddr) {
    let server = Server::new(router).listen(Listen::Tcp(([127, 0, 0, 1], 0).into()));
    let running = set_up(server).start().expect("a free port");
    let BoundAddress::Tcp { address, .. } = running.addresses()[0] else {
        unreachable!("a TCP address was asked for");
    };
    (running, address)
}

/// Sends `request`; every byte of the answer has five seconds to come.
fn send(address: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .expect("a timeout");
    stream.write_all(request.as_bytes()).expect("a peer");
    stream
}

/// Reads until `done` likes what has come.
fn read_until(stream: &mut TcpStream, seen: &mut Vec<u8>, done: impl Fn(&[u8]) -> bool) {
    let mut chunk = [0; 4096];
    while !done(seen) {
        let length = stream.read(&mut chunk).expect("bytes in time");
        assert!(
            length > 0,
            "closed after {:?}",
            seen.escape_ascii().to_string()
        );
        seen.extend_from_slice(&chunk[..length]);
    }
}

/// Data of the chunks that have come as a whole, and whether the last one has.
fn chunks(message: &[u8]) -> (Vec<u8>, bool) {
    let head = message.windows(4).position(|four| four == b"\r\n\r\n");
    let mut rest = &message[head.map_or(message.len(), |at| at + 4)..];
    let mut data = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).expect("ASCII");
        let size = usize::from_str_radix(size, 16).expect("a chunk size");
        if size == 0 {
            return (data, true);
        }
        let Some(chunk) = rest.get(end + 2..end + 2 + size) else {
            break;
        };
        data.extend_from_slice(chunk);
        rest = rest.get(end + 4 + size..).unwrap_or_default();
    }
    (data, false)
}

fn gunzip_so_far(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut decoder = flate2::read::GzDecoder::new(bytes);
    let mut chunk = [0; 64];
    while let Ok(length @ 1..) = decoder.read(&mut chunk) {
        plain.extend_from_slice(&chunk[..length]);
    }
    plain
}

#[test]
fn a_stream_is_flushed_while_its_producer_waits() {
    // The producer sends a line only after the test has read the one before.
    let (go, wait) = mpsc::channel::<&'static str>(1);
    let wait = std::sync::Mutex::new(Some(wait));
    let router = Router::new()
        .get("/lines", move |_: Request| {
            let wait = wait.lock().expect("one request").take();
            async move {
                let (sender, body) = Body::channel(1);
                tokio::spawn(async move {
                    let mut wait = wait.expect("one request");
                    while let Some(line) = wait.recv().await {
                        sender.send(line).await.expect("a reader");
                    }
                });
                let ndjson = HeaderValue::from_static("application/x-ndjson");
                Response::with_content(ndjson, body)
            }
        })
        .expect("one route");
    let (running, address) = serve(router, |server| server.compression(Compression::new()));
    let request = "GET /lines HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
    let mut stream = send(address, request);
    let mut seen = Vec::new();
    for (line, so_far) in [("one\n", "one\n"), ("two\n", "one\ntwo\n")] {
        go.blocking_send(line).expect("a producer");
        read_until(&mut stream, &mut seen, |seen| {
            gunzip_so_far(&chunks(seen).0) == so_far.as_bytes()
        });
    }
    drop(go);
    read_until(&mut stream, &mut seen, |seen| chunks(seen).1);
    let mut whole = String::new();
    flate2::read::GzDecoder::new(chunks(&seen).0.as_slice())
        .read_to_string(&mut whole)
        .expect("a complete stream");
    assert_eq!(whole, "one\ntwo\n");
    drop(stream);
    assert!(running.drain().finished);
}

#[test]
fn an_event_stream_is_not_compressed() {
    let router = Router::new()
        .get(
            "/events",
            inline(|_: Request| {
                let events = HeaderValue::from_static("text/event-stream");
                Response::with_content(events, "data: 1\n\n".repeat(1000).into())
            }),
        )
        .expect("one route");
    let (running, address) = serve(router, |server| server.compression(Compression::new()));
    let request = "GET /events HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\
                   Connection: close\r\n\r\n";
    let mut answer = String::new();
    send(address, request)
        .read_to_string(&mut answer)
        .expect("text");
    assert!(
        !answer.contains(header::CONTENT_ENCODING.as_str()),
        "{answer}"
    );
    assert!(answer.ends_with(&"data: 1\n\n".repeat(1000)));
    assert!(running.drain().finished);
}

#[test]
fn a_stream_that_breaks_off_leaves_an_unfinished_message() {
    let router = Router::new()
        .get("/broken", async |_: Request| {
            let (sender, body) = Body::channel(1);
            tokio::spawn(async move {
                sender.send("first\n").await.expect("a reader");
                sender.abort().await;
            });
            Response::text(body)
        })
        .expect("one route");
    let (running, address) = serve(router, |server| server.compression(Compression::new()));
    let request = "GET /broken HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n";
    let mut stream = send(address, request);
    let mut answer = Vec::new();
    // A reset is as good an end as a close: what counts is the missing chunk.
    let _ended = stream.read_to_end(&mut answer);
    assert!(answer.starts_with(b"HTTP/1.1 200 OK"));
    assert!(!chunks(&answer).1, "the last chunk says that all is well");
    assert!(running.drain().finished);
}
