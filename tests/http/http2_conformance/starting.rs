//! The start of a connection, frames in general, errors and extensions
//! (RFC 9113 §3.4, §4, §5.4, §5.5, §7).

#![expect(
    clippy::too_many_lines,
    reason = "a table has as many lines as its section has cases"
)]

use super::*;

#[test]
fn the_start_of_a_connection() {
    check(&[
        ("§3.4: the server's first frame is SETTINGS", |p| {
            let first = p.read().map_err(|end| format!("{end:?}"))?;
            match (first.kind, first.flags, first.stream) {
                (kind::SETTINGS, 0, 0) => p.serves(),
                other => Err(format!("{other:?}")),
            }
        }),
        ("§3.4: SETTINGS of the client is acknowledged", |p| {
            p.wait_for("ACK", is_settings_ack)?;
            p.serves()
        }),
        ("§6.5.2: the server's settings are in their ranges", |p| {
            let settings = p.server_settings()?;
            let get = |name| settings.get(&name).copied();
            let is_valid = get(setting::ENABLE_PUSH).unwrap_or(0) == 0
                && get(setting::INITIAL_WINDOW_SIZE).unwrap_or(0) <= 0x7fff_ffff
                && (16_384..=0xff_ffff).contains(&get(setting::MAX_FRAME_SIZE).unwrap_or(16_384))
                && get(setting::MAX_CONCURRENT_STREAMS).is_some_and(|limit| limit > 0)
                && get(setting::MAX_HEADER_LIST_SIZE).is_some();
            if is_valid {
                Ok(())
            } else {
                Err(format!("{settings:?}"))
            }
        }),
        (
            "RFC 8441 §3: the server says that it takes extended CONNECT",
            |p| match p.server_settings()?.get(&setting::ENABLE_CONNECT_PROTOCOL) {
                Some(1) => Ok(()),
                other => Err(format!("{other:?}")),
            },
        ),
        (
            "§3.4: a request right behind the preface is answered",
            |p| p.ask_with(1, &[]).status(1, 200),
        ),
    ]);
}

fn is_settings_ack(frame: &Frame) -> bool {
    frame.kind == kind::SETTINGS && frame.flags & flag::ACK != 0
}

/// What follows the connection's first bytes, which are these.
fn check_start(name: &str, bytes: &[u8], verdict: fn(&mut Peer) -> Verdict) {
    let servers = Servers::start(&[]);
    let mut failures = Failures::default();
    for transport in TRANSPORTS {
        let wire = servers.connect(transport);
        let mut peer = Peer::over(Http2::after_preface(wire));
        failures.case(&format!("{name}, {transport:?}"), verdict(peer.send(bytes)));
    }
    failures.finish();
}

#[test]
fn an_invalid_preface_ends_the_connection() {
    let settings = frame(kind::SETTINGS, 0, 0, &[]);
    let broken = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\t";
    check_start(
        "§3.4: another byte",
        &[broken, &settings[..]].concat(),
        Peer::hang_up,
    );
    let half = b"PRI * HTTP/2.0\r\n\r\nSM\r\r\n\n";
    check_start(
        "§3.4: other line ends",
        &[half, &settings[..]].concat(),
        Peer::hang_up,
    );
}

#[test]
fn a_preface_must_end_with_settings() {
    let first = |bytes: Vec<u8>| [PREFACE, &bytes].concat();
    let ping = frame(kind::PING, 0, 0, &[0; 8]);
    let request = frame(kind::HEADERS, WHOLE, 1, &hpack::encode(&BASE));
    let error = |p: &mut Peer| p.connection_error(&[code::PROTOCOL_ERROR]);
    check_start("§3.4: PING first", &first(ping), error);
    check_start("§3.4: HEADERS first", &first(request), error);
}

