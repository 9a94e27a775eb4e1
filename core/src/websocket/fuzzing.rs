//! WebSocket frames: cuts and limits of the decoder, and both ways round.

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::decoder::{Decoder, Event};
use super::deflate::Agreement;
use super::frame::{Violation, unmask};
use super::limits::WebSocketLimits;
use super::message::Message;
use super::writer::Writer;
use crate::fuzzing::Input;

/// Limits that inputs of a kilobyte meet, the more so when they are deflated.
const LIMITS: WebSocketLimits = WebSocketLimits {
    max_message_bytes: 5000,
    max_frame_bytes: 700,
    ..WebSocketLimits::DEFAULT
};

pub(crate) fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let switches = input.byte();
    let agreement = (switches & 2 == 2).then_some(Agreement {
        server_window_bits: 9 + switches % 7,
        client_window_bits: 9 + switches % 7,
        server_takeover: switches & 4 == 4,
        client_takeover: switches & 4 == 4,
    });
    if switches & 1 == 0 {
        check_any(&mut input, agreement);
    } else {
        check_encoded(&mut input, agreement);
    }
}

/// Everything that a decoder says of a stream of bytes.
fn decode(
    pieces: &[&[u8]],
    limits: &WebSocketLimits,
    agreement: Option<Agreement>,
) -> (Vec<Event>, Option<Violation>) {
    let mut decoder = Decoder::new(limits, agreement);
    let mut events = Vec::new();
    for piece in pieces {
        let mut piece = piece.to_vec();
        let mut start = 0;
        while start < piece.len() {
            match decoder.decode(&mut piece[start..]) {
                Ok((used, event)) => {
                    assert!(used > 0, "each step takes something");
                    assert!(event.is_some() || start + used == piece.len());
                    start += used;
                    events.extend(event);
                }
                Err(violation) => return (events, Some(violation)),
            }
        }
    }
    (events, None)
}

fn check_any(input: &mut Input<'_>, agreement: Option<Agreement>) {
    let pieces = input.pieces();
    let (events, violation) = decode(&[&pieces.concat()], &LIMITS, agreement);
    let (cut_events, cut_violation) = decode(&pieces, &LIMITS, agreement);
    assert_eq!(events, cut_events, "cuts make no difference");
    assert_eq!(violation.is_some(), cut_violation.is_some());
    for event in events {
        if let Event::Message(message) = event {
            assert!(message.into_bytes().len() <= LIMITS.max_message_bytes);
        }
    }
}

/// What the writer sends is what a decoder with the same terms receives.
fn check_encoded(input: &mut Input<'_>, agreement: Option<Agreement>) {
    let cut = input.up_to(u16::MAX.into());
    let times = 1 + input.up_to(40);
    let mask = [input.byte(), input.byte(), input.byte(), input.byte()];
    let messages: Vec<_> = input
        .pieces()
        .into_iter()
        .map(|piece| match std::str::from_utf8(piece) {
            Ok(text) => Message::Text(text.repeat(times)),
            Err(_) => Message::from(piece.repeat(times)),
        })
        .collect();
    let mut writer = Writer::new(agreement);
    let mut wire = Vec::new();
    let mut cx = Context::from_waker(Waker::noop());
    for message in &messages {
        writer.queue_message(message.clone());
        let flushed = writer.poll_flush(Pin::new(&mut wire), &mut cx);
        assert!(matches!(flushed, Poll::Ready(Ok(()))));
        assert!(writer.is_empty());
    }
    let wire = masked(&wire, mask);
    let (start, end) = wire.split_at(cut % (wire.len() + 1));
    let (events, violation) = decode(&[start, end], &WebSocketLimits::DEFAULT, agreement);
    assert_eq!(violation, None);
    let sent: Vec<_> = messages.into_iter().map(Event::Message).collect();
    assert_eq!(events, sent);
}

/// The frames of a server as a client would send them.
fn masked(mut frames: &[u8], mask: [u8; 4]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let [first, second, rest @ ..] = frames {
        let num_length_bytes = match second {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let (field, rest) = rest.split_at(num_length_bytes);
        let length = match field {
            [] => usize::from(*second),
            field => field
                .iter()
                .fold(0, |length, byte| length << 8 | usize::from(*byte)),
        };
        let (payload, rest) = rest.split_at(length);
        bytes.extend([*first, 0x80 | *second]);
        bytes.extend_from_slice(field);
        bytes.extend(mask);
        let start = bytes.len();
        bytes.extend_from_slice(payload);
        unmask(&mut bytes[start..], mask, 0);
        frames = rest;
    }
    bytes
}
