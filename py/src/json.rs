//! Python values as JSON (RFC 8259), straight into a buffer.
//!
//! Guarantee: what is written is valid JSON, or an error says what was not
//! serialisable. Plain types are written here; for every other one the given
//! function is asked for a plain value.

use std::cell::Cell;

use bytes::Bytes;
use pyo3::exceptions::{PyRecursionError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::dict::BoundDictIterator;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyNone, PyString, PyTuple};

use crate::decode::plain_length;

/// Levels of a value: a cycle is found before the stack ends.
const MAX_DEPTH: usize = 256;
/// Documents up to this size are copied out of the thread's buffer.
const MAX_COPIED_BYTES: usize = 16 * 1024;

thread_local! {
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Encodes `value`; `default` turns what is not plain into something plainer.
pub(crate) fn encode(
    value: &Bound<'_, PyAny>,
    default: Option<&Bound<'_, PyAny>>,
) -> PyResult<Bytes> {
    in_buffer(|output| Encoder { output, default }.value(value, 0))
}

/// Has `write` fill the thread's buffer.
pub(crate) fn in_buffer<E>(write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<Bytes, E> {
    // Taken out, not borrowed: `write` may come back here.
    let mut buffer = BUFFER.take();
    buffer.clear();
    write(&mut buffer)?;
    if buffer.len() > MAX_COPIED_BYTES {
        return Ok(buffer.into());
    }
    let bytes = Bytes::copy_from_slice(&buffer);
    BUFFER.set(buffer);
    Ok(bytes)
}

struct Encoder<'a, 'py> {
    output: &'a mut Vec<u8>,
    default: Option<&'a Bound<'py, PyAny>>,
}

impl<'py> Encoder<'_, 'py> {
    fn value(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> PyResult<()> {
        if let Ok(text) = value.cast_exact::<PyString>() {
            self.string(text.to_str()?);
        } else if let Ok(dict) = value.cast_exact::<PyDict>() {
            self.dict(dict, deeper(depth)?)?;
        } else if let Ok(list) = value.cast_exact::<PyList>() {
            self.sequence(list.iter(), deeper(depth)?)?;
        } else if let Ok(number) = value.cast_exact::<PyInt>() {
            self.int(number)?;
        } else if let Ok(boolean) = value.cast_exact::<PyBool>() {
            self.literal(boolean.is_true());
        } else if value.is_none() {
            self.output.extend_from_slice(b"null");
        } else if let Ok(number) = value.cast_exact::<PyFloat>() {
            self.float(number.value())?;
        } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
            self.sequence(tuple.iter(), deeper(depth)?)?;
        } else {
            let plain = self.plainer(value)?;
            self.changed(&plain, deeper(depth)?)?;
        }
        Ok(())
    }

    /// What `default` made: subclasses of plain types count as these now.
    fn changed(&mut self, value: &Bound<'py, PyAny>, depth: usize) -> PyResult<()> {
        if let Ok(text) = value.cast::<PyString>() {
            self.string(text.to_str()?);
        } else if let Ok(dict) = value.cast::<PyDict>() {
            self.dict(dict, deeper(depth)?)?;
        } else if let Ok(list) = value.cast::<PyList>() {
            self.sequence(list.iter(), deeper(depth)?)?;
        } else if let Ok(tuple) = value.cast::<PyTuple>() {
            self.sequence(tuple.iter(), deeper(depth)?)?;
        } else if let Ok(boolean) = value.cast::<PyBool>() {
            self.literal(boolean.is_true());
        } else if let Ok(number) = value.cast::<PyInt>() {
            self.int(number)?;
        } else if let Ok(number) = value.cast::<PyFloat>() {
            self.float(number.value())?;
        } else {
            self.value(value, depth)?;
        }
        Ok(())
    }

    fn plainer(&self, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self.default {
            Some(default) => default.call1((value,)),
            None => Err(not_serialisable(value)),
        }
    }

    fn dict(&mut self, dict: &Bound<'py, PyDict>, depth: usize) -> PyResult<()> {
        // Without a global lock other threads may change it at any time.
        let copy = cfg!(Py_GIL_DISABLED).then(|| dict.copy()).transpose()?;
        let dict = copy.as_ref().unwrap_or(dict);
        self.output.push(b'{');
        for (index, item) in Items::of(dict).enumerate() {
            // `default`, or a thread that it let in, may do that.
            let (key, value) = item.map_err(|Changed| {
                PyRuntimeError::new_err("the dictionary has changed while it was encoded")
            })?;
            if index > 0 {
                self.output.push(b',');
            }
            self.key(&key)?;
            self.output.push(b':');
            self.value(&value, depth)?;
        }
        self.output.push(b'}');
        Ok(())
    }

    /// Keys as `json.dumps` has them: strings, and plain scalars as strings.
    fn key(&mut self, key: &Bound<'py, PyAny>) -> PyResult<()> {
        if let Ok(text) = key.cast_exact::<PyString>() {
            self.string(text.to_str()?);
            return Ok(());
        }
        if let Ok(text) = key.cast::<PyString>() {
            // An enumeration of strings, for one.
            let plain = self
                .plainer(key)
                .unwrap_or_else(|_| text.clone().into_any());
            let plain = plain.cast_into::<PyString>()?;
            self.string(plain.to_str()?);
            return Ok(());
        }
        let is_plain = key.is_exact_instance_of::<PyInt>()
            || key.is_exact_instance_of::<PyBool>()
            || key.is_exact_instance_of::<PyFloat>()
            || key.is_exact_instance_of::<PyNone>();
        if is_plain {
            self.output.push(b'"');
            self.value(key, 0)?;
            self.output.push(b'"');
            return Ok(());
        }
        let plain = self.plainer(key)?;
        match plain.cast_exact::<PyString>() {
            Ok(text) => self.string(text.to_str()?),
            Err(_) => {
                return Err(PyTypeError::new_err(format!(
                    "a key of type {} is not JSON serialisable",
                    key.get_type().name()?
                )));
            }
        }
        Ok(())
    }

    fn sequence(
        &mut self,
        items: impl Iterator<Item = Bound<'py, PyAny>>,
        depth: usize,
    ) -> PyResult<()> {
        self.output.push(b'[');
        for (index, item) in items.enumerate() {
            if index > 0 {
                self.output.push(b',');
            }
            self.value(&item, depth)?;
        }
        self.output.push(b']');
        Ok(())
    }

    fn literal(&mut self, value: bool) {
        self.output
            .extend_from_slice(if value { b"true" } else { b"false" });
    }

    fn int(&mut self, number: &Bound<'py, PyInt>) -> PyResult<()> {
        if let Ok(small) = number.extract::<i64>() {
            self.output
                .extend_from_slice(itoa::Buffer::new().format(small).as_bytes());
        } else {
            // Of a subclass, whose own text may be anything, the plain number.
            let plain = number.call_method0(intern!(number.py(), "__int__"))?;
            self.output
                .extend_from_slice(plain.str()?.to_str()?.as_bytes());
        }
        Ok(())
    }

    fn float(&mut self, number: f64) -> PyResult<()> {
        if !number.is_finite() {
            return Err(PyValueError::new_err(
                "NaN and infinity are not JSON serialisable",
            ));
        }
        let mut buffer = zmij::Buffer::new();
        let text = buffer.format_finite(number);
        let (sign, magnitude) = match text.strip_prefix('-') {
            Some(magnitude) => ("-", magnitude),
            None => ("", text),
        };
        if let Some((digits, exponent)) = text.split_once('e') {
            self.exponent(digits, exponent);
        } else if let Some(digits) = magnitude.strip_prefix("0.0000") {
            // Python has the exponent from four zeros on.
            let (first, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            self.output
                .extend_from_slice(format!("{sign}{first}{point}{rest}e-05").as_bytes());
        } else {
            self.output.extend_from_slice(text.as_bytes());
        }
        Ok(())
    }

    /// `1e-07` and `1e+16`, as Python spells them.
    fn exponent(&mut self, digits: &str, exponent: &str) {
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent.strip_prefix('+').unwrap_or(exponent)),
        };
        let digits = digits.strip_suffix(".0").unwrap_or(digits);
        let zero = if exponent.len() < 2 { "0" } else { "" };
        self.output
            .extend_from_slice(format!("{digits}e{sign}{zero}{exponent}").as_bytes());
    }

    fn string(&mut self, text: &str) {
        write_string(self.output, text);
    }
}

