"""Path patterns: their parameters, converters, and the way back from a name to a path."""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from justapi.exceptions import JustAPIError

__all__ = [
    "CONVERTORS",
    "Convertor",
    "NoMatchFound",
    "compile_path",
    "core_pattern",
    "fill_path",
    "lacks_slash",
    "route_key",
]

_PARAMETER = re.compile(r"{([a-zA-Z_][a-zA-Z0-9_]*)(?::([a-zA-Z_][a-zA-Z0-9_]*))?}")


class NoMatchFound(Exception):
    """No route has this name and these parameters.

    Args:
        name: The name.
        path_params: The parameters.
    """

    def __init__(self, name: str, path_params: Mapping[str, Any]) -> None:
        params = ", ".join(path_params)
        super().__init__(f'No route exists for name "{name}" and params "{params}".')


class Convertor:
    """Turns a piece of a path into a value and back.

    Args:
        regex: What the piece looks like.
        convert: Makes the value.
        to_string: Makes the piece.
    """

    __slots__ = ("_convert", "_regex", "regex", "to_string")

    def __init__(
        self, regex: str, convert: Callable[[str], Any], to_string: Callable[[Any], str]
    ) -> None:
        self.regex = regex
        self._regex = re.compile(regex)
        self._convert = convert
        self.to_string = to_string

    def convert(self, text: str) -> Any:
        """Makes the value.

        Raises:
            ValueError: The piece does not look as it must.
        """
        if self._regex.fullmatch(text) is None:
            raise ValueError(f"{text!r} does not match {self.regex}")
        return self._convert(text)


def _segment(value: Any) -> str:
    text = str(value)
    if "/" in text:
        raise AssertionError("May not contain path separators")
    if not text:
        raise AssertionError("Must not be empty")
    return text


def _integer(value: Any) -> str:
    number = int(value)
    if number < 0:
        raise AssertionError("Negative integers are not supported")
    return str(number)


def _float(value: Any) -> str:
    number = float(value)
    if number < 0 or not math.isfinite(number):
        raise AssertionError("Only finite floats from 0 are supported")
    text = f"{number:0.20f}".rstrip("0")
    return text.rstrip(".")


CONVERTORS: dict[str, Convertor] = {
    "str": Convertor("[^/]+", str, _segment),
    "path": Convertor(".*", str, str),
    "int": Convertor("[0-9]+", int, _integer),
    "float": Convertor(r"[0-9]+(\.[0-9]+)?", float, _float),
    "uuid": Convertor(
        "[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}",
        uuid.UUID,
        str,
    ),
}


def compile_path(path: str) -> tuple[str, dict[str, Convertor]]:
    """Reads a pattern.

    Returns:
        The pattern without the names of converters, and the converter of each parameter.

    Raises:
        JustAPIError: A converter is unknown.
        ValueError: A parameter has its name twice.
    """
    convertors: dict[str, Convertor] = {}
    for name, kind in _PARAMETER.findall(path):
        if name in convertors:
            raise ValueError(f"Duplicated param name {name} at path {path}")
        convertor = CONVERTORS.get(kind or "str")
        if convertor is None:
            raise JustAPIError(f"Unknown path convertor '{kind}'")
        convertors[name] = convertor
    return _PARAMETER.sub(r"{\1}", path), convertors


def fill_path(
    path_format: str, convertors: Mapping[str, Convertor], path_params: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Puts values into a pattern.

    Returns:
        The path, and the values that have no place in it.
    """
    rest = dict(path_params)
    path = path_format
    for name, value in path_params.items():
        if "{" + name + "}" in path and name in convertors:
            path = path.replace("{" + name + "}", convertors[name].to_string(value))
            del rest[name]
    return path, rest


def lacks_slash(path: str) -> bool:
    """Whether no request can have this path, as each begins with a slash."""
    return bool(path) and not path.startswith("/")


def route_key(path: str) -> str:
    """Returns the same text for all patterns that match the same paths."""
    return _PARAMETER.sub(lambda match: "{" + (":" + match[2] if match[2] else "") + "}", path)


def path_converters(convertors: Mapping[str, Convertor]) -> dict[str, Callable[[str], Any]]:
    """Returns the converters that do more than to pass a text on."""
    return {
        name: convertor.convert
        for name, convertor in convertors.items()
        if convertor not in (CONVERTORS["str"], CONVERTORS["path"])
    }


_SEGMENT: Final = re.compile(r"{([a-zA-Z_][a-zA-Z0-9_]*)(?::(str|int|path))?}")


def core_pattern(path: str) -> str | None:
    """Returns a pattern as core's router spells it; None if it has none for it.

    Core knows whole segments, and a `path` at the end that is not empty.
    """
    segments = path.split("/")
    if segments[0]:
        return None
    for index, segment in enumerate(segments[1:], 1):
        if "{" not in segment and "}" not in segment and "%" not in segment:
            continue
        match = _SEGMENT.fullmatch(segment)
        if match is None or (match[2] == "path" and index != len(segments) - 1):
            return None
        if match[2] == "int":
            segments[index] = f"{{{match[1]}:uint}}"
    return "/".join(segments)
