"""What handlers return becomes the answer that FastAPI makes of it."""

from __future__ import annotations

from twins import Call, assert_same, get, post

HEAD = """
from typing import Annotated, Any, Generic, Iterable, AsyncIterable, NamedTuple, TypeVar, Union
from collections import deque
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from ipaddress import ip_address
from pathlib import PurePosixPath
from uuid import UUID
from typing_extensions import TypedDict
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Response, status
from fastapi.encoders import jsonable_encoder
from fastapi.responses import (
    FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, StreamingResponse,
)
from pydantic import BaseModel, ConfigDict, Field, SecretStr, computed_field, field_serializer
app = FastAPI()
class Item(BaseModel):
    name: str
    price: float = 10.5
    tags: list[str] = []
    owner: str | None = None
class UserIn(BaseModel):
    username: str
    password: str
class UserOut(BaseModel):
    username: str
class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    item_name: str = Field(alias="itemName")
"""


def test_plain_values() -> None:
    program = (
        HEAD
        + """
class Color(Enum):
    red = "red"
class Number(IntEnum):
    one = 1
class Text(str, Enum):
    a = "a"
@dataclass
class Point:
    x: int
    when: date = date(2020, 1, 2)
class Pair(NamedTuple):
    a: int
    b: str
class Plain:
    def __init__(self): self.a = 1; self._b = 2
class Secret(BaseModel):
    s: SecretStr = SecretStr("x")
class Shown(BaseModel):
    n: int = 2
    @computed_field
    def double(self) -> int: return self.n * 2
    @field_serializer("n")
    def show(self, n): return f"<{n}>"
values = {
    "none": None, "true": True, "int": 3, "big": 2**70, "float": 1.5, "exponent": 1e-7, "large": 1e22, "str": "é\\u2028\\n\\"",
    "list": [1, [2, (3,)]], "dict": {"a": {"b": [1]}, 1: 2, None: 3, True: 4, 1.5: 6}, "set": {1}, "frozenset": frozenset([2]),
    "deque": deque([1, 2]), "tuple": (1, "a"), "date": date(2020, 1, 2), "datetime": datetime(2020, 1, 2, 3, 4, 5, 6),
    "aware": datetime(2020, 1, 2, tzinfo=timezone.utc), "time": time(1, 2), "delta": timedelta(seconds=90.5),
    "decimal": Decimal("1.10"), "decimal-int": Decimal("3"), "uuid": UUID(int=5), "ip": ip_address("::1"), "path": PurePosixPath("/a"),
    "bytes": b"abc", "enum": Color.red, "int-enum": Number.one, "str-enum": Text.a, "dataclass": Point(1), "pair": Pair(1, "b"),
    "model": Item(name="a"), "models": [Item(name="a"), {"m": Item(name="b")}], "aliased": Aliased(item_name="x"), "secret": Secret(),
    "computed": Shown(), "plain": Plain(), "generator": None, "key": {Text.a: 1, Color.red: 2, UUID(int=1): 3, date(2020, 1, 1): 4},
    "nan": float("nan"), "inf": [float("inf")], "object": object(), "function": len, "bad-bytes": b"\\xff",
}
@app.get("/sync/{name}")
def sync(name: str): return values[name]
@app.get("/async/{name}")
async def async_(name: str): return values[name]
@app.get("/generator")
def generator(): return (i for i in range(3))
"""
    )
    names = [
        "none", "true", "int", "big", "float", "exponent", "large", "str", "list", "dict", "set", "frozenset", "deque", "tuple",
        "date", "datetime", "aware", "time", "delta", "decimal", "decimal-int", "uuid", "ip", "path", "bytes", "enum", "int-enum",
        "str-enum", "dataclass", "pair", "model", "models", "aliased", "secret", "computed", "plain", "key", "nan", "inf",
        "object", "function", "bad-bytes",
    ]  # fmt: skip
    assert_same(
        program,
        *[get(f"/sync/{name}") for name in names],
        *[get(f"/async/{name}") for name in names],
        get("/generator"),
    )


