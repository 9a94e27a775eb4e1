"""Parameters of path, query, header and cookie mean what they mean to FastAPI."""

from __future__ import annotations

from twins import assert_same, call, get

HEAD = """
from typing import Annotated, Any, Literal
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from uuid import UUID
from fastapi import FastAPI, Query, Path, Header, Cookie, Depends, Request
from pydantic import BaseModel, Field, AliasChoices, Json
app = FastAPI()
"""


def test_path_parameters_are_converted_and_checked() -> None:
    program = (
        HEAD
        + """
class Color(str, Enum):
    red = "red"
    blue = "blue"

@app.get("/int/{item_id}")
def read_int(item_id: int): return {"v": item_id}
@app.get("/float/{x}")
async def read_float(x: float): return {"v": x}
@app.get("/bool/{x}")
async def read_bool(x: bool): return {"v": x}
@app.get("/enum/{color}")
async def read_enum(color: Color): return {"v": color, "is": color is Color.red}
@app.get("/uuid/{u}")
async def read_uuid(u: UUID): return {"v": u}
@app.get("/date/{d}")
async def read_date(d: date): return {"v": d}
@app.get("/literal/{x}")
async def read_literal(x: Literal["a", "b"]): return {"v": x}
@app.get("/bounded/{x}")
async def read_bounded(x: Annotated[int, Path(ge=1, le=10, title="The x")]): return {"v": x}
@app.get("/old/{x}")
async def read_old(x: int = Path(gt=3)): return {"v": x}
@app.get("/alias/{item-id}")
async def read_alias(item_id: Annotated[str, Path(alias="item-id")]): return {"v": item_id}
@app.get("/files/{file_path:path}")
async def read_file(file_path: str): return {"v": file_path}
@app.get("/typed/{number:int}")
async def read_typed(number: int): return {"v": number}
@app.get("/two/{a}/{b}")
async def read_two(b: int, a: str): return [a, b]
@app.get("/any/{a}")
async def read_any(a): return {"v": a}
"""
    )
    urls = [
        "/int/3", "/int/-3", "/int/x", "/int/3.0", "/int/3.5", "/int/%203", "/int/1_000",
        "/int/99999999999999999999999", "/int/007", "/int/+5",
        "/float/1.5", "/float/1e5", "/float/inf", "/float/nan", "/float/x", "/float/.5",
        "/bool/true", "/bool/1", "/bool/on", "/bool/NO", "/bool/2", "/bool/T",
        "/enum/red", "/enum/green", "/uuid/b7d6d5b6-7e0a-4a5e-9f3b-0a1b2c3d4e5f", "/uuid/1",
        "/date/2020-01-02", "/date/2020-13-02", "/literal/a", "/literal/c",
        "/bounded/5", "/bounded/0", "/bounded/11", "/bounded/x", "/old/3", "/old/4",
        "/alias/abc", "/files/a/b/c.txt", "/files/x", "/typed/5", "/typed/x",
        "/two/q/7", "/two/q/z", "/any/%C3%A9", "/any/a%20b", "/nothing", "/int/3/",
    ]  # fmt: skip
    # nan and infinity cannot be JSON: FastAPI's 500 says so in text.
    assert_same(program, *[get(url) for url in urls])


