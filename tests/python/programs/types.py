"""Types that pydantic knows, as parameters, bodies and results."""

import collections
import datetime
import decimal
import enum
import ipaddress
import pathlib
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NewType, Optional, TypeVar, Union

import pydantic.dataclasses
from fastapi import Body, Depends, FastAPI, Path, Query
from pydantic import (
    UUID4,
    AfterValidator,
    AliasGenerator,
    AnyHttpUrl,
    Base64Bytes,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Discriminator,
    Field,
    Json,
    PlainSerializer,
    PositiveInt,
    RootModel,
    SecretStr,
    Tag,
    WithJsonSchema,
    conlist,
    constr,
    field_validator,
)
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypeAliasType

app = FastAPI(title="Types", version="1")

UserId = NewType("UserId", int)
Alias = TypeAliasType("Alias", dict[str, list[int]])
Recursive = TypeAliasType("Recursive", "Union[int, list[Recursive]]")
T = TypeVar("T")
K = TypeVar("K", bound=str)


class Flag(enum.IntFlag):
    a = 1
    b = 2


class Mixed(enum.Enum):
    """Values of several types."""

    text = "a"
    number = 1


class One(enum.Enum):
    only = "only"


class Scalars(BaseModel):
    positive: PositiveInt
    short: constr(max_length=3, to_upper=True) = "abc"
    secret: SecretStr = SecretStr("x")
    amount: decimal.Decimal = decimal.Decimal("1.50")
    bounded: Annotated[decimal.Decimal, Field(max_digits=4, decimal_places=1, ge=0)] = (
        decimal.Decimal("1.0")
    )
    base64: Base64Bytes = b""
    size: ByteSize = 1
    identifier: UUID4 | None = None
    url: AnyHttpUrl = "http://example.org"
    v4: ipaddress.IPv4Address | None = None
    v6: ipaddress.IPv6Network | None = None
    path: pathlib.Path = pathlib.Path("/x")
    pattern: re.Pattern | None = None
    day: datetime.date = datetime.date(2030, 1, 2)
    moment: datetime.time | None = None
    delta: datetime.timedelta = datetime.timedelta(days=1)
    flag: Flag = Flag.a
    mixed: Mixed = Mixed.text
    one: One = One.only
    user: UserId = 1
    literal: Literal[One.only, "x", 1, True, None] = None
    inner: Json[list[int]] | None = None
    strict: Annotated[int, Field(strict=True, multiple_of=5)] = 5
    odd: float = Field(1.5, gt=0.5, lt=10, allow_inf_nan=False)


class Containers(BaseModel):
    a: Sequence[int] = []
    b: Mapping[str, float] = {}
    c: frozenset[str] = frozenset()
    d: collections.deque[int] = collections.deque()
    e: collections.OrderedDict[str, int] = {}
    f: collections.defaultdict[str, list[int]] = {}
    g: tuple[int, ...] = ()
    h: tuple[int, str, Optional[float]] = (1, "a", None)
    i: conlist(int, min_length=1, max_length=3) = [1]
    j: dict[Mixed, int] = {}
    k: dict[Annotated[str, Field(pattern="^a")], int] = {}
    ll: list[dict[str, set[uuid.UUID]]] = []
    m: Alias = {}
    n: Recursive = 1
    o: list = []
    p: dict = {}
    q: Any = None
    r: object = None


class Camel(BaseModel):
    model_config = ConfigDict(
        title="In camels",
        alias_generator=to_camel,
        populate_by_name=True,
        json_schema_extra=lambda schema: schema.update({"x-camel": True}),
        use_enum_values=True,
        extra="allow",
    )

    first_name: str
    last_name: str | None = Field(None, description="d", deprecated="Use another")
    mixed_kind: Mixed = Mixed.number


class TwoFaced(BaseModel):
    model_config = ConfigDict(
        alias_generator=AliasGenerator(validation_alias=str.upper, serialization_alias=str.title),
        json_schema_mode_override=None,
    )

    name: str
    other: int = 1


