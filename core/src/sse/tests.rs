//! Events there and back: tables, every split point, random texts; queues and
//! rings of the streams without a socket.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Body as _;
use proptest::prelude::*;

use super::*;
use crate::body::Body;
use crate::error::BodyError;
use crate::response::IntoResponse as _;

fn event() -> Event {
    Event::new()
}

#[track_caller]
fn check_bytes(event: &Event, expected: &str) {
    assert_eq!(
        &event.encode().bytes()[..],
        expected.as_bytes(),
        "{event:?}"
    );
}

#[test]
fn an_event_is_a_block_of_lines() {
    let id = |id: &str| event().with_id(id).unwrap();
    let name = |name: &str| event().with_name(name).unwrap();
    for (event, expected) in [
        (event(), "\n"),
        (event().with_data("a"), "data: a\n\n"),
        (event().with_data(""), "data: \n\n"),
        (event().with_data(" a"), "data:  a\n\n"),
        (event().with_data("a\nb"), "data: a\ndata: b\n\n"),
        (event().with_data("a\r\nb"), "data: a\ndata: b\n\n"),
        (event().with_data("a\rb"), "data: a\ndata: b\n\n"),
        (event().with_data("a\n\rb"), "data: a\ndata: \ndata: b\n\n"),
        (event().with_data("a\n"), "data: a\ndata: \n\n"),
        (
            event().with_data("x\n\nid: 9\n\n"),
            "data: x\ndata: \ndata: id: 9\ndata: \ndata: \n\n",
        ),
        (id("7").with_data("a"), "id: 7\ndata: a\n\n"),
        (id(""), "id: \n\n"),
        (name("tick").with_data("a"), "event: tick\ndata: a\n\n"),
        (
            event().with_retry(Duration::from_secs(3)),
            "retry: 3000\n\n",
        ),
        (event().with_comment("a\rdata: b"), ": a\n: data: b\n\n"),
    ] {
        check_bytes(&event, expected);
    }
}

#[test]
fn fields_with_line_breaks_or_nul_are_refused() {
    for text in ["\r", "\n", "\0", "a\ndata: b", "a\r\n\r\nb"] {
        assert_eq!(event().with_id(text), Err(EventError { field: "id" }));
        assert_eq!(event().with_name(text), Err(EventError { field: "event" }));
    }
}

type Seen = (String, String, String);

/// Events of `stream`, fed in pieces that end where `splits` says.
fn decode(stream: &[u8], splits: &[usize]) -> Vec<Seen> {
    let mut decoder = EventDecoder::new();
    let mut events = Vec::new();
    let mut start = 0;
    for end in splits.iter().copied().chain([stream.len()]) {
        decoder.feed(&stream[start..end]).unwrap();
        start = end;
        while let Some(event) = decoder.next_event() {
            events.push((event.name, event.data, event.last_event_id.to_string()));
        }
    }
    events
}

/// The same events, wherever the stream is split, also into single bytes.
#[track_caller]
fn check_events(stream: &[u8], expected: &[(&str, &str, &str)]) {
    let expected: Vec<Seen> = expected
        .iter()
        .map(|(name, data, id)| ((*name).to_owned(), (*data).to_owned(), (*id).to_owned()))
        .collect();
    let bytes: Vec<usize> = (0..stream.len()).collect();
    assert_eq!(
        decode(stream, &bytes),
        expected,
        "{}",
        stream.escape_ascii()
    );
    for split in 0..=stream.len() {
        let found = decode(stream, &[split]);
        assert_eq!(found, expected, "{} at {split}", stream.escape_ascii());
    }
}

