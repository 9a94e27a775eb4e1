"""Bodies, JSON and forms, mean what they mean to FastAPI."""

from __future__ import annotations

import json
from typing import Any

from twins import Call, answers, assert_same, for_justapi, load, post

HEAD = """
from typing import Annotated, Any, Literal, Union, NamedTuple, Generic, TypeVar
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from typing_extensions import TypedDict
from fastapi import FastAPI, Body, Form, File, UploadFile, Depends, Request, Query
from pydantic import BaseModel, Field, RootModel, field_validator, model_validator, ConfigDict, EmailStr
app = FastAPI()
class Image(BaseModel):
    url: str
    name: str = "unnamed"
class Item(BaseModel):
    name: str
    price: float
    tax: float | None = None
    tags: set[str] = set()
    images: list[Image] | None = None
class User(BaseModel):
    username: str = Field(min_length=2)
    age: int | None = Field(default=None, ge=0)
"""


def raw(url: str, content: bytes | str, content_type: str | None = "application/json") -> Call:
    headers = {} if content_type is None else {"content-type": content_type}
    return post(url, content=content, headers=headers)


def as_parts(form: dict[str, str | list[str]]) -> list[tuple[str, tuple[None, str]]]:
    """The fields of a form for a multipart body."""
    pairs = [(k, v) for k, vs in form.items() for v in (vs if isinstance(vs, list) else [vs])]
    return [(name, (None, value)) for name, value in pairs]


def test_one_model_is_the_body() -> None:
    program = (
        HEAD
        + """
@app.post("/item")
def create(item: Item): return item
@app.post("/async")
async def create_async(item: Item): return {"item": item, "type": type(item).__name__}
@app.post("/optional")
async def optional(item: Item | None = None): return {"item": item}
@app.put("/items/{item_id}")
async def update(item_id: int, item: Item, q: str | None = None): return [item_id, item, q]
"""
    )
    good = {"name": "a", "price": 1.5, "tags": ["x", "x"], "images": [{"url": "u"}]}
    assert_same(
        program,
        post("/item", json=good),
        post("/async", json=good),
        post("/item", json={}),
        post("/item", json={"name": 3, "price": "x", "tags": 4, "images": [{"name": 1}, 3]}),
        post("/item", json=[1]),
        post("/item", json=None),
        post("/item", json="text"),
        post("/item"),
        post("/optional"),
        post("/optional", json=None),
        post("/optional", json=good),
        post("/optional", json={"name": 1}),
        raw("/item", "{"),
        raw("/item", ""),
        raw("/item", '{"name": "a", "price": 1,}'),
        raw("/item", "[1, 2"),
        raw("/item", '{"name": "a", "price": NaN}'),
        raw("/item", '{"name": "a", "name": "b", "price": 1}'),
        raw("/item", '{"name": "a", "price": 1e400}'),
        raw("/item", ' \n {"name": "a", "price": 1} \n'),
        raw("/item", '\ufeff{"name": "a", "price": 1}'.encode()),
        raw("/item", json.dumps(good).encode("utf-16")),
        raw("/item", "[" * 100000),
        raw("/item", b'{"name": "\xff", "price": 1}'),
        Call("PUT", "/items/3?q=x", {"json": good}),
        Call("PUT", "/items/x", {"json": {"name": 1}}),
    )


def test_content_types_of_json() -> None:
    program = (
        HEAD
        + """
@app.post("/item")
def create(item: User): return item
loose = FastAPI(strict_content_type=False)
@loose.post("/item")
def create_loosely(item: User): return item
app.mount("/loose", loose)
"""
    )
    body = '{"username": "me"}'
    assert_same(
        program,
        raw("/item", body),
        raw("/item", body, "application/json; charset=utf-8"),
        raw("/item", body, "application/problem+json"),
        raw("/item", body, "APPLICATION/JSON"),
        raw("/item", body, "text/plain"),
        raw("/item", body, "application/x-www-form-urlencoded"),
        raw("/item", body, "application/geo+json-seq"),
        raw("/item", body, None),
        raw("/item", body, "nonsense"),
        raw("/loose/item", body, None),
        raw("/loose/item", body, "text/plain"),
    )


