"""Clients that test an application without a socket.

`TestClient` is for plain tests, `AsyncTestClient` for async ones. Both are httpx clients. As
context managers they run the application's lifespan; without, they do not.

Requests to an application of ours take the way that they take in the server, through the same
Rust code: router, validation, native routes, limits and protocol errors are the server's. Other
ASGI applications, and all of them in a loop that is not asyncio's own such as uvloop's, are
called over ASGI.

Example:
    >>> def test_hello():
    ...     with TestClient(app) as client:
    ...         assert client.get("/").json() == {"hello": "world"}
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, cast

from justapi._portal import Portal
from justapi.types import ASGIApp, Message, Scope
from justapi.websockets import WebSocketDisconnect

try:
    import httpx
except ModuleNotFoundError:  # pragma: no cover
    raise RuntimeError(
        "justapi.testclient needs the package httpx: pip install 'justapi[test]'"
    ) from None

from justapi._asgi_transport import Target
from justapi._in_process import SocketMessages, WebSocketDenied
from justapi._tested import BlockingTransport, Tested

__all__ = [
    "AsyncTestClient",
    "AsyncWebSocketTestSession",
    "TestClient",
    "WebSocketDenialResponse",
    "WebSocketTestSession",
]


class WebSocketDenialResponse(httpx.Response, WebSocketDisconnect):  # type: ignore[misc]
    """The response with which an application refused a WebSocket, to be caught as an error."""


class AsyncWebSocketTestSession(SocketMessages):
    """A WebSocket to the application, to be entered with `async with`.

    Attributes:
        app: The application.
        scope: The ASGI scope of the handshake.
        accepted_subprotocol: The subprotocol that the application chose.
        extra_headers: The headers that it added to the handshake's answer.

    Raises:
        WebSocketDisconnect: When it is entered: the application refused with a close.
        WebSocketDenialResponse: When it is entered: the application refused with a response.
    """

    def __init__(self, app: ASGIApp, scope: Scope, connect: Callable[[], Any]) -> None:
        self.app = app
        self.scope = scope
        self.accepted_subprotocol: str | None = None
        self.extra_headers: list[tuple[bytes, bytes]] | None = None
        self._connect = connect

    async def __aenter__(self) -> Self:
        self._session = self._connect()
        try:
            await self._session.__aenter__()
        except WebSocketDenied as error:
            raise WebSocketDenialResponse(
                error.status, headers=error.headers, content=error.body
            ) from None
        self.accepted_subprotocol = self._session.accepted_subprotocol
        self.extra_headers = self._session.extra_headers
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._session.__aexit__(kind, error, traceback)

    async def send(self, message: Message) -> None:
        """Sends an ASGI message to the application."""
        await self._session.send(message)

    async def receive(self) -> Message:
        """Returns the next ASGI message of the application.

        Raises:
            WebSocketDisconnect: The connection has ended without a close.
            BaseException: What the application raised.
        """
        return cast("Message", await self._session.receive())


class WebSocketTestSession:
    """A WebSocket to the application, to be entered with `with`.

    Attributes:
        app: The application.
        scope: The ASGI scope of the handshake.
        accepted_subprotocol: The subprotocol that the application chose.
        extra_headers: The headers that it added to the handshake's answer.

    Raises:
        WebSocketDisconnect: When it is entered: the application refused with a close.
        WebSocketDenialResponse: When it is entered: the application refused with a response.
    """

    def __init__(self, session: AsyncWebSocketTestSession, portal: Portal) -> None:
        self.app = session.app
        self.scope = session.scope
        self.portal = portal
        self.accepted_subprotocol: str | None = None
        self.extra_headers: list[tuple[bytes, bytes]] | None = None
        self._session = session

    def __enter__(self) -> Self:
        self.portal.call(self._session.__aenter__)
        self.accepted_subprotocol = self._session.accepted_subprotocol
        self.extra_headers = self._session.extra_headers
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.portal.call(self._session.__aexit__, kind, error, traceback)

    def send(self, message: Message) -> None:
        """Sends an ASGI message to the application."""
        self.portal.call(self._session.send, message)

    def send_text(self, data: str) -> None:
        """Sends a message of text."""
        self.portal.call(self._session.send_text, data)

    def send_bytes(self, data: bytes) -> None:
        """Sends a binary message."""
        self.portal.call(self._session.send_bytes, data)

    def send_json(self, data: Any, mode: Literal["text", "binary"] = "text") -> None:
        """Sends a value as JSON.

        Args:
            data: What `json.dumps` accepts.
            mode: The kind of message.
        """
        self.portal.call(self._session.send_json, data, mode)

    def close(self, code: int = 1000, reason: str | None = None) -> None:
        """Closes the WebSocket.

        Args:
            code: The closing code.
            reason: Why.
        """
        self.portal.call(self._session.close, code, reason)

    def receive(self) -> Message:
        """Returns the next ASGI message of the application.

        Raises:
            WebSocketDisconnect: The application has ended without closing.
            BaseException: What the application raised.
        """
        return cast("Message", self.portal.call(self._session.receive))

    def receive_text(self) -> str:
        """Returns the next message, which has to be text.

        Raises:
            WebSocketDisconnect: The application has closed.
        """
        return cast("str", self.portal.call(self._session.receive_text))

    def receive_bytes(self) -> bytes:
        """Returns the next message, which has to be binary.

        Raises:
            WebSocketDisconnect: The application has closed.
        """
        return cast("bytes", self.portal.call(self._session.receive_bytes))

    def receive_json(self, mode: Literal["text", "binary"] = "text") -> Any:
        """Returns the next message parsed as JSON.

        Args:
            mode: The kind of message that is expected.

        Raises:
            WebSocketDisconnect: The application has closed.
        """
        return self.portal.call(self._session.receive_json, mode)


def _handshake(
    client: httpx.Client | httpx.AsyncClient,
    url: str,
    subprotocols: Sequence[str] | None,
    options: dict[str, Any],
) -> httpx.Request:
    headers = httpx.Headers(options.pop("headers", None))
    headers.setdefault("connection", "upgrade")
    headers.setdefault("sec-websocket-key", "testserver==")
    headers.setdefault("sec-websocket-version", "13")
    if subprotocols is not None:
        headers.setdefault("sec-websocket-protocol", ", ".join(subprotocols))
    request = client.build_request("GET", url, headers=headers, **options)
    schemes = {"http": "ws", "https": "wss"}
    scheme = schemes.get(request.url.scheme, request.url.scheme)
    request.url = request.url.copy_with(scheme=scheme)
    return request


class _Client:
    """What both clients have: the application, and how it is told of a test."""

    app: ASGIApp
    app_state: dict[str, Any]
    _tested: Tested
    _target: Target

    def _test(
        self,
        app: ASGIApp,
        base_url: str,
        raise_server_exceptions: bool,
        root_path: str,
        client: tuple[str, int],
    ) -> Tested:
        self.app = app
        self._target = Target(
            app,
            raise_server_exceptions=raise_server_exceptions,
            root_path=root_path,
            client=client,
        )
        self.app_state = self._target.state
        self._tested = Tested(self._target, base_url)
        return self._tested

    def _socket(
        self, url: str, subprotocols: Sequence[str] | None, options: dict[str, Any]
    ) -> AsyncWebSocketTestSession:
        assert isinstance(self, httpx.Client | httpx.AsyncClient)
        request = _handshake(self, url, subprotocols, options)
        connect = partial(self._tested.websocket, request)
        return AsyncWebSocketTestSession(self.app, self._target.scope(request), connect)


def _client_headers(headers: dict[str, str] | None) -> dict[str, str]:
    return {"user-agent": "testclient", **(headers or {})}


class TestClient(_Client, httpx.Client):
    """Tests an application from code that is not async.

    The application runs in an event loop in another thread. As a context manager the client runs
    the lifespan, too.

    Args:
        app: The application; any ASGI 3 application will do.
        base_url: What relative URLs are relative to.
        raise_server_exceptions: Whether what the application raises is raised here; otherwise
            the client gets the 500 answer.
        root_path: Where the application is mounted.
        backend: Always `asyncio`.
        backend_options: Not used; there for the signature's sake.
        cookies: Cookies of every request.
        headers: Headers of every request.
        follow_redirects: Whether redirects are followed.
        client: Host and port that the requests come from.

    Attributes:
        app: The application.
        app_state: What the lifespan left in its state.

    Raises:
        ValueError: The backend is another.

    Example:
        >>> @app.get("/hello")
        ... def hello():
        ...     return {"hello": "world"}
        >>> with TestClient(app) as client:
        ...     client.get("/hello").json()
        {'hello': 'world'}
    """

    __test__ = False

    def __init__(
        self,
        app: ASGIApp,
        base_url: str = "http://testserver",
        raise_server_exceptions: bool = True,
        root_path: str = "",
        backend: Literal["asyncio"] = "asyncio",
        backend_options: dict[str, Any] | None = None,
        cookies: Any = None,
        headers: dict[str, str] | None = None,
        follow_redirects: bool = True,
        client: tuple[str, int] = ("testclient", 50000),
    ) -> None:
        if backend != "asyncio":
            raise ValueError(f"the backend is asyncio, not {backend!r}")
        self._portal: Portal | None = None
        tested = self._test(app, base_url, raise_server_exceptions, root_path, client)
        super().__init__(
            base_url=base_url,
            headers=_client_headers(headers),
            transport=BlockingTransport(tested, lambda: self.portal),
            follow_redirects=follow_redirects,
            cookies=cookies,
        )

    @property
    def portal(self) -> Portal:
        """Where the application runs: begun when it is needed, ended with the client."""
        if self._portal is None:
            self._portal = Portal()
        return self._portal

    def _close_portal(self) -> None:
        portal, self._portal = self._portal, None
        if portal is not None:
            portal.close()

    def websocket_connect(
        self, url: str, subprotocols: Sequence[str] | None = None, **kwargs: Any
    ) -> WebSocketTestSession:
        """Returns a WebSocket, to be entered with `with`.

        Args:
            url: Where to.
            subprotocols: What is offered.
            **kwargs: As for `build_request`: headers, cookies, params.

        Example:
            >>> @app.websocket("/echo")
            ... async def echo(websocket: WebSocket):
            ...     await websocket.accept()
            ...     await websocket.send_text(await websocket.receive_text())
            >>> with client.websocket_connect("/echo") as websocket:
            ...     websocket.send_text("hello")
            ...     websocket.receive_text()
            'hello'
        """
        return WebSocketTestSession(self._socket(url, subprotocols, kwargs), self.portal)

    # httpx allows a client to be entered once. Tests enter one again to start the application
    # again, so its own methods are not used here; its transport has nothing to open.

    def __enter__(self) -> Self:
        try:
            self.portal.call(self._tested.startup)
        except BaseException:
            self._close_portal()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        try:
            self.portal.call(self._tested.shutdown)
        finally:
            self._close_portal()

    def close(self) -> None:
        """Closes the client and ends its event loop."""
        super().close()
        self._close_portal()


class AsyncTestClient(_Client, httpx.AsyncClient):
    """Tests an application from async code, in the same event loop.

    As a context manager the client runs the lifespan, too.

    Args:
        app: The application; any ASGI 3 application will do.
        base_url: What relative URLs are relative to.
        raise_server_exceptions: Whether what the application raises is raised here; otherwise
            the client gets the 500 answer.
        root_path: Where the application is mounted.
        cookies: Cookies of every request.
        headers: Headers of every request.
        follow_redirects: Whether redirects are followed.
        client: Host and port that the requests come from.

    Attributes:
        app: The application.
        app_state: What the lifespan left in its state.

    Example:
        >>> async with AsyncTestClient(app) as client:
        ...     response = await client.get("/")
        >>> response.status_code
        404
    """

    __test__ = False

    def __init__(
        self,
        app: ASGIApp,
        base_url: str = "http://testserver",
        raise_server_exceptions: bool = True,
        root_path: str = "",
        cookies: Any = None,
        headers: dict[str, str] | None = None,
        follow_redirects: bool = True,
        client: tuple[str, int] = ("testclient", 50000),
    ) -> None:
        super().__init__(
            base_url=base_url,
            headers=_client_headers(headers),
            transport=self._test(app, base_url, raise_server_exceptions, root_path, client),
            follow_redirects=follow_redirects,
            cookies=cookies,
        )

    def websocket_connect(
        self, url: str, subprotocols: Sequence[str] | None = None, **kwargs: Any
    ) -> AsyncWebSocketTestSession:
        """Returns a WebSocket, to be entered with `async with`.

        Args:
            url: Where to.
            subprotocols: What is offered.
            **kwargs: As for `build_request`: headers, cookies, params.
        """
        return self._socket(url, subprotocols, kwargs)

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        try:
            await self._tested.startup()
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        try:
            await self._tested.shutdown()
        finally:
            await super().__aexit__(kind, error, traceback)

    async def aclose(self) -> None:
        """Closes the client and ends what is open."""
        await super().aclose()
        await self._tested.shutdown()
