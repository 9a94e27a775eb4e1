//! HTTP/2 floods (CVE-2019-9511 and after, CVE-2023-44487, CVE-2025-8671).
//!
//! Each ends the connection or is absorbed, while memory stays flat and others
//! are served; the three that make work for nothing must end it.

use std::net::Shutdown;
use std::time::{Duration, Instant};

use crate::support::client::End;
use crate::support::hpack;
use crate::support::http2::{Http2, flag, frame, get, kind, method};
use crate::support::process;
use crate::support::transports::{Servers, TRANSPORTS, Transport};

const MIB: u64 = 1024 * 1024;
const NUM_FRAMES: u32 = 20_000;
/// Streams within which h2 sees a flood of resets, and of its own resets.
const MAX_STREAMS: u32 = 800;
/// The same where each stream is reset for its window.
const MAX_OVERFLOWING_STREAMS: u32 = 2_200;
const ENHANCE_YOUR_CALM: u32 = 11;
const END: u8 = flag::END_STREAM | flag::END_HEADERS;

/// Frames by the thousand, replies unread.
#[derive(Debug)]
struct Flood {
    has_hung_up: bool,
    go_away: Option<u32>,
    /// Streams that the server says it looked at.
    num_streams: u32,
}

fn flood(
    servers: &Servers,
    transport: Transport,
    count: u32,
    first: &[u8],
    batch: &impl Fn(u32) -> Vec<u8>,
) -> Result<Flood, String> {
    let server = servers.server(transport);
    let before = process::rss_bytes(server.pid());
    let mut connection = Http2::over(servers.connect(transport));
    let socket = connection
        .stream()
        .socket()
        .try_clone()
        .expect("a socket can be duplicated");
    socket
        .set_write_timeout(Some(Duration::from_secs(1)))
        .expect("a valid timeout");
    let mut most = before;
    let mut num_sent = 0;
    let mut is_taken = connection.send(first).is_ok();
    while is_taken && num_sent < count {
        let bytes: Vec<u8> = (num_sent..num_sent + 200).flat_map(batch).collect();
        is_taken = connection.send(&bytes).is_ok();
        num_sent += 200;
        most = most.max(process::rss_bytes(server.pid()));
    }
    // Half-close tells an absorbing server that no more comes.
    let _already_gone = socket.shutdown(Shutdown::Write);
    let (go_away, end) = connection.read_to_end();
    most = most.max(process::rss_bytes(server.pid()));
    let grown = most.saturating_sub(before);
    if grown >= 8 * MIB {
        return Err(format!(
            "{} MiB more memory after {num_sent} frames",
            grown / MIB
        ));
    }
    answers(servers, transport)?;
    let has_hung_up = go_away.is_some_and(|code| code != 0) || (!is_taken && end != End::StillOpen);
    Ok(Flood {
        has_hung_up,
        go_away,
        num_streams: connection.last_stream.div_ceil(2),
    })
}

/// A new connection is served.
fn answers(servers: &Servers, transport: Transport) -> Result<(), String> {
    let start = Instant::now();
    let outcome = Http2::over(servers.connect(transport)).get(1, "/hello");
    let elapsed = start.elapsed();
    if outcome.status() == Some(200) && elapsed < Duration::from_secs(2) {
        return Ok(());
    }
    Err(format!("{outcome:?} after {elapsed:?}"))
}

/// The connection ends long before the flood does.
fn check_ended(max_streams: u32, first: &[u8], batch: impl Fn(u32) -> Vec<u8>) {
    let servers = Servers::start(&[]);
    for transport in TRANSPORTS {
        let flood = flood(&servers, transport, NUM_FRAMES, first, &batch);
        let flood = flood.unwrap_or_else(|complaint| panic!("{transport:?}: {complaint}"));
        assert!(flood.has_hung_up, "{transport:?}, absorbed: {flood:?}");
        assert!(
            flood.num_streams <= max_streams,
            "{transport:?}, late: {flood:?}"
        );
        assert!(
            matches!(flood.go_away, None | Some(1 | 3 | 9 | 11)),
            "{transport:?}: {flood:?}"
        );
    }
}

/// The connection ends, or all of it is taken at no cost.
fn check_survived(first: &[u8], batch: impl Fn(u32) -> Vec<u8>) {
    check_survived_times(NUM_FRAMES, first, batch);
}

fn check_survived_times(count: u32, first: &[u8], batch: impl Fn(u32) -> Vec<u8>) {
    let servers = Servers::start(&[]);
    for transport in TRANSPORTS {
        flood(&servers, transport, count, first, &batch)
            .unwrap_or_else(|complaint| panic!("{transport:?}: {complaint}"));
    }
}

const fn stream(index: u32) -> u32 {
    index * 2 + 1
}

#[test]
fn rapid_reset_ends_the_connection() {
    let block = hpack::encode(&get("/hello"));
    check_ended(MAX_STREAMS, &[], |index| {
        let reset = frame(kind::RST_STREAM, 0, stream(index), &8u32.to_be_bytes());
        [frame(kind::HEADERS, END, stream(index), &block), reset].concat()
    });
}

