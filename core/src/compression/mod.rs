//! Response compression: gzip, brotli and zstd (RFC 9110 §8.4).
//!
//! Guarantees: a body is encoded at most once, and only when client, handler
//! and media type allow it; caches are told by `Vary` whenever the answer
//! could have differed; a strong entity tag becomes a weak one, because the
//! bytes are no longer those it was made of.

mod accept;
mod encoder;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod media_type;
mod stream;

use http::StatusCode;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE,
    CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
};
use http_body::Body as _;

pub(crate) use self::accept::{Accepted, members};
use self::encoder::{Encoder, Permit};
use self::media_type::MediaType;
use self::stream::CompressedBody;
use crate::body::Body;
use crate::error::Error;
use crate::response::Response;
use crate::server::count_on_lane;
use crate::vary;

/// Bodies below this size stay as they are: with its head such an answer fits
/// one packet either way.
pub const MIN_COMPRESSED_BYTES: u64 = 1024;
/// Bodies up to this size are compressed in one go and keep a length; larger
/// ones go in pieces, so that the lane is not held up for long.
pub const MAX_ONE_GO_BYTES: usize = 32 * 1024;
/// zlib's own default.
pub const GZIP_LEVEL: u8 = 6;
/// About gzip 6 in time, denser than gzip 9.
pub const BROTLI_LEVEL: u8 = 4;
/// zstd's own default.
pub const ZSTD_LEVEL: u8 = 3;

const VARY_ACCEPT_ENCODING: HeaderValue = HeaderValue::from_static("Accept-Encoding");

/// Digests of the bytes that are sent (RFC 9530, RFC 3230): whoever sets one
/// means these bytes and no others.
const DIGESTS: [HeaderName; 4] = [
    HeaderName::from_static("content-digest"),
    HeaderName::from_static("repr-digest"),
    HeaderName::from_static("digest"),
    HeaderName::from_static("content-md5"),
];

/// A content coding, in the order of our preference: zstd is the fastest by
/// far at a size like brotli's, and gzip is what everybody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Zstd,
    Brotli,
    Gzip,
}

impl Coding {
    pub(crate) const ALL: [Self; 3] = [Self::Zstd, Self::Brotli, Self::Gzip];

    /// Name in the IANA registry of content codings.
    pub(crate) const fn token(self) -> &'static str {
        match self {
            Self::Zstd => "zstd",
            Self::Brotli => "br",
            Self::Gzip => "gzip",
        }
    }

    /// The coding of this name; RFC 9110 §8.4.1.3 makes `x-gzip` an alias.
    pub(crate) fn named(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL
            .into_iter()
            .find(|coding| name.eq_ignore_ascii_case(coding.token().as_bytes()))
    }
}

/// Compresses responses for the clients that accept it.
///
/// `text/event-stream` is left alone; every other stream is flushed whenever
/// its producer pauses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compression {
    min_bytes: u64,
    gzip_level: u8,
    brotli_level: u8,
    zstd_level: u8,
}

impl Compression {
    /// The defaults: [`MIN_COMPRESSED_BYTES`], [`GZIP_LEVEL`],
    /// [`BROTLI_LEVEL`], [`ZSTD_LEVEL`].
    pub const fn new() -> Self {
        Self {
            min_bytes: MIN_COMPRESSED_BYTES,
            gzip_level: GZIP_LEVEL,
            brotli_level: BROTLI_LEVEL,
            zstd_level: ZSTD_LEVEL,
        }
    }

    /// Leaves bodies below this size alone.
    #[must_use]
    pub const fn min_bytes(mut self, bytes: u64) -> Self {
        self.min_bytes = bytes;
        self
    }

    /// Sets the levels: gzip 1 to 9, brotli 0 to 11, zstd 1 to 19.
    ///
    /// # Errors
    /// [`Error::Config`] for a level outside of its range.
    pub fn levels(mut self, gzip: u8, brotli: u8, zstd: u8) -> Result<Self, Error> {
        for (key, level, lowest, highest) in [
            ("server.compression_gzip_level", gzip, 1, 9),
            ("server.compression_br_level", brotli, 0, 11),
            ("server.compression_zstd_level", zstd, 1, 19),
        ] {
            if !(lowest..=highest).contains(&level) {
                return Err(Error::Config {
                    key,
                    reason: format!("{level} is not a level from {lowest} to {highest}"),
                });
            }
        }
        self.gzip_level = gzip;
        self.brotli_level = brotli;
        self.zstd_level = zstd;
        Ok(self)
    }

