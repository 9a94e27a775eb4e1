//! States, numbers, concurrency and priority of streams (RFC 9113 §5.1, §5.3).

use super::*;

/// A frame after the end of its stream (§5.1).
const CLOSED: &[u32] = &[code::STREAM_CLOSED];

#[test]
fn an_idle_stream() {
    check(&[
        ("§5.1: DATA on an idle stream", |p| {
            p.data(flag::END_STREAM, 1, b"x")
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§5.1: RST_STREAM on an idle stream", |p| {
            p.reset(1).connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§5.1: WINDOW_UPDATE on an idle stream", |p| {
            p.window_update(1, 100)
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§5.1: CONTINUATION on an idle stream", |p| {
            p.frame(
                kind::CONTINUATION,
                flag::END_HEADERS,
                1,
                &hpack::encode(&BASE),
            )
            .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§5.1: PRIORITY on an idle stream is taken", |p| {
            p.frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 255]).ignored()
        }),
        ("§5.1: PRIORITY does not open its stream", |p| {
            p.frame(kind::PRIORITY, 0, 7, &[0, 0, 0, 0, 255])
                .ask_with(1, &[])
                .status(1, 200)
        }),
        ("§5.1: DATA on a stream above the last one", |p| {
            p.answered(1)?
                .data(0, 9, b"x")
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§5.1: RST_STREAM on a stream above the last one", |p| {
            p.answered(1)?
                .reset(9)
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
    ]);
}

#[test]
fn an_open_stream() {
    check(&[
        ("§5.1: DATA ends the request", |p| {
            p.open(1).data(0, 1, b"ab").data(flag::END_STREAM, 1, b"c");
            p.answer_says(1, "\"body_length\":3")
        }),
        ("§5.1: empty DATA ends the request", |p| {
            p.open(1).data(flag::END_STREAM, 1, b"");
            p.answer_says(1, "\"body_length\":0")
        }),
        ("§5.1: PRIORITY is taken", |p| {
            p.open(1)
                .frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 9])
                .data(flag::END_STREAM, 1, b"");
            p.status(1, 200)
        }),
        ("§5.1: WINDOW_UPDATE is taken", |p| {
            p.open(1).window_update(1, 1).data(flag::END_STREAM, 1, b"");
            p.status(1, 200)
        }),
        ("§5.1: RST_STREAM is taken", |p| {
            p.open(1).reset(1).ignored()
        }),
        ("§5.1: streams end in any order", |p| {
            p.open(1).open(3).open(5);
            for stream in [3, 5, 1] {
                p.data(flag::END_STREAM, stream, b"x").status(stream, 200)?;
            }
            p.ignored()
        }),
    ]);
}

#[test]
fn a_half_closed_stream() {
    check(&[
        ("§5.1: DATA on a half-closed stream", |p| {
            p.half_closed(1)?
                .data(flag::END_STREAM, 1, b"x")
                .stream_error(1, CLOSED)
        }),
        ("§5.1: HEADERS on a half-closed stream", |p| {
            p.half_closed(1)?.ask_with(1, &[]).stream_error(1, CLOSED)
        }),
        ("§5.1: trailers on a half-closed stream", |p| {
            p.half_closed(1)?
                .ask(1, &[("x", "y")])
                .stream_error(1, CLOSED)
        }),
        ("§5.1: CONTINUATION on a half-closed stream", |p| {
            p.half_closed(1)?
                .frame(
                    kind::CONTINUATION,
                    flag::END_HEADERS,
                    1,
                    &hpack::encode(&BASE),
                )
                .connection_error(&[code::PROTOCOL_ERROR, code::STREAM_CLOSED])
        }),
        ("§5.1: WINDOW_UPDATE lets the answer go on", |p| {
            p.half_closed(1)?.window_update(1, 65_535).status(1, 200)
        }),
        ("§5.1: PRIORITY is taken", |p| {
            p.half_closed(1)?
                .frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 9])
                .ignored()
        }),
        ("§5.1: RST_STREAM ends the stream", |p| {
            p.half_closed(1)?.reset(1).ignored()
        }),
    ]);
}

