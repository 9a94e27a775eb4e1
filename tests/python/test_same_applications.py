"""Routers, errors, middleware, mounts, lifespans and WebSockets do what FastAPI's do."""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any

import pytest

from justapi import JustAPIApp
from justapi.exceptions import PydanticV1NotSupportedError
from twins import Call, answers, assert_same, call, for_justapi, get, load, post

HEAD = """
import asyncio
import time
from contextlib import asynccontextmanager
from typing import Annotated, Any
from fastapi import (
    APIRouter, BackgroundTasks, Cookie, Depends, FastAPI, Form, Header, HTTPException, Path, Query, Request, Response,
    WebSocket, WebSocketDisconnect, WebSocketException, status,
)
from fastapi.exceptions import RequestValidationError, ResponseValidationError
from fastapi.exceptions import HTTPException as AlsoHTTPException
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import BaseModel
log = []
app = FastAPI()
"""


def test_routers() -> None:
    program = (
        HEAD
        + """
router = APIRouter(prefix="/items", tags=["items"], responses={404: {"description": "none"}})
inner = APIRouter(prefix="/in/ner")
@router.get("/")
def list_items(): return "list"
@router.get("/{item_id}", name="item")
def read_item(item_id: int): return item_id
@inner.get("")
def no_slash(): return "inner"
@inner.get("/x/{y}")
def x(y: str, tenant: str = "none"): return [y, tenant]
router.include_router(inner)
app.include_router(router)
app.include_router(router, prefix="/v2", tags=["two"])
app.include_router(inner, prefix="/{tenant}")
@router.get("/late/route")
def late(): return "late"
@app.get("/urls")
def urls(request: Request):
    return [str(request.url_for("item", item_id=3)), app.url_path_for("read", path="x") if False else app.url_path_for("item", item_id=4)]
"""
    )
    paths = [
        "/items/", "/items", "/items/5", "/items/x", "/items/in/ner", "/items/in/ner/", "/items/in/ner/x/a", "/v2/items/7", "/v2/items/in/ner",
        "/acme/in/ner", "/acme/in/ner/x/b", "/acme/in/ner/x/b?tenant=q", "/nothing", "/items/late/route", "/urls", "/items/5/",
        "/items?x=1", "/items/in/ner/?x=1&y=%20",
    ]  # fmt: skip
    assert_same(program, *[get(path) for path in paths])


def test_path_parameters_of_the_request() -> None:
    program = (
        HEAD
        + """
from uuid import UUID
@app.get("/{n:int}/{f:float}/{u:uuid}/{p:path}")
def read(request: Request, n: int, u: UUID): return [repr(request.path_params), n, u]
@app.get("/text/{n:int}")
def text(n: str): return n
@app.get("/none/{n:int}")
def none(): return "none"
@app.get("/file/{name}.{ext}")
def file(name: str, ext: str): return [name, ext]
"""
    )
    uuid = "00000000-0000-0000-0000-000000000001"
    paths = [
        f"/3/1.5/{uuid}/a/b",
        f"/x/1.5/{uuid}/a",
        "/text/3",
        "/none/3",
        "/none/x",
        "/file/a.b.c",
        "/file/a",
    ]
    assert_same(program, *[get(path) for path in paths])


def test_no_request_reaches_a_path_without_slash() -> None:
    program = (
        HEAD
        + """
@app.get("bare")
def bare(): return "bare"
@app.get("{name}")
def anything(name: str): return name
router = APIRouter()
@router.get("end")
def end(): return "end"
app.include_router(router, prefix="/dead")
@app.get("/whole")
def whole(): return "whole"
"""
    )
    assert_same(program, *[get(path) for path in ["/bare", "/x", "/deadend", "/whole"]])


