//! Bodies made by the libraries' encoders, whole, cut, damaged and swollen.

use std::collections::VecDeque;
use std::io::Write as _;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Method, Uri};
use http_body::{Body as HttpBody, Frame};
use proptest::prelude::*;

use super::*;
use crate::error::BodyError;

fn encode(coding: &str, plain: &[u8]) -> Vec<u8> {
    match coding {
        "gzip" => {
            let level = flate2::Compression::default();
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(plain).expect("memory");
            encoder.finish().expect("memory")
        }
        "br" => {
            let mut encoder = brotli::CompressorWriter::new(Vec::new(), 4096, 5, 20);
            encoder.write_all(plain).expect("memory");
            encoder.into_inner()
        }
        "zstd" => zstd::encode_all(plain, 3).expect("memory"),
        other => panic!("unknown coding {other}"),
    }
}

/// A body that comes in these pieces.
struct Pieces(VecDeque<Bytes>);

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

fn in_pieces(bytes: &[u8], size: usize) -> Body {
    let pieces = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
    Body::custom(Pieces(pieces))
}

const LIMITS: Limits = Limits {
    max_body_bytes: 1_000_000,
    ..Limits::DEFAULT
};

/// Admits a POST of `body`; the refusal's status when there is one.
fn admit(codings: &[&'static str], body: Body) -> Result<Request, u16> {
    let mut request = Request::new(Method::POST, Uri::from_static("/"), body);
    for coding in codings {
        let value = HeaderValue::from_static(coding);
        request.headers_mut().append(CONTENT_ENCODING, value);
    }
    request
        .headers_mut()
        .insert(CONTENT_LENGTH, HeaderValue::from_static("9"));
    match Decompression::new(&LIMITS).admit(&mut request) {
        None => Ok(request),
        Some(response) => {
            assert_eq!(response.headers()[ACCEPT_ENCODING], "zstd, br, gzip");
            Err(response.status().as_u16())
        }
    }
}

fn read(mut body: Body) -> Result<Vec<u8>, BodyError> {
    let mut all = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut body).poll_frame(&mut context) {
            Poll::Ready(Some(frame)) => all.extend(frame?.into_data().expect("data")),
            Poll::Ready(None) => return Ok(all),
            Poll::Pending => {}
        }
    }
}

fn decoded(codings: &[&'static str], bytes: &[u8], piece: usize) -> Result<Vec<u8>, BodyError> {
    let request = admit(codings, in_pieces(bytes, piece)).expect("a known coding");
    assert!(!request.headers().contains_key(CONTENT_ENCODING));
    assert!(!request.headers().contains_key(CONTENT_LENGTH));
    read(request.into_body())
}

fn text(length: usize) -> Vec<u8> {
    let lines = (0_u64..).flat_map(|index| {
        let number = index.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!("{{\"id\": {index}, \"name\": \"{number:x}\"}}\n").into_bytes()
    });
    lines.take(length).collect()
}

const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];

#[test]
fn bodies_come_back_whatever_their_pieces() {
    for coding in CODINGS {
        for length in [1, 100, 5_000, 100_000] {
            let coded = encode(coding, &text(length));
            for piece in [1, 7, 1000, usize::MAX] {
                let found = decoded(&[coding], &coded, piece).expect("a valid body");
                assert_eq!(found, text(length), "{coding} {length} {piece}");
            }
        }
    }
}

#[test]
fn an_end_that_is_missing_is_an_error_at_every_place() {
    for coding in CODINGS {
        let coded = encode(coding, &text(300));
        for length in 1..coded.len() {
            let found = decoded(&[coding], &coded[..length], 16);
            assert!(
                matches!(found, Err(BodyError::Coding { coding: name }) if name == coding),
                "{coding} cut at {length}: {found:?}"
            );
        }
    }
}