#[test]
fn a_stream_that_both_sides_have_ended() {
    check(&[
        ("§5.1: DATA on a closed stream", |p| {
            p.answered(1)?
                .data(flag::END_STREAM, 1, b"x")
                .stream_error(1, CLOSED)
        }),
        ("§5.1: HEADERS on a closed stream", |p| {
            p.answered(1)?.ask_with(1, &[]).stream_error(1, CLOSED)
        }),
        ("§5.1: CONTINUATION on a closed stream", |p| {
            p.answered(1)?
                .frame(
                    kind::CONTINUATION,
                    flag::END_HEADERS,
                    1,
                    &hpack::encode(&BASE),
                )
                .connection_error(&[code::PROTOCOL_ERROR, code::STREAM_CLOSED])
        }),
        ("§5.1: PRIORITY on a closed stream is taken", |p| {
            p.answered(1)?
                .frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 9])
                .ignored()
        }),
        ("§5.1: late WINDOW_UPDATE is ignored", |p| {
            p.answered(1)?.window_update(1, 100).ignored()
        }),
        ("§5.1: late RST_STREAM is ignored", |p| {
            p.answered(1)?.reset(1).ignored()
        }),
    ]);
}

#[test]
fn a_stream_that_the_client_has_reset() {
    check(&[
        ("§5.1: DATA after RST_STREAM", |p| {
            p.cancelled(1)?
                .data(flag::END_STREAM, 1, b"x")
                .stream_error(1, CLOSED)
        }),
        ("§5.1: HEADERS after RST_STREAM", |p| {
            p.cancelled(1)?.ask_with(1, &[]).stream_error(1, CLOSED)
        }),
        ("§5.1: CONTINUATION after RST_STREAM", |p| {
            p.cancelled(1)?
                .frame(
                    kind::CONTINUATION,
                    flag::END_HEADERS,
                    1,
                    &hpack::encode(&BASE),
                )
                .connection_error(&[code::PROTOCOL_ERROR, code::STREAM_CLOSED])
        }),
        ("§5.1: PRIORITY after RST_STREAM is taken", |p| {
            p.cancelled(1)?
                .frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, 9])
                .ignored()
        }),
        ("§5.1: a second RST_STREAM is ignored", |p| {
            p.cancelled(1)?.reset(1).ignored()
        }),
    ]);
}

/// What was on the way when the server reset the stream is dropped.
#[test]
fn a_stream_that_the_server_has_reset() {
    check(&[
        ("§5.1: DATA that was on the way", |p| {
            p.window_update(0, 1)
                .open_with(1, &[("content-length", "1")])
                .data(0, 1, b"xy");
            p.error(1, &[code::PROTOCOL_ERROR])?;
            p.data(0, 1, b"z").data(flag::END_STREAM, 1, b"z").serves()
        }),
        ("§5.1: trailers that were on the way", |p| {
            p.open_with(1, &[("content-length", "1")]).data(0, 1, b"xy");
            p.error(1, &[code::PROTOCOL_ERROR])?;
            p.ask(1, &[("x", "y")]).serves()
        }),
        ("§5.1: RST_STREAM that was on the way", |p| {
            p.open_with(1, &[("content-length", "1")]).data(0, 1, b"xy");
            p.error(1, &[code::PROTOCOL_ERROR])?;
            p.reset(1).serves()
        }),
        ("§5.1: WINDOW_UPDATE that was on the way", |p| {
            p.open_with(1, &[("content-length", "1")]).data(0, 1, b"xy");
            p.error(1, &[code::PROTOCOL_ERROR])?;
            p.window_update(1, 5).serves()
        }),
    ]);
}

