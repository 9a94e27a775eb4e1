//! What is compressed and how, decoded again by the libraries' decoders.

use std::io::Read as _;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::VARY;
use http_body::{Frame, SizeHint};
use proptest::prelude::*;

use super::*;
use crate::error::BodyError;

fn decode(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match coding {
        "gzip" => flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain),
        "br" => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut plain),
        "zstd" => zstd::stream::read::Decoder::new(bytes)
            .expect("a decoder")
            .read_to_end(&mut plain),
        other => panic!("unknown coding {other}"),
    }
    .expect("valid bytes");
    plain
}

fn accepting(line: &'static str) -> Accepted {
    let mut headers = HeaderMap::new();
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(line));
    Accepted::of(&headers)
}

fn text(length: usize) -> Vec<u8> {
    b"the quick brown fox jumps over the lazy dog, "
        .iter()
        .copied()
        .cycle()
        .take(length)
        .collect()
}

fn header(response: &Response, name: HeaderName) -> Option<&str> {
    let value = response.headers().get(name)?;
    Some(value.to_str().expect("ASCII"))
}

/// Polls a body that is always ready or wakes itself to its end.
fn drain(mut body: Body) -> Result<Vec<u8>, BodyError> {
    let mut all = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut body).poll_frame(&mut context) {
            Poll::Ready(Some(Ok(frame))) => {
                all.extend(frame.into_data().expect("no trailers"));
            }
            Poll::Ready(Some(Err(error))) => return Err(error),
            Poll::Ready(None) => return Ok(all),
            Poll::Pending => {}
        }
    }
}

#[derive(Clone, Copy)]
enum Want {
    Coded(&'static str),
    /// As it was, and caches are told.
    Varying,
    /// As it was.
    Untouched,
}

#[track_caller]
fn check(accept: &'static str, response: Response, want: Want) {
    let applied = Compression::new().apply(accepting(accept), response);
    let coding = header(&applied, CONTENT_ENCODING).map(str::to_owned);
    let vary = header(&applied, VARY).map(str::to_owned);
    match want {
        Want::Coded(expected) => {
            assert_eq!(coding.as_deref(), Some(expected));
            assert_eq!(vary.as_deref(), Some("Accept-Encoding"));
            assert!(!applied.headers().contains_key(CONTENT_LENGTH));
        }
        Want::Varying => {
            assert_eq!(coding, None);
            assert_eq!(vary.as_deref(), Some("Accept-Encoding"));
        }
        Want::Untouched => {
            assert_eq!((coding, vary), (None, None));
        }
    }
}

fn json(length: usize) -> Response {
    Response::with_content(
        HeaderValue::from_static("application/json"),
        text(length).into(),
    )
}

#[test]
fn the_rules_decide() {
    let with = |name: HeaderName, value: &'static str| {
        json(5000).with_header(name, HeaderValue::from_static(value))
    };
    let typed = |content_type: &'static str| with(CONTENT_TYPE, content_type);
    check("gzip", json(1024), Want::Coded("gzip"));
    check("gzip", json(1023), Want::Untouched);
    check("gzip, identity;q=0", json(100), Want::Coded("gzip"));
    check("", json(5000), Want::Varying);
    check("identity", json(5000), Want::Varying);
    check("identity;q=0", json(5000), Want::Varying);
    check("gzip", typed("image/png"), Want::Untouched);
    check("br, identity;q=0", typed("image/png"), Want::Coded("br"));
    check("gzip", typed("text/event-stream"), Want::Untouched);
    check("gzip, *;q=0", typed("text/event-stream"), Want::Untouched);
    check(
        "gzip",
        with(CACHE_CONTROL, "public, No-Transform"),
        Want::Untouched,
    );
    check("gzip", with(CACHE_CONTROL, "public"), Want::Coded("gzip"));
    check("gzip", with(CONTENT_RANGE, "bytes 0-1/9"), Want::Untouched);
    check(
        "gzip",
        with(DIGESTS[0].clone(), "sha-256=:a:"),
        Want::Untouched,
    );
    check(
        "gzip",
        json(5000).with_status(StatusCode::PARTIAL_CONTENT),
        Want::Untouched,
    );
    check(
        "gzip",
        json(5000).with_status(StatusCode::NO_CONTENT),
        Want::Untouched,
    );
    check(
        "gzip",
        json(5000).with_status(StatusCode::NOT_FOUND),
        Want::Coded("gzip"),
    );
    check(
        "gzip",
        Response::new(StatusCode::NOT_MODIFIED),
        Want::Varying,
    );
    check("gzip", Response::new(StatusCode::OK), Want::Untouched);
}