def test_several_body_parameters_are_members() -> None:
    program = (
        HEAD
        + """
@app.put("/two")
async def two(item: Item, user: User): return [item, user]
@app.put("/scalar")
async def scalar(item: Item, importance: Annotated[int, Body(gt=0)], q: str | None = None):
    return [item, importance, q]
@app.put("/embed")
async def embed(item: Annotated[Item, Body(embed=True)]): return item
@app.put("/optional")
async def optional(item: Item | None = None, user: User | None = None): return [item, user]
@app.put("/only-scalar")
async def only_scalar(n: Annotated[int, Body()]): return n
@app.put("/only-scalar-embedded")
async def only_scalar_embedded(n: Annotated[int, Body(embed=True)] = 4): return n
@app.put("/alias")
async def alias(a: Annotated[int, Body(alias="theA")], b: Annotated[list[int], Body()] = []):
    return [a, b]
"""
    )
    item = {"name": "a", "price": 1}
    calls = [
        ("/two", {"item": item, "user": {"username": "me"}}),
        ("/two", {"item": item}),
        ("/two", {"item": {}, "user": {"username": "m", "age": -1}}),
        ("/two", []),
        ("/two", None),
        ("/two", "x"),
        ("/two", 3),
        ("/scalar?q=3", {"item": item, "importance": 4}),
        ("/scalar", {"item": item, "importance": 0}),
        ("/scalar", {"importance": "x"}),
        ("/embed", {"item": item}),
        ("/embed", item),
        ("/embed", {"item": None}),
        ("/optional", {}),
        ("/optional", {"user": {"username": "me"}}),
        ("/optional", {"user": None, "item": 3}),
        ("/only-scalar", 3),
        ("/only-scalar", "x"),
        ("/only-scalar-embedded", {"n": 5}),
        ("/only-scalar-embedded", {}),
        ("/only-scalar-embedded", 5),
        ("/alias", {"theA": 1, "b": [1]}),
        ("/alias", {"a": 1, "b": [1, "x"]}),
    ]
    assert_same(
        program,
        *[Call("PUT", url, {"json": body}) for url, body in calls],
        Call("PUT", "/two", {"content": b"{", "headers": {"content-type": "application/json"}}),
        Call("PUT", "/two", {"content": b"{}", "headers": {"content-type": "text/plain"}}),
        Call("PUT", "/two"),
        Call("PUT", "/optional"),
        Call("PUT", "/only-scalar-embedded"),
    )


