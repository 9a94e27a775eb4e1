"""Which values `_core` makes of JSON, and writes as JSON, without asking pydantic.

A shape is read from pydantic's own core schema when a route is registered. Every key of the schema
has to be known here: what is not, a validator, a serialiser, a setting, leaves the whole type to
pydantic. So does any value that is not plainly of its shape: `_core` gives up, and pydantic
converts, refuses or warns as it always does.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from inspect import isabstract
from math import inf, isfinite, nextafter
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter
from pydantic_core import SchemaSerializer, SchemaValidator

from justapi import _core

__all__ = ["ABSENT", "FieldShape", "Kind", "Shape", "input_codec", "output_codec"]


class Kind(IntEnum):
    """What a shape is of."""

    ANY = 0
    STR = 1
    INT = 2
    FLOAT = 3
    BOOL = 4
    LIST = 5
    DICT = 6
    NULLABLE = 7
    MODEL = 8


_NESTING = frozenset({Kind.LIST, Kind.DICT, Kind.MODEL})


class _Absent:
    """Stands for a default that `_core` does not make."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<absent>"


ABSENT: Final = _Absent()


class FieldShape:
    """A field of a model.

    Attributes:
        name: Its name in Python.
        wire_name: Its name in JSON.
        shape: Its value's shape.
        default: What it is when it is absent: an immutable value, or a list or dict, which is made
            anew each time, as long as this one is empty; `ABSENT` if pydantic has to say.
    """

    __slots__ = ("default", "name", "shape", "wire_name")

    def __init__(self, name: str, wire_name: str, shape: Shape, default: Any) -> None:
        self.name: Final = name
        self.wire_name: Final = wire_name
        self.shape: Final = shape
        self.default: Final = default


class Shape:
    """What a value looks like in JSON and in Python.

    Attributes:
        kind: What it is of.
        item: Shape of the items of a list, the values of a dict, or what may be None.
        low: Least number, or least number of characters; None for no bound.
        high: Greatest number, or greatest number of characters; None for no bound.
        cls: Class of a model.
        fields: Fields of a model.
        forbids_extra: Whether a model refuses members that are no field of it.
        slots: Descriptors of a model's slots: fields set, extra members, private attributes.
        levels: How deeply lists, dicts and models are nested in it, itself included.
    """

    __slots__ = (
        "cls",
        "fields",
        "forbids_extra",
        "high",
        "item",
        "kind",
        "levels",
        "low",
        "slots",
    )

    def __init__(
        self,
        kind: Kind,
        *,
        item: Shape | None = None,
        low: int | float | None = None,
        high: int | float | None = None,
        cls: type[Any] | None = None,
        fields: tuple[FieldShape, ...] = (),
        forbids_extra: bool = False,
        slots: tuple[Any, ...] = (),
    ) -> None:
        self.kind: Final = kind
        self.item: Final = item
        self.low: Final = low
        self.high: Final = high
        self.cls: Final = cls
        self.fields: Final = fields
        self.forbids_extra: Final = forbids_extra
        self.slots: Final = slots
        within = (field.shape for field in fields) if item is None else (item,)
        below = max((shape.levels for shape in within), default=0)
        self.levels: Final[int] = below + (kind in _NESTING)


class _Unknown(Exception):
    """The schema has something that only pydantic knows."""


MAX_FIELDS = 30
"""Fields of a model whose instances share the table of their names; larger ones are pydantic's."""

MAX_LEVELS = 32
"""Levels of a shape: each is several calls here and in `_core`; deeper types are pydantic's."""
MAX_SCHEMAS = 5000
"""Schemas that are read for one shape; larger types are pydantic's."""

_SLOTS = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
_SCALARS = {
    "any": Kind.ANY,
    "str": Kind.STR,
    "int": Kind.INT,
    "float": Kind.FLOAT,
    "bool": Kind.BOOL,
}
# Keys that say nothing of a value, on any schema.
_SILENT = frozenset({"metadata", "ref", "type"})
# Settings of a model that make no difference for its own instances and for JSON.
_SILENT_CONFIG = frozenset({"from_attributes", "title"})
_IMMUTABLE = (type(None), bool, int, float, str)


