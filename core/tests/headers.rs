//! Header fields and order, from handlers to clients and back: what is several
//! stays several, what came first leaves first, and bytes beyond ASCII survive.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use justapi_core::{
    Body, BoundAddress, HeaderName, HeaderValue, Listen, Request, Response, Router, Running,
    Server, header, inline,
};

fn serve(router: Router) -> (Running, SocketAddr) {
    let server = Server::new(router).listen(Listen::Tcp(([127, 0, 0, 1], 0).into()));
    let running = server.start().expect("a free port");
    let BoundAddress::Tcp { address, .. } = running.addresses()[0] else {
        unreachable!("a TCP address was asked for");
    };
    (running, address)
}

/// Sends `request` and reads to the end of the connection.
fn exchange(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("a listener");
    stream.write_all(request).expect("a peer");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("no reset");
    answer
}

/// Lines of the head that begin with `name`, in their order.
fn lines<'a>(answer: &'a [u8], name: &str) -> Vec<&'a [u8]> {
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let head = &answer[..end.expect("a whole head")];
    let is_named = |line: &&[u8]| {
        let prefix = line.get(..name.len()).unwrap_or_default();
        prefix.eq_ignore_ascii_case(name.as_bytes())
    };
    let lines = head
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii_end);
    lines.filter(is_named).collect()
}

/// Cookies may not be joined into one line (RFC 6265 §3), nor sorted, nor told
/// apart by their names: a path or domain may differ.
#[test]
fn every_cookie_keeps_its_own_line_in_order() {
    const COOKIES: [&str; 4] = ["b=1; Path=/", "a=2", "b=3; Path=/deep", "a=2"];
    let router = Router::new()
        .get(
            "/cookies",
            inline(|_: Request| {
                let mut response = Response::text("cookies");
                for cookie in COOKIES {
                    let value = HeaderValue::from_static(cookie);
                    response.headers_mut().append(header::SET_COOKIE, value);
                }
                response
            }),
        )
        .expect("a route");
    let (running, address) = serve(router);
    let request = b"GET /cookies HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = exchange(address, request);
    let expected = COOKIES.map(|cookie| format!("set-cookie: {cookie}"));
    let found = lines(&answer, "set-cookie:");
    assert_eq!(found, expected.each_ref().map(String::as_bytes));
    assert!(running.drain().finished);
}

#[test]
fn fields_that_came_twice_are_read_twice_in_order() {
    let router = Router::new()
        .get(
            "/twice",
            inline(|request: Request| {
                let values = request.headers().get_all("x-twice").iter();
                let text: Vec<_> = values.map(|value| value.to_str().unwrap_or("?")).collect();
                text.join("|")
            }),
        )
        .expect("a route");
    let (running, address) = serve(router);
    let request = b"GET /twice HTTP/1.1\r\nHost: a\r\nX-Twice: b\r\nx-other: c\r\nX-TWICE: a\r\n\
        x-twice: b, c\r\nConnection: close\r\n\r\n";
    let answer = String::from_utf8_lossy(&exchange(address, request)).into_owned();
    assert!(answer.ends_with("\r\n\r\nb|a|b, c"), "{answer}");
    assert!(running.drain().finished);
}

/// RFC 9110 §5.5: bytes from 0x80 on are opaque, in both directions.
#[test]
fn bytes_beyond_ascii_pass_in_both_directions() {
    let router = Router::new()
        .get(
            "/name",
            inline(|request: Request| {
                let name = HeaderName::from_static("x-name");
                let value = request.headers()[&name].clone();
                Response::text("name").with_header(name, value)
            }),
        )
        .expect("a route");
    let (running, address) = serve(router);
    let bytes: Vec<u8> = (0x80..=0xff).collect();
    let request = [
        &b"GET /name HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Name: "[..],
        &bytes,
        b"\r\n\r\n",
    ];
    let answer = exchange(address, &request.concat());
    let expected = [&b"x-name: "[..], &bytes].concat();
    assert_eq!(lines(&answer, "x-name:"), [expected.as_slice()]);
    assert!(running.drain().finished);
}

/// What splits a response cannot even be put into a value.
#[test]
fn no_value_can_hold_the_end_of_its_line() {
    for bytes in [
        &b"a\r\nb: c"[..],
        b"a\nb",
        b"a\rb",
        b"a\0b",
        b"a\x7fb",
        b"\r",
    ] {
        assert!(HeaderValue::from_bytes(bytes).is_err(), "{bytes:?}");
    }
    for name in [&b"X Bad"[..], b"a:b", b"", b"a\r\n", "\u{e9}".as_bytes()] {
        assert!(HeaderName::from_bytes(name).is_err(), "{name:?}");
    }
}