def test_types_of_bodies() -> None:
    program = (
        HEAD
        + """
@dataclass
class Point:
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)
class Movie(TypedDict):
    title: str
    year: int
class Pair(NamedTuple):
    a: int
    b: str = "b"
T = TypeVar("T")
class Page(BaseModel, Generic[T]):
    items: list[T]
    total: int
class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int
class Dog(BaseModel):
    kind: Literal["dog"]
    good: bool
class Root(RootModel[list[int]]): pass
class Checked(BaseModel):
    a: int
    b: int
    @field_validator("a")
    @classmethod
    def even(cls, v):
        if v % 2: raise ValueError("a must be even")
        return v
    @model_validator(mode="after")
    def order(self):
        if self.a > self.b: raise ValueError("a after b")
        return self
class Times(BaseModel):
    d: date
    at: datetime
    cost: Decimal
    either: int | str
    when: date | str
class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    n: int
    d: date | None = None

@app.post("/dict")
async def dict_(d: dict): return d
@app.post("/dict-int")
async def dict_int(d: dict[int, float]): return d
@app.post("/list")
async def list_(items: list[Image]): return items
@app.post("/list-any")
async def list_any(items: list): return items
@app.post("/any")
async def any_(v: Annotated[Any, Body()]): return v
@app.post("/dataclass")
async def dataclass_(p: Point): return [p, type(p).__name__]
@app.post("/typeddict")
async def typeddict(m: Movie): return m
@app.post("/namedtuple")
async def namedtuple(p: Annotated[Pair, Body()]): return p
@app.post("/generic")
async def generic(p: Page[Image]): return p
@app.post("/union")
async def union(p: Cat | Dog): return [p, type(p).__name__]
@app.post("/tagged")
async def tagged(p: Annotated[Cat | Dog, Body(discriminator="kind")]): return [p, type(p).__name__]
@app.post("/root")
async def root(r: Root): return r
@app.post("/checked")
async def checked(c: Checked): return c
@app.post("/times")
async def times(t: Times): return [t, type(t.either).__name__, type(t.when).__name__]
@app.post("/strict")
async def strict(s: Strict): return s
@app.post("/bytes")
async def bytes_(b: Annotated[bytes, Body()]): return b
@app.post("/set")
async def set_(b: set[int]): return sorted(b)
@app.post("/optional-list")
async def optional_list(b: list[int] | None = None): return {"b": b}
"""
    )
    calls = [
        ("/dict", {"a": [1, {"b": None}]}),
        ("/dict", [1]),
        ("/dict-int", {"1": 2, "3": 4.5}),
        ("/dict-int", {"x": 2, "3": "y"}),
        ("/list", [{"url": "a"}, {"url": "b", "name": "c"}]),
        ("/list", [{"url": 1}, {}]),
        ("/list", {"url": 1}),
        ("/list-any", [1, "a", None]),
        ("/any", 3),
        ("/any", None),
        ("/any", {"a": 1}),
        ("/dataclass", {"x": 1}),
        ("/dataclass", {"x": "n", "tags": [1]}),
        ("/typeddict", {"title": "a", "year": "2000"}),
        ("/typeddict", {"title": 1}),
        ("/namedtuple", [1]),
        ("/namedtuple", {"a": 1, "b": "x"}),
        ("/namedtuple", ["x", 2]),
        ("/generic", {"items": [{"url": "x"}], "total": 1}),
        ("/generic", {"items": [{}]}),
        ("/union", {"kind": "cat", "lives": 9}),
        ("/union", {"kind": "dog", "good": "yes"}),
        ("/union", {"kind": "cow"}),
        ("/tagged", {"kind": "dog", "good": True}),
        ("/tagged", {"kind": "cow"}),
        ("/tagged", {}),
        ("/root", [1, 2]),
        ("/root", [1, "x"]),
        ("/checked", {"a": 2, "b": 3}),
        ("/checked", {"a": 1, "b": 3}),
        ("/checked", {"a": 4, "b": 3}),
        (
            "/times",
            {"d": "2020-01-02", "at": "2020-01-02T03:04:05Z", "cost": "1.10", "either": "1", "when": "2020-01-01"},
        ),
        ("/times", {"d": "x", "at": 1, "cost": 1.10, "either": 1, "when": 3}),
        ("/times", {"d": 0, "at": 1.5, "cost": 3, "either": 1.0, "when": "x"}),
        ("/strict", {"n": 1}),
        ("/strict", {"n": "1"}),
        ("/strict", {"n": 1, "d": "2020-01-01"}),
        ("/bytes", "abc"),
        ("/set", [3, 1, 3]),
        ("/optional-list", None),
        ("/optional-list", [1]),
    ]  # fmt: skip
    assert_same(program, *[post(url, json=body) for url, body in calls])


