"""The middleware that comes along answers as Starlette's does."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from twins import (
    Call,
    answers,
    assert_same,
    call,
    for_justapi,
    get,
    lane_answers,
    load,
    only_over_asgi,
    post,
)

FILE = str(Path(__file__).parent / "twins.py")
HEAD = """
import asyncio
from fastapi import APIRouter, BackgroundTasks, FastAPI, HTTPException, Request, Response
from fastapi.exception_handlers import http_exception_handler, request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.middleware import Middleware
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.middleware.httpsredirect import HTTPSRedirectMiddleware
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import FileResponse, JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
ran = []
app = FastAPI()
@app.get("/")
def root(): return {"a": 1}
@app.get("/vary")
def vary(response: Response): response.headers["vary"] = "X-A"; return 1
@app.get("/large")
def large(): return "x" * 5000
@app.get("/stream")
def stream(): return StreamingResponse(iter(["a" * 1000, "b" * 1000]), media_type="text/plain")
@app.get("/image")
def image(): return Response(b"x" * 5000, media_type="image/png")
@app.get("/error")
def error(): raise HTTPException(404)
@app.get("/broken")
def broken(): raise RuntimeError("broken")
@app.get("/broken-later")
async def broken_later():
    await asyncio.sleep(0)
    raise RuntimeError("broken")
@app.get("/own-cors")
def own_cors(response: Response):
    response.headers["access-control-allow-origin"] = "https://own.example"
    response.headers["access-control-expose-headers"] = "X-Own"
    response.headers.append("vary", "X-A"); response.headers.append("vary", "X-B")
    return 1
@app.get("/events")
def events(): return StreamingResponse(iter(["data: 1\\n\\n" * 300]), media_type="text/event-stream")
@app.get("/encoded")
def encoded(): return Response(b"y" * 5000, media_type="text/plain", headers={"content-encoding": "identity"})
@app.get("/file")
def file(): return FileResponse(FILE)
@app.get("/empty")
def empty(): return Response(status_code=204)
@app.get("/unchanged")
def unchanged(): return Response(status_code=304, headers={"etag": '"a"'})
@app.get("/slash/")
def slash(): return 1
@app.get("/tasks")
def tasks(later: BackgroundTasks):
    later.add_task(ran.append, 1)
    return "x" * 5000
@app.get("/later")
async def later():
    await asyncio.sleep(0)
    return "x" * 5000
