"""Middleware that the lane does itself: which, and that it is the lane that does it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from justapi import JustAPI, Request, WebSocket
from justapi.middleware import Middleware
from justapi.middleware.cors import CORSMiddleware
from justapi.middleware.gzip import GZipMiddleware
from justapi.middleware.httpsredirect import HTTPSRedirectMiddleware
from justapi.middleware.trustedhost import TrustedHostMiddleware
from lanes import Running, on_lane
from serving import Server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CORS = Middleware(CORSMiddleware, allow_origins=["https://a.example"], allow_methods=["*"])
GZIP = Middleware(GZipMiddleware, minimum_size=1000)
HOSTS = Middleware(TrustedHostMiddleware, allowed_hosts=["test", "*.example"])
REGEX = Middleware(CORSMiddleware, allow_origin_regex="https://.*[.]example")
WWW = Middleware(TrustedHostMiddleware, allowed_hosts=["www.test"])
HTTPS = Middleware(HTTPSRedirectMiddleware)


class OwnGzip(GZipMiddleware):
    """A subclass, which may do anything."""


class Texts(list[str]):
    """A list that may answer `in` as it likes."""


async def pass_on(request: Request, call_next: Callable[[Request], Any]) -> Any:
    return await call_next(request)


def made(middleware: list[Middleware]) -> JustAPI:
    app = JustAPI(middleware=middleware)

    @app.get("/")
    def hello() -> str:
        return "hello " * 500

    return app


@pytest.mark.parametrize(
    "middleware",
    [[], [CORS], [GZIP], [HOSTS], [REGEX], [WWW], [HTTPS], [CORS, GZIP, HOSTS, CORS]],
)
def test_the_built_in_classes_are_done_by_the_lane(middleware: list[Middleware]) -> None:
    app = made(middleware)
    assert not app.has_python_middleware

    async def use(running: Running) -> None:
        headers = {"origin": "https://a.example", "host": "test"}
        for _ in range(3):
            await running.client.get("/", headers=headers)
        assert running.counters["asgi"] == 0
        refuses = any(one in (WWW, HTTPS) for one in middleware)
        assert running.counters["inline"] == (0 if refuses else 3)

    on_lane(app, use)


@pytest.mark.parametrize(
    "one",
    [
        Middleware(OwnGzip),
        Middleware(GZipMiddleware, compresslevel=0),
        Middleware(GZipMiddleware, minimum_size=1.5),
        Middleware(CORSMiddleware, allow_origins="https://a.example"),
        Middleware(CORSMiddleware, allow_origins=Texts(["https://a.example"])),
        Middleware(CORSMiddleware, allow_origins=["https://\xe4.example"]),
        Middleware(CORSMiddleware, allow_headers=["X-\xc4"]),
        Middleware(CORSMiddleware, no_such_argument=1),
        Middleware(TrustedHostMiddleware, allowed_hosts=["*bad"]),
        Middleware(lambda app: app),
    ],
)
def test_anything_else_keeps_the_whole_stack_in_python(one: Middleware) -> None:
    assert made([one]).has_python_middleware
    assert made([CORS, one, GZIP]).has_python_middleware


def test_python_in_the_middle_takes_all_along() -> None:
    app = made([])
    app.add_middleware(GZipMiddleware)
    app.middleware("http")(pass_on)
    app.add_middleware(CORSMiddleware, allow_origins=["*"])
    assert app.has_python_middleware

    async def use(running: Running) -> None:
        answer = await running.client.get("/", headers={"origin": "https://a.example"})
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["content-encoding"] == "gzip"
        assert running.counters["asgi"] == 1

    on_lane(app, use)


def test_a_replaced_stack_is_kept() -> None:
    app = made([CORS])
    build = app.build_middleware_stack
    seen = []

    def instrumented() -> Any:
        stack = build()

        async def outermost(scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope["type"])
            await stack(scope, receive, send)

        return outermost

    app.build_middleware_stack = instrumented  # type: ignore[method-assign]
    assert app.has_python_middleware

    async def use(running: Running) -> None:
        assert (await running.client.get("/")).headers["vary"] == "Origin"

    on_lane(app, use)
    assert "http" in seen


def test_middleware_is_not_added_to_what_runs() -> None:
    app = made([CORS])

    async def use(_: Running) -> None:
        with pytest.raises(RuntimeError, match="after an application has started"):
            app.add_middleware(GZipMiddleware)

    on_lane(app, use)


def test_native_routes_behind_what_needs_no_python() -> None:
    app = JustAPI(middleware=[HOSTS, CORS])

    @app.get("/native", native={"a": "b" * 2000})
    def native() -> None: ...

    app.add_middleware(GZipMiddleware)

    for one in (REGEX, WWW, HTTPS, Middleware(OwnGzip)):
        with pytest.raises(ValueError, match="native"):
            app.add_middleware(one.cls, *one.args, **one.kwargs)
        with pytest.raises(ValueError, match="native"):
            JustAPI(middleware=[one]).get("/native", native={"a": 1})(native)

    async def use(running: Running) -> None:
        headers = {"origin": "https://a.example", "accept-encoding": "gzip"}
        answer = await running.client.get("/native", headers=headers)
        assert answer.json() == {"a": "b" * 2000}
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["access-control-allow-origin"] == "https://a.example"
        assert (await running.client.get("/native", headers={"host": "evil"})).status_code == 400
        assert running.counters["native"] == 1
        assert sum(running.counters.values()) == 1

    on_lane(app, use)


def test_what_takes_the_asgi_way_inside_passes_the_middleware_once() -> None:
    app = JustAPI(middleware=[CORS, GZIP, HOSTS], error_format="fastapi")
    app.mount("/mounted", made([]))

    @app.websocket("/socket")
    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("hello")
        await socket.close()

    async def use(running: Running) -> None:
        headers = {"origin": "https://a.example", "accept-encoding": "gzip"}
        for path, status in (("/mounted/", 200), ("/nowhere", 404)):
            answer = await running.client.get(path, headers=headers)
            assert answer.status_code == status
            assert answer.headers.get_list("access-control-allow-origin") == ["https://a.example"]
            assert "Origin" in answer.headers.get_list("vary")[0]
            assert answer.headers["vary"].count("Origin") == 1
        assert running.counters["asgi"] == 2
        assert (await handshake(running, "test")) == "101"
        assert (await handshake(running, "evil")) == "400"
        assert running.counters["asgi"] == 2

    on_lane(app, use)


async def handshake(running: Running, host: str) -> str:
    """Asks for a WebSocket; returns the status."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
    writer.write(
        f"GET /socket HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        "Origin: http://test\r\n\r\n".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    writer.close()
    assert b"vary" not in head.lower()
    assert b"access-control" not in head.lower()
    return head.split()[1].decode()


def test_websockets_are_redirected() -> None:
    app = JustAPI(middleware=[CORS, HTTPS])

    @app.websocket("/socket")
    async def socket(socket: WebSocket) -> None: ...

    async def use(running: Running) -> None:
        assert (await handshake(running, "test")) == "307"

    on_lane(app, use)


def test_a_stream_is_compressed_while_it_is_sent() -> None:
    from justapi.responses import StreamingResponse

    app = JustAPI(middleware=[GZIP])
    go_on = asyncio.Event()

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def pieces() -> Any:
            yield "first"
            await go_on.wait()
            yield "second"

        return StreamingResponse(pieces(), media_type="text/plain")

    async def use(running: Running) -> None:
        headers = {"accept-encoding": "gzip"}
        async with running.client.stream("GET", "/stream", headers=headers) as answer:
            assert answer.headers["content-encoding"] == "gzip"
            pieces = answer.aiter_text()
            assert await anext(pieces) == "first"
            go_on.set()
            assert "".join([piece async for piece in pieces]) == "second"

    on_lane(app, use)


def test_the_metrics_show_the_lane_at_work(tmp_path: Path) -> None:
    source = """
        from justapi import JustAPI
        from justapi.middleware.cors import CORSMiddleware
        from justapi.middleware.gzip import GZipMiddleware
        from justapi.middleware.trustedhost import TrustedHostMiddleware
        app = JustAPI()
        app.add_middleware(CORSMiddleware, allow_origins=["*"])
        app.add_middleware(GZipMiddleware)
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1"])

        @app.get("/")
        def hello(): return "hello " * 500
    """
    with Server(tmp_path, source) as server:
        for _ in range(5):
            answer = server.client.get("/", headers={"origin": "https://a.example"})
            assert answer.headers["content-encoding"] == "gzip"
            assert answer.headers["access-control-allow-origin"] == "*"
        lines = server.client.get("/metrics").text.splitlines()
        assert "justapi_python_inline_total 5" in lines
        assert "justapi_python_asgi_total 0" in lines
        assert "vary" not in server.client.get("/health").headers
        assert server.stop() == 0