#[test]
fn streams_are_read_as_the_specification_says() {
    type Case = (
        &'static [u8],
        &'static [(&'static str, &'static str, &'static str)],
    );
    const CASES: &[Case] = &[
        (b"", &[]),
        (b"data: a\n\n", &[("message", "a", "")]),
        (b"data: a\r\n\r\n", &[("message", "a", "")]),
        (b"data: a\r\r", &[("message", "a", "")]),
        (b"data: a\n\r\ndata: b\r\n\n", &[("message", "a", ""), ("message", "b", "")]),
        // The specification's own examples.
        (b"data: YHOO\ndata: +2\ndata: 10\n\n", &[("message", "YHOO\n+2\n10", "")]),
        (
            b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
            &[
                ("message", "first event", "1"),
                ("message", "second event", ""),
                ("message", " third event", ""),
            ],
        ),
        (b"data\n\ndata\ndata\n\ndata:", &[("message", "", ""), ("message", "\n", "")]),
        (b"data:test\n\ndata: test\n\n", &[("message", "test", ""), ("message", "test", "")]),
        // An event ends with its blank line, not with the stream.
        (b"data: a\n", &[]),
        (b"data: a\n\ndata: b", &[("message", "a", "")]),
        (b"event: tick\ndata: a\n\ndata: b\n\n", &[("tick", "a", ""), ("message", "b", "")]),
        (b"event: tick\n\ndata: b\n\n", &[("message", "b", "")]),
        (b"id: 4\n\ndata: a\n\n", &[("message", "a", "4")]),
        (b"id: 4\ndata: a\n\nid: 5\0\ndata: b\n\n", &[("message", "a", "4"), ("message", "b", "4")]),
        (b"\xEF\xBB\xBFdata: a\n\n", &[("message", "a", "")]),
        (b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\n", &[]),
        (b"data: a\n\n\xEF\xBB\xBFdata: b\n\n", &[("message", "a", "")]),
        (b" data: a\nData: b\nother: c\n\n", &[]),
        (b"data:\xF0\x9F\x98\x80\n\n", &[("message", "\u{1F600}", "")]),
        (b"data:\xF0\x9F\n\n", &[("message", "\u{FFFD}", "")]),
    ];
    for (stream, expected) in CASES {
        check_events(stream, expected);
    }
}

#[test]
fn the_wait_before_a_reconnect_is_digits_only() {
    for (value, expected) in [
        ("2500", Some(2500)),
        ("007", Some(7)),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("1s", None),
        ("99999999999999999999999", None),
    ] {
        let mut decoder = EventDecoder::new();
        decoder
            .feed(format!("retry: {value}\n").as_bytes())
            .unwrap();
        assert_eq!(
            decoder.retry(),
            expected.map(Duration::from_millis),
            "{value}"
        );
    }
}

#[test]
fn text_that_decoding_makes_longer_stays_within_the_limit() {
    for field in ["data", "event", "id"] {
        let line = [field.as_bytes(), b": ", &[0xff; 30], b"\n\n"].concat();
        let mut decoder = EventDecoder::with_limit(64);
        assert_eq!(decoder.feed(&line), Err(EventTooLarge { limit: 64 }));
        assert_eq!(EventDecoder::with_limit(100).feed(&line), Ok(()));
    }
}

#[test]
fn events_share_the_id_that_was_set_before_them() {
    let mut decoder = EventDecoder::new();
    let stream = ["id: ", &"7".repeat(1000), "\ndata\n\ndata\n\n"].concat();
    decoder.feed(stream.as_bytes()).unwrap();
    let mut next = || decoder.next_event().unwrap().last_event_id;
    let (first, second) = (next(), next());
    assert_eq!(first.len(), 1000);
    assert!(Arc::ptr_eq(&first, &second));
}

#[test]
fn an_event_beyond_the_limit_is_refused_and_those_before_are_kept() {
    let line = "a".repeat(10);
    for rest in [format!("data: {line}\n"), line] {
        let mut decoder = EventDecoder::with_limit(64);
        let mut refused = decoder.feed(b"data: before\n\n");
        for _ in 0..10 {
            refused = refused.and_then(|()| decoder.feed(rest.as_bytes()));
        }
        assert_eq!(refused, Err(EventTooLarge { limit: 64 }), "{rest}");
        assert_eq!(decoder.next_event().unwrap().data, "before");
        assert_eq!(decoder.next_event(), None);
    }
}

fn events() -> impl Strategy<Value = Vec<(Option<String>, Option<String>, String)>> {
    let line = "[ :a-z\t\u{1}\u{e9}\u{1F600}\u{FEFF}]{0,6}";
    let text = proptest::collection::vec("[ :a-z\r\n\u{0}\u{e9}\u{FEFF}]{0,8}", 0..3)
        .prop_map(|parts| parts.concat());
    let field = || proptest::option::of(line);
    proptest::collection::vec((field(), field(), text), 0..5)
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded_at_every_split(events in events()) {
        let mut stream = Vec::new();
        let mut expected = Vec::new();
        let mut last_id = String::new();
        for (id, name, data) in events {
            let mut event = Event::new().with_data(data.as_str()).with_comment(data.as_str());
            if let Some(id) = &id {
                event = event.with_id(id.as_str()).unwrap();
                last_id.clone_from(id);
            }
            if let Some(name) = &name {
                event = event.with_name(name.as_str()).unwrap();
            }
            stream.extend_from_slice(event.encode().bytes());
            let name = name.filter(|name| !name.is_empty());
            let data = data.replace("\r\n", "\n").replace('\r', "\n");
            expected.push((name.unwrap_or("message".to_owned()), data, last_id.clone()));
        }
        for split in 0..=stream.len() {
            prop_assert_eq!(&decode(&stream, &[split]), &expected);
        }
    }
}

