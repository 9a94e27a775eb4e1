"""Middleware as one function around the handler: `dispatch(request, call_next)`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

from justapi.requests import Request
from justapi.responses import Response
from justapi.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["BaseHTTPMiddleware", "DispatchFunction", "RequestResponseEndpoint"]

RequestResponseEndpoint: TypeAlias = Callable[[Request[Any]], Awaitable[Response]]
DispatchFunction: TypeAlias = Callable[[Request[Any], RequestResponseEndpoint], Awaitable[Response]]


class BaseHTTPMiddleware:
    """Runs a function around each HTTP request.

    The rest of the application runs in a task of its own, so that what it sends can be looked at
    while it goes on. Context variables that it sets are not seen here.

    Args:
        app: The rest of the application.
        dispatch: The function; by default the method of that name.

    Example:
        >>> class Timing(BaseHTTPMiddleware):
        ...     async def dispatch(self, request, call_next):
        ...         start = time.perf_counter()
        ...         response = await call_next(request)
        ...         response.headers["server-timing"] = f"app;dur={time.perf_counter() - start}"
        ...         return response
    """

    def __init__(self, app: ASGIApp, dispatch: DispatchFunction | None = None) -> None:
        self.app = app
        self.dispatch_func: DispatchFunction = self.dispatch if dispatch is None else dispatch

    async def dispatch(self, request: Request[Any], call_next: RequestResponseEndpoint) -> Response:
        """Answers a request, usually with the help of `call_next`.

        Args:
            request: The request.
            call_next: Runs the rest of the application and returns its response.
        """
        raise NotImplementedError

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Runs the middleware for one ASGI connection."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = _SharedRequest(scope, receive, send)
        rest = _Rest(self.app, request)
        try:
            response = await self.dispatch_func(request, rest.call_next)
            await response(scope, request.receive_again, send)
        except BaseException:
            rest.cancel()
            raise
        finally:
            await rest.finish()


class _SharedRequest(Request[Any]):
    """A request whose body can be read here and then again by the rest of the application."""

    is_handed_on = False

    async def receive_again(self) -> Message:
        """Receives for the rest of the application."""
        if not self.is_handed_on:
            body: bytes | None = self.__dict__.get("_body")
            if body is not None or self._stream_consumed:
                self.is_handed_on = True
                return {"type": "http.request", "body": body or b"", "more_body": False}
        if self._is_disconnected:
            return {"type": "http.disconnect"}
        message = self._unread or await self._receive()
        self._unread = None
        if message["type"] == "http.disconnect":
            self._is_disconnected = True
        elif not message.get("more_body", False):
            self.is_handed_on = True
            self._stream_consumed = True
        return message


_END: Message = {"type": "justapi.end"}
_DISCONNECT: Message = {"type": "http.disconnect"}


class _Rest:
    """The rest of the application, running beside the middleware.

    Its messages pass through a queue of one, so it is never further than its reader. Once the
    middleware has answered, the rest hears that the client has left, and what it sends is
    dropped.
    """

    def __init__(self, app: ASGIApp, request: _SharedRequest) -> None:
        self._app = app
        self._request = request
        self._task: asyncio.Task[None] | None = None
        self._messages: asyncio.Queue[Message] = asyncio.Queue(maxsize=1)
        self._closed = asyncio.Event()
        self._error: Exception | None = None

    async def call_next(self, request: Request[Any]) -> Response:
        """Runs the rest until it has sent the head of its response.

        Raises:
            Exception: Whatever it raised before that.
            RuntimeError: It ended without a response.
        """
        self._task = asyncio.get_running_loop().create_task(self._run(request))
        message = await self._next_message()
        if message is None:
            self._raise_error()
            raise RuntimeError("No response returned.")
        return _PassedOn(message, self._chunks())

    async def _run(self, request: Request[Any]) -> None:
        try:
            await self._app(request.scope, self._receive, self._send)
        except Exception as error:
            self._error = error
        finally:
            if not self._closed.is_set():
                await self._messages.put(_END)

    async def _receive(self) -> Message:
        if self._closed.is_set():
            return _DISCONNECT
        if not self._request.is_handed_on:
            return await self._request.receive_again()
        # All that can come is word of the client leaving, from it or from the middleware.
        receiving = asyncio.ensure_future(self._request.receive_again())
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((receiving, closing), return_when=asyncio.FIRST_COMPLETED)
            return receiving.result() if receiving.done() else _DISCONNECT
        finally:
            receiving.cancel()
            closing.cancel()

    async def _send(self, message: Message) -> None:
        if not self._closed.is_set():
            await self._messages.put(message)

    async def _next_message(self) -> Message | None:
        while True:
            message = await self._messages.get()
            if message is _END:
                return None
            if message["type"] == "http.response.early_hint":
                await self._request._send(message)
                continue
            return message

    async def _chunks(self) -> AsyncIterator[Any]:
        """Yields the body: bytes, or the message that says which file it is."""
        while (message := await self._next_message()) is not None:
            if message["type"] == "http.response.pathsend":
                yield message
                return
            chunk = message.get("body", b"")
            if chunk:
                yield chunk
            if not message.get("more_body", False):
                return
        self._raise_error()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def cancel(self) -> None:
        """Gives the rest up."""
        self._closed.set()
        self._error = None
        if self._task is not None:
            self._task.cancel()

    async def finish(self) -> None:
        """Waits for what the rest does after its response, such as background tasks.

        Raises:
            Exception: Whatever it raised after its response.
        """
        self._closed.set()
        if self._task is None:
            return
        while not self._messages.empty():
            # It may wait for room in the queue.
            self._messages.get_nowait()
            await asyncio.sleep(0)
        await asyncio.wait((self._task,))
        self._raise_error()


class _PassedOn(Response):
    """A response of the rest of the application, whose body comes as it is sent.

    Attributes:
        body_iterator: The chunks of the body, each to be had once.
    """

    streaming = True

    def __init__(self, head: Message, chunks: AsyncIterator[Any]) -> None:
        self.status_code = head["status"]
        self.raw_headers = list(head.get("headers", []))
        self.body_iterator = chunks
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the head, then the chunks as they come."""
        await send(self._start_message())
        async for chunk in self.body_iterator:
            if isinstance(chunk, dict):
                await send(chunk)
                break
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        else:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        if self.background is not None:
            await self.background()
