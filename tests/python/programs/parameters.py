"""Parameters of every place and kind."""

import datetime
import decimal
import enum
import uuid
from typing import Annotated, Literal, Optional, Union

from fastapi import Cookie, Depends, FastAPI, Header, Path, Query
from pydantic import AliasChoices, BaseModel, ConfigDict, EmailStr, Field, HttpUrl, Json

app = FastAPI(title="Parameters", version="2.0")


class Colour(str, enum.Enum):
    """The colours there are."""

    red = "red"
    blue = "blue"


class Size(enum.IntEnum):
    small = 1
    large = 2


@app.get("/items/{item_id}")
def read_item(item_id: int, q: str | None = None, short: bool = False):
    """Reads an item.

    With *Markdown*.
    \f
    Not for the document.
    """


@app.get("/paths/{number}/{identifier}/{day}/{colour}/{rest:path}")
def read_path(
    number: Annotated[float, Path(title="The number", ge=0, lt=100, description="Between")],
    identifier: uuid.UUID,
    day: datetime.date,
    colour: Colour,
    rest: str,
    size: Size = Size.small,
): ...


@app.get("/queries")
def read_queries(
    needed: str,
    structured: Annotated[Json[list[int]], Query()],
    text: Annotated[str, Query(min_length=3, max_length=50, pattern="^a.*$")] = "abc",
    aliased: Annotated[str | None, Query(alias="item-query", deprecated=True)] = None,
    many: Annotated[list[str], Query()] = [],
    numbers: Annotated[set[int] | None, Query(title="Numbers", max_length=4)] = None,
    pair: Annotated[tuple[int, str], Query()] = (1, "a"),
    hidden: Annotated[str, Query(include_in_schema=False)] = "x",
    literal: Literal["a", "b", 3] = "a",
    optional: Optional[int] = None,
    union: Union[int, str, None] = None,
    moment: datetime.datetime | None = None,
    duration: datetime.timedelta = datetime.timedelta(seconds=5),
    at: datetime.time | None = None,
    amount: Annotated[decimal.Decimal, Query(max_digits=5, decimal_places=2)] = decimal.Decimal(
        "1.5"
    ),
    address: EmailStr | None = None,
    link: HttpUrl | None = None,
    raw: bytes = b"x",
    old_style: int = Query(default=3, gt=1, le=10, multiple_of=3, examples=[3, 6]),
    one_example: int = Query(default=3, example=6),
    named_examples: int = Query(
        default=3,
        openapi_examples={"three": {"summary": "Three", "value": 3}, "none": {"value": None}},
    ),
    validated: Annotated[
        int, Query(validation_alias="in-name", serialization_alias="out-name")
    ] = 1,
    chosen: Annotated[int, Query(validation_alias=AliasChoices("first", "second"))] = 1,
    factory: Annotated[list[int], Query(default_factory=lambda: [1, 2])] = ...,
): ...


@app.get("/headers")
def read_headers(
    user_agent: Annotated[str | None, Header()] = None,
    x_token: Annotated[list[str] | None, Header()] = None,
    strange_name: Annotated[str, Header(convert_underscores=False)] = "a",
    named: Annotated[str, Header(alias="X-Named", description="A header")] = "b",
    session: Annotated[str | None, Cookie()] = None,
    ads_id: Annotated[int, Cookie(alias="ads")] = 3,
): ...


class Filters(BaseModel):
    """Filters of a list."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(100, gt=0, le=100)
    offset: int = Field(0, ge=0, description="Where to begin")
    order_by: Literal["created_at", "updated_at"] = "created_at"
    tags: list[str] = []
    colour: Colour | None = Field(default=None, alias="the-colour")


class Common(BaseModel):
    host: str
    save_data: bool
    if_modified_since: str | None = None
    x_tag: list[str] = []


class Cookies(BaseModel):
    session_id: str
    fatebook_tracker: str | None = None


@app.get("/models")
def read_models(
    filters: Annotated[Filters, Query()],
    headers: Annotated[Common, Header()],
    cookies: Annotated[Cookies, Cookie()],
): ...


@app.get("/models/raw")
def read_raw_headers(headers: Annotated[Common, Header(convert_underscores=False)]): ...


def pagination(skip: int = 0, limit: int = Query(10, le=100)):
    return skip, limit


def nested(page: Annotated[tuple, Depends(pagination)], x_key: Annotated[str, Header()]):
    return page, x_key


class Checker:
    def __init__(self, word: str):
        self.word = word

    def __call__(self, q: str = ""):
        return self.word in q


@app.get("/dependencies", dependencies=[Depends(pagination), Depends(Checker("a"))])
def read_dependencies(
    both: Annotated[tuple, Depends(nested)], skip: int, page=Depends(pagination)
): ...


class Params:
    def __init__(self, q: str | None = None, size: Size = Size.large):
        self.q = q


@app.get("/classes/{item_id}")
def read_classes(
    params: Annotated[Params, Depends()], item_id: Annotated[str, Path(max_length=3)]
): ...
