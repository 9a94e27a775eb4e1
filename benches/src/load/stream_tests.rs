//! Echoes and feeds against real servers on real sockets, one misbehaviour each.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

use super::tests::{Server, check};
use super::*;

/// What an echoing server does with message `number` of a connection: frames, or the end.
type Answer = fn(number: u64, payload: &[u8]) -> Option<Vec<u8>>;

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() <= 125, "a short payload");
    [&[first, payload.len() as u8], payload].concat()
}

#[expect(clippy::unnecessary_wraps, reason = "it is an `Answer`")]
fn echo(_number: u64, payload: &[u8]) -> Option<Vec<u8>> {
    Some(frame(0x81, payload))
}

/// A server that opens a socket on each connection and answers each message.
fn websocket(answer: Answer) -> Server {
    Server::new(move |stream| {
        // A client that has seen enough goes without asking.
        drop(serve_websocket(&stream, answer));
    })
}

fn serve_websocket(mut stream: &TcpStream, answer: Answer) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut key = String::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if let Some(value) = line.strip_prefix("sec-websocket-key: ") {
            value.trim().clone_into(&mut key);
        }
        if line == "\r\n" || line.is_empty() {
            break;
        }
    }
    let digest = Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11"));
    let accept = STANDARD.encode(digest);
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-accept: {accept}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    let mut number = 0;
    loop {
        let mut header = [0; 6];
        reader.read_exact(&mut header)?;
        let [first, second, mask @ ..] = header;
        assert_eq!(second & 0x80, 0x80, "a client masks");
        let mut payload = vec![0; usize::from(second & 0x7f)];
        reader.read_exact(&mut payload)?;
        for (byte, mask) in payload.iter_mut().zip(mask.into_iter().cycle()) {
            *byte ^= mask;
        }
        if first == 0x8a {
            assert_eq!(payload, b"?", "a pong has the ping's payload");
            continue;
        }
        match answer(number, &payload) {
            Some(frames) => stream.write_all(&frames)?,
            None => return Ok(()),
        }
        number += 1;
    }
}

fn echo_plan(server: &Server) -> LoadPlan {
    let plan = server.plan();
    let exchange = WebSocketEcho::new(true, 32);
    let request =
        RequestTemplate::serialise(&plan.target, "GET", "/", &exchange.headers(), b"", true);
    LoadPlan {
        requests: vec![request.unwrap()],
        exchange: Exchange::Echo(exchange),
        expect: Expectation {
            status: Some(101),
            body: None,
        },
        ..plan
    }
}

#[test]
fn messages_go_round_on_one_websocket_for_each_connection() {
    let server = websocket(echo);
    let plan = LoadPlan {
        connections: 4,
        threads: 2,
        stop: Stop::Requests(101),
        ..echo_plan(&server)
    };
    let report = check(&plan, &[(Outcome::Ok, 101)]);
    assert_eq!(server.connections.load(Ordering::SeqCst), 4);
    assert_eq!((report.connections_opened, report.resent), (Some(4), 0));
    assert_eq!(report.status_counts[&101], 101);
    let found = probe(&plan).unwrap();
    assert_eq!((found.status, found.body_len), (101, 32));
    assert_eq!(probe(&plan).unwrap(), found);
}

#[test]
fn a_wrong_echo_is_a_mismatch_and_no_throughput() {
    let server = websocket(|number, payload| {
        let mut payload = payload.to_vec();
        payload[31] ^= u8::from(number == 4);
        echo(number, &payload)
    });
    check(
        &echo_plan(&server),
        &[(Outcome::Ok, 9), (Outcome::BodyMismatch, 1)],
    );
}

#[test]
fn a_ping_is_answered_and_does_not_count() {
    let server = websocket(|_, payload| Some([frame(0x89, b"?"), frame(0x81, payload)].concat()));
    check(&echo_plan(&server), &[(Outcome::Ok, 10)]);
}

#[test]
fn a_websocket_that_ends_is_an_error_each_time() {
    let server = websocket(|number, payload| match number {
        4 => None,
        _ => echo(number, payload),
    });
    check(
        &echo_plan(&server),
        &[(Outcome::Ok, 8), (Outcome::EofEarly, 2)],
    );
    let closing = websocket(|number, payload| match number {
        4 => Some(frame(0x88, &[3, 0xe8])),
        _ => echo(number, payload),
    });
    check(
        &echo_plan(&closing),
        &[(Outcome::Ok, 8), (Outcome::EofEarly, 2)],
    );
}

