//! `application/x-www-form-urlencoded` (WHATWG URL §5.1): fields in order.
//!
//! Guarantee: no more fields, and none longer, than the limits say; what is
//! too much is refused before it is decoded.

use serde::de::DeserializeOwned;

use super::FormLimits;
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
        check(bytes, limits)?;
        let fields = form_urlencoded::parse(bytes);
        Ok(Self(
            fields
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        ))
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

/// Parses the bytes of a body into `T`, a struct of fields or a list of pairs.
pub(super) fn deserialize<T: DeserializeOwned>(
    bytes: &[u8],
    limits: &FormLimits,
) -> Result<T, FormError> {
    check(bytes, limits)?;
    let fields = form_urlencoded::parse(bytes);
    T::deserialize(serde_urlencoded::Deserializer::new(fields))
        .map_err(|source| FormError::Fields { source })
}

/// Checks the limits on the bytes as they are: decoding makes them shorter,
/// or three times as long where U+FFFD stands for a byte.
fn check(bytes: &[u8], limits: &FormLimits) -> Result<(), FormError> {
    let mut num_fields = 0;
    for field in bytes
        .split(|byte| *byte == b'&')
        .filter(|field| !field.is_empty())
    {
        num_fields += 1;
        if num_fields > limits.max_fields {
            return Err(FormError::limit(
                Reject::FormFields,
                "server.limits.form_fields",
                limits.max_fields as u64,
            ));
        }
        let name = memchr::memchr(b'=', field).unwrap_or(field.len());
        let value = field.len().saturating_sub(name + 1);
        if name.max(value) > limits.max_field_bytes {
            return Err(FormError::limit(
                Reject::FormFieldBytes,
                "server.limits.form_field",
                limits.max_field_bytes as u64,
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
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
        let parse = |text: &str| deserialize::<Order>(text.as_bytes(), &FormLimits::DEFAULT);
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
        let pairs: Vec<(String, String)> = deserialize(b"a=1&a=2", &LIMITS).unwrap();
        assert_eq!(pairs.len(), 2);
    }

    proptest! {
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
