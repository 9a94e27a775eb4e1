//! JSON documents as values of a known shape, models among them.
//!
//! Guarantee: what is decoded here is what pydantic makes of the document; a
//! member that is missing, repeated in another type or not plainly of its
//! shape leaves the whole document to pydantic.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyList, PySet, PyString};
use smallvec::SmallVec;

use crate::decode::{Decoder, NotPlain, Number, deeper, whole};
use crate::interpreter::ModelSlots;
use crate::shape::{FieldDefault, FieldShape, ModelShape, Shape};

/// Decodes a whole document.
pub(crate) fn decode_shaped<'py>(
    py: Python<'py>,
    document: &[u8],
    shape: &Shape,
) -> Result<Bound<'py, PyAny>, NotPlain> {
    whole(py, document, |decoder| decoder.shaped(shape, 0))
}

impl<'py> Decoder<'_, 'py> {
    fn shaped(&mut self, shape: &Shape, depth: usize) -> Result<Bound<'py, PyAny>, NotPlain> {
        let first = self.next_token()?;
        match (shape, first) {
            (Shape::Any, _) => self.value(depth),
            (Shape::Nullable(_), b'n') => self.literal("null", self.py.None().into_bound(self.py)),
            (Shape::Nullable(inner), _) => self.shaped(inner, depth),
            (Shape::Text(length), b'"') => {
                let text = self.string()?;
                let text = text.as_str();
                if let Some(length) = length
                    && !length.contains(&text.chars().count())
                {
                    return Err(NotPlain);
                }
                Ok(PyString::new(self.py, text).into_any())
            }
            (Shape::Int(bounds), b'-' | b'0'..=b'9') => match self.any_number()? {
                Number::Int(number) if bounds.contains(&number) => {
                    let number = number.into_pyobject(self.py).map_err(|_| NotPlain)?;
                    Ok(number.into_any())
                }
                _ => Err(NotPlain),
            },
            (Shape::Float(bounds), b'-' | b'0'..=b'9') => {
                let number = match self.any_number()? {
                    Number::Int(number) => number as f64,
                    Number::Float(number) => number,
                };
                if !bounds.contains(&number) {
                    return Err(NotPlain);
                }
                Ok(PyFloat::new(self.py, number).into_any())
            }
            (Shape::Bool, b't') => {
                self.literal("true", PyBool::new(self.py, true).to_owned().into_any())
            }
            (Shape::Bool, b'f') => {
                self.literal("false", PyBool::new(self.py, false).to_owned().into_any())
            }
            (Shape::List(item), b'[') => self.list(item, deeper(depth)?),
            (Shape::Dict(item), b'{') => self.dict(item, deeper(depth)?),
            (Shape::Model(model), b'{') => self.model(model, deeper(depth)?),
            _ => Err(NotPlain),
        }
    }

    fn list(&mut self, item: &Shape, depth: usize) -> Result<Bound<'py, PyAny>, NotPlain> {
        let mut items: SmallVec<[Bound<'py, PyAny>; 8]> = SmallVec::new();
        self.at += 1;
        if self.next_token()? == b']' {
            self.at += 1;
        } else {
            loop {
                items.push(self.shaped(item, depth)?);
                if self.is_last(b']')? {
                    break;
                }
            }
        }
        let list = PyList::new(self.py, items).map_err(|_| NotPlain)?;
        Ok(list.into_any())
    }

    /// Of a key that is repeated, the last value counts.
    fn dict(&mut self, item: &Shape, depth: usize) -> Result<Bound<'py, PyAny>, NotPlain> {
        let dict = PyDict::new(self.py);
        self.at += 1;
        if self.next_token()? == b'}' {
            self.at += 1;
            return Ok(dict.into_any());
        }
        loop {
            self.quotation_mark()?;
            let key = self.string()?;
            self.colon()?;
            let value = self.shaped(item, depth)?;
            dict.set_item(key.as_str(), value).map_err(|_| NotPlain)?;
            if self.is_last(b'}')? {
                return Ok(dict.into_any());
            }
        }
    }

    fn model(&mut self, model: &ModelShape, depth: usize) -> Result<Bound<'py, PyAny>, NotPlain> {
        let mut values: SmallVec<[Option<Bound<'py, PyAny>>; 16]> = SmallVec::new();
        values.resize_with(model.fields.len(), || None);
        self.at += 1;
        if self.next_token()? == b'}' {
            self.at += 1;
        } else {
            let mut expected = 0;
            loop {
                self.quotation_mark()?;
                let field = self.field(&model.fields, expected)?;
                self.colon()?;
                if let Some(index) = field {
                    values[index] = Some(self.shaped(&model.fields[index].shape, depth)?);
                    expected = index + 1;
                } else if model.forbids_extra {
                    return Err(NotPlain);
                } else {
                    self.value(depth)?;
                }
                if self.is_last(b'}')? {
                    break;
                }
            }
        }
        self.instance(model, values).map_err(|_| NotPlain)
    }

    /// The field whose name begins at the quotation mark, and skips the name.
    ///
    /// Documents mostly have the members of an object in the fields' order.
    fn field(&mut self, fields: &[FieldShape], expected: usize) -> Result<Option<usize>, NotPlain> {
        let rest = &self.bytes()[self.at + 1..];
        let is_named = |field: &FieldShape| rest.starts_with(&field.quoted);
        let found = match fields.get(expected) {
            Some(field) if is_named(field) => Some(expected),
            _ => fields.iter().position(is_named),
        };
        if let Some(index) = found {
            self.at += 1 + fields[index].quoted.len();
            return Ok(Some(index));
        }
        // It may be spelt with other escapes.
        let name = self.string()?;
        let name = name.as_str();
        Ok(fields.iter().position(|field| *field.wire_name == *name))
    }

    /// Makes an instance as pydantic does.
    fn instance(
        &self,
        model: &ModelShape,
        values: SmallVec<[Option<Bound<'py, PyAny>>; 16]>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py;
        let instance = ModelSlots::new_instance(model.class.bind(py))?;
        let attributes = ModelSlots::attributes(&instance)?;
        let is_whole = values.iter().all(Option::is_some);
        let fields_set = if is_whole {
            ModelSlots::copy_of(model.names.bind(py))?
        } else {
            PySet::empty(py)?.into_any()
        };
        for (field, value) in model.fields.iter().zip(values) {
            let name = field.name.bind(py);
            let value = match value {
                Some(value) => {
                    if !is_whole {
                        fields_set.cast::<PySet>()?.add(name)?;
                    }
                    value
                }
                None => default_of(py, field)?,
            };
            attributes.set_item(name, value)?;
        }
        model.slots.fill(&instance, &fields_set)?;
        Ok(instance)
    }

    fn quotation_mark(&mut self) -> Result<(), NotPlain> {
        if self.next_token()? == b'"' {
            Ok(())
        } else {
            Err(NotPlain)
        }
    }

    fn colon(&mut self) -> Result<(), NotPlain> {
        if self.next_token()? != b':' {
            return Err(NotPlain);
        }
        self.at += 1;
        Ok(())
    }

    /// Whether `end` comes next; else a comma must.
    fn is_last(&mut self, end: u8) -> Result<bool, NotPlain> {
        let found = self.next_token()?;
        self.at += 1;
        match found {
            b',' => Ok(false),
            found if found == end => Ok(true),
            _ => Err(NotPlain),
        }
    }
}

fn default_of<'py>(py: Python<'py>, field: &FieldShape) -> PyResult<Bound<'py, PyAny>> {
    match &field.default {
        FieldDefault::Kept(value) => Ok(value.bind(py).clone()),
        FieldDefault::EmptyList(list) if list.bind(py).is_empty() => {
            Ok(PyList::empty(py).into_any())
        }
        FieldDefault::EmptyDict(dict) if dict.bind(py).is_empty() => Ok(PyDict::new(py).into_any()),
        _ => Err(PyValueError::new_err("only pydantic knows the default")),
    }
}