#[test]
fn frames_in_general() {
    check(&[
        ("§4.1: a frame of an unknown type is ignored", |p| {
            p.frame(0x16, 0, 0, &[0; 8]).ignored()
        }),
        ("§5.5: an unknown type on an open stream is ignored", |p| {
            p.open(1)
                .frame(0xff, 0xff, 1, &[0; 64])
                .data(flag::END_STREAM, 1, b"x");
            p.answer_says(1, "\"body_length\":1")
        }),
        ("§5.5: an unknown type on an idle stream is ignored", |p| {
            p.frame(0x16, 0, 9, &[0; 8]).ignored()
        }),
        ("§5.5: an unknown type within a header block", |p| {
            let block = hpack::encode(&BASE);
            p.frame(kind::HEADERS, flag::END_STREAM, 1, &block)
                .frame(0x16, 0, 0, &[0; 8])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§4.1: undefined flags are ignored", |p| {
            p.frame(kind::PING, 0xfe, 0, &[1; 8]);
            p.wait_for("PING ACK", |frame| {
                frame.kind == kind::PING && frame.payload == [1; 8]
            })?;
            p.ignored()
        }),
        (
            "§4.1: undefined flags of DATA and HEADERS are ignored",
            |p| {
                let list = [POST, SCHEME, AUTHORITY, PATH];
                p.frame(
                    kind::HEADERS,
                    0xd2 | flag::END_HEADERS,
                    1,
                    &hpack::encode(&list),
                )
                .frame(kind::DATA, 0xf6 | flag::END_STREAM, 1, b"x");
                p.answer_says(1, "\"body_length\":1")
            },
        ),
        ("§4.1: the reserved bit is ignored", |p| {
            p.frame(kind::PING, 0, 0x8000_0000, &[2; 8]);
            p.wait_for("PING ACK", |frame| {
                frame.kind == kind::PING && frame.payload == [2; 8]
            })?;
            p.ignored()
        }),
        (
            "§4.1: the reserved bit of a stream's frame is ignored",
            |p| {
                p.headers(flag::END_STREAM, 0x8000_0001, &hpack::encode(&BASE))
                    .status(1, 200)
            },
        ),
        ("§4.2: a frame of 16,384 bytes is taken", |p| {
            p.open(1).data(flag::END_STREAM, 1, &[0; 16_384]);
            p.answer_says(1, "\"body_length\":16384")
        }),
        ("§4.2: DATA over the limit", |p| {
            p.open(1)
                .data(flag::END_STREAM, 1, &vec![0; 16_385])
                .stream_error(1, &[code::FRAME_SIZE_ERROR])
        }),
        ("§4.2: HEADERS over the limit", |p| {
            let long = "y".repeat(16_384);
            p.ask_with(1, &[("x", &long)])
                .connection_error(&[code::FRAME_SIZE_ERROR])
        }),
        ("§4.2: SETTINGS over the limit", |p| {
            p.frame(kind::SETTINGS, 0, 0, &vec![0; 16_386])
                .connection_error(&[code::FRAME_SIZE_ERROR])
        }),
        ("§4.2: an unknown type over the limit", |p| {
            p.frame(0x16, 0, 0, &vec![0; 16_385])
                .connection_error(&[code::FRAME_SIZE_ERROR])
        }),
        ("§4.2: a frame that says it has 16 MiB", |p| {
            p.send(&[0xff, 0xff, 0xff, kind::DATA, 0, 0, 0, 0, 1])
                .connection_error(&[code::FRAME_SIZE_ERROR])
        }),
        ("§4.2: the server keeps to 16,384 bytes in a frame", |p| {
            let json = format!("\"{}\"", "a".repeat(40_000));
            p.headers(
                0,
                1,
                &hpack::encode(&[POST, SCHEME, AUTHORITY, (":path", "/echo")]),
            );
            for chunk in json.as_bytes().chunks(16_384) {
                p.data(0, 1, chunk);
            }
            p.data(flag::END_STREAM, 1, b"");
            p.wait_for("end of the answer", |frame| {
                frame.stream == 1 && frame.kind == kind::DATA && frame.flags & flag::END_STREAM != 0
            })?;
            due(
                p.seen.iter().all(|frame| frame.payload.len() <= 16_384),
                || p.story(),
            )
        }),
        ("§4.3: a header block that ends within a field", |p| {
            let block = hpack::encode(&BASE);
            p.headers(flag::END_STREAM, 1, &block[..block.len() - 3])
                .connection_error(&[code::COMPRESSION_ERROR])
        }),
        ("§4.3: PRIORITY within a header block", |p| {
            let block = hpack::encode(&BASE);
            p.frame(kind::HEADERS, flag::END_STREAM, 1, &block)
                .frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 255])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        (
            "§4.3: HEADERS of another stream within a header block",
            |p| {
                let block = hpack::encode(&BASE);
                p.frame(kind::HEADERS, flag::END_STREAM, 1, &block)
                    .ask_with(3, &[])
                    .connection_error(&[code::PROTOCOL_ERROR])
            },
        ),
        ("§5.4.1: the connection ends after GOAWAY", |p| {
            p.frame(kind::PING, 0, 1, &[0; 8])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        (
            "§5.4.1: GOAWAY names the last stream that was looked at",
            |p| {
                p.answered(5)?.frame(kind::PING, 0, 1, &[0; 8]);
                p.connection_error(&[code::PROTOCOL_ERROR])?;
                match p.http2.last_stream {
                    5 => Ok(()),
                    other => Err(format!("stream {other}")),
                }
            },
        ),
        ("§7: an unknown error code in GOAWAY does no harm", |p| {
            p.frame(kind::GOAWAY, 0, 0, &[0, 0, 0, 0, 0, 0, 0, 0xff]);
            p.hang_up_or_serve()
        }),
        (
            "§7: an unknown error code in RST_STREAM does no harm",
            |p| {
                p.open(1)
                    .frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 0xff])
                    .ignored()
            },
        ),
    ]);
}

impl Peer {
    /// After GOAWAY of the client, which may end the connection.
    fn hang_up_or_serve(&mut self) -> Verdict {
        match self.serves() {
            Ok(()) => Ok(()),
            Err(_) => self.hang_up(),
        }
    }
}
