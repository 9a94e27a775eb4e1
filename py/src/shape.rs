//! What values of a type look like: `justapi._shapes.Shape`, read once.
//!
//! Guarantee: a shape is as deep as its type is written, never endless, so a
//! value is followed no deeper than its shape goes. A part that is used in
//! several places is read once, and shared.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PySet, PyString, PyTuple, PyType};

use crate::interpreter::ModelSlots;
use crate::json::write_string;
use crate::shape_decode::decode_shaped;
use crate::shape_encode::encode_shaped;

/// Decodes and encodes JSON of a shape.
#[pyclass(frozen, module = "justapi._core")]
pub(crate) struct Codec(Mutex<Option<Held>>);

/// What a codec holds until the garbage collector takes it apart.
struct Held {
    shape: Arc<Shape>,
    /// Every model of the shape, once.
    models: Vec<Arc<ModelShape>>,
}

#[pymethods]
impl Codec {
    #[new]
    fn new(shape: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut reader = ShapeReader::new(shape.py())?;
        let held = Held {
            shape: Arc::new(reader.shape(shape)?),
            models: reader.models,
        };
        Ok(Self(Mutex::new(Some(held))))
    }

    /// Decodes a document that is plainly of the shape.
    fn decode<'py>(&self, py: Python<'py>, document: &[u8]) -> PyResult<Bound<'py, PyAny>> {
        let decoded = match self.shape() {
            Some(shape) => decode_shaped(py, document, &shape).ok(),
            None => None,
        };
        decoded.ok_or_else(|| PyValueError::new_err("the document is not plainly of the shape"))
    }

    /// Encodes a value that is plainly of the shape; another gives None.
    fn encode<'py>(&self, value: &Bound<'py, PyAny>) -> Option<Bound<'py, PyBytes>> {
        let bytes = encode_shaped(value, &*self.shape()?)?;
        Some(PyBytes::new(value.py(), &bytes))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        let Ok(held) = self.0.try_lock() else {
            return Ok(());
        };
        let Some(held) = &*held else {
            return Ok(());
        };
        if Arc::strong_count(&held.shape) > 1 {
            // A route holds it, too, and the collector knows nothing of that.
            return Ok(());
        }
        for model in &held.models {
            visit.call(&model.class)?;
            for field in &model.fields {
                match &field.default {
                    FieldDefault::EmptyList(list) => visit.call(list)?,
                    FieldDefault::EmptyDict(dict) => visit.call(dict)?,
                    FieldDefault::Unknown | FieldDefault::Kept(_) => {}
                }
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        // Dropped when the lock is free: it may run Python.
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(held);
    }
}

impl Codec {
    /// None once the garbage collector has been here.
    fn shape(&self) -> Option<Arc<Shape>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(|held| Arc::clone(&held.shape))
    }

    /// The shape of a codec of the Python layer; None has none.
    pub(crate) fn shape_of(codec: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Shape>>> {
        if codec.is_none() {
            return Ok(None);
        }
        Ok(codec.cast::<Self>()?.get().shape())
    }
}

/// What a value is of; `justapi._shapes.Kind`.
#[derive(Debug, Clone)]
pub(crate) enum Shape {
    Any,
    /// A text of that many characters, if that matters.
    Text(Option<RangeInclusive<usize>>),
    Int(RangeInclusive<i64>),
    Float(RangeInclusive<f64>),
    Bool,
    List(Arc<Self>),
    Dict(Arc<Self>),
    Nullable(Arc<Self>),
    Model(Arc<ModelShape>),
}

/// A pydantic model.
#[derive(Debug)]
pub(crate) struct ModelShape {
    pub(crate) class: Py<PyType>,
    pub(crate) slots: ModelSlots,
    pub(crate) fields: Vec<FieldShape>,
    /// The names of all fields, as a set.
    pub(crate) names: Py<PySet>,
    pub(crate) forbids_extra: bool,
}

/// A field of a model.
#[derive(Debug)]
pub(crate) struct FieldShape {
    pub(crate) name: Py<PyString>,
    pub(crate) wire_name: Box<str>,
    /// The name in JSON and the quotation mark after it.
    pub(crate) quoted: Box<[u8]>,
    /// The name in JSON as a key: quoted, with its colon.
    pub(crate) key: Box<[u8]>,
    pub(crate) shape: Shape,
    pub(crate) default: FieldDefault,
}

/// What a field is when it is absent.
#[derive(Debug)]
pub(crate) enum FieldDefault {
    /// Only pydantic knows.
    Unknown,
    Kept(Py<PyAny>),
    /// A new list, as long as this one, which pydantic copies, is empty.
    EmptyList(Py<PyList>),
    /// A new dictionary, as long as this one is empty.
    EmptyDict(Py<PyDict>),
}