def test_errors_of_inclusion() -> None:
    program = (
        HEAD
        + """
errors = []
def note(f):
    try: f(); errors.append("fine")
    except Exception as e: errors.append(type(e).__name__.replace("FastAPIError", "JustAPIError"))
router = APIRouter()
@router.get("")
def empty(): pass
note(lambda: app.include_router(router))
note(lambda: app.include_router(router, prefix="/x/"))
note(lambda: app.include_router(router, prefix="x"))
note(lambda: app.include_router(router, prefix="/x"))
note(lambda: router.include_router(router, prefix="/x"))
note(lambda: APIRouter(prefix="/x/"))
note(lambda: APIRouter(prefix="x"))
note(lambda: app.get("nope")(lambda: 1))
def bad_path(item_id: Annotated[int, Query()]): pass
note(lambda: app.get("/{item_id}")(bad_path))
def bad_default(item_id: Annotated[int, Path()] = 3): pass
note(lambda: app.get("/{item_id}")(bad_default))
def bad_annotated(q: Annotated[int, Query(3)]): pass
note(lambda: app.get("/")(bad_annotated))
def two_markers(q: Annotated[int, Query()] = Query()): pass
note(lambda: app.get("/")(two_markers))
def two_depends(q: Annotated[int, Depends(bad_path)] = Depends(bad_path)): pass
note(lambda: app.get("/")(two_depends))
def bad_query(q: Annotated[dict, Query()]): pass
note(lambda: app.get("/")(bad_query))
def special(r: Annotated[Request, Query()]): pass
note(lambda: app.get("/")(special))
class Unknown: pass
def unknown(u: Unknown): pass
note(lambda: app.get("/")(unknown))
def returns_unknown() -> Unknown: pass
note(lambda: app.get("/")(returns_unknown))
note(lambda: app.get("/", response_model=None)(returns_unknown))
note(lambda: app.get("/", status_code=204)(lambda: None))
def model_204() -> int: pass
note(lambda: app.get("/", status_code=204)(model_204))
note(lambda: app.get("/{a}/{a}")(lambda a: 1))
def function_scope(): yield
def request_scope(f: Annotated[None, Depends(function_scope, scope="function")]): yield
def mixes(f: Annotated[None, Depends(request_scope)]): pass
note(lambda: app.get("/")(mixes))
note(lambda: app.get("/")(3))
note(lambda: app.get("/", dependencies=[Depends()])(lambda: 1))
"""
    )
    assert_same(program, names=["errors"])


def test_handlers_of_exceptions() -> None:
    program = (
        HEAD
        + """
class Own(Exception):
    def __init__(self, name): self.name = name
class Child(Own): pass
class Other(Exception): pass
@app.exception_handler(Own)
async def own(request: Request, exc: Own): return JSONResponse({"own": exc.name, "path": request.url.path}, status_code=418)
@app.exception_handler(Other)
def other(request, exc): return PlainTextResponse("other", status_code=409)
@app.get("/own")
async def raise_own(): raise Own("a")
@app.get("/child")
def raise_child(): raise Child("b")
@app.get("/other")
def raise_other(): raise Other
@app.get("/crash")
async def crash(): raise RuntimeError("secret")
@app.get("/crash-sync")
def crash_sync(): 1 / 0
@app.get("/http")
def http(code: int = 404): raise HTTPException(code, detail={"why": ["x"]}, headers={"X-Why": "y"})
@app.get("/http-plain")
async def http_plain(): raise HTTPException(status_code=403)
@app.get("/http-null")
async def http_null(): raise HTTPException(status_code=400, detail=None)
@app.get("/http-list")
async def http_list(): raise HTTPException(400, [1, {"a": None}])
@app.get("/http-204")
async def http_204(): raise HTTPException(204)
@app.get("/http-304")
async def http_304(): raise HTTPException(304, headers={"x": "y"})
@app.get("/returned")
def returned(): return HTTPException(404)
"""
    )
    paths = [
        "/own", "/child", "/other", "/crash", "/crash-sync", "/http", "/http?code=503", "/http-plain", "/http-null", "/http-list",
        "/http-204", "/http-304", "/nothing",
    ]  # fmt: skip
    assert_same(program, *[get(path) for path in paths], call("POST", "/own"))