def test_models_beside_each_other_in_one_form() -> None:
    program = (
        HEAD
        + """
class Profile(BaseModel):
    name: str
class Preferences(BaseModel):
    limit: int = Field(10, ge=1)
    tags: list[str] = Field(default_factory=list)
class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int = 0
class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int = 0
class Person(BaseModel):
    kind: Literal["person"]
    name: str
class Company(BaseModel):
    kind: Literal["company"]
    names: list[str]
@app.post("/two")
async def two(
    profile: Annotated[Profile, Form()],
    preferences: Annotated[Preferences, Form()],
    token: Annotated[str, Form()],
): return [profile, preferences, token]
def profile_of(profile: Annotated[Profile, Form()]): return profile
@app.post("/dependency")
def dependency(
    profile: Annotated[Profile, Depends(profile_of)], token: Annotated[str, Form()]
): return [profile, token]
@app.post("/loose")
async def loose(a: Annotated[Loose, Form()], b: Annotated[Profile | None, Form()] = None):
    return [a.model_dump(), b]
@app.post("/strict")
async def strict(a: Annotated[Strict, Form()], token: Annotated[str, Form()] = ""):
    return [a, token]
@app.post("/maybe")
async def maybe(profile: Annotated[Profile | None, Form()] = None): return profile
@app.post("/tagged")
async def tagged(
    contact: Annotated[Person | Company, Form(discriminator="kind")],
    token: Annotated[str, Form()] = "",
): return [contact, token]
@app.post("/untagged")
async def untagged(contact: Annotated[Preferences | Profile | None, Form()] = None):
    return [type(contact).__name__, contact]
"""
    )
    paths = ["/two", "/dependency", "/loose", "/strict", "/maybe", "/tagged", "/untagged"]
    forms: list[dict[str, str | list[str]]] = [
        {},
        {"name": "n", "token": "t"},
        {"name": "n", "token": "t", "limit": "2", "tags": ["a", "b"]},
        {"name": ["n", "m"], "token": ["t", "u"], "limit": ["2", "3"], "tags": "a"},
        {"name": "", "token": "t", "limit": "0"},
        {"kind": "person", "name": "n"},
        {"kind": "company", "names": "only"},
        {"kind": "company", "name": "n"},
        {"kind": ["company", "person"], "name": "n", "names": ["x", "y"]},
        {"kind": "robot", "name": "n"},
        {"a": "1", "more": ["x", "y"], "other": "z"},
        {"a": "x"},
        {"limit": "5"},
    ]
    assert_same(
        program,
        *(post(path, data=form) for path in paths for form in forms),
        *(post(path, files=as_parts(form)) for path in paths for form in forms if form),
    )


def test_forms() -> None:
    program = (
        HEAD
        + """
class Login(BaseModel):
    username: str
    password: str
    remember: bool = False
    tags: list[str] = []
class StrictForm(BaseModel):
    model_config = {"extra": "forbid"}
    a: int
@app.post("/login")
async def login(username: Annotated[str, Form()], password: Annotated[str, Form()]):
    return [username, password]
@app.post("/sync")
def sync(n: Annotated[int, Form(gt=1)] = 5, tags: Annotated[list[str], Form()] = ["x"]): return [n, tags]
@app.post("/model")
async def model(data: Annotated[Login, Form()]): return data
@app.post("/strict")
async def strict(data: Annotated[StrictForm, Form()]): return data
@app.post("/alias")
async def alias(a: Annotated[str, Form(alias="the-a")] = "d"): return a
@app.post("/optional")
async def optional(a: Annotated[str | None, Form()] = None): return {"a": a}
@app.post("/mixed")
async def mixed(request: Request, a: Annotated[str, Form()], q: int = 1):
    return [a, q, dict(await request.form())]
def both(a: Annotated[str, Form()], b: Annotated[int, Form()]): return [a, b]
@app.post("/dependency")
async def dependency(v: Annotated[list, Depends(both)], c: Annotated[str, Form()]): return [v, c]
"""
    )
    form = {"username": "me", "password": "secret", "remember": "on", "more": "x"}
    assert_same(
        program,
        post("/login", data=form),
        post("/login", data={"username": ""}),
        post("/login"),
        post("/login", json=form),
        post("/login", files={"x": b"y"}, data=form),
        post("/sync"),
        post("/sync", data={"n": "1", "tags": ["a", "b"]}),
        post("/sync", data={"n": "7", "tags": "a"}),
        post("/sync", data={"n": ""}),
        post("/model", data=form),
        post("/model", data={"username": "a", "tags": ["1", "2"]}),
        post("/model", data={}),
        post("/strict", data={"a": "1"}),
        post("/strict", data={"a": "x", "b": "2"}),
        post("/alias", data={"the-a": "v"}),
        post("/alias", data={"a": "v"}),
        post("/optional"),
        post("/optional", data={"a": ""}),
        post("/mixed?q=4", data={"a": "1", "b": "2"}),
        post("/mixed?q=x", data={"b": "2"}),
        post("/dependency", data={"a": "1", "b": "2", "c": "3"}),
        post("/dependency", data={"b": "x"}),
    )