#[test]
fn made_you_reset_by_zero_increments_ends_the_connection() {
    let block = hpack::encode(&method("POST", "/echo"));
    check_ended(MAX_STREAMS, &[], |index| {
        let update = frame(kind::WINDOW_UPDATE, 0, stream(index), &[0; 4]);
        [
            frame(kind::HEADERS, flag::END_HEADERS, stream(index), &block),
            update,
        ]
        .concat()
    });
}

#[test]
fn made_you_reset_by_window_overflow_ends_the_connection() {
    let block = hpack::encode(&method("POST", "/echo"));
    check_ended(MAX_OVERFLOWING_STREAMS, &[], |index| {
        let most = 0x7fff_ffffu32.to_be_bytes();
        let update = frame(kind::WINDOW_UPDATE, 0, stream(index), &most);
        [
            frame(kind::HEADERS, flag::END_HEADERS, stream(index), &block),
            update,
        ]
        .concat()
    });
}

#[test]
fn a_continuation_flood_ends_the_connection() {
    let first = frame(
        kind::HEADERS,
        flag::END_STREAM,
        1,
        &hpack::encode(&get("/hello")),
    );
    let block = hpack::encode(&[(
        "x",
        "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy",
    )]);
    check_ended(1, &first, |_| frame(kind::CONTINUATION, 0, 1, &block));
}

#[test]
fn an_empty_continuation_flood_ends_the_connection() {
    let first = frame(
        kind::HEADERS,
        flag::END_STREAM,
        1,
        &hpack::encode(&get("/hello")),
    );
    check_ended(1, &first, |_| frame(kind::CONTINUATION, 0, 1, &[]));
}

/// What h2 allows for a header list of 16 KiB, which fits one frame.
const MAX_CONTINUATIONS: usize = 5;

/// The first frame too many is enough, whatever there is in it.
#[test]
fn a_header_block_has_few_frames() {
    let servers = Servers::start(&[]);
    let block = hpack::encode(&get("/hello"));
    for transport in TRANSPORTS {
        for part in [&[][..], &hpack::encode(&[("x", "y")])] {
            let ask = |num_open: usize| {
                let mut connection = Http2::over(servers.connect(transport));
                let open = frame(kind::CONTINUATION, 0, 1, part);
                let first = frame(kind::HEADERS, flag::END_STREAM, 1, &block);
                connection
                    .send(&[first, open.repeat(num_open)].concat())
                    .expect("a few frames fit any buffer");
                connection
            };
            let mut served = ask(MAX_CONTINUATIONS);
            let last = frame(kind::CONTINUATION, flag::END_HEADERS, 1, part);
            served.send(&last).expect("the connection is open");
            assert_eq!(served.outcome(1).status(), Some(200), "{transport:?}");
            let go_away = ask(MAX_CONTINUATIONS + 1).wait_for_go_away();
            assert_eq!(go_away, Ok(ENHANCE_YOUR_CALM), "{transport:?}, {part:?}");
        }
    }
}

#[test]
fn floods_of_other_frames_are_survived() {
    let post = frame(
        kind::HEADERS,
        flag::END_HEADERS,
        1,
        &hpack::encode(&method("POST", "/echo")),
    );
    check_survived(&post, |_| frame(kind::DATA, 0, 1, &[]));
    check_survived(&post, |_| frame(kind::DATA, flag::PADDED, 1, &[0]));
    check_survived(&[], |_| frame(kind::PING, 0, 0, &[7; 8]));
    check_survived(&[], |_| frame(kind::SETTINGS, 0, 0, &[]));
    check_survived(&[], |_| {
        frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255])
    });
    check_survived(&[], |index| {
        frame(kind::PRIORITY, 0, stream(index), &[0, 0, 0, 0, 16])
    });
    check_survived(&[], |_| frame(0xee, 0, 0, &[0; 64]));
    check_survived(&[], |_| {
        frame(kind::WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes())
    });
}

/// Streams that are never ended: refused beyond the limit, not kept.
#[test]
fn a_flood_of_open_streams_is_survived() {
    let block = hpack::encode(&method("POST", "/echo"));
    check_survived(&[], |index| {
        frame(kind::HEADERS, flag::END_HEADERS, stream(index), &block)
    });
}

/// Answers without a window to send them in must not pile up unbounded.
#[test]
fn a_client_without_a_window_is_survived() {
    let settings = frame(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let block = hpack::encode(&get("/anything"));
    check_survived(&settings, |index| {
        frame(kind::HEADERS, END, stream(index), &block)
    });
}

/// One 4 KB header, named by a byte, 16,000 times in each of 200 requests.
#[test]
fn an_hpack_bomb_is_survived() {
    let value = "v".repeat(4000);
    let kept = [
        hpack::encode(&get("/hello")),
        hpack::encode_indexed("x", &value),
    ]
    .concat();
    let first = frame(kind::HEADERS, END, 1, &kept);
    let bomb = [hpack::encode(&get("/hello")), vec![0xbe; 16_000]].concat();
    check_survived_times(200, &first, |index| {
        frame(kind::HEADERS, END, stream(index + 1), &bomb)
    });
}
