//! The `Range` header of a request against a representation of known size.
//!
//! Guarantee: no more parts than are allowed come out, they do not overlap, and
//! it takes time linear in the header. Source: RFC 9110 §14.1.2, §14.2 and §15.3.7.2.

use std::ops::Range;

use smallvec::SmallVec;

/// Byte positions, each non-empty and within the representation.
pub(super) type Parts = SmallVec<[Range<u64>; 1]>;

/// What a `Range` header asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// Everything: the header is not understood or invalid.
    Whole,
    /// Everything too: the header asks for more ranges than are allowed.
    TooMany,
    /// These parts, in the order in which they were asked for.
    Parts(Parts),
    /// Nothing that exists.
    Unsatisfiable,
}

impl Selection {
    /// Reads the value of the header for a representation of `size` bytes, of
    /// which it may name `max_ranges` ranges.
    ///
    /// Parts that overlap or touch become one, where the first of them stood.
    pub(super) fn new(value: &[u8], size: u64, max_ranges: usize) -> Self {
        let specs = match parse(value, max_ranges) {
            Ok(specs) => specs,
            Err(Ignored::Invalid) => return Self::Whole,
            Err(Ignored::TooMany) => return Self::TooMany,
        };
        let mut parts = Parts::new();
        for spec in &specs {
            match spec.resolve(size) {
                Some(range) if range.is_empty() => return Self::Whole,
                Some(range) => add(&mut parts, range),
                None => {}
            }
        }
        if parts.is_empty() {
            Self::Unsatisfiable
        } else {
            Self::Parts(parts)
        }
    }
}

/// One `range-spec`.
enum Spec {
    /// `first-last`, both inclusive, or `first-`.
    From(u64, Option<u64>),
    /// `-length`.
    Last(u64),
}

impl Spec {
    /// The bytes it selects; `None` when there are none.
    ///
    /// The end of an empty representation is all of it, which no
    /// `Content-Range` can say: it comes out as an empty range.
    fn resolve(&self, size: u64) -> Option<Range<u64>> {
        match *self {
            Self::From(first, _) if first >= size => None,
            Self::From(first, last) => {
                let end = last.map_or(size, |last| size.min(last.saturating_add(1)));
                Some(first..end)
            }
            Self::Last(0) => None,
            Self::Last(length) => Some(size.saturating_sub(length)..size),
        }
    }
}

/// Why a header is ignored.
enum Ignored {
    Invalid,
    TooMany,
}

/// The ranges of a valid `bytes=` header.
fn parse(value: &[u8], max_ranges: usize) -> Result<SmallVec<[Spec; 1]>, Ignored> {
    let list = std::str::from_utf8(value).ok().and_then(|text| {
        let (unit, list) = text.split_once('=')?;
        unit.trim().eq_ignore_ascii_case("bytes").then_some(list)
    });
    let list = list.ok_or(Ignored::Invalid)?;
    let mut specs = SmallVec::new();
    for element in list.split(',') {
        // RFC 9110 §5.6.1: empty list elements count for nothing.
        let element = element.trim_matches([' ', '\t']);
        if element.is_empty() {
            continue;
        }
        if specs.len() == max_ranges {
            return Err(Ignored::TooMany);
        }
        specs.push(spec(element).ok_or(Ignored::Invalid)?);
    }
    if specs.is_empty() {
        return Err(Ignored::Invalid);
    }
    Ok(specs)
}

/// One `range-spec`; `None` when it is none.
fn spec(element: &str) -> Option<Spec> {
    match element.split_once('-')? {
        ("", length) => Some(Spec::Last(number(length)?)),
        (first, "") => Some(Spec::From(number(first)?, None)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Spec::From(first, Some(last)))
        }
    }
}

/// Digits only; what does not fit is larger than every file.
fn number(digits: &str) -> Option<u64> {
    (!digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().unwrap_or(u64::MAX))
}

