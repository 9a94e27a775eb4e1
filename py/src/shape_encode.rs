//! Values of a known shape as JSON, models among them.
//!
//! Guarantee: what is written here is what pydantic writes of the value; one
//! that is not plainly of the shape is left to pydantic.

use bytes::Bytes;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};

use crate::interpreter::ModelSlots;
use crate::json::{Changed, Items, in_buffer, write_string};
use crate::shape::{ModelShape, Shape};

/// Levels of a value whose shape is not known.
const MAX_DEPTH: usize = 64;
/// From here on other libraries spell floats with exponents, or may.
const MAX_PLAIN_FLOAT: f64 = 1e15;
/// Smaller ones, zero apart, may be spelt with exponents.
const MIN_PLAIN_FLOAT: f64 = 1e-4;

/// The value is not of the shape, or spelt differently by others.
#[derive(Debug)]
struct NotPlain;

impl From<PyErr> for NotPlain {
    fn from(_: PyErr) -> Self {
        Self
    }
}

impl From<Changed> for NotPlain {
    fn from(_: Changed) -> Self {
        Self
    }
}

/// Encodes `value`, if it is plainly of `shape`.
pub(crate) fn encode_shaped(value: &Bound<'_, PyAny>, shape: &Shape) -> Option<Bytes> {
    in_buffer(|output| write(output, value, shape)).ok()
}

fn write(output: &mut Vec<u8>, value: &Bound<'_, PyAny>, shape: &Shape) -> Result<(), NotPlain> {
    match shape {
        Shape::Any => write_any(output, value, 0),
        Shape::Text(_) => write_text(output, value.cast_exact().map_err(|_| NotPlain)?),
        Shape::Int(_) => write_int(output, value.cast_exact().map_err(|_| NotPlain)?),
        Shape::Float(_) => write_float(output, value.cast_exact().map_err(|_| NotPlain)?),
        Shape::Bool => {
            write_bool(output, value.cast_exact().map_err(|_| NotPlain)?);
            Ok(())
        }
        Shape::List(item) => {
            let list = value.cast_exact::<PyList>().map_err(|_| NotPlain)?;
            write_list(output, list, |output, value| write(output, value, item))
        }
        Shape::Dict(item) => {
            let dict = value.cast_exact::<PyDict>().map_err(|_| NotPlain)?;
            write_dict(output, dict, |output, value| write(output, value, item))
        }
        Shape::Nullable(inner) => {
            if value.is_none() {
                output.extend_from_slice(b"null");
                return Ok(());
            }
            write(output, value, inner)
        }
        Shape::Model(model) => write_model(output, value, model),
    }
}

fn write_model(
    output: &mut Vec<u8>,
    value: &Bound<'_, PyAny>,
    model: &ModelShape,
) -> Result<(), NotPlain> {
    if !value.is_exact_instance(model.class.bind(value.py())) {
        return Err(NotPlain);
    }
    let attributes = stable(ModelSlots::attributes(value)?)?;
    if attributes.len() != model.fields.len() {
        return Err(NotPlain);
    }
    let mut before = b'{';
    for (field, item) in model.fields.iter().zip(Items::of(&attributes)) {
        let (name, value) = item?;
        // Of nothing but exact texts, so that comparing them runs no Python.
        let name = name.cast_exact::<PyString>().map_err(|_| NotPlain)?;
        if !name.is(&field.name) && !name.as_any().eq(&field.name)? {
            return Err(NotPlain);
        }
        output.push(before);
        before = b',';
        output.extend_from_slice(&field.key);
        write(output, &value, &field.shape)?;
    }
    if model.fields.is_empty() {
        output.push(b'{');
    }
    output.push(b'}');
    Ok(())
}

/// What a value of any type is, if it is plain all through.
fn write_any(output: &mut Vec<u8>, value: &Bound<'_, PyAny>, depth: usize) -> Result<(), NotPlain> {
    if depth > MAX_DEPTH {
        return Err(NotPlain);
    }
    if let Ok(text) = value.cast_exact::<PyString>() {
        write_text(output, text)
    } else if let Ok(dict) = value.cast_exact::<PyDict>() {
        write_dict(output, dict, |output, value| {
            write_any(output, value, depth + 1)
        })
    } else if let Ok(list) = value.cast_exact::<PyList>() {
        write_list(output, list, |output, value| {
            write_any(output, value, depth + 1)
        })
    } else if let Ok(number) = value.cast_exact::<PyInt>() {
        write_int(output, number)
    } else if let Ok(boolean) = value.cast_exact::<PyBool>() {
        write_bool(output, boolean);
        Ok(())
    } else if value.is_none() {
        output.extend_from_slice(b"null");
        Ok(())
    } else if let Ok(number) = value.cast_exact::<PyFloat>() {
        write_float(output, number)
    } else {
        Err(NotPlain)
    }
}

fn write_list<'py>(
    output: &mut Vec<u8>,
    list: &Bound<'py, PyList>,
    mut write: impl FnMut(&mut Vec<u8>, &Bound<'py, PyAny>) -> Result<(), NotPlain>,
) -> Result<(), NotPlain> {
    output.push(b'[');
    for (index, item) in list.iter().enumerate() {
        if index > 0 {
            output.push(b',');
        }
        write(output, &item)?;
    }
    output.push(b']');
    Ok(())
}

fn write_dict<'py>(
    output: &mut Vec<u8>,
    dict: &Bound<'py, PyDict>,
    mut write: impl FnMut(&mut Vec<u8>, &Bound<'py, PyAny>) -> Result<(), NotPlain>,
) -> Result<(), NotPlain> {
    output.push(b'{');
    for (index, item) in Items::of(&stable(dict.clone())?).enumerate() {
        let (key, value) = item?;
        if index > 0 {
            output.push(b',');
        }
        write_text(output, key.cast_exact().map_err(|_| NotPlain)?)?;
        output.push(b':');
        write(output, &value)?;
    }
    output.push(b'}');
    Ok(())
}

/// A dictionary that no other thread changes.
///
/// What is written here runs no Python, but making the dictionary of an
/// instance may have the collector run, and that runs finalisers.
fn stable(dict: Bound<'_, PyDict>) -> PyResult<Bound<'_, PyDict>> {
    if cfg!(Py_GIL_DISABLED) {
        dict.copy()
    } else {
        Ok(dict)
    }
}

fn write_text(output: &mut Vec<u8>, text: &Bound<'_, PyString>) -> Result<(), NotPlain> {
    write_string(output, text.to_str()?);
    Ok(())
}

fn write_int(output: &mut Vec<u8>, number: &Bound<'_, PyInt>) -> Result<(), NotPlain> {
    let number: i64 = number.extract()?;
    output.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    Ok(())
}

fn write_bool(output: &mut Vec<u8>, boolean: &Bound<'_, PyBool>) {
    output.extend_from_slice(if boolean.is_true() { b"true" } else { b"false" });
}

fn write_float(output: &mut Vec<u8>, number: &Bound<'_, PyFloat>) -> Result<(), NotPlain> {
    let number = number.value();
    let magnitude = number.abs();
    if magnitude != 0.0 && !(MIN_PLAIN_FLOAT..MAX_PLAIN_FLOAT).contains(&magnitude) {
        return Err(NotPlain);
    }
    output.extend_from_slice(zmij::Buffer::new().format_finite(number).as_bytes());
    Ok(())
}
