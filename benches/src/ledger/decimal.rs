//! Decimal numbers with six fixed digits, stored as strings.
//!
//! The text of a number is a function of its value alone, so a record and what is rendered from it
//! never depend on how a JSON library prints floating point.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const SCALE: i64 = 1_000_000;

/// A number in millionths.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Decimal(i64);

impl Decimal {
    /// Rounds to six digits; `None` when not finite or beyond ±9 × 10¹².
    pub fn new(value: f64) -> Option<Self> {
        let scaled = (value * SCALE as f64).round();
        (scaled.abs() < i64::MAX as f64).then_some(Self(scaled as i64))
    }

    /// Returns the nearest binary number.
    pub fn value(self) -> f64 {
        self.0 as f64 / SCALE as f64
    }

    /// Renders with `digits` ≤ 6 after the point, half away from zero, thousands grouped.
    pub fn text(self, digits: u32) -> String {
        let unit = 10i64.pow(6 - digits.min(6));
        let scaled = self.0.unsigned_abs();
        let rounded = (scaled + unit.unsigned_abs() / 2) / unit.unsigned_abs();
        let fraction_unit = 10u64.pow(digits.min(6));
        let mut text = grouped(rounded / fraction_unit);
        if digits > 0 {
            let width = digits.min(6) as usize;
            text = format!("{text}.{:0width$}", rounded % fraction_unit);
        }
        if self.0 < 0 && rounded > 0 {
            text.insert(0, '-');
        }
        text
    }
}

fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let scaled = self.0.unsigned_abs();
        let scale = SCALE.unsigned_abs();
        write!(f, "{sign}{}.{:06}", scaled / scale, scaled % scale)
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| de::Error::custom(format!("not a six-digit decimal: {text:?}")))
    }
}

fn parse(text: &str) -> Option<Decimal> {
    let (whole, fraction) = text.trim_start_matches('-').split_once('.')?;
    let millionths = whole.parse::<i64>().ok()?.checked_mul(SCALE)?;
    let magnitude = millionths.checked_add(fraction.parse().ok()?)?;
    let decimal = Decimal(if text.starts_with('-') {
        -magnitude
    } else {
        magnitude
    });
    // One text per number, so only the canonical one is taken.
    (decimal.to_string() == text).then_some(decimal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(value: f64, digits: u32) -> String {
        Decimal::new(value).unwrap().text(digits)
    }

    #[test]
    fn numbers_are_rounded_and_grouped() {
        assert_eq!(text(1_234_567.5, 0), "1,234,568");
        assert_eq!(text(999.0, 0), "999");
        assert_eq!(text(0.996_5, 3), "0.997");
        assert_eq!(text(-0.04, 1), "0.0");
        assert_eq!(text(-12.34, 1), "-12.3");
        assert_eq!(Decimal::new(f64::NAN), None);
        assert_eq!(Decimal::new(f64::INFINITY), None);
        assert_eq!(Decimal::new(1e300), None);
    }

    #[test]
    fn only_the_canonical_text_is_read() {
        assert!(parse("1.500000").is_some());
        for wrong in [
            "1.5",
            "+1.500000",
            "01.500000",
            "-0.000000",
            "1.5000000",
            "",
            "--1.000000",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn text_round_trips(millionths in any::<i64>().prop_filter("symmetric", |v| *v > i64::MIN)) {
            let decimal = Decimal(millionths);
            prop_assert_eq!(parse(&decimal.to_string()), Some(decimal));
        }
    }
}