#[test]
fn an_echo_too_many_is_an_error() {
    let server = websocket(|number, payload| {
        let once = frame(0x81, payload);
        Some(if number == 4 { once.repeat(2) } else { once })
    });
    let report = run(&echo_plan(&server), &AtomicBool::new(false)).unwrap();
    report.check_invariants().unwrap();
    // Loopback may tear the two apart: then the second answers the next message.
    let bad = report.outcomes.get(Outcome::ExtraBytes) + report.outcomes.get(Outcome::BodyMismatch);
    assert!(bad > 0, "{}", report.render_text());
}

#[test]
fn a_server_without_websocket_is_refusing() {
    let server = Server::new(|stream| {
        super::tests::read_request(&mut BufReader::new(&stream));
        let response = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        drop((&stream).write_all(response.as_bytes()));
    });
    check(&echo_plan(&server), &[(Outcome::ExchangeRefused, 10)]);
    let silent = Server::new(|mut stream| {
        // Until the client gives up.
        drop(stream.read_to_end(&mut Vec::new()));
    });
    let plan = LoadPlan {
        stop: Stop::Requests(1),
        connect_timeout: Duration::from_millis(50),
        ..echo_plan(&silent)
    };
    check(&plan, &[(Outcome::ConnectTimeout, 1)]);
}

#[test]
fn echoes_have_a_rate_too() {
    let server = websocket(echo);
    let plan = LoadPlan {
        pace: Pace::Open(OpenLoop::constant(200.0)),
        connections: 2,
        stop: Stop::Requests(20),
        ..echo_plan(&server)
    };
    let report = check(&plan, &[(Outcome::Ok, 20)]);
    assert_eq!(report.connections_opened, Some(2));
    assert_eq!(report.open_loop.unwrap().lateness.count, 20);
}

/// What a feed does with event `number` on stream `index`: bytes of the stream, or its end.
type Delivery = fn(number: u64, index: usize, data: &str) -> Option<String>;

#[expect(clippy::unnecessary_wraps, reason = "it is a `Delivery`")]
fn event(number: u64, _index: usize, data: &str) -> Option<String> {
    Some(format!("id: {}\ndata: {data}\n\n", number + 1))
}

/// A server that sends what is posted to every stream.
fn feed(delivery: Delivery) -> Server {
    feed_to(Arc::default(), delivery)
}

/// As [`feed`], with the streams in sight.
fn feed_to(streams: Arc<Mutex<Vec<TcpStream>>>, delivery: Delivery) -> Server {
    let count = AtomicU64::new(0);
    Server::new(move |stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|length| length > 0) {
            let is_post = line.starts_with("POST /feed ");
            let mut length = 0;
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).unwrap();
                if let Some(value) = line.strip_prefix("content-length: ") {
                    length = value.trim().parse().unwrap();
                }
            }
            line.clear();
            if !is_post {
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                            transfer-encoding: chunked\r\n\r\n";
                let mut streams = streams.lock().unwrap();
                (&stream).write_all(head.as_bytes()).unwrap();
                streams.push(stream);
                return;
            }
            let mut data = vec![0; length];
            reader.read_exact(&mut data).unwrap();
            let data = String::from_utf8(data).unwrap();
            let number = count.fetch_add(1, Ordering::SeqCst);
            for (index, stream) in streams.lock().unwrap().iter_mut().enumerate() {
                let sent = match delivery(number, index, &data) {
                    Some(text) if text.is_empty() => Ok(()),
                    Some(text) => {
                        stream.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
                    }
                    None => stream.shutdown(std::net::Shutdown::Both),
                };
                // A client that has seen enough goes without asking.
                drop(sent);
            }
            drop((&stream).write_all(b"HTTP/1.1 204 No Content\r\n\r\n"));
        }
    })
}

fn feed_plan(server: &Server) -> LoadPlan {
    let plan = server.plan();
    let feed = EventFeed::new(&plan.target, "/feed", 40).unwrap();
    LoadPlan {
        connections: 3,
        stop: Stop::Requests(30),
        exchange: Exchange::Feed(feed),
        ..plan
    }
}

#[test]
fn each_event_counts_once_on_each_stream() {
    let server = feed(event);
    let plan = feed_plan(&server);
    let report = check(&plan, &[(Outcome::Ok, 30)]);
    assert_eq!(report.connections_opened, Some(4));
    assert_eq!(report.status_counts[&200], 30);
    assert!(report.latency.p50_ns.is_some());
    // A budget that does not divide by the streams is kept too.
    let fresh = feed(event);
    let plan = LoadPlan {
        stop: Stop::Requests(31),
        ..feed_plan(&fresh)
    };
    check(&plan, &[(Outcome::Ok, 31)]);
    let fresh = feed(event);
    let found = probe(&feed_plan(&fresh)).unwrap();
    assert_eq!((found.status, found.body_len), (200, 40));
    let other = feed(event);
    assert_eq!(probe(&feed_plan(&other)).unwrap(), found);
}

