//! `application/x-www-form-urlencoded` (WHATWG URL §5.1): fields in order.
//!
//! Guarantee: no more fields, and none longer, than the limits say; what is
//! too much is refused as it comes, before the rest is read and before any of
//! it is decoded. A form counts in the memory of bodies as it is sent, without
//! empty fields; the fields that are made of it do not.

use bytes::{Bytes, BytesMut};
use serde::de::DeserializeOwned;

use super::FormLimits;
use crate::body::Body;
use crate::collected::Collected;
use crate::error::FormError;
use crate::limits::Reject;

/// Fields of a form in the order they were sent, repeated names included.
///
/// ```
/// use justapi_core::{Form, FormLimits};
///
/// let form = Form::parse(b"tag=a&tag=b&name=Jos%C3%A9+P.", &FormLimits::DEFAULT)?;
/// assert_eq!(form.get("name"), Some("Jos\u{e9} P."));
/// assert_eq!(form.get_all("tag").collect::<Vec<_>>(), ["a", "b"]);
/// # Ok::<(), justapi_core::FormError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Parses the bytes of a body or a query.
    ///
    /// Every text is a form: what is not percent-encoded right stands for
    /// itself, and bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// [`FormError::Limit`] on too many or too long fields.
    pub fn parse(bytes: &[u8], limits: &FormLimits) -> Result<Self, FormError> {
        Check::new(limits).feed(bytes)?;
        Ok(Self::of_checked(bytes))
    }

    /// The fields of bytes that are within their limits.
    pub(super) fn of_checked(bytes: &[u8]) -> Self {
        let fields = form_urlencoded::parse(bytes);
        Self(
            fields
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    /// First value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter()
            .find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Every value of `name`, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.iter()
            .filter_map(move |(known, value)| (known == name).then_some(value))
    }

    /// Names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Number of fields.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no field.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a body to its end, checking it piece by piece.
///
/// Empty fields, which count for nothing, are not kept: what is held is no
/// more than the fields and lengths that the limits allow, whatever the limit
/// of the body.
pub(super) async fn read(mut body: Body, limits: &FormLimits) -> Result<Bytes, FormError> {
    let mut check = Check::new(limits);
    let mut kept = Collected::default();
    while let Some(chunk) = body.chunk().await {
        let chunk = chunk?;
        check.feed(&chunk)?;
        let is_separated = kept.last().is_none_or(|last| last == b'&');
        kept.push(without_empty(chunk, is_separated))?;
    }
    Ok(kept.take())
}

/// `chunk` without the `&` that only repeat one, or that begin the form.
fn without_empty(chunk: Bytes, mut is_separated: bool) -> Bytes {
    let begins_empty = is_separated && chunk.first() == Some(&b'&');
    if !begins_empty && memchr::memmem::find(&chunk, b"&&").is_none() {
        return chunk;
    }
    let mut kept = BytesMut::with_capacity(chunk.len());
    let mut rest = &chunk[..];
    loop {
        if is_separated {
            rest = after_separators(rest);
        }
        let Some(end) = memchr::memchr(b'&', rest) else {
            kept.extend_from_slice(rest);
            return kept.freeze();
        };
        kept.extend_from_slice(&rest[..=end]);
        rest = &rest[end + 1..];
        is_separated = true;
    }
}

fn after_separators(bytes: &[u8]) -> &[u8] {
    let start = bytes.iter().position(|byte| *byte != b'&');
    &bytes[start.unwrap_or(bytes.len())..]
}

/// Parses the bytes of a checked body into `T`, a struct of fields or a list
/// of pairs.
pub(super) fn deserialize<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FormError> {
    let fields = form_urlencoded::parse(bytes);
    T::deserialize(serde_urlencoded::Deserializer::new(fields))
        .map_err(|source| FormError::Fields { source })
}

/// Checks the limits on the bytes as they are: decoding makes them shorter,
/// or three times as long where U+FFFD stands for a byte.
struct Check<'a> {
    limits: &'a FormLimits,
    num_fields: usize,
    /// Bytes of the name or the value that is being read.
    length: usize,
    /// Whether the field has a byte yet, so that it counts.
    has_begun: bool,
    is_value: bool,
}

impl<'a> Check<'a> {
    const fn new(limits: &'a FormLimits) -> Self {
        Self {
            limits,
            num_fields: 0,
            length: 0,
            has_begun: false,
            is_value: false,
        }
    }

