"""Dependencies are found, called, shared and ended as FastAPI does it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from twins import Call, answers, assert_same, for_justapi, get, load, post

HEAD = """
import asyncio
from contextvars import ContextVar
from functools import partial, wraps
from typing import Annotated, Any
from fastapi import (
    APIRouter, BackgroundTasks, Body, Cookie, Depends, FastAPI, Form, Header, HTTPException, Path, Query,
    Request, Response, Security, WebSocket,
)
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from fastapi.security import SecurityScopes
from pydantic import BaseModel
app = FastAPI()
log = []
"""


def test_kinds_of_dependencies() -> None:
    program = (
        HEAD
        + """
def plain(q: str | None = None, skip: int = 0): return {"q": q, "skip": skip}
async def coroutine(q: str = "a"): return "async " + q
class Params:
    def __init__(self, q: str | None = None, limit: int = 10): self.q = q; self.limit = limit
class Checker:
    def __init__(self, word): self.word = word
    def __call__(self, q: str = ""): return self.word in q
class AsyncChecker:
    async def __call__(self, x: int): return x * 2
class Owner:
    def method(self, q: str = "m"): return ["method", q]
    @classmethod
    def made(cls, q: str = "c"): return [cls.__name__, q]
    @staticmethod
    def static(q: str = "s"): return ["static", q]
def with_number(n: int, q: str = "z"): return [n, q]
def decorated(func):
    @wraps(func)
    def wrapper(*args, **kwargs): return ["wrapped", func(*args, **kwargs)]
    return wrapper
@decorated
def inner(q: str = "i"): return q
owner = Owner()

@app.get("/plain")
async def r1(v: Annotated[dict, Depends(plain)]): return v
@app.get("/plain-sync")
def r2(v: dict = Depends(plain)): return v
@app.get("/coroutine")
async def r3(v: Annotated[str, Depends(coroutine)]): return v
@app.get("/coroutine-sync")
def r4(v: Annotated[str, Depends(coroutine)]): return v
@app.get("/class")
async def r5(v: Annotated[Params, Depends()]): return [v.q, v.limit]
@app.get("/class-old")
async def r6(v: Params = Depends(Params)): return [v.q, v.limit]
@app.get("/instance")
async def r7(v: Annotated[bool, Depends(Checker("foo"))]): return v
@app.get("/async-instance")
async def r8(v: Annotated[int, Depends(AsyncChecker())]): return v
@app.get("/methods")
async def r9(a: Annotated[Any, Depends(owner.method)], b: Annotated[Any, Depends(Owner.made)],
             c: Annotated[Any, Depends(Owner.static)]): return [a, b, c]
@app.get("/partial")
async def r10(v: Annotated[Any, Depends(partial(with_number, 5))]): return v
@app.get("/wrapped")
async def r11(v: Annotated[Any, Depends(inner)]): return v
@app.get("/lambda")
async def r12(v: Annotated[int, Depends(lambda: 42)]): return v
@app.get("/keyword-only")
async def r13(*, v: Annotated[int, Depends(lambda: 1)], q: int): return [v, q]
@app.get("/no-annotation")
async def r14(v=Depends(plain)): return v
"""
    )
    paths = [
        "/plain", "/plain?q=x&skip=3", "/plain?skip=x", "/plain-sync?q=1", "/coroutine", "/coroutine?q=b",
        "/coroutine-sync?q=b", "/class?q=1&limit=3", "/class?limit=x", "/class-old", "/instance?q=afoo", "/instance",
        "/async-instance?x=4", "/async-instance", "/methods", "/methods?q=x", "/partial", "/partial?q=1",
        "/wrapped?q=7", "/lambda", "/keyword-only?q=3", "/keyword-only", "/no-annotation?q=2",
    ]  # fmt: skip
    assert_same(program, *[get(path) for path in paths])


def test_shared_and_nested() -> None:
    program = (
        HEAD
        + """
counts = {"n": 0}
def counter():
    counts["n"] += 1
    log.append("counter")
    return counts["n"]
