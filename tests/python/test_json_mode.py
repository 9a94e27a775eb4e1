"""Bodies that are validated straight from JSON give what the parsed JSON would have given."""

from __future__ import annotations

import dataclasses
import itertools
import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, Optional
from uuid import UUID

import pytest
from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    EmailStr,
    Field,
    RootModel,
    TypeAdapter,
    computed_field,
)
from typing_extensions import TypedDict

from justapi._inputs import _means_same_in_json


class Color(Enum):
    red = "red"
    one = 1


class Level(IntEnum):
    low = 1


class Inner(BaseModel):
    a: int
    b: str | None = None


class Outer(BaseModel):
    inner: Inner
    many: list[Inner] = []
    by_name: dict[str, Inner] = {}

    @computed_field
    def size(self) -> int:
        return len(self.many)


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    first: int = Field(alias="1st")


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int


class Allowing(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Cat(BaseModel):
    kind: Literal["cat"]
    n: int


class Dog(BaseModel):
    kind: Literal["dog"]
    n: str


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Constrained(BaseModel):
    a: int = Field(ge=1, le=10)
    b: str = Field(min_length=1, pattern="^a")
    c: list[int] = Field(max_length=2)


@dataclasses.dataclass
class Point:
    x: int
    y: float = 1.0


class Movie(TypedDict, total=False):
    title: str
    year: int


class Pair(NamedTuple):
    a: int
    b: str = "b"


SAME: list[Any] = [
    str,
    int,
    float,
    bool,
    Any,
    None,
    dict,
    list,
    dict[str, int],
    dict[int, str],
    list[int],
    list[list[str]],
    set[int],
    frozenset[str],
    tuple[int, str],
    tuple[int, ...],
    Optional[int],  # noqa: UP045
    Literal["a", 1, None],
    Color,
    Level,
    date,
    datetime,
    time,
    timedelta,
    UUID,
    EmailStr,
    Inner,
    Outer,
    Aliased,
    Forbidding,
    Allowing,
    Annotated[Cat | Dog, Field(discriminator="kind")],
    Tree,
    Constrained,
    Point,
    Movie,
    Annotated[int, AfterValidator(lambda value: value * 2)],
    Annotated[str, Field(max_length=3)],
]
DIFFERENT: list[Any] = [
    int | str,
    date | str,
    Cat | Dog,
    bytes,
    Decimal,
    AnyUrl,
    Annotated[int, Field(strict=True)],
    Annotated[int, BeforeValidator(lambda value: value)],
    RootModel[list[int]],
    list[int | str],
]
SCALARS: list[Any] = [
    None,
    True,
    False,
    0,
    1,
    -5,
    3.0,
    3.5,
    1e400,
    2**70,
    "",
    "1",
    "true",
    "a",
    "abcd",
    "red",
    "2020-01-02",
    "2020-01-02T03:04:05Z",
    "03:04:05",
    "P1DT2H",
    "00000000-0000-0000-0000-000000000001",
    "https://example.com/x",
    "me@example.com",
    "é\u2028",
]
DOCUMENTS: list[Any] = [
    *SCALARS,
    [],
    [1],
    [1, "b"],
    ["1", 2, 3],
    [[1], ["a"]],
    {},
    {"a": 1},
    {"a": "1", "b": None},
    {"a": 1, "c": [1]},
    {"a": "x", "b": 3},
    {"1st": 3},
    {"first": 3},
    {"1": 2},
    {"kind": "cat", "n": "3"},
    {"kind": "dog", "n": "3"},
    {"kind": "cow"},
    {"inner": {"a": 1}, "many": [{"a": "2"}], "by_name": {"x": {"a": 3}}},
    {"inner": {"a": None}, "many": {}, "by_name": []},
    {"value": 1, "children": [{"value": 2, "children": [{"value": "3"}]}]},
    {"x": "1", "y": "2.5"},
    {"title": "t", "year": "1999"},
    {"a": 11, "b": "b", "c": [1, 2, 3]},
    {"a": 3, "b": "ab", "c": []},
]


def outcome(validate: Any, *args: Any, **options: Any) -> Any:
    try:
        value = validate(*args, **options)
    except ValueError as error:
        return [
            (item["type"], item["loc"]) if item["type"] != "json_invalid" else "invalid"
            for item in error.errors()  # type: ignore[attr-defined]
        ]
    return repr(value)


@pytest.mark.parametrize("annotation", SAME, ids=str)
def test_json_gives_the_same(annotation: Any) -> None:
    adapter = TypeAdapter(annotation)
    assert _means_same_in_json(adapter.core_schema)
    for document in DOCUMENTS:
        text = json.dumps(document)
        parsed = json.loads(text)
        from_json = outcome(adapter.validator.validate_json, text.encode())
        from_python = outcome(adapter.validator.validate_python, parsed, from_attributes=True)
        # What JSON refuses is asked again on the slow path; what it takes has to be right.
        if not isinstance(from_json, list):
            assert from_json == from_python, document


@pytest.mark.parametrize("annotation", DIFFERENT, ids=str)
def test_what_may_differ_is_parsed_first(annotation: Any) -> None:
    assert not _means_same_in_json(TypeAdapter(annotation).core_schema)


def test_the_last_of_two_members_counts() -> None:
    for annotation in (Inner, dict[str, int], Point, Movie):
        adapter = TypeAdapter(annotation)
        for first, second in itertools.permutations(["1", "2"]):
            members = [
                f'"{name}": {value}' for value in (first, second) for name in ("a", "x", "year")
            ]
            text = "{" + ", ".join(members) + "}"
            assert outcome(adapter.validate_json, text) == outcome(
                adapter.validate_python, json.loads(text)
            )
