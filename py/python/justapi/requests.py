"""The request as a handler sees it, over an ASGI scope.

Nothing is decoded before it is asked for. A request that was made from an exchange does not even
build the scope until something of it is needed.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Generator, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, cast

from typing_extensions import TypeVar

from justapi._cookies import parse_cookies
from justapi.datastructures import URL, Address, FormData, Headers, QueryParams, State
from justapi.types import Message, Receive, Scope, Send

if TYPE_CHECKING:
    from justapi.formparsers import FormPart

__all__ = ["ClientDisconnect", "HTTPConnection", "Request"]

StateT = TypeVar("StateT", bound=Mapping[str, Any] | State, default=State)


class ClientDisconnect(Exception):
    """The client left before its request had arrived."""


class Exchange(Protocol):
    """What the server hands over for a request: the ASGI triple, made when it is asked for."""

    @property
    def scope(self) -> Scope:
        """The ASGI scope."""

    @property
    def receive(self) -> Receive:
        """The ASGI receive callable."""

    @property
    def send(self) -> Send:
        """The ASGI send callable."""


class _FromExchange:
    """An attribute that is fetched from the exchange at its first use, then an ordinary one."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        if instance is None:
            return self
        exchange = instance.__dict__.get("_exchange")
        if exchange is None:
            raise AttributeError(self.name)
        value = getattr(exchange, self.name.lstrip("_"))
        instance.__dict__[self.name] = value
        return value


class HTTPConnection(Mapping[str, Any], Generic[StateT]):
    """What requests and WebSockets have in common.

    Args:
        scope: The ASGI scope, of type `http` or `websocket`.
        receive: Not used here; for the signature's sake.

    Raises:
        ValueError: The scope has another type.
    """

    scope: Scope = cast("Scope", _FromExchange())
    _exchange: Exchange

    def __init__(self, scope: Scope, receive: Receive | None = None) -> None:
        if scope["type"] not in ("http", "websocket"):
            raise ValueError(f"expected a scope of http or websocket, not {scope['type']!r}")
        self.scope = scope

    def __getitem__(self, key: str) -> Any:
        return self.scope[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scope)

    def __len__(self) -> int:
        return len(self.scope)

    # Two connections are never equal, whatever their scopes hold.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def app(self) -> Any:
        """The application that serves this."""
        return self.scope["app"]

    @property
    def url(self) -> URL:
        """The URL that was asked for."""
        found: URL | None = self.__dict__.get("_url")
        if found is None:
            found = self.__dict__["_url"] = URL(scope=self.scope)
        return found

    @property
    def base_url(self) -> URL:
        """The URL at which the application is reached."""
        found: URL | None = self.__dict__.get("_base_url")
        if found is None:
            scope = dict(self.scope)
            # Inside a mount the root path is the mount's, but links start at the application.
            root = scope.get("app_root_path", scope.get("root_path", ""))
            scope["path"] = root if root.endswith("/") else root + "/"
            scope["query_string"] = b""
            scope["root_path"] = root
            found = self.__dict__["_base_url"] = URL(scope=scope)
        return found

    @property
    def headers(self) -> Headers:
        """The headers of the request."""
        found: Headers | None = self.__dict__.get("_headers")
        if found is None:
            found = self.__dict__["_headers"] = Headers(scope=self.scope)
        return found

    @property
    def query_params(self) -> QueryParams:
        """The query, decoded."""
        found: QueryParams | None = self.__dict__.get("_query_params")
        if found is None:
            found = self.__dict__["_query_params"] = QueryParams(
                self.scope.get("query_string", b"")
            )
        return found

    @property
    def path_params(self) -> dict[str, Any]:
        """The parameters of the route's path."""
        found: dict[str, Any] = self.scope.get("path_params", {})
        return found

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies by name; of several with one name, the last."""
        found: dict[str, str] | None = self.__dict__.get("_cookies")
        if found is None:
            found = {}
            for header in self.headers.getlist("cookie"):
                found.update(parse_cookies(header))
            self.__dict__["_cookies"] = found
        return found

    @property
    def client(self) -> Address | None:
        """Host and port of the client, if the server knows them."""
        peer = self.scope.get("client")
        return None if peer is None else Address(*peer)

    @property
    def session(self) -> dict[str, Any]:
        """The session, where a session middleware is installed.

        Raises:
            AssertionError: There is none.
        """
        return cast("dict[str, Any]", self._installed("session", "SessionMiddleware"))

    @property
    def auth(self) -> Any:
        """What authentication granted, where an authentication middleware is installed.

        Raises:
            AssertionError: There is none.
        """
        return self._installed("auth", "AuthenticationMiddleware")

    @property
    def user(self) -> Any:
        """The user, where an authentication middleware is installed.

        Raises:
            AssertionError: There is none.
        """
        return self._installed("user", "AuthenticationMiddleware")

    def _installed(self, key: str, middleware: str) -> Any:
        if key not in self.scope:
            raise AssertionError(f"{middleware} must be installed to access request.{key}")
        value = self.scope[key]
        # Starlette's own session notes whether it was looked at.
        mark = getattr(value, "mark_accessed", None)
        if mark is not None:
            mark()
        return value

    @property
    def state(self) -> StateT:
        """A place for what belongs to this request; it begins with the lifespan's state."""
        found: State | None = self.__dict__.get("_state")
        if found is None:
            found = self.__dict__["_state"] = State(self.scope.setdefault("state", {}))
        return cast("StateT", found)

    def url_for(self, name: str, /, **path_params: Any) -> URL:
        """Returns the absolute URL of a route.

        Args:
            name: The route's name.
            **path_params: Values for all parameters of its path.

        Raises:
            RuntimeError: No application or router is known here.
            LookupError: No route has that name and these parameters.

        Example:
            >>> @app.get("/items/{item_id}")
            ... def read_item(item_id: int, request: Request):
            ...     return str(request.url_for("read_item", item_id=item_id + 1))
            >>> client.get("/items/3").json()
            'http://test/items/4'
        """
        provider = self.scope.get("router") or self.scope.get("app")
        if provider is None:
            raise RuntimeError("url_for needs an application or a router in the scope")
        path = provider.url_path_for(name, **path_params)
        return cast("URL", path.make_absolute_url(base_url=self.base_url))