/// Whatever each answer waits for, they leave in the order of the questions.
#[test]
fn pipelined_answers_that_take_different_times_keep_their_order() {
    let router = Router::new()
        .get("/wait/{ms:int}", async |request: Request| {
            let ms: u64 = request
                .param("ms")
                .and_then(|ms| ms.parse().ok())
                .unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(ms)).await;
            format!("<{ms}>")
        })
        .expect("a route");
    let (running, address) = serve(router);
    let waits = [60, 0, 30, 1, 0, 20, 5, 0, 40, 2];
    let last = waits.len() - 1;
    let request = |(index, ms): (usize, &u64)| {
        let connection = if index == last { "close" } else { "keep-alive" };
        format!("GET /wait/{ms} HTTP/1.1\r\nHost: a\r\nConnection: {connection}\r\n\r\n")
    };
    let requests: String = waits.iter().enumerate().map(request).collect();
    let answer = String::from_utf8_lossy(&exchange(address, requests.as_bytes())).into_owned();
    let found: Vec<u64> = answer
        .split('<')
        .skip(1)
        .filter_map(|rest| rest.split('>').next()?.parse().ok())
        .collect();
    assert_eq!(found, waits);
    assert!(running.drain().finished);
}

/// H8: the body of an answer to HEAD is neither sent nor made.
#[test]
fn head_of_a_stream_ends_its_producer_and_stays_in_step() {
    let (sender, ended) = std::sync::mpsc::channel();
    let router = Router::new()
        .get("/stream", move |_: Request| {
            let ended = sender.clone();
            async move {
                let (sender, body) = Body::channel(1);
                tokio::task::spawn_local(async move {
                    let mut num_sent = 0;
                    while sender.send("piece").await.is_ok() {
                        num_sent += 1;
                    }
                    ended.send(num_sent).expect("the test listens");
                });
                Response::with_content(HeaderValue::from_static("text/plain"), body)
            }
        })
        .and_then(|router| router.get("/next", inline(|_: Request| "next")))
        .expect("routes");
    let (running, address) = serve(router);
    let request = b"HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n\
        GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = String::from_utf8_lossy(&exchange(address, request)).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let (head, rest) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(!head.contains("content-length"), "{head}");
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n"), "{rest}");
    assert!(rest.ends_with("\r\n\r\nnext"), "{rest}");
    let num_sent = ended.recv_timeout(Duration::from_secs(10));
    // What the channel itself holds is no sign of anybody reading.
    assert!(num_sent.expect("the producer ends") <= 2);
    assert!(running.drain().finished);
}

/// R2: a megabyte in one header of an answer leaves as it is on HTTP/1.1; on
/// HTTP/2 it may cost its stream. Others are served after it on either.
#[test]
fn a_header_of_a_megabyte_costs_at_most_its_answer() {
    const LENGTH: usize = 1 << 20;
    let router = Router::new()
        .get(
            "/large",
            inline(|_: Request| {
                let value = HeaderValue::try_from("v".repeat(LENGTH)).expect("visible ASCII");
                Response::text("large").with_header(HeaderName::from_static("x-large"), value)
            }),
        )
        .and_then(|router| router.get("/ok", inline(|_: Request| "ok")));
    let (running, address) = serve(router.expect("routes"));
    let request = b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n\
                    GET /ok HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    let answer = exchange(address, request);
    let large = lines(&answer, "x-large: ");
    assert_eq!(large[0].len(), LENGTH + "x-large: ".len());
    assert!(answer.ends_with(b"\r\n\r\nok"));

    let mut stream = TcpStream::connect(address).expect("a listener");
    let patience = Some(Duration::from_secs(10));
    stream.set_read_timeout(patience).expect("a valid timeout");
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for (id, path) in [(1, &b"/large"[..]), (3, b"/ok")] {
        let block = [b"\x82\x86\x41\x01a\x44", &[path.len() as u8][..], path].concat();
        bytes.extend([0, 0, block.len() as u8, 1, 5, 0, 0, 0, id]);
        bytes.extend(block);
    }
    stream.write_all(&bytes).expect("a peer");
    // Frames up to the end of the second answer.
    let mut num_large = 0;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).expect("a frame");
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        stream
            .read_exact(&mut vec![0; length])
            .expect("a whole frame");
        assert_ne!(head[3], 7, "the connection goes on");
        let is_block = matches!(head[3], 1 | 9);
        match head[8] {
            1 if is_block => num_large += length,
            3 if head[4] & 1 == 1 && head[3] == 0 => break,
            _ => {}
        }
    }
    // Huffman-coded, a "v" takes 7 bits.
    assert!(num_large == 0 || num_large >= LENGTH * 7 / 8, "{num_large}");
    drop(stream);
    assert!(running.drain().finished);
}
