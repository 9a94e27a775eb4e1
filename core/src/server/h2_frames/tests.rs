//! Frames as a peer sends them, at every cut.

use proptest::prelude::*;

use super::*;
use crate::server::fuzzing;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

/// The preface, SETTINGS, and these bytes.
fn start(frames: &[Vec<u8>]) -> Vec<u8> {
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0]);
    [&[b'P'; PREFACE_BYTES][..], &settings, &frames.concat()].concat()
}

/// What h2 gets of bytes that come in parts of this size, and what is wrong.
fn passed(bytes: &[u8], part: usize) -> (Vec<u8>, Option<Code>) {
    let mut check = FrameCheck::new();
    let mut shown = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    for part in bytes.chunks(part) {
        if check.wrong().is_some() {
            break;
        }
        let held = check.restore(&mut buffer);
        buffer[held..held + part.len()].copy_from_slice(part);
        let verdict = check.check(&mut buffer[..held + part.len()]);
        shown.extend_from_slice(&buffer[..verdict.passed]);
        assert_eq!(verdict.is_wrong, check.wrong().is_some());
    }
    (shown, check.wrong())
}

/// `GET` of the static table, and a field that enters the dynamic one.
const REQUEST: &[u8] = b"\x82\x40\x01x\x01y";
const ENTRY: &[u8] = &[0xbe];
const WHOLE: u8 = END_STREAM | END_HEADERS;

#[track_caller]
fn check_passes(frames: &[Vec<u8>]) {
    let bytes = start(frames);
    for part in 1..bytes.len() {
        assert_eq!(passed(&bytes, part), (bytes.clone(), None), "by {part}");
    }
}

/// All but the last frame pass, which is wrong.
#[track_caller]
fn check_wrong(frames: &[Vec<u8>], code: Code) {
    let (wrong, before) = frames.split_last().unwrap();
    let before = start(before);
    let bytes = [&before[..], wrong, &frame(PING, 0, 0, &[1; 8])].concat();
    for part in 1..bytes.len() {
        let due = (before.clone(), Some(code));
        assert_eq!(passed(&bytes, part), due, "{wrong:?} by {part}");
    }
}

#[test]
fn right_frames_pass_as_they_came_wherever_they_are_cut() {
    check_passes(&[
        frame(SETTINGS, ACK, 0, &[]),
        frame(HEADERS, WHOLE, 1, REQUEST),
        frame(HEADERS, END_HEADERS, 3, ENTRY),
        frame(DATA, 0, 3, &[7; 200]),
        frame(PRIORITY, 0, 1, &[0; 5]),
        frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frame(RST_STREAM, 0, 1, &[0; 4]),
        frame(RST_STREAM, 0, 1, &[0; 4]),
        frame(HEADERS, WHOLE, 3, ENTRY),
        frame(PING, 0, 0, &[0; 8]),
        frame(
            HEADERS,
            END_STREAM | PADDED | HAS_PRIORITY,
            5,
            b"\x02\0\0\0\x03\x09\xbe\0\0",
        ),
        frame(CONTINUATION, 0, 5, &[]),
        frame(CONTINUATION, 0, 5, b"\x00\x03a"),
        frame(CONTINUATION, END_HEADERS, 5, b"bc\x01d"),
        frame(0x16, 0xff, 9, &[1]),
        frame(GOAWAY, 0, 0, &[0; 9]),
    ]);
}

#[test]
fn a_frame_of_a_wrong_size_is_not_shown() {
    let too_wide = [0, 3, 0, 0, 0, 9, 0, 4, 0x80, 0, 0, 0];
    check_wrong(&[frame(SETTINGS, 0, 0, &too_wide)], Code::FlowControl);
    for wrong in [
        frame(SETTINGS, 0, 0, &[0; 7]),
        frame(SETTINGS, ACK, 0, &[0; 6]),
        frame(PRIORITY, 0, 1, &[0; 4]),
        frame(RST_STREAM, 0, 1, &[0; 5]),
        frame(PING, 0, 0, &[0; 7]),
        frame(GOAWAY, 0, 0, &[0; 7]),
        frame(WINDOW_UPDATE, 0, 1, &[0; 3]),
    ] {
        check_wrong(&[wrong], Code::FrameSize);
    }
}