/// Adds `range`, merged with every part that it overlaps or touches.
fn add(parts: &mut Parts, mut range: Range<u64>) {
    let mut place = parts.len();
    let mut index = 0;
    // A larger range may reach parts that the smaller one did not.
    while index < parts.len() {
        let part = &parts[index];
        if range.start <= part.end && part.start <= range.end {
            range = range.start.min(part.start)..range.end.max(part.end);
            place = place.min(index);
            parts.remove(index);
            index = 0;
        } else {
            index += 1;
        }
    }
    parts.insert(place.min(parts.len()), range);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limits::MAX_RANGES;

    fn select(value: &[u8], size: u64) -> Selection {
        Selection::new(value, size, MAX_RANGES)
    }

    #[track_caller]
    fn check(value: &str, size: u64, expected: &[Range<u64>]) {
        let expected = Selection::Parts(expected.iter().cloned().collect());
        assert_eq!(select(value.as_bytes(), size), expected, "{value}");
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "lists of ranges")]
    fn valid_ranges_select() {
        check("bytes=0-0", 10, &[0..1]);
        check("bytes=0-", 10, &[0..10]);
        check("bytes=9-9", 10, &[9..10]);
        check("bytes=5-100", 10, &[5..10]);
        check("bytes=-3", 10, &[7..10]);
        check("bytes=-999999", 10, &[0..10]);
        check("BYTES=1-2", 10, &[1..3]);
        check("bytes= 1-2 ,, -1\t", 10, &[1..3, 9..10]);
        check("bytes=8-8,0-1", 10, &[8..9, 0..2]);
        check("bytes=0-1,20-30", 10, &[0..2]);
        check("bytes=0-99999999999999999999999", 10, &[0..10]);
        check("bytes=-99999999999999999999999", 10, &[0..10]);
        check(
            "bytes=5368709120-5368709121",
            6 << 30,
            &[5_368_709_120..5_368_709_122],
        );
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "lists of ranges")]
    fn parts_that_meet_are_one() {
        check("bytes=0-3,2-5", 10, &[0..6]);
        check("bytes=0-1,2-3", 10, &[0..4]);
        check("bytes=8-9,0-1,4-4,1-4", 10, &[8..10, 0..5]);
        check("bytes=0-0,4-4,2-2,0-9", 10, &[0..10]);
        check("bytes=0-0,0-0,0-0", 10, &[0..1]);
    }

    #[test]
    fn what_is_not_there_is_unsatisfiable() {
        for value in [
            "bytes=10-",
            "bytes=10-20,11-11",
            "bytes=-0",
            "bytes=99999999999999999999-",
        ] {
            let found = select(value.as_bytes(), 10);
            assert_eq!(found, Selection::Unsatisfiable, "{value}");
        }
        assert_eq!(select(b"bytes=0-", 0), Selection::Unsatisfiable);
        assert_eq!(select(b"bytes=-5", 0), Selection::Whole);
    }

    #[test]
    fn invalid_headers_are_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "bytes=-",
            "bytes=a-b",
            "bytes=1-0",
            "bytes=1",
            "bytes=+1-2",
            "bytes=1-2-3",
            "bytes=0-1,x",
            "bytes=--1",
            "items=0-1",
            "bytes 0-1",
            "bytes=0x1-2",
            "bytes=0-1;2-3",
            "bytes==0-1",
            "bytes=1 -2",
        ] {
            let found = select(value.as_bytes(), 10);
            assert_eq!(found, Selection::Whole, "{value}");
        }
        let many = |count| format!("bytes={}", vec!["0-0"; count].join(","));
        assert_eq!(select(many(17).as_bytes(), 10), Selection::TooMany);
        assert!(matches!(
            select(many(16).as_bytes(), 10),
            Selection::Parts(_)
        ));
        assert_eq!(Selection::new(b"bytes=0-0,2-2", 10, 1), Selection::TooMany);
        assert_eq!(select(b"bytes=\xff-", 10), Selection::Whole);
    }

    proptest! {
        /// The parts hold exactly the bytes that the ranges hold, each once.
        #[test]
        fn parts_are_the_union(
            size in 1_u64..64,
            ranges in prop::collection::vec((0_u64..70, 0_u64..70), 1..=MAX_RANGES),
        ) {
            let specs: Vec<_> = ranges.iter().map(|(a, b)| {
                let (first, last) = (a.min(b), a.max(b));
                format!("{first}-{last}")
            }).collect();
            let value = format!("bytes={}", specs.join(","));
            let mut counts = vec![0; size as usize];
            match select(value.as_bytes(), size) {
                Selection::Parts(parts) => {
                    for part in &parts {
                        prop_assert!(part.start < part.end && part.end <= size);
                        for index in part.clone() {
                            counts[index as usize] += 1;
                        }
                    }
                }
                Selection::Unsatisfiable => {}
                Selection::Whole | Selection::TooMany => prop_assert!(false, "{} is valid", value),
            }
            for (index, count) in counts.iter().enumerate() {
                let index = index as u64;
                let is_asked = ranges.iter().any(|(a, b)| (*a.min(b)..=*a.max(b)).contains(&index));
                prop_assert_eq!(*count, u32::from(is_asked));
            }
        }

        #[test]
        fn no_header_makes_it_panic(value in prop::collection::vec(any::<u8>(), 0..64), size in any::<u64>()) {
            select(&value, size);
            select(&[b"bytes=", &value[..]].concat(), size);
        }
    }
}