def left(c: Annotated[int, Depends(counter)]): log.append("left"); return ["left", c]
async def right(c: Annotated[int, Depends(counter)]): log.append("right"); return ["right", c]
def fresh(c: Annotated[int, Depends(counter, use_cache=False)]): log.append("fresh"); return ["fresh", c]
def needs(q: int): return q
def needs_too(n: Annotated[int, Depends(needs)], r: int): return n + r

@app.get("/shared")
async def shared(a: Annotated[Any, Depends(left)], b: Annotated[Any, Depends(right)], c: Annotated[int, Depends(counter)]):
    return [a, b, c]
@app.get("/fresh")
async def fresh_(a: Annotated[Any, Depends(left)], b: Annotated[Any, Depends(fresh)], c: Annotated[int, Depends(counter, use_cache=False)]):
    return [a, b, c]
@app.get("/twice-fresh")
def twice(a: Annotated[int, Depends(counter, use_cache=False)], b: Annotated[int, Depends(counter, use_cache=False)]):
    return [a, b]
@app.get("/errors")
async def errors(a: Annotated[int, Depends(needs)], b: Annotated[int, Depends(needs_too)], x: int): return [a, b, x]
"""
    )
    assert_same(
        program,
        get("/shared"),
        get("/shared"),
        get("/fresh"),
        get("/twice-fresh"),
        get("/errors"),
        get("/errors?q=a&r=b&x=c"),
        get("/errors?q=1&r=2&x=3"),
        get("/errors?q=1"),
        names=["log"],
    )


def test_levels_of_dependencies() -> None:
    program = (
        HEAD.replace("app = FastAPI()", "")
        + """
log = []
def note(name):
    def dependency(): log.append(name)
    return dependency
async def token(x_token: Annotated[str, Header()]):
    log.append("token")
    if x_token != "secret": raise HTTPException(401, "bad token", headers={"WWW-Authenticate": "X"})
app = FastAPI(dependencies=[Depends(note("app"))])
router = APIRouter(prefix="/r", dependencies=[Depends(note("router"))])
inner = APIRouter(dependencies=[Depends(note("inner"))])
@router.get("/one", dependencies=[Depends(note("decorator")), Depends(token)])
async def one(a: Annotated[None, Depends(note("parameter"))], n: int = 1): log.append("handler"); return n
@inner.get("/two")
def two(): log.append("two"); return 2
@app.get("/direct", dependencies=[Depends(token)])
def direct(): return "direct"
router.include_router(inner, prefix="/inner", dependencies=[Depends(note("include-inner"))])
app.include_router(router, prefix="/api", dependencies=[Depends(note("include"))])
"""
    )
    assert_same(
        program,
        get("/api/r/one", headers={"x-token": "secret"}),
        get("/api/r/one", headers={"x-token": "wrong"}),
        get("/api/r/one?n=x"),
        # The token is right or wrong before the parameter is looked at.
        get("/api/r/one?n=x", headers={"x-token": "wrong"}),
        get("/api/r/one?n=x", headers={"x-token": "secret"}),
        get("/api/r/inner/two"),
        get("/direct", headers={"x-token": "secret"}),
        get("/direct"),
        names=["log"],
    )


def test_dependencies_with_yield() -> None:
    program = (
        HEAD
        + """
class Own(Exception): pass
@app.exception_handler(Own)
async def own(request, exc): return JSONResponse({"own": str(exc)}, status_code=418)
def db():
    log.append("db open")
    try: yield "db"
    except Exception as e: log.append("db " + type(e).__name__); raise
    finally: log.append("db close")
async def session(d: Annotated[str, Depends(db)]):
    log.append("session open")
    try: yield d + " session"
    except HTTPException as e: log.append("session " + str(e.status_code)); raise
    finally: log.append("session close")
async def replaces():
    try: yield 1
    except ValueError: raise HTTPException(409, "replaced")
async def swallows():
    try: yield 1
    except ValueError: log.append("swallowed")
def fails_on_enter():
    raise HTTPException(402, "cannot enter")
    yield
async def raises_own():
    yield 1
    log.append("after")
def function_scope():
    log.append("function open")
    yield "f"
    log.append("function close")
async def late(f: Annotated[str, Depends(function_scope, scope="function")]):
    return f + "!"