def test_query_parameters() -> None:
    program = (
        HEAD
        + """
@app.get("/required")
def required(q: str): return q
@app.get("/optional")
def optional(q: str | None = None, skip: int = 0, flag: bool = False): return [q, skip, flag]
@app.get("/number")
async def number(n: int | None = None): return {"n": n}
@app.get("/list")
async def list_(q: Annotated[list[str], Query()] = ["a", "b"]): return q
@app.get("/list-required")
async def list_required(q: Annotated[list[int], Query()]): return q
@app.get("/list-none")
async def list_none(q: Annotated[list[str] | None, Query()] = None): return {"q": q}
@app.get("/set")
async def set_(q: Annotated[set[int], Query()] = set()): return sorted(q)
@app.get("/tuple")
async def tuple_(q: Annotated[tuple[int, str], Query()]): return q
@app.get("/alias")
async def alias(q: Annotated[str | None, Query(alias="item-query")] = None): return {"q": q}
@app.get("/length")
async def length(q: Annotated[str, Query(min_length=3, max_length=5, pattern="^a")] = "abc"):
    return q
@app.get("/old")
async def old(q: str = Query("dflt", max_length=4), r: list[int] = Query([])): return [q, r]
@app.get("/union")
async def union(q: int | str, r: float | bool | None = None): return [q, r]
@app.get("/bounds")
async def bounds(x: Annotated[float, Query(gt=0, lt=10.5)], y: int = Query(multiple_of=3)):
    return [x, y]
@app.get("/between")
async def between(
    x: Annotated[int, Query(gt=0, le=10)], y: Annotated[int, Query(ge=-5, lt=5)] = 0
): return [x, y]
@app.get("/dates")
async def dates(at: datetime, wait: timedelta = timedelta(seconds=1), d: Decimal = Decimal("1.5")):
    return [at, wait, d]
@app.get("/factory")
async def factory(q: Annotated[str, Query(default_factory=lambda: "made")]): return q
@app.get("/validated-default")
async def validated_default(q: Annotated[int, Query(validate_default=True)] = "7"): return q
@app.get("/any")
async def any_(q, r=None, s: Any = 3): return [q, r, s]
@app.get("/choices")
async def choices(q: Annotated[str, Query(validation_alias=AliasChoices("one", "two"))]): return q
@app.get("/json")
async def json_(q: Annotated[Json[list[int]], Query()]): return q
@app.get("/annotated-field")
async def annotated_field(q: Annotated[int, Field(gt=3)] = 5): return q
@app.get("/literal")
async def literal(order: Literal["asc", "desc"] = "asc"): return order
@app.get("/bytes")
async def bytes_(q: bytes = b"x"): return q
"""
    )
    urls = [
        "/required", "/required?q=", "/required?q=a", "/required?q=a&q=b", "/required?Q=a",
        "/required?q=%C3%A9+b", "/required?q=%FF",
        "/optional", "/optional?q=x&skip=3&flag=yes", "/optional?skip=x&flag=maybe",
        "/optional?skip=", "/number", "/number?n=", "/number?n=4", "/number?n=4.0", "/number?n=no",
        "/number?n=x&n=1", "/number?n=1&n=x",
        "/list", "/list?q=1&q=2", "/list?q=", "/list?q", "/list-required", "/list-required?q=1&q=x&q=y",
        "/list-required?q=1", "/list-none", "/list-none?q=a", "/set?q=3&q=1&q=3", "/set",
        "/tuple?q=1&q=b", "/tuple?q=1", "/tuple", "/alias?item-query=5", "/alias?q=5",
        "/length", "/length?q=ab", "/length?q=abcdef", "/length?q=bcd", "/length?q=abcd",
        "/old", "/old?q=12345", "/old?q=1&r=1&r=2", "/union?q=1&r=1", "/union?q=x&r=true", "/union",
        "/between?x=0&y=5", "/between?x=1&y=-5", "/between?x=10&y=4", "/between?x=11&y=-6",
        "/between?x=03", "/between?x=1.0", "/between?x=+3", "/between?x=1_0", "/between?x=",
        "/between?x=9999999999999999999", "/between",
        "/bounds?x=0&y=4", "/bounds?x=1&y=6", "/bounds?x=11&y=9", "/bounds",
        "/dates?at=2020-01-01T00:00:00Z", "/dates?at=x&wait=y&d=z", "/dates?at=1577836800&wait=60&d=2.50",
        "/factory", "/factory?q=x", "/validated-default", "/validated-default?q=1",
        "/any?q=1&r=2&s=3", "/any", "/choices?one=1", "/choices?two=2", "/choices", "/choices?two=2&one=1",
        "/json?q=[1,2]", "/json?q=[x]", "/json", "/annotated-field?q=3", "/annotated-field?q=4",
        "/annotated-field", "/literal?order=up", "/literal?order=desc", "/bytes", "/bytes?q=abc",
    ]  # fmt: skip
    assert_same(program, *[get(url) for url in urls])