def test_handlers_that_replace_the_built_in_ones() -> None:
    program = (
        HEAD
        + """
@app.exception_handler(HTTPException)
async def http(request, exc): return PlainTextResponse(f"http {exc.status_code} {exc.detail}", exc.status_code)
@app.exception_handler(RequestValidationError)
async def validation(request: Request, exc: RequestValidationError):
    return JSONResponse({"errors": [e["loc"] for e in exc.errors()], "body": exc.body}, status_code=400)
@app.exception_handler(404)
async def not_found(request, exc): return JSONResponse({"custom": "404"}, status_code=404)
@app.exception_handler(Exception)
async def anything(request, exc): return JSONResponse({"any": type(exc).__name__}, status_code=500)
@app.exception_handler(ResponseValidationError)
async def response_validation(request, exc): return JSONResponse({"bad": len(exc.errors())}, status_code=501)
class Item(BaseModel):
    a: int
@app.get("/http")
def raise_http(): raise HTTPException(410, "gone")
@app.get("/missing")
def missing(): raise HTTPException(404, "x")
@app.post("/item/{n}")
def item(n: int, item: Item): return 1
@app.get("/crash")
def crash(): raise KeyError("x")
@app.get("/model")
def model() -> int: return "x"
@app.get("/cannot-encode")
def cannot_encode(): return {"x": object()}
"""
    )
    assert_same(
        program,
        get("/http"),
        get("/missing"),
        get("/nothing"),
        call("DELETE", "/http"),
        post("/item/x", json={"a": "b"}),
        post("/item/1", content=b"{", headers={"content-type": "application/json"}),
        get("/crash"),
        get("/model"),
        get("/cannot-encode"),
    )


def test_middleware() -> None:
    program = (
        HEAD
        + """
@app.middleware("http")
async def first(request: Request, call_next):
    log.append("first in"); response = await call_next(request); log.append("first out")
    response.headers["x-first"] = "1"; return response
@app.middleware("http")
async def second(request: Request, call_next):
    log.append("second in")
    if request.url.path == "/stopped": return PlainTextResponse("stopped", 403)
    if request.url.path == "/body": log.append((await request.body()).decode())
    try: response = await call_next(request)
    except ValueError as e: log.append("caught"); return PlainTextResponse("caught " + str(e), 500)
    log.append("second out"); response.headers["x-second"] = "2"; return response
class Pure:
    def __init__(self, app, name): self.app = app; self.name = name
    async def __call__(self, scope, receive, send):
        log.append(self.name + " " + scope["type"])
        async def sender(message):
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-" + self.name.encode(), b"p")]
            await send(message)
        await self.app(scope, receive, sender)
app.add_middleware(Pure, name="outer")
@app.get("/")
async def root(): log.append("handler"); return {"a": 1}
@app.get("/stopped")
def stopped(): log.append("never"); return 1
@app.post("/body")
async def body(item: dict): return item
@app.get("/value-error")
async def value_error(): raise ValueError("v")
@app.get("/http-error")
async def http_error(): raise HTTPException(404, "handled below")
@app.get("/crash")
def crash(): raise RuntimeError
@app.get("/stream")
async def stream():
    async def parts():
        for i in range(3): yield str(i)
    return StreamingResponse(parts())
@app.get("/background")
async def background(tasks: BackgroundTasks): tasks.add_task(log.append, "task"); return 1
@app.get("/empty", status_code=204)
async def empty(): return None
"""
    )
    assert_same(
        program,
        get("/"),
        get("/stopped"),
        post("/body", json={"a": 1}),
        get("/value-error"),
        get("/http-error"),
        get("/crash"),
        get("/stream"),
        get("/background"),
        get("/empty"),
        get("/nothing"),
        names=["log"],
    )


def test_middleware_that_reads_and_changes_bodies() -> None:
    program = (
        HEAD
        + """
@app.middleware("http")
async def upper(request: Request, call_next):
    response = await call_next(request)
    body = b"".join([chunk async for chunk in response.body_iterator])
    return Response(body.upper(), status_code=response.status_code, media_type="text/plain")
@app.middleware("http")
async def state(request: Request, call_next):
    request.state.user = "me"
    return await call_next(request)
@app.get("/")
async def root(request: Request): return PlainTextResponse(request.state.user)
"""
    )
    assert_same(program, get("/"))