/// What the body has at once.
fn poll(body: &mut Body) -> Poll<Option<Result<Bytes, BodyError>>> {
    let mut cx = Context::from_waker(Waker::noop());
    let frame = Pin::new(body).poll_frame(&mut cx);
    frame.map_ok(|frame| frame.into_data().unwrap())
}

/// Data of everything the body has at once.
fn read(body: &mut Body) -> String {
    let mut text = String::new();
    while let Poll::Ready(Some(Ok(data))) = poll(body) {
        text.push_str(str::from_utf8(&data).unwrap());
    }
    text
}

fn quiet(sse: Sse) -> Body {
    sse.with_keep_alive(None).into_response().into_body()
}

fn data(text: &str) -> Event {
    Event::new().with_data(text)
}

#[test]
fn the_response_says_what_it_is() {
    let (_sender, sse) = Sse::channel();
    let response = sse.into_response();
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-cache"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(response.headers()[name], value);
    }
    assert_eq!(response.body().size_hint().upper(), None);
}

#[test]
fn a_stream_ends_with_its_last_sender() {
    let (sender, sse) = Sse::channel();
    let mut body = quiet(sse);
    assert!(poll(&mut body).is_pending());
    let other = sender.clone();
    sender.try_send(data("a")).unwrap();
    drop(sender);
    assert_eq!(read(&mut body), "data: a\n\n");
    assert!(poll(&mut body).is_pending());
    other.try_send(data("b")).unwrap();
    drop(other);
    assert_eq!(read(&mut body), "data: b\n\n");
    assert!(matches!(poll(&mut body), Poll::Ready(None)));
}

#[test]
fn a_full_queue_refuses_and_keeps_what_it_has() {
    let (sender, sse) = Sse::channel();
    let mut body = quiet(sse);
    let mut sent = 0;
    while sender.try_send(data("a")).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, crate::limits::SSE_QUEUE_EVENTS);
    assert_eq!(sender.try_send(data("b")), Err(SendEventError::Lagging));
    assert_eq!(read(&mut body), "data: a\n\n".repeat(sent));
    assert_eq!(sender.try_send(data("c")), Ok(()));
    drop(body);
    assert_eq!(sender.try_send(data("d")), Err(SendEventError::Closed));
}

#[test]
fn a_client_that_is_cut_off_gets_an_error_and_no_rest() {
    for num_queued in [0, 1, crate::limits::SSE_QUEUE_EVENTS] {
        let (sender, sse) = Sse::channel();
        let mut body = quiet(sse);
        for _ in 0..num_queued {
            sender.try_send(data("a")).unwrap();
        }
        sender.cut_off();
        assert_eq!(sender.try_send(data("b")), Err(SendEventError::Closed));
        assert!(matches!(
            poll(&mut body),
            Poll::Ready(Some(Err(BodyError::Producer)))
        ));
        assert!(matches!(poll(&mut body), Poll::Ready(None)));
    }
}

/// Runs a test that waits.
fn wait<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build();
    runtime.unwrap().block_on(test)
}

#[test]
fn a_client_that_takes_nothing_is_cut_off_after_the_lag_time() {
    let lag = Duration::from_millis(20);
    let (sender, sse) = Sse::with_queue(2, lag);
    let mut body = quiet(sse);
    wait(async {
        while sender.try_send(data("a")).is_ok() {}
        let start = Instant::now();
        assert_eq!(sender.send(data("b")).await, Err(SendEventError::Lagging));
        assert!(start.elapsed() >= lag);
        assert_eq!(sender.send(data("c")).await, Err(SendEventError::Closed));
    });
    assert!(matches!(
        poll(&mut body),
        Poll::Ready(Some(Err(BodyError::Producer)))
    ));
}