@app.get("/ok")
async def ok(s: Annotated[str, Depends(session)]): log.append("handler"); return s
@app.get("/ok-sync")
def ok_sync(s: Annotated[str, Depends(db)]): log.append("handler"); return s
@app.get("/http")
async def http(s: Annotated[str, Depends(session)]): raise HTTPException(404, "gone")
@app.get("/http-sync")
def http_sync(s: Annotated[str, Depends(db)]): raise HTTPException(404, "gone")
@app.get("/crash")
async def crash(s: Annotated[str, Depends(session)]): raise RuntimeError("x")
@app.get("/own")
async def raise_own(s: Annotated[str, Depends(session)]): raise Own("mine")
@app.get("/replaces")
async def replaces_(s: Annotated[int, Depends(replaces)]): raise ValueError
@app.get("/swallows")
async def swallows_(s: Annotated[int, Depends(swallows)]): raise ValueError
@app.get("/fails-on-enter")
async def enter(d: Annotated[str, Depends(db)], s: Annotated[Any, Depends(fails_on_enter)]): return s
@app.get("/validation")
async def validation(d: Annotated[str, Depends(db)], n: int): return n
@app.get("/function")
async def function(d: Annotated[str, Depends(db)], f: Annotated[str, Depends(function_scope, scope="function")]):
    log.append("handler"); return [d, f]
@app.get("/function-sync")
def function_sync(f: Annotated[str, Depends(function_scope, scope="function")]): log.append("handler"); return f
@app.get("/function-nested")
async def function_nested(f: Annotated[str, Depends(late)]): log.append("handler"); return f
@app.get("/function-error")
async def function_error(f: Annotated[str, Depends(function_scope, scope="function")]): raise HTTPException(400)
@app.get("/background")
async def background(d: Annotated[str, Depends(session)], tasks: BackgroundTasks):
    tasks.add_task(log.append, "task"); return d
@app.get("/response")
def response(d: Annotated[str, Depends(db)]): return PlainTextResponse(d)
@app.get("/bad-model", response_model=int)
def bad_model(d: Annotated[str, Depends(db)]): return d
"""
    )
    paths = [
        "/ok", "/ok-sync", "/http", "/http-sync", "/crash", "/own", "/replaces", "/swallows", "/fails-on-enter",
        "/validation", "/validation?n=1", "/function", "/function-sync", "/function-nested", "/function-error",
        "/background", "/response", "/bad-model",
    ]  # fmt: skip
    assert_same(program, *[get(path) for path in paths], names=["log"])


def test_injected_objects() -> None:
    program = (
        HEAD
        + """
from fastapi.requests import HTTPConnection
def set_header(response: Response): response.headers["x-dep"] = "1"; response.set_cookie("c", "v")
def add_task(tasks: BackgroundTasks, q: str = "q"): tasks.add_task(log.append, "dep " + q)
async def connection(c: HTTPConnection): return c.url.path
def same(request: Request): return id(request)

@app.get("/request")
async def r1(request: Request, q: int = 1): return [request.method, request.url.path, q, request.headers["host"]]
@app.get("/response")
def r2(response: Response): response.headers["x-a"] = "b"; response.status_code = 202; return {"a": 1}
@app.get("/response-dep", dependencies=[Depends(set_header)])
async def r3(response: Response): response.headers["x-b"] = "c"; return 1
@app.get("/response-untouched")
async def r4(response: Response): return 1
@app.get("/response-returned")
async def r5(response: Response):
    response.headers["x-lost"] = "1"
    return JSONResponse({"own": True}, status_code=203)
@app.get("/response-204", status_code=204)
async def r6(response: Response): response.headers["x-a"] = "1"
@app.get("/tasks")
def r7(tasks: BackgroundTasks, a: Annotated[None, Depends(add_task)]):
    tasks.add_task(log.append, "handler"); log.append("returning"); return "ok"
@app.get("/tasks-response")
async def r8(tasks: BackgroundTasks):
    async def work(x): log.append(x)
    tasks.add_task(work, "async work")
    return PlainTextResponse("text")
