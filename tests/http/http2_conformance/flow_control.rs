//! Flow control in both directions (RFC 9113 §5.2, §6.9).

use rustix::process::Signal;

use super::*;

const MOST: u32 = 0x7fff_ffff;

/// Waits until `stream` has had so many bytes of DATA in all.
fn received(peer: &mut Peer, stream: u32, num_bytes: usize) -> Verdict {
    loop {
        let found = num_received(peer, stream);
        if found >= num_bytes {
            return due(found == num_bytes, || {
                format!("{found} bytes, due were {num_bytes}")
            });
        }
        if let Err(end) = peer.read() {
            return Err(format!("{end:?} after {}", peer.story()));
        }
    }
}

fn num_received(peer: &Peer, stream: u32) -> usize {
    let is_data = |frame: &&Frame| frame.kind == kind::DATA && frame.stream == stream;
    let data = peer.seen.iter().filter(is_data);
    data.map(|frame| frame.payload.len()).sum()
}

/// Exactly so many bytes have come, and no more come before other answers.
fn stops_at(peer: &mut Peer, stream: u32, num_bytes: usize) -> Verdict {
    received(peer, stream, num_bytes)?;
    peer.serves()?;
    received(peer, stream, num_bytes)
}

#[test]
fn windows_of_the_client() {
    check(&[
        ("§6.9.1: a window of 1 is kept", |p| {
            p.settings(&[(setting::INITIAL_WINDOW_SIZE, 1)])
                .ask_with(1, &[]);
            stops_at(p, 1, 1)
        }),
        ("§6.9.1: a window of 0 is kept", |p| {
            stops_at(p.half_closed(1)?, 1, 0)
        }),
        ("§6.9: the window grows by its increments", |p| {
            p.half_closed(1)?.window_update(1, 3);
            stops_at(p, 1, 3)?;
            p.window_update(1, 4);
            stops_at(p, 1, 7)?;
            p.window_update(1, 65_535).status(1, 200)
        }),
        (
            "§6.9.2: a new initial window holds for streams that are there",
            |p| {
                p.half_closed(1)?
                    .settings(&[(setting::INITIAL_WINDOW_SIZE, 1)]);
                stops_at(p, 1, 1)?;
                p.settings(&[(setting::INITIAL_WINDOW_SIZE, 65_535)])
                    .status(1, 200)
            },
        ),
        ("§6.9.2: windows become negative", |p| {
            p.settings(&[(setting::INITIAL_WINDOW_SIZE, 3)])
                .ask_with(1, &[]);
            stops_at(p, 1, 3)?;
            // 3 bytes have been sent: the window is -1, then 0, then 1.
            p.settings(&[(setting::INITIAL_WINDOW_SIZE, 2)])
                .window_update(1, 1);
            stops_at(p, 1, 3)?;
            p.window_update(1, 1);
            stops_at(p, 1, 4)?;
            p.window_update(1, 65_535).status(1, 200)
        }),
        ("§6.9.1: the connection's window is kept", |p| {
            p.settings(&[(setting::INITIAL_WINDOW_SIZE, MOST)]);
            let json = format!("\"{}\"", "a".repeat(70_000));
            p.headers(
                0,
                1,
                &hpack::encode(&[POST, SCHEME, AUTHORITY, (":path", "/echo")]),
            );
            let (start, end) = json.as_bytes().split_at(60_000);
            for chunk in start.chunks(15_000) {
                p.data(0, 1, chunk);
            }
            p.wait_for_window(1)?;
            p.data(flag::END_STREAM, 1, end);
            stops_at(p, 1, 65_535)?;
            p.window_update(0, 65_535).status(1, 200)
        }),
        ("§6.9: an answer without a body needs no window", |p| {
            p.settings(&[(setting::INITIAL_WINDOW_SIZE, 0)]);
            let options = [(":method", "OPTIONS"), SCHEME, AUTHORITY, (":path", "*")];
            p.ask(1, &options).status(1, 204)
        }),
        (
            "§6.9: a request is answered while another has no window",
            |p| {
                p.half_closed(1)?
                    .settings(&[(setting::INITIAL_WINDOW_SIZE, 65_535)]);
                p.ask_with(3, &[]).status(3, 200)
            },
        ),
    ]);
}

impl Peer {
    /// Waits for more window of a stream, each update counting once.
    fn wait_for_window(&mut self, stream: u32) -> Verdict {
        self.wait_for("window", |frame| {
            frame.kind == kind::WINDOW_UPDATE && frame.stream == stream
        })?;
        let is_other = |frame: &Frame| frame.kind != kind::WINDOW_UPDATE || frame.stream != stream;
        self.seen.retain(is_other);
        Ok(())
    }
}

