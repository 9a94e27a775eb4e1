//! HTTP in frames: requests, their fields, trailers, CONNECT (RFC 9113 §8,
//! RFC 8441).

#![expect(
    clippy::too_many_lines,
    reason = "a table has as many lines as its section has cases"
)]

use super::*;

#[test]
fn exchanges() {
    check(&[
        ("§8.1: GET", |p| p.ask_with(1, &[]).status(1, 200)),
        ("§8.1: HEAD is answered without DATA", |p| {
            p.ask(1, &[(":method", "HEAD"), SCHEME, AUTHORITY, PATH])
                .status(1, 200)?;
            p.serves()?;
            due(!p.seen.iter().any(|frame| frame.kind == kind::DATA), || {
                p.story()
            })
        }),
        ("§8.1: POST", |p| {
            p.open(1).data(flag::END_STREAM, 1, b"abc");
            p.answer_says(1, "\"body_length\":3")
        }),
        ("§8.1: POST with content-length", |p| {
            p.open_with(1, &[("content-length", "3")])
                .data(0, 1, b"a")
                .data(flag::END_STREAM, 1, b"bc");
            p.answer_says(1, "\"body_length\":3")
        }),
        ("§8.1: POST with trailers", |p| {
            p.open_with(1, &[("trailer", "x")])
                .data(0, 1, b"abc")
                .ask(1, &[("x", "y")]);
            p.answer_says(1, "\"body_length\":3")
        }),
        ("§8.1: trailers without DATA", |p| {
            p.open(1).ask(1, &[("x", "y")]);
            p.answer_says(1, "\"body_length\":0")
        }),
        ("§8.1: an unknown method is passed on", |p| {
            p.ask(1, &[(":method", "BREW"), SCHEME, AUTHORITY, PATH]);
            p.answer_says(1, "\"method\":\"BREW\"")
        }),
        ("§8.1: an answer before the end of the request", |p| {
            p.headers(
                0,
                1,
                &hpack::encode(&[POST, SCHEME, AUTHORITY, (":path", "/nowhere")]),
            );
            p.status(1, 404)?;
            p.data(0, 1, b"x").data(flag::END_STREAM, 1, b"y").serves()
        }),
        ("§8.1.2: an answer of 204 has no DATA", |p| {
            p.ask(
                1,
                &[(":method", "OPTIONS"), SCHEME, AUTHORITY, (":path", "*")],
            )
            .status(1, 204)?;
            due(!p.seen.iter().any(|frame| frame.kind == kind::DATA), || {
                p.story()
            })
        }),
        ("§8.2, §8.3: fields of answers", |p| {
            for (stream, path) in [
                (1, "/hello"),
                (3, "/nowhere"),
                (5, "/metrics"),
                (7, "/openapi.json"),
            ] {
                p.ask(stream, &[GET, SCHEME, AUTHORITY, (":path", path)]);
                fields_are_valid(&p.outcome(stream)).map_err(|fault| format!("{path}: {fault}"))?;
            }
            Ok(())
        }),
        ("§8.2.3: cookies may come in crumbs", |p| {
            p.ask_with(1, &[("cookie", "a=1"), ("cookie", "b=2")])
                .status(1, 200)
        }),
        ("§8.3.1: pseudo-headers in any order", |p| {
            p.ask(1, &[PATH, AUTHORITY, SCHEME, GET]).status(1, 200)
        }),
        ("§8.3.1: Host without :authority", |p| {
            p.ask(1, &[GET, SCHEME, PATH, ("host", "localhost")])
                .status(1, 200)
        }),
    ]);
}

fn fields_are_valid(outcome: &Outcome) -> Verdict {
    let Outcome::Response { headers, .. } = outcome else {
        return Err(format!("{outcome:?}"));
    };
    let forbidden = [
        "connection",
        "keep-alive",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    ];
    let is_valid = |(index, (name, value)): (usize, &(String, String))| {
        let is_pseudo = name.starts_with(':');
        let is_in_place = is_pseudo == (index == 0) && (!is_pseudo || name == ":status");
        let is_lower = !name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase());
        let is_trimmed = value.trim_matches([' ', '\t']) == value;
        is_in_place && is_lower && is_trimmed && !forbidden.contains(&&name[..])
    };
    due(headers.iter().enumerate().all(is_valid), || {
        format!("{headers:?}")
    })
}

/// A stream error, and nothing less.
fn malformed(peer: &mut Peer, headers: &[(&str, &str)]) -> Verdict {
    peer.ask(1, headers)
        .stream_error(1, &[code::PROTOCOL_ERROR])
}