@app.post("/body")
async def body(value: dict): return value
"""
HEAD = HEAD.replace("FILE", repr(FILE))
CORS = [
    "allow_origins=['https://a.example', 'https://b.example']",
    "allow_origins=['*']",
    "allow_origins=['*'], allow_credentials=True, allow_methods=['*'], allow_headers=['*']",
    "allow_origin_regex='https://.*[.]example', allow_methods=['GET', 'POST'], allow_headers=['X-A']",
    "allow_origins=['https://a.example'], allow_private_network=True, expose_headers=['X-B', 'X-C'], max_age=5",
    "",
]


def preflight(origin: str, method: str, headers: str | None = None, **more: str) -> Call:
    asked = {"origin": origin, "access-control-request-method": method, **more}
    if headers is not None:
        asked["access-control-request-headers"] = headers
    return Call("OPTIONS", "/", {"headers": asked})


@pytest.mark.parametrize("settings", CORS)
def test_cors(settings: str) -> None:
    program = HEAD + f"app.add_middleware(CORSMiddleware, {settings})\n"
    network = {"access-control-request-private-network": "true"}
    good, evil = ({"origin": origin} for origin in ("https://a.example", "https://evil.test"))
    paths = [
        "/", "/vary", "/own-cors", "/error", "/broken", "/broken-later", "/nowhere", "/slash", "/slash/", "/empty",
        "/unchanged", "/later", "/stream", "/file",
    ]  # fmt: skip
    assert_same(
        program,
        *[get(path) for path in paths],
        *[get(path, headers=good) for path in paths],
        *[get(path, headers=evil) for path in paths],
        get("/", headers={"origin": ""}),
        get("/", headers={"origin": "null"}),
        get("/", headers={"origin": "https://A.example"}),
        get("/", headers={"origin": "https://a.example.evil.test"}),
        call("PUT", "/", headers=good),
        post("/body", json=[], headers=good),
        post("/body", json={"a": 1}, headers=good),
        preflight("https://a.example", "GET"),
        preflight("https://a.example", "get"),
        preflight("https://a.example", "POST", "X-A, Content-Type"),
        preflight("https://a.example", "GET", "x-a"),
        preflight("https://a.example", "GET", ""),
        preflight("https://a.example", "GET", "accept,,"),
        preflight("https://a.example", "GET", "X-Other"),
        preflight("https://evil.test", "DELETE", "X-A"),
        preflight("https://evil.test", "GET"),
        preflight("https://a.example", "GET", **network),
        preflight("https://evil.test", "DELETE", "X-A", **network),
        Call("OPTIONS", "/nowhere", preflight("https://a.example", "GET").options),
        names=["ran"],
        # What no route answers: twice for each of three origins, and PUT.
        over_asgi=7,
    )


def test_trusted_hosts() -> None:
    program = HEAD + (
        "app.add_middleware(TrustedHostMiddleware, allowed_hosts=['test', '*.example.com', 'www.other.org'])\n"
    )
    hosts = [
        "test", "test:80", "TEST", "a.example.com", "example.com", "other.org", "other.org:8000", "www.other.org",
        "evil", "", "[::1]",
    ]  # fmt: skip
    # These are no hosts: the server itself says so.
    invalid = ["test/x", "a b"]
    assert_same(
        program,
        *[get("/?x=1", headers={"host": host}) for host in hosts],
        *[get("/a%20b%3F/%25/%C3%A9?x=%20#y", headers={"host": host}) for host in hosts],
        *[get(path, headers={"host": "evil"}) for path in ("/nowhere", "/broken", "/slash")],
        call("PUT", "/", headers={"host": "evil"}),
        get("/slash", headers={"host": "test"}),
        *[only_over_asgi(get("/?x=1", headers={"host": host})) for host in invalid],
        # What no route answers, of the five hosts that are let in, and one redirect.
        over_asgi=6,
    )


@pytest.mark.parametrize(
    "settings", ["allowed_hosts=['*']", "", "allowed_hosts=['[::1]', 'TEST'], www_redirect=False"]
)
def test_trusted_hosts_of_other_kinds(settings: str) -> None:
    program = HEAD + f"app.add_middleware(TrustedHostMiddleware, {settings})\n"
    hosts = ["test", "evil", "[::1]:8000", "[::2]", "www.test", "*"]
    assert_same(
        program, *[get("/", headers={"host": host}) for host in hosts], get("/"), over_asgi=0
    )


def test_redirect_to_https() -> None:
    program = HEAD + "app.add_middleware(HTTPSRedirectMiddleware)\n"
    assert_same(
        program,
        get("/?x=1"),
        only_over_asgi(get("https://test/")),
        get("http://test:80/"),
        get("http://test:8000/a"),
        get("/a%20b%3F/%25/%C3%A9?x=%20"),
        get("/nowhere"),
        get("/broken"),
        call("PUT", "/body"),
    )
    # Starlette leaves the brackets out.
    address = get("/a", headers={"host": "[::1]:80"})
    for ask in (answers, lane_answers):
        [answer] = ask(load(for_justapi(program), "https_on_justapi")["app"], address)
        assert answer.status == 307
        assert dict(answer.headers)["location"] == "/a"


GZIP = [
    "minimum_size=1000, compresslevel=5",
    "",
    "minimum_size=0",
    "exclude_content_types=('application/json', 'image/*')",
]


@pytest.mark.parametrize("settings", GZIP)
def test_gzip(settings: str) -> None:
    program = HEAD + f"app.add_middleware(GZipMiddleware, {settings})\n"
    paths = [
        "/", "/large", "/stream", "/image", "/error", "/vary", "/own-cors", "/events", "/encoded", "/broken", "/empty",
        "/unchanged", "/nowhere", "/tasks", "/later", "/slash",
    ]  # fmt: skip
    if settings == "minimum_size=0":
        # Starlette gives these a body, which HTTP does not allow.
        paths = [path for path in paths if path not in ("/empty", "/unchanged")]
    plain = [get(path, headers={"accept-encoding": "identity"}) for path in paths]
    assert_same(program, *plain, names=["ran"], over_asgi=2)
    zipped = [
        get(path, headers={"accept-encoding": accepted})
        for path in [*paths, "/file"]
        for accepted in ("gzip", "br, gzip;q=0.5", "x-gzip")
    ]
    # Two libraries make the bytes, and httpx has unpacked them.
    assert_same(program, *zipped, names=["ran"], without=["content-length"], over_asgi=6)


def test_gzip_keeps_the_length_of_what_is_all_there() -> None:
    program = HEAD + "app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)\n"
    large = get("/large", headers={"accept-encoding": "gzip"})
    for ask in (answers, lane_answers):
        [answer] = ask(load(for_justapi(program), "gzip_on_justapi")["app"], large)
        # httpx has unpacked it; only the length on the wire tells.
        assert answer.body == "x" * 5000
        length = int(dict(answer.headers)["content-length"])
        expected = len(gzip.compress(b'"' + b"x" * 5000 + b'"', 5))
        assert abs(length - expected) <= 8, (ask, length, expected)


STACKS = [
    "CORSMiddleware, allow_origins=['*']|GZipMiddleware",
    "GZipMiddleware|CORSMiddleware, allow_origins=['https://a.example'], allow_credentials=True",
    "TrustedHostMiddleware, allowed_hosts=['test']|CORSMiddleware, allow_origins=['*']",
    "CORSMiddleware, allow_origins=['*']|TrustedHostMiddleware, allowed_hosts=['test']",
    "HTTPSRedirectMiddleware|TrustedHostMiddleware, allowed_hosts=['test']",
    "TrustedHostMiddleware, allowed_hosts=['test', 'www.other']|HTTPSRedirectMiddleware|GZipMiddleware",
    "CORSMiddleware, allow_origins=['*']|CORSMiddleware, allow_origins=['https://a.example'], expose_headers=['X']",
    "GZipMiddleware, minimum_size=5000|GZipMiddleware, minimum_size=10",
]


@pytest.mark.parametrize("stack", STACKS)
def test_the_order_of_middleware(stack: str) -> None:
    lines = [f"app.add_middleware({one})\n" for one in stack.split("|")]
    program = HEAD + "".join(lines)
    origin = {"origin": "https://a.example", "accept-encoding": "gzip"}
    assert_same(
        program,
        *[
            get(path, headers={**origin, "host": host})
            for path in ("/", "/large", "/vary", "/stream", "/error", "/nowhere", "/broken")
            for host in ("test", "evil", "other")
        ],
        *([preflight("https://a.example", "GET")] if "CORS" in stack else []),
        *([preflight("https://evil.test", "PUT", host="evil")] if "CORS" in stack else []),
        without=["content-length"],
    )


def test_middleware_by_parameter() -> None:
    program = HEAD.replace(
        "app = FastAPI()",
        "app = FastAPI(middleware=[Middleware(CORSMiddleware, allow_origins=['*']), Middleware(GZipMiddleware)])",
    )
    assert_same(program, get("/", headers={"origin": "https://x.example"}), over_asgi=0)


def test_built_in_handlers_can_be_called() -> None:
    program = HEAD + (
        """