    /// Looks at the next bytes.
    fn feed(&mut self, mut bytes: &[u8]) -> Result<(), FormError> {
        loop {
            if !self.has_begun {
                bytes = after_separators(bytes);
            }
            if bytes.is_empty() {
                return Ok(());
            }
            let end = if self.is_value {
                memchr::memchr(b'&', bytes)
            } else {
                memchr::memchr2(b'&', b'=', bytes)
            };
            let length = end.unwrap_or(bytes.len());
            if !self.has_begun {
                self.begin()?;
            }
            self.length += length;
            if self.length > self.limits.max_field_bytes {
                return Err(FormError::limit(
                    Reject::FormFieldBytes,
                    "server.limits.form_field",
                    self.limits.max_field_bytes as u64,
                ));
            }
            let Some(end) = end else {
                return Ok(());
            };
            self.is_value = bytes[end] == b'=';
            self.has_begun &= self.is_value;
            self.length = 0;
            bytes = &bytes[end + 1..];
        }
    }

    fn begin(&mut self) -> Result<(), FormError> {
        self.has_begun = true;
        self.num_fields += 1;
        if self.num_fields > self.limits.max_fields {
            return Err(FormError::limit(
                Reject::FormFields,
                "server.limits.form_fields",
                self.limits.max_fields as u64,
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    const LIMITS: FormLimits = FormLimits {
        max_fields: 4,
        max_field_bytes: 10,
        ..FormLimits::DEFAULT
    };

    #[track_caller]
    fn check_fields(text: &str, expected: &[(&str, &str)]) {
        let form = Form::parse(text.as_bytes(), &LIMITS).unwrap();
        assert_eq!(form.iter().collect::<Vec<_>>(), expected, "{text}");
        assert_eq!(form.len(), expected.len());
    }

    #[test]
    fn fields_are_read_as_the_specification_says() {
        for (text, expected) in [
            ("", &[][..]),
            ("&&", &[]),
            ("a", &[("a", "")]),
            ("a=", &[("a", "")]),
            ("=a", &[("", "a")]),
            ("=", &[("", "")]),
            ("a=b", &[("a", "b")]),
            ("a=b&c=d&", &[("a", "b"), ("c", "d")]),
            ("a=1&a=2", &[("a", "1"), ("a", "2")]),
            ("a=b=c", &[("a", "b=c")]),
            ("a+b=c%20d", &[("a b", "c d")]),
            ("a%3Db=%26", &[("a=b", "&")]),
            ("a=%C3%A9", &[("a", "\u{e9}")]),
            ("a=%FF", &[("a", "\u{FFFD}")]),
            ("a=%", &[("a", "%")]),
            ("a=%2", &[("a", "%2")]),
            ("a=%zz", &[("a", "%zz")]),
            ("a=;b=c", &[("a", ";b=c")]),
            ("a=%00", &[("a", "\0")]),
        ] {
            check_fields(text, expected);
        }
    }

    #[test]
    fn too_much_is_refused_by_the_name_of_its_limit() {
        for (text, expected) in [
            ("a&b&c&d", None),
            ("a&&b&c&d&", None),
            ("a&b&c&d&e", Some("server.limits.form_fields")),
            ("a=1234567890", None),
            ("0123456789=1", None),
            ("a=12345678901", Some("server.limits.form_field")),
            ("01234567890=1", Some("server.limits.form_field")),
            ("01234567890", Some("server.limits.form_field")),
        ] {
            let found = match Form::parse(text.as_bytes(), &LIMITS) {
                Ok(_) => None,
                Err(FormError::Limit { name, .. }) => Some(name),
                Err(other) => panic!("{text}: {other}"),
            };
            assert_eq!(found, expected, "{text}");
        }
        // Counted, not kept.
        let many = "a&".repeat(1_000_000);
        assert!(Form::parse(many.as_bytes(), &FormLimits::DEFAULT).is_err());
    }

    #[test]
    fn fields_become_a_type_of_the_caller() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Order {
            name: String,
            count: u32,
            note: Option<String>,
        }
        let parse = |text: &str| deserialize::<Order>(text.as_bytes());
        let order = Order {
            name: "tea".to_owned(),
            count: 3,
            note: None,
        };
        assert_eq!(parse("name=tea&count=3").unwrap(), order);
        for text in [
            "name=tea",
            "name=tea&count=x",
            "name=a&name=b&count=1",
            "count=-1&name=",
        ] {
            assert!(
                matches!(parse(text), Err(FormError::Fields { .. })),
                "{text}"
            );
        }
        let pairs: Vec<(String, String)> = deserialize(b"a=1&a=2").unwrap();
        assert_eq!(pairs.len(), 2);
    }

    /// Reads a body that comes in these pieces; the number of bytes it kept.
    fn read_pieces(
        pieces: &[&'static [u8]],
        limits: &FormLimits,
    ) -> (Result<Form, FormError>, usize) {
        let (sender, body) = Body::channel(pieces.len());
        let mut cx = Context::from_waker(Waker::noop());
        for piece in pieces {
            let sent = pin!(sender.send(*piece)).poll(&mut cx);
            assert!(sent.is_ready());
        }
        drop(sender);
        let Poll::Ready(result) = pin!(read(body, limits)).poll(&mut cx) else {
            panic!("all of it is there");
        };
        let kept = result.as_ref().map_or(0, Bytes::len);
        (result.map(|bytes| Form::of_checked(&bytes)), kept)
    }

    #[test]
    fn a_form_is_refused_as_it_comes() {
        let (sender, body) = Body::channel(4);
        let mut cx = Context::from_waker(Waker::noop());
        for piece in ["a=1&b=2&c", "=3&d&", "e"] {
            assert!(pin!(sender.send(piece)).poll(&mut cx).is_ready());
        }
        // Its end never comes.
        let Poll::Ready(found) = pin!(read(body, &LIMITS)).poll(&mut cx) else {
            panic!("it waits for more of what is too much");
        };
        assert!(matches!(
            found,
            Err(FormError::Limit {
                name: "server.limits.form_fields",
                ..
            })
        ));
        drop(sender);
        let long: &[&[u8]] = &[b"a=123", b"45678", b"901"];
        let (found, _) = read_pieces(long, &LIMITS);
        assert!(matches!(
            found,
            Err(FormError::Limit {
                name: "server.limits.form_field",
                ..
            })
        ));
    }

    #[test]
    fn empty_fields_take_no_memory() {
        let ampersands = [b'&'; 4096].as_slice();
        let ampersands: &'static [u8] = Box::leak(ampersands.into());
        let pieces = [
            &b"a=1"[..],
            ampersands,
            ampersands,
            b"b=2",
            ampersands,
            ampersands,
        ];
        let (form, kept) = read_pieces(&pieces, &LIMITS);
        let form = form.unwrap();
        assert_eq!(form.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
        assert!(kept < 10, "{kept} bytes are kept");
    }

    /// Only what is kept counts in the memory of bodies.
    #[test]
    fn empty_fields_are_left_out_of_each_piece() {
        for (piece, is_separated, expected) in [
            ("a=1&b", false, "a=1&b"),
            ("&a", false, "&a"),
            ("&a", true, "a"),
            ("&&a&&&b&&", true, "a&b&"),
            ("&&a&&&b&&", false, "&a&b&"),
            ("&&&", true, ""),
            ("&&&", false, "&"),
            ("", true, ""),
        ] {
            let kept = without_empty(Bytes::from_static(piece.as_bytes()), is_separated);
            assert_eq!(kept, expected, "{piece} {is_separated}");
        }
    }

    proptest! {
        /// As the same bytes in one piece, refusals included.
        #[test]
        fn pieces_change_nothing(
            bytes in prop::collection::vec(prop::sample::select(&b"ab=&%2+\xff"[..]), 0..40),
            cut in 1..8_usize,
        ) {
            let bytes: &'static [u8] = Box::leak(bytes.into_boxed_slice());
            let pieces: Vec<_> = bytes.chunks(cut).collect();
            let (found, _) = read_pieces(&pieces, &LIMITS);
            let whole = Form::parse(bytes, &LIMITS);
            prop_assert_eq!(found.map_err(|error| error.to_string()), whole.map_err(|error| error.to_string()));
        }

        #[test]
        fn what_is_serialised_is_parsed(
            fields in proptest::collection::vec((".{0,8}", ".{0,8}"), 0..6)
        ) {
            let text = form_urlencoded::Serializer::new(String::new())
                .extend_pairs(&fields)
                .finish();
            let form = Form::parse(text.as_bytes(), &FormLimits::DEFAULT).unwrap();
            prop_assert_eq!(form.0, fields);
        }
    }
}