#[test]
fn numbers_of_streams() {
    check(&[
        ("§5.1.1: an even number", |p| {
            p.ask_with(2, &[]).connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§5.1.1: a number below one that was used", |p| {
            p.answered(5)?
                .ask_with(3, &[])
                .connection_error(&[code::PROTOCOL_ERROR, code::STREAM_CLOSED])
        }),
        ("§5.1.1: a number that was used", |p| {
            p.answered(5)?
                .ask_with(5, &[])
                .stream_error(5, &[code::PROTOCOL_ERROR, code::STREAM_CLOSED])
        }),
        ("§5.1.1: numbers may be left out", |p| {
            p.answered(1)?
                .answered(101)?
                .ask_with(0x1ff, &[])
                .status(0x1ff, 200)
        }),
        ("§5.1.1: the highest number", |p| {
            p.ask_with(0x7fff_ffff, &[]).status(0x7fff_ffff, 200)
        }),
    ]);
}

#[test]
fn streams_at_a_time() {
    check_on(
        &Servers::start(&["--h2-max-streams", "3"]),
        &[
            ("§5.1.2: the limit is announced", |p| {
                match p.server_settings()?.get(&setting::MAX_CONCURRENT_STREAMS) {
                    Some(3) => Ok(()),
                    other => Err(format!("{other:?}")),
                }
            }),
            (
                "§5.1.2: a stream too many is refused, others are not",
                |p| {
                    p.server_settings()?;
                    p.open(1).open(3).open(5).open(7);
                    p.wait_for("refusal", |frame| {
                        frame.kind == kind::RST_STREAM && frame.stream == 7
                    })?;
                    for stream in [1, 3, 5] {
                        p.data(flag::END_STREAM, stream, b"x").status(stream, 200)?;
                    }
                    match p.outcome(7) {
                        Outcome::Reset(code::REFUSED_STREAM | code::PROTOCOL_ERROR) => p.serves(),
                        other => Err(format!("{other:?}")),
                    }
                },
            ),
            ("§5.1.2: an answered stream no longer counts", |p| {
                for stream in [1, 3, 5, 7, 9, 11] {
                    p.answered(stream)?;
                }
                p.ignored()
            }),
            ("§5.1.2: a cancelled stream no longer counts", |p| {
                p.server_settings()?;
                for stream in [1, 3, 5, 7, 9, 11] {
                    p.cancelled(stream)?;
                }
                p.ignored()
            }),
        ],
    );
}

/// §5.3.2: deprecated signals are parsed and do nothing.
#[test]
fn priority() {
    check(&[
        ("§5.3.2: HEADERS with a priority", |p| {
            let block = [&[0, 0, 0, 0, 255][..], &hpack::encode(&BASE)].concat();
            p.headers(flag::END_STREAM | flag::PRIORITY, 1, &block)
                .status(1, 200)
        }),
        ("§5.3.2: HEADERS with an exclusive dependency", |p| {
            let block = [&[0x80, 0, 0, 7, 0][..], &hpack::encode(&BASE)].concat();
            p.headers(flag::END_STREAM | flag::PRIORITY, 1, &block)
                .status(1, 200)
        }),
        ("§6.3: PRIORITY of every weight", |p| {
            for weight in 0..=255 {
                p.frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 0, weight]);
            }
            p.ignored()
        }),
        (
            "§6.3: PRIORITY with dependencies on streams that do not exist",
            |p| {
                p.frame(kind::PRIORITY, 0, 3, &[0x80, 0, 0, 99, 1])
                    .ignored()
            },
        ),
        (
            "RFC 7540 §5.3.1: HEADERS that depend on their stream",
            |p| {
                let block = [&[0, 0, 0, 1, 255][..], &hpack::encode(&BASE)].concat();
                p.headers(flag::END_STREAM | flag::PRIORITY, 1, &block)
                    .stream_error(1, &[code::PROTOCOL_ERROR])
            },
        ),
        (
            "RFC 7540 §5.3.1: PRIORITY that depends on its stream",
            |p| {
                p.open(1)
                    .frame(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 255])
                    .stream_error(1, &[code::PROTOCOL_ERROR])
            },
        ),
    ]);
}
