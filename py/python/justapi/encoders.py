"""Turns what handlers return into JSON.

`jsonable_encoder` is FastAPI's function. The encoders of responses are chosen when a route is
registered, by its response model; none of them looks at a type that it knows already.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
)
from pathlib import PurePath
from re import Pattern
from types import GeneratorType
from typing import Any, TypeAlias
from uuid import UUID

from pydantic import BaseModel
from pydantic.networks import AnyUrl, NameEmail
from pydantic.types import SecretBytes, SecretStr
from pydantic_core import PydanticUndefinedType, Url

__all__ = ["IncEx", "encode_default", "encode_json", "encode_stream_item", "jsonable_encoder"]

IncEx: TypeAlias = set[int] | set[str] | dict[int, Any] | dict[str, Any] | None


def _decimal(value: Decimal) -> int | float:
    exponent = value.as_tuple().exponent
    return int(value) if isinstance(exponent, int) and exponent >= 0 else float(value)


def _bytes(value: bytes) -> str:
    return value.decode()


def _iso(value: datetime.date | datetime.time) -> str:
    return value.isoformat()


ENCODERS_BY_TYPE: dict[type[Any], Callable[[Any], Any]] = {
    bytes: _bytes,
    datetime.date: _iso,
    datetime.datetime: _iso,
    datetime.time: _iso,
    datetime.timedelta: datetime.timedelta.total_seconds,
    Decimal: _decimal,
    IPv4Address: str,
    IPv4Interface: str,
    IPv4Network: str,
    IPv6Address: str,
    IPv6Interface: str,
    IPv6Network: str,
    NameEmail: str,
    Pattern: lambda value: value.pattern,
    SecretBytes: str,
    SecretStr: str,
    UUID: str,
    Url: str,
    AnyUrl: str,
}

_BASES = tuple(ENCODERS_BY_TYPE)


def _encoder_of(value: Any) -> Callable[[Any], Any] | None:
    encoder = ENCODERS_BY_TYPE.get(type(value))
    if encoder is not None:
        return encoder
    if isinstance(value, _BASES):
        return next(
            encoder for base, encoder in ENCODERS_BY_TYPE.items() if isinstance(value, base)
        )
    return None


def _as_members(members: Any) -> IncEx:
    """Lets lists and tuples name members, too."""
    return members if members is None or isinstance(members, set | dict) else set(members)


def jsonable_encoder(
    obj: Any,
    include: IncEx = None,
    exclude: IncEx = None,
    by_alias: bool = True,
    exclude_unset: bool = False,
    exclude_defaults: bool = False,
    exclude_none: bool = False,
    custom_encoder: dict[Any, Callable[[Any], Any]] | None = None,
    sqlalchemy_safe: bool = True,
) -> Any:
    """Makes of any object what JSON can hold.

    Args:
        obj: The object.
        include: Members to include, as pydantic understands it.
        exclude: Members to leave out, as pydantic understands it.
        by_alias: Whether members of models are called by their aliases.
        exclude_unset: Whether to leave out members of models that were not set.
        exclude_defaults: Whether to leave out members of models that equal their defaults.
        exclude_none: Whether to leave out members that are None.
        custom_encoder: Encoders by type, asked before all others.
        sqlalchemy_safe: Whether to leave out members whose names begin with `_sa`.

    Raises:
        ValueError: The object has neither items nor attributes.
        UnicodeDecodeError: Bytes are not UTF-8.

    Example:
        >>> jsonable_encoder({"day": datetime.date(2030, 1, 2)})
        {'day': '2030-01-02'}
    """
    if custom_encoder:
        own = custom_encoder.get(type(obj))
        if own is None:
            own = next(
                (encode for kind, encode in custom_encoder.items() if isinstance(obj, kind)), None
            )
        if own is not None:
            return own(obj)
    include = _as_members(include)
    exclude = _as_members(exclude)
    # What is passed on to members; include and exclude name members of this object only.
    again = partial(
        jsonable_encoder,
        by_alias=by_alias,
        exclude_unset=exclude_unset,
        exclude_defaults=exclude_defaults,
        exclude_none=exclude_none,
        custom_encoder=custom_encoder,
        sqlalchemy_safe=sqlalchemy_safe,
    )
    if isinstance(obj, BaseModel):
        dumped = obj.model_dump(
            mode="json",
            include=include,
            exclude=exclude,
            by_alias=by_alias,
            exclude_unset=exclude_unset,
            exclude_none=exclude_none,
            exclude_defaults=exclude_defaults,
        )
        return jsonable_encoder(
            dumped,
            exclude_none=exclude_none,
            exclude_defaults=exclude_defaults,
            sqlalchemy_safe=sqlalchemy_safe,
        )
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        return again(dataclasses.asdict(obj), include=include, exclude=exclude)
    if isinstance(obj, enum.Enum):
        return obj.value
    if isinstance(obj, PurePath):
        return str(obj)
    if isinstance(obj, str | int | float | None):
        return obj
    if isinstance(obj, PydanticUndefinedType):
        return None
    if isinstance(obj, dict):
        return {
            again(key): again(value)
            for key, value in obj.items()
            if not (sqlalchemy_safe and isinstance(key, str) and key.startswith("_sa"))
            and not (value is None and exclude_none)
            and (include is None or key in include)
            and (exclude is None or key not in exclude)
        }
    if isinstance(obj, list | set | frozenset | GeneratorType | tuple | deque):
        return [again(item, include=include, exclude=exclude) for item in obj]
    encoder = _encoder_of(obj)
    if encoder is not None:
        return encoder(obj)
    return again(_members(obj), include=include, exclude=exclude)


def _members(obj: Any) -> dict[Any, Any]:
    """Returns the items or attributes of an object."""
    if hasattr(obj, "__struct_fields__"):
        import msgspec

        members: dict[Any, Any] = msgspec.to_builtins(obj, enc_hook=encode_default)
        return members
    try:
        return dict(obj)
    except Exception as error:
        try:
            attributes: dict[Any, Any] = vars(obj)
            return attributes
        except TypeError as other:
            raise ValueError([error, other]) from other


def encode_default(value: Any) -> Any:
    """Makes a plain value of an object that the JSON encoder does not know.

    Raises:
        ValueError: The object has neither items nor attributes.
    """
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    return jsonable_encoder(value)


_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _encode_in_python(value: Any, _default: Callable[[Any], Any]) -> bytes:
    return _dumps(jsonable_encoder(value)).encode()


def _find_encoder() -> Callable[[Any, Callable[[Any], Any]], bytes]:
    try:
        from justapi import _core
    except ImportError:
        return _encode_in_python
    found: Callable[[Any, Callable[[Any], Any]], bytes] = _core.encode_json
    return found


_encode = _find_encoder()


def encode_json(value: Any) -> bytes:
    """Encodes any object as compact JSON.

    Raises:
        ValueError: The object cannot be encoded, or has NaN or infinities.
    """
    return _encode(value, encode_default)


def encode_stream_item(value: Any) -> bytes:
    """Encodes an item of a stream: as `encode_json`, but null stands for NaN and infinities.

    The status of a stream has been sent; an error could only break it off.

    Raises:
        ValueError: The object cannot be encoded.
    """
    try:
        return encode_json(value)
    except ValueError:
        return _dumps_with_infinite_keys(_finite(jsonable_encoder(value))).encode()


# Keys are texts in JSON; Python spells the infinite ones.
_dumps_with_infinite_keys = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def _finite(value: Any) -> Any:
    """Puts None in the place of each number that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