def test_files() -> None:
    program = (
        HEAD
        + """
@app.post("/bytes")
async def bytes_(file: Annotated[bytes, File()]): return len(file)
@app.post("/upload")
async def upload(file: UploadFile):
    return [file.filename, file.content_type, file.size, (await file.read()).decode()]
@app.post("/sync")
def sync(file: UploadFile): return [file.filename, file.file.read().decode()]
@app.post("/optional")
async def optional(file: UploadFile | None = None): return {"f": file and file.filename}
@app.post("/optional-bytes")
async def optional_bytes(file: Annotated[bytes | None, File()] = None): return {"f": file and len(file)}
@app.post("/many")
async def many(files: list[UploadFile]): return [f.filename for f in files]
@app.post("/many-bytes")
async def many_bytes(files: Annotated[list[bytes], File()]): return [len(f) for f in files]
@app.post("/mixed")
async def mixed(file: Annotated[bytes, File()], fileb: Annotated[UploadFile, File()], token: Annotated[str, Form()]):
    return [len(file), fileb.content_type, token]
"""
    )
    file = ("a.txt", b"hello", "text/plain")
    assert_same(
        program,
        post("/bytes", files={"file": b"12345"}),
        post("/bytes", data={"file": "12345"}),
        post("/bytes"),
        post("/upload", files={"file": file}),
        post("/upload", data={"file": "text"}),
        post("/upload", files={"other": file}),
        post("/sync", files={"file": file}),
        post("/optional"),
        post("/optional", files={"file": file}),
        post("/optional-bytes"),
        post("/optional-bytes", files={"file": file}),
        post("/many", files=[("files", file), ("files", ("b.txt", b"x"))]),
        post("/many", files=[("files", file)]),
        post("/many"),
        post("/many-bytes", files=[("files", file), ("files", b"xyz")]),
        post("/mixed", files={"file": b"1", "fileb": file}, data={"token": "t"}),
        post("/mixed", files={"file": b"1"}),
        raw("/upload", b"no multipart", "multipart/form-data"),
    )


def test_files_have_aliases() -> None:
    program = (
        HEAD
        + """
from pydantic import AliasChoices, AliasPath
@app.post("/one")
async def one(
    file: Annotated[UploadFile, File(alias="legacy", validation_alias=AliasChoices("first", "second"))],
): return [file.filename, (await file.read()).decode()]
@app.post("/bytes")
async def bytes_(
    file: Annotated[bytes, File(validation_alias=AliasChoices("first", "second"))],
): return file.decode()
@app.post("/many")
def many(
    files: Annotated[list[UploadFile], File(validation_alias=AliasChoices("first", "second"))],
    token: Annotated[str, Form(validation_alias=AliasChoices("t", "u"))] = "none",
): return [[f.filename for f in files], token]
@app.post("/optional")
def optional(
    file: Annotated[UploadFile | None, File(validation_alias=AliasChoices("first", "second"))] = None,
): return file and file.filename
@app.post("/plain")
def plain(file: Annotated[bytes, File(alias="f", validation_alias="v")]): return len(file)
"""
    )
    file = ("a.txt", b"hello", "text/plain")
    paths = ["/one", "/bytes", "/many", "/optional", "/plain"]
    names = ["first", "second", "legacy", "file", "files", "f", "v"]
    assert_same(
        program,
        *[post(path) for path in paths],
        *[post(path, files={name: file}) for path in paths for name in names],
        *[post(path, files=[("second", file), ("first", ("b.txt", b"x"))]) for path in paths],
        *[post("/many", files={"second": file}, data={name: "x"}) for name in ("t", "u", "token")],
    )


