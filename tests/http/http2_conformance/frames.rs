//! Each type of frame: where it may come, how long it is, what it may say
//! (RFC 9113 §6).

#![expect(
    clippy::too_many_lines,
    reason = "a table has as many lines as its section has cases"
)]

use super::*;

/// A frame of this length is wrong for its type.
fn check_length(kind: u8, stream: u32, lengths: &[usize]) {
    let servers = Servers::start(&[]);
    let mut failures = Failures::default();
    for length in lengths {
        for transport in TRANSPORTS {
            let mut peer = Peer::over(Http2::over(servers.connect(transport)));
            if stream > 0 {
                peer.open(stream);
            }
            let verdict = peer
                .frame(kind, 0, stream, &vec![0; *length])
                .stream_error(stream, &[code::FRAME_SIZE_ERROR]);
            failures.case(&format!("{length} bytes, {transport:?}"), verdict);
        }
    }
    failures.finish();
}

#[test]
fn lengths_of_priority() {
    check_length(kind::PRIORITY, 1, &[0, 4, 6]);
}

#[test]
fn lengths_of_rst_stream() {
    check_length(kind::RST_STREAM, 1, &[0, 3, 5]);
}

#[test]
fn lengths_of_settings() {
    check_length(kind::SETTINGS, 0, &[1, 3, 5, 7, 13]);
}

#[test]
fn lengths_of_ping() {
    check_length(kind::PING, 0, &[0, 6, 7, 9]);
}

#[test]
fn lengths_of_goaway() {
    check_length(kind::GOAWAY, 0, &[0, 4, 7]);
}

#[test]
fn lengths_of_window_update() {
    check_length(kind::WINDOW_UPDATE, 0, &[0, 3, 5]);
    check_length(kind::WINDOW_UPDATE, 1, &[0, 3, 5]);
}

#[test]
fn data() {
    check(&[
        ("§6.1: on stream 0", |p| {
            p.data(flag::END_STREAM, 0, b"x")
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.1: padded", |p| {
            p.open(1)
                .data(flag::END_STREAM | flag::PADDED, 1, &[2, b'x', 0, 0]);
            p.answer_says(1, "\"body_length\":1")
        }),
        ("§6.1: nothing but padding", |p| {
            p.open(1)
                .data(flag::END_STREAM | flag::PADDED, 1, &[3, 0, 0, 0]);
            p.answer_says(1, "\"body_length\":0")
        }),
        ("§6.1: padded by nothing", |p| {
            p.open(1)
                .data(flag::END_STREAM | flag::PADDED, 1, &[0, b'x']);
            p.answer_says(1, "\"body_length\":1")
        }),
        ("§6.1: padding of the length of the payload", |p| {
            p.open(1)
                .data(flag::END_STREAM | flag::PADDED, 1, &[4, b'x', 0, 0])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.1: padding longer than the payload", |p| {
            p.open(1)
                .data(flag::END_STREAM | flag::PADDED, 1, &[255, b'x', 0, 0])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.1: padded without the length of the padding", |p| {
            p.open(1)
                .data(flag::END_STREAM | flag::PADDED, 1, &[])
                .connection_error(&[code::PROTOCOL_ERROR, code::FRAME_SIZE_ERROR])
        }),
    ]);
}

#[test]
fn headers() {
    check(&[
        ("§6.2: on stream 0", |p| {
            p.ask_with(0, &[]).connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.2: padded", |p| {
            let block = [&[4][..], &hpack::encode(&BASE), &[0; 4]].concat();
            p.headers(flag::END_STREAM | flag::PADDED, 1, &block)
                .status(1, 200)
        }),
        ("§6.2: padded and with a priority", |p| {
            let block = [&[4, 0, 0, 0, 0, 9][..], &hpack::encode(&BASE), &[0; 4]].concat();
            p.headers(flag::END_STREAM | flag::PADDED | flag::PRIORITY, 1, &block)
                .status(1, 200)
        }),
        ("§6.2: padding longer than the payload", |p| {
            let block = [&[255][..], &hpack::encode(&BASE)[..40]].concat();
            p.headers(flag::END_STREAM | flag::PADDED, 1, &block)
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.2: padded without the length of the padding", |p| {
            p.headers(flag::END_STREAM | flag::PADDED, 1, &[])
                .connection_error(&[code::PROTOCOL_ERROR, code::FRAME_SIZE_ERROR])
        }),
        ("§6.2: with part of a priority", |p| {
            p.headers(flag::END_STREAM | flag::PRIORITY, 1, &[0, 0, 0])
                .connection_error(&[code::PROTOCOL_ERROR, code::FRAME_SIZE_ERROR])
        }),
    ]);
}

