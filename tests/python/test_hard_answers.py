"""Handlers that fail in every way there is, and answers that HTTP does not allow."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest

from justapi import BackgroundTasks, HTTPException, JustAPI, Request, Response
from justapi.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from justapi.staticfiles import StaticFiles
from lanes import Running, on_lane
from peers import vanish
from raising import PLACES, raising


async def exchange(port: int, *requests: bytes) -> bytes:
    """Sends requests in one go and returns everything until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"".join(requests))
    async with asyncio.timeout(10):
        received = await reader.read()
    writer.close()
    return received


def get(path: str, *fields: str, method: str = "GET", last: bool = True) -> bytes:
    fields = (*fields, "Connection: close") if last else fields
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: t", *fields, "", ""]).encode()


class Custom(BaseException):
    """An exception that nobody expects."""


def recurse(depth: int = 0) -> int:
    return recurse(depth + 1) + 1


def fail(kind: str) -> None:
    if kind == "RecursionError":
        recurse()
    if kind == "Cancelled":
        raise asyncio.CancelledError
    if kind == "OutOfMemory":
        bytearray(1 << 62)
    if kind == "Group":
        raise BaseExceptionGroup("all", [Custom(), ValueError()])
    if kind == "Unprintable":

        class UnprintableError(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

            __repr__ = __str__

        raise UnprintableError
    known = {
        "StopIteration": StopIteration,
        "StopAsyncIteration": StopAsyncIteration,
        "GeneratorExit": GeneratorExit,
        "KeyboardInterrupt": KeyboardInterrupt,
        "SystemExit": SystemExit,
        "MemoryError": MemoryError,
        "Custom": Custom,
        "Timeout": TimeoutError,
        "OSError": OSError,
    }
    raise known[kind]("inside")


KINDS = [
    "StopIteration",
    "StopAsyncIteration",
    "GeneratorExit",
    "MemoryError",
    "OutOfMemory",
    "RecursionError",
    "Custom",
    "Timeout",
    "OSError",
    "Cancelled",
    "Group",
    "Unprintable",
]
EXITS = ["KeyboardInterrupt", "SystemExit"]


def test_whatever_a_handler_raises_is_a_500() -> None:
    async def use(running: Running) -> None:
        for place in PLACES:
            for kind in KINDS + (EXITS if place not in ("late", "late-dependency") else []):
                async with asyncio.timeout(5):
                    answer = await running.client.get(f"/{place}/{kind}")
                assert answer.status_code == 500, (place, kind)
                assert "inside" not in answer.text

    on_lane(raising(fail), use)


def test_a_failing_exception_handler_is_a_500() -> None:
    app = JustAPI()

    @app.exception_handler(ValueError)
    async def handle(request: Request, error: ValueError) -> Response:
        raise KeyError("in the handler of exceptions")

    @app.get("/")
    async def fails() -> None:
        raise ValueError

    async def use(running: Running) -> None:
        assert (await running.client.get("/")).status_code == 500
        assert (await running.client.get("/")).status_code == 500

    on_lane(app, use)


def test_a_dictionary_that_changes_while_it_is_encoded_fails_one_request() -> None:
    app = JustAPI()
    shared: dict[str, Any] = {}

    class Grows:
        def __init__(self, kind: str) -> None:
            self.kind = kind

        def __iter__(self) -> Any:
            if self.kind == "grows":
                shared["more"] = 1
            elif self.kind == "shrinks":
                shared.clear()
            else:
                shared["other"] = shared.pop("last")
            return iter([("a", 1)])

    @app.get("/{kind}")
    def change(kind: str) -> Any:
        shared.clear()
        shared.update({"first": 1, "object": Grows(kind), "last": 2})
        return JSONResponse(shared) if kind == "response" else shared

    async def use(running: Running) -> None:
        for kind in ("grows", "shrinks", "swaps"):
            async with asyncio.timeout(5):
                answer = await running.client.get(f"/{kind}")
            assert answer.status_code in (200, 500)
        assert (await running.client.get("/openapi.json")).status_code == 200

    on_lane(app, use)


@pytest.mark.parametrize("length", [b"3", b"30"])
def test_a_wrong_content_length_never_desynchronises(length: bytes) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP")
        headers = [(b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"0123", "more_body": True})
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b"456789"})
        else:
            await send({"type": "http.response.body", "body": b"0123456789"})

    async def use(running: Running) -> None:
        for path in ("/whole", "/stream"):
            received = await exchange(running.port, get(path, last=False), get(path))
            answers = received.split(b"HTTP/1.1 ")[1:]
            assert answers
            for answer in answers:
                head, _, body = answer.partition(b"\r\n\r\n")
                fields = dict(line.lower().split(b": ") for line in head.split(b"\r\n")[1:])
                announced = int(fields[b"content-length"])
                # Only the last answer may be shorter than it said: then the connection ends.
                assert len(body) == announced or (answer is answers[-1] and len(body) < announced)

    on_lane(app, use)