def test_header_parameters() -> None:
    program = (
        HEAD
        + """
@app.get("/agent")
async def agent(user_agent: Annotated[str | None, Header()] = None): return {"v": user_agent}
@app.get("/token")
async def token(x_token: Annotated[str, Header()]): return {"v": x_token}
@app.get("/list")
async def list_(x_token: Annotated[list[str] | None, Header()] = None): return {"v": x_token}
@app.get("/raw")
async def raw(strange_header: Annotated[str | None, Header(convert_underscores=False)] = None):
    return {"v": strange_header}
@app.get("/number")
async def number(x_count: Annotated[int, Header()] = 3): return {"v": x_count}
@app.get("/alias")
async def alias(v: Annotated[str, Header(alias="X-Custom")]): return {"v": v}
@app.get("/bounded")
async def bounded(x_count: Annotated[int, Header(ge=5)]): return {"v": x_count}
"""
    )
    assert_same(
        program,
        get("/agent"),
        get("/agent", headers={"user-agent": "me"}),
        get("/token"),
        get("/token", headers={"X-Token": "abc"}),
        get("/token", headers={"x_token": "abc"}),
        get("/token", headers=[("x-token", "a"), ("x-token", "b")]),
        get("/token", headers=[(b"x-token", b"caf\xe9")]),
        get("/list"),
        get("/list", headers=[("x-token", "a"), ("x-token", "b")]),
        get("/raw", headers={"strange_header": "x"}),
        get("/raw", headers={"strange-header": "x"}),
        get("/number"),
        get("/number", headers={"x-count": "7"}),
        get("/number", headers={"x-count": "x"}),
        get("/alias"),
        get("/alias", headers={"x-custom": "7"}),
        get("/bounded", headers={"x-count": "3"}),
        get("/bounded"),
    )


def test_cookie_parameters() -> None:
    program = (
        HEAD
        + """
@app.get("/id")
async def ads(ads_id: Annotated[str | None, Cookie()] = None): return {"v": ads_id}
@app.get("/required")
async def required(session: Annotated[str, Cookie()], n: Annotated[int, Cookie()]):
    return [session, n]
@app.get("/alias")
async def alias(v: Annotated[str, Cookie(alias="my-cookie")] = "d"): return {"v": v}
"""
    )
    assert_same(
        program,
        get("/id"),
        get("/id", headers={"cookie": "ads_id=5; other=6"}),
        get("/required"),
        get("/required", headers={"cookie": "session=abc; n=x"}),
        get("/required", headers={"cookie": "session=abc; n=4"}),
        get("/alias", headers={"cookie": "my-cookie=z"}),
        get("/alias"),
        get("/id", headers={"cookie": 'ads_id="quoted value"'}),
        get("/id", headers={"cookie": "junk; =x; ads_id"}),
    )


def test_models_of_parameters() -> None:
    program = (
        HEAD
        + """
class Filter(BaseModel):
    limit: int = Field(100, gt=0, le=100)
    offset: int = 0
    order_by: Literal["created", "updated"] = "created"
    tags: list[str] = []
class Strict(BaseModel):
    model_config = {"extra": "forbid"}
    limit: int = 10
class Loose(BaseModel):
    model_config = {"extra": "allow"}
    limit: int = 10
class Common(BaseModel):
    host: str
    save_data: bool
    if_modified_since: str | None = None
    x_tag: list[str] = []
class Cookies(BaseModel):
    session_id: str
    tracker: str | None = None
class Aliased(BaseModel):
    item_name: str = Field(alias="itemName")

@app.get("/filter")
async def filter_(f: Annotated[Filter, Query()]): return f
@app.get("/strict")
async def strict(f: Annotated[Strict, Query()]): return f
@app.get("/loose")
async def loose(f: Annotated[Loose, Query()]): return f
@app.get("/headers")
async def headers(h: Annotated[Common, Header()]): return h
@app.get("/cookies")
async def cookies(c: Annotated[Cookies, Cookie()]): return c
@app.get("/aliased")
async def aliased(a: Annotated[Aliased, Query()]): return a
@app.get("/optional")
async def optional(f: Annotated[Filter | None, Query()] = None): return {"f": f}
@app.get("/mixed")
async def mixed(f: Annotated[Filter, Query()], other: int = 1): return [f, other]
"""
    )
    assert_same(
        program,
        get("/filter"),
        get("/filter?limit=5&offset=2&order_by=updated&tags=a&tags=b"),
        get("/filter?limit=0&order_by=x&offset=z"),
        get("/strict?limit=3"),
        get("/strict?limit=3&tool=x"),
        get("/loose?limit=3&tool=x&tool=y&z=1"),
        get("/headers"),
        get("/headers", headers={"save-data": "true", "x-tag": "a"}),
        get("/headers", headers=[("save-data", "no"), ("x-tag", "a"), ("x-tag", "b")]),
        get("/headers", headers={"save_data": "true"}),
        get("/cookies"),
        get("/cookies", headers={"cookie": "session_id=1; tracker=2; more=3"}),
        get("/aliased?itemName=x"),
        get("/aliased?item_name=x"),
        get("/optional"),
        get("/optional?limit=7"),
        get("/optional?limit=700"),
        get("/mixed?limit=7&other=3"),
    )


