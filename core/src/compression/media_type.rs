//! Which media types are worth compressing.
//!
//! Images, audio, video and archives are compressed already: a second pass
//! costs time and gains nothing.

use http::HeaderValue;

/// What a `Content-Type` says about compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MediaType {
    /// Text of some kind: shrinks to a fraction.
    Compressible,
    /// Compressed already, or unknown.
    Dense,
    /// `text/event-stream`, which is never compressed: a stream is open for
    /// minutes and would hold an encoder for as long, and some clients do not
    /// decode until they have a whole buffer.
    EventStream,
}

/// Types outside `text/` and without a telling suffix.
const COMPRESSIBLE: &[&str] = &[
    "application/graphql",
    "application/javascript",
    "application/json",
    "application/json-seq",
    "application/jsonl",
    "application/manifest",
    "application/rtf",
    "application/sql",
    "application/toml",
    "application/wasm",
    "application/x-javascript",
    "application/x-jsonlines",
    "application/x-ndjson",
    "application/x-www-form-urlencoded",
    "application/x-yaml",
    "application/xml",
    "application/xml-dtd",
    "application/yaml",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/x-icon",
    "image/vnd.microsoft.icon",
    "model/gltf-binary",
];

/// Structured syntax suffixes (RFC 6839) that are text.
const COMPRESSIBLE_SUFFIXES: &[&str] = &["+json", "+xml", "+yaml", "+text"];

impl MediaType {
    pub(super) fn of(content_type: Option<&HeaderValue>) -> Self {
        let Some(value) = content_type else {
            return Self::Dense;
        };
        let bytes = value.as_bytes();
        let end = memchr::memchr(b';', bytes).unwrap_or(bytes.len());
        let essence = bytes[..end].trim_ascii();
        let is = |known: &str| essence.eq_ignore_ascii_case(known.as_bytes());
        if is("text/event-stream") {
            return Self::EventStream;
        }
        let begins = essence
            .get(..5)
            .is_some_and(|start| start.eq_ignore_ascii_case(b"text/"));
        let ends = |suffix: &&str| {
            let at = essence.len().checked_sub(suffix.len());
            at.is_some_and(|at| essence[at..].eq_ignore_ascii_case(suffix.as_bytes()))
        };
        if begins
            || COMPRESSIBLE.iter().any(|known| is(known))
            || COMPRESSIBLE_SUFFIXES.iter().any(ends)
        {
            Self::Compressible
        } else {
            Self::Dense
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_compressible_and_media_is_dense() {
        for (expected, types) in [
            (
                MediaType::Compressible,
                &[
                    "application/json",
                    "Application/JSON; charset=utf-8",
                    "application/problem+json",
                    "image/svg+xml",
                    "text/html;charset=utf-8",
                    "TEXT/plain",
                    "application/x-ndjson ; a=b",
                ][..],
            ),
            (
                MediaType::Dense,
                &[
                    "image/png",
                    "application/zip",
                    "application/octet-stream",
                    "video/mp4",
                    "application/grpc",
                    "font/woff2",
                    "tex",
                    "",
                ],
            ),
            (
                MediaType::EventStream,
                &["text/event-stream", "Text/Event-Stream; charset=utf-8"],
            ),
        ] {
            for text in types {
                let value = HeaderValue::from_static(text);
                assert_eq!(MediaType::of(Some(&value)), expected, "{text}");
            }
        }
        assert_eq!(MediaType::of(None), MediaType::Dense);
    }
}
