"""The JSON Schemas of all fields of an application, with one name for each model.

pydantic names the models of one run; so all fields go through it together. A model that looks
different coming in and going out gets two names, `Item-Input` and `Item-Output`. Types of msgspec
are described by msgspec and stand beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema

from justapi._annotations import is_subclass
from justapi._fields import ModelField, make_field
from justapi.openapi.constants import REF_PREFIX, REF_TEMPLATE

__all__ = ["Schemas"]

Mode = Literal["validation", "serialization"]
JsonSchema = dict[str, Any]


class _Generator(GenerateJsonSchema):
    """Describes bytes by their media type, as OpenAPI 3.1 wants them, not by pydantic's format."""

    def bytes_schema(self, schema: CoreSchema) -> JsonSchema:
        described: JsonSchema = {
            "type": "string",
            "contentMediaType": "application/octet-stream",
        }
        config = self._config
        coding = config.ser_json_bytes if self.mode == "serialization" else config.val_json_bytes
        if coding == "base64":
            described["contentEncoding"] = "base64"
        self.update_with_validations(described, schema, self.ValidationsMapping.bytes)
        return described


class Schemas:
    """The schemas of an application's fields.

    Args:
        fields: All fields that the document shows.
        separate_input_output: Whether a model may have one schema coming in and one going out.

    Attributes:
        definitions: The schemas of the models by name, for the components of the document.
    """

    def __init__(self, fields: Sequence[ModelField], *, separate_input_output: bool) -> None:
        self._separate = separate_input_output
        fields = list({id(field): field for field in fields}.values())
        structs = [field for field in fields if field.msgspec is not None]
        self.definitions: dict[str, JsonSchema] = {}
        self._by_field: dict[tuple[ModelField, Mode], JsonSchema] = {}
        self._describe([field for field in fields if field.msgspec is None])
        if structs:
            self._describe_structs(structs)

    def _describe(self, fields: list[ModelField]) -> None:
        annotations = [field.field_info.annotation for field in fields]
        models = [
            make_field(model.__name__, model, mode=mode)
            for mode in ("validation", "serialization")
            for model in _models_of(field for field in fields if field.mode == mode)
            if model not in annotations
        ]
        inputs: list[tuple[Any, Mode, CoreSchema]] = [
            (field, self._mode(field), field.type_adapter.core_schema)
            for field in [*fields, *models]
        ]
        generator = _Generator(ref_template=REF_TEMPLATE)
        by_field, definitions = generator.generate_definitions(inputs)
        self._by_field.update(by_field)
        for name, definition in definitions.items():
            if "description" in definition:
                # What follows a form feed in a docstring is not for the document.
                definition["description"] = definition["description"].split("\f")[0]
            self.definitions[name] = definition

    def _mode(self, field: ModelField) -> Mode:
        if self._separate or _has_computed_fields(field):
            return field.mode
        return "validation"

    def _describe_structs(self, fields: list[ModelField]) -> None:
        import msgspec

        annotations = [field.field_info.annotation for field in fields]
        described, components = msgspec.json.schema_components(
            annotations, ref_template=REF_PREFIX + "{name}"
        )
        renamed = {
            REF_PREFIX + name: REF_PREFIX + self._free_name(name)
            for name in components
            if name in self.definitions
        }
        for name, component in components.items():
            free = renamed.get(REF_PREFIX + name, REF_PREFIX + name).removeprefix(REF_PREFIX)
            self.definitions[free] = _rename(component, renamed)
        for field, schema in zip(fields, described, strict=True):
            self._by_field[field, field.mode] = _rename(dict(schema), renamed)

    def _free_name(self, name: str) -> str:
        number = 2
        while f"{name}_{number}" in self.definitions:
            number += 1
        return f"{name}_{number}"

    def of(self, field: ModelField, alias: str | None = None) -> JsonSchema:
        """Returns the schema of a field: a reference, or the schema itself with a title.

        Args:
            field: One of the fields.
            alias: The name that the title is made of, if it is not the field's own.
        """
        mode = field.mode if field.msgspec is not None else self._mode(field)
        schema = self._by_field[field, mode].copy()
        if "$ref" not in schema:
            schema["title"] = field.field_info.title or _title(alias or _wire_name(field))
        return schema


def _title(name: str) -> str:
    return name.title().replace("_", " ")


def _wire_name(field: ModelField) -> str:
    own = field.validation_alias if field.mode == "validation" else field.serialization_alias
    return own or field.alias


def _rename(schema: Any, renamed: dict[str, str]) -> Any:
    """Exchanges the targets of references."""
    if not renamed:
        return schema
    if isinstance(schema, dict):
        return {
            key: renamed.get(value, value)
            if key == "$ref" and isinstance(value, str)
            else _rename(value, renamed)
            for key, value in schema.items()
        }
    if isinstance(schema, list):
        return [_rename(item, renamed) for item in schema]
    return schema


def _models_of(fields: Iterable[ModelField]) -> list[type[Any]]:
    """Returns the models and enumerations in the annotations, and those that they are made of."""
    found: dict[type[Any], None] = {}
    for field in fields:
        _collect(field.field_info.annotation, found)
    return list(found)


def _collect(annotation: Any, found: dict[type[Any], None]) -> None:
    if is_subclass(annotation, (BaseModel, Enum)):
        if annotation in found:
            return
        found[annotation] = None
        if issubclass(annotation, BaseModel):
            for info in annotation.model_fields.values():
                _collect(info.annotation, found)
    elif get_origin(annotation) is not None:
        for argument in get_args(annotation):
            _collect(argument, found)


def _has_computed_fields(field: ModelField) -> bool:
    """Whether anything in the field exists only going out."""
    core_schema: Any = field.type_adapter.core_schema
    if core_schema.get("schema", {}).get("computed_fields"):
        return True
    return any(
        issubclass(model, BaseModel) and bool(model.model_computed_fields)
        for model in _models_of([field])
    )


def component_name(name: str) -> str:
    """Makes a name that a component may have.

    Args:
        name: Any name.
    """
    return re.sub(r"[^a-zA-Z0-9.\-_]", "_", name)
