"""The request and the WebSocket behave as Starlette's do."""

from __future__ import annotations

import asyncio
import json

import pytest
import starlette.requests
import starlette.websockets

import justapi.requests
import justapi.websockets
from asgi import make_scope
from justapi.requests import ClientDisconnect, Request
from justapi.responses import PlainTextResponse
from justapi.websockets import WebSocket, WebSocketDisconnect, WebSocketDisconnected, WebSocketState

COOKIES = [
    'a=b; c="d\\"e\\054f"; =empty; novalue; a=last',
    "",
    ";;",
    "a=b=c",
    ' spaced = v ; x="" ',
    'quoted="a\\\\b"; half="x',
    "ü=ö",
]

READ = [
    lambda r: r.method,
    lambda r: str(r.url),
    lambda r: str(r.base_url),
    lambda r: r.headers.items(),
    lambda r: r.query_params.multi_items(),
    lambda r: r.path_params,
    lambda r: r.cookies,
    lambda r: tuple(r.client),
    lambda r: r["path"],
    lambda r: len(r),
    lambda r: sorted(r),
    lambda r: r.session,
    lambda r: r.user,
    lambda r: r.auth,
]


def full_scope():
    return make_scope(
        "/sub/items/3",
        "POST",
        [("cookie", "a=1"), ("cookie", "b=2"), ("x", "1"), ("x", "2")],
        b"q=1&q=2",
        root_path="/sub",
        app_root_path="/base",
        path_params={"id": 3},
        session={"s": 1},
        user="me",
        auth=["scope"],
    )


@pytest.mark.parametrize("read", READ)
def test_attributes(read):
    assert read(Request(full_scope())) == read(starlette.requests.Request(full_scope()))


@pytest.mark.parametrize("cookie", COOKIES)
def test_cookies(cookie):
    results = [
        module.Request(make_scope(headers=[("cookie", cookie)])).cookies
        for module in (justapi.requests, starlette.requests)
    ]
    assert results[0] == results[1]


def test_state_belongs_to_the_scope():
    scope = make_scope(state={"shared": 1})
    request = Request(scope)
    request.state.mine = 2
    assert request.state.shared == 1
    assert scope["state"] == {"shared": 1, "mine": 2}


@pytest.mark.parametrize("name", ["session", "user", "auth"])
def test_what_is_not_installed_says_so(name):
    with pytest.raises(AssertionError, match="Middleware must be installed"):
        getattr(Request(make_scope()), name)


def test_connections_are_never_equal():
    scope = make_scope()
    request = Request(scope)
    assert request == request
    assert request != Request(scope)
    assert len({request, Request(scope)}) == 2


class Exchange:
    """Counts how often the scope is built."""

    def __init__(self):
        self.num_scopes = 0

    @property
    def scope(self):
        self.num_scopes += 1
        return make_scope("/lazy")

    async def receive(self):
        return {"type": "http.request", "body": b"[1]"}

    async def send(self, message):
        raise AssertionError("not used")


def test_a_request_of_an_exchange_builds_the_scope_once_and_late():
    exchange = Exchange()
    request = Request.from_exchange(exchange)
    assert asyncio.run(request.json()) == [1]
    assert exchange.num_scopes == 0
    assert request.url.path == "/lazy"
    assert request.method == "GET"
    assert exchange.num_scopes == 1


def messages(*parts, more=False):
    found = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    if found and not more:
        found[-1]["more_body"] = False
    return found


def make_request(sent, **scope):
    async def receive():
        return sent.pop(0) if sent else {"type": "http.disconnect"}

    return Request(make_scope(**scope), receive)


def test_body_json_and_stream():
    async def main():
        request = make_request(messages(b'{"a"', b"", b": 1}"))
        assert await request.body() == b'{"a": 1}'
        assert await request.json() == {"a": 1}
        assert [chunk async for chunk in request.stream()] == [b'{"a": 1}', b""]

        request = make_request(messages(b"a", b"b"))
        assert [chunk async for chunk in request.stream()] == [b"a", b"b", b""]
        with pytest.raises(RuntimeError, match="Stream consumed"):
            await request.body()

        with pytest.raises(ClientDisconnect):
            await make_request(messages(b"a", more=True)).body()
        with pytest.raises(json.JSONDecodeError):
            await make_request(messages(b"")).json()

    asyncio.run(main())