seen = []
@app.exception_handler(HTTPException)
async def http(request, exc): seen.append(exc.status_code); return await http_exception_handler(request, exc)
@app.exception_handler(RequestValidationError)
async def invalid(request, exc): seen.append(len(exc.errors())); return await request_validation_exception_handler(request, exc)
@app.get("/number/{n}")
def number(n: int): return n
"""
    )
    assert_same(program, get("/error"), get("/number/x"), names=["seen"])


def test_route_classes() -> None:
    program = HEAD + (
        """
class Upper(Request):
    async def body(self):
        if not hasattr(self, "_upper"): self._upper = (await super().body()).upper()
        return self._upper
    async def json(self):
        import json
        return json.loads(await self.body())
class UpperRoute(APIRoute):
    def get_route_handler(self):
        handler = super().get_route_handler()
        async def custom(request: Request) -> Response:
            try: response = await handler(Upper(request.scope, request.receive))
            except RequestValidationError as exc: raise HTTPException(422, {"count": len(exc.errors())})
            response.headers["x-route"] = "1"
            return response
        return custom
router = APIRouter(route_class=UpperRoute)
@router.post("/upper")
async def upper(body: dict): return body
@router.post("/number")
async def number(n: int, request: Request): return [n, (await request.body()).decode()]
app.include_router(router, prefix="/r")
"""
    )
    assert_same(
        program,
        post("/r/upper", json={"a": "b"}),
        post("/r/upper", json=[1]),
        post("/r/number?n=3", content=b"abc"),
        post("/r/number?n=x"),
    )
