"""The scopes that a lane makes for ASGI applications."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import websockets

from lanes import Running, on_lane

seen: list[dict[str, Any]] = []


async def answer(send: Any, status: int = 200) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})


async def keeps(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """Notes its scope, then spoils what it can reach of it."""
    if scope["type"] == "lifespan":
        raise RuntimeError("it has none")
    seen.append({**scope, "headers": list(scope["headers"]), "state": {**scope["state"]}})
    scope["extensions"]["spoilt"] = {}
    scope["state"]["spoilt"] = 1
    scope["headers"].append((b"spoilt", b"1"))
    scope["spoilt"] = scope["method"] = "spoilt"
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1000})
        return
    await answer(send)


async def exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    received = await reader.read()
    writer.close()
    return received


def test_what_a_scope_says() -> None:
    async def use(running: Running) -> None:
        seen.clear()
        long_name = b"X-" + b"N" * 60
        raw = (
            b"PUT /a%%20b/%%C3%%A4?x=%%20&y HTTP/1.1\r\nHOST: t\r\nX-Odd: \xe9\r\nx-ODD: 2\r\n"
            b"%s: v\r\nConnection: close\r\n\r\n" % long_name
        )
        assert (await exchange(running.port, raw)).endswith(b"done")
        await exchange(running.port, b"GET / HTTP/1.0\r\nhost: t\r\n\r\n")
        await exchange(running.port, b"POST /? HTTP/1.0\r\nHost: t\r\nContent-Length: 0\r\n\r\n")
        first, second, third = seen
        assert first["headers"] == [
            (b"host", b"t"),
            (b"x-odd", b"\xe9"),
            (b"x-odd", b"2"),
            (long_name.lower(), b"v"),
            (b"connection", b"close"),
        ]
        names = ("method", "http_version", "path", "raw_path", "query_string", "scheme", "type")
        assert [tuple(scope[name] for name in names) for scope in seen] == [
            ("PUT", "1.1", "/a b/ä", b"/a%20b/%C3%A4", b"x=%20&y", "http", "http"),
            ("GET", "1.0", "/", b"/", b"", "http", "http"),
            ("POST", "1.0", "/", b"/", b"", "http", "http"),
        ]
        for scope in seen:
            host, port = scope["client"]
            assert (host, type(port)) == ("127.0.0.1", int)
            assert scope["server"] == ("test", 80)
            assert scope["root_path"] == ""
            assert scope["asgi"] == {"version": "3.0", "spec_version": "2.4"}
            assert set(scope["extensions"]) == {"http.response.pathsend", "spoilt"}
        assert second["client"][1] != third["client"][1]

    on_lane(keeps, use)


def test_nothing_of_a_scope_is_seen_by_the_next_request() -> None:
    async def use(running: Running) -> None:
        seen.clear()
        for _ in range(3):
            assert (await running.client.get("/")).status_code == 200
        for scope in seen:
            assert "spoilt" not in scope
            assert scope["method"] == "GET"
            assert scope["state"] == {}
            assert all(name != b"spoilt" for name, _ in scope["headers"])
        assert len({id(scope["extensions"]) for scope in seen}) == 3

    on_lane(keeps, use)


def test_the_scope_of_a_websocket_has_no_method() -> None:
    async def use(running: Running) -> None:
        seen.clear()
        with pytest.raises(websockets.InvalidStatus):
            await websockets.connect(f"ws://127.0.0.1:{running.port}/x?y=1")
        [scope] = seen
        assert (scope["type"], scope["scheme"], scope["http_version"]) == ("websocket", "ws", "1.1")
        assert (scope["path"], scope["query_string"]) == ("/x", b"y=1")
        assert "method" not in scope
        assert scope["subprotocols"] == []

    on_lane(keeps, use)


class Application:
    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await answer(send, 201)

    async def method(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await answer(send, 202)

    def hands_on(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        # Its own code runs in the task, too.
        assert asyncio.current_task() is not None
        return self.method(scope, receive, send)


@pytest.mark.parametrize(
    ("app", "status"),
    [
        (Application(), 201),
        (Application().method, 202),
        (Application().hands_on, 202),
        (lambda scope, receive, send: Application()(scope, receive, send), 201),
    ],
)
def test_applications_of_all_shapes(app: Any, status: int) -> None:
    async def use(running: Running) -> None:
        for _ in range(2):
            response = await running.client.get("/")
            assert (response.status_code, response.content) == (status, b"done")

    on_lane(app, use)


def test_an_application_that_takes_other_arguments_is_500() -> None:
    async def odd(scope: Any) -> None: ...

    async def use(running: Running) -> None:
        for _ in range(2):
            assert (await running.client.get("/")).status_code == 500

    on_lane(odd, use)


def test_paths_that_only_the_application_knows_make_no_series() -> None:
    async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await answer(send, 200 if scope["path"].startswith("/known") else 404)

    def series(page: str) -> set[str]:
        names = (line.rpartition(" ")[0] for line in page.splitlines() if line[:1] != "#")
        return {name for name in names if "justapi_" in name}

    async def use(running: Running) -> None:
        for path in ("/known/0", "/unknown/0"):
            await running.client.get(path)
        # Asked twice: the page itself is a request.
        await running.client.get("/metrics")
        before = series((await running.client.get("/metrics")).text)
        for number in range(200):
            for path in (f"/known/{number}", f"/unknown/{number}?{number}", f"/{number}"):
                await running.client.get(path)
        after = (await running.client.get("/metrics")).text
        assert series(after) == before
        assert "/unknown" not in after
        assert "/known" not in after
        assert running.counters["asgi"] == 602

    on_lane(app, use, metrics={"Path": "/metrics"})