class _Reader:
    """Reads one core schema.

    Args:
        is_output: Whether values are written, not read.
        by_alias: Whether fields are written by their aliases.
    """

    def __init__(self, *, is_output: bool, by_alias: bool = True) -> None:
        self._is_output = is_output
        self._by_alias = by_alias
        self._definitions: dict[str, Any] = {}
        self._open: list[str] = []
        # What was read, by the name of its definition and whether it was validated.
        self._read: dict[tuple[str, bool], Shape] = {}
        self._num_schemas = 0
        self._level = 0
        self._readers: dict[str, Callable[..., Shape]] = {
            "default": self._default,
            "definition-ref": self._definition_ref,
            "dict": self._dict,
            "list": self._list,
            "model": self._model,
            "nullable": self._nullable,
        }

    def read(self, schema: dict[str, Any], *, is_validated: bool) -> Shape:
        """Reads the shape of a schema.

        Args:
            schema: The schema.
            is_validated: Whether a value may break the schema's bounds: in a model's instance,
                which is not validated again before it is written, it may.

        Raises:
            _Unknown: Only pydantic knows.
        """
        self._num_schemas += 1
        if self._num_schemas > MAX_SCHEMAS:
            raise _Unknown("size")
        kind = schema["type"]
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            return self._scalar(scalar, schema, is_validated=is_validated)
        read = self._readers.get(kind)
        if read is None:
            raise _Unknown(kind)
        nests = kind in ("list", "dict", "model")
        self._level += nests
        if self._level > MAX_LEVELS:
            raise _Unknown("levels")
        shape = read(schema, is_validated=is_validated)
        self._level -= nests
        return shape

    def _scalar(self, kind: Kind, schema: dict[str, Any], *, is_validated: bool) -> Shape:
        low: int | float | None = None
        high: int | float | None = None
        if kind is Kind.STR:
            self._expect(schema, "min_length", "max_length")
            low, high = schema.get("min_length"), schema.get("max_length")
        elif kind is Kind.INT:
            self._expect(schema, "ge", "gt", "le", "lt")
            low, high = _integer_bounds(schema)
        elif kind is Kind.FLOAT:
            self._expect(schema, "ge", "gt", "le", "lt")
            low, high = _float_bounds(schema)
        else:
            self._expect(schema)
        if self._is_output:
            if is_validated and (low is not None or high is not None):
                raise _Unknown("bounds")
            low = high = None
        return Shape(kind, low=low, high=high)

    def _list(self, schema: dict[str, Any], *, is_validated: bool) -> Shape:
        self._expect(schema, "items_schema")
        items = schema.get("items_schema", {"type": "any"})
        return Shape(Kind.LIST, item=self.read(items, is_validated=is_validated))

    def _dict(self, schema: dict[str, Any], *, is_validated: bool) -> Shape:
        self._expect(schema, "keys_schema", "values_schema")
        keys = schema.get("keys_schema", {"type": "any"})
        if keys["type"] not in ("any", "str") or not keys.keys() <= _SILENT:
            raise _Unknown("keys_schema")
        values = schema.get("values_schema", {"type": "any"})
        return Shape(Kind.DICT, item=self.read(values, is_validated=is_validated))

    def _nullable(self, schema: dict[str, Any], *, is_validated: bool) -> Shape:
        self._expect(schema, "schema")
        inner = self.read(schema["schema"], is_validated=is_validated)
        return Shape(Kind.NULLABLE, item=inner)

    def _default(self, schema: dict[str, Any], *, is_validated: bool) -> Shape:
        # Of the value itself; a field looks at the default.
        self._expect(schema, "schema", "default", "default_factory", "default_factory_takes_data")
        return self.read(schema["schema"], is_validated=is_validated)

    def _definition_ref(self, schema: dict[str, Any], *, is_validated: bool) -> Shape:
        self._expect(schema, "schema_ref")
        name = schema["schema_ref"]
        if name in self._open or name not in self._definitions:
            raise _Unknown("definition-ref")
        shape = self._read.get((name, is_validated))
        if shape is None:
            self._open.append(name)
            shape = self.read(self._definitions[name], is_validated=is_validated)
            self._open.pop()
            self._read[name, is_validated] = shape
        elif self._level + shape.levels > MAX_LEVELS:
            raise _Unknown("levels")
        return shape

    def _model(self, schema: dict[str, Any], *, is_validated: bool) -> Shape:
        self._expect(
            schema,
            "cls",
            "config",
            "custom_init",
            "frozen",
            "generic_origin",
            "root_model",
            "schema",
        )
        if schema.get("custom_init") or schema.get("root_model"):
            raise _Unknown("model")
        config = schema.get("config") or {}
        extra = config.get("extra_fields_behavior", "ignore")
        if extra == "allow" or not config.keys() <= _SILENT_CONFIG | {"extra_fields_behavior"}:
            raise _Unknown("config")
        cls: type[Any] = schema["cls"]
        slots = _slots_of(cls)
        inner = schema["schema"]
        if inner["type"] != "model-fields" or not inner.keys() <= _SILENT | {
            "computed_fields",
            "fields",
            "model_name",
        }:
            raise _Unknown("model-fields")
        if (inner.get("computed_fields") and self._is_output) or len(inner["fields"]) > MAX_FIELDS:
            raise _Unknown("fields")
        ref = schema.get("ref")
        if ref is not None:
            self._open.append(ref)
        fields = tuple(self._field(name, field) for name, field in inner["fields"].items())
        if ref is not None:
            self._open.pop()
        names = [field.wire_name for field in fields]
        if len(set(names)) < len(names):
            raise _Unknown("names")
        return Shape(
            Kind.MODEL, cls=cls, fields=fields, forbids_extra=extra == "forbid", slots=slots
        )

    def _field(self, name: str, field: dict[str, Any]) -> FieldShape:
        self._expect(field, "frozen", "schema", "serialization_alias", "validation_alias")
        if field["type"] != "model-field" or type(name) is not str:
            raise _Unknown(field["type"])
        alias = field.get("serialization_alias" if self._is_output else "validation_alias", name)
        if not isinstance(alias, str) or (self._is_output and not self._by_alias):
            if not self._is_output:
                raise _Unknown("alias")
            alias = name
        schema = field["schema"]
        # An instance of a model is as it is, whatever its schema says of bounds.
        shape = self.read(schema, is_validated=not self._is_output)
        return FieldShape(name, alias, shape, _default_of(schema))

    @staticmethod
    def _expect(schema: dict[str, Any], *known: str) -> None:
        """Refuses a schema that says more than what is known here."""
        if not schema.keys() <= _SILENT.union(known):
            raise _Unknown(schema.keys() - _SILENT.union(known))

    def read_whole(self, schema: Any) -> Shape:
        """Reads the schema of a type adapter.

        Raises:
            _Unknown: Only pydantic knows.
        """
        if schema["type"] == "definitions":
            self._expect(schema, "schema", "definitions")
            self._definitions = {item["ref"]: item for item in schema["definitions"]}
            schema = schema["schema"]
        return self.read(schema, is_validated=True)