@pytest.mark.parametrize("length", [b"abc", b"", b"-1", b"1e1", b"4, 4", b"\xb2", b"9" * 30])
def test_a_content_length_that_is_no_number_never_gets_out(length: bytes) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP")
        headers = [] if scope["path"] == "/fine" else [(b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope["path"] == "/stream":
            await send({"type": "http.response.body", "body": b"bo", "more_body": True})
            await asyncio.sleep(0)
            await send({"type": "http.response.body", "body": b"dy"})
        else:
            await send({"type": "http.response.body", "body": b"body"})

    async def use(running: Running) -> None:
        requests = [get(path, last=path == "/fine") for path in ("/whole", "/stream", "/fine")]
        received = await exchange(running.port, *requests)
        answers = received.split(b"HTTP/1.1 ")[1:]
        assert len(answers) == 3
        for answer in answers:
            head, _, body = answer.partition(b"\r\n\r\n")
            fields = dict(line.lower().split(b": ") for line in head.split(b"\r\n")[1:])
            if answer is not answers[1]:
                assert (fields[b"content-length"], body) == (b"4", b"body")
            else:
                assert b"content-length" not in fields
                assert body == b"2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"

    on_lane(app, use)


def test_answers_without_a_body_have_none() -> None:
    app = JustAPI()
    started: list[str] = []

    @app.get("/204")
    def no_content() -> Response:
        return Response(b"not allowed", status_code=204)

    @app.get("/304")
    def not_modified() -> Response:
        return Response(b"not allowed", status_code=304, headers={"etag": '"a"'})

    @app.get("/404")
    def empty() -> Response:
        return Response(status_code=404)

    @app.get("/stream-204")
    def stream_no_content() -> Response:
        return StreamingResponse(iter([b"x"]), status_code=204)

    @app.get("/item")
    def item() -> str:
        return "abcdef"

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def parts() -> Any:
            started.append("stream")
            yield b"part"

        return StreamingResponse(parts())

    async def use(running: Running) -> None:
        requests = [get(f"/{path}", last=False) for path in ("204", "304", "404", "stream-204")]
        requests += [get(path, method="HEAD", last=False) for path in ("/item", "/stream")]
        received = await exchange(running.port, *requests, get("/item"))
        answers = received.split(b"HTTP/1.1 ")[1:]
        assert [answer[:3] for answer in answers] == [
            b"204",
            b"304",
            b"404",
            b"204",
            b"200",
            b"200",
            b"200",
        ]
        for answer in answers[:6]:
            head, _, body = answer.lower().partition(b"\r\n\r\n")
            assert body == b""
            if answer.startswith(b"204"):
                assert b"content-length" not in head
                assert b"transfer-encoding" not in head
        assert b"content-length: 0" in answers[2].lower()
        assert b"content-length: 8" in answers[4].lower()
        assert answers[6].endswith(b'"abcdef"')
        # Nobody asked for the body, so nothing of it was made.
        assert started == []

    on_lane(app, use)


def test_pipelined_requests_are_answered_in_order() -> None:
    app = JustAPI()

    @app.get("/async/{number}")
    async def sleepy(number: int) -> int:
        await asyncio.sleep(0.02 if number % 3 == 0 else 0)
        return number

    @app.get("/thread/{number}", blocking=True)
    def thread(number: int) -> int:
        return number

    @app.get("/inline/{number}")
    def inline(number: int) -> int:
        return number

    async def use(running: Running) -> None:
        kinds = ["async", "thread", "inline"]
        paths = [f"/{kinds[number % 3]}/{1000 + number}" for number in range(60)]
        requests = [get(path, last=path is paths[-1]) for path in paths]
        received = await exchange(running.port, *requests)
        bodies = [one.partition(b"\r\n\r\n")[2] for one in received.split(b"HTTP/1.1 ")[1:]]
        assert [int(body) for body in bodies] == list(range(1000, 1060))

    on_lane(app, use)


def test_a_rejected_expectation_asks_for_no_body() -> None:
    app = JustAPI()

    @app.post("/rejects")
    async def rejects(request: Request) -> None:
        raise HTTPException(401)

    @app.post("/reads")
    async def reads(request: Request) -> int:
        return len(await request.body())

    async def use(running: Running) -> None:
        expect = ("Expect: 100-continue", "Content-Length: 1000000")
        received = await exchange(running.port, get("/rejects", *expect, method="POST"))
        assert received.startswith(b"HTTP/1.1 401")
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(get("/reads", *expect, method="POST"))
        async with asyncio.timeout(5):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100")
            writer.write(b"x" * 1_000_000)
            assert (await reader.read()).endswith(b"1000000")
        writer.close()

    on_lane(app, use)


def test_headers_that_are_not_ascii_go_both_ways() -> None:
    app = JustAPI()

    @app.get("/")
    async def echo(request: Request) -> Response:
        response = Response(b"ok")
        response.headers["x-name"] = request.headers["x-name"]
        response.set_cookie("a", "1")
        response.set_cookie("b", "2")
        return response

    @app.get("/euro")
    async def euro() -> Response:
        return Response(b"ok", headers={"x-name": "\u20ac"})

    async def use(running: Running) -> None:
        head = b"GET / HTTP/1.1\r\nHost: t\r\nX-Name: caf\xe9\r\nConnection: close\r\n\r\n"
        received = await exchange(running.port, head)
        assert b"x-name: caf\xe9" in received
        assert received.count(b"set-cookie: ") == 2
        assert (await running.client.get("/euro")).status_code == 500

    on_lane(app, use)


@pytest.mark.parametrize("is_async", [True, False])
def test_an_exception_after_the_answer_began_breaks_it_off(is_async: bool) -> None:
    app = JustAPI()

    @app.get("/")
    async def stream() -> StreamingResponse:
        def parts() -> Any:
            yield b"first"
            raise ValueError("late")

        async def async_parts() -> Any:
            yield b"first"
            raise ValueError("late")

        return StreamingResponse(async_parts() if is_async else parts())

    async def use(running: Running) -> None:
        received = await exchange(running.port, get("/", last=False))
        assert b"first" in received
        assert not received.endswith(b"0\r\n\r\n")
        assert b"late" not in received

    on_lane(app, use)


def test_a_failing_background_task_disturbs_nobody() -> None:
    app = JustAPI()
    ran: list[str] = []

    def exits() -> None:
        ran.append("task")
        raise ValueError("in the background")

    @app.get("/")
    async def answer(tasks: BackgroundTasks) -> str:
        tasks.add_task(exits)
        return "ok"

    async def use(running: Running) -> None:
        for _ in range(3):
            assert (await running.client.get("/")).json() == "ok"
        async with asyncio.timeout(5):
            while len(ran) < 3:
                await asyncio.sleep(0.005)

    on_lane(app, use)


def test_files_that_are_no_files(tmp_path: Any) -> None:
    app = JustAPI()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_bytes(bytes(range(256)) * 100)

    @app.get("/{name}")
    async def file(name: str) -> FileResponse:
        return FileResponse(tmp_path / name)

    async def use(running: Running) -> None:
        async with asyncio.timeout(10):
            for name in ("fifo", "folder", "missing"):
                assert (await running.client.get(f"/{name}")).status_code in (404, 500)
            for ranges, status in (
                ("bytes=" + ",".join(["0-0"] * 2000), {200, 206, 416}),
                ("bytes=-999999", {206}),
                ("bytes=999999-", {416}),
                ("bytes=a-b", {200, 400}),
                ("bytes=5-1", {200, 400, 416}),
            ):
                answer = await running.client.get("/file", headers={"range": ranges})
                assert answer.status_code in status, ranges
                assert len(answer.content) <= 60_000

    on_lane(app, use)


def test_a_handler_in_a_thread_may_answer_long_after_its_client_left() -> None:
    app = JustAPI()
    go_on = threading.Event()
    entered = threading.Event()

    @app.get("/", blocking=True)
    def slow() -> Response:
        entered.set()
        go_on.wait(10)
        return PlainTextResponse("late")

    @app.get("/next", blocking=True)
    def following() -> str:
        return "next"

    async def use(running: Running) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(get("/"))
        await asyncio.to_thread(entered.wait, 10)
        vanish(writer)
        await asyncio.sleep(0.05)
        go_on.set()
        assert (await running.client.get("/next")).json() == "next"

    on_lane(app, use)


def test_a_status_that_is_no_final_one_is_a_500() -> None:
    app = JustAPI()

    @app.get("/response/{code}")
    def response(code: int) -> Response:
        return Response(b"x", status_code=code)

    @app.get("/stream/{code}")
    def stream(code: int) -> Response:
        return StreamingResponse(iter([b"x"]), status_code=code)

    async def use(running: Running) -> None:
        for code in (-1, 0, 99, 100, 101, 103, 199, 1000, 65536 + 200):
            for kind in ("response", "stream"):
                path = f"/{kind}/{code}"
                received = await exchange(running.port, get(path, last=False), get(path))
                heads = [one[:3] for one in received.split(b"HTTP/1.1 ")[1:]]
                assert heads in ([b"500", b"500"], [b"500"]), (path, received)
        assert (await running.client.get("/response/999")).status_code == 999

    on_lane(app, use)


def test_the_length_that_head_announces_is_kept(tmp_path: Any) -> None:
    app = JustAPI()
    (tmp_path / "file").write_bytes(b"x" * 1234)

    @app.head("/own")
    async def own() -> Response:
        return Response(headers={"content-length": "1234"})

    @app.get("/file")
    async def file() -> FileResponse:
        return FileResponse(tmp_path / "file")

    async def other(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"1234")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    app.mount("/other", other)
    app.mount("/static", StaticFiles(directory=tmp_path))

    async def use(running: Running) -> None:
        for path in ("/own", "/file", "/other/x", "/static/file"):
            requests = [get(path, method="HEAD", last=last) for last in (False, True)]
            received = await exchange(running.port, *requests)
            answers = received.lower().split(b"http/1.1 ")[1:]
            assert len(answers) == 2, path
            for answer in answers:
                assert b"content-length: 1234" in answer, path
                assert answer.endswith(b"\r\n\r\n")

    on_lane(app, use)


def test_heads_that_come_again_are_what_each_answer_says() -> None:
    heads: list[Any] = []
    body = [b""]

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise RuntimeError("only HTTP")
        status, headers = heads.pop(0)
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body[0]})

    plain = [(b"content-type", b"text/plain"), (b"X-Name", b"one")]
    cases: list[tuple[int, Any, bytes]] = [
        (200, plain, b"a"),
        (200, list(plain), b"bc"),
        (201, tuple(plain), b"def"),
        (200, [(b"Content-Length", b"3"), *plain], b"def"),
        (200, [(b"content-type", b"text/plain"), (b"X-Name", b"two")], b""),
        (200, [(b"content-type", b"text/plain"), (b"X-Nam", b"etwo")], b""),
        (404, [(bytearray(b"x-name"), b"one"), (b"x-name", b"two")], b"x"),
        (404, [(b"x-name", b"one"), (b"x-name", b"two")], b"x"),
        (200, [(b"x-long", b"v" * 2000)], b"x"),
        (200, [(b"date", b"then"), (b"connection", b"x-hop")], b"x"),
        (200, [], b"nothing"),
    ]

    def expected(headers: Any) -> list[tuple[str, str]]:
        pairs = [(bytes(name).lower().decode(), bytes(value).decode()) for name, value in headers]
        return sorted(pair for pair in pairs if pair[0] not in ("content-length", "connection"))

    async def use(running: Running) -> None:
        for _ in range(3):
            for status, headers, content in cases:
                heads.append((status, headers))
                body[0] = content
                answer = await running.client.get("/")
                assert (answer.status_code, answer.content) == (status, content)
                assert answer.headers["content-length"] == str(len(content))
                fields = sorted((n, v) for n, v in answer.headers.multi_items())
                known = {name for name, _ in expected(headers)}
                assert [field for field in fields if field[0] in known] == expected(headers)
                others = {name for name, _ in fields} - known
                assert others <= {"content-length", "date", "connection"}, others
        bad: list[list[tuple[bytes, bytes]]] = [
            [(b"content-length", b"1"), (b"Content-Length", b"1")],
            [(b"content-length", b"1\n")],
            [(b"x-name", b"a\r\nb: c")],
            [(b"x name", b"a")],
        ]
        for headers in bad * 3:
            heads.append((200, headers))
            assert (await running.client.get("/")).status_code == 500, headers

    on_lane(app, use)