@app.get("/connection")
async def r9(p: Annotated[str, Depends(connection)]): return p
@app.get("/same")
async def r10(request: Request, i: Annotated[int, Depends(same)], s: Annotated[int, Depends(same, use_cache=False)]):
    return id(request) == i == s
@app.get("/state")
async def r11(request: Request): request.state.x = 4; return request.state.x
@app.post("/body")
async def r12(request: Request, item: dict): return [item, (await request.body()).decode(), await request.json()]
@app.post("/raw")
async def r13(request: Request): return (await request.body()).decode()
@app.get("/url/{x}")
async def named(x: int, request: Request): return str(request.url_for("named", x=3)), str(request.url_for("r1"))
"""
    )
    assert_same(
        program,
        get("/request?q=3"),
        get("/request?q=x"),
        get("/response"),
        get("/response-dep"),
        get("/response-untouched"),
        get("/response-returned"),
        get("/response-204"),
        get("/tasks?q=7"),
        get("/tasks-response"),
        get("/connection"),
        get("/same"),
        get("/state"),
        post("/body", json={"a": 1}),
        post("/raw", content=b"abc"),
        get("/url/7"),
        names=["log"],
    )


def test_security_scopes() -> None:
    program = (
        HEAD
        + """
def user(scopes: SecurityScopes, x_user: Annotated[str, Header()] = "me"):
    log.append(scopes.scope_str)
    return [x_user, scopes.scopes]
async def active(u: Annotated[list, Security(user, scopes=["me"])]): return u
@app.get("/me")
async def me(u: Annotated[list, Security(active, scopes=["items", "me"])]): return u
@app.get("/two")
async def two(a: Annotated[list, Security(user, scopes=["a"])], b: Annotated[list, Security(user, scopes=["b"])],
              c: Annotated[list, Security(user, scopes=["a"])]): return [a, b, c]
@app.get("/plain")
async def plain(u: Annotated[list, Depends(user)]): return u
"""
    )
    assert_same(program, get("/me"), get("/two"), get("/plain"), names=["log"])


def test_overrides() -> None:
    program = (
        HEAD
        + """
def real(q: str = "real"): return ["real", q]
def other(x: int = 7): return ["other", x]
async def async_other(): return "async other"
def yields():
    log.append("open"); yield "yielded"; log.append("close")
def outer(r: Annotated[Any, Depends(real)]): return ["outer", r]
@app.get("/a")
def a(v: Annotated[Any, Depends(outer)], w: Annotated[Any, Depends(real)]): return [v, w]
class Names:
    def __call__(self): return "names"
"""
    )
    theirs = load(program, "overrides_on_fastapi")
    ours = load(for_justapi(program), "overrides_on_justapi")

    def both(change: str) -> None:
        for names in (theirs, ours):
            exec(change, names)
        calls = [get("/a"), get("/a?q=1&x=2"), get("/a?x=z")]
        assert answers(ours["app"], *calls) == answers(theirs["app"], *calls)

    both("")
    both("app.dependency_overrides[real] = other")
    both("app.dependency_overrides[real] = async_other")
    both("app.dependency_overrides[real] = yields")
    both("app.dependency_overrides[outer] = lambda: 'short'")
    both("app.dependency_overrides.clear()")
    both("app.dependency_overrides = {real: other}")
    both("app.dependency_overrides.pop(real)")
    both("app.dependency_overrides |= {real: other}")
    both("app.dependency_overrides = {}")
    assert ours["log"] == theirs["log"]


def test_body_in_dependencies() -> None:
    program = (
        HEAD
        + """
class Item(BaseModel):
    name: str
def dep(item: Item): return item.name
def dep2(other: Annotated[int, Body()]): return other
@app.post("/one")
async def one(v: Annotated[str, Depends(dep)]): return v
@app.post("/same")
async def same(item: Item, v: Annotated[str, Depends(dep)]): return [item, v]
@app.post("/two")
async def two(v: Annotated[str, Depends(dep)], w: Annotated[int, Depends(dep2)]): return [v, w]
"""
    )
    assert_same(
        program,
        post("/one", json={"name": "a"}),
        post("/one", json={}),
        post("/same", json={"name": "a"}),
        post("/same", json={"name": 4}),
        post("/two", json={"item": {"name": "a"}, "other": 3}),
        post("/two", json={"item": {}, "other": "x"}),
        Call("POST", "/two"),
    )


def test_context_variables_reach_the_handler() -> None:
    program = (
        HEAD
        + """