def test_what_breaks_fastapi_is_refused() -> None:
    """Bodies that cannot be echoed as JSON are a 500 there and a 4xx here."""
    program = (
        HEAD
        + """
@app.post("/item")
def create(item: Item): return item
@app.post("/text")
def text(text: Annotated[str, Body()]): return text
"""
    )
    app = load(for_justapi(program), "refusals")["app"]
    found = answers(
        app,
        raw("/item", b"\xff\xfe\x00", "application/octet-stream"),
        raw("/item", b"\xff\xfe\x00"),
        raw("/item", r'{"name": "\ud800", "price": 1}'),
        raw("/item", r'{"name": 1, "\ud800": 1}'),
        raw("/text", r'"\udfff"'),
        raw("/item", b"x" * 10_000_000),
        raw("/item", b"x" * 10_000_000, "text/plain"),
        post("/item", json=["x" * 10_000_000]),
        post("/item", json={"name": [1] * 100_000}),
        post("/item", json={"images": [1] * 10_000}),
        raw("/item", '{"price": NaN}'),
        raw("/item", '{"name": ' + "[" * 900 + "]" * 900 + "}"),
    )
    assert [answer.status for answer in found] == [
        422,
        400,
        422,
        422,
        422,
        422,
        422,
        422,
        422,
        422,
        422,
        422,
    ]
    assert all(len(json.dumps(answer.body)) < 100_000 for answer in found)


def test_deep_models_and_models_used_in_many_places() -> None:
    program = (
        HEAD
        + """
from typing import Optional
from pydantic import create_model
def chain(length):
    model = create_model("Link0", number=(int, 1))
    for index in range(1, length):
        model = create_model(f"Link{index}", inner=(Optional[model], None))
    return model
def pairs(length):
    model = create_model("Pair0", number=(int, ...))
    for index in range(1, length):
        model = create_model(f"Pair{index}", left=(Optional[model], None), right=(Optional[model], None))
    return model
def add(path, model):
    def handler(body): return body
    def values(body): return [body]
    handler.__annotations__ = {"body": model, "return": model}
    values.__annotations__ = {"body": dict[str, model], "return": list[dict[str, model]]}
    app.post(path)(handler)
    app.post(path + "/values")(values)
add("/55", chain(55))
add("/150", chain(150))
add("/pairs", pairs(20))
"""
    )
    calls = []
    for path, name in (("/55", "inner"), ("/150", "inner"), ("/pairs", "left")):
        for length in (1, 10, 54, 149):
            body: Any = {} if length > 20 or path == "/pairs" else {"number": 5}
            for _ in range(length if path != "/pairs" else min(length, 19)):
                body = {name: body}
            calls.append(post(path, json=body))
            calls.append(post(path, json={name: [body]}))
            calls.append(post(path + "/values", json={"a": body, "b": {}}))
    assert_same(program, *calls)


def test_a_default_that_is_filled_later() -> None:
    program = (
        HEAD
        + """
TAGS = []
COUNTS = {}
class Tagged(BaseModel):
    a: int = 1
    tags: list[str] = TAGS
class Counted(BaseModel):
    a: int = 1
    counts: dict[str, int] = COUNTS
@app.post("/tagged")
def tagged(model: Tagged) -> Tagged:
    TAGS.append(str(model.a))
    return model
@app.post("/counted")
def counted(model: Counted) -> Counted:
    COUNTS[str(model.a)] = model.a
    return model
"""
    )
    urls = ("/tagged", "/counted")
    assert_same(program, *[post(url, json={"a": a}) for a in (1, 2, 2, 3) for url in urls])
