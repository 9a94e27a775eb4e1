"""Validation and encoding of types with `msgspec.Struct` in them.

msgspec is optional: a type can only hold a Struct when the user imported msgspec, so this module
imports it the first time that it sees one. msgspec stops at the first error; to report all of
them, a refused value is taken apart and its members are converted one by one.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin

__all__ = ["Converter", "holds_struct"]

MAX_ERRORS = 100
"""Errors of one value that are looked for; more tell the client nothing."""

_PATH = re.compile(r" - at (?:`|key in `)\$?([^`]*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def holds_struct(annotation: Any) -> bool:
    """Whether the annotation is a Struct or has one in its arguments."""
    if isinstance(annotation, type) and hasattr(annotation, "__struct_fields__"):
        return True
    return any(holds_struct(argument) for argument in get_args(annotation))


class Converter:
    """Decodes, converts and encodes one type.

    Args:
        annotation: The type; one that msgspec understands.
    """

    def __init__(self, annotation: Any) -> None:
        import msgspec

        from justapi.encoders import encode_default

        self.annotation = annotation
        self._msgspec = msgspec
        self.decode: Callable[[bytes], Any] = msgspec.json.Decoder(annotation).decode
        self.encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=encode_default).encode

    def convert(self, value: Any) -> Any:
        """Converts plain values, or objects with the right attributes.

        Raises:
            ValueError: The value does not fit.
        """
        return self._convert(value, self.annotation)

    def _convert(self, value: Any, annotation: Any) -> Any:
        if isinstance(annotation, type) and type(value) is annotation:
            return value
        return self._msgspec.convert(value, annotation, from_attributes=True)

    def to_builtins(self, value: Any) -> Any:
        """Makes plain values of an object."""
        from justapi.encoders import encode_default

        return self._msgspec.to_builtins(value, enc_hook=encode_default)

    def validate(self, value: Any, loc: tuple[int | str, ...]) -> tuple[Any, list[dict[str, Any]]]:
        """Converts a value.

        Returns:
            The value and no errors, or None and all errors.
        """
        try:
            return self.convert(value), []
        except (ValueError, RecursionError) as error:
            errors: list[dict[str, Any]] = []
            self._collect(value, self.annotation, loc, errors)
            return None, errors or [self._describe(error, value, loc)]

    def _collect(
        self, value: Any, annotation: Any, loc: tuple[int | str, ...], errors: list[dict[str, Any]]
    ) -> None:
        if len(errors) >= MAX_ERRORS:
            return
        try:
            self._convert(value, annotation)
        except (ValueError, RecursionError) as error:
            before = len(errors)
            self._collect_members(value, annotation, loc, errors)
            if len(errors) == before:
                errors.append(self._describe(error, value, loc))

    def _collect_members(
        self, value: Any, annotation: Any, loc: tuple[int | str, ...], errors: list[dict[str, Any]]
    ) -> None:
        """Looks for errors one level below."""
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        if isinstance(value, dict) and (
            hasattr(annotation, "__struct_fields__") or dataclasses.is_dataclass(annotation)
        ):
            self._collect_fields(value, annotation, loc, errors)
            return
        members = [item for item in get_args(annotation) if item is not type(None)]
        if isinstance(value, list) and len(members) == 1:
            member = members[0]
            if get_origin(annotation) is None or not isinstance(get_origin(annotation), type):
                return
            for index, item in enumerate(value):
                self._collect(item, member, (*loc, index), errors)
        elif isinstance(value, dict) and len(members) == 2 and get_origin(annotation) is dict:
            for key, item in value.items():
                self._collect(item, members[1], (*loc, str(key)), errors)
        elif len(members) == 1 and len(get_args(annotation)) == 2:
            # An optional value.
            self._collect(value, members[0], loc, errors)

    def _collect_fields(
        self,
        value: dict[str, Any],
        annotation: Any,
        loc: tuple[int | str, ...],
        errors: list[dict[str, Any]],
    ) -> None:
        inspected: Any = self._msgspec.structs
        fields = (
            inspected.fields(annotation)
            if hasattr(annotation, "__struct_fields__")
            else dataclasses.fields(annotation)
        )
        names = {getattr(field, "encode_name", field.name): field for field in fields}
        for name, field in names.items():
            if name in value:
                self._collect(value[name], field.type, (*loc, name), errors)
            elif getattr(field, "required", False):
                errors.append(
                    {
                        "type": "missing",
                        "loc": (*loc, name),
                        "msg": "Field required",
                        "input": value,
                    }
                )
        config = getattr(annotation, "__struct_config__", None)
        if config is not None and config.forbid_unknown_fields:
            errors.extend(
                {
                    "type": "extra_forbidden",
                    "loc": (*loc, name),
                    "msg": "Extra inputs are not permitted",
                    "input": value[name],
                }
                for name in value
                if name not in names and name != config.tag_field
            )

    @staticmethod
    def _describe(error: BaseException, value: Any, loc: tuple[int | str, ...]) -> dict[str, Any]:
        if isinstance(error, RecursionError):
            return {
                "type": "recursion_loop",
                "loc": loc,
                "msg": "Input is nested too deeply",
                "input": None,
            }
        message = str(error)
        place = _PATH.search(message)
        if place is not None:
            message = message[: place.start()]
            steps = _STEP.findall(place.group(1))
            loc += tuple(int(index) if index.isdigit() else name or index for name, index in steps)
        return {"type": "type_error", "loc": loc, "msg": message.replace("`", ""), "input": value}