/// The same for one field more than a valid request has.
fn malformed_with(peer: &mut Peer, name: &str, value: &str) -> Verdict {
    malformed(peer, &with(name, value))
}

/// A valid request and one field more.
fn with<'a>(name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    [&BASE[..], &[(name, value)]].concat()
}

/// A request that is refused: 400, or a stream error.
fn refused(peer: &mut Peer, headers: &[(&str, &str)]) -> Verdict {
    peer.ask(1, headers).refused(1)
}

#[test]
fn field_names_and_values() {
    check(&[
        ("§8.2: a name in upper case", |p| {
            malformed_with(p, "X-TEST", "ok")
        }),
        ("§8.2: a name with one letter in upper case", |p| {
            malformed_with(p, "x-tesT", "ok")
        }),
        ("§8.2.1: an empty name", |p| malformed_with(p, "", "ok")),
        ("§8.2.1: a name with a space", |p| {
            malformed_with(p, "x y", "ok")
        }),
        ("§8.2.1: a name with a control character", |p| {
            malformed_with(p, "x\u{1}", "ok")
        }),
        ("§8.2.1: a name with DEL", |p| {
            malformed_with(p, "x\u{7f}", "ok")
        }),
        ("§8.2.1: a name beyond ASCII", |p| {
            malformed_with(p, "caf\u{e9}", "ok")
        }),
        ("§8.2.1: a name with a colon within", |p| {
            malformed_with(p, "x:y", "ok")
        }),
        ("§8.2.1: a value with NUL", |p| {
            malformed_with(p, "x", "a\0b")
        }),
        ("§8.2.1: a value with LF", |p| {
            malformed_with(p, "x", "a\nb")
        }),
        ("§8.2.1: a value with CR", |p| {
            malformed_with(p, "x", "a\rb")
        }),
        ("§8.2.1: a value that begins with a space", |p| {
            refused(p, &with("x", " a"))
        }),
        ("§8.2.1: a value that ends with a space", |p| {
            refused(p, &with("x", "a "))
        }),
        ("§8.2.1: a value that begins with a tab", |p| {
            refused(p, &with("x", "\ta"))
        }),
        ("§8.2.1: a value that ends with a tab", |p| {
            refused(p, &with("x", "a\t"))
        }),
        ("§8.2.1: spaces within a value", |p| {
            p.ask_with(1, &[("x", "a \tb")]).status(1, 200)
        }),
        ("§8.2.2: connection", |p| {
            malformed_with(p, "connection", "keep-alive")
        }),
        ("§8.2.2: keep-alive", |p| {
            malformed_with(p, "keep-alive", "timeout=5")
        }),
        ("§8.2.2: proxy-connection", |p| {
            malformed_with(p, "proxy-connection", "close")
        }),
        ("§8.2.2: transfer-encoding", |p| {
            malformed_with(p, "transfer-encoding", "chunked")
        }),
        ("§8.2.2: upgrade", |p| {
            malformed_with(p, "upgrade", "websocket")
        }),
        ("§8.2.2: te other than trailers", |p| {
            malformed_with(p, "te", "trailers, deflate;q=0.5")
        }),
        ("§8.2.2: te of trailers", |p| {
            p.ask_with(1, &[("te", "trailers")]).status(1, 200)
        }),
    ]);
}

