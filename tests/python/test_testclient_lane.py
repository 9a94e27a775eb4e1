"""The test clients serve an application of ours as the server does, and hide nothing of it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import socket
import threading
import time
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import httpx
import pytest

from justapi import (
    BackgroundTasks,
    Depends,
    HTTPException,
    JustAPI,
    Request,
    WebSocket,
    WebSocketDisconnect,
)
from justapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from justapi.testclient import AsyncTestClient, TestClient, WebSocketDenialResponse
from lanes import on_lane

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from lanes import Running

SCHEMA = {"type": "object", "required": ["name"]}


class FailedError(Exception):
    """What a handler raises."""


def make_app(log: list[str] | None = None) -> JustAPI:
    """An application with a route for each way that requests take."""
    noted = [] if log is None else log

    @asynccontextmanager
    async def lifespan(app: JustAPI) -> AsyncIterator[dict[str, str]]:
        noted.append("started")
        yield {"database": "open"}
        noted.append("stopped")

    app = JustAPI(lifespan=lifespan, max_body_size=100_000)

    @app.get("/items/{number}")
    def item(number: int, q: str = "x") -> dict[str, Any]:
        return {"number": number, "q": q}

    @app.get("/suspended")
    async def suspended() -> str:
        await asyncio.sleep(0.001)
        return "suspended"

    @app.get("/threaded", blocking=True)
    def threaded() -> str:
        time.sleep(0.001)
        return threading.current_thread().name

    @app.post("/native", native=True, schema=SCHEMA)
    def native(document: dict[str, Any]) -> Any:
        raise AssertionError("this is Python")

    @app.post("/length")
    async def length(request: Request) -> int:
        return len(await request.body())

    @app.get("/scope")
    async def scope(request: Request) -> dict[str, Any]:
        return {
            "url": str(request.url),
            "client": list(request.client or ()),
            "server": list(request.scope["server"]),
            "state": {key: str(value) for key, value in request.scope["state"].items()},
            "cookies": request.cookies,
            "root_path": request.scope["root_path"],
            "agent": request.headers["user-agent"],
        }

    @app.get("/refused")
    def refused() -> None:
        raise HTTPException(418, "a teapot")

    return app


def counters(client: TestClient) -> dict[str, int]:
    """Which ways the requests of a client have taken."""

    def count() -> dict[str, int]:
        server = client._tested.server()
        assert server is not None
        return server.counters

    return client.portal.call(count)


REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("GET", "/items/1?q=%20a", {}),
    ("GET", "/items/x", {}),
    ("HEAD", "/items/1", {}),
    ("OPTIONS", "/items/1", {}),
    ("DELETE", "/items/1", {}),
    ("BREW", "/items/1", {}),
    ("GET", "/items/1/", {}),
    ("GET", "/nowhere", {}),
    ("GET", "/items/%ff", {}),
    ("GET", "/suspended", {}),
    ("POST", "/native", {"json": {"name": 1}}),
    ("POST", "/native", {"json": {}}),
    ("POST", "/native", {"content": b"{"}),
    ("POST", "/length", {"content": b"x" * 99_999}),
    ("POST", "/length", {"content": b"x" * 100_001}),
    ("GET", "/refused", {}),
    ("GET", "/health", {}),
    ("GET", "/items/1", {"headers": {"x-long": "x" * 70_000}}),
    ("GET", "/items/1", {"headers": {"host": "a b"}}),
    ("GET", "/openapi.json", {}),
]


def test_answers_are_those_of_the_server() -> None:
    def seen(response: httpx.Response) -> tuple[int, list[tuple[str, str]], bytes]:
        fields = response.headers.multi_items()
        return response.status_code, [one for one in fields if one[0] != "date"], response.content

    app = make_app()

    async def use(running: Running) -> list[Any]:
        return [
            seen(await running.client.request(method, url, **options))
            for method, url, options in REQUESTS
        ]

    expected = on_lane(app, use, health=True)
    with TestClient(app, base_url="http://test", follow_redirects=False) as client:
        for (method, url, options), answer in zip(REQUESTS, expected, strict=True):
            assert seen(client.request(method, url, **options)) == answer, (method, url)


def test_each_request_takes_the_servers_way() -> None:
    with TestClient(make_app()) as client:
        assert client.get("/items/1").json() == {"number": 1, "q": "x"}
        assert client.get("/suspended").json() == "suspended"
        assert client.get("/threaded").json() != "justapi-portal"
        assert client.post("/native", json={"name": "x"}).json() == {"name": "x"}
        assert client.post("/native", json={}).status_code == 422
        assert counters(client) == {
            "inline": 1,
            "threaded": 1,
            "eager": 0,
            "suspended": 1,
            "asgi": 0,
            "slow_path": 0,
            "native": 2,
        }


def test_nothing_listens() -> None:
    def own_sockets() -> set[str]:
        found = set()
        for descriptor in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # The one that the folder is read through.
                found.add(str(descriptor.readlink()))
        return found

    def listening() -> set[str]:
        rows = Path("/proc/self/net/tcp").read_text().splitlines()
        inodes = {row.split()[9] for row in rows if row.split()[3] == "0A"}
        # Other programs on the machine begin and end to listen as they like.
        return {f"socket:[{inode}]" for inode in inodes} & own_sockets()

    before = listening()
    with socket.create_server(("127.0.0.1", 0)):
        assert len(listening()) == len(before) + 1
    with TestClient(make_app()) as client:
        client.get("/items/1")
        assert listening() == before


def test_what_a_request_says_of_itself() -> None:
    client = TestClient(
        make_app(),
        base_url="https://shop.example:8443/",
        root_path="/below",
        cookies={"c": "1"},
        client=("somebody", 7),
    )
    with client:
        assert client.get("/scope").json() == {
            "url": "https://shop.example:8443/scope",
            "client": ["somebody", 7],
            "server": ["shop.example", 8443],
            "state": {"database": "open"},
            "cookies": {"c": "1"},
            "root_path": "/below",
            "agent": "testclient",
        }
        client.app_state["more"] = 1
        assert client.get("/scope").json()["state"] == {"database": "open", "more": "1"}


def test_the_lifespan_runs_within_with_only() -> None:
    log: list[str] = []
    client = TestClient(make_app(log))
    assert client.get("/scope").json()["state"] == {}
    assert log == []
    for _ in range(2):
        with client:
            assert client.get("/scope").json()["state"] == {"database": "open"}
    assert log == ["started", "stopped"] * 2


def failing_app(after: list[str]) -> JustAPI:
    app = JustAPI()

    async def closing() -> AsyncIterator[None]:
        yield
        raise FailedError("in a dependency")

    @app.get("/sync")
    def sync() -> None:
        raise FailedError("sync")

    @app.get("/async")
    async def with_wait() -> None:
        await asyncio.sleep(0)
        raise FailedError("async")

    @app.get("/thread", blocking=True)
    def thread() -> None:
        raise FailedError("thread")

    @app.get("/dependency")
    def dependency(_: Annotated[None, Depends(closing)]) -> str:
        return "x"

    @app.get("/not-json")
    def not_json():
        return {"x": object()}

    @app.get("/background")
    def background(tasks: BackgroundTasks) -> str:
        async def later() -> None:
            await asyncio.sleep(0.01)
            after.append("background")
            raise FailedError("background")

        tasks.add_task(later)
        return "x"

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def pieces() -> AsyncIterator[str]:
            yield "piece"
            await asyncio.sleep(0.01)
            raise FailedError("stream")

        return StreamingResponse(pieces())

    return app


@pytest.mark.parametrize("path", ["sync", "async", "thread", "dependency", "background", "stream"])
@pytest.mark.parametrize("has_middleware", [False, True])
def test_what_a_handler_raises_is_raised_in_the_test(path: str, has_middleware: bool) -> None:
    app = failing_app([])
    if has_middleware:

        @app.middleware("http")
        async def passing(request: Request, call_next: Callable[[Request], Any]) -> Any:
            return await call_next(request)

    client = TestClient(app)
    with pytest.raises(FailedError) as caught:
        client.get(f"/{path}")
    assert caught.value.args[0] in (path, "in a dependency")
    # The frames of the handler are there.
    assert any("test_testclient_lane" in str(entry.path) for entry in caught.traceback[1:])
    assert client.get("/nowhere").status_code == 404
    client.close()

    quiet = TestClient(app, raise_server_exceptions=False)
    if path == "stream":
        # As the server does: what is cut off does not look whole.
        with pytest.raises(httpx.RemoteProtocolError):
            quiet.get("/stream")
    else:
        answer = quiet.get(f"/{path}")
        assert answer.status_code == (200 if path in ("dependency", "background") else 500)
    quiet.close()


def test_a_handler_of_exceptions_answers_and_the_exception_is_raised() -> None:
    app = failing_app([])

    @app.exception_handler(FailedError)
    def expected(request: Request, error: FailedError) -> PlainTextResponse:
        return PlainTextResponse(f"caught {error}", 409)

    answer = TestClient(app).get("/sync")
    assert (answer.status_code, answer.text) == (409, "caught sync")

    other = failing_app([])

    @other.exception_handler(Exception)
    def any_error(request: Request, error: Exception) -> PlainTextResponse:
        return PlainTextResponse(f"500 of {error}", 500)

    with pytest.raises(FailedError):
        TestClient(other).get("/sync")
    answer = TestClient(other, raise_server_exceptions=False).get("/sync")
    assert (answer.status_code, answer.text) == (500, "500 of sync")


def test_what_cannot_be_sent_is_raised() -> None:
    with pytest.raises((TypeError, ValueError)):
        TestClient(failing_app([])).get("/not-json")


def test_background_work_has_ended_when_the_call_returns() -> None:
    after: list[str] = []
    with pytest.raises(FailedError, match="background"):
        TestClient(failing_app(after)).get("/background")
    assert after == ["background"]


def test_overrides_and_new_routes_count_from_the_next_request_on() -> None:
    app = JustAPI()

    def who() -> str:
        return "the real one"

    @app.get("/who")
    def ask(name: Annotated[str, Depends(who)]) -> str:
        return name

    with TestClient(app) as client:
        assert client.get("/who").json() == "the real one"
        app.dependency_overrides[who] = lambda: "another"
        assert client.get("/who").json() == "another"
        app.dependency_overrides.clear()
        assert client.get("/who").json() == "the real one"
        app.get("/late")(lambda: "late")
        assert client.get("/late").json() == "late"
        app.add_exception_handler(404, lambda request, error: PlainTextResponse("nothing", 404))
        assert client.get("/nowhere").text == "nothing"


def test_lanes_of_routes_that_have_changed_are_let_go() -> None:
    app = JustAPI()

    def who() -> int:
        return 0

    @app.get("/who")
    def ask(number: Annotated[int, Depends(who)]) -> int:
        return number

    @app.websocket("/ws")
    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        while True:
            await websocket.send_text(await websocket.receive_text())

    with TestClient(app) as client, pytest.raises(WebSocketDisconnect):
        with client.websocket_connect("/ws") as session:
            for number in range(5):
                app.dependency_overrides[who] = lambda number=number: number
                assert client.get("/who").json() == number
                # The connection belongs to routes that are gone, and goes on.
                session.send_text("x")
                assert session.receive_text() == "x"
            server = client._tested._server
            assert server is not None
            found = server()
            assert found is not None
            assert len(found._generations) == 2
        assert client.get("/who").json() == 4
        assert len(found._generations) == 1


def test_streams_come_piece_by_piece_and_end_when_they_are_left() -> None:
    app = JustAPI()
    log: list[str] = []
    num_made = 0

    @app.get("/numbers")
    async def numbers() -> StreamingResponse:
        async def pieces() -> AsyncIterator[str]:
            nonlocal num_made
            try:
                while True:
                    num_made += 1
                    yield f"{num_made}\n"
            finally:
                log.append("closed")

        return StreamingResponse(pieces())

    with TestClient(app) as client:
        with client.stream("GET", "/numbers") as response:
            lines = response.iter_lines()
            assert [next(lines) for _ in range(3)] == ["1", "2", "3"]
            # The test does not read, so the application is held back.
            assert num_made < 1_000_000
        assert log == ["closed"]
        with client.stream("GET", "/numbers"):
            pass
        assert log == ["closed", "closed"]


def test_a_handler_whose_client_leaves_is_cancelled() -> None:
    app = JustAPI()
    log: list[str] = []

    @app.get("/wait")
    async def wait() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            log.append("cancelled")
            raise

    async def main() -> None:
        async with AsyncTestClient(app) as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.get("/wait"), 0.1)
            assert log == ["cancelled"]

    asyncio.run(main())


def test_uploads_are_streamed_and_early_answers_arrive() -> None:
    app = JustAPI(max_body_size=1000)

    @app.post("/")
    async def receive(request: Request) -> int:
        return sum([len(piece) async for piece in request.stream()])

    def pieces(size: int) -> Iterator[bytes]:
        for _ in range(10):
            yield b"x" * size

    with TestClient(app) as client:
        assert client.post("/", content=pieces(10)).json() == 100
        assert client.post("/", content=pieces(1_000_000)).status_code == 413


def test_files_are_sent(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(range(256)) * 2000)
    app = JustAPI()
    app.get("/")(lambda: FileResponse(tmp_path / "large"))
    with TestClient(app) as client:
        assert client.get("/").content == bytes(range(256)) * 2000
        part = client.get("/", headers={"range": "bytes=1-3"})
        assert (part.status_code, part.content) == (206, b"\1\2\3")


def socket_app(log: list[Any]) -> JustAPI:
    app = JustAPI()

    @app.websocket("/echo")
    async def echo(websocket: WebSocket) -> None:
        chosen = "b" if "b" in websocket.scope["subprotocols"] else None
        await websocket.accept(chosen, [(b"x-b", b"c")])
        log.append(str(websocket.url))
        try:
            while True:
                message = await websocket.receive()
                if message["type"] == "websocket.disconnect":
                    log.append((message["code"], message.get("reason")))
                    return
                if message.get("text") == "bye":
                    await websocket.close(3001, "away")
                    return
                await websocket.send({**message, "type": "websocket.send"})
        finally:
            log.append("finally")

    @app.websocket("/refuse")
    async def refuse(websocket: WebSocket) -> None:
        await websocket.close(3002, "no")

    @app.websocket("/deny")
    async def deny(websocket: WebSocket) -> None:
        await websocket.send_denial_response(PlainTextResponse("denied", 401, {"x-a": "b"}))

    @app.websocket("/fail-first")
    async def fail_first(websocket: WebSocket) -> None:
        raise FailedError("first")

    @app.websocket("/fail")
    async def fail(websocket: WebSocket) -> None:
        await websocket.accept()
        raise FailedError("later")

    @app.websocket("/return")
    async def leave(websocket: WebSocket) -> None:
        await websocket.accept()

    @app.websocket("/texts")
    async def texts(websocket: WebSocket) -> None:
        await websocket.accept()
        while True:
            await websocket.send_text(await websocket.receive_text())

    return app


def test_websockets() -> None:
    log: list[Any] = []
    with TestClient(socket_app(log), base_url="https://chat.example") as client:
        with client.websocket_connect("/echo?q=1", ["a", "b"]) as session:
            assert session.accepted_subprotocol == "b"
            assert session.extra_headers == [(b"x-b", b"c")]
            assert session.scope["path"] == "/echo"
            session.send_text("t\u00e4")
            assert session.receive_text() == "t\u00e4"
            for size in (0, 125, 126, 65_535, 65_536, 300_000):
                session.send_bytes(b"x" * size)
                assert session.receive_bytes() == b"x" * size
            session.send_json({"a": "\u00fc"}, mode="binary")
            assert session.receive_json(mode="binary") == {"a": "\u00fc"}
            session.close(3000, "enough")
        assert log == ["wss://chat.example/echo?q=1", (3000, "enough"), "finally"]
        with client.websocket_connect("/echo") as session:
            session.send_text("bye")
            with pytest.raises(WebSocketDisconnect) as caught:
                session.receive_text()
            assert (caught.value.code, caught.value.reason) == (3001, "away")
        log.clear()
        with client.websocket_connect("/echo"):
            pass
        assert log[1:] == [(1000, ""), "finally"]


def test_websockets_that_are_refused_or_break() -> None:
    with TestClient(socket_app([])) as client:
        with pytest.raises(WebSocketDisconnect) as caught, client.websocket_connect("/refuse"):
            pass
        assert (caught.value.code, caught.value.reason) == (3002, "no")
        with pytest.raises(WebSocketDenialResponse) as denied, client.websocket_connect("/deny"):
            pass
        assert (denied.value.status_code, denied.value.text) == (401, "denied")
        assert denied.value.headers["x-a"] == "b"
        with pytest.raises(WebSocketDenialResponse) as denied, client.websocket_connect("/none"):
            pass
        assert denied.value.status_code == 404
        with pytest.raises(FailedError, match="first"), client.websocket_connect("/fail-first"):
            pass
        with pytest.raises(FailedError, match="later"), client.websocket_connect("/fail"):
            pass
        with (
            pytest.raises(FailedError, match="later"),
            client.websocket_connect("/fail") as session,
        ):
            session.receive_text()
        with client.websocket_connect("/return") as session:
            with pytest.raises(WebSocketDisconnect) as caught:
                session.receive_text()
            assert caught.value.code == 1000
        # As with Starlette's client: what ends the handler is what it has not caught.
        with pytest.raises(WebSocketDisconnect), client.websocket_connect("/texts") as session:
            session.send_text("x")
            assert session.receive_text() == "x"


def test_an_async_client_serves_in_the_loop_of_the_test() -> None:
    app = JustAPI()
    seen: list[Any] = []

    @app.get("/loop")
    async def loop() -> None:
        seen.append(asyncio.get_running_loop())
        await meeting.wait()

    async def main() -> None:
        nonlocal meeting
        meeting = asyncio.Barrier(3)
        async with AsyncTestClient(app) as client:
            asked = [asyncio.ensure_future(client.get("/loop")) for _ in range(2)]
            await asyncio.wait_for(meeting.wait(), 10)
            assert [(await one).status_code for one in asked] == [200, 200]
        assert seen == [asyncio.get_running_loop()] * 2
        assert asyncio.all_tasks() == {asyncio.current_task()}

    meeting: asyncio.Barrier
    asyncio.run(main())


def test_clients_of_several_applications_share_a_loop() -> None:
    first, second = make_app(), socket_app([])

    @second.get("/ask")
    async def ask() -> Any:
        return (await inner.get("/items/7")).json()

    async def main() -> None:
        nonlocal inner
        async with AsyncTestClient(second) as outer:
            async with AsyncTestClient(first) as inner:
                assert (await outer.get("/ask")).json() == {"number": 7, "q": "x"}
                assert (await inner.post("/native", json={})).status_code == 422
                async with outer.websocket_connect("/echo") as session:
                    await session.send_text("x")
                    assert await session.receive_text() == "x"
                    assert (await inner.get("/suspended")).json() == "suspended"
            # The one that began later has ended; the other goes on.
            assert (await outer.get("/docs")).status_code == 200
        async with AsyncTestClient(first) as again:
            assert (await again.get("/items/1")).status_code == 200
        # Loops outlive clients that nobody has closed.
        assert (await AsyncTestClient(first).get("/items/2")).status_code == 200

    inner: AsyncTestClient
    for _ in range(2):
        asyncio.run(main())


def test_loops_of_one_thread_in_turns() -> None:
    app = make_app()

    async def ask(client: AsyncTestClient) -> None:
        assert (await client.get("/suspended")).json() == "suspended"
        assert (await client.get("/threaded")).status_code == 200
        assert (await client.post("/length", content=b"x" * 50_000)).json() == 50_000

    with asyncio.Runner() as first, asyncio.Runner() as second:
        clients = AsyncTestClient(app), AsyncTestClient(app)
        for _ in range(3):
            first.run(ask(clients[0]))
            second.run(ask(clients[1]))
        # One client may go from loop to loop, too.
        for runner in (first, second, first):
            runner.run(ask(clients[0]))


def test_a_websocket_whose_receive_is_given_up_loses_nothing() -> None:
    async def main() -> None:
        async with (
            AsyncTestClient(socket_app([])) as client,
            client.websocket_connect("/echo") as session,
        ):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(session.receive_text(), 0.05)
            await session.send_text("x")
            assert await session.receive_text() == "x"

    asyncio.run(main())


def test_under_anyio() -> None:
    async def main() -> None:
        async with AsyncTestClient(make_app()) as client:
            answers: list[int] = []

            async def ask(number: int) -> None:
                answers.append((await client.get(f"/items/{number}")).json()["number"])

            async with anyio.create_task_group() as group:
                for number in range(10):
                    group.start_soon(ask, number)
            assert sorted(answers) == list(range(10))
            with anyio.move_on_after(0.05) as scope:
                async with client.stream("GET", "/suspended"):
                    await anyio.sleep(10)
            assert scope.cancelled_caught

    anyio.run(main)


@pytest.mark.anyio
async def test_under_the_plugin_of_anyio() -> None:
    async with AsyncTestClient(make_app()) as client:
        assert (await client.post("/native", json={"name": 1})).json() == {"name": 1}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_other_loops_are_served_over_asgi() -> None:
    class Loop(asyncio.SelectorEventLoop):
        def __init__(self) -> None:
            import selectors

            super().__init__(selectors.PollSelector())

    async def main() -> None:
        async with AsyncTestClient(make_app()) as client:
            assert client._tested.server() is None
            assert (await client.get("/items/1")).json() == {"number": 1, "q": "x"}
            assert (await client.post("/native", json={})).status_code == 422
            with pytest.raises(FailedError):
                await AsyncTestClient(failing_app([])).get("/sync")

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())


def test_an_exit_is_raised_in_the_test_and_ends_nothing() -> None:
    app = make_app()

    @app.get("/exit")
    def leave() -> None:
        raise SystemExit(3)

    with TestClient(app) as client:
        with pytest.raises(SystemExit):
            client.get("/exit")
        assert client.get("/items/1").status_code == 200


def test_a_response_outlives_its_client() -> None:
    app = make_app()
    kept: list[Any] = []
    for _ in range(3):
        with TestClient(app) as client:
            kept.append(client.get("/items/1"))
            with pytest.raises(WebSocketDenialResponse) as denied, client.websocket_connect("/x"):
                pass
            kept.append(denied)
    client = TestClient(app)
    streaming = client.send(client.build_request("GET", "/items/1"), stream=True)
    client.close()
    streaming.close()
    kept.clear()
    gc.collect()


def test_nothing_grows_over_many_clients() -> None:
    app = make_app()

    def use() -> None:
        for _ in range(20):
            with TestClient(app) as client:
                client.get("/items/1")
            TestClient(app).get("/suspended")

        async def main() -> None:
            for _ in range(20):
                async with AsyncTestClient(app) as client:
                    await client.get("/suspended")
                await AsyncTestClient(app).get("/items/1")

        asyncio.run(main())
        gc.collect()

    def num_objects() -> int:
        names = ("LaneServer", "Tested", "Lane", "Pipe", "Witness", "Connection")
        return sum(type(one).__name__ in names for one in gc.get_objects())

    use()
    before = (num_objects(), threading.active_count())
    use()
    assert (num_objects(), threading.active_count()) == before


variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


def test_handlers_have_contexts_of_their_own() -> None:
    app = JustAPI()

    @app.get("/")
    def read_and_set() -> str:
        before = variable.get()
        variable.set("set by a request")
        return before

    with TestClient(app) as client:
        assert [client.get("/").json() for _ in range(2)] == ["unset", "unset"]