#[test]
fn the_first_frame_is_settings() {
    for first in [frame(PING, 0, 0, &[0; 8]), frame(SETTINGS, ACK, 0, &[])] {
        let preface = vec![b'P'; PREFACE_BYTES];
        let bytes = [&preface[..], &first].concat();
        assert_eq!(passed(&bytes, 5), (preface, Some(Code::Protocol)));
    }
}

#[test]
fn nothing_of_a_message_follows_its_end() {
    let request = frame(HEADERS, WHOLE, 1, REQUEST);
    let open = frame(HEADERS, END_HEADERS, 1, REQUEST);
    for ended in [
        vec![request],
        vec![open.clone(), frame(DATA, END_STREAM, 1, b"x")],
        vec![open.clone(), frame(HEADERS, WHOLE, 1, ENTRY)],
        vec![open, frame(RST_STREAM, 0, 1, &[0; 4])],
    ] {
        for late in [frame(DATA, 0, 1, b"x"), frame(HEADERS, WHOLE, 1, ENTRY)] {
            let between = frame(HEADERS, END_HEADERS, 99, ENTRY);
            let frames = [&ended[..], &[between, late]].concat();
            check_wrong(&frames, Code::StreamClosed);
        }
    }
}

#[test]
fn the_ends_of_the_newest_streams_are_remembered() {
    let mut streams = EndedStreams::new();
    for stream in (1..10_000).step_by(2) {
        assert!(!streams.is_known(stream));
        streams.open(stream);
        if stream % 3 == 0 {
            streams.end(stream);
        }
        for earlier in (1..=stream).rev().step_by(2).take(40) {
            assert_eq!(streams.has_ended(earlier), earlier % 3 == 0, "{earlier}");
        }
    }
    assert!(!streams.has_ended(3), "it is too long ago");
    // Streams that are left out have not been ended by anybody.
    streams.open(12_001);
    assert!(!streams.has_ended(11_001));
    streams.end(u32::MAX >> 1);
    streams.open(u32::MAX >> 1);
    assert!(!streams.has_ended(u32::MAX >> 1));
}

#[test]
fn blocks_that_cannot_be_decoded_are_not_shown() {
    let open = frame(HEADERS, END_STREAM, 1, REQUEST);
    for wrong in [
        vec![frame(HEADERS, WHOLE, 1, ENTRY)],
        vec![frame(HEADERS, WHOLE, 1, b"\x00\x01x\x02y")],
        vec![open.clone(), frame(CONTINUATION, END_HEADERS, 1, &[0x80])],
        vec![open, frame(CONTINUATION, END_HEADERS, 1, b"\x00\x01x")],
    ] {
        check_wrong(&wrong, Code::Compression);
    }
}

/// What h2 would not decode must not put its table out of step.
#[test]
fn a_stream_that_depends_on_itself_ends_the_connection() {
    let block = [&[0x80, 0, 0, 1, 9][..], REQUEST].concat();
    let wrong = frame(HEADERS, WHOLE | HAS_PRIORITY, 1, &block);
    check_wrong(&[wrong], Code::Protocol);
}

#[test]
fn a_pseudo_header_takes_the_end_from_trailers() {
    let open = frame(HEADERS, END_HEADERS, 1, b"\x40\x05:path\x01/");
    for block in [
        // By the static and the dynamic table, in letters, and coded.
        &b"\x82"[..],
        b"\xbe",
        b"\x7e\x01y",
        b"\x00\x02:a\x01b",
        b"\x10\x84\xb9\x58\xd3\x3f\x01/",
    ] {
        let bytes = start(&[open.clone(), frame(HEADERS, WHOLE, 1, block)]);
        let due = start(&[open.clone(), frame(HEADERS, END_HEADERS, 1, block)]);
        for part in 1..bytes.len() {
            assert_eq!(passed(&bytes, part), (due.clone(), None), "{block:?}");
        }
        check_wrong(
            &[
                open.clone(),
                frame(HEADERS, END_STREAM, 1, b"\x90"),
                frame(CONTINUATION, END_HEADERS, 1, block),
            ],
            Code::Protocol,
        );
    }
}

