//! What the built-in members say in every response, rendered when the server
//! starts.
//!
//! Guarantee: a response gets the lines that the members would add one by one;
//! one with a field of their own makes them look at it, as they do without
//! this.

use http::header::{HeaderMap, HeaderName};

use super::cors::Cors;
use super::request_id::{RequestId, X_REQUEST_ID};
use super::security_headers::SecurityHeaders;

/// The lines that are the same for all requests, and whom they do not suit.
#[derive(Debug, Default)]
pub(super) struct HeadLines {
    /// In clear, and over HTTPS.
    blocks: [Vec<u8>; 2],
    /// Fields that a member writes, or would change.
    names: Vec<HeaderName>,
    /// One bit for each [`class`] of `names`.
    classes: u64,
}

impl HeadLines {
    pub(super) fn of(
        request_id: Option<&RequestId>,
        security_headers: Option<&SecurityHeaders>,
        cors: Option<&Cors>,
    ) -> Self {
        let mut blocks = <[Vec<u8>; 2]>::default();
        let mut names = Vec::new();
        if request_id.is_some() {
            names.push(X_REQUEST_ID);
        }
        if let Some(security) = security_headers {
            for (block, is_secure) in blocks.iter_mut().zip([false, true]) {
                block.extend_from_slice(security.lines(is_secure));
            }
            names.extend(security.names().cloned());
        }
        if let Some(cors) = cors {
            for block in &mut blocks {
                block.extend_from_slice(&cors.lines());
            }
            names.extend(cors.names());
        }
        let classes = names.iter().fold(0, |bits, name| bits | 1 << class(name));
        Self {
            blocks,
            names,
            classes,
        }
    }

    /// The lines for a response that has none of the members' fields itself.
    pub(super) fn block(&self, is_secure: bool) -> &[u8] {
        &self.blocks[usize::from(is_secure)]
    }

    /// Whether a response has a field that a member has to look at.
    pub(super) fn is_touched(&self, headers: &HeaderMap) -> bool {
        // A bit tells most names apart, without comparing them.
        headers
            .keys()
            .any(|name| self.classes >> class(name) & 1 == 1 && self.names.contains(name))
    }
}

/// One of 64, by length and first letter: no common field of a response shares
/// that of one that members write.
fn class(name: &HeaderName) -> u32 {
    let name = name.as_str().as_bytes();
    (u32::from(name[0]) + name.len() as u32) % 64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::header::HeaderValue;

    use super::super::cors::CorsConfig;
    use super::super::request_id::Id;
    use super::super::{Builtins, Decoration};
    use super::*;
    use crate::response::Response;

    /// Every line of a head, sorted.
    fn sorted(head: &[u8], headers: &HeaderMap) -> Vec<String> {
        let text = std::str::from_utf8(head).unwrap();
        let mut lines: Vec<String> = text.split_terminator("\r\n").map(str::to_owned).collect();
        let fields = headers.iter();
        lines.extend(fields.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())));
        lines.sort_unstable();
        lines
    }

    fn cors(origins: &[&str], credentials: bool) -> Cors {
        let config = CorsConfig {
            origins: origins.iter().map(|&origin| origin.to_owned()).collect(),
            exposed_headers: vec![HeaderName::from_static("x-exposed")],
            credentials,
            ..CorsConfig::default()
        };
        Cors::new(config).unwrap()
    }

    /// Every set of members, over every response that they may meet.
    #[test]
    fn what_is_written_is_what_the_members_set() {
        let texts = [
            ("content-type", "text/plain"),
            ("x-request-id", "own"),
            ("x-frame-options", "SAMEORIGIN"),
            ("access-control-allow-origin", "https://own.example"),
            ("access-control-expose-headers", "x-own"),
            ("vary", "Accept"),
            ("vary", "origin"),
        ];
        let hour = Duration::from_hours(1);
        let strict = SecurityHeaders::new().with_strict_transport_security(hour, false);
        let sets_of_cors: [fn() -> Option<Cors>; 4] = [
            || None,
            || Some(cors(&["*"], false)),
            || Some(cors(&["https://a.example"], false)),
            || Some(cors(&["https://a.example", "https://b.example"], true)),
        ];
        for choice in 0..1 << texts.len() {
            let chosen = (0..texts.len()).filter(|index| choice >> index & 1 == 1);
            let mut response = HeaderMap::new();
            for index in chosen {
                let (name, text) = texts[index];
                response.append(
                    HeaderName::from_static(name),
                    HeaderValue::from_static(text),
                );
            }
            for members in 0..16 {
                let has_id = members & 1 == 1;
                let builtins = Builtins {
                    request_id: has_id.then(|| RequestId::new(false)),
                    security_headers: (members & 2 == 2).then(|| strict.clone()),
                    cors: sets_of_cors[members >> 2](),
                    ..Builtins::default()
                }
                .prepared();
                for origin in [None, Some("https://b.example"), Some("https://c.example")] {
                    let decoration = Decoration {
                        request_id: has_id
                            .then_some(Id::Made(*b"0123456789abcdef0123456789abcdef")),
                        origin: origin.map(HeaderValue::from_static),
                        is_secure: choice & 1 == 1,
                    };
                    let mut set = response.clone();
                    builtins.apply(&decoration, &mut set);
                    let mut written = Vec::new();
                    let mut rest = Response::new(http::StatusCode::OK);
                    rest.headers_mut().clone_from(&response);
                    builtins.write(&decoration, &mut rest, &mut written);
                    assert_eq!(
                        sorted(&written, rest.headers()),
                        sorted(&[], &set),
                        "{response:?} {builtins:?} {decoration:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn common_fields_are_told_apart_without_comparing() {
        let cors = cors(&["https://a.example"], true);
        let security = SecurityHeaders::new();
        let lines = HeadLines::of(Some(&RequestId::new(false)), Some(&security), Some(&cors));
        for name in [
            "content-type",
            "cache-control",
            "content-encoding",
            "etag",
            "last-modified",
            "location",
            "set-cookie",
            "allow",
            "retry-after",
            "accept-ranges",
            "content-range",
            "content-disposition",
            "link",
            "ratelimit",
            "ratelimit-policy",
        ] {
            let name = HeaderName::from_static(name);
            assert_eq!(lines.classes >> class(&name) & 1, 0, "{name}");
        }
    }
}