def test_response_models() -> None:
    program = (
        HEAD
        + """
class Movie(TypedDict):
    title: str
    year: int
@dataclass
class Point:
    x: int
    y: int = 2
T = TypeVar("T")
class Page(BaseModel, Generic[T]):
    items: list[T]
class Orm:
    def __init__(self, **kw): self.__dict__.update(kw)
class OrmModel(BaseModel):
    model_config = ConfigDict(from_attributes=True)
    name: str
@app.post("/user", response_model=UserOut)
async def user(u: UserIn): return u
@app.post("/user-annotated")
async def user_annotated(u: UserIn) -> UserOut: return u
@app.post("/user-any", response_model=UserOut)
async def user_any(u: UserIn) -> Any: return u.model_dump()
@app.get("/list")
def list_() -> list[Item]: return [{"name": "a", "extra": 1}, Item(name="b", price=1)]
@app.get("/dict")
def dict_() -> dict[str, float]: return {"a": "1.5"}
@app.get("/typeddict")
def typeddict() -> Movie: return {"title": "a", "year": "2000", "more": 1}
@app.get("/dataclass")
def dataclass_() -> Point: return Point(1)
@app.get("/dataclass-dict")
def dataclass_dict() -> Point: return {"x": "1"}
@app.get("/generic")
def generic() -> Page[UserOut]: return {"items": [{"username": "a", "password": "b"}]}
@app.get("/orm")
def orm() -> OrmModel: return Orm(name="x", other=1)
@app.get("/orm-list", response_model=list[OrmModel])
def orm_list(): return [Orm(name="x")]
@app.get("/union", response_model=UserOut | Item)
def union(): return {"name": "a"}
@app.get("/optional")
def optional(yes: bool = False) -> Item | None: return Item(name="x") if yes else None
@app.get("/int")
def int_() -> int: return "5"
@app.get("/none-model", response_model=None)
def none_model() -> Item: return {"anything": 1}
@app.get("/response-annotated")
def response_annotated() -> Response: return PlainTextResponse("x")
@app.get("/response-subclass")
def response_subclass() -> RedirectResponse: return RedirectResponse("/elsewhere")
@app.get("/response-despite-model")
def response_despite_model() -> Item: return JSONResponse({"not": "checked"})
@app.get("/invalid")
def invalid() -> Item: return {"price": "x"}
@app.get("/alias")
def alias() -> Aliased: return {"itemName": "x"}
@app.get("/alias-off", response_model_by_alias=False)
def alias_off() -> Aliased: return Aliased(itemName="x")
@app.get("/aware")
def aware() -> datetime: return datetime(2020, 1, 1, tzinfo=timezone.utc)
@app.get("/decimal")
def decimal() -> dict[str, Decimal]: return {"d": Decimal("1.10")}
@app.get("/set")
def set_() -> set[int]: return {3}
@app.get("/bytes")
def bytes_() -> bytes: return b"x"
@app.get("/any")
def any_() -> Any: return Item(name="q")
@app.get("/object")
def object_() -> dict: return {"i": Item(name="q"), "d": date(2020, 1, 1)}
@app.get("/nan")
def nan() -> float: return float("nan")
"""
    )
    user = {"username": "a", "password": "b"}
    paths = [
        "/list", "/dict", "/typeddict", "/dataclass", "/dataclass-dict", "/generic", "/orm", "/orm-list", "/union", "/optional",
        "/optional?yes=1", "/int", "/none-model", "/response-annotated", "/response-subclass", "/response-despite-model", "/invalid",
        "/alias", "/alias-off", "/aware", "/decimal", "/set", "/bytes", "/any", "/object", "/nan",
    ]  # fmt: skip
    assert_same(
        program,
        post("/user", json=user),
        post("/user-annotated", json=user),
        post("/user-any", json=user),
        *[get(path) for path in paths],
    )


