//! JSON documents (RFC 8259) as plain Python values.
//!
//! Guarantee: what is decoded here is what Python's `json.loads` makes of it;
//! everything else, valid or not, is left to the route's own converter: other
//! encodings than UTF-8, `NaN`, large numbers, lone surrogates, deep nesting.

use std::cell::RefCell;

use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PyString};
use smallvec::SmallVec;

use crate::kept::Kept;

/// Levels that are decoded here; each is a call on the stack.
const MAX_DEPTH: usize = 64;
/// Most digits of which every number fits an `i64`.
const MAX_INT_DIGITS: usize = 18;

/// The document is not of the kind that is decoded here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotPlain;

/// What a document has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    Any,
    Object,
    Array,
}

/// Decodes a whole document.
pub(crate) fn decode<'py>(
    py: Python<'py>,
    document: &[u8],
    root: Root,
) -> Result<Bound<'py, PyAny>, NotPlain> {
    whole(py, document, |decoder| {
        match (decoder.next_token()?, root) {
            (b'{', Root::Object | Root::Any) | (b'[', Root::Array | Root::Any) => decoder.value(0),
            (b'{' | b'[', _) | (_, Root::Object | Root::Array) => Err(NotPlain),
            (_, Root::Any) => decoder.value(0),
        }
    })
}

/// Decodes a whole document with `read`.
pub(crate) fn whole<'py>(
    py: Python<'py>,
    document: &[u8],
    read: impl FnOnce(&mut Decoder<'_, 'py>) -> Result<Bound<'py, PyAny>, NotPlain>,
) -> Result<Bound<'py, PyAny>, NotPlain> {
    let text = std::str::from_utf8(document).map_err(|_| NotPlain)?;
    KEYS.with(|keys| {
        // A finaliser of the application's may run below, and come back here.
        let mut keys = keys.try_borrow_mut().map_err(|_| NotPlain)?;
        let mut decoder = Decoder {
            py,
            text,
            at: 0,
            keys: &mut keys,
        };
        let value = read(&mut decoder)?;
        decoder.skip_spaces();
        if decoder.at == text.len() {
            Ok(value)
        } else {
            Err(NotPlain)
        }
    })
}

thread_local! {
    /// A text that is there already has its hash.
    static KEYS: RefCell<Kept<PyString>> = const { RefCell::new(Kept::new()) };
}

/// A document and how much of it has been read.
pub(crate) struct Decoder<'a, 'py> {
    pub(crate) py: Python<'py>,
    pub(crate) text: &'a str,
    pub(crate) at: usize,
    keys: &'a mut Kept<PyString>,
}

