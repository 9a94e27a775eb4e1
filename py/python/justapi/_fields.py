"""One parameter, body or response with the pydantic type adapter that checks it."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from copy import copy, deepcopy
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    Json,
    PydanticSchemaGenerationError,
    TypeAdapter,
    ValidationError,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from justapi import _msgspec, params
from justapi._annotations import NONE_TYPE, is_sequence, is_subclass, model_of, union_members
from justapi.exceptions import JustAPIError, PydanticV1NotSupportedError

__all__ = [
    "ModelField",
    "copy_field_info",
    "is_json_field",
    "make_field",
    "missing_error",
    "model_fields",
    "param_model",
    "request_names",
]

Mode = Literal["validation", "serialization"]

_PLAIN_TYPES = (str, int, float, bool)

# What a FieldInfo has beside annotation and metadata, and how it looks when it was not set.
_ATTRIBUTES = (
    "default",
    "default_factory",
    "alias",
    "alias_priority",
    "validation_alias",
    "serialization_alias",
    "title",
    "field_title_generator",
    "description",
    "examples",
    "exclude",
    "exclude_if",
    "discriminator",
    "deprecated",
    "json_schema_extra",
    "frozen",
    "validate_default",
    "repr",
    "init",
    "init_var",
    "kw_only",
)


def _attributes(field_info: FieldInfo) -> dict[str, Any]:
    return {
        name: value
        for name in _ATTRIBUTES
        if (value := getattr(field_info, name, PydanticUndefined)) is not PydanticUndefined
    }


class ModelField:
    """A value that the framework validates or serialises.

    Attributes:
        field_info: What is known of it; for parameters a `justapi.params.Param` or `Body`.
        name: Name of the parameter in Python.
        mode: `"validation"` for what comes in, `"serialization"` for what goes out.
        config: pydantic configuration of the model that it is a field of, or None.
    """

    __slots__ = ("_adapter", "config", "field_info", "mode", "msgspec", "name")

    def __init__(
        self,
        *,
        field_info: FieldInfo,
        name: str,
        mode: Mode = "validation",
        config: ConfigDict | None = None,
    ) -> None:
        self.field_info = field_info
        self.name = name
        self.mode: Mode = mode
        self.config = config
        self._adapter: TypeAdapter[Any] | None = None
        self.msgspec: _msgspec.Converter | None = None
        if _msgspec.holds_struct(field_info.annotation):
            self.msgspec = _msgspec.Converter(field_info.annotation)
        elif not self.is_plain:
            self._adapter = self._make_adapter()

    @property
    def is_plain(self) -> bool:
        """Whether it is a text, a number or a truth value without further conditions, or None.

        Such a type is always right, so its adapter is made when it is first used: most
        parameters are plain, and an adapter takes longer than all the rest of their making.
        """
        info = self.field_info
        if info.metadata or info.discriminator or self.config:
            return False
        annotation = info.annotation
        members = union_members(annotation)
        if members is not None and len(members) == 2 and NONE_TYPE in members:
            annotation = members[0] if members[1] is NONE_TYPE else members[1]
        return annotation in _PLAIN_TYPES

    def _make_adapter(self) -> TypeAdapter[Any]:
        with warnings.catch_warnings():
            # An alias in Annotated means something for us, but nothing for the type adapter.
            warnings.simplefilter("ignore")
            annotation: Any = Annotated[
                (
                    self.field_info.annotation,
                    *self.field_info.metadata,
                    Field(**_attributes(self.field_info)),
                )
            ]
            return TypeAdapter(annotation, config=self.config)

    @property
    def type_adapter(self) -> TypeAdapter[Any]:
        """The adapter of the annotation with all its metadata."""
        if self._adapter is None:
            if self.msgspec is not None:
                raise JustAPIError(f"{self.name} is validated by msgspec")
            self._adapter = self._make_adapter()
        return self._adapter

    _type_adapter = type_adapter

    @property
    def is_complete(self) -> bool:
        """Whether the type is known; one that is defined later is an error when it is needed."""
        return bool(getattr(self.type_adapter, "pydantic_complete", True))

    @property
    def alias(self) -> str:
        """Name on the wire."""
        return self.field_info.alias if self.field_info.alias is not None else self.name

    @property
    def validation_alias(self) -> str | None:
        """Name on the wire for what comes in, when it has its own."""
        alias = self.field_info.validation_alias
        return alias if isinstance(alias, str) and alias else None

    @property
    def serialization_alias(self) -> str | None:
        """Name on the wire for what goes out, when it has its own."""
        return self.field_info.serialization_alias or None

    @property
    def wire_name(self) -> str:
        """Name on the wire for what comes in."""
        return self.validation_alias or self.alias

    @property
    def required(self) -> bool:
        """Whether it has neither a default nor a default factory."""
        return self.field_info.is_required()

    @property
    def default(self) -> Any:
        """The default, made anew when there is a factory; undefined when it is required."""
        return self.get_default()

    def get_default(self) -> Any:
        """Returns the default, made anew when there is a factory."""
        if self.field_info.is_required():
            return PydanticUndefined
        return self.field_info.get_default(call_default_factory=True)

    @property
    def validate_value(self) -> Callable[[Any], Any]:
        """A function that returns the validated value or raises."""
        if self.msgspec is not None:
            return self.msgspec.convert
        if self.is_plain or not self.is_complete:
            return lambda value: self.type_adapter.validator.validate_python(value)
        validate = self.type_adapter.validator.validate_python
        return lambda value: validate(value, from_attributes=True)

    @property
    def validate_text(self) -> Callable[[Any], Any]:
        """As `validate_value`, for a text or a list of texts."""
        if self.msgspec is not None or self.is_plain or not self.is_complete:
            return self.validate_value
        validate: Callable[[Any], Any] = self.type_adapter.validator.validate_python
        return validate

    def validate(
        self, value: Any, values: Any = None, *, loc: tuple[int | str, ...] = ()
    ) -> tuple[Any, list[dict[str, Any]]]:
        """Validates a value.

        Args:
            value: What came in, or what a handler returned.
            values: Not used; FastAPI's signature.
            loc: Place of the value, put before the places of the errors.

        Returns:
            The value and no errors, or None and the errors.
        """
        if self.msgspec is not None:
            return self.msgspec.validate(value, loc)
        try:
            return self.type_adapter.validate_python(value, from_attributes=True), []
        except ValidationError as error:
            errors = error.errors(include_url=False)
            return None, [{**item, "loc": loc + item["loc"]} for item in errors]
        except RecursionError:
            return None, [
                {
                    "type": "recursion_loop",
                    "loc": loc,
                    "msg": "Input is nested too deeply",
                    "input": None,
                }
            ]

    def validate_or_default(
        self, value: Any, loc: tuple[int | str, ...]
    ) -> tuple[Any, list[dict[str, Any]]]:
        """Validates a value, or gives the default when the value is undefined."""
        if value is PydanticUndefined:
            if self.required:
                return None, [missing_error(loc)]
            value = deepcopy(self.get_default())
            if not self.field_info.validate_default:
                return value, []
        return self.validate(value, loc=loc)

    def serialize(
        self, value: Any, *, mode: Literal["json", "python"] = "json", **options: Any
    ) -> Any:
        """Makes plain values of a validated one."""
        if self.msgspec is not None:
            return self.msgspec.to_builtins(value)
        return self.type_adapter.dump_python(value, mode=mode, **options)

    def serialize_json(self, value: Any, **options: Any) -> bytes:
        """Makes JSON of a validated value."""
        if self.msgspec is not None:
            return self.msgspec.encode(value)
        return self.type_adapter.dump_json(value, **options)

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"ModelField({self.name}: {self.field_info!r})"


def make_field(
    name: str,
    annotation: Any,
    *,
    default: Any = PydanticUndefined,
    field_info: FieldInfo | None = None,
    alias: str | None = None,
    mode: Mode = "validation",
) -> ModelField:
    """Makes a field.

    Raises:
        JustAPIError: The annotation is no type that can be validated.
        PydanticV1NotSupportedError: It is, or holds, a model of `pydantic.v1`.
    """
    if _holds_v1_model(annotation):
        raise PydanticV1NotSupportedError(
            f"models of pydantic.v1 are not supported: {annotation!r} needs pydantic.BaseModel"
        )
    if field_info is None:
        field_info = FieldInfo(annotation=annotation, default=default, alias=alias)
    try:
        return ModelField(field_info=field_info, name=name, mode=mode)
    except PydanticSchemaGenerationError:
        raise JustAPIError(
            f"{annotation!r} is no type that can be validated. If it is the return annotation of "
            "a handler (for instance a union with Response), pass response_model=None to the "
            "decorator."
        ) from None


def _holds_v1_model(annotation: Any) -> bool:
    """Whether a type is a model of `pydantic.v1`, or has one among its arguments."""
    old = sys.modules.get("pydantic.v1.main")
    if old is None:
        return False
    return is_subclass(annotation, old.BaseModel) or any(
        _holds_v1_model(argument) for argument in get_args(annotation)
    )


def copy_field_info(field_info: FieldInfo, annotation: Any) -> FieldInfo:
    """Copies a parameter and adds what its annotation says."""
    merged = type(field_info).from_annotation(annotation)
    copied = copy(field_info)
    for name, value in _attributes(merged).items():
        setattr(copied, name, value)
    # pydantic merges and prints by these.
    copied._attributes_set = merged._attributes_set.copy()
    copied.metadata = merged.metadata
    copied.annotation = merged.annotation
    return copied


def missing_error(loc: tuple[int | str, ...]) -> dict[str, Any]:
    """Returns the error of a required value that is absent."""
    return {"type": "missing", "loc": loc, "msg": "Field required", "input": None}


def is_json_field(field: ModelField) -> bool:
    """Whether one text holds the value as JSON (`pydantic.Json`)."""
    return any(type(item) is Json for item in field.field_info.metadata)


_MODEL_FIELDS: dict[type[BaseModel], list[ModelField]] = {}


def model_fields(model: type[BaseModel]) -> list[ModelField]:
    """Returns the fields of a model of parameters."""
    fields = _MODEL_FIELDS.get(model)
    if fields is None:
        fields = [
            ModelField(field_info=field_info, name=name, config=model.model_config)
            for name, field_info in model.model_fields.items()
        ]
        _MODEL_FIELDS[model] = fields
    return fields


def param_model(field: ModelField) -> type[BaseModel] | None:
    """Returns the model whose fields are the parameters, or None for a single parameter."""
    if is_json_field(field):
        return None
    annotation = field.field_info.annotation
    if isinstance(field.field_info, params.Query | params.Header | params.Cookie):
        return model_of(annotation)
    return model_of(annotation) if annotation is model_of(annotation) else None


def request_names(field: ModelField, *, convert_underscores: bool = False) -> list[tuple[str, str]]:
    """Returns the names under which a value may come, best first.

    Returns:
        Pairs of the name for pydantic and the name on the wire.
    """
    name = field.wire_name
    on_wire = name.replace("_", "-") if convert_underscores and name == field.name else name
    alias = field.field_info.validation_alias
    if isinstance(field.field_info, params.Path) or isinstance(alias, AliasPath):
        return [(name, on_wire)]
    names = [(name, on_wire)]
    if isinstance(alias, AliasChoices):
        if any(isinstance(choice, AliasPath) for choice in alias.choices):
            return names
        names = [(choice, choice) for choice in alias.choices if isinstance(choice, str)]
    config = field.config or {}
    by_alias = config.get("validate_by_alias")
    by_name = config.get("validate_by_name", config.get("populate_by_name", False))
    if by_alias is False or by_name:
        own = field.name.replace("_", "-") if convert_underscores else field.name
        if by_alias is False:
            return [(field.name, own)]
        if field.name not in [known for known, _ in names]:
            names.append((field.name, own))
    return names


def takes_list(field: ModelField) -> bool:
    """Whether repeated values of one name belong together."""
    return not is_json_field(field) and is_sequence(field.field_info.annotation)