current: ContextVar[str] = ContextVar("current", default="none")
async def set_current():
    token = current.set("set")
    yield
    current.reset(token)
async def set_plain(): current.set("plain")
@app.get("/yield", dependencies=[Depends(set_current)])
async def a(): return current.get()
@app.get("/plain", dependencies=[Depends(set_plain)])
async def b(): return current.get()
@app.get("/sync", dependencies=[Depends(set_plain)])
def c(): return current.get()
@app.get("/task")
async def d(): return asyncio.current_task() is not None
@app.get("/timeout")
async def e():
    async with asyncio.timeout(1): await asyncio.sleep(0)
    return "in time"
"""
    )
    assert_same(program, get("/yield"), get("/plain"), get("/sync"), get("/task"), get("/timeout"))


def test_a_class_that_is_defined_later() -> None:
    program = (
        HEAD
        + """
from typing import Optional
def united(x: "Later | None" = None, y: int = 1): return [x, y]
def optional(x: Optional["Later"] = None): return x
def bare(x: "Later" = None): return x
def queried(x: Annotated["Later | None", Query()] = None): return x
def required(x: "Later"): return x
@app.post("/united")
async def by_united(d=Depends(united)): return d
@app.post("/optional")
def by_optional(d=Depends(optional)): return d
@app.post("/bare")
async def by_bare(d=Depends(bare)): return d
@app.post("/queried")
async def by_queried(d=Depends(queried)): return d
@app.post("/required")
async def by_required(d=Depends(required)): return d
@app.post("/handler")
async def handler(x: "Later | None" = None): return x
class Later(BaseModel):
    a: int = 3
"""
    )
    paths = ["/united", "/optional", "/bare", "/queried", "/required", "/handler"]
    assert_same(
        program,
        *[post(path) for path in paths],
        *[post(path, json={"a": 4}) for path in paths],
        *[post(path, params={"a": 4, "y": "2"}) for path in paths],
        *[post(path, params={"x": "4"}) for path in paths],
        post("/united", params={"y": "z"}),
    )


def test_limits_of_concurrency() -> None:
    program = (
        HEAD
        + """
running = {"now": 0, "most": 0}
def enters():
    running["now"] += 1
    running["most"] = max(running.values())
async def coroutine():
    enters()
    await asyncio.sleep(0.001)
    running["now"] -= 1
async def opens():
    enters()
    yield
    running["now"] -= 1
def opens_plain():
    enters()
    yield
    running["now"] -= 1
Limited = Annotated[None, Depends(coroutine, max_concurrency=2)]
Opened = Annotated[None, Depends(opens, max_concurrency=2)]
OpenedPlain = Annotated[None, Depends(opens_plain, max_concurrency=2)]
@app.get("/call")
async def call(v: Limited): return 1
@app.get("/open")
async def open_(v: Opened): await asyncio.sleep(0.001)
@app.get("/open-plain")
async def open_plain(v: OpenedPlain): await asyncio.sleep(0.001)
@app.get("/sync")
def sync(v: OpenedPlain, w: Limited): return 1
refused = []
for limit in (0, -1, 1.5, True):
    try: Depends(coroutine, max_concurrency=limit)
    except ValueError as e: refused.append(str(e))
"""
    )
    theirs = load(program, "limits_on_fastapi")
    ours = load(for_justapi(program), "limits_on_justapi")
    assert ours["refused"] == theirs["refused"]
    for path in ("/call", "/open", "/open-plain", "/sync"):
        for names in (theirs, ours):
            names["running"].update(now=0, most=0)
            found = asyncio.run(ask_at_once(names["app"], path, 8))
            assert found == [200] * 8
            if path != "/sync":
                assert names["running"] == {"now": 0, "most": 2}, (path, names["__name__"])


async def ask_at_once(app: Any, path: str, count: int) -> list[int]:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        found = await asyncio.gather(*[client.get(path) for _ in range(count)])
    return [response.status_code for response in found]