def _integer_bounds(schema: dict[str, Any]) -> tuple[int | None, int | None]:
    low = [schema["ge"]] if "ge" in schema else []
    high = [schema["le"]] if "le" in schema else []
    if "gt" in schema:
        low.append(schema["gt"] + 1)
    if "lt" in schema:
        high.append(schema["lt"] - 1)
    if any(type(bound) is not int or abs(bound) >= 2**63 for bound in (*low, *high)):
        raise _Unknown("bounds")
    return max(low, default=None), min(high, default=None)


def _float_bounds(schema: dict[str, Any]) -> tuple[float | None, float | None]:
    low = [float(schema["ge"])] if "ge" in schema else []
    high = [float(schema["le"])] if "le" in schema else []
    if "gt" in schema:
        low.append(nextafter(float(schema["gt"]), inf))
    if "lt" in schema:
        high.append(nextafter(float(schema["lt"]), -inf))
    if not all(map(isfinite, (*low, *high))):
        raise _Unknown("bounds")
    return max(low, default=None), min(high, default=None)


def _default_of(schema: dict[str, Any]) -> Any:
    """Returns what `_core` makes of an absent field."""
    if schema["type"] != "default":
        return ABSENT
    if "default_factory" in schema:
        factory = schema["default_factory"]
        if schema.get("default_factory_takes_data") or factory not in (list, dict):
            return ABSENT
        return factory()
    default = schema.get("default", ABSENT)
    if type(default) in _IMMUTABLE or (type(default) in (list, dict) and not default):
        return default
    return ABSENT


def _slots_of(cls: type[Any]) -> tuple[Any, ...]:
    """Returns the descriptors of what pydantic keeps beside the fields.

    Raises:
        _Unknown: Instances of the class are made or looked at in another way.
    """
    if not issubclass(cls, BaseModel):
        raise _Unknown("cls")
    own: Any = cls
    if own.__new__ is not object.__new__ or own.__getattribute__ is not object.__getattribute__:
        raise _Unknown("cls")
    if isabstract(cls) or hasattr(cls, "__del__"):
        raise _Unknown("cls")
    for name in ("__dict__", *_SLOTS):
        first = next((base for base in cls.__mro__ if name in vars(base)), None)
        if first is not BaseModel:
            raise _Unknown(name)
    return tuple(vars(BaseModel)[name] for name in _SLOTS)


def input_codec(adapter: TypeAdapter[Any]) -> _core.Codec | None:
    """Returns what decodes plain documents for `adapter`, or None if pydantic alone can."""
    if type(adapter.validator) is not SchemaValidator:
        # A plugin wants to hear of it.
        return None
    try:
        return _core.Codec(_Reader(is_output=False).read_whole(adapter.core_schema))
    except _Unknown:
        return None


def output_codec(adapter: TypeAdapter[Any], *, by_alias: bool) -> _core.Codec | None:
    """Returns what encodes plain values of `adapter`, or None if pydantic alone can.

    What it encodes is what validation would give back for the value, too.
    """
    if type(adapter.validator) is not SchemaValidator:
        return None
    serializer: Any = adapter.serializer
    if type(serializer) is not SchemaSerializer:
        return None
    try:
        shape = _Reader(is_output=True, by_alias=by_alias).read_whole(adapter.core_schema)
    except _Unknown:
        return None
    return _core.Codec(shape)