def test_mounted_applications() -> None:
    program = (
        (
            HEAD
            + """
sub = FastAPI()
deep = FastAPI()
@app.get("/app")
def top(request: Request): return [request.scope["root_path"], request.url.path]
@sub.get("/sub")
def in_sub(request: Request): return [request.scope["root_path"], request.url.path, str(request.base_url)]
@sub.get("/fail")
def fail(): raise HTTPException(404, "sub")
@sub.get("/url")
def url(request: Request): return [str(request.url_for("in_sub")), str(request.url)]
@deep.get("/x/{y}")
def x(y: int, request: Request): return [y, request.scope["root_path"], request.path_params]
sub.mount("/deep", deep)
app.mount("/subapi", sub)
async def raw(scope, receive, send):
    body = f"{scope['type']} {scope['path']} {scope['root_path']}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})
app.mount("/raw/{tenant}", raw)
app.add_route("/function", lambda request: PlainTextResponse("function " + request.method))
@app.route("/decorated", methods=["GET", "POST"])
async def decorated(request): return JSONResponse({"m": request.method})
"""
        )
        .replace(
            '@app.route("/decorated", methods=["GET", "POST"])',
            '@app.api_route("/decorated", methods=["GET", "POST"])',
        )
        .replace("async def decorated(request)", "async def decorated(request: Request)")
    )
    paths = [
        "/app", "/subapi/sub", "/subapi/fail", "/subapi/nothing", "/subapi/url", "/subapi/deep/x/4", "/subapi/deep/x/z", "/subapi",
        "/subapi/", "/raw/acme/some/path", "/function", "/decorated", "/subapi/sub/",
    ]  # fmt: skip
    assert_same(program, *[get(path) for path in paths], post("/decorated"), post("/function"))


@pytest.mark.filterwarnings("ignore::fastapi.exceptions.FastAPIDeprecationWarning")
def test_root_path() -> None:
    program = (
        HEAD.replace("app = FastAPI()", 'app = FastAPI(root_path="/api/v1")')
        + """
@app.get("/app")
def top(request: Request): return [request.scope["root_path"], str(request.url_for("top"))]
"""
    )
    assert_same(program, get("/app"), get("/api/v1/app"))


async def _run_lifespan(app: Any, *between: Call) -> list[Any]:
    received: asyncio.Queue[Any] = asyncio.Queue()
    sent: list[Any] = []
    started = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message["type"])
        started.set()

    scope = {"type": "lifespan", "state": {}}
    task = asyncio.create_task(app(scope, received.get, send))
    await received.put({"type": "lifespan.startup"})
    await started.wait()
    if not task.done() and sent == ["lifespan.startup.complete"]:
        from twins import _ask

        sent += [answer.body for answer in await _ask(app, between)]
        await received.put({"type": "lifespan.shutdown"})
    try:
        await task
    except Exception as error:
        sent.append(type(error).__name__)
    return [*sent, scope["state"]]


LIFESPANS = {
    "context manager": """
@asynccontextmanager
async def lifespan(app):
    log.append("start"); app.state.x = 1; yield {"db": "db"}; log.append("stop")
app = FastAPI(lifespan=lifespan)
""",
    "events": """
@app.on_event("startup")
async def start(): log.append("start")
@app.on_event("shutdown")
def stop(): log.append("stop")
""",
    "start-up fails": """
@asynccontextmanager
async def lifespan(app):
    raise ValueError("cannot start")
    yield
app = FastAPI(lifespan=lifespan)
""",
    "shutdown fails": """
@asynccontextmanager
async def lifespan(app):
    yield
    raise ValueError("cannot stop")
app = FastAPI(lifespan=lifespan)
""",
    "of a router": """
@asynccontextmanager
async def lifespan(app):
    log.append("app start"); yield {"a": 1}; log.append("app stop")
@asynccontextmanager
async def router_lifespan(app):
    log.append("router start"); yield {"b": 2}; log.append("router stop")
router = APIRouter(lifespan=router_lifespan)
app = FastAPI(lifespan=lifespan)
app.include_router(router)
""",
    "parameters": """
app = FastAPI(on_startup=[lambda: log.append("start")], on_shutdown=[lambda: log.append("stop")])
""",
}


