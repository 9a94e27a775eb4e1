//! The members of a request body, read one by one.
//!
//! Guarantees: `null` is as good as absent, everywhere; a value of a wrong type
//! or out of its range is a 400 that names the member; members that nobody asks
//! for are not looked at.

use std::ops::RangeInclusive;

use justapi_core::{HeaderMap, StatusCode, header};
use serde_json::{Map, Value};

use super::error::ApiError;
use crate::TokenId;

/// A body that is a JSON object.
#[derive(Debug)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// Reads a text.
    pub(super) fn parse(text: &[u8]) -> Result<Self, ApiError> {
        match serde_json::from_slice(text) {
            Ok(Value::Object(members)) => Ok(Self(members)),
            Ok(_) => Err(ApiError::invalid("the body is not a JSON object")),
            Err(error) => Err(ApiError::invalid(format!("the body is not JSON: {error}"))),
        }
    }

    /// A member, unless it is `null`.
    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn flag(&self, name: &'static str) -> Result<Option<bool>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(ApiError::parameter(name, "not a boolean")),
        }
    }

    pub(super) fn text(&self, name: &'static str) -> Result<Option<&str>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(ApiError::parameter(name, "not a string")),
        }
    }

    pub(super) fn object(&self, name: &'static str) -> Result<Option<Self>, ApiError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(members)) => Ok(Some(Self(members.clone()))),
            Some(_) => Err(ApiError::parameter(name, "not an object")),
        }
    }

    /// A whole number; `2.0` is one.
    pub(super) fn integer(
        &self,
        name: &'static str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, ApiError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = whole(value).ok_or_else(|| ApiError::parameter(name, "not an integer"))?;
        if range.contains(&number) {
            return Ok(Some(number));
        }
        Err(out_of_range(name, number, &range))
    }

    /// A [`Fields::integer`] that is a count.
    pub(super) fn count(
        &self,
        name: &'static str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, ApiError> {
        let range = i64::from(*range.start())..=i64::from(*range.end());
        let number = self.integer(name, range)?;
        Ok(number.map(|number| number as u32))
    }

    pub(super) fn number(
        &self,
        name: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let Some(number) = value.as_f64() else {
            return Err(ApiError::parameter(name, "not a number"));
        };
        if range.contains(&number) {
            return Ok(Some(number as f32));
        }
        Err(out_of_range(name, number, &range))
    }
}

fn out_of_range<T: std::fmt::Display>(
    name: &'static str,
    found: T,
    range: &RangeInclusive<T>,
) -> ApiError {
    let (start, end) = (range.start(), range.end());
    ApiError::parameter(name, format!("{found} is not within {start} and {end}"))
}

/// A number without a fraction.
fn whole(value: &Value) -> Option<i64> {
    /// Above it not every integer is a float.
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    let number = value.as_f64()?;
    (number.fract() == 0.0 && number.abs() <= MAX_EXACT).then_some(number as i64)
}

/// Reads a list of tokens of a vocabulary.
pub(super) fn tokens(
    name: &'static str,
    list: &[Value],
    vocab_size: usize,
) -> Result<Vec<TokenId>, ApiError> {
    let read = |value: &Value| {
        let id = whole(value).and_then(|id| TokenId::try_from(id).ok());
        id.filter(|id| (*id as usize) < vocab_size).ok_or_else(|| {
            let reason = format!("{value} is no token: tokens are 0 to {}", vocab_size - 1);
            ApiError::parameter(name, reason)
        })
    };
    list.iter().map(read).collect()
}

/// A page of another site can send a form or a text without asking, and no JSON.
pub(super) fn check_media_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let value = headers.get(header::CONTENT_TYPE);
    let essence = value
        .and_then(|value| value.to_str().ok())
        .map(|value| value.split(';').next().unwrap_or_default().trim());
    let is_json = essence.is_some_and(|essence| {
        let essence = essence.to_ascii_lowercase();
        essence == "application/json"
            || essence.starts_with("application/") && essence.ends_with("+json")
    });
    if is_json {
        return Ok(());
    }
    let message = "the body has to be declared as `Content-Type: application/json`";
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        Fields::parse(text.as_bytes()).expect("an object")
    }

    #[test]
    fn null_is_absent() {
        let fields = fields(r#"{"a":null}"#);
        assert!(fields.get("a").is_none());
        assert_eq!(fields.flag("a"), Ok(None));
        assert_eq!(fields.text("a"), Ok(None));
        assert_eq!(fields.integer("a", 0..=1), Ok(None));
        assert_eq!(fields.number("a", 0.0..=1.0), Ok(None));
        assert!(fields.object("a").is_ok_and(|object| object.is_none()));
    }

    #[test]
    fn integers_are_whole_and_within_their_range() {
        let read = |text: &str| {
            let fields = fields(&format!("{{\"a\":{text}}}"));
            fields.integer("a", -1..=10).ok().flatten()
        };
        for (text, expected) in [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("-1", Some(-1)),
            ("7.5", None),
            ("11", None),
            ("1e300", None),
            ("18446744073709551615", None),
            ("\"7\"", None),
            ("true", None),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_within_their_range() {
        let read = |text: &str| {
            let fields = fields(&format!("{{\"a\":{text}}}"));
            fields.number("a", 0.0..=2.0).ok().flatten()
        };
        assert_eq!(read("0.5"), Some(0.5));
        assert_eq!(read("2"), Some(2.0));
        assert_eq!(read("2.01"), None);
        assert_eq!(read("\"1\""), None);
    }

    #[test]
    fn only_objects_are_bodies() {
        for text in ["", "[]", "1", "{", "{\"a\":1e400}", "{\"a\":1}x"] {
            assert!(Fields::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn tokens_are_of_the_vocabulary() {
        let read = |text: &str| {
            let list: Vec<Value> = serde_json::from_str(text).expect("a list");
            tokens("prompt", &list, 10).ok()
        };
        assert_eq!(read("[0,9]"), Some(vec![0, 9]));
        for text in ["[10]", "[-1]", "[1.5]", "[\"a\"]", "[null]", "[4294967296]"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