#[test]
fn what_is_coded_already_stays_as_it_is() {
    let coded = json(5000).with_header(CONTENT_ENCODING, HeaderValue::from_static("br"));
    let applied = Compression::new().apply(accepting("gzip"), coded);
    assert_eq!(header(&applied, CONTENT_ENCODING), Some("br"));
    assert_eq!(drain(applied.into_body()).expect("a body"), text(5000));
}

#[test]
fn a_body_that_would_grow_is_left_alone() {
    let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
        .take(2000)
        .collect();
    let plain = Response::text(Body::from(noise.clone()));
    let applied = Compression::new().apply(accepting("gzip"), plain);
    assert_eq!(header(&applied, CONTENT_ENCODING), None);
    assert_eq!(drain(applied.into_body()).expect("a body"), noise);
}

#[test]
fn a_strong_tag_becomes_weak() {
    for (before, after) in [("\"a\"", "W/\"a\""), ("W/\"a\"", "W/\"a\"")] {
        let tagged = json(5000).with_header(ETAG, HeaderValue::from_static(before));
        let applied = Compression::new().apply(accepting("gzip"), tagged);
        assert_eq!(header(&applied, ETAG), Some(after));
        let tagged = json(5000).with_header(ETAG, HeaderValue::from_static(before));
        let applied = Compression::new().apply(accepting(""), tagged);
        assert_eq!(header(&applied, ETAG), Some(before));
    }
}

#[test]
fn every_coding_gives_the_bytes_back_at_every_size() {
    let sizes = [1024, 5000, MAX_ONE_GO_BYTES, MAX_ONE_GO_BYTES + 1, 300_000];
    for coding in ["gzip", "br", "zstd"] {
        for size in sizes {
            let applied = Compression::new().apply(accepting(coding), json(size));
            assert_eq!(header(&applied, CONTENT_ENCODING), Some(coding));
            let length = applied.body().size_hint().exact();
            assert_eq!(length.is_some(), size <= MAX_ONE_GO_BYTES, "{size}");
            let sent = drain(applied.into_body()).expect("a body");
            assert!(sent.len() < size / 4, "{coding}: {} of {size}", sent.len());
            assert_eq!(decode(coding, &sent), text(size), "{coding} {size}");
        }
    }
}

#[test]
fn levels_outside_their_range_are_refused() {
    assert!(Compression::new().levels(9, 11, 19).is_ok());
    for (gzip, brotli, zstd) in [(0, 4, 3), (10, 4, 3), (6, 12, 3), (6, 4, 0), (6, 4, 20)] {
        assert!(Compression::new().levels(gzip, brotli, zstd).is_err());
    }
}

/// Yields what it is told, in order.
struct Script(std::collections::VecDeque<Step>);

enum Step {
    Data(Vec<u8>),
    Pause,
    Failure,
}

impl http_body::Body for Script {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.0.pop_front() {
            Some(Step::Data(data)) => Poll::Ready(Some(Ok(Frame::data(data.into())))),
            Some(Step::Pause) => Poll::Pending,
            Some(Step::Failure) => Poll::Ready(Some(Err(BodyError::Producer))),
            None => Poll::Ready(None),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

fn stream(coding: &'static str, steps: Vec<Step>) -> Body {
    let plain = Response::text(Body::custom(Script(steps.into())));
    let applied = Compression::new().apply(accepting(coding), plain);
    assert_eq!(header(&applied, CONTENT_ENCODING), Some(coding));
    applied.into_body()
}

/// Decodes as far as the bytes go; an end that is missing is no failure.
fn decode_so_far(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut chunk = [0; 64];
    let mut reader: Box<dyn std::io::Read + '_> = match coding {
        "gzip" => Box::new(flate2::read::GzDecoder::new(bytes)),
        "br" => Box::new(brotli::Decompressor::new(bytes, 16)),
        _ => Box::new(zstd::stream::read::Decoder::new(bytes).expect("a decoder")),
    };
    while let Ok(length @ 1..) = reader.read(&mut chunk) {
        plain.extend_from_slice(&chunk[..length]);
    }
    plain
}

#[test]
fn a_pause_flushes_what_has_come() {
    for coding in ["gzip", "br", "zstd"] {
        let steps = vec![
            Step::Data(b"{\"a\":1}\n".to_vec()),
            Step::Pause,
            Step::Data(b"{\"a\":2}\n".to_vec()),
            Step::Pause,
        ];
        let mut body = stream(coding, steps);
        let mut context = Context::from_waker(Waker::noop());
        let mut sent = Vec::new();
        for expected in ["{\"a\":1}\n", "{\"a\":1}\n{\"a\":2}\n"] {
            let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut body).poll_frame(&mut context) else {
                panic!("{coding}: the chunk is held back");
            };
            sent.extend(frame.into_data().expect("data"));
            assert_eq!(
                decode_so_far(coding, &sent),
                expected.as_bytes(),
                "{coding}"
            );
        }
        sent.extend(drain(body).expect("an end"));
        assert_eq!(decode(coding, &sent), b"{\"a\":1}\n{\"a\":2}\n", "{coding}");
    }
}

