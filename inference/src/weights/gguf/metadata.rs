//! Metadata of a GGUF: typed values by key. Strings and arrays stay where they
//! are in the file's beginning, which is kept, and are read out of it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{self, Display};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::header::HeaderReader;
use crate::error::Error;
use crate::weights::file::malformed;

/// Models have some dozens; more than this is an attack.
const MAX_KEYS: u64 = 16 * 1024;

/// The specification's limit.
const MAX_KEY_BYTES: usize = 65_535;

/// Arrays of arrays are legal and in no known key.
const MAX_ARRAY_DEPTH: usize = 4;

/// What a GGUF says about its model. An accessor gives `None` for a key that
/// is absent, and an error for one that holds something else.
pub struct Metadata {
    path: PathBuf,
    /// The file's beginning, which ranges of `entries` lie in.
    bytes: Vec<u8>,
    entries: BTreeMap<String, Value>,
}

/// Value of a key.
pub(super) enum Value {
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Boolean(bool),
    String(Range<usize>),
    Array {
        element: ValueType,
        len: usize,
        range: Range<usize>,
    },
}

/// Type of a value, by its number in the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub(super) enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Boolean = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl Metadata {
    pub(super) fn new(path: &Path, bytes: Vec<u8>, entries: BTreeMap<String, Value>) -> Self {
        Self {
            path: path.to_owned(),
            bytes,
            entries,
        }
    }

    /// Lists the keys, sorted.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Says whether a key is there.
    pub fn contains(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns a string.
    pub fn string(&self, key: &str) -> Result<Option<&str>, Error> {
        self.get(key, "a string", |value| match value {
            Value::String(range) => std::str::from_utf8(&self.bytes[range.clone()]).ok(),
            _ => None,
        })
    }

    /// Returns an integer of any width that is not negative.
    pub fn unsigned(&self, key: &str) -> Result<Option<u64>, Error> {
        self.get(key, "an integer, not negative", |value| match value {
            Value::Unsigned(number) => Some(*number),
            Value::Signed(number) => u64::try_from(*number).ok(),
            _ => None,
        })
    }

    /// Returns a floating-point number of any width.
    pub fn float(&self, key: &str) -> Result<Option<f32>, Error> {
        self.get(key, "a floating-point number", |value| match value {
            Value::Float(number) => Some(*number as f32),
            _ => None,
        })
    }

    /// Returns a truth value.
    pub fn boolean(&self, key: &str) -> Result<Option<bool>, Error> {
        self.get(key, "a truth value", |value| match value {
            Value::Boolean(flag) => Some(*flag),
            _ => None,
        })
    }

    /// Returns an array of strings, which are not copied.
    pub fn strings(&self, key: &str) -> Result<Option<Strings<'_>>, Error> {
        self.get(key, "an array of strings", |value| match value {
            Value::Array {
                element: ValueType::String,
                len,
                range,
            } => Some(Strings {
                bytes: &self.bytes[range.clone()],
                num_left: *len,
            }),
            _ => None,
        })
    }

    /// Returns an array of floating-point numbers of any width.
    pub fn floats(&self, key: &str) -> Result<Option<Vec<f32>>, Error> {
        self.numbers(
            key,
            "an array of floating-point numbers",
            |value| match value {
                Value::Float(number) => Some(number as f32),
                _ => None,
            },
        )
    }

    /// Returns an array of integers of any width.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, Error> {
        self.numbers(key, "an array of integers", |value| match value {
            Value::Unsigned(number) => i64::try_from(number).ok(),
            Value::Signed(number) => Some(number),
            _ => None,
        })
    }

    /// Returns an array of truth values.
    pub fn booleans(&self, key: &str) -> Result<Option<Vec<bool>>, Error> {
        self.numbers(key, "an array of truth values", |value| match value {
            Value::Boolean(flag) => Some(flag),
            _ => None,
        })
    }

    /// Says whether a key holds an array.
    pub fn is_array(&self, key: &str) -> bool {
        matches!(self.entries.get(key), Some(Value::Array { .. }))
    }

    /// Insists on a value that an accessor gave for `key`.
    ///
    /// # Errors
    /// [`Error::Malformed`] that names the key.
    pub fn require<T>(&self, key: &str, value: Option<T>) -> Result<T, Error> {
        value.ok_or_else(|| self.malformed(key, "is missing"))
    }

    /// An error that names the file and the key.
    pub(crate) fn malformed(&self, key: &str, what: impl Display) -> Error {
        malformed(&self.path, format!("{key}: {what}"))
    }

    fn get<'metadata, T>(
        &'metadata self,
        key: &str,
        expected: &str,
        read: impl FnOnce(&'metadata Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.entries.get(key) else {
            return Ok(None);
        };
        let wrong = || self.malformed(key, format_args!("expected {expected}, found {value}"));
        read(value).ok_or_else(wrong).map(Some)
    }

    fn numbers<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, Error> {
        self.get(key, expected, |value| {
            let Value::Array { element, range, .. } = value else {
                return None;
            };
            let size = element.size()?;
            let elements = self.bytes[range.clone()].chunks_exact(size);
            elements
                .map(|bytes| read(scalar(*element, bytes)?))
                .collect()
        })
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = formatter.debug_map();
        for (key, value) in &self.entries {
            map.entry(key, &format_args!("{value}"));
        }
        map.finish()
    }
}

impl Display for Value {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(number) => write!(formatter, "{number}"),
            Self::Signed(number) => write!(formatter, "{number}"),
            Self::Float(number) => write!(formatter, "{number:?}"),
            Self::Boolean(flag) => write!(formatter, "{flag}"),
            Self::String(range) => write!(formatter, "a string of {} bytes", range.len()),
            Self::Array { element, len, .. } => {
                write!(formatter, "an array of {len} {element:?}")
            }
        }
    }
}