def test_data_that_looks_like_a_response() -> None:
    program = (
        HEAD
        + """
class Record(BaseModel):
    raw_headers: list[str] = ["a"]
    status_code: int = 201
    def __call__(self, *args): raise AssertionError("data is called")
class Wider(Record):
    more: int = 1
@dataclass
class Plain:
    raw_headers: list[str]
    status_code: int = 201
    def __call__(self, *args): raise AssertionError("data is called")
@app.get("/declared")
def declared() -> Record: return Record()
@app.get("/wider")
async def wider() -> Record: return Wider()
@app.get("/undeclared")
async def undeclared(): return Record()
@app.get("/waits")
def waits(response: Response):
    response.headers["x-a"] = "b"
    return Record()
@app.get("/dataclass")
def of_dataclass() -> Plain: return Plain(["a"])
@app.get("/dataclass-undeclared")
async def of_dataclass_undeclared(): return Plain(["a"])
"""
    )
    urls = [
        "/declared",
        "/wider",
        "/undeclared",
        "/waits",
        "/dataclass",
        "/dataclass-undeclared",
    ]
    assert_same(program, *[get(url) for url in urls])


def test_small_and_large_floats() -> None:
    program = (
        HEAD
        + """
FLOATS = [sign * digits * 10.0**exponent for sign in (1, -1) for digits in (1, 1.5, 9.999)
          for exponent in range(-8, 25)]
class Floats(BaseModel):
    floats: list[float]
@app.get("/plain")
def plain(): return FLOATS
@app.get("/keys")
def keys(): return {number: number for number in FLOATS}
@app.get("/model")
def model() -> Floats: return Floats(floats=FLOATS)
@app.get("/one/{index}")
def one(index: int) -> float: return FLOATS[index]
"""
    )
    urls = ["/plain", "/keys", "/model", *(f"/one/{index}" for index in range(0, 198, 7))]
    assert_same(program, *[get(url) for url in urls])


def test_parts_of_response_models() -> None:
    program = (
        HEAD
        + """
class Nested(BaseModel):
    item: Item
    items: list[Item] = []
    note: str | None = None
@app.get("/unset", response_model=Item, response_model_exclude_unset=True)
async def unset(): return {"name": "a", "price": 10.5}
@app.get("/unset-model", response_model_exclude_unset=True)
async def unset_model() -> Nested: return Nested(item=Item(name="x", owner=None))
@app.get("/defaults", response_model=Item, response_model_exclude_defaults=True)
async def defaults(): return {"name": "a", "price": 10.5, "tags": ["x"]}
@app.get("/none", response_model=Nested, response_model_exclude_none=True)
async def none(): return {"item": {"name": "a", "owner": None}}
@app.get("/include", response_model=Item, response_model_include={"name", "price"})
async def include(): return {"name": "a"}
@app.get("/include-list", response_model=Item, response_model_include=["name"])
async def include_list(): return {"name": "a"}
@app.get("/exclude", response_model=Item, response_model_exclude={"tags"})
async def exclude(): return {"name": "a"}
@app.get("/exclude-nested", response_model=Nested, response_model_exclude={"item": {"price"}, "items": {"__all__": {"tags"}}})
async def exclude_nested(): return {"item": {"name": "a"}, "items": [{"name": "b"}]}
@app.get("/with-class", response_model=Item, response_model_exclude_unset=True, response_class=JSONResponse)
async def with_class(): return {"name": "a"}
"""
    )
    paths = [
        "/unset", "/unset-model", "/defaults", "/none", "/include", "/include-list", "/exclude", "/exclude-nested", "/with-class",
    ]  # fmt: skip
    assert_same(program, *[get(path) for path in paths])