#[test]
fn a_producer_waits_for_a_slow_client() {
    let (sender, sse) = Sse::channel();
    let mut body = quiet(sse);
    wait(async {
        while sender.try_send(data("a")).is_ok() {}
        let mut sending = pin!(sender.send(data("b")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(sending.as_mut().poll(&mut cx).is_pending());
        assert!(poll(&mut body).is_ready());
        assert_eq!(sending.await, Ok(()));
    });
}

#[test]
fn a_quiet_stream_sends_comments_in_each_interval() {
    let interval = Duration::from_millis(20);
    let (sender, sse) = Sse::channel();
    wait(async {
        let mut body = sse
            .with_keep_alive(Some(interval))
            .into_response()
            .into_body();
        let start = Instant::now();
        for index in 0..8 {
            if index == 5 {
                sender.try_send(data("a")).unwrap();
            }
            let chunk = body.chunk().await.unwrap().unwrap();
            assert_eq!(chunk.starts_with(b"data"), index == 5, "{index}");
        }
        // Each of the seven comments has half an interval of quiet before it.
        assert!(start.elapsed() >= interval * 7 / 2, "{:?}", start.elapsed());
    });
}

#[test]
fn a_producer_runs_inside_its_stream_and_dies_with_it() {
    let alive = Arc::new(());
    let held = Arc::clone(&alive);
    let mut body = quiet(Sse::produce(async move |events| {
        for number in 0..3 {
            events.send(data(&number.to_string())).await.unwrap();
        }
        std::future::pending::<()>().await;
        drop(held);
    }));
    assert_eq!(read(&mut body), "data: 0\n\ndata: 1\n\ndata: 2\n\n");
    assert!(poll(&mut body).is_pending());
    assert_eq!(Arc::strong_count(&alive), 2);
    drop(body);
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[test]
fn a_producer_that_ends_or_panics_ends_its_stream() {
    let mut body = quiet(Sse::produce(async |events| {
        events.send(data("a")).await.unwrap();
    }));
    assert_eq!(read(&mut body), "data: a\n\n");
    assert!(matches!(poll(&mut body), Poll::Ready(None)));
    let mut body = quiet(Sse::produce(async |_events| panic!("on purpose")));
    assert!(matches!(
        poll(&mut body),
        Poll::Ready(Some(Err(BodyError::Producer)))
    ));
}

fn numbered(number: usize) -> Event {
    data(&number.to_string())
        .with_id(number.to_string())
        .unwrap()
}

fn numbers(range: std::ops::Range<usize>) -> String {
    range.fold(String::new(), |text, number| {
        text + &format!("id: {number}\ndata: {number}\n\n")
    })
}

#[test]
fn every_client_of_a_broadcast_gets_the_same_bytes() {
    let broadcast = EventBroadcast::new(4);
    let mut first = broadcast.subscription(None);
    let mut second = broadcast.subscription(None);
    assert_eq!(broadcast.num_clients(), 2);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(first.poll(&mut cx).is_pending());
    assert_eq!(broadcast.send(data("a")), 1);
    let mut take = |client: &mut super::broadcast::Subscription| match client.poll(&mut cx) {
        Poll::Ready(Some(Ok(bytes))) => bytes,
        other => panic!("{other:?}"),
    };
    let (mine, yours) = (take(&mut first), take(&mut second));
    assert_eq!(mine.as_ptr(), yours.as_ptr());
    drop(first);
    assert_eq!(broadcast.num_clients(), 1);
    assert_eq!(broadcast.subscription(None).poll(&mut cx), Poll::Pending);
}

#[test]
fn a_client_resumes_behind_what_it_has_seen() {
    let broadcast = EventBroadcast::new(4);
    for number in 0..6 {
        broadcast.send(numbered(number));
    }
    for (id, expected) in [
        (None, 6..6),
        (Some("5"), 6..6),
        (Some("4"), 5..6),
        (Some("2"), 3..6),
        // No longer kept, never sent.
        (Some("1"), 6..6),
        (Some("9"), 6..6),
    ] {
        let mut body = quiet(broadcast.subscribe(id));
        assert_eq!(read(&mut body), numbers(expected), "{id:?}");
    }
}

#[test]
fn a_client_out_of_the_ring_is_cut_off_or_skips() {
    for (lag, num_sent, expected) in [
        (Lag::Close, 4, Ok(0..4)),
        (Lag::Close, 5, Err(())),
        (Lag::Skip, 4, Ok(0..4)),
        (Lag::Skip, 50, Ok(46..50)),
    ] {
        let broadcast = EventBroadcast::new(4).on_lag(lag);
        let mut body = quiet(broadcast.subscribe(None));
        for number in 0..num_sent {
            broadcast.send(numbered(number));
        }
        match expected {
            Ok(range) => assert_eq!(read(&mut body), numbers(range), "{lag:?} {num_sent}"),
            Err(()) => assert!(matches!(poll(&mut body), Poll::Ready(Some(Err(_))))),
        }
    }
}

#[test]
fn a_broadcast_ends_its_streams_when_it_is_closed_or_gone() {
    let broadcast = EventBroadcast::new(4);
    let mut body = quiet(broadcast.subscribe(None));
    broadcast.send(numbered(0));
    drop(broadcast.clone());
    assert_eq!(read(&mut body), numbers(0..1));
    assert!(poll(&mut body).is_pending());
    drop(broadcast);
    assert!(matches!(poll(&mut body), Poll::Ready(None)));
    let broadcast = EventBroadcast::new(4);
    broadcast.close();
    assert!(matches!(
        poll(&mut quiet(broadcast.subscribe(None))),
        Poll::Ready(None)
    ));
}
