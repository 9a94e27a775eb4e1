//! One pass over a text: JSON's grammar (RFC 8259) and the rules together.
//!
//! Guarantee: no byte is looked at twice but those of a name; nothing is
//! allocated.

use super::{Acceptance, Acceptor, Bound, Bounds, Place, Rule, Types};
use crate::validation::email;

/// Nesting that is followed; `serde_json` reads 127 levels.
const MAX_DEPTH: u32 = 100;
/// Longest number that is looked at, so that none is too large for a float.
const MAX_NUMBER_BYTES: usize = 40;
/// Digits that certainly are a signed integer of 64 bits.
const MAX_INTEGER_DIGITS: usize = 18;
/// Largest integer up to which all have a float of their own.
const MAX_EXACT: u64 = 1 << f64::MANTISSA_DIGITS;

/// The way through a text; `None` of its methods means "not for sure".
pub(super) struct Scan<'a> {
    acceptor: &'a Acceptor,
    text: &'a [u8],
    at: usize,
    depth: u32,
    has_distinct_names: bool,
}

/// A string of the text, between its quotation marks.
struct Quoted<'a> {
    text: &'a [u8],
    /// It has no escapes.
    is_plain: bool,
}

/// The name of a member.
enum Name {
    /// Of a member that the rule has.
    Known(usize),
    Other,
}

impl<'a> Scan<'a> {
    pub(super) const fn new(acceptor: &'a Acceptor, text: &'a str) -> Self {
        Self {
            acceptor,
            text: text.as_bytes(),
            at: 0,
            depth: 0,
            has_distinct_names: true,
        }
    }

    /// Reads it as a document.
    pub(super) fn document(mut self) -> Option<Acceptance> {
        self.value(self.acceptor.root)?;
        self.text[self.at..]
            .iter()
            .all(|byte| is_space(*byte))
            .then_some(Acceptance {
                has_distinct_names: self.has_distinct_names,
            })
    }