#[test]
fn damage_and_what_follows_the_end_are_errors() {
    for coding in CODINGS {
        let mut coded = encode(coding, &text(300));
        coded.extend_from_slice(b"garbage");
        assert!(decoded(&[coding], &coded, 16).is_err(), "{coding}: garbage");
        assert!(decoded(&[coding], b"plain text", 16).is_err(), "{coding}");
    }
    let mut coded = encode("gzip", &text(300));
    let checksum = coded.len() - 8;
    coded[checksum] ^= 1;
    assert!(decoded(&["gzip"], &coded, 16).is_err(), "checksum");
}

#[test]
fn members_and_frames_may_follow_each_other() {
    for coding in ["gzip", "zstd"] {
        let mut coded = encode(coding, b"one");
        coded.extend(encode(coding, b"two"));
        for piece in [1, usize::MAX] {
            let found = decoded(&[coding], &coded, piece).expect("a valid body");
            assert_eq!(found, b"onetwo", "{coding}");
        }
    }
}

#[test]
fn a_coding_goes_by_any_of_its_spellings() {
    let coded = encode("gzip", b"once");
    for codings in [
        &["gzip"][..],
        &["x-gzip"],
        &["identity, GZIP,"],
        &["gzip", "identity"],
    ] {
        assert_eq!(decoded(codings, &coded, 8).expect("valid"), b"once");
    }
}

#[test]
fn unknown_and_too_many_codings_are_415() {
    for codings in [
        &["deflate"][..],
        &["compress"],
        &["gzip, foo"],
        &["gzip", "aes128gcm"],
        &["br, gzip"],
        &["gzip, gzip"],
        &["gzip", "gzip"],
    ] {
        let body = Body::from("body");
        assert_eq!(admit(codings, body).err(), Some(415), "{codings:?}");
    }
}

#[test]
fn a_request_without_a_body_is_left_alone() {
    let request = admit(&["foo"], Body::empty()).expect("no body to decode");
    assert!(request.headers().contains_key(CONTENT_ENCODING));
    assert_eq!(decoded(&["gzip"], b"", 1).expect("nothing"), b"");
    let plain = admit(&["identity"], Body::from("as it is")).expect("no coding");
    assert_eq!(read(plain.into_body()).expect("plain"), b"as it is");
}

#[test]
fn bombs_are_stopped_by_bytes_or_by_ratio() {
    for coding in CODINGS {
        // Enough for the ratio to end it long before the byte limit does.
        let bomb = encode(coding, &vec![0; 900_000]);
        let found = decoded(&[coding], &bomb, 1 << 20);
        assert!(
            matches!(found, Err(BodyError::Ratio { limit: 100 })),
            "{coding}: {found:?}"
        );
        let noise: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..))
            .take(1_000_001)
            .collect();
        let found = decoded(&[coding], &encode(coding, &noise), 1 << 12);
        assert!(
            matches!(found, Err(BodyError::TooLarge { limit: 1_000_000 })),
            "{coding}"
        );
        let small = decoded(&[coding], &encode(coding, &vec![0; 60_000]), 100);
        assert_eq!(small.expect("a small body has no ratio").len(), 60_000);
    }
}

#[test]
fn a_route_limit_holds_for_decoded_bytes() {
    let coded = encode("zstd", &text(5_000));
    let mut request = admit(&["zstd"], in_pieces(&coded, 64)).expect("a known coding");
    request.body_mut().set_limit(4_999);
    let found = read(request.into_body());
    assert!(matches!(found, Err(BodyError::TooLarge { limit: 4_999 })));
}

#[test]
fn a_window_above_the_limit_is_refused() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).expect("memory");
    encoder.window_log(24).expect("a legal window");
    encoder.write_all(&text(100)).expect("memory");
    let coded = encoder.finish().expect("memory");
    let found = decoded(&["zstd"], &coded, 1000);
    assert!(matches!(found, Err(BodyError::Coding { .. })), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn random_bytes_never_panic(
        coding in prop::sample::select(&CODINGS[..]),
        bytes in prop::collection::vec(any::<u8>(), 1..200),
        flip in any::<prop::sample::Index>(),
    ) {
        let _either = decoded(&[coding], &bytes, 13);
        let mut coded = encode(coding, &bytes);
        let index = flip.index(coded.len());
        coded[index] ^= 0x41;
        let _either = decoded(&[coding], &coded, 13);
    }
}
