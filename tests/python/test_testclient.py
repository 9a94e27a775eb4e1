"""The test clients show an application what Starlette's shows it, and end what they started."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading

import pytest
import starlette.applications
import starlette.responses
import starlette.routing
import starlette.testclient

from justapi.requests import Request
from justapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from justapi.testclient import AsyncTestClient, TestClient, WebSocketDenialResponse
from justapi.websockets import WebSocket, WebSocketDisconnect


async def show(request):
    return starlette.responses.JSONResponse(
        {
            "method": request.method,
            "url": str(request.url),
            "path": request.scope["path"],
            "raw_path": request.scope["raw_path"].decode(),
            "query": request.query_params.multi_items(),
            "headers": sorted(request.headers.items()),
            "cookies": request.cookies,
            "body": (await request.body()).decode(),
            "client": list(request.client),
            "state": request.scope["state"],
            "root_path": request.scope["root_path"],
        },
        headers={"set-cookie": "seen=1"},
    )


async def fail(request):
    raise ZeroDivisionError("in the handler")


def make_starlette():
    @contextlib.asynccontextmanager
    async def lifespan(app):
        yield {"started": "yes"}

    async def redirect(request):
        return starlette.responses.RedirectResponse("/show?redirected=1")

    return starlette.applications.Starlette(
        routes=[
            starlette.routing.Route("/fail", fail),
            starlette.routing.Route("/redirect", redirect),
            starlette.routing.Route("/{path:path}", show, methods=["GET", "POST", "PUT", "HEAD"]),
        ],
        lifespan=lifespan,
    )


USES = [
    lambda c: c.get("/show"),
    lambda c: c.get("/a%2Fb/c%20d?x=1&x=2", headers={"X-A": "b"}),
    lambda c: c.get("https://example.org:8443/p"),
    lambda c: c.get("/redirect"),
    lambda c: c.get("/redirect", follow_redirects=False),
    lambda c: c.post("/p", json={"a": "ü"}),
    lambda c: c.post(
        "/p",
        data={"a": "1"},
        files={"f": b"x"},
        headers={"content-type": "multipart/form-data; boundary=b"},
    ),
    lambda c: c.put("/p", content=iter([b"a", b"b"])),
    lambda c: c.head("/p"),
    lambda c: c.delete("/p"),
    lambda c: (c.get("/p"), c.get("/p"))[1],
    lambda c: c.get("/p", params={"q": "é"}),
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "root_path": "/root",
            "base_url": "https://base.example/x",
            "cookies": {"c": "1"},
            "headers": {"h": "2"},
            "client": ("c", 1),
        },
    ],
)
@pytest.mark.parametrize("enters", [False, True])
def test_the_application_sees_the_same_request(use, options, enters):
    results = []
    for test_client in (TestClient, starlette.testclient.TestClient):
        client = test_client(make_starlette(), **options)
        with client if enters else contextlib.nullcontext():
            response = use(client)
        results.append((response.status_code, response.headers.multi_items(), response.content))

    assert results[0] == results[1]


def test_exceptions_of_the_application():
    app = make_starlette()
    with pytest.raises(ZeroDivisionError, match="in the handler"):
        TestClient(app).get("/fail")
    response = TestClient(app, raise_server_exceptions=False).get("/fail")
    assert (response.status_code, response.text) == (500, "Internal Server Error")

    async def silent(scope, receive, send):
        pass

    with pytest.raises(AssertionError, match="did not receive any response"):
        TestClient(silent).get("/")
    assert TestClient(silent, raise_server_exceptions=False).get("/").status_code == 500


def test_messages_out_of_turn_are_errors():
    start = {"type": "http.response.start", "status": 200, "headers": []}
    body = {"type": "http.response.body"}

    for messages in ([body], [start, start], [start, body, body]):

        async def app(scope, receive, send, messages=messages):
            for message in messages:
                await send(message)

        with pytest.raises(AssertionError, match="Received"):
            TestClient(app).get("/")


async def endless(scope, receive, send):
    async def numbers():
        try:
            for number in range(10**9):
                yield f"{number}\n"
        finally:
            scope["state"]["log"].append("closed")

    await StreamingResponse(numbers())(scope, receive, send)
    scope["state"]["log"].append("ended")


def test_an_endless_stream_ends_when_it_is_left():
    client = TestClient(endless)
    log = client.app_state["log"] = []
    with client.stream("GET", "/") as response:
        lines = response.iter_lines()
        assert [next(lines) for _ in range(3)] == ["0", "1", "2"]
    assert log == ["closed", "ended"]
    client.close()


def test_the_response_is_there_when_background_work_has_ended():
    done = []

    async def background():
        await asyncio.sleep(0)
        done.append(True)

    assert TestClient(PlainTextResponse("x", background=background)).get("/").text == "x"
    assert done == [True]


def test_trailers_and_debug_information():
    async def app(scope, receive, send):
        info = {"template": "t", "context": {"a": 1}}
        await send({"type": "http.response.debug", "info": info})
        await send({"type": "http.response.start", "status": 200, "headers": [], "trailers": True})
        await send({"type": "http.response.body", "body": b"x"})
        await send({"type": "http.response.trailers", "headers": [(b"a", b"b")]})

    response = TestClient(app).get("/")
    assert response.extensions["http.response.trailers"] == [(b"a", b"b")]
    assert (response.template, response.context) == ("t", {"a": 1})


def make_lifespan(log, startup=None, shutdown=None):
    async def app(scope, receive, send):
        if scope["type"] != "lifespan":
            await JSONResponse(dict(scope["state"]))(scope, receive, send)
            return
        for phase, error in (("startup", startup), ("shutdown", shutdown)):
            assert (await receive())["type"] == f"lifespan.{phase}"
            log.append(phase)
            if error is not None:
                await send({"type": f"lifespan.{phase}.failed", "message": "told so"})
                if isinstance(error, Exception):
                    raise error
                return
            scope["state"]["database"] = 1
            await send({"type": f"lifespan.{phase}.complete"})

    return app


def test_the_lifespan_surrounds_the_client_each_time():
    log = []
    client = TestClient(make_lifespan(log))
    assert client.get("/").json() == {}
    for _ in range(2):
        with client:
            assert client.get("/").json() == {"database": 1}
    assert log == ["startup", "shutdown"] * 2


def test_a_lifespan_that_fails():
    for options, error in [
        ({"startup": ValueError("no")}, ValueError),
        ({"startup": "message only"}, RuntimeError),
        ({"shutdown": ValueError("no")}, ValueError),
        ({"shutdown": "message only"}, RuntimeError),
    ]:
        with pytest.raises(error, match=r"no|told so"), TestClient(make_lifespan([], **options)):
            assert "shutdown" in options


async def websocket_app(scope, receive, send):
    websocket = WebSocket(scope, receive, send)
    if scope["path"] == "/refuse":
        await websocket.close(1008, "no")
        return
    if scope["path"] == "/deny":
        await websocket.send_denial_response(PlainTextResponse("denied", 401, {"x-a": "b"}))
        return
    if scope["path"] == "/raise":
        await websocket.accept()
        raise ZeroDivisionError
    if scope["path"] == "/silent":
        await websocket.accept()
        return
    await websocket.accept(
        scope["subprotocols"][-1] if scope["subprotocols"] else None, [(b"x-b", b"c")]
    )
    await websocket.send_json(
        {
            "url": str(websocket.url),
            "cookies": websocket.cookies,
            "auth": websocket.headers.get("authorization"),
            "agent": websocket.headers["user-agent"],
        }
    )
    try:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                scope["state"]["log"].append((message["code"], message.get("reason")))
                return
            if message.get("text") == "bye":
                await websocket.close(1001, "away")
                return
            await websocket.send({**message, "type": "websocket.send"})
    finally:
        scope["state"]["log"].append("finally")


def test_websockets():
    client = TestClient(websocket_app, cookies={"c": "1"})
    log = client.app_state["log"] = []
    connect = client.websocket_connect("/chat?q=1", ["a", "b"], headers={"Authorization": "secret"})
    with connect as websocket:
        assert websocket.accepted_subprotocol == "b"
        assert websocket.extra_headers == [(b"x-b", b"c")]
        assert websocket.receive_json() == {
            "url": "ws://testserver/chat?q=1",
            "cookies": {"c": "1"},
            "auth": "secret",
            "agent": "testclient",
        }
        websocket.send_text("t")
        assert websocket.receive_text() == "t"
        websocket.send_bytes(b"b")
        assert websocket.receive_bytes() == b"b"
        websocket.send_json({"a": "ü"}, mode="binary")
        assert websocket.receive_json(mode="binary") == {"a": "ü"}
        websocket.close(3000, "enough")
    assert log == [(3000, "enough"), "finally"]

    with client.websocket_connect("wss://other.example/chat") as websocket:
        assert websocket.receive_json()["url"] == "wss://other.example/chat"
        websocket.send_text("bye")
        with pytest.raises(WebSocketDisconnect) as caught:
            websocket.receive_text()
        assert (caught.value.code, caught.value.reason) == (1001, "away")
    client.close()


def test_websockets_that_are_refused_or_break():
    client = TestClient(websocket_app)
    with pytest.raises(WebSocketDisconnect) as caught, client.websocket_connect("/refuse"):
        pass
    assert (caught.value.code, caught.value.reason) == (1008, "no")
    with pytest.raises(WebSocketDenialResponse) as denied, client.websocket_connect("/deny"):
        pass
    assert (denied.value.status_code, denied.value.text) == (401, "denied")
    assert denied.value.headers["x-a"] == "b"
    with pytest.raises(ZeroDivisionError), client.websocket_connect("/raise"):
        pass
    with pytest.raises(ZeroDivisionError), client.websocket_connect("/raise") as websocket:
        websocket.receive_text()
    with (
        pytest.raises(WebSocketDisconnect) as caught,
        client.websocket_connect("/silent") as websocket,
    ):
        websocket.receive_text()
    assert caught.value.code == 1006
    client.close()


def test_async_client():
    async def main():
        log = []
        async with AsyncTestClient(make_lifespan(log), headers={"a": "b"}) as client:
            assert (await client.get("/")).json() == {"database": 1}
        assert log == ["startup", "shutdown"]

        client = AsyncTestClient(endless)
        log = client.app_state["log"] = []
        async with client.stream("GET", "/") as response:
            async for line in response.aiter_lines():
                if line == "2":
                    break
        assert log == ["closed", "ended"]

        async def echo(scope, receive, send):
            body = await Request(scope, receive).body()
            await PlainTextResponse(body)(scope, receive, send)

        client = AsyncTestClient(echo)
        assert (await client.post("/", content=b"hello")).content == b"hello"
        assert (await client.head("/")).content == b""

        client = AsyncTestClient(websocket_app)
        log = client.app_state["log"] = []
        async with client.websocket_connect("/chat") as websocket:
            await websocket.receive_json()
            await websocket.send_text("x")
            assert await websocket.receive_text() == "x"
        assert log[0][0] == 1000
        with pytest.raises(WebSocketDenialResponse):
            async with client.websocket_connect("/deny"):
                pass
        with pytest.raises(ZeroDivisionError):
            await AsyncTestClient(make_starlette()).get("/fail")
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_no_thread_is_left():
    def portals():
        return [t for t in threading.enumerate() if t.name == "justapi-portal"]

    gc.collect()
    before = len(portals())
    with TestClient(make_starlette()) as client:
        client.get("/show")
        assert len(portals()) == before + 1
    client.get("/show")
    del client
    gc.collect()
    assert len(portals()) == before