    /// Codes a body with gzip, whatever it is: for applications that decide
    /// themselves what to compress.
    ///
    /// A body that is all there and has at most `max_one_go_bytes` is coded at
    /// once and keeps a length; of any other the pieces are, as they are sent.
    ///
    /// # Errors
    /// The body as it is, when the lane has as many encoders at work as it may.
    pub fn gzip(&self, body: Body, max_one_go_bytes: usize) -> Result<Body, Body> {
        let whole = body.as_full().filter(|it| it.len() <= max_one_go_bytes);
        if let Some(bytes) = whole {
            return match self.encode(Coding::Gzip, bytes) {
                Some(out) => {
                    count_on_lane(|lane| lane.response_compressed(Coding::Gzip));
                    Ok(Body::from(out))
                }
                None => Err(body),
            };
        }
        let Some(permit) = Permit::take() else {
            return Err(body);
        };
        count_on_lane(|lane| lane.response_compressed(Coding::Gzip));
        let coded = CompressedBody::new(body, Coding::Gzip, self, permit);
        Ok(Body::custom(coded))
    }

    /// `bytes` in one go; `None` where the encoder's library gives up.
    fn encode(&self, coding: Coding, bytes: &[u8]) -> Option<Vec<u8>> {
        let encoder = Encoder::take(coding, self).ok()?;
        let mut out = Vec::with_capacity(encoder.room(bytes.len()));
        encoder.finish(bytes, &mut out).ok()?;
        Some(out)
    }

    const fn level(&self, coding: Coding) -> u8 {
        match coding {
            Coding::Zstd => self.zstd_level,
            Coding::Brotli => self.brotli_level,
            Coding::Gzip => self.gzip_level,
        }
    }

    /// Compresses `response` if everybody agrees.
    ///
    /// A client that refuses a body without coding gets a coded one whatever
    /// its size and type, where the handler allows it; where not, it gets what
    /// there is (RFC 9110 §12.4.1 lets a server disregard the field).
    pub(crate) fn apply(&self, accepted: Accepted, mut response: Response) -> Response {
        match response.status() {
            StatusCode::NOT_MODIFIED => {
                // It stands for a 200 that we do not see.
                vary::add(
                    response.headers_mut(),
                    &ACCEPT_ENCODING,
                    VARY_ACCEPT_ENCODING,
                );
                return response;
            }
            StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT => {
                return response;
            }
            status if status.is_informational() => return response,
            _ => {}
        }
        let size = response.body().size_hint().exact();
        if size == Some(0) {
            return response;
        }
        let is_large = size.is_none_or(|size| size >= self.min_bytes);
        let is_worth_it = match MediaType::of(response.headers().get(CONTENT_TYPE)) {
            MediaType::Compressible => is_large || accepted.refuses_identity,
            MediaType::Dense => accepted.refuses_identity,
            MediaType::EventStream => false,
        };
        if !is_worth_it || !may_transform(response.headers()) {
            return response;
        }
        vary::add(
            response.headers_mut(),
            &ACCEPT_ENCODING,
            VARY_ACCEPT_ENCODING,
        );
        match accepted.coding {
            Some(coding) => self.compress(coding, accepted.refuses_identity, response),
            None => response,
        }
    }

    fn compress(&self, coding: Coding, must: bool, mut response: Response) -> Response {
        let body = match response.body().as_full() {
            Some(bytes) if bytes.len() <= MAX_ONE_GO_BYTES => match self.encode(coding, bytes) {
                Some(out) if must || out.len() < bytes.len() => Body::from(out),
                _ => return response,
            },
            _ => {
                let Some(permit) = Permit::take() else {
                    return response;
                };
                let (head, inner) = response.into_http().into_parts();
                response = http::Response::from_parts(head, Body::empty()).into();
                Body::custom(CompressedBody::new(inner, coding, self, permit))
            }
        };
        count_on_lane(|lane| lane.response_compressed(coding));
        response = response.with_body(body);
        let headers = response.headers_mut();
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.token()));
        headers.remove(CONTENT_LENGTH);
        headers.remove(ACCEPT_RANGES);
        if let Some(tag) = headers.get_mut(ETAG)
            && !tag.as_bytes().starts_with(b"W/")
            && let Ok(weak) = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat())
        {
            *tag = weak;
        }
        response
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether the handler leaves the coding to us.
fn may_transform(headers: &HeaderMap) -> bool {
    let is_no_transform = |name: &[u8]| name.eq_ignore_ascii_case(b"no-transform");
    !headers.contains_key(CONTENT_ENCODING)
        && !headers.contains_key(CONTENT_RANGE)
        && !DIGESTS.iter().any(|name| headers.contains_key(name))
        && !headers
            .get_all(CACHE_CONTROL)
            .iter()
            .any(|value| vary::names(value).any(is_no_transform))
}

#[cfg(test)]
mod tests;