def test_response_classes() -> None:
    program = (
        HEAD
        + """
class Custom(Response):
    media_type = "application/xml"
    def render(self, content): return f"<x>{content}</x>".encode()
class Pretty(JSONResponse):
    media_type = "application/vnd.pretty+json"
    def render(self, content):
        import json
        return json.dumps(content, indent=1).encode()
@app.get("/html", response_class=HTMLResponse)
async def html(): return "<h1>é</h1>"
@app.get("/text", response_class=PlainTextResponse)
def text(): return "text"
@app.get("/text-int", response_class=PlainTextResponse)
def text_int(): return 3
@app.get("/redirect", response_class=RedirectResponse)
async def redirect(): return "https://example.com/ä?x=1"
@app.get("/redirect-302", response_class=RedirectResponse, status_code=302)
async def redirect_302(): return "/x"
@app.get("/custom", response_class=Custom)
async def custom(): return {"a": 1}
@app.get("/pretty", response_class=Pretty)
async def pretty() -> Item: return Item(name="a")
@app.get("/pretty-list", response_class=Pretty)
async def pretty_list(): return [Item(name="a"), date(2020, 1, 1)]
@app.get("/response", response_class=Response)
async def response(): return "raw"
@app.get("/returned-html")
async def returned_html(): return HTMLResponse("x", status_code=201, headers={"X-A": "b"})
@app.get("/returned-bytes")
async def returned_bytes(): return Response(b"\\x00", media_type="application/octet-stream")
@app.get("/returned-streaming")
async def returned_streaming():
    async def parts():
        for i in range(3): yield f"part {i}\\n"
    return StreamingResponse(parts(), media_type="text/plain")
@app.get("/returned-sync-streaming")
def returned_sync_streaming(): return StreamingResponse(iter([b"a", b"b"]), status_code=206)
other = FastAPI(default_response_class=PlainTextResponse)
router = APIRouter(default_response_class=HTMLResponse)
@other.get("/a")
def a(): return "a"
@router.get("/b")
def b(): return "b"
@router.get("/c", response_class=JSONResponse)
def c(): return "c"
other.include_router(router)
other.include_router(router, prefix="/again", default_response_class=PlainTextResponse)
app.mount("/other", other)
"""
    )
    paths = [
        "/html", "/text", "/text-int", "/redirect", "/redirect-302", "/custom", "/pretty", "/pretty-list", "/response", "/returned-html",
        "/returned-bytes", "/returned-streaming", "/returned-sync-streaming", "/other/a", "/other/b", "/other/c", "/other/again/b",
    ]  # fmt: skip
    assert_same(program, *[get(path) for path in paths])


def test_status_codes() -> None:
    program = (
        HEAD
        + """
@app.post("/created", status_code=201)
def created(): return {"a": 1}
@app.post("/named", status_code=status.HTTP_202_ACCEPTED)
def named() -> Item: return Item(name="a")
@app.delete("/gone", status_code=204)
async def gone(): return None
@app.delete("/gone-with-content", status_code=204)
async def gone_with_content(): return {"a": 1}
@app.get("/not-modified", status_code=304)
def not_modified(): return "x"
@app.get("/dynamic")
def dynamic(response: Response, code: int): response.status_code = code; return {"a": 1}
@app.get("/dynamic-model")
async def dynamic_model(response: Response, code: int) -> Item: response.status_code = code; return Item(name="a")
"""
    )
    assert_same(
        program,
        post("/created"),
        post("/named"),
        Call("DELETE", "/gone"),
        Call("DELETE", "/gone-with-content"),
        get("/not-modified"),
        get("/dynamic?code=201"),
        get("/dynamic?code=204"),
        get("/dynamic?code=418"),
        get("/dynamic-model?code=201"),
        get("/dynamic-model?code=304"),
    )


def test_cookies_and_headers_of_answers() -> None:
    program = (
        HEAD
        + """
def cookies(response: Response): response.set_cookie("dep", "1", httponly=True, max_age=5)
@app.get("/cookies")
async def set_cookies(response: Response, d: Annotated[None, Depends(cookies)]):
    response.set_cookie("a", "1"); response.set_cookie("b", "2", secure=True, samesite="strict", path="/x")
    response.delete_cookie("old")
    response.headers.append("x-multi", "1"); response.headers.append("x-multi", "2")
    return "ok"
@app.get("/content-type")
async def content_type(response: Response): response.headers["content-type"] = "text/x"; return "ok"
"""
    )
    assert_same(program, get("/cookies"))