fn frames() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop::sample::select(vec![0, 0, 1, 1, 1, 3, 6, 8, 9, 9]);
    let flags = prop::sample::select(vec![0, 1, 4, 4, 5, 5, 0x0d, 0x2c]);
    let streams = prop::sample::select(vec![1_u32, 3, 5, 2, 7, 2051, 2053]);
    let parts = prop::sample::select(vec![
        &b"\x82"[..],
        b"\xbe",
        b"\xbf",
        b"\x40\x01x\x01y",
        b"\x7e\x01z",
        b"\x00\x02:a\x01b",
        b"\x00\x01x\x03ab",
        b"\x20",
        b"\x01\x82\x00",
        b"",
    ]);
    let parts = prop::collection::vec(parts, 0..3);
    let one = (kinds, flags, streams, parts).prop_map(|(kind, flags, stream, parts)| {
        let payload = match kind {
            RST_STREAM | WINDOW_UPDATE => vec![0; 4],
            PING => vec![0; 8],
            _ => parts.concat(),
        };
        let mut bytes = frame(kind, flags, 0, &payload);
        bytes[5..HEAD_BYTES].copy_from_slice(&stream.to_be_bytes());
        bytes
    });
    prop::collection::vec(one, 0..24).prop_map(|frames| frames.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    /// The same as what a reader of whole streams says, at any cut.
    #[test]
    fn frames_are_judged_as_a_reader_of_whole_streams_does(
        frames in frames(),
        cuts in prop::collection::vec(any::<u8>(), 7),
    ) {
        let settings = frame(SETTINGS, 0, 0, &[]);
        fuzzing::check_h2_frames(&[settings, frames, cuts].concat());
    }
}

/// Names that are often in the tables, and values that seldom are.
const FIELDS: &[(&str, &str)] = &[
    ("accept", "*/*"),
    ("cookie", "a=1"),
    ("te", "trailers"),
    ("user-agent", "something/1.0 (like many others)"),
    ("x-a", ""),
    ("x-longer-name", "~|^<>\\ which no short code has"),
];

/// Some fields; the longer ones soon fill the table.
fn fields(random: &mut impl FnMut(usize) -> usize) -> http::HeaderMap {
    let mut map = http::HeaderMap::new();
    for _ in 0..random(6) {
        let (name, value) = FIELDS[random(FIELDS.len())];
        let mut value = match random(4) {
            _ if name == "te" => value.to_owned(),
            0 => format!("{value}{}", random(3)),
            1 => value.repeat(1 + random(12)),
            _ => value.to_owned(),
        };
        value.truncate(700);
        let mut value = http::HeaderValue::try_from(value).expect("visible ASCII");
        value.set_sensitive(random(8) == 0);
        map.append(name, value);
    }
    map
}

/// What h2 sends as a client: requests with trailers, on one connection.
async fn sent_by_h2(num_requests: usize, random: &mut impl FnMut(usize) -> usize) -> Vec<u8> {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let (mut client, connection) = h2::client::handshake(near).await.expect("it sends first");
    let connection = tokio::task::spawn_local(connection);
    for number in 0..num_requests {
        client = client.ready().await.expect("no limit is known");
        let path = format!("http://localhost/{}", random(4) * number);
        let mut request = http::Request::post(path).body(()).expect("a valid URI");
        *request.headers_mut() = fields(random);
        let (response, mut stream) = client.send_request(request, false).expect("it is open");
        stream.send_trailers(fields(random)).expect("it is open");
        // Sent before its handles are dropped, which would reset it.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
        drop((response, stream));
    }
    connection.abort();
    let mut bytes = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut far, &mut bytes);
    read.await.expect("an end in memory");
    bytes
}

/// Its tables come and go with what it sends: nothing of it is wrong.
#[test]
fn what_h2_encodes_passes() {
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        usize::try_from(state >> 33).expect("31 bits") % below
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime = runtime.expect("a runtime");
    for _ in 0..40 {
        let work = sent_by_h2(60, &mut random);
        let bytes = tokio::task::LocalSet::new().block_on(&runtime, work);
        assert!(bytes.len() > 2000, "{} bytes", bytes.len());
        let part = 1 + random(20_000);
        assert_eq!(passed(&bytes, part), (bytes, None), "by {part}");
    }
}
