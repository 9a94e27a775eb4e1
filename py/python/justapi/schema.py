"""Models that are JSON Schemas: plain classes whose annotations say what a document may be.

A `Schema` costs nothing but a dataclass. Its JSON Schema (draft 2020-12) is made once and stands
alone, so that it can be checked in Rust: `native=True, schema=Item` never runs Python. As a
parameter or a result of an ordinary handler it is validated and documented like any other model.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from collections.abc import Mapping
from copy import copy
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self, cast, get_origin

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticUndefined
from typing_extensions import dataclass_transform

__all__ = ["Field", "Schema"]

DIALECT = GenerateJsonSchema.schema_dialect
"""The dialect of the schemas: JSON Schema, draft 2020-12."""

# What a `Field` may say that a dataclass keeps by itself.
_DEFAULTS = ("default", "default_factory")


@dataclass_transform(kw_only_default=True, field_specifiers=(Field,))
class Schema:
    """Base of models that are JSON Schemas.

    Subclasses are dataclasses with keyword arguments. Bounds are said with `Field`, with
    `annotated_types` or with `Literal` and the like. Making an object checks nothing;
    `from_json` and `from_value` do.

    Class arguments:
        extra: What happens to members that are not declared: `ignore` (the default) drops them,
            `forbid` makes them an error.
        frozen: Whether objects are immutable and can be hashed.

    Raises:
        TypeError: When a class is made: an annotation or class argument cannot work.

    Example:
        >>> class Item(Schema, extra="forbid"):
        ...     name: str = Field(min_length=1)
        ...     price: float = Field(gt=0)
        ...     tags: list[str] = []
        >>> Item.json_schema()["required"]
        ['name', 'price']
        >>> Item.from_json(b'{"name": "pen", "price": 2}')
        Item(name='pen', price=2.0, tags=[])
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    def __init_subclass__(
        cls,
        *,
        extra: Literal["ignore", "forbid"] | None = None,
        frozen: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init_subclass__(**kwargs)
        if extra not in (None, "ignore", "forbid"):
            raise TypeError(f"extra is 'ignore' or 'forbid', not {extra!r}")
        if extra is not None:
            cls.__pydantic_config__ = ConfigDict(**{**cls.__pydantic_config__, "extra": extra})
        annotations = _own_annotations(cls)
        for name, annotation in annotations.items():
            if _is_class_variable(annotation):
                continue
            if name in cls.__dict__:
                annotations[name] = _declare(cls, name, annotation, cls.__dict__[name])
        cls.__annotations__ = annotations
        dataclasses.dataclass(kw_only=True, frozen=frozen)(cls)

    @classmethod
    def json_schema(cls) -> dict[str, Any]:
        """Returns the JSON Schema of documents that can become an object of this class.

        It refers to nothing outside of itself.

        Raises:
            pydantic.errors.PydanticUserError: A type has no JSON Schema.
        """
        cached: tuple[type[Schema], dict[str, Any]] | None = cls.__dict__.get("_json_schema")
        if cached is None:
            made = _adapter(cls).json_schema(mode="validation")
            cached = (cls, {"$schema": DIALECT, **made})
            cls._json_schema = cached  # type: ignore[attr-defined]
        return json.loads(json.dumps(cached[1]))  # type: ignore[no-any-return]

    @classmethod
    def from_json(cls, document: bytes | str) -> Self:
        """Makes an object of a JSON document.

        Args:
            document: The document.

        Raises:
            pydantic.ValidationError: It is not JSON, or does not match; a `ValueError`.
        """
        return cast("Self", _adapter(cls).validate_json(document))

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Self:
        """Makes an object of plain values.

        Args:
            value: The members by name.

        Raises:
            pydantic.ValidationError: They do not match; a `ValueError`.
        """
        return cast("Self", _adapter(cls).validate_python(value))

    def to_json(self) -> bytes:
        """Returns the object as a JSON document."""
        return _adapter(type(self)).dump_json(self, by_alias=True)

    def to_value(self) -> dict[str, Any]:
        """Returns the object as plain values of JSON."""
        value: dict[str, Any] = _adapter(type(self)).dump_python(self, mode="json", by_alias=True)
        return value


def _adapter(cls: type[Schema]) -> TypeAdapter[Any]:
    adapter: TypeAdapter[Any] | None = cls.__dict__.get("_type_adapter")
    if adapter is None:
        # Names in annotations are those of the class's module.
        adapter = TypeAdapter(cls)
        cls._type_adapter = adapter  # type: ignore[attr-defined]
    return adapter


def _own_annotations(cls: type[Schema]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        # What is not defined yet stays a reference that pydantic resolves later.
        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(cls)


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.partition("[")[0].rpartition(".")[2] == "ClassVar"
    return get_origin(annotation) is ClassVar or annotation is ClassVar


def _declare(cls: type[Schema], name: str, annotation: Any, default: Any) -> Any:
    """Gives a dataclass what it understands of a default; returns the annotation with the rest."""
    if not isinstance(default, FieldInfo):
        if isinstance(default, list | dict | set):
            # One for each object, as for a model.
            setattr(cls, name, dataclasses.field(default_factory=partial(copy, default)))
        return annotation
    if default.default_factory is not None:
        setattr(cls, name, dataclasses.field(default_factory=cast("Any", default.default_factory)))
    elif default.default is PydanticUndefined or default.default is ...:
        delattr(cls, name)
    elif isinstance(default.default, list | dict | set):
        setattr(cls, name, dataclasses.field(default_factory=partial(copy, default.default)))
    else:
        setattr(cls, name, default.default)
    bounds = copy(default)
    bounds.default = PydanticUndefined
    bounds.default_factory = None
    bounds._attributes_set = {
        key: value for key, value in default._attributes_set.items() if key not in _DEFAULTS
    }
    if isinstance(annotation, str):
        module = sys.modules.get(cls.__module__)
        annotation = _evaluate(annotation, {} if module is None else vars(module), cls)
    return Annotated[annotation, bounds]


def _evaluate(annotation: str, namespace: dict[str, Any], cls: type[Schema]) -> Any:
    try:
        return eval(annotation, namespace, {cls.__name__: cls})
    except NameError as error:
        raise TypeError(
            f"{cls.__qualname__}: {annotation!r} has a name that is not known yet ({error}); "
            "say the bounds with Annotated"
        ) from error
