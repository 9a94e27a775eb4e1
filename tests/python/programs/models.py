"""Models: nested, generic, recursive, discriminated, going in and coming out."""

import dataclasses
import datetime
import enum
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar, Union

from fastapi import Body, FastAPI, Response, status
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    computed_field,
    field_serializer,
)
from typing_extensions import TypedDict

app = FastAPI(title="Models", version="1", description="All *kinds* of models", summary="Models")

T = TypeVar("T")


class Kind(enum.Enum):
    a = "a"
    b = "b"


class Image(BaseModel):
    url: str
    size: tuple[int, int] = (1, 2)


class Item(BaseModel):
    """An item.

    With two lines.
    \f
    Not shown.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "Foo", "price": 3}]})

    name: str = Field(examples=["Foo"], title="The name")
    description: str | None = None
    price: float = Field(gt=0)
    tags: set[str] = set()
    images: list[Image] | None = None
    kind: Kind = Kind.a
    extra: dict[str, Any] = {}
    created: datetime.datetime | None = None
    secret: str = Field(default="x", exclude=True)
    raw: bytes = b""


class Page(BaseModel, Generic[T]):
    items: list[T]
    total: int = 0
    next: "Page[T] | None" = None


class Node(BaseModel):
    value: int
    children: list["Node"] = []
    parent: "Node | None" = None


class Cat(BaseModel):
    type: Literal["cat"]
    lives: int = 9


class Dog(BaseModel):
    type: Literal["dog"] = "dog"
    barks: bool


Pet = Annotated[Union[Cat, Dog], Field(discriminator="type")]


class Computed(BaseModel):
    width: float = 1
    alias_in: int = Field(1, validation_alias="aliasIn")
    both: int = Field(2, alias="bothWays")

    @computed_field
    @property
    def area(self) -> float:
        """The area."""
        return self.width**2

    @field_serializer("width")
    def as_text(self, value: float) -> str:
        return str(value)


class Tags(RootModel[list[str]]):
    root: list[str] = []


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0
    label: str | None = None
    tags: list[str] = dataclasses.field(default_factory=list)


class Options(TypedDict, total=False):
    verbose: bool
    level: int


class Pair(NamedTuple):
    left: int
    right: str = "r"


class User(BaseModel):
    name: str


class UserIn(User):
    password: str


@app.post("/items", response_model=Item, status_code=status.HTTP_201_CREATED)
def create_item(item: Item): ...


@app.put("/items/{item_id}")
def update_item(item_id: int, item: Item, user: User, importance: Annotated[int, Body(gt=0)]): ...


@app.patch("/items/embedded")
def embed(item: Annotated[Item, Body(embed=True)]) -> Item: ...


@app.post("/optional")
def optional(item: Item | None = None, other: Annotated[User | None, Body()] = None): ...


@app.post("/single-optional")
def single_optional(item: Item | None = None) -> Item | None: ...


@app.post("/scalars")
def scalars(
    a: Annotated[int, Body()], b: Annotated[str, Body(title="Bee", examples=["x"])] = "b"
): ...


@app.post("/one-scalar")
def one_scalar(a: Annotated[list[int], Body(min_length=1)]) -> list[str]: ...


@app.post("/plain")
def plain(body: dict[str, int]) -> dict[str, float | None]: ...


@app.post("/any")
def anything(body: Any = Body(None)) -> Any: ...


@app.get("/pages")
def pages() -> Page[Item]: ...


@app.get("/pages/users", response_model=Page[User], response_model_exclude_unset=True)
def user_pages(): ...


@app.post("/nodes")
def nodes(node: Node) -> Node: ...


@app.post("/pets")
def pets(pet: Pet) -> list[Pet]: ...


@app.post("/undiscriminated")
def undiscriminated(pet: Cat | Dog | list[Cat]) -> Union[Cat, Dog]: ...


@app.post("/computed", response_model=Computed)
def computed(body: Computed): ...


@app.post("/tags")
def tags(tags: Tags) -> Tags: ...


@app.post("/points")
def points(point: Point) -> list[Point]: ...


@app.post("/options")
def options(options: Options) -> Options: ...


@app.post("/pairs")
def pairs(pair: Annotated[Pair, Body()]) -> Pair: ...


@app.post("/users", response_model=User)
def users(user: UserIn) -> Any: ...


@app.get("/none", response_model=None)
def none() -> Item: ...


@app.delete("/gone", status_code=204)
def gone() -> None: ...


@app.get("/response")
def response() -> Response: ...


@app.get("/kinds")
def kinds(kind: Kind) -> list[Kind]: ...


@app.post("/examples")
def examples(
    item: Annotated[
        Item,
        Body(
            description="An item",
            openapi_examples={
                "normal": {"summary": "Normal", "description": "d", "value": {"name": "Foo"}},
                "bad": {"value": {"price": "x", "when": None}},
            },
        ),
    ],
): ...


@app.post("/example")
def example(item: Annotated[Item, Body(example={"name": "one"})]): ...


@app.post("/media", response_model=list[int])
def media(body: Annotated[bytes, Body(media_type="application/octet-stream")]): ...