#[test]
fn increments() {
    check(&[
        ("§6.9: an increment of 0 on the connection", |p| {
            p.window_update(0, 0)
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.9: an increment of 0 on a stream", |p| {
            p.open(1)
                .window_update(1, 0)
                .stream_error(1, &[code::PROTOCOL_ERROR])
        }),
        ("§6.9: the reserved bit is ignored", |p| {
            p.window_update(0, 0x8000_0001).ignored()
        }),
        ("§6.9: the reserved bit alone is an increment of 0", |p| {
            p.window_update(0, 0x8000_0000)
                .connection_error(&[code::PROTOCOL_ERROR])
        }),
        ("§6.9.1: the connection's window up to 2^31-1", |p| {
            p.window_update(0, MOST - 65_535).ignored()
        }),
        ("§6.9.1: the connection's window over 2^31-1", |p| {
            p.window_update(0, MOST - 65_534)
                .connection_error(&[code::FLOW_CONTROL_ERROR])
        }),
        ("§6.9.1: the connection's window over 2^31-1 by two", |p| {
            p.window_update(0, MOST)
                .window_update(0, MOST)
                .connection_error(&[code::FLOW_CONTROL_ERROR])
        }),
        ("§6.9.1: a stream's window over 2^31-1", |p| {
            p.open(1)
                .window_update(1, MOST)
                .stream_error(1, &[code::FLOW_CONTROL_ERROR])
        }),
        ("§6.9.1: a half-closed stream's window over 2^31-1", |p| {
            p.half_closed(1)?.window_update(0, 1);
            p.settings(&[(setting::INITIAL_WINDOW_SIZE, 1)]);
            p.window_update(1, MOST - 1).window_update(1, MOST);
            match p.outcome(1) {
                Outcome::Reset(code::FLOW_CONTROL_ERROR) => p.serves(),
                // The answer was gone before the second increment came.
                Outcome::Response { status: 200, .. } => p.serves(),
                other => Err(format!("{other:?}")),
            }
        }),
        (
            "§6.9.2: an initial window that makes a stream's window overflow",
            |p| {
                p.open(1).window_update(1, MOST - 65_535);
                p.settings(&[(setting::INITIAL_WINDOW_SIZE, 65_536)])
                    .connection_error(&[code::FLOW_CONTROL_ERROR])
            },
        ),
    ]);
}

#[test]
fn the_window_of_a_stream() {
    check_on(
        &Servers::start(&["--h2-stream-window", "1KiB"]),
        &[
            ("§6.9.1: DATA up to the window", |p| {
                p.server_settings()?;
                p.wait_for_pong()?;
                p.open(1)
                    .data(flag::END_STREAM, 1, &[0; 1024])
                    .status(1, 200)
            }),
            ("§6.9.1: DATA over the window", |p| {
                p.server_settings()?;
                p.wait_for_pong()?;
                p.open(1)
                    .data(flag::END_STREAM, 1, &[0; 1025])
                    .stream_error(1, &[code::FLOW_CONTROL_ERROR])
            }),
            ("§6.1: padding counts", |p| {
                p.server_settings()?;
                p.wait_for_pong()?;
                let padded = [&[255][..], &[0; 1024]].concat();
                p.open(1)
                    .data(flag::END_STREAM | flag::PADDED, 1, &padded)
                    .stream_error(1, &[code::FLOW_CONTROL_ERROR])
            }),
            ("§6.9: the window opens again as the body is read", |p| {
                p.server_settings()?;
                p.wait_for_pong()?;
                p.open(1);
                for _ in 0..20 {
                    p.data(0, 1, &[0; 1024]).wait_for_window(1)?;
                }
                p.data(flag::END_STREAM, 1, b"");
                p.answer_says(1, "\"body_length\":20480")
            }),
        ],
    );
}

/// The window of a connection that is never wider than the first 65,535.
#[test]
fn the_window_of_the_connection() {
    let flags = [
        "--h2-stream-window",
        "1MiB",
        "--h2-connection-window",
        "64KiB",
    ];
    let servers = Servers::start(&flags);
    let mut failures = Failures::default();
    for transport in TRANSPORTS {
        let server = servers.server(transport);
        let mut peer = Peer::over(Http2::over(servers.connect(transport)));
        let verdict = peer.wait_for_pong().and_then(|()| {
            peer.open(1).wait_for_pong()?;
            // So that nothing is read before all has been sent.
            server.signal(Signal::STOP);
            for _ in 0..5 {
                peer.data(0, 1, &[0; 16_384]);
            }
            server.signal(Signal::CONT);
            peer.connection_error(&[code::FLOW_CONTROL_ERROR])
        });
        failures.case(&format!("§6.9.1: DATA over it, {transport:?}"), verdict);
    }
    failures.finish();
}
