"""Python handlers behind TLS and HTTP/2, uploads that end badly, and nothing left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import ssl
import subprocess
import weakref
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from justapi import JustAPI, Request, UploadFile
from justapi.responses import StreamingResponse
from lanes import Running, on_lane
from peers import until, vanish
from serving import Server

if TYPE_CHECKING:
    from pathlib import Path


def application() -> JustAPI:
    app = JustAPI()

    @app.get("/scope")
    async def scope(request: Request) -> dict[str, Any]:
        names = ("scheme", "http_version", "path", "method")
        seen = {name: request.scope[name] for name in names}
        return {**seen, "host": request.headers["host"], "url": str(request.url)}

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> Any:
            for number in range(1000):
                yield b"%07d\n" % number

        return StreamingResponse(parts())

    @app.post("/length")
    async def length(request: Request) -> int:
        total = 0
        async for piece in request.stream():
            total += len(piece)
        return total

    @app.get("/late")
    async def late() -> str:
        await asyncio.sleep(0.01)
        return "late"

    return app


async def curl(*arguments: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        "curl", "-sS", "--max-time", "20", *arguments, stdout=subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return output


def test_http2() -> None:
    async def use(running: Running) -> None:
        url = f"http://127.0.0.1:{running.port}"
        h2 = "--http2-prior-knowledge"
        seen = await curl(h2, f"{url}/scope")
        assert b'"http_version":"2"' in seen
        assert f'"host":"127.0.0.1:{running.port}"'.encode() in seen
        load = await asyncio.create_subprocess_exec(
            "h2load", "-n", "200", "-c", "4", "-m", "10", f"{url}/late", stdout=subprocess.PIPE
        )
        assert b"200 succeeded, 0 failed" in (await load.communicate())[0]
        assert len(await curl(h2, f"{url}/stream")) == 8000
        assert await curl(h2, "-X", "POST", f"{url}/length") == b"0"
        process = await asyncio.create_subprocess_exec(
            "curl", "-sS", h2, "--data-binary", "@-", f"{url}/length",
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        output, _ = await process.communicate(b"x" * 1_000_000)
        assert output == b"1000000"

    on_lane(application(), use)


def test_an_http2_stream_that_is_reset_ends_its_handler() -> None:
    app = JustAPI()
    ended: list[str] = []

    @app.get("/")
    async def endless() -> StreamingResponse:
        async def parts() -> Any:
            try:
                while True:
                    yield b"x" * 100
                    await asyncio.sleep(0.001)
            finally:
                ended.append("stream")

        return StreamingResponse(parts())

    @app.get("/wait")
    async def wait() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("wait")

    async def use(running: Running) -> None:
        for path in ("/", "/wait"):
            process = await asyncio.create_subprocess_exec(
                "curl", "-sS", "-N", "--http2-prior-knowledge", "--max-time", "0.5",
                "-o", os.devnull, f"http://127.0.0.1:{running.port}{path}",
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
            await process.wait()
        await until("both have ended", lambda: sorted(ended) == ["stream", "wait"])

    on_lane(app, use)


def test_uploads_are_held_in_bounded_memory() -> None:
    app = JustAPI()

    @app.post("/slow")
    async def slow(request: Request) -> int:
        total = 0
        async for piece in request.stream():
            total += len(piece)
            await asyncio.sleep(0)
        return total

    @app.post("/form")
    async def form(file: UploadFile) -> int:
        return file.size or 0

    async def pieces() -> Any:
        for _ in range(200):
            yield b"x" * 1_000_000

    async def form_pieces() -> Any:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
        async for piece in pieces():
            yield piece
        yield b"\r\n--b--\r\n"

    async def use(running: Running) -> None:
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        answer = await running.client.post("/slow", content=pieces(), timeout=60)
        assert answer.json() == 200_000_000
        kind = {"content-type": "multipart/form-data; boundary=b"}
        answer = await running.client.post("/form", content=form_pieces(), headers=kind, timeout=60)
        assert answer.json() == 200_000_000
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun < 64_000

    on_lane(app, use, limits={"max_body_bytes": 1_000_000_000})


@pytest.mark.parametrize("path", ["/json", "/form", "/raw"])
def test_clients_that_leave_in_the_middle_of_an_upload(path: str) -> None:
    app = JustAPI()
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Marker:
        pass

    @app.post("/json")
    async def json(body: dict[str, Any]) -> None: ...

    @app.post("/form")
    async def form(file: UploadFile) -> None: ...

    @app.post("/raw")
    async def raw(request: Request) -> int:
        marker = Marker()
        alive.add(marker)
        return len(await request.body())

    async def use(running: Running) -> None:
        kind = {"/json": "application/json", "/form": "multipart/form-data; boundary=b"}
        for _ in range(30):
            _, writer = await asyncio.open_connection("127.0.0.1", running.port)
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: t\r\nContent-Length: 100000\r\n"
                f"Content-Type: {kind.get(path, 'text/plain')}\r\n\r\n--b\r\nabc".encode()
            )
            await writer.drain()
            await asyncio.sleep(0.002)
            vanish(writer)

        def is_free() -> bool:
            gc.collect()
            return not alive

        await until("nothing is left", is_free)
        assert (await running.client.post("/raw", content=b"abc")).json() == 3

    on_lane(app, use)


def test_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
         "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    source = (
        "from justapi import JustAPI, Request\napp = JustAPI()\n"
        "@app.get('/')\nasync def scheme(request: Request):\n"
        "    return [request.url.scheme, request.scope['http_version']]\n"
        "@app.post('/')\nasync def length(request: Request):\n"
        "    return len(await request.body())\n"
    )
    with Server(tmp_path, source, "--tls-cert", str(certificate), "--tls-key", str(key)) as server:
        port = server.url.rsplit(":", 1)[1].strip("/")
        context = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(verify=context, base_url=f"https://localhost:{port}") as client:
            assert client.get("/").json() == ["https", "1.1"]
            assert client.post("/", content=b"x" * 500_000).json() == 500_000
        seen = subprocess.run(
            ["curl", "-sS", "--http2", "--cacert", certificate, f"https://localhost:{port}/"],
            check=True, capture_output=True,
        )  # fmt: skip
        assert seen.stdout == b'["https","2"]'
        assert server.stop() == 0
