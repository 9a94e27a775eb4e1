"""The classes behind `Query()`, `Body()`, `Depends()` and their like.

They describe a parameter of a handler or dependency: where its value comes from and what pydantic
shall check. The functions of `justapi.param_functions` make them; these classes are for
`isinstance` and for introspection, under FastAPI's names.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, TypedDict

from pydantic import AliasChoices, AliasPath, Discriminator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typing_extensions import Unpack

from justapi._concurrency_limit import ConcurrencyLimit

__all__ = [
    "Body",
    "BodyOptions",
    "Cookie",
    "Depends",
    "FieldOptions",
    "File",
    "Form",
    "FormOptions",
    "Header",
    "HeaderOptions",
    "Param",
    "ParamTypes",
    "Path",
    "Query",
    "Security",
]


class ParamTypes(Enum):
    """The places of parameters, as OpenAPI names them."""

    query = "query"
    header = "header"
    path = "path"
    cookie = "cookie"


class FieldOptions(TypedDict, total=False):
    """What every parameter may say about its value; meanings are those of `pydantic.Field`."""

    default_factory: Callable[[], Any] | None
    annotation: Any
    alias: str | None
    alias_priority: int | None
    validation_alias: str | AliasPath | AliasChoices | None
    serialization_alias: str | None
    title: str | None
    description: str | None
    gt: float | None
    ge: float | None
    lt: float | None
    le: float | None
    min_length: int | None
    max_length: int | None
    pattern: str | re.Pattern[str] | None
    regex: str | None
    discriminator: str | Discriminator | None
    strict: bool | None
    validate_default: bool | None
    union_mode: Literal["smart", "left_to_right"] | None
    fail_fast: bool | None
    multiple_of: float | None
    allow_inf_nan: bool | None
    max_digits: int | None
    decimal_places: int | None
    examples: list[Any] | None
    example: Any
    openapi_examples: dict[str, Any] | None
    deprecated: Any
    include_in_schema: bool
    json_schema_extra: dict[str, Any] | Callable[[dict[str, Any]], None] | None


class HeaderOptions(FieldOptions, total=False):
    """`FieldOptions`, and whether `_` in the name stands for `-`."""

    convert_underscores: bool


class BodyOptions(FieldOptions, total=False):
    """`FieldOptions`, and how the value lies in the body."""

    embed: bool | None
    media_type: str


class FormOptions(FieldOptions, total=False):
    """`FieldOptions`, and the media type of the form."""

    media_type: str


# Not understood by pydantic.Field: they are kept on the parameter itself.
_OWN_OPTIONS = ("example", "include_in_schema", "openapi_examples")


def _field_arguments(default: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Turns options into the arguments of `FieldInfo`, as FastAPI understands them."""
    arguments = {
        name: value
        for name, value in options.items()
        if name not in _OWN_OPTIONS
        # A bound of None is no bound; for the other options None may be meant.
        and not (value is None and name in _BOUNDS)
    }
    regex = arguments.pop("regex", None)
    if regex is not None:
        warnings.warn(
            "`regex` is deprecated, use `pattern`", category=DeprecationWarning, stacklevel=5
        )
        arguments.setdefault("pattern", regex)
    alias = arguments.get("alias")
    if alias is not None:
        if arguments.get("serialization_alias") is None:
            arguments["serialization_alias"] = alias
        if arguments.get("validation_alias") is None:
            arguments["validation_alias"] = alias
    for name in ("alias", "validation_alias", "serialization_alias"):
        if name in arguments and arguments[name] is None:
            del arguments[name]
    return {"default": default, **arguments}


_BOUNDS = frozenset(
    {"gt", "ge", "lt", "le", "min_length", "max_length", "pattern", "regex", "annotation"}
)