    /// The next byte that is no white space, which is not passed.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.get(self.at)?;
            if !is_space(byte) {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Passes `byte`, which has to be the next.
    #[inline]
    fn pass(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    #[inline]
    fn value(&mut self, place: Place) -> Option<()> {
        let acceptor = self.acceptor;
        let rule = &acceptor.rules[place.rule as usize];
        match self.peek()? {
            b'"' => {
                if !rule.types.has(Types::STRING) {
                    return None;
                }
                self.at += 1;
                let string = self.string()?;
                if rule.is_any_string() {
                    return Some(());
                }
                check_string(rule, &string)
            }
            first => self.no_string(first, rule, place.or_null),
        }
    }

    /// Reads a value that begins with `first`, which is no quotation mark.
    fn no_string(&mut self, first: u8, rule: &Rule, or_null: bool) -> Option<()> {
        let is_welcome = |types| rule.types.has(types).then_some(());
        match first {
            b'-' | b'0'..=b'9' => self.number(rule)?,
            b'{' => {
                is_welcome(Types::OBJECT)?;
                self.enter()?;
                self.object(rule)?;
                self.depth -= 1;
            }
            b'[' => {
                is_welcome(Types::ARRAY)?;
                self.enter()?;
                self.array(rule)?;
                self.depth -= 1;
            }
            b't' => {
                is_welcome(Types::BOOLEAN)?;
                self.literal(b"true")?;
            }
            b'f' => {
                is_welcome(Types::BOOLEAN)?;
                self.literal(b"false")?;
            }
            b'n' => {
                self.literal(b"null")?;
                if or_null {
                    return Some(());
                }
                is_welcome(Types::NULL)?;
            }
            _ => return None,
        }
        // Choices are strings.
        rule.choices.is_none().then_some(())
    }

    /// Passes the bracket that opens.
    fn enter(&mut self) -> Option<()> {
        self.depth += 1;
        self.at += 1;
        (self.depth <= MAX_DEPTH).then_some(())
    }

    fn literal(&mut self, literal: &[u8]) -> Option<()> {
        let is_here = self.text[self.at..].starts_with(literal);
        is_here.then(|| self.at += literal.len())
    }

    fn array(&mut self, rule: &Rule) -> Option<()> {
        let mut num_items = 0;
        if self.peek()? == b']' {
            self.at += 1;
        } else {
            loop {
                self.value(rule.items)?;
                num_items += 1;
                let next = self.peek()?;
                self.at += 1;
                match next {
                    b',' => {}
                    b']' => break,
                    _ => return None,
                }
            }
        }
        let (min, max) = rule.num_items;
        (min <= num_items && num_items <= max).then_some(())
    }

    fn object(&mut self, rule: &Rule) -> Option<()> {
        let mut seen = 0_u64;
        let mut num_others = 0_u32;
        let mut expected = 0;
        if self.peek()? == b'}' {
            self.at += 1;
        } else {
            loop {
                self.pass(b'"')?;
                let place = match self.name(rule, expected)? {
                    Name::Known(index) => {
                        let bit = 1_u64 << index;
                        // Of two members of one name the last counts.
                        if seen & bit != 0 {
                            return None;
                        }
                        seen |= bit;
                        expected = index + 1;
                        rule.members[index].place
                    }
                    Name::Other => {
                        num_others += 1;
                        rule.others?
                    }
                };
                self.value(place)?;
                let next = self.peek()?;
                self.at += 1;
                match next {
                    b',' => {}
                    b'}' => break,
                    _ => return None,
                }
            }
        }
        self.has_distinct_names &= num_others < 2;
        (seen & rule.required == rule.required).then_some(())
    }

    /// Reads a name behind its first quotation mark, and the colon: which of
    /// the rule's members it is, if any.
    #[inline]
    fn name(&mut self, rule: &Rule, expected: usize) -> Option<Name> {
        // They often come in the same order.
        if let Some(member) = rule.members.get(expected)
            && let rest = &self.text[self.at..]
            && let Some(word) = rest.first_chunk::<8>()
            && u64::from_le_bytes(*word) & member.mask == member.first
            && (member.key.len() <= 8 || rest.starts_with(&member.key))
        {
            self.at += member.key.len();
            return Some(Name::Known(expected));
        }
        let string = self.string()?;
        if !string.is_plain {
            return None;
        }
        self.pass(b':')?;
        let mut names = rule.members.iter();
        let known = names.position(|member| member.name() == string.text);
        Some(known.map_or(Name::Other, Name::Known))
    }

    /// Reads a string behind its first quotation mark.
    #[inline]
    fn string(&mut self) -> Option<Quoted<'a>> {
        let start = self.at;
        let mut is_plain = true;
        loop {
            while let Some(word) = self.text[self.at..].first_chunk::<8>() {
                let plain = num_plain(*word);
                self.at += plain;
                if plain < 8 {
                    break;
                }
            }
            match *self.text.get(self.at)? {
                b'"' => {
                    let text = &self.text[start..self.at];
                    self.at += 1;
                    return Some(Quoted { text, is_plain });
                }
                b'\\' => {
                    is_plain = false;
                    self.escape()?;
                }
                0..0x20 => return None,
                _ => self.at += 1,
            }
        }
    }

    /// Passes an escape but for one of a surrogate.
    fn escape(&mut self) -> Option<()> {
        match *self.text.get(self.at + 1)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
            b'u' => {
                let digits = self.text[self.at + 2..].first_chunk::<4>()?;
                let unit = digits.iter().try_fold(0, |unit, digit| {
                    Some(unit * 16 + char::from(*digit).to_digit(16)?)
                })?;
                char::from_u32(unit)?;
                self.at += 6;
            }
            _ => return None,
        }
        Some(())
    }