#[test]
fn streams_are_reset_when_the_run_is_over() {
    let streams = Arc::default();
    let server = feed_to(Arc::clone(&streams), event);
    check(&feed_plan(&server), &[(Outcome::Ok, 30)]);
    let mut streams = streams.lock().unwrap();
    assert_eq!(streams.len(), 3);
    for stream in &mut *streams {
        let error = stream.read(&mut [0; 16]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}

#[test]
fn comments_and_split_events_change_nothing() {
    let server = feed(|number, index, data| {
        let event = event(number, index, data)?;
        Some(format!(":\n\n{event}: keep-alive\n\n"))
    });
    check(&feed_plan(&server), &[(Outcome::Ok, 30)]);
}

/// Six events arrive everywhere and the seventh, on stream 1, does not.
#[track_caller]
fn check_seventh(delivery: Delivery, expected: Outcome) {
    let server = feed(delivery);
    let plan = LoadPlan {
        request_timeout: Duration::from_secs(5),
        ..feed_plan(&server)
    };
    let report = run(&plan, &AtomicBool::new(false)).unwrap();
    report.check_invariants().unwrap();
    let text = report.render_text();
    assert_eq!(report.outcomes.get(expected), 1, "{text}");
    let ok = report.outcomes.get(Outcome::Ok);
    assert!((18..=20).contains(&ok), "{text}");
    assert_eq!(report.attempts, 21, "{text}");
}

#[test]
fn wrong_missing_and_repeated_events_are_errors() {
    check_seventh(
        |number, index, data| match (number, index) {
            (6, 1) => event(number, index, &data.replace('0', "1")),
            _ => event(number, index, data),
        },
        Outcome::BodyMismatch,
    );
    // An id that leaves a gap: an event was lost.
    check_seventh(
        |number, index, data| event(number + u64::from((number, index) == (6, 1)), index, data),
        Outcome::BodyMismatch,
    );
    check_seventh(
        |number, index, data| match (number, index) {
            (6, 1) => event(number, index, data).map(|event| format!("event: x\n{event}")),
            _ => event(number, index, data),
        },
        Outcome::BodyMismatch,
    );
}

#[test]
fn a_stream_that_ends_is_an_error() {
    check_seventh(
        |number, index, data| match (number, index) {
            (6, 1) => None,
            _ => event(number, index, data),
        },
        Outcome::EofEarly,
    );
}

#[test]
fn an_event_that_does_not_come_is_a_timeout() {
    let server = feed(|number, index, data| match (number, index) {
        (6, 1) => Some(String::new()),
        _ => event(number, index, data),
    });
    let plan = LoadPlan {
        request_timeout: Duration::from_millis(300),
        ..feed_plan(&server)
    };
    check(&plan, &[(Outcome::Ok, 20), (Outcome::RequestTimeout, 1)]);
}

#[test]
fn a_server_without_a_feed_is_refusing() {
    let server = Server::new(|stream| {
        let mut reader = BufReader::new(&stream);
        while super::tests::read_request(&mut reader) {
            let response = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
            if (&stream).write_all(response.as_bytes()).is_err() {
                return;
            }
        }
    });
    check(&feed_plan(&server), &[(Outcome::ExchangeRefused, 1)]);
}

#[test]
fn plans_of_streams_that_cannot_run_are_refused() {
    let server = feed(event);
    let good = feed_plan(&server);
    let short = EventFeed::new(&good.target, "/feed", 15).unwrap();
    for bad in [
        LoadPlan {
            threads: 2,
            ..good.clone()
        },
        LoadPlan {
            keep_alive: false,
            ..good.clone()
        },
        LoadPlan {
            pace: Pace::Open(OpenLoop::constant(10.0)),
            ..good.clone()
        },
        LoadPlan {
            exchange: Exchange::Feed(short),
            ..good.clone()
        },
        LoadPlan {
            exchange: Exchange::Echo(WebSocketEcho::new(true, 15)),
            ..good.clone()
        },
    ] {
        let error = run(&bad, &AtomicBool::new(false)).unwrap_err();
        assert!(matches!(error, Error::LoadPlan { .. }), "{error}");
    }
}