#[test]
fn a_stream_that_breaks_off_is_not_completed() {
    for coding in ["gzip", "br", "zstd"] {
        let body = stream(coding, vec![Step::Data(text(9000)), Step::Failure]);
        assert!(matches!(drain(body), Err(BodyError::Producer)), "{coding}");
    }
}

#[test]
fn a_lane_has_a_bounded_number_of_encoders() {
    let open: Vec<_> = (0..encoder::MAX_OPEN_ENCODERS)
        .map(|_| stream("gzip", vec![Step::Pause]))
        .collect();
    let plain = || Response::text(Body::custom(Script([Step::Pause].into())));
    let applied = Compression::new().apply(accepting("gzip"), plain());
    assert_eq!(header(&applied, CONTENT_ENCODING), None);
    assert_eq!(header(&applied, VARY), Some("Accept-Encoding"));
    drop(open);
    let applied = Compression::new().apply(accepting("gzip"), plain());
    assert_eq!(header(&applied, CONTENT_ENCODING), Some("gzip"));
}

#[test]
fn trailers_follow_the_last_data() {
    struct WithTrailers(u8);
    impl http_body::Body for WithTrailers {
        type Data = Bytes;
        type Error = BodyError;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            _cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
            self.0 += 1;
            Poll::Ready(match self.0 {
                1 => Some(Ok(Frame::data(Bytes::from(text(3000))))),
                2 => {
                    let mut trailers = HeaderMap::new();
                    trailers.insert(ETAG, HeaderValue::from_static("\"t\""));
                    Some(Ok(Frame::trailers(trailers)))
                }
                _ => None,
            })
        }
    }
    let plain = Response::text(Body::custom(WithTrailers(0)));
    let mut body = Compression::new()
        .apply(accepting("zstd"), plain)
        .into_body();
    let mut data = Vec::new();
    let mut trailers = None;
    let mut context = Context::from_waker(Waker::noop());
    loop {
        let Poll::Ready(frame) = Pin::new(&mut body).poll_frame(&mut context) else {
            continue;
        };
        match frame.transpose().expect("no failure").map(Frame::into_data) {
            Some(Ok(bytes)) => {
                assert!(trailers.is_none());
                data.extend(bytes);
            }
            Some(Err(frame)) => trailers = frame.into_trailers().ok(),
            None => break,
        }
    }
    assert_eq!(decode("zstd", &data), text(3000));
    assert!(trailers.is_some_and(|trailers| trailers.contains_key(ETAG)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_chunks_with_any_pauses_come_back(
        coding in prop::sample::select(vec!["gzip", "br", "zstd"]),
        chunks in prop::collection::vec((0_usize..40_000, any::<bool>(), any::<bool>()), 0..6),
    ) {
        let mut steps = Vec::new();
        let mut expected = Vec::new();
        for (length, is_noise, pauses) in chunks {
            let data = if is_noise {
                std::iter::repeat_with(|| fastrand::u8(..)).take(length).collect()
            } else {
                text(length)
            };
            expected.extend_from_slice(&data);
            steps.push(Step::Data(data));
            if pauses {
                steps.push(Step::Pause);
            }
        }
        let sent = drain(stream(coding, steps)).expect("no failure");
        prop_assert_eq!(decode(coding, &sent), expected);
    }
}

#[test]
fn a_body_is_coded_for_an_application_that_decides_itself() {
    let compression = Compression::new().levels(1, 4, 3).expect("valid levels");
    for (length, has_length) in [(0, true), (10, true), (1000, true), (1001, false)] {
        let plain = text(length);
        let coded = compression.gzip(Body::from(plain.clone()), 1000);
        let coded = coded.expect("an encoder is free");
        assert_eq!(coded.size_hint().exact().is_some(), has_length, "{length}");
        let bytes = drain(coded).expect("the body is whole");
        assert_eq!(decode("gzip", &bytes), plain, "{length}");
    }
}