@pytest.mark.filterwarnings("ignore:\\s*on_event is deprecated:DeprecationWarning")
@pytest.mark.parametrize("kind", LIFESPANS)
def test_lifespan(kind: str) -> None:
    program = HEAD + LIFESPANS[kind]
    found = []
    for source, name in (
        (program, "lifespan_on_fastapi"),
        (for_justapi(program), "lifespan_on_justapi"),
    ):
        names = load(source, name)
        found.append((asyncio.run(_run_lifespan(names["app"])), names["log"]))
    assert found[1] == found[0]


async def _talk(
    app: Any, path: str, *messages: str, headers: Any = (), query: bytes = b""
) -> list[Any]:
    incoming: list[Any] = [{"type": "websocket.connect"}]
    incoming += [{"type": "websocket.receive", "text": message} for message in messages]
    incoming += [{"type": "websocket.disconnect", "code": 1001}]
    sent: list[Any] = []

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        sent.append({key: value for key, value in message.items() if value not in (None, [], "")})

    scope = {
        "type": "websocket", "path": path, "raw_path": path.encode(), "query_string": query, "root_path": "", "scheme": "ws",
        "headers": list(headers), "subprotocols": [], "state": {}, "extensions": {"websocket.http.response": {}}, "server": ("t", 80),
    }  # fmt: skip
    try:
        await app(scope, receive, send)
    except Exception as error:
        sent.append(type(error).__name__)
    return sent


def test_websockets() -> None:
    program = (
        HEAD
        + """
class Own(Exception): pass
@app.exception_handler(Own)
async def own(websocket, exc): log.append("own"); await websocket.close(4000)
async def user(token: Annotated[str | None, Query()] = None, session: Annotated[str | None, Cookie()] = None):
    if token is None and session is None: raise WebSocketException(code=1008, reason="no token")
    return token or session
def resource():
    log.append("open")
    try: yield "r"
    finally: log.append("close")
@app.websocket("/echo")
async def echo(websocket: WebSocket):
    await websocket.accept()
    try:
        while True: await websocket.send_text("echo " + await websocket.receive_text())
    except WebSocketDisconnect as e: log.append(e.code)
@app.websocket("/items/{item_id}")
async def items(websocket: WebSocket, item_id: int, user: Annotated[str, Depends(user)], q: int = 1):
    await websocket.accept()
    await websocket.send_json([item_id, user, q])
@app.websocket("/resource")
async def with_resource(websocket: WebSocket, r: Annotated[str, Depends(resource)]):
    await websocket.accept(); await websocket.send_text(r); await websocket.close()
@app.websocket("/resource-error")
async def with_resource_error(websocket: WebSocket, r: Annotated[str, Depends(resource)]):
    await websocket.accept(); raise Own
@app.websocket("/raise")
async def raises(websocket: WebSocket): await websocket.accept(); raise WebSocketException(1003, "bad")
@app.websocket("/crash")
async def crash(websocket: WebSocket): raise RuntimeError
@app.websocket("/http")
async def http(websocket: WebSocket): raise HTTPException(403, "no")
router = APIRouter(prefix="/r", dependencies=[Depends(resource)])
@router.websocket("/ws")
async def routed(ws: WebSocket): await ws.accept(); await ws.send_text("routed")
app.include_router(router)
"""
    )
    talks: list[tuple[Any, ...]] = [
        ("/echo", "a", "b"), ("/items/3",), ("/items/3", b"token=t&q=5"), ("/items/3", b"token=t"), ("/resource",),
        ("/resource-error",), ("/raise",), ("/crash",), ("/http",), ("/nothing",), ("/r/ws",), ("/echo/",),
    ]  # fmt: skip
    found = []
    for source, name in (
        (program, "sockets_on_fastapi"),
        (for_justapi(program), "sockets_on_justapi"),
    ):
        names = load(source, name)
        results = []
        for path, *rest in talks:
            query = rest[0] if rest and isinstance(rest[0], bytes) else b""
            messages = [text for text in rest if isinstance(text, str)]
            results.append(asyncio.run(_talk(names["app"], path, *messages, query=query)))
        cookie = [(b"cookie", b"session=s")]
        results.append(asyncio.run(_talk(names["app"], "/items/4", headers=cookie)))
        found.append((results, names["log"]))
    for theirs, ours in zip(found[0][0], found[1][0], strict=True):
        assert ours == theirs
    assert found[1][1] == found[0][1]


