"""The response whose body is produced while it is sent.

The iterator runs in the task that sends. When the client leaves, the task is cancelled where it
stands, and in every case, also when the iterator was never started, it is closed: `finally`
blocks run.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar, TypeAlias

from justapi._disconnect import run_until_disconnect
from justapi._response import Response
from justapi.concurrency import iterate_in_threadpool, run_in_threadpool
from justapi.types import Message, Receive, Scope, Send

__all__ = ["Content", "ContentStream", "StreamingResponse"]

Content: TypeAlias = str | bytes | memoryview
ContentStream: TypeAlias = AsyncIterable[Any] | Iterable[Any]


class _SendFailed(Exception):
    """The server says that nobody is there to send to."""


class StreamingResponse(Response):
    r"""A response from an iterator, sync or async, of text and bytes.

    A sync iterator is stepped through in the thread pool, unless it is a list or a tuple.

    Args:
        content: The iterator.
        status_code: The status.
        headers: Headers.
        media_type: The content type; by default that of the class.
        background: What runs after the last chunk, also when the client has left.

    Attributes:
        body_iterator: The iterator, async in any case.

    Raises:
        ValueError: A header is invalid.

    Example:
        >>> @app.get("/numbers")
        ... async def numbers():
        ...     async def lines():
        ...         for number in range(10):
        ...             yield f"{number}\n"
        ...     return StreamingResponse(lines(), media_type="text/plain")
    """

    streaming: ClassVar[bool] = True

    body_iterator: AsyncIterable[Any]

    def __init__(
        self,
        content: ContentStream,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
        background: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._source: Any = content
        if isinstance(content, AsyncIterable):
            self.body_iterator = content
        elif isinstance(content, list | tuple):
            self.body_iterator = _iterate_inline(content)
        else:
            self.body_iterator = iterate_in_threadpool(content)
        self.status_code = status_code
        if media_type is not None:
            self.media_type = media_type
        self.background = background
        self.init_headers(headers)

    def encode_chunk(self, chunk: Any) -> bytes | memoryview:
        """Makes bytes of an item of the iterator. Subclasses may replace it.

        Args:
            chunk: The item.

        Raises:
            TypeError: It is neither text nor bytes.
        """
        if isinstance(chunk, bytes | memoryview):
            return chunk
        return self.render(chunk)

    async def stream_response(self, send: Send) -> None:
        """Sends head and chunks, without listening for the client to leave.

        Args:
            send: The ASGI send callable.

        Raises:
            BaseException: Whatever the iterator raised. The message is then left unfinished, so
                that the client can tell.
        """
        await send(self._start_message())
        async for chunk in self.body_iterator:
            await send(
                {
                    "type": "http.response.body",
                    "body": self.encode_chunk(chunk),
                    "more_body": True,
                }
            )
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def aclose(self) -> None:
        """Closes the iterator; for a response that is given up before it was sent, too."""
        await _close(self.body_iterator)
        if self._source is not self.body_iterator:
            # A wrapper that never ran has not closed what it wraps.
            await _close(self._source)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response, then runs `background`.

        Args:
            scope: The ASGI scope: of a request, or of a WebSocket that is refused.
            receive: The ASGI receive callable.
            send: The ASGI send callable.

        Raises:
            BaseException: Whatever the iterator raised.
        """
        send = self._denying(scope, send)

        async def send_or_leave(message: Message) -> None:
            # The iterator's own OSError is an error; the server's says that the client has left.
            try:
                await send(message)
            except OSError as error:
                raise _SendFailed from error

        try:
            if scope["type"] == "websocket":
                await self.stream_response(send_or_leave)
            elif scope["method"] == "HEAD":
                await send_or_leave(self._start_message())
                await send_or_leave({"type": "http.response.body", "body": b""})
            else:
                await run_until_disconnect(self.stream_response(send_or_leave), scope, receive)
        except _SendFailed:
            pass
        finally:
            await self.aclose()
        if self.background is not None:
            await self.background()


async def _iterate_inline(content: Iterable[Any]) -> AsyncIterator[Any]:
    for chunk in content:
        yield chunk


async def _close(iterator: Any) -> None:
    close_async = getattr(iterator, "aclose", None)
    if close_async is not None:
        await close_async()
        return
    close = getattr(iterator, "close", None)
    # A generator that came to its end needs no thread to close it.
    if close is not None and getattr(iterator, "gi_frame", iterator) is not None:
        await run_in_threadpool(close)