    fn number(&mut self, rule: &Rule) -> Option<()> {
        let start = self.at;
        let is_negative = self.text[self.at] == b'-';
        self.at += usize::from(is_negative);
        let first = self.at;
        let num_digits = self.digits()?;
        if num_digits > 1 && self.text[first] == b'0' {
            return None;
        }
        let mut is_integer = true;
        let next = |scan: &Self| scan.text.get(scan.at).copied();
        if next(self) == Some(b'.') {
            is_integer = false;
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = next(self) {
            is_integer = false;
            self.at += 1;
            if let Some(b'+' | b'-') = next(self) {
                self.at += 1;
            }
            if self.digits()? > 2 {
                return None;
            }
        }
        let text = &self.text[start..self.at];
        if text.len() > MAX_NUMBER_BYTES {
            return None;
        }
        let types = if is_integer {
            Types::INTEGER
        } else {
            Types::FLOAT
        };
        if !rule.types.has(types) {
            return None;
        }
        let Some(bounds) = &rule.bounds else {
            return Some(());
        };
        if !is_integer {
            let float = std::str::from_utf8(text).ok()?.parse().ok()?;
            return bounds.hold_float(float);
        }
        if num_digits > MAX_INTEGER_DIGITS {
            return None;
        }
        let digits = self.text[first..self.at].iter();
        let value = digits.fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
        bounds.hold_integer(if is_negative { -value } else { value })
    }

    /// Passes one digit or more.
    #[inline]
    fn digits(&mut self) -> Option<usize> {
        let rest = &self.text[self.at..];
        let num_digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += num_digits;
        (num_digits > 0).then_some(num_digits)
    }
}

const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

fn check_string(rule: &Rule, string: &Quoted<'_>) -> Option<()> {
    if !string.is_plain {
        return None;
    }
    if let Some(choices) = &rule.choices
        && !choices.iter().any(|choice| **choice == *string.text)
    {
        return None;
    }
    if rule.is_email && !email::is_valid(std::str::from_utf8(string.text).ok()?) {
        return None;
    }
    let Some((min, max)) = rule.lengths else {
        return Some(());
    };
    let is_first = |byte: &&u8| **byte & 0xc0 != 0x80;
    let length = string.text.iter().filter(is_first).count() as u64;
    (min <= length && length <= max).then_some(())
}

/// Leading bytes that a string can have as they are; at least those.
#[inline]
fn num_plain(word: [u8; 8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    // A byte of zero borrows from those above it, which do not matter then.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word;
    let word = u64::from_le_bytes(word);
    let quotes = zeros(word ^ (ONES * u64::from(b'"')));
    let escapes = zeros(word ^ (ONES * u64::from(b'\\')));
    let controls = word.wrapping_sub(ONES * 0x20) & !word;
    ((quotes | escapes | controls) & HIGHS).trailing_zeros() as usize / 8
}

impl Bounds {
    fn hold_integer(&self, value: i64) -> Option<()> {
        use std::cmp::Ordering;
        let compare = |bound: Bound| match bound {
            Bound::Integer(bound) => Some(value.cmp(&bound)),
            Bound::Float(bound) if value.unsigned_abs() <= MAX_EXACT => {
                (value as f64).partial_cmp(&bound)
            }
            Bound::Float(_) => None,
        };
        let is = |bound: Option<Bound>, holds: fn(Ordering) -> bool| match bound {
            Some(bound) => compare(bound).is_some_and(holds),
            None => true,
        };
        let holds = is(self.minimum, Ordering::is_ge)
            && is(self.above, Ordering::is_gt)
            && is(self.maximum, Ordering::is_le)
            && is(self.below, Ordering::is_lt);
        holds.then_some(())
    }

    /// Whether they hold by more than what reading a float may be wrong by.
    fn hold_float(&self, value: f64) -> Option<()> {
        let is = |bound: Option<Bound>, holds: fn(f64, f64) -> bool| {
            let bound = match bound {
                None => return true,
                Some(Bound::Float(bound)) => bound,
                Some(Bound::Integer(bound)) if bound.unsigned_abs() <= MAX_EXACT => bound as f64,
                Some(Bound::Integer(_)) => return false,
            };
            let slack = 8.0 * f64::EPSILON * value.abs().max(bound.abs());
            holds(value - bound, slack)
        };
        let above: fn(f64, f64) -> bool = |difference, slack| difference > slack;
        let below: fn(f64, f64) -> bool = |difference, slack| difference < -slack;
        let holds = is(self.minimum, above)
            && is(self.above, above)
            && is(self.maximum, below)
            && is(self.below, below);
        holds.then_some(())
    }
}