async def _no_receive() -> NoReturn:
    raise RuntimeError("Receive channel has not been made available")


async def _no_send(message: Message) -> NoReturn:
    raise RuntimeError("Send channel has not been made available")


class _FormRequest(Awaitable[FormData]):
    """A form that may be awaited, or entered with `async with` to have its files closed."""

    __slots__ = ("_entered", "_load")

    def __init__(self, load: Awaitable[FormData]) -> None:
        self._load = load

    def __await__(self) -> Generator[Any, None, FormData]:
        return self._load.__await__()

    async def __aenter__(self) -> FormData:
        self._entered = await self._load
        return self._entered

    async def __aexit__(self, *exc_info: object) -> None:
        await self._entered.close()


class Request(HTTPConnection[StateT]):
    """An HTTP request.

    Args:
        scope: The ASGI scope, of type `http`.
        receive: The ASGI receive callable.
        send: The ASGI send callable.

    Raises:
        ValueError: The scope has another type.

    Example:
        >>> @app.post("/echo")
        ... async def echo(request: Request):
        ...     return {"path": request.url.path, "body": await request.json()}
    """

    _receive: Receive = cast("Receive", _FromExchange())
    _send: Send = cast("Send", _FromExchange())
    _stream_consumed = False
    _is_disconnected = False
    _form: FormData | None = None
    _unread: Message | None = None

    def __init__(self, scope: Scope, receive: Receive = _no_receive, send: Send = _no_send) -> None:
        if scope["type"] != "http":
            raise ValueError(f"expected a scope of http, not {scope['type']!r}")
        self.scope = scope
        self._receive = receive
        self._send = send

    @classmethod
    def from_exchange(cls, exchange: Exchange) -> Request[StateT]:
        """Makes a request that builds its scope only if something of it is asked for.

        Args:
            exchange: What the server handed over.
        """
        request = cls.__new__(cls)
        request._exchange = exchange
        return request

    @property
    def method(self) -> str:
        """The method, in capitals."""
        return cast("str", self.scope["method"])

    @property
    def receive(self) -> Receive:
        """The ASGI receive callable."""
        return self._receive

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yields the body as it arrives; an empty chunk is the last.

        Raises:
            ClientDisconnect: The client left before the end.
            RuntimeError: The body was streamed before.
        """
        body: bytes | None = self.__dict__.get("_body")
        if body is not None:
            yield body
            yield b""
            return
        if self._stream_consumed:
            raise RuntimeError("Stream consumed")
        while not self._stream_consumed:
            message = self._unread or await self._receive()
            self._unread = None
            if message["type"] == "http.request":
                if not message.get("more_body", False):
                    self._stream_consumed = True
                chunk = message.get("body", b"")
                if chunk:
                    yield chunk
            elif message["type"] == "http.disconnect":
                self._is_disconnected = True
                raise ClientDisconnect
        yield b""

    async def body(self) -> bytes:
        """Returns the whole body.

        Raises:
            ClientDisconnect: The client left before the end.
            RuntimeError: The body was streamed before.
        """
        found: bytes | None = self.__dict__.get("_body")
        if found is None:
            async with aclosing(self.stream()) as stream:
                found = b"".join([chunk async for chunk in stream])
            self.__dict__["_body"] = found
        return found

    async def json(self) -> Any:
        """Returns the body parsed as JSON.

        Raises:
            ClientDisconnect: The client left before the end.
            ValueError: The body is not JSON in UTF-8, UTF-16 or UTF-32.
        """
        if "_json" not in self.__dict__:
            self.__dict__["_json"] = json.loads(await self.body())
        return self.__dict__["_json"]

    async def _load_form(
        self, max_files: int | float, max_fields: int | float, max_part_size: int
    ) -> FormData:
        if self._form is None:
            from justapi.formparsers import parse_form

            async with aclosing(self.stream()) as stream:
                self._form = await parse_form(
                    self.headers,
                    stream,
                    max_files=max_files,
                    max_fields=max_fields,
                    max_part_size=max_part_size,
                )
        return self._form

    def form(
        self,
        *,
        max_files: int | float = 1000,
        max_fields: int | float = 1000,
        max_part_size: int = 1024 * 1024,
    ) -> _FormRequest:
        """Returns the form of the body, to be awaited or entered with `async with`.

        Files beyond 1 MiB go to disk as they arrive.

        Args:
            max_files: Files that are accepted.
            max_fields: Other fields that are accepted.
            max_part_size: Bytes that one field may have; files are not limited by it.

        Raises:
            HTTPException: 400, when it is awaited: the form is malformed or over a limit.
            ClientDisconnect: When it is awaited: the client left before the end.

        Example:
            >>> @app.post("/photos")
            ... async def add_photo(request: Request):
            ...     async with request.form(max_files=1) as form:
            ...         return form["photo"].filename
            >>> client.post("/photos", files={"photo": ("a.png", b"pixels")}).json()
            'a.png'
        """
        return _FormRequest(self._load_form(max_files, max_fields, max_part_size))

    async def stream_form(
        self,
        *,
        max_parts: int | float = 1000,
        max_part_size: int | float = float("inf"),
    ) -> AsyncGenerator[FormPart, None]:
        """Yields the parts of a multipart body one by one, while they arrive.

        A part must be read before the next one is asked for; what was left unread is skipped.
        Memory stays within a few chunks whatever the size of the upload.

        Args:
            max_parts: Parts that are accepted.
            max_part_size: Bytes that one part may have.

        Raises:
            HTTPException: 400: the body is not multipart, malformed or over a limit.
            ClientDisconnect: The client left before the end.

        Example:
            >>> @app.post("/sizes")
            ... async def sizes(request: Request):
            ...     return [len(await part.read()) async for part in request.stream_form()]
            >>> client.post("/sizes", files={"a": b"1234", "b": b"56"}).json()
            [4, 2]
        """
        from justapi.formparsers import iterate_parts

        async with aclosing(self.stream()) as stream:
            parts = iterate_parts(
                self.headers, stream, max_parts=max_parts, max_part_size=max_part_size
            )
            async with aclosing(parts):
                async for part in parts:
                    yield part

    async def close(self) -> None:
        """Closes the files of the form, if one was read."""
        if self._form is not None:
            await self._form.close()

    async def is_disconnected(self) -> bool:
        """Tells whether the client has left, as far as is known now."""
        if not self._is_disconnected:
            message = self._unread or await _poll(self._receive)
            if message is not None and message["type"] == "http.disconnect":
                self._is_disconnected = True
            else:
                # A piece of the body that came instead is kept for `stream`.
                self._unread = message
        return self._is_disconnected

    async def send_push_promise(self, path: str) -> None:
        """Asks the server to push a resource, where it can.

        Args:
            path: The path of the resource.
        """
        if "http.response.push" in self.scope.get("extensions", {}):
            headers = [pair for pair in self.headers.raw if pair[0] in _PUSHED_HEADERS]
            await self._send({"type": "http.response.push", "path": path, "headers": headers})

    async def send_early_hints(self, link: str, /, *additional_links: str) -> None:
        """Sends a 103 answer with links, where the server can.

        Args:
            link: A value of the `Link` header.
            *additional_links: Further values.
        """
        if "http.response.early_hint" in self.scope.get("extensions", {}):
            links = [value.encode("latin-1") for value in (link, *additional_links)]
            await self._send({"type": "http.response.early_hint", "links": links})


_PUSHED_HEADERS = frozenset(
    {b"accept", b"accept-encoding", b"accept-language", b"cache-control", b"user-agent"}
)


async def _poll(receive: Receive) -> Message | None:
    """Receives a message if one is there at once."""
    waiting = asyncio.ensure_future(receive())
    # One turn of the loop lets the task run up to its first wait.
    await asyncio.sleep(0)
    if not waiting.done():
        waiting.cancel()
        await asyncio.wait({waiting})
    if waiting.cancelled():
        return None
    return waiting.result()
