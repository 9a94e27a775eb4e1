//! The `Range` header against a model that looks at each byte position.

use super::range::Selection;
use crate::fuzzing::Input;
use crate::limits::MAX_RANGES;

/// One `range-spec`: where it begins and ends, both inclusive; without a
/// beginning it is a length from the end.
type Spec = (Option<u128>, Option<u128>);

pub(crate) fn check(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let size = input.up_to(300) as u128;
    let value = input.rest();
    let selection = Selection::new(value, size as u64, MAX_RANGES);
    // Any other size must be fine as well.
    for huge in [u64::MAX, u64::MAX - 1, 1 << 32] {
        if let Selection::Parts(parts) = Selection::new(value, huge, MAX_RANGES) {
            assert!(
                parts
                    .iter()
                    .all(|part| part.start < part.end && part.end <= huge)
            );
        }
    }
    let Some(specs) = read(value) else {
        assert!(matches!(selection, Selection::Whole | Selection::TooMany));
        return;
    };
    let is_asked = |index: u128| {
        specs.iter().any(|spec| match *spec {
            (Some(first), last) => first <= index && last.is_none_or(|last| index <= last),
            (None, Some(length)) => index + length >= size,
            (None, None) => false,
        })
    };
    let asks_all_of_nothing = specs
        .iter()
        .any(|spec| size == 0 && matches!(spec, (None, Some(1..))));
    let expected: Vec<bool> = (0..size).map(is_asked).collect();
    match selection {
        Selection::Whole => assert!(asks_all_of_nothing),
        Selection::TooMany => panic!("the model read the header"),
        Selection::Unsatisfiable => assert!(!asks_all_of_nothing && !expected.contains(&true)),
        Selection::Parts(parts) => {
            assert!((1..=MAX_RANGES).contains(&parts.len()));
            let mut num_times = vec![0; size as usize];
            for part in &parts {
                assert!(part.start < part.end);
                for index in part.clone() {
                    num_times[index as usize] += 1;
                }
            }
            for (times, is_asked) in num_times.into_iter().zip(expected) {
                assert_eq!(times, i32::from(is_asked), "each byte once");
            }
        }
    }
}

/// The ranges of a header that is to be obeyed.
fn read(value: &[u8]) -> Option<Vec<Spec>> {
    let text = std::str::from_utf8(value).ok()?;
    let at = text.find('=')?;
    if !text[..at].trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let elements: Vec<_> = text[at + 1..]
        .split(',')
        .map(|element| element.trim_matches([' ', '\t']))
        .filter(|element| !element.is_empty())
        .collect();
    if elements.is_empty() || elements.len() > MAX_RANGES {
        return None;
    }
    elements.into_iter().map(read_spec).collect()
}

fn read_spec(element: &str) -> Option<Spec> {
    let [first, last] = element.split('-').collect::<Vec<_>>()[..] else {
        return None;
    };
    let number = |digits: &str| -> Option<Option<u128>> {
        if digits.is_empty() {
            return Some(None);
        }
        let is_number = digits.chars().all(|digit| digit.is_ascii_digit());
        // What does not fit 64 bits is larger than every representation.
        let number = || digits.parse().unwrap_or(u128::from(u64::MAX));
        is_number.then(|| Some(number().min(u128::from(u64::MAX))))
    };
    match (number(first)?, number(last)?) {
        (None, None) => None,
        (Some(first), Some(last)) if first > last => None,
        spec => Some(spec),
    }
}
