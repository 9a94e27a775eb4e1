"""Native routes where another server reads the requests: the answers are those of the lane."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import uvicorn

from justapi import JustAPI
from justapi.responses import FileResponse, JSONResponse, RedirectResponse
from lanes import Running, on_lane
from serving import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
    "required": ["name"],
    "additionalProperties": False,
}


def make_app(folder: Path) -> JustAPI:
    """An application whose functions are never called."""
    (folder / "large").write_bytes(bytes(range(256)) * 1000)
    (folder / "empty").write_bytes(b"")
    app = JustAPI(max_body_size=1000)

    def never(document: dict[str, Any]) -> Any:
        raise AssertionError("this is Python")

    app.post("/echo", native=True, schema=SCHEMA, status_code=201)(never)
    app.get("/query", native=True, query_schema=SCHEMA)(never)
    app.post("/both", native=True, schema=SCHEMA, query_schema={"required": ["q"]})(never)
    app.post("/small", native=True, schema=SCHEMA, max_body_size=20)(never)

    @app.post("/made", native=True, schema=SCHEMA)
    def made() -> Any:
        return {"made": True}

    @app.get("/text", native="text")
    @app.get("/document", native={"a": 1})
    @app.get("/response", native=JSONResponse([1], status_code=203, headers={"x-a": "b"}))
    @app.get("/redirect", native=RedirectResponse("/elsewhere"))
    @app.get("/file", native=FileResponse(folder / "large"))
    @app.get("/empty", native=FileResponse(folder / "empty"))
    def constant() -> Any:
        raise AssertionError("this is Python")

    (folder / "gone").write_bytes(b"x")
    app.get("/gone", native=FileResponse(folder / "gone"))(constant)
    (folder / "gone").unlink()
    return app


JSON = {"content-type": "application/json"}
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/echo", {"json": {"name": "\u00e4", "size": 2}}),
    ("POST", "/echo", {"json": {"size": 0, "more": 1}}),
    ("POST", "/echo", {"content": b"{", "headers": JSON}),
    ("POST", "/echo", {"content": b"", "headers": JSON}),
    ("POST", "/echo", {"content": b"\xff", "headers": JSON}),
    ("POST", "/echo", {"content": b'{"name":"x"}'}),
    ("POST", "/echo", {"content": b'{"name":"x"}', "headers": {"content-type": "text/plain"}}),
    (
        "POST",
        "/echo",
        {"content": b'{"name":"x"}', "headers": {"content-type": "application/a+json"}},
    ),
    ("GET", "/query?name=x&size=3", {}),
    ("GET", "/query?name=%C3%A4", {}),
    ("GET", "/query?size=0", {}),
    ("GET", "/query", {}),
    ("HEAD", "/query?name=x", {}),
    ("POST", "/both?q=1", {"json": {"name": "x"}}),
    ("POST", "/both", {"json": {"name": "x"}}),
    ("POST", "/made", {"json": {"name": "x"}}),
    ("GET", "/text", {}),
    ("HEAD", "/text", {}),
    ("GET", "/document", {}),
    ("GET", "/response", {}),
    ("GET", "/redirect", {}),
    ("GET", "/file", {}),
    ("HEAD", "/file", {}),
    ("GET", "/empty", {}),
    ("GET", "/gone", {}),
    ("PUT", "/text", {}),
]
_OF_SERVERS = {"date", "server", "connection", "transfer-encoding"}


def seen(response: httpx.Response) -> tuple[int, dict[str, str], bytes]:
    """What the application is answerable for."""
    headers = {k: v for k, v in response.headers.items() if k not in _OF_SERVERS}
    return response.status_code, headers, response.content


@contextmanager
def on_uvicorn(app: Any) -> Iterator[str]:
    """Serves an application with uvicorn; gives its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    try:
        eventually("uvicorn serves", lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def test_uvicorn_gets_the_lanes_answers(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    app = make_app(tmp_path)

    async def use(running: Running) -> list[Any]:
        answers = [
            seen(await running.client.request(method, url, **options))
            for method, url, options in REQUESTS
        ]
        assert running.counters["asgi"] == running.counters["inline"] == 0
        return answers

    expected = on_lane(app, use)
    assert not caplog.records
    with (
        on_uvicorn(app) as url,
        httpx.Client(base_url=url) as client,
        caplog.at_level(logging.WARNING),
    ):
        for (method, path, options), answer in zip(REQUESTS, expected, strict=True):
            assert seen(client.request(method, path, **options)) == answer, (method, path, options)
    # Each is said once, and nothing else.
    said = [record.getMessage() for record in caplog.records if record.name == "justapi"]
    assert len(said) == len(set(said)) == 11
    assert all("Rust answers them" in one for one in said)


def test_bodies_above_the_limit_are_413_everywhere(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    bodies = [("/echo", 2000), ("/small", 30)]

    async def use(running: Running) -> list[int]:
        return [
            (await running.client.post(path, json={"name": "x" * size})).status_code
            for path, size in bodies
        ]

    assert on_lane(app, use) == [413, 413]
    with on_uvicorn(app) as url, httpx.Client(base_url=url) as client:
        for path, size in bodies:
            assert client.post(path, json={"name": "x" * size}).status_code == 413
        assert client.post("/small", json={"name": "x"}).status_code == 200


def test_below_another_application_too(tmp_path: Path) -> None:
    outer = JustAPI()
    outer.mount("/below", make_app(tmp_path))

    async def use(running: Running) -> None:
        assert (await running.client.post("/below/echo", json={})).status_code == 422
        answer = await running.client.post("/below/echo", json={"name": "x"})
        assert (answer.status_code, answer.json()) == (201, {"name": "x"})

    on_lane(outer, use)