def test_streams_of_generators() -> None:
    program = (
        HEAD
        + """
from fastapi.sse import EventSourceResponse, ServerSentEvent
log = []
def resource():
    log.append("open"); yield "r"; log.append("close")
@app.get("/lines")
async def lines():
    for i in range(3): yield {"i": i}
@app.get("/lines-sync")
def lines_sync():
    for i in range(3): yield {"i": i}
@app.get("/lines-typed")
async def lines_typed() -> AsyncIterable[Item]:
    yield Item(name="a"); yield {"name": "b", "extra": 1}
@app.get("/lines-dependency")
async def lines_dependency(r: Annotated[str, Depends(resource)], n: int = 2):
    for i in range(n): log.append("item"); yield [r, i]
@app.get("/events", response_class=EventSourceResponse)
async def events():
    yield {"a": 1}
    yield "text"
    yield ServerSentEvent(data={"b": 2}, event="tick", id="1", retry=3)
    yield ServerSentEvent(raw_data="raw", comment="note")
@app.get("/events-typed", response_class=EventSourceResponse)
def events_typed() -> Iterable[Item]:
    yield Item(name="a")
@app.get("/raw", response_class=StreamingResponse)
async def raw():
    yield "a"; yield b"b"
@app.get("/raw-sync", response_class=StreamingResponse, status_code=202)
def raw_sync(response: Response):
    response.headers["x-a"] = "b"
    yield "a"
"""
    )
    paths = [
        "/lines", "/lines-sync", "/lines-typed", "/lines-dependency?n=2", "/lines-dependency?n=x", "/events", "/events-typed", "/raw",
        "/raw-sync",
    ]  # fmt: skip
    assert_same(program, *[get(path) for path in paths], names=["log"])


def test_streams_of_numbers_that_json_does_not_have() -> None:
    program = (
        HEAD
        + """
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import ConfigDict
class Number(BaseModel):
    value: float = Field(serialization_alias="v")
class AsText(BaseModel):
    model_config = ConfigDict(ser_json_inf_nan="strings")
    value: float
nan, inf = float("nan"), float("inf")
items = [
    nan, inf, -inf, {"nested": [[nan, 1.5], {"value": -inf}]}, (nan, "NaN"), Number(value=nan),
    {"model": Number(value=inf)}, {None: "null key", inf: "infinite key"}, "Infinity", True, None,
    Decimal("NaN"), AsText(value=nan),
]
@app.get("/lines")
async def lines():
    for item in items: yield item
@app.get("/lines-sync")
def lines_sync():
    for item in items: yield item
@app.get("/lines-typed")
async def lines_typed() -> AsyncIterable[AsText]:
    yield AsText(value=nan)
@app.get("/events", response_class=EventSourceResponse)
async def events():
    for item in items: yield item
@app.get("/told", response_class=EventSourceResponse)
async def told():
    for item in items: yield ServerSentEvent(data=item)
    yield ServerSentEvent(raw_data="NaN")
"""
    )
    paths = ["/lines", "/lines-sync", "/lines-typed", "/events", "/told"]
    assert_same(program, *[get(path) for path in paths])


def test_jsonable_encoder() -> None:
    program = (
        HEAD
        + """
class Sub(dict): pass
class Obj:
    def __init__(self): self.a = 1; self._sa_instance = 2
@dataclass
class D:
    i: Item
    n: None = None
results = []
def note(*args, **kwargs):
    try: results.append(repr(jsonable_encoder(*args, **kwargs)))
    except Exception as e: results.append(type(e).__name__)
item = Item(name="a", owner=None)
note(item); note(item, exclude_unset=True); note(item, exclude_defaults=True); note(item, exclude_none=True)
note(item, include={"name"}); note(item, exclude={"tags"}); note(item, include=["name", "price"]); note([item], exclude={"name"})
note({"a": None, "b": 1, "_sa_x": 2}, exclude_none=True); note({"_sa_x": 2}, sqlalchemy_safe=False); note({"a": 1, "b": 2}, include={"a"})
note({"a": 1, "b": 2}, exclude={"a"}); note(Sub(a=1)); note(Obj()); note(D(item)); note(Aliased(item_name="x")); note(Aliased(item_name="x"), by_alias=False)
note({"x": {"y": item}}, exclude_unset=True); note(datetime(2020, 1, 1), custom_encoder={datetime: lambda d: "custom"})
note([date(2020, 1, 1)], custom_encoder={date: str}); note({1: 2, (1, 2): 3}); note(1 + 2j); note(Item); note(iter([1])); note(range(3))
note({Decimal("1"): Decimal("1.5")}); note(b"x"); note("s"); note(...); note({"k": (1, {2})}); note([[item]], exclude_none=True)
app = FastAPI()
"""
    )
    assert_same(program, names=["results"])
