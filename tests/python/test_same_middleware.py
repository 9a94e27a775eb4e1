"""The middleware that comes along answers as Starlette's does."""

from __future__ import annotations

import gzip

import pytest

from twins import Call, answers, assert_same, for_justapi, get, load, only_over_asgi, post

HEAD = """
from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi.exception_handlers import http_exception_handler, request_validation_exception_handler
from fastapi.exceptions import RequestValidationError
from fastapi.middleware import Middleware
from fastapi.middleware.cors import CORSMiddleware
from fastapi.middleware.gzip import GZipMiddleware
from fastapi.middleware.httpsredirect import HTTPSRedirectMiddleware
from fastapi.middleware.trustedhost import TrustedHostMiddleware
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
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
"""
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
    assert_same(
        program,
        get("/"),
        get("/", headers={"origin": "https://a.example"}),
        get("/", headers={"origin": "https://evil.test"}),
        get("/vary", headers={"origin": "https://b.example"}),
        get("/vary"),
        get("/error", headers={"origin": "https://a.example"}),
        preflight("https://a.example", "GET"),
        preflight("https://a.example", "POST", "X-A, Content-Type"),
        preflight("https://a.example", "GET", "X-Other"),
        preflight("https://evil.test", "DELETE", "X-A"),
        preflight("https://a.example", "GET", **network),
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
        *[only_over_asgi(get("/?x=1", headers={"host": host})) for host in invalid],
    )


def test_redirect_to_https() -> None:
    program = HEAD + "app.add_middleware(HTTPSRedirectMiddleware)\n"
    assert_same(
        program,
        get("/?x=1"),
        only_over_asgi(get("https://test/")),
        get("http://test:80/"),
        get("http://test:8000/a"),
    )


def test_gzip() -> None:
    program = HEAD + "app.add_middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)\n"
    plain = {"accept-encoding": "identity"}
    zipped = {"accept-encoding": "gzip"}
    paths = ["/", "/large", "/stream", "/image", "/error", "/vary"]
    assert_same(
        program,
        *[get(path, headers=plain) for path in paths],
        *[get(path, headers=zipped) for path in paths if path != "/large"],
    )
    app = load(for_justapi(program), "gzip_on_justapi")["app"]
    [large] = answers(app, get("/large", headers=zipped))
    # httpx has unpacked it; only the length on the wire tells.
    assert large.body == "x" * 5000
    assert int(dict(large.headers)["content-length"]) == len(
        gzip.compress(b'"' + b"x" * 5000 + b'"', 5)
    )


def test_middleware_by_parameter() -> None:
    program = HEAD.replace(
        "app = FastAPI()",
        "app = FastAPI(middleware=[Middleware(CORSMiddleware, allow_origins=['*']), Middleware(GZipMiddleware)])",
    )
    assert_same(program, get("/", headers={"origin": "https://x.example"}))


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