def test_one_function_on_paths_with_and_without_its_parameter() -> None:
    program = (
        HEAD
        + """
@app.get("/items")
@app.get("/items/{item_id}")
async def read(item_id: int | None = None): return {"v": item_id}
"""
    )
    assert_same(program, get("/items"), get("/items?item_id=4"), get("/items/5"), get("/items/x"))


def test_methods() -> None:
    program = (
        HEAD
        + """
@app.get("/m")
def m_get(): return "get"
@app.put("/m")
def m_put(): return "put"
@app.post("/m", status_code=201)
def m_post(): return "post"
@app.delete("/m", status_code=204)
def m_delete(): return None
@app.options("/m")
def m_options(): return "options"
@app.head("/h")
def m_head(): return None
@app.patch("/m")
def m_patch(): return "patch"
@app.trace("/m")
def m_trace(): return "trace"
@app.api_route("/several", methods=["GET", "POST"])
def several(request: Request): return request.method
"""
    )
    methods = ["GET", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "TRACE"]
    calls = [call(method, "/m") for method in methods]
    calls += [call("GET", "/several"), call("POST", "/several"), call("PUT", "/several")]
    calls += [call("HEAD", "/h"), call("BREW", "/m")]
    assert_same(program, *calls)


def test_defaults_that_are_validated() -> None:
    program = (
        HEAD
        + """
from fastapi import Body, Form
made = []
def make():
    made.append(1)
    return -len(made)
Checked = Annotated[int, Query(gt=0, validate_default=True)]
def dependency(d: Checked = -7): return d
@app.get("/query")
async def query(q: Checked = -1, other: int = 3): return [q, other]
@app.get("/right")
async def right(q: Checked = 5): return q
@app.get("/two")
async def two(q: Checked = -1, r: Annotated[int, Query(lt=0, validate_default=True, alias="R")] = 2):
    return [q, r]
@app.get("/with-others/{p}")
async def with_others(p: int, q: Checked = -1): return [p, q]
@app.get("/header")
async def header(x_a: Annotated[int, Header(gt=0, validate_default=True)] = -1): return x_a
@app.get("/cookie")
def cookie(c: Annotated[int, Cookie(gt=0, validate_default=True)] = -1): return c
@app.get("/list")
def list_(q: Annotated[list[int], Query(min_length=2, validate_default=True)] = [1]): return q
@app.get("/factory")
async def factory(q: Annotated[int, Query(gt=0, validate_default=True, default_factory=make)]): return q
@app.get("/plain-text")
async def plain_text(q: Annotated[int, Query(validate_default=True)] = "x"): return q
@app.get("/dependency")
async def with_dependency(d: Annotated[int, Depends(dependency)], q: Checked = -1): return [d, q]
@app.post("/body")
async def body(b: Annotated[int, Body(gt=0, validate_default=True)] = -1): return b
@app.post("/embedded")
async def embedded(b: Annotated[int, Body(gt=0, validate_default=True, embed=True)] = -1): return b
@app.post("/members")
async def members(a: Annotated[int, Body(gt=0, validate_default=True)] = -1, b: Annotated[int, Body()] = 3):
    return [a, b]
@app.post("/form")
async def form(f: Annotated[int, Form(gt=0, validate_default=True)] = -1): return f
"""
    )
    found = assert_same(
        program,
        *[
            get(url)
            for url in [
                "/query", "/query?q=3", "/query?q=-3", "/query?other=x", "/right", "/two", "/two?R=1", "/two?q=1",
                "/with-others/1", "/with-others/x", "/header", "/cookie", "/list", "/list?q=1&q=2", "/factory",
                "/factory?q=1", "/plain-text", "/plain-text?q=4", "/dependency", "/dependency?d=1", "/dependency?d=1&q=1",
            ]
        ],
        call("POST", "/body"),
        call("POST", "/body", json=3),
        call("POST", "/embedded"),
        call("POST", "/embedded", json={}),
        call("POST", "/embedded", json={"b": 3}),
        call("POST", "/members", json={"b": 1}),
        call("POST", "/members", json={"b": "x"}),
        call("POST", "/form"),
        call("POST", "/form", data={"f": "3"}),
    )  # fmt: skip
    assert found[0].body["detail"][0]["loc"] == ["query", "q"]