#[test]
fn pseudo_headers() {
    check(&[
        ("§8.3: an unknown one", |p| {
            malformed_with(p, ":test", "ok")
        }),
        ("§8.3: one of answers", |p| {
            malformed_with(p, ":status", "200")
        }),
        ("§8.3: behind a regular field", |p| {
            malformed(p, &[GET, SCHEME, AUTHORITY, ("x", "y"), PATH])
        }),
        ("§8.3: in trailers", |p| {
            p.open(1)
                .data(0, 1, b"x")
                .ask(1, &[GET, ("x", "y")])
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.3: in trailers, of the static table", |p| {
            p.open(1)
                .headers(flag::END_STREAM, 1, &[0x82])
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.3: in trailers, of the dynamic table", |p| {
            let list = hpack::encode(&[POST, SCHEME, AUTHORITY]);
            let block = [list, hpack::encode_indexed(":path", "/anything")].concat();
            p.headers(0, 1, &block)
                .headers(flag::END_STREAM, 1, &[0xbe])
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        (
            "§8.3: in trailers, behind the first of their frames",
            |p| {
                p.open(1)
                    .frame(
                        kind::HEADERS,
                        flag::END_STREAM,
                        1,
                        &hpack::encode(&[("x", "y")]),
                    )
                    .frame(
                        kind::CONTINUATION,
                        flag::END_HEADERS,
                        1,
                        &hpack::encode(&[GET]),
                    )
                    .stream_error(1, &[code::PROTOCOL_ERROR])
            },
        ),
        (
            "§8.3: trailers that are refused change the table too",
            |p| {
                p.open(1)
                    .headers(flag::END_STREAM, 1, b"\x82\x40\x01x\x01y")
                    .error(1, &[code::PROTOCOL_ERROR])?;
                let block = [hpack::encode(&BASE), vec![0xbe]].concat();
                p.headers(flag::END_STREAM, 3, &block)
                    .answer_says(3, "\"x\":\"y\"")
            },
        ),
        ("§8.3: an unknown one in trailers", |p| {
            p.open(1)
                .ask(1, &[(":test", "ok")])
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.3.1: no :method", |p| {
            malformed(p, &[SCHEME, AUTHORITY, PATH])
        }),
        ("§8.3.1: no :scheme", |p| {
            malformed(p, &[GET, AUTHORITY, PATH])
        }),
        ("§8.3.1: no :path", |p| {
            malformed(p, &[GET, SCHEME, AUTHORITY])
        }),
        ("§8.3.1: two :method", |p| {
            malformed_with(p, ":method", "GET")
        }),
        ("§8.3.1: two :scheme", |p| {
            malformed_with(p, ":scheme", "https")
        }),
        ("§8.3.1: two :path", |p| {
            malformed_with(p, ":path", "/anything")
        }),
        ("§8.3.1: two :authority", |p| {
            malformed_with(p, ":authority", "localhost")
        }),
        ("§8.3.1: an empty :path", |p| {
            malformed(p, &[GET, SCHEME, AUTHORITY, (":path", "")])
        }),
        ("§8.3.1: an empty :method", |p| {
            malformed(p, &[(":method", ""), SCHEME, AUTHORITY, PATH])
        }),
        ("§8.3.1: a :method with a space", |p| {
            malformed(p, &[(":method", "G T"), SCHEME, AUTHORITY, PATH])
        }),
        ("§8.3.1: an empty :scheme", |p| {
            refused(p, &[GET, (":scheme", ""), AUTHORITY, PATH])
        }),
        ("§8.3.1: an empty :authority", |p| {
            refused(p, &[GET, SCHEME, (":authority", ""), PATH])
        }),
        ("§8.3.1: a :path without a slash", |p| {
            refused(p, &[GET, SCHEME, AUTHORITY, (":path", "anything")])
        }),
        ("§8.3.1: an asterisk with GET", |p| {
            refused(p, &[GET, SCHEME, AUTHORITY, (":path", "*")])
        }),
        ("§8.3.1: a :path with a space", |p| {
            refused(p, &[GET, SCHEME, AUTHORITY, (":path", "/a b")])
        }),
        ("§8.3.1: a :path with NUL", |p| {
            refused(p, &[GET, SCHEME, AUTHORITY, (":path", "/a\0")])
        }),
        ("§8.3.1: a whole URL as :path", |p| {
            refused(
                p,
                &[GET, SCHEME, AUTHORITY, (":path", "https://localhost/")],
            )
        }),
        ("§8.3.1: :authority with userinfo", |p| {
            refused(p, &[GET, SCHEME, (":authority", "a@localhost"), PATH])
        }),
        ("§8.3.1: Host that differs from :authority", |p| {
            refused(
                p,
                &[GET, SCHEME, AUTHORITY, PATH, ("host", "other.example")],
            )
        }),
        ("§8.3.1: neither Host nor :authority", |p| {
            refused(p, &[GET, SCHEME, PATH])
        }),
    ]);
}

#[test]
fn lengths_of_bodies() {
    check(&[
        ("§8.1.1: a body shorter than content-length", |p| {
            p.open_with(1, &[("content-length", "5")])
                .data(flag::END_STREAM, 1, b"abc")
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.1.1: a body longer than content-length", |p| {
            p.open_with(1, &[("content-length", "1")])
                .data(flag::END_STREAM, 1, b"abc")
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.1.1: several DATA shorter than content-length", |p| {
            p.open_with(1, &[("content-length", "5")])
                .data(0, 1, b"a")
                .data(flag::END_STREAM, 1, b"b")
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.1.1: several DATA longer than content-length", |p| {
            p.open_with(1, &[("content-length", "1")])
                .data(0, 1, b"a")
                .data(flag::END_STREAM, 1, b"b")
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.1.1: content-length without a body", |p| {
            p.ask_with(1, &[("content-length", "1")])
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        (
            "§8.1.1: a body shorter than content-length, then trailers",
            |p| {
                p.open_with(1, &[("content-length", "5")])
                    .data(0, 1, b"abc")
                    .ask(1, &[("x", "y")])
                    .stream_error(1, &[code::PROTOCOL_ERROR])
            },
        ),
        ("§8.1.1: padding is no body", |p| {
            p.open_with(1, &[("content-length", "1")])
                .data(flag::END_STREAM | flag::PADDED, 1, &[3, b'x', 0, 0, 0])
                .status(1, 200)
        }),
        ("§8.1.1: content-length that is no number", |p| {
            p.open_with(1, &[("content-length", "x")])
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.1.1: content-length over 64 bits", |p| {
            p.open_with(1, &[("content-length", "18446744073709551616")])
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.1.1: two that differ", |p| {
            p.open_with(1, &[("content-length", "1"), ("content-length", "2")])
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
    ]);
}

#[test]
fn trailers() {
    check(&[
        (
            "§8.1: HEADERS after DATA that do not end the stream",
            |p| {
                p.open(1)
                    .data(0, 1, b"x")
                    .headers(0, 1, &hpack::encode(&[("x", "y")]))
                    .stream_error(1, &[code::PROTOCOL_ERROR])
            },
        ),
        ("§8.1: a second request head on an open stream", |p| {
            p.open(1)
                .headers(0, 1, &hpack::encode(&BASE))
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.2: a name in upper case", |p| {
            p.open(1)
                .ask(1, &[("X-Test", "ok")])
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.2.1: a value with LF", |p| {
            p.open(1)
                .ask(1, &[("x", "a\nb")])
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.2.2: connection", |p| {
            p.open(1)
                .ask(1, &[("connection", "close")])
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§8.1: DATA after trailers", |p| {
            p.settings(&[(setting::INITIAL_WINDOW_SIZE, 0)])
                .open(1)
                .ask(1, &[("x", "y")])
                .data(flag::END_STREAM, 1, b"x")
                .stream_error(1, &[code::STREAM_CLOSED])
        }),
    ]);
}

#[test]
fn connect() {
    const CONNECT: (&str, &str) = (":method", "CONNECT");
    const WEBSOCKET: (&str, &str) = (":protocol", "websocket");
    check(&[
        ("§8.5: this server is no proxy", |p| {
            p.headers(0, 1, &hpack::encode(&[CONNECT, AUTHORITY]));
            match p.outcome(1).status() {
                Some(400 | 405 | 501) => p.serves(),
                other => Err(format!("{other:?}")),
            }
        }),
        ("§8.5: with :scheme and :path", |p| {
            refused(p, &[CONNECT, SCHEME, AUTHORITY, PATH])
        }),
        ("§8.5: without :authority", |p| refused(p, &[CONNECT])),
        ("RFC 8441 §4: a WebSocket", |p| {
            let list = [
                CONNECT,
                WEBSOCKET,
                SCHEME,
                AUTHORITY,
                (":path", "/ws"),
                ("sec-websocket-version", "13"),
            ];
            p.headers(0, 1, &hpack::encode(&list));
            // A masked text of two letters, and its echo.
            p.data(0, 1, &[0x81, 0x82, 0, 0, 0, 0, b'o', b'k']);
            let echo = p.wait_for("echo", |frame| {
                frame.kind == kind::DATA && frame.stream == 1
            })?;
            match &echo[..] {
                [0x81, 2, b'o', b'k'] => p.serves(),
                other => Err(format!("{other:x?}")),
            }
        }),
        ("RFC 8441 §4: without :scheme and :path", |p| {
            p.ask(1, &[CONNECT, WEBSOCKET, AUTHORITY]).refused(1)
        }),
        ("RFC 8441 §4: :protocol with GET", |p| {
            malformed_with(p, ":protocol", "websocket")
        }),
        ("RFC 8441 §4: an unknown :protocol", |p| {
            p.headers(
                0,
                1,
                &hpack::encode(&[CONNECT, (":protocol", "gopher"), SCHEME, AUTHORITY, PATH]),
            );
            match p.outcome(1).status() {
                Some(400 | 405 | 501) => p.serves(),
                other => Err(format!("{other:?}")),
            }
        }),
    ]);
}