/// Reads the shapes of the Python layer.
struct ShapeReader<'py> {
    /// `justapi._shapes.ABSENT`.
    absent: Bound<'py, PyAny>,
    /// What was read, by the address of the object, which its owner keeps.
    known: HashMap<usize, Shape>,
    models: Vec<Arc<ModelShape>>,
}

impl<'py> ShapeReader<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        Ok(Self {
            absent: py.import("justapi._shapes")?.getattr("ABSENT")?,
            known: HashMap::new(),
            models: Vec::new(),
        })
    }

    fn shape(&mut self, shape: &Bound<'py, PyAny>) -> PyResult<Shape> {
        let address = shape.as_ptr() as usize;
        if let Some(known) = self.known.get(&address) {
            return Ok(known.clone());
        }
        let read = self.new_shape(shape)?;
        self.known.insert(address, read.clone());
        Ok(read)
    }

    fn new_shape(&mut self, shape: &Bound<'py, PyAny>) -> PyResult<Shape> {
        let bounds = (shape.getattr("low")?, shape.getattr("high")?);
        Ok(match shape.getattr("kind")?.extract::<u8>()? {
            0 => Shape::Any,
            1 => {
                let (low, high): (Option<usize>, Option<usize>) =
                    (bounds.0.extract()?, bounds.1.extract()?);
                let is_bounded = low.is_some() || high.is_some();
                let range = low.unwrap_or(0)..=high.unwrap_or(usize::MAX);
                Shape::Text(is_bounded.then_some(range))
            }
            2 => {
                let (low, high): (Option<i64>, Option<i64>) =
                    (bounds.0.extract()?, bounds.1.extract()?);
                Shape::Int(low.unwrap_or(i64::MIN)..=high.unwrap_or(i64::MAX))
            }
            3 => {
                let (low, high): (Option<f64>, Option<f64>) =
                    (bounds.0.extract()?, bounds.1.extract()?);
                Shape::Float(low.unwrap_or(f64::MIN)..=high.unwrap_or(f64::MAX))
            }
            4 => Shape::Bool,
            5 => Shape::List(self.item(shape)?),
            6 => Shape::Dict(self.item(shape)?),
            7 => Shape::Nullable(self.item(shape)?),
            8 => {
                let model = Arc::new(self.model(shape)?);
                self.models.push(Arc::clone(&model));
                Shape::Model(model)
            }
            kind => {
                return Err(PyValueError::new_err(format!("{kind} is no kind of shape")));
            }
        })
    }

    fn item(&mut self, shape: &Bound<'py, PyAny>) -> PyResult<Arc<Shape>> {
        Ok(Arc::new(self.shape(&shape.getattr("item")?)?))
    }

    fn model(&mut self, shape: &Bound<'py, PyAny>) -> PyResult<ModelShape> {
        let py = shape.py();
        let fields = shape.getattr("fields")?.cast_into::<PyTuple>()?;
        let fields = fields
            .iter()
            .map(|field| self.field(&field))
            .collect::<PyResult<Vec<_>>>()?;
        let names = PySet::new(py, fields.iter().map(|field| field.name.bind(py)))?;
        let class = shape.getattr("cls")?.cast_into::<PyType>()?;
        let slots = ModelSlots::of(&shape.getattr("slots")?)?;
        // The first instance decides on the table of names that all share;
        // from here on, they have the fields in order.
        let instance = ModelSlots::new_instance(&class)?;
        let attributes = ModelSlots::attributes(&instance)?;
        for field in &fields {
            attributes.set_item(&field.name, py.None())?;
        }
        Ok(ModelShape {
            class: class.unbind(),
            slots,
            fields,
            names: names.unbind(),
            forbids_extra: shape.getattr("forbids_extra")?.extract()?,
        })
    }

    fn field(&mut self, field: &Bound<'py, PyAny>) -> PyResult<FieldShape> {
        let wire_name: String = field.getattr("wire_name")?.extract()?;
        let mut key = Vec::new();
        write_string(&mut key, &wire_name);
        let quoted = key[1..].into();
        key.push(b':');
        let default = field.getattr("default")?;
        let default = if default.is(&self.absent) {
            FieldDefault::Unknown
        } else if let Ok(list) = default.cast_exact::<PyList>() {
            FieldDefault::EmptyList(list.clone().unbind())
        } else if let Ok(dict) = default.cast_exact::<PyDict>() {
            FieldDefault::EmptyDict(dict.clone().unbind())
        } else {
            FieldDefault::Kept(default.unbind())
        };
        Ok(FieldShape {
            name: field.getattr("name")?.cast_into::<PyString>()?.unbind(),
            wire_name: wire_name.into(),
            quoted,
            key: key.into(),
            shape: self.shape(&field.getattr("shape")?)?,
            default,
        })
    }
}