def test_invalid_handshakes_are_refused() -> None:
    program = (
        HEAD
        + """
@app.websocket("/items/{item_id}")
async def items(websocket: WebSocket, item_id: int): await websocket.accept()
"""
    )
    app = load(for_justapi(program), "handshakes")["app"]
    assert asyncio.run(_talk(app, "/items/x")) == [
        {"type": "websocket.close", "code": 1008, "reason": "1 invalid parameters"}
    ]


def test_automatic_methods() -> None:
    """HEAD and OPTIONS answer by themselves, and 405 names all methods."""
    program = (
        HEAD + '@app.get("/x")\ndef x(): return {"a": 1}\n@app.post("/x")\ndef y(): return 2\n'
    )
    app = load(for_justapi(program), "methods")["app"]
    head, options, put, body = answers(
        app, call("HEAD", "/x"), call("OPTIONS", "/x"), call("PUT", "/x"), get("/x")
    )
    assert (head.status, head.body, head.headers) == (200, b"", body.headers)
    assert options.status == 204
    assert put.status == 405


def test_an_encoded_slash_stays_in_its_parameter() -> None:
    program = HEAD + '@app.get("/units/{unit}/x")\ndef x(unit: str): return unit\n'
    app = load(for_justapi(program), "slashes")["app"]
    found = answers(app, get("/units/kg%2Fs/x"), get("/units/a%zz/x"), get("/units/%FF/x"))
    assert [answer.status for answer in found] == [200, 400, 400]
    assert found[0].body == "kg/s"


def test_limits_that_cannot_be_meant() -> None:
    program = """
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
app = FastAPI()
refused = []
def endpoint(): ...
def attempt(make, **options):
    try: make(**options)
    except ValueError: refused.append((make.__name__, options))
def application(**options): FastAPI(**options)
def router(**options): APIRouter(**options)
def operation(**options): FastAPI().post("/", **options)(endpoint)
def include(**options): FastAPI().include_router(APIRouter(), **options)
def route(**options): APIRoute("/", endpoint, **options)
for make in (application, router, operation, include, route):
    for limit in (-1, True, 1.5, "5", 0, 5, None): attempt(make, max_body_size=limit)
    for limit in (-1, False, 1.5, "5", None, 0, 5):
        for name in ("max_fields", "max_files", "max_part_size", "max_parts"):
            attempt(make, form_limits={name: limit})
"""
    assert_same(program, get("/"), names=["refused"])


# pydantic.v1 ends with Python 3.13.
if sys.version_info < (3, 14):

    def test_models_of_pydantic_v1_are_refused() -> None:
        program = """
from fastapi import FastAPI, Depends
from fastapi.exceptions import PydanticV1NotSupportedError
from pydantic.v1 import BaseModel
app = FastAPI()
refused = []
class Old(BaseModel):
    name: str
def body(old: Old): ...
def returned() -> Old: ...
def dependency(old=Depends(body)): ...
def plain(): ...
for endpoint in (body, returned, dependency, plain):
    for options in ({}, {"response_model": Old}, {"response_model": None, "responses": {400: {"model": Old}}}):
        try: app.post("/")(endpoint) if not options else app.post("/", **options)(endpoint)
        except PydanticV1NotSupportedError: refused.append((endpoint.__name__, list(options)))
"""
        assert_same(program, get("/"), names=["refused"])

        # FastAPI leaves those inside of other types to pydantic, which warns.
        class Old(importlib.import_module("pydantic.v1").BaseModel):  # type: ignore[misc]
            name: str

        for annotation in (Old | None, list[Old], dict[str, Old]):
            with pytest.raises(PydanticV1NotSupportedError, match="Old"):
                JustAPIApp().get("/", response_model=annotation)(lambda: None)