/// The items of a dictionary that code may change meanwhile.
///
/// The plain iterator panics then; this one ends with `Changed`.
pub(crate) struct Items<'py> {
    dict: Bound<'py, PyDict>,
    iterator: BoundDictIterator<'py>,
    length: usize,
    num_left: usize,
}

/// The dictionary is not what it was.
#[derive(Debug)]
pub(crate) struct Changed;

impl<'py> Items<'py> {
    pub(crate) fn of(dict: &Bound<'py, PyDict>) -> Self {
        let length = dict.len();
        Self {
            dict: dict.clone(),
            iterator: dict.iter(),
            length,
            num_left: length,
        }
    }
}

impl<'py> Iterator for Items<'py> {
    type Item = Result<(Bound<'py, PyAny>, Bound<'py, PyAny>), Changed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.num_left = self.num_left.checked_sub(1)?;
        let is_whole = self.dict.len() == self.length;
        let item = is_whole.then(|| self.iterator.next()).flatten();
        if item.is_none() {
            self.num_left = 0;
        }
        Some(item.ok_or(Changed))
    }
}

fn deeper(depth: usize) -> PyResult<usize> {
    if depth >= MAX_DEPTH {
        return Err(PyRecursionError::new_err(
            "the value is nested too deeply, or holds itself",
        ));
    }
    Ok(depth + 1)
}

fn not_serialisable(value: &Bound<'_, PyAny>) -> PyErr {
    let name = value.get_type().name();
    let name = name.as_ref().map_or("?".into(), ToString::to_string);
    PyTypeError::new_err(format!("a value of type {name} is not JSON serialisable"))
}

/// What a byte that is not plain is escaped by: `u` for a code, else that letter.
const ESCAPES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = b'u';
        byte += 1;
    }
    table[b'\n' as usize] = b'n';
    table[b'\r' as usize] = b'r';
    table[b'\t' as usize] = b't';
    table[0x08] = b'b';
    table[0x0C] = b'f';
    table[b'"' as usize] = b'"';
    table[b'\\' as usize] = b'\\';
    table
};

/// Writes `text` as a JSON string.
pub(crate) fn write_string(output: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    output.reserve(text.len() + 2);
    output.push(b'"');
    let mut bytes = text.as_bytes();
    loop {
        let length = plain_length(bytes);
        output.extend_from_slice(&bytes[..length]);
        let Some(byte) = bytes.get(length) else {
            break;
        };
        let escape = ESCAPES[usize::from(*byte)];
        output.extend_from_slice(&[b'\\', escape]);
        if escape == b'u' {
            let (high, low) = (byte >> 4, byte & 15);
            let digits = [HEX[usize::from(high)], HEX[usize::from(low)]];
            output.extend_from_slice(&[b'0', b'0', digits[0], digits[1]]);
        }
        bytes = &bytes[length + 1..];
    }
    output.push(b'"');
}