impl<'a, 'py> Decoder<'a, 'py> {
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.text.as_bytes()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes().get(self.at).copied()
    }

    fn skip_spaces(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    /// The first byte of what comes next.
    pub(crate) fn next_token(&mut self) -> Result<u8, NotPlain> {
        self.skip_spaces();
        self.peek().ok_or(NotPlain)
    }

    pub(crate) fn value(&mut self, depth: usize) -> Result<Bound<'py, PyAny>, NotPlain> {
        match self.next_token()? {
            b'"' => {
                let text = self.string()?;
                Ok(PyString::new(self.py, text.as_str()).into_any())
            }
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b't' => self.literal("true", PyBool::new(self.py, true).to_owned().into_any()),
            b'f' => self.literal("false", PyBool::new(self.py, false).to_owned().into_any()),
            b'n' => self.literal("null", self.py.None().into_bound(self.py)),
            _ => self.number(),
        }
    }

    pub(crate) fn literal(
        &mut self,
        text: &str,
        value: Bound<'py, PyAny>,
    ) -> Result<Bound<'py, PyAny>, NotPlain> {
        if !self.bytes()[self.at..].starts_with(text.as_bytes()) {
            return Err(NotPlain);
        }
        self.at += text.len();
        Ok(value)
    }

    /// Of a key that is repeated, the last value counts.
    fn object(&mut self, depth: usize) -> Result<Bound<'py, PyAny>, NotPlain> {
        let depth = deeper(depth)?;
        let dict = PyDict::new(self.py);
        self.at += 1;
        if self.next_token()? == b'}' {
            self.at += 1;
            return Ok(dict.into_any());
        }
        loop {
            if self.next_token()? != b'"' {
                return Err(NotPlain);
            }
            let key = self.string()?;
            let key = key.as_str();
            let make = || PyString::new(self.py, key);
            let key = self.keys.get(self.py, key.as_bytes(), make);
            if self.next_token()? != b':' {
                return Err(NotPlain);
            }
            self.at += 1;
            let value = self.value(depth)?;
            dict.set_item(key, value).map_err(|_| NotPlain)?;
            match self.next_token()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Ok(dict.into_any());
                }
                _ => return Err(NotPlain),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Bound<'py, PyAny>, NotPlain> {
        let depth = deeper(depth)?;
        let mut items: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
        self.at += 1;
        if self.next_token()? == b']' {
            self.at += 1;
        } else {
            loop {
                items.push(self.value(depth)?);
                let end = self.next_token()?;
                self.at += 1;
                match end {
                    b',' => {}
                    b']' => break,
                    _ => return Err(NotPlain),
                }
            }
        }
        let list = PyList::new(self.py, items).map_err(|_| NotPlain)?;
        Ok(list.into_any())
    }

    /// The text from a quotation mark to the next.
    pub(crate) fn string(&mut self) -> Result<Text<'a>, NotPlain> {
        self.at += 1;
        let start = self.at;
        let length = plain_length(&self.bytes()[start..]);
        self.at += length;
        match self.peek() {
            Some(b'"') => {
                self.at += 1;
                Ok(Text::Borrowed(&self.text[start..start + length]))
            }
            Some(b'\\') => self.escaped(start),
            // The end of the document, or a control character.
            _ => Err(NotPlain),
        }
    }

    /// A text that has an escape at `self.at`.
    fn escaped(&mut self, start: usize) -> Result<Text<'a>, NotPlain> {
        let mut text = String::from(&self.text[start..self.at]);
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Text::Owned(text));
                }
                Some(b'\\') => {
                    self.at += 1;
                    text.push(self.escape()?);
                }
                _ => return Err(NotPlain),
            }
            let length = plain_length(&self.bytes()[self.at..]);
            text.push_str(&self.text[self.at..self.at + length]);
            self.at += length;
        }
    }

    fn escape(&mut self) -> Result<char, NotPlain> {
        let letter = self.peek().ok_or(NotPlain)?;
        self.at += 1;
        Ok(match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let unit = self.code_unit()?;
                if !(0xd800..0xe000).contains(&unit) {
                    return char::from_u32(u32::from(unit)).ok_or(NotPlain);
                }
                if !self.bytes()[self.at..].starts_with(b"\\u") {
                    return Err(NotPlain);
                }
                self.at += 2;
                let mut decoded = char::decode_utf16([unit, self.code_unit()?]);
                match (decoded.next(), decoded.next()) {
                    (Some(Ok(letter)), None) => letter,
                    _ => return Err(NotPlain),
                }
            }
            _ => return Err(NotPlain),
        })
    }

    /// Four hexadecimal digits.
    fn code_unit(&mut self) -> Result<u16, NotPlain> {
        let digits = self.bytes().get(self.at..self.at + 4).ok_or(NotPlain)?;
        self.at += 4;
        digits.iter().try_fold(0, |unit, digit| {
            let digit = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                b'A'..=b'F' => digit - b'A' + 10,
                _ => return Err(NotPlain),
            };
            Ok(unit << 4 | u16::from(digit))
        })
    }

    fn number(&mut self) -> Result<Bound<'py, PyAny>, NotPlain> {
        match self.any_number()? {
            Number::Int(number) => {
                let number = number.into_pyobject(self.py).map_err(|_| NotPlain)?;
                Ok(number.into_any())
            }
            Number::Float(number) => Ok(PyFloat::new(self.py, number).into_any()),
        }
    }

    pub(crate) fn any_number(&mut self) -> Result<Number, NotPlain> {
        let start = self.at;
        let is_negative = self.peek() == Some(b'-');
        if is_negative {
            self.at += 1;
        }
        let first = self.peek();
        let mut magnitude: i64 = 0;
        let num_digits = self.digits(|digit| {
            magnitude = magnitude.wrapping_mul(10).wrapping_add(i64::from(digit));
        })?;
        if first == Some(b'0') && num_digits > 1 {
            return Err(NotPlain);
        }
        if !matches!(self.peek(), Some(b'.' | b'e' | b'E')) {
            if num_digits > MAX_INT_DIGITS {
                return Err(NotPlain);
            }
            return Ok(Number::Int(if is_negative {
                -magnitude
            } else {
                magnitude
            }));
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits(drop)?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits(drop)?;
        }
        match self.text[start..self.at].parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Number::Float(number)),
            _ => Err(NotPlain),
        }
    }

    /// Gives `each` the digits that follow, and returns how many there are.
    fn digits(&mut self, mut each: impl FnMut(u8)) -> Result<usize, NotPlain> {
        let start = self.at;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            each(digit - b'0');
            self.at += 1;
        }
        match self.at - start {
            0 => Err(NotPlain),
            count => Ok(count),
        }
    }
}

/// A number as it is spelt.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Number {
    Int(i64),
    Float(f64),
}

/// A text of the document, its escapes undone.
pub(crate) enum Text<'a> {
    Borrowed(&'a str),
    Owned(String),
}

impl Text<'_> {
    pub(crate) fn as_str(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Owned(text) => text,
        }
    }
}

pub(crate) fn deeper(depth: usize) -> Result<usize, NotPlain> {
    if depth < MAX_DEPTH {
        Ok(depth + 1)
    } else {
        Err(NotPlain)
    }
}

/// Bytes before the first quotation mark, backslash or control character.
pub(crate) fn plain_length(bytes: &[u8]) -> usize {
    let is_special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    let mut length = 0;
    for chunk in bytes.chunks_exact(8) {
        let word = u64::from_le_bytes(chunk.try_into().expect("a chunk has eight bytes"));
        let found = special_bits(word);
        if found != 0 {
            return length + found.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    let rest = &bytes[length..];
    length + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// The high bit of each byte that is special, and maybe of bytes above it.
fn special_bits(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const SPACES: u64 = 0x2020_2020_2020_2020;
    const QUOTES: u64 = 0x2222_2222_2222_2222;
    const BACKSLASHES: u64 = 0x5c5c_5c5c_5c5c_5c5c;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let is_zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let is_control = word.wrapping_sub(SPACES) & !word;
    (is_control | is_zero(word ^ QUOTES) | is_zero(word ^ BACKSLASHES)) & HIGHS
}