#[test]
fn priority_and_rst_stream() {
    check(&[
        ("§6.3: PRIORITY on stream 0", |p| {
            p.frame(kind::PRIORITY, 0, 0, &[0, 0, 0, 0, 9])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.4: RST_STREAM on stream 0", |p| {
            p.reset(0).connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.4: no RST_STREAM answers RST_STREAM", |p| {
            p.open(1).reset(1).ignored()
        }),
    ]);
}

#[test]
fn settings() {
    check(&[
        ("§6.5: ACK with a payload", |p| {
            p.frame(kind::SETTINGS, flag::ACK, 0, &[0; 6])
                .connection_error(&[code::FRAME_SIZE_ERROR])
        }),
        ("§6.5: ACK with a byte", |p| {
            p.frame(kind::SETTINGS, flag::ACK, 0, &[0])
                .connection_error(&[code::FRAME_SIZE_ERROR])
        }),
        ("§6.5: on a stream", |p| {
            p.frame(kind::SETTINGS, 0, 1, &[])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.5: ACK on a stream", |p| {
            p.frame(kind::SETTINGS, flag::ACK, 1, &[])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.5.2: ENABLE_PUSH of 2", |p| {
            p.settings(&[(setting::ENABLE_PUSH, 2)])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.5.2: ENABLE_PUSH of 0 and 1", |p| {
            p.settings(&[(setting::ENABLE_PUSH, 0)])
                .settings(&[(setting::ENABLE_PUSH, 1)])
                .ignored()
        }),
        ("§6.5.2: INITIAL_WINDOW_SIZE of 2^31", |p| {
            p.settings(&[(setting::INITIAL_WINDOW_SIZE, 0x8000_0000)])
                .connection_error(&[code::FLOW_CONTROL_ERROR])
        }),
        (
            "§6.5.2: INITIAL_WINDOW_SIZE of 2^31 behind other settings",
            |p| {
                p.settings(&[
                    (setting::ENABLE_PUSH, 0),
                    (99, 7),
                    (setting::INITIAL_WINDOW_SIZE, u32::MAX),
                ])
                .connection_error(&[code::FLOW_CONTROL_ERROR])
            },
        ),
        ("§6.5.2: INITIAL_WINDOW_SIZE of 2^31-1", |p| {
            p.settings(&[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)])
                .ignored()
        }),
        ("§6.5.2: MAX_FRAME_SIZE of 16,383", |p| {
            p.settings(&[(setting::MAX_FRAME_SIZE, 16_383)])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.5.2: MAX_FRAME_SIZE of 2^24", |p| {
            p.settings(&[(setting::MAX_FRAME_SIZE, 1 << 24)])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.5.2: MAX_FRAME_SIZE of 16,384 and 2^24-1", |p| {
            p.settings(&[(setting::MAX_FRAME_SIZE, 16_384)])
                .settings(&[(setting::MAX_FRAME_SIZE, (1 << 24) - 1)])
                .ignored()
        }),
        (
            "§6.5.2: MAX_CONCURRENT_STREAMS of 0 binds the server only",
            |p| {
                p.settings(&[(setting::MAX_CONCURRENT_STREAMS, 0)])
                    .ignored()
            },
        ),
        ("§6.5.2: MAX_HEADER_LIST_SIZE of 2^32-1", |p| {
            p.settings(&[(setting::MAX_HEADER_LIST_SIZE, u32::MAX)])
                .ignored()
        }),
        ("§6.5.2: HEADER_TABLE_SIZE of 2^32-1", |p| {
            p.settings(&[(setting::HEADER_TABLE_SIZE, u32::MAX)])
                .ignored()
        }),
        ("§6.5.2: an unknown setting is ignored", |p| {
            p.settings(&[(0xff, 1), (0, 0), (0xffff, u32::MAX)])
                .ignored()
        }),
        ("RFC 8441 §3: ENABLE_CONNECT_PROTOCOL of 2", |p| {
            p.settings(&[(setting::ENABLE_CONNECT_PROTOCOL, 2)])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.5.3: each SETTINGS is acknowledged", |p| {
            p.settings(&[])
                .settings(&[(setting::ENABLE_PUSH, 0)])
                .settings(&[])
                .serves()?;
            let is_ack =
                |frame: &&Frame| frame.kind == kind::SETTINGS && frame.flags & flag::ACK != 0;
            match p.seen.iter().filter(is_ack).count() {
                4 => Ok(()),
                other => Err(format!("{other} of 4: {}", p.story())),
            }
        }),
        (
            "§6.5.3: of a setting that comes twice the last counts",
            |p| {
                p.settings(&[
                    (setting::INITIAL_WINDOW_SIZE, 100),
                    (setting::INITIAL_WINDOW_SIZE, 1),
                ])
                .ask_with(1, &[]);
                let data = p.wait_for("DATA", |frame| {
                    frame.kind == kind::DATA && frame.stream == 1
                })?;
                match data.len() {
                    1 => Ok(()),
                    other => Err(format!("{other} bytes")),
                }
            },
        ),
        (
            "§6.5.3: settings hold for what is answered after them",
            |p| {
                p.wait_for("ACK", |frame| {
                    frame.kind == kind::SETTINGS && frame.flags & flag::ACK != 0
                })?;
                p.settings(&[(setting::INITIAL_WINDOW_SIZE, 3)])
                    .ask_with(1, &[]);
                let data = p.wait_for("DATA", |frame| {
                    frame.kind == kind::DATA && frame.stream == 1
                })?;
                match data.len() {
                    3 => Ok(()),
                    other => Err(format!("{other} bytes")),
                }
            },
        ),
    ]);
}

