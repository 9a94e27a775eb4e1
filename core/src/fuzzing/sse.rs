//! Event streams: cuts and limits of the decoder, and what the encoder wrote.

use std::time::Duration;

use super::Input;
use crate::sse::{Event, EventDecoder, EventTooLarge, ReceivedEvent};

pub(super) fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    if input.byte().is_multiple_of(2) {
        check_any(&mut input);
    } else {
        check_encoded(&mut input);
    }
}

type Decoded = (Vec<ReceivedEvent>, Option<EventTooLarge>, Option<Duration>);

fn decode(pieces: &[&[u8]], limit: usize) -> Decoded {
    let mut decoder = EventDecoder::with_limit(limit);
    let mut events = Vec::new();
    let mut error = None;
    for piece in pieces {
        error = decoder.feed(piece).err();
        while let Some(event) = decoder.next_event() {
            events.push(event);
        }
        if error.is_some() {
            break;
        }
    }
    (events, error, decoder.retry())
}

fn check_any(input: &mut Input<'_>) {
    let limit = input.up_to(300);
    let pieces = input.pieces();
    let whole = decode(&[&pieces.concat()], limit);
    assert_eq!(whole, decode(&pieces, limit), "cuts make no difference");
    for event in &whole.0 {
        assert!(event.data.len() <= limit && event.name.len() <= limit.max("message".len()));
        assert!(event.last_event_id.len() <= limit);
        assert!(!event.data.contains('\r') && !event.name.contains(['\r', '\n']));
        assert!(!event.last_event_id.contains(['\r', '\n', '\0']));
    }
    let num_lines = pieces
        .concat()
        .iter()
        .filter(|byte| b"\r\n".contains(byte))
        .count();
    assert!(whole.0.len() <= num_lines, "an event ends in a blank line");
}

/// The pieces are id, name, data and comment of an event.
fn check_encoded(input: &mut Input<'_>) {
    let retry = Duration::from_millis(input.up_to(9999) as u64);
    let cut = input.up_to(u16::MAX.into());
    let pieces = input.pieces();
    let text = |index: usize| {
        let piece = pieces.get(index).copied().unwrap_or_default();
        String::from_utf8_lossy(piece).into_owned()
    };
    let (data, comment) = (text(0), text(1));
    let mut event = Event::new()
        .with_data(data.clone())
        .with_retry(retry)
        .with_comment(comment);
    let mut id = String::new();
    if let Ok(with_id) = event.clone().with_id(text(2)) {
        (event, id) = (with_id, text(2));
    }
    let mut name = String::new();
    if let Ok(with_name) = event.clone().with_name(text(3)) {
        (event, name) = (with_name, text(3));
    }
    let bytes = event.encode();
    let (start, end) = bytes.bytes().split_at(cut % (bytes.bytes().len() + 1));
    let (events, error, received_retry) = decode(&[start, end], usize::MAX);
    assert_eq!((error, received_retry), (None, Some(retry)));
    let [received] = &events[..] else {
        panic!("one event became {}", events.len());
    };
    let lines = data.replace("\r\n", "\n").replace('\r', "\n");
    assert_eq!(received.data, lines);
    let default = if name.is_empty() { "message" } else { &name };
    assert_eq!(received.name, default);
    assert_eq!(&*received.last_event_id, id);
}