class Param(FieldInfo):  # type: ignore[misc]  # final for pydantic
    """Base of the parameters outside of the body."""

    in_: ParamTypes

    def __init__(self, default: Any = PydanticUndefined, **options: Unpack[FieldOptions]) -> None:
        self.example = options.get("example", PydanticUndefined)
        self.include_in_schema = options.get("include_in_schema", True)
        self.openapi_examples = options.get("openapi_examples")
        super().__init__(**_field_arguments(default, dict(options)))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.default})"


class Path(Param):  # type: ignore[misc]  # as its base
    """A parameter out of the path."""

    in_ = ParamTypes.path

    def __init__(self, default: Any = ..., **options: Unpack[FieldOptions]) -> None:
        if default is not ...:
            raise AssertionError("Path parameters cannot have a default value")
        super().__init__(default=default, **options)


class Query(Param):  # type: ignore[misc]  # as its base
    """A parameter out of the query string."""

    in_ = ParamTypes.query


class Header(Param):  # type: ignore[misc]  # as its base
    """A parameter out of the header."""

    in_ = ParamTypes.header

    def __init__(
        self,
        default: Any = PydanticUndefined,
        *,
        convert_underscores: bool = True,
        **options: Unpack[FieldOptions],
    ) -> None:
        self.convert_underscores = convert_underscores
        super().__init__(default=default, **options)


class Cookie(Param):  # type: ignore[misc]  # as its base
    """A parameter out of the cookies."""

    in_ = ParamTypes.cookie


class Body(FieldInfo):  # type: ignore[misc]  # final for pydantic
    """The body, or a member of it."""

    def __init__(
        self,
        default: Any = PydanticUndefined,
        *,
        embed: bool | None = None,
        media_type: str = "application/json",
        **options: Unpack[FieldOptions],
    ) -> None:
        self.embed = embed
        self.media_type = media_type
        self.example = options.get("example", PydanticUndefined)
        self.include_in_schema = options.get("include_in_schema", True)
        self.openapi_examples = options.get("openapi_examples")
        super().__init__(**_field_arguments(default, dict(options)))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.default})"


class Form(Body):  # type: ignore[misc]  # as its base
    """A field of a form, or a model of its fields."""

    def __init__(
        self,
        default: Any = PydanticUndefined,
        *,
        media_type: str = "application/x-www-form-urlencoded",
        **options: Unpack[FieldOptions],
    ) -> None:
        super().__init__(default=default, media_type=media_type, **options)


class File(Form):  # type: ignore[misc]  # as its base
    """A file of a multipart form."""

    def __init__(
        self,
        default: Any = PydanticUndefined,
        *,
        media_type: str = "multipart/form-data",
        **options: Unpack[FieldOptions],
    ) -> None:
        super().__init__(default=default, media_type=media_type, **options)


@dataclass(frozen=True)
class Depends:
    """A dependency: what is called for the value of a parameter.

    Attributes:
        dependency: The callable; None means the parameter's annotation.
        use_cache: Whether it is called once for a request however often it is needed.
        scope: Until when a dependency with `yield` lives: `"function"` ends it before the
            response is sent, `"request"` (the default) after.
        max_concurrency: How many calls may run at once; with `yield`, how many may be open.

    Raises:
        ValueError: `max_concurrency` is no positive integer.
    """

    dependency: Callable[..., Any] | None = None
    use_cache: bool = True
    scope: Literal["function", "request"] | None = None
    max_concurrency: int | None = field(default=None, kw_only=True)
    # A field, so that a copy for another callable keeps the accounting, and two declarations
    # with the same arguments are not taken for one.
    limit: ConcurrencyLimit | None = field(default=None, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.max_concurrency is None:
            object.__setattr__(self, "limit", None)
        elif self.limit is None or self.limit.max_concurrency != self.max_concurrency:
            object.__setattr__(self, "limit", ConcurrencyLimit(self.max_concurrency))


@dataclass(frozen=True)
class Security(Depends):
    """A dependency that declares OAuth2 scopes.

    Attributes:
        scopes: The scopes that this use of the dependency needs.
    """

    scopes: Sequence[str] | None = None
