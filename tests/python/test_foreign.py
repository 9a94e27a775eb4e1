"""Applications of other frameworks, served by `justapi serve` over sockets."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING

import httpx
from websockets.asyncio.client import connect

from serving import Server, eventually
from test_migration import APPLICATION, CALLS, DOCUMENT, QUESTIONS, in_process, load, read

if TYPE_CHECKING:
    from pathlib import Path

PARCELS = """
    import json
    from contextlib import asynccontextmanager

    from parcels import create_app

    app = create_app()
    depot = app.state.depot


    @app.get("/left", include_in_schema=False)
    def left():
        return {
            "parcels": sorted(depot.parcels),
            "letters": sorted(depot.letters),
            "history": sorted(depot.history),
            "num_sessions": depot.num_sessions,
        }


    inner = app.router.lifespan_context


    @asynccontextmanager
    async def outer(app):
        async with inner(app) as state:
            yield state
        open("history.json", "w").write(json.dumps(depot.history))


    app.router.lifespan_context = outer
"""


def test_a_real_fastapi_application_is_served_as_it_is(tmp_path: Path) -> None:
    from fastapi.testclient import TestClient

    theirs = in_process(TestClient, load(APPLICATION).create_app())
    shutil.copytree(APPLICATION, tmp_path, dirs_exist_ok=True)
    with Server(
        tmp_path, PARCELS, "--interface", "asgi", "--trusted-host", "test,127.0.0.1"
    ) as server:
        server.client.close()
        server.client = httpx.Client(base_url=server.url, timeout=30, headers={"host": "test"})
        answers = [read(server.client.request(one.method, one.url, **one.options)) for one in CALLS]
        document = answers[DOCUMENT]
        document.headers = [pair for pair in document.headers if pair[0] != "content-length"]
        for one, found, wanted in zip(CALLS, answers, theirs.answers, strict=True):
            assert found == wanted, one

        async def talk() -> list[object]:
            url = server.url.replace("http", "ws") + "/parcels/2/track"
            async with connect(url, proxy=None) as socket:
                said = []
                for question in QUESTIONS:
                    await socket.send(json.dumps(question))
                    said.append(json.loads(await socket.recv()))
                return said

        assert asyncio.run(talk()) == theirs.said
        parcels, letters, history, _ = theirs.left
        left = eventually(
            "the depot is as it was left",
            lambda: (
                (found := server.client.get("/left").json())["num_sessions"] == 0
                and found["letters"] == letters
                and found
            ),
        )
        assert left["parcels"] == parcels
        assert server.stop() == 0
    # Its lifespan began first and ended last.
    told = json.loads((tmp_path / "history.json").read_text())
    assert (told[0], told[-1]) == ("open", "closed")
    assert sorted(told) == history


STARLETTE = """
    import os
    from contextlib import asynccontextmanager

    from starlette.applications import Starlette
    from starlette.responses import FileResponse, JSONResponse, StreamingResponse
    from starlette.routing import Mount, Route, WebSocketRoute
    from starlette.staticfiles import StaticFiles

    sent = []


    class Notes:
        '''Notes what an application sends.'''

        def __init__(self, app):
            self.app = app

        async def __call__(self, scope, receive, send):
            async def noting(message):
                sent.append(message["type"])
                await send(message)

            await self.app(scope, receive, noting)


    @asynccontextmanager
    async def lifespan(app):
        yield {"pool": ["connection"], "pid": os.getpid()}
        open("shut-down", "w").close()


    async def state(request):
        request.state.pool.append("one more")
        return JSONResponse([request.state.pool, request.state.pid])


    async def file(request):
        return FileResponse("large.bin", media_type="application/x-large")


    async def noted(request):
        return JSONResponse(sent)


    async def stream(request):
        async def lines():
            async for piece in request.stream():
                yield piece

        return StreamingResponse(lines())


    async def socket(socket):
        await socket.accept(subprotocol="notes")
        async for text in socket.iter_text():
            await socket.send_text(f"{socket.state.pid}: {text}")


    app = Starlette(
        lifespan=lifespan,
        routes=[
            Route("/state", state),
            Route("/file", file),
            Route("/noted", noted),
            Route("/stream", stream, methods=["POST"]),
            WebSocketRoute("/socket", socket),
            Mount("/static", StaticFiles(directory=".")),
        ],
    )
    app.add_middleware(Notes)
"""


def test_a_starlette_application_is_served(tmp_path: Path) -> None:
    large = bytes(range(256)) * 4000
    (tmp_path / "large.bin").write_bytes(large)
    with Server(tmp_path, STARLETTE, "--interface", "asgi") as server:
        [worker] = server.workers
        client = server.client
        # What the lifespan yields is shared by all requests, as a shallow copy for each.
        assert client.get("/state").json() == [["connection", "one more"], worker]
        assert client.get("/state").json() == [["connection", "one more", "one more"], worker]
        for path, kind in {
            "/file": "application/x-large",
            "/static/large.bin": "application/octet-stream",
        }.items():
            answer = client.get(path)
            assert answer.content == large
            assert answer.headers["content-type"].partition(";")[0] == kind
            assert answer.headers["content-length"] == str(len(large))
            assert client.get("/noted").json()[-1] == "http.response.pathsend"
        part = client.get("/file", headers={"range": "bytes=256-511"})
        assert (part.status_code, part.content) == (206, large[:256])
        assert client.post("/stream", content=large).content == large

        async def talk() -> None:
            url = server.url.replace("http", "ws") + "/socket"
            async with connect(url, proxy=None, subprotocols=["other", "notes"]) as socket:
                assert socket.subprotocol == "notes"
                for text in ("a", "b" * 70_000):
                    await socket.send(text)
                    assert await socket.recv() == f"{worker}: {text}"

        asyncio.run(talk())
        assert server.stop() == 0
    assert (tmp_path / "shut-down").exists()