#[test]
fn push_promise_ping_and_goaway() {
    check(&[
        ("§8.4: PUSH_PROMISE of a client", |p| {
            let payload = [&[0, 0, 0, 2][..], &hpack::encode(&BASE)].concat();
            p.open(1)
                .frame(kind::PUSH_PROMISE, flag::END_HEADERS, 1, &payload)
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.6: PUSH_PROMISE on stream 0", |p| {
            let payload = [&[0, 0, 0, 2][..], &hpack::encode(&BASE)].concat();
            p.frame(kind::PUSH_PROMISE, flag::END_HEADERS, 0, &payload)
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.7: PING is answered with its payload", |p| {
            p.frame(kind::PING, 0, 0, b"justapi!");
            let is_answer = |frame: &Frame| frame.kind == kind::PING && frame.flags == flag::ACK;
            match &p.wait_for("PING ACK", is_answer)?[..] {
                b"justapi!" => p.ignored(),
                other => Err(format!("{other:?}")),
            }
        }),
        ("§6.7: PING with ACK is not answered", |p| {
            p.frame(kind::PING, flag::ACK, 0, b"invalid!")
                .frame(kind::PING, 0, 0, b"justapi!");
            let is_ping = |frame: &Frame| frame.kind == kind::PING;
            match &p.wait_for("PING ACK", is_ping)?[..] {
                b"justapi!" => p.ignored(),
                other => Err(format!("{other:?}")),
            }
        }),
        ("§6.7: PING on a stream", |p| {
            p.frame(kind::PING, 0, 1, &[0; 8])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.8: GOAWAY on a stream", |p| {
            p.frame(kind::GOAWAY, 0, 1, &[0; 8])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        (
            "§6.8: after GOAWAY of the client its requests are finished",
            |p| {
                p.open(1)
                    .frame(kind::GOAWAY, 0, 0, &[0; 8])
                    .data(flag::END_STREAM, 1, b"x");
                p.status(1, 200)
            },
        ),
    ]);
}

#[test]
fn continuation() {
    check(&[
        ("§6.10: a block in three frames", |p| {
            let block = hpack::encode(&BASE);
            p.frame(kind::HEADERS, flag::END_STREAM, 1, &block[..5])
                .frame(kind::CONTINUATION, 0, 1, &block[5..30])
                .frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block[30..])
                .status(1, 200)
        }),
        ("§6.10: empty fragments", |p| {
            let block = hpack::encode(&BASE);
            p.frame(kind::HEADERS, flag::END_STREAM, 1, &[])
                .frame(kind::CONTINUATION, 0, 1, &block)
                .frame(kind::CONTINUATION, flag::END_HEADERS, 1, &[])
                .status(1, 200)
        }),
        ("§6.10: a block cut at every byte", |p| {
            let block = hpack::encode(&BASE);
            for cut in 1..block.len() {
                let stream = 2 * cut as u32 - 1;
                p.frame(kind::HEADERS, flag::END_STREAM, stream, &block[..cut])
                    .frame(kind::CONTINUATION, flag::END_HEADERS, stream, &block[cut..])
                    .status(stream, 200)?;
            }
            p.ignored()
        }),
        ("§6.10: padded HEADERS and CONTINUATION", |p| {
            let block = hpack::encode(&BASE);
            let first = [&[2][..], &block[..9], &[0; 2]].concat();
            p.frame(kind::HEADERS, flag::END_STREAM | flag::PADDED, 1, &first)
                .frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block[9..])
                .status(1, 200)
        }),
        (
            "§6.10: another frame than CONTINUATION within a block",
            |p| {
                let block = hpack::encode(&BASE);
                p.frame(kind::HEADERS, flag::END_STREAM, 1, &block[..9])
                    .frame(kind::CONTINUATION, 0, 1, &block[9..])
                    .frame(kind::DATA, flag::END_STREAM, 1, b"x")
                    .connection_error(&[code::PROTOCOL_ERROR])
            },
        ),
        ("§6.10: SETTINGS within a block", |p| {
            p.frame(kind::HEADERS, flag::END_STREAM, 1, &hpack::encode(&BASE))
                .settings(&[])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.10: PING within a block", |p| {
            p.frame(kind::HEADERS, flag::END_STREAM, 1, &hpack::encode(&BASE))
                .frame(kind::PING, 0, 0, &[0; 8])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.10: RST_STREAM within a block", |p| {
            p.frame(kind::HEADERS, flag::END_STREAM, 1, &hpack::encode(&BASE))
                .reset(1)
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.10: CONTINUATION on stream 0", |p| {
            let block = hpack::encode(&BASE);
            p.frame(kind::HEADERS, flag::END_STREAM, 1, &block[..9])
                .frame(kind::CONTINUATION, flag::END_HEADERS, 0, &block[9..])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.10: CONTINUATION of another stream", |p| {
            let block = hpack::encode(&BASE);
            p.frame(kind::HEADERS, flag::END_STREAM, 1, &block[..9])
                .frame(kind::CONTINUATION, flag::END_HEADERS, 3, &block[9..])
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        (
            "§6.10: CONTINUATION after HEADERS that ended the block",
            |p| {
                p.open(1)
                    .frame(
                        kind::CONTINUATION,
                        flag::END_HEADERS,
                        1,
                        &hpack::encode(&[("x", "y")]),
                    )
                    .connection_error(&[code::PROTOCOL_ERROR])
            },
        ),
        (
            "§6.10: CONTINUATION after CONTINUATION that ended the block",
            |p| {
                let block = hpack::encode(&[POST, SCHEME, AUTHORITY, PATH]);
                p.frame(kind::HEADERS, 0, 1, &block[..9])
                    .frame(kind::CONTINUATION, flag::END_HEADERS, 1, &block[9..])
                    .frame(
                        kind::CONTINUATION,
                        flag::END_HEADERS,
                        1,
                        &hpack::encode(&[("x", "y")]),
                    )
                    .connection_error(&[code::PROTOCOL_ERROR])
            },
        ),
        ("§6.10: CONTINUATION after DATA", |p| {
            p.open(1)
                .data(0, 1, b"x")
                .frame(
                    kind::CONTINUATION,
                    flag::END_HEADERS,
                    1,
                    &hpack::encode(&[("x", "y")]),
                )
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
    ]);
}
