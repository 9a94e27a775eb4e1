//! The decoder against tables: each case whole, split at every byte, and byte
//! by byte; equal to groups 1 to 7 of the Autobahn suite in kind.

use flate2::{Compress, Compression, FlushCompress};

use super::super::decoder::{Decoder, Event};
use super::super::deflate::Agreement;
use super::super::limits::WebSocketLimits;
use super::super::message::{CloseCode, CloseFrame, Message};
use super::{MASK, TAKEOVER, close, frame, text};

const LIMITS: WebSocketLimits = WebSocketLimits {
    max_message_bytes: 70_000,
    max_frame_bytes: 66_000,
    ..WebSocketLimits::DEFAULT
};

/// Name, frames, and the events that they are.
type Case = (&'static str, Vec<Vec<u8>>, &'static [&'static str]);

/// Events in short words, the last one perhaps the close code of a violation.
fn decode(pieces: &[&[u8]], agreement: Option<Agreement>) -> Vec<String> {
    let mut decoder = Decoder::new(&LIMITS, agreement);
    let mut seen = Vec::new();
    for piece in pieces {
        let mut piece = piece.to_vec();
        let mut start = 0;
        while start < piece.len() {
            match decoder.decode(&mut piece[start..]) {
                Ok((used, event)) => {
                    assert!(used > 0, "the decoder always takes something");
                    start += used;
                    seen.extend(event.map(word));
                }
                Err(violation) => {
                    seen.push(violation.code.to_string());
                    return seen;
                }
            }
        }
    }
    if decoder.is_amid_message() {
        seen.push("more".to_owned());
    }
    seen
}

fn word(event: Event) -> String {
    match event {
        Event::Message(Message::Text(text)) if text.len() > 20 => format!("text {}", text.len()),
        Event::Message(Message::Text(text)) => format!("text {text:?}"),
        Event::Message(Message::Binary(bytes)) => format!("binary {}", bytes.len()),
        Event::Ping(payload) => format!("ping {}", payload.as_slice().len()),
        Event::Pong => "pong".to_owned(),
        Event::Close(None) => "close".to_owned(),
        Event::Close(Some(CloseFrame { code, reason })) => format!("close {code} {reason:?}"),
    }
}

#[track_caller]
fn check_with(name: &str, input: &[u8], agreement: Option<Agreement>, expected: &[&str]) {
    assert_eq!(decode(&[input], agreement), expected, "{name}, whole");
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(decode(&bytes, agreement), expected, "{name}, byte by byte");
    for index in 0..input.len().min(300) {
        let (first, second) = input.split_at(index);
        assert_eq!(
            decode(&[first, second], agreement),
            expected,
            "{name}, split at {index}"
        );
    }
}

#[track_caller]
fn check(name: &str, input: &[u8], expected: &[&str]) {
    check_with(name, input, None, expected);
}

#[test]
fn valid_frames_are_events() {
    let long = "*".repeat(65_536);
    let cases: &[Case] = &[
        ("empty text", vec![text("")], &["text \"\""]),
        ("text", vec![text("Hello")], &["text \"Hello\""]),
        ("empty binary", vec![frame(0x82, b"")], &["binary 0"]),
        ("125 bytes", vec![text(&long[..125])], &["text 125"]),
        ("126 bytes", vec![text(&long[..126])], &["text 126"]),
        ("65,535 bytes", vec![text(&long[..65_535])], &["text 65535"]),
        ("65,536 bytes", vec![text(&long)], &["text 65536"]),
        (
            "two",
            vec![text("a"), frame(0x82, b"b")],
            &["text \"a\"", "binary 1"],
        ),
        ("ping", vec![frame(0x89, &[7; 125])], &["ping 125"]),
        ("unasked pong", vec![frame(0x8a, b"x")], &["pong"]),
        (
            "fragments around a ping",
            vec![
                frame(0x01, b"a"),
                frame(0x89, b""),
                frame(0x00, b""),
                frame(0x80, b"b"),
            ],
            &["ping 0", "text \"ab\""],
        ),
        ("a fragment", vec![frame(0x01, b"a")], &["more"]),
        (
            "a character over three fragments",
            vec![
                frame(0x01, &[0xf0, 0x9d]),
                frame(0x00, &[0x84]),
                frame(0x80, &[0x9e]),
            ],
            &["text \"𝄞\""],
        ),
        ("close", vec![frame(0x88, b"")], &["close"]),
        (
            "close with a reason",
            vec![close(1000, b"bye")],
            &["close 1000 \"bye\""],
        ),
        (
            "close inside a message",
            vec![frame(0x01, b"a"), close(1001, b"")],
            &["close 1001 \"\"", "more"],
        ),
    ];
    for (name, frames, expected) in cases {
        check(name, &frames.concat(), expected);
    }
}

#[test]
fn frames_that_break_a_rule_have_their_code() {
    let cases: &[(&str, Vec<Vec<u8>>, &str)] = &[
        ("RSV1 without an extension", vec![frame(0xc1, b"")], "1002"),
        ("RSV2", vec![frame(0xa1, b"")], "1002"),
        ("RSV3 on a ping", vec![frame(0x99, b"")], "1002"),
        ("opcode 3", vec![frame(0x83, b"")], "1002"),
        ("opcode 7", vec![frame(0x87, b"")], "1002"),
        ("opcode 11", vec![frame(0x8b, b"")], "1002"),
        ("opcode 15", vec![frame(0x8f, b"")], "1002"),
        ("no mask", vec![b"\x81\x02hi".to_vec()], "1002"),
        ("fragmented ping", vec![frame(0x09, b"")], "1002"),
        ("ping of 126 bytes", vec![frame(0x89, &[0; 126])], "1002"),
        ("close of 126 bytes", vec![frame(0x88, &[0; 126])], "1002"),
        ("continuation of nothing", vec![frame(0x80, b"a")], "1002"),
        (
            "text inside text",
            vec![frame(0x01, b"a"), text("b")],
            "1002",
        ),
        (
            "binary inside text",
            vec![frame(0x01, b"a"), frame(0x02, b"b")],
            "1002",
        ),
        (
            "length 5 in 16 bits",
            vec![[&b"\x81\xfe\0\x05"[..], &MASK].concat()],
            "1002",
        ),
        (
            "length 126 in 64 bits",
            vec![[&b"\x81\xff\0\0\0\0\0\0\0\x7e"[..], &MASK].concat()],
            "1002",
        ),
        (
            "length 2^63",
            vec![[&b"\x81\xff\x80\0\0\0\0\0\0\0"[..], &MASK].concat()],
            "1002",
        ),
        (
            "length 2^63 - 1",
            vec![[&b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff"[..], &MASK].concat()],
            "1009",
        ),
    ];
    for (name, frames, expected) in cases {
        check(name, &frames.concat(), &[expected]);
    }
}

#[test]
fn messages_that_break_a_rule_have_their_code() {
    let cases: &[(&str, Vec<Vec<u8>>, &str)] = &[
        (
            "frame too large",
            vec![frame(0x82, &vec![0; 66_001])],
            "1009",
        ),
        (
            "message too large",
            vec![frame(0x02, &[0; 60_000]), frame(0x80, &[0; 10_001])],
            "1009",
        ),
        ("half a close code", vec![frame(0x88, &[3])], "1002"),
        ("close reason not UTF-8", vec![close(1000, b"\xff")], "1007"),
        ("close reason cut", vec![close(1000, b"\xc3")], "1007"),
        ("text not UTF-8", vec![frame(0x81, b"a\xff")], "1007"),
        (
            "text ends in a character",
            vec![frame(0x81, b"\xe2\x82")],
            "1007",
        ),
        (
            "fragments end in a character",
            vec![frame(0x01, b"\xe2"), frame(0x80, b"\x82")],
            "1007",
        ),
        ("surrogate", vec![frame(0x81, b"\xed\xa0\x80")], "1007"),
        ("overlong", vec![frame(0x81, b"\xc0\xaf")], "1007"),
        (
            "beyond U+10FFFF",
            vec![frame(0x81, b"\xf4\x90\x80\x80")],
            "1007",
        ),
    ];
    for (name, frames, expected) in cases {
        check(name, &frames.concat(), &[expected]);
    }
}

#[test]
fn close_codes_are_those_that_may_be_sent() {
    for code in [
        0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535,
    ] {
        check(&code.to_string(), &close(code, b""), &["1002"]);
    }
    for code in [
        1000, 1001, 1002, 1003, 1007, 1011, 1012, 1014, 3000, 3999, 4000, 4999,
    ] {
        let expected = format!("close {code} \"\"");
        check(&expected, &close(code, b""), &[&expected]);
        assert_eq!(CloseCode::new(code).map(CloseCode::as_u16), Some(code));
    }
}

/// Each input is cut after the byte that breaks the rule.
#[test]
fn a_rule_is_found_broken_at_its_first_byte() {
    let mut bad_text = frame(0x81, b"ok\xf4\x90\x80\x80 and more");
    bad_text.truncate(2 + 4 + 4);
    let cases: &[(&str, &[u8], &str)] = &[
        ("opcode", &[0x83, 0x80], "1002"),
        ("mask bit", &[0x81, 0x05], "1002"),
        ("ping length", &[0x89, 0xfe], "1002"),
        ("UTF-8 inside a frame", &bad_text, "1007"),
        (
            "declared length",
            &[0x82, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0],
            "1009",
        ),
    ];
    for (name, input, expected) in cases {
        let (last, before) = input.split_last().expect("no case is empty");
        assert_eq!(decode(&[before], None), ["more"], "{name}, before");
        assert_eq!(decode(&[before, &[*last]], None), [*expected], "{name}");
    }
}

/// RFC 7692 §7.2.3.
#[test]
fn the_examples_of_the_compression_rfc_decode() {
    let hello: &[u8] = &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    let cases: &[Case] = &[
        ("one frame", vec![frame(0xc1, hello)], &["text \"Hello\""]),
        (
            "two frames",
            vec![frame(0x41, &hello[..3]), frame(0x80, &hello[3..])],
            &["text \"Hello\""],
        ),
        (
            "a reference to the message before",
            vec![
                frame(0xc1, hello),
                frame(0xc1, &[0xf2, 0x00, 0x11, 0x00, 0x00]),
            ],
            &["text \"Hello\"", "text \"Hello\""],
        ),
        (
            "a stored block",
            vec![frame(0xc1, b"\x00\x05\x00\xfa\xff\x48\x65\x6c\x6c\x6f\x00")],
            &["text \"Hello\""],
        ),
        (
            "a final block",
            vec![
                frame(0xc1, b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00"),
                frame(0xc1, hello),
            ],
            &["text \"Hello\"", "text \"Hello\""],
        ),
        (
            "two blocks",
            vec![frame(
                0xc1,
                b"\xf2\x48\x05\x00\x00\x00\xff\xff\xca\xc9\xc9\x07\x00",
            )],
            &["text \"Hello\""],
        ),
        ("nothing at all", vec![frame(0xc1, b"")], &["text \"\""]),
        ("an empty block", vec![frame(0xc1, b"\0")], &["text \"\""]),
        (
            "an uncompressed one",
            vec![frame(0x81, b"Hi")],
            &["text \"Hi\""],
        ),
        (
            "a ping between",
            vec![
                frame(0x41, &hello[..3]),
                frame(0x89, b""),
                frame(0x80, &hello[3..]),
            ],
            &["ping 0", "text \"Hello\""],
        ),
        (
            "RSV1 on a continuation",
            vec![frame(0x41, hello), frame(0xc0, b"")],
            &["1002"],
        ),
        ("RSV1 on a ping", vec![frame(0xc9, b"")], &["1002"]),
        ("garbage", vec![frame(0xc1, b"\xff\xff\xff\xff")], &["1007"]),
        (
            "text not UTF-8",
            vec![frame(0xc1, b"\x00\x01\x00\xfe\xff\xff\x00")],
            &["1007"],
        ),
    ];
    for (name, frames, expected) in cases {
        check_with(name, &frames.concat(), Some(TAKEOVER), expected);
    }
}

#[test]
fn without_takeover_nothing_refers_to_an_earlier_message() {
    let alone = Agreement {
        client_takeover: false,
        ..TAKEOVER
    };
    let hello = frame(0xc1, &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00]);
    let reference = frame(0xc1, &[0xf2, 0x00, 0x11, 0x00, 0x00]);
    let input = [hello.clone(), hello, reference].concat();
    let expected = ["text \"Hello\"", "text \"Hello\"", "1007"];
    check_with("reference", &input, Some(alone), &expected);
}

#[test]
fn a_decompression_bomb_is_stopped_at_the_limit() {
    let zeros = vec![0; 8 * 1024 * 1024];
    let mut bomb = Vec::with_capacity(64 * 1024);
    Compress::new(Compression::best(), false)
        .compress_vec(&zeros, &mut bomb, FlushCompress::Sync)
        .expect("zeros compress");
    assert!(bomb.len() < 16 * 1024, "{} bytes", bomb.len());
    let bomb = frame(0xc2, &bomb);
    assert_eq!(decode(&[&bomb], Some(TAKEOVER)), ["1009"]);
    // Found before its last byte has come.
    assert_eq!(decode(&[&bomb[..2048]], Some(TAKEOVER)), ["1009"]);
}

#[test]
fn an_announced_length_allocates_little() {
    let limits = WebSocketLimits {
        max_message_bytes: 1 << 40,
        max_frame_bytes: 1 << 40,
        ..WebSocketLimits::DEFAULT
    };
    let mut decoder = Decoder::new(&limits, None);
    let mut input = [&b"\x82\xff\0\0\0\xff\0\0\0\0"[..], &MASK, b"abc"].concat();
    let length = input.len();
    let taken = decoder.decode(&mut input).expect("within the limits");
    assert_eq!(taken, (length, None));
}