def test_is_disconnected_takes_nothing_of_the_body():
    async def main():
        request = make_request(messages(b"a", b"b"))
        assert not await request.is_disconnected()
        assert not await request.is_disconnected()
        assert await request.body() == b"ab"
        assert await request.is_disconnected()

        async def silent():
            await asyncio.Event().wait()

        request = Request(make_scope(), silent)
        assert not await request.is_disconnected()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_url_for_asks_the_router():
    from justapi.datastructures import URLPath

    class Router:
        def url_path_for(self, name, **params):
            return URLPath(f"/{name}/{params['id']}")

    request = Request({**full_scope(), "router": Router()})
    assert str(request.url_for("item", id=3)) == "http://testserver/base/item/3"
    with pytest.raises(RuntimeError, match="url_for"):
        Request(make_scope()).url_for("item")


def test_scopes_of_another_type():
    for kind, make in [("websocket", Request), ("http", lambda s: WebSocket(s, None, None))]:
        with pytest.raises(ValueError, match="scope"):
            make({"type": kind})


class Peer:
    """The server's side of a WebSocket."""

    def __init__(self, *incoming, **scope):
        self.incoming = [{"type": "websocket.connect"}, *incoming]
        self.sent = []
        self.fail = False
        self.scope = {**make_scope(**scope), "type": "websocket"}

    async def receive(self):
        return self.incoming.pop(0)

    async def send(self, message):
        if self.fail:
            raise OSError("gone")
        self.sent.append(message)

    def open(self, module=justapi.websockets):
        return module.WebSocket(self.scope, self.receive, self.send)


def received(**payload):
    return {"type": "websocket.receive", **payload}


async def talk(websocket):
    await websocket.accept("chat", [(b"x", b"y")])
    seen = [await websocket.receive_text(), await websocket.receive_bytes()]
    seen += [await websocket.receive_json(), await websocket.receive_json("binary")]
    seen += [text async for text in websocket.iter_text()]
    await websocket.send_text("a")
    await websocket.send_bytes(b"b")
    await websocket.send_json({"c": "ü"})
    await websocket.send_json([1], "binary")
    await websocket.close(1001, "bye")
    return seen, websocket.client_state.name, websocket.application_state.name


def test_a_conversation_as_starlette():
    results = []
    for module in (justapi.websockets, starlette.websockets):
        peer = Peer(
            received(text="t", bytes=None),
            received(bytes=b"b"),
            received(text='{"j": 1}'),
            received(bytes=b"[2]", text=None),
            received(text="more"),
            {"type": "websocket.disconnect", "code": 1001, "reason": "x"},
        )
        results.append((asyncio.run(talk(peer.open(module))), peer.sent))
    assert results[0] == results[1]


def test_states_of_a_websocket():
    async def main():
        websocket = Peer().open()
        for early in (websocket.receive_text(), websocket.receive_json()):
            with pytest.raises(WebSocketDisconnected, match="accept"):
                await early
        with pytest.raises(RuntimeError, match="Expected ASGI message"):
            await websocket.send_text("early")

        peer = Peer({"type": "websocket.disconnect"})
        websocket = peer.open()
        await websocket.accept()
        with pytest.raises(WebSocketDisconnect) as caught:
            await websocket.receive_text()
        assert (caught.value.code, caught.value.reason) == (1005, "")
        assert websocket.client_state is WebSocketState.DISCONNECTED
        with pytest.raises(WebSocketDisconnected, match="receive"):
            await websocket.receive()
        await websocket.close()
        with pytest.raises(WebSocketDisconnected, match="send"):
            await websocket.close()

        peer = Peer(received(bytes=b"binary"))
        websocket = peer.open()
        await websocket.accept()
        with pytest.raises(KeyError):
            await websocket.receive_text()
        with pytest.raises(RuntimeError, match="mode"):
            await websocket.send_json(1, "other")
        peer.fail = True
        with pytest.raises(WebSocketDisconnect) as caught:
            await websocket.send_text("x")
        assert caught.value.code == 1006

    asyncio.run(main())


def test_a_handshake_can_be_refused_with_a_response():
    async def main():
        peer = Peer(extensions={"websocket.http.response": {}})
        websocket = peer.open()
        await websocket.send_denial_response(PlainTextResponse("no", 401))
        assert [message["type"] for message in peer.sent] == [
            "websocket.http.response.start",
            "websocket.http.response.body",
        ]
        assert peer.sent[0]["status"] == 401
        assert websocket.application_state is WebSocketState.DISCONNECTED
        with pytest.raises(RuntimeError, match="Denial Response"):
            await Peer().open().send_denial_response(PlainTextResponse("no"))

    asyncio.run(main())