/// Strings of an array, in order.
#[derive(Clone, Debug)]
pub struct Strings<'metadata> {
    bytes: &'metadata [u8],
    num_left: usize,
}

impl<'metadata> Iterator for Strings<'metadata> {
    type Item = &'metadata str;

    fn next(&mut self) -> Option<&'metadata str> {
        self.num_left = self.num_left.checked_sub(1)?;
        let (len, rest) = self.bytes.split_first_chunk::<8>()?;
        let (text, rest) = rest.split_at_checked(u64::from_le_bytes(*len) as usize)?;
        self.bytes = rest;
        std::str::from_utf8(text).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.num_left, Some(self.num_left))
    }
}

impl ExactSizeIterator for Strings<'_> {}

impl ValueType {
    fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Boolean,
            8 => Self::String,
            9 => Self::Array,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// Bytes of a value, where all have the same.
    const fn size(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Boolean => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }
}

/// Reads the keys and their values.
pub(super) fn read_entries(
    reader: &mut HeaderReader<'_>,
    num_keys: u64,
) -> Result<BTreeMap<String, Value>, Error> {
    if num_keys > MAX_KEYS {
        let what = format!("header: {num_keys} metadata keys, most {MAX_KEYS}");
        return Err(reader.malformed(what));
    }
    let mut entries = BTreeMap::new();
    for index in 0..num_keys {
        let place = format_args!("metadata key {index} of {num_keys}");
        let range = reader.string(&place, "its name")?;
        if range.len() > MAX_KEY_BYTES {
            let what = format!("{place}: {} bytes, most {MAX_KEY_BYTES}", range.len());
            return Err(reader.malformed(what));
        }
        let key = reader.text(range).to_owned();
        let kind = read_type(reader, &key)?;
        let value = read_value(reader, &key, kind)?;
        match entries.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(value);
            }
            Entry::Occupied(entry) => {
                return Err(reader.malformed(format!("{}: is there twice", entry.key())));
            }
        }
    }
    Ok(entries)
}

fn read_type(reader: &mut HeaderReader<'_>, key: &str) -> Result<ValueType, Error> {
    let number = reader.u32(&key, "type of its value")?;
    let wrong = || reader.malformed(format!("{key}: {number} is no type of value"));
    ValueType::from_number(number).ok_or_else(wrong)
}

fn read_value(reader: &mut HeaderReader<'_>, key: &str, kind: ValueType) -> Result<Value, Error> {
    match kind {
        ValueType::String => Ok(Value::String(reader.string(&key, "string")?)),
        ValueType::Array => read_array(reader, key, 1),
        _ => {
            let size = kind.size().expect("neither a string nor an array");
            let range = reader.skip(size as u64, &key, "value")?;
            let bytes = reader.bytes(range);
            let wrong = || reader.malformed(format!("{key}: {} is no truth value", bytes[0]));
            scalar(kind, bytes).ok_or_else(wrong)
        }
    }
}

/// Passes over an array, and over those in it.
fn read_array(reader: &mut HeaderReader<'_>, key: &str, depth: usize) -> Result<Value, Error> {
    if depth > MAX_ARRAY_DEPTH {
        let what = format!("{key}: arrays in arrays, {depth} deep, most {MAX_ARRAY_DEPTH}");
        return Err(reader.malformed(what));
    }
    let element = read_type(reader, key)?;
    let len = reader.u64(&key, "length of an array")?;
    // The least that an element takes: its own length, or type and length.
    let min_size = match element {
        ValueType::String => 8,
        ValueType::Array => 12,
        _ => element.size().expect("neither a string nor an array"),
    };
    if len > reader.num_bytes_left() / min_size as u64 {
        let left = reader.num_bytes_left();
        let what = format!("{key}: array of {len} {element:?}, where {left} bytes are left");
        return Err(reader.malformed(what));
    }
    let start = reader.position();
    match element {
        ValueType::String => {
            for index in 0..len {
                reader.string(&format_args!("{key}[{index}]"), "string")?;
            }
        }
        ValueType::Array => {
            for _ in 0..len {
                read_array(reader, key, depth + 1)?;
            }
        }
        _ => {
            let range = reader.skip(len * min_size as u64, &key, "array")?;
            let flags = reader.bytes(range);
            if element == ValueType::Boolean
                && let Some(index) = flags.iter().position(|flag| *flag > 1)
            {
                let what = format!("{key}[{index}]: {} is no truth value", flags[index]);
                return Err(reader.malformed(what));
            }
        }
    }
    Ok(Value::Array {
        element,
        len: len as usize,
        range: start..reader.position(),
    })
}

/// Decodes a value of fixed size; `None` for a truth value that is neither 0 nor 1.
fn scalar(kind: ValueType, bytes: &[u8]) -> Option<Value> {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let unsigned = u64::from_le_bytes(wide);
    // The sign bit of the narrow number is moved to the top, and shifted back with its copies.
    let shift = 64 - 8 * bytes.len() as u32;
    let signed = (unsigned << shift).cast_signed() >> shift;
    Some(match kind {
        ValueType::U8 | ValueType::U16 | ValueType::U32 | ValueType::U64 => {
            Value::Unsigned(unsigned)
        }
        ValueType::I8 | ValueType::I16 | ValueType::I32 | ValueType::I64 => Value::Signed(signed),
        ValueType::F32 => Value::Float(f64::from(f32::from_bits(unsigned as u32))),
        ValueType::F64 => Value::Float(f64::from_bits(unsigned)),
        ValueType::Boolean => match unsigned {
            0 => Value::Boolean(false),
            1 => Value::Boolean(true),
            _ => return None,
        },
        ValueType::String | ValueType::Array => return None,
    })
}