class Customised(BaseModel):
    before: Annotated[int, BeforeValidator(int, json_schema_input_type=str)]
    after: Annotated[int, AfterValidator(abs)] = -1
    serial: Annotated[int, PlainSerializer(str, return_type=str)] = 3
    schema_: Annotated[Any, WithJsonSchema({"type": "string", "format": "mine"})] = Field(
        None, alias="schema"
    )
    skipped: int | SkipJsonSchema[None] = None
    extra: str = Field("x", json_schema_extra={"x-extra": [1, None]}, examples=["y", None])
    titled: int = Field(1, title="A title", repr=False, frozen=True)
    nullable: Optional[int] = Field(...)

    @field_validator("after")
    @classmethod
    def check(cls, value: int) -> int:
        return value


def kind_of(value: Any) -> str:
    return "camel" if "firstName" in value else "scalars"


Choice = Annotated[
    Union[Annotated[Camel, Tag("camel")], Annotated[TwoFaced, Tag("scalars")]],
    Discriminator(kind_of),
]


@pydantic.dataclasses.dataclass
class Data:
    """Data of pydantic."""

    a: int
    model: Camel | None = None
    b: list[str] = pydantic.Field(default_factory=list, max_length=2)


class Deep(BaseModel, Generic[T, K]):
    value: T
    others: dict[K, list[T]] = {}


class ByKey(RootModel[dict[str, Deep[int, str]]]):
    """By key."""


class Outer(BaseModel):
    class Inner(BaseModel):
        a: int = 1

    inner: Inner = Inner()
    data: Data | None = None
    choice: Choice | None = None


@app.post("/scalars")
def scalars(body: Scalars) -> Scalars: ...


@app.post("/containers")
def containers(body: Containers) -> Containers: ...


@app.post("/camel", response_model_by_alias=False)
def camel(body: Camel) -> Camel: ...


@app.post("/two-faced")
def two_faced(body: TwoFaced) -> list[TwoFaced]: ...


@app.post("/customised")
def customised(body: Customised) -> Customised: ...


@app.post("/choice")
def choice(body: Choice) -> Choice: ...


@app.post("/data")
def data(body: Data) -> dict[str, Data]: ...


@app.post("/deep")
def deep(body: Deep[Camel, str]) -> Deep[list[int], str] | Deep[Mixed, str]: ...


@app.post("/by-key")
def by_key(body: ByKey) -> ByKey: ...


@app.post("/outer")
def outer(body: Outer, default: Camel = Camel(firstName="x")) -> Outer | None: ...


@app.post("/defaults")
def defaults(
    body: Annotated[dict[str, int], Body()] = {"a": 1},
    camel: Annotated[Camel, Body(title="Camel", description="One")] = {"firstName": "y"},
): ...


@app.get("/params/{user_id}/{flag}/{when}")
def params(
    user_id: UserId,
    flag: Flag,
    when: Annotated[datetime.datetime, Path(description="When", examples=["2030-01-01T00:00:00"])],
    mixed: Mixed = Mixed.text,
    one: One = One.only,
    positive: PositiveInt = 1,
    amount: decimal.Decimal | None = None,
    address: ipaddress.IPv4Address | None = None,
    sequence: Annotated[Sequence[int], Query()] = (),
    frozen: Annotated[frozenset[str], Query(max_length=1)] = frozenset(),
    literal: Literal["a", 1] | None = None,
    either: Annotated[int | str, Query(union_mode="left_to_right")] = 1,
    size: ByteSize = 1,
    custom: Annotated[int, WithJsonSchema({"type": "integer", "x-custom": 1}), Query()] = 1,
    validated: Annotated[str, AfterValidator(str.upper), Query(max_length=2)] = "a",
    nothing: None = None,
): ...


class CamelFilter(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="forbid")

    page_size: int = 10
    sort_by: list[str] = []


class Extended(CamelFilter):
    search_text: str | None = None


@app.get("/filters")
def filters(filter: Annotated[Extended, Query()]): ...


def body_dependency(camel: Camel, extra: Annotated[int, Body()] = 1): ...


def optional_filters(filter: Annotated[CamelFilter | None, Query()] = None): ...


@app.put("/dependency-body")
def dependency_body(
    two: TwoFaced,
    one: Annotated[None, Depends(body_dependency)],
    other: Annotated[None, Depends(optional_filters)],
): ...


@app.put("/only-dependency-body", dependencies=[Depends(body_dependency)])
def only_dependency_body(): ...
