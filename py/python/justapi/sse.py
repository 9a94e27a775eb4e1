"""Server-sent events, after the HTML Living Standard, section 9.2."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import to_json

from justapi._stopping import when_stopping
from justapi._streaming_response import ContentStream, StreamingResponse
from justapi.types import Message, Send

__all__ = ["KEEPALIVE_COMMENT", "EventSourceResponse", "ServerSentEvent", "format_sse_event"]

KEEPALIVE_COMMENT = b": ping\n\n"
"""What is sent while nothing happens, so that nobody on the way takes the connection for dead."""

_KEEPALIVE_MESSAGE: Message = {
    "type": "http.response.body",
    "body": KEEPALIVE_COMMENT,
    "more_body": True,
}

_LAST_MESSAGE: Message = {
    "type": "http.response.body",
    "body": b": the server stops\n\n",
    "more_body": False,
}

_END_MESSAGE: Message = {"type": "http.response.body", "body": b"", "more_body": False}

PING_INTERVAL_SECONDS = 15.0
"""Quiet time before a comment is sent; the standard recommends about fifteen seconds."""


class ServerSentEvent(BaseModel):
    """One event.

    Attributes:
        data: The payload, sent as JSON; a text is quoted, too.
        raw_data: The payload as text that is sent as it is; not together with `data`.
        event: The type of the event; `message` if there is none.
        id: What the client sends back as `Last-Event-ID` when it connects again.
        retry: Milliseconds after which the client shall connect again.
        comment: Text that clients ignore.

    Raises:
        pydantic.ValidationError: `event` or `id` has a line break, `id` a NUL, `retry` is
            negative, or both kinds of data are there.
    """

    data: Any = None
    raw_data: str | None = None
    event: str | None = None
    id: str | None = None
    retry: int | None = Field(default=None, ge=0)
    comment: str | None = None

    @field_validator("event", "id")
    @classmethod
    def _check_single_line(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and ("\r" in value or "\n" in value):
            raise ValueError(f"SSE {info.field_name!r} must be a single line")
        return value

    @field_validator("id")
    @classmethod
    def _check_no_nul(cls, value: str | None) -> str | None:
        if value is not None and "\0" in value:
            raise ValueError("SSE 'id' must not contain null characters")
        return value

    @model_validator(mode="after")
    def _check_one_kind_of_data(self) -> ServerSentEvent:
        if self.data is not None and self.raw_data is not None:
            raise ValueError("Cannot set both 'data' and 'raw_data' on the same ServerSentEvent.")
        return self


def _lines(text: str) -> list[str]:
    # The standard's line ends; str.splitlines knows more of them.
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def format_sse_event(
    *,
    data_str: str | None = None,
    event: str | None = None,
    id: str | None = None,
    retry: int | None = None,
    comment: str | None = None,
) -> bytes:
    r"""Returns an event as it is on the wire.

    Args:
        data_str: The payload; each of its lines becomes a `data:` line.
        event: The type of the event.
        id: The event's id.
        retry: Milliseconds after which the client shall connect again.
        comment: Text that clients ignore.

    Example:
        >>> format_sse_event(data_str="hello", event="greeting")
        b'event: greeting\ndata: hello\n\n'
    """
    lines: list[str] = []
    if comment is not None:
        lines += [f": {line}" for line in _lines(comment)]
    if event is not None:
        lines.append(f"event: {event}")
    if data_str is not None:
        lines += [f"data: {line}" for line in _lines(data_str)]
    if id is not None:
        lines.append(f"id: {id}")
    if retry is not None:
        lines.append(f"retry: {retry}")
    return "\n".join([*lines, "", ""]).encode("utf-8")


def encode_event(item: Any, to_json_text: Callable[[Any], str]) -> bytes | memoryview:
    """Returns what an item of a stream becomes on the wire.

    Args:
        item: Text and bytes are sent as they are, a `ServerSentEvent` as what it says, anything
            else as the data of an event.
        to_json_text: Turns the data of an event into JSON.
    """
    if isinstance(item, bytes | memoryview):
        return item
    if isinstance(item, str):
        return item.encode("utf-8")
    if not isinstance(item, ServerSentEvent):
        return format_sse_event(data_str=to_json_text(item))
    data = item.raw_data
    if data is None and item.data is not None:
        data = to_json_text(item.data)
    return format_sse_event(
        data_str=data, event=item.event, id=item.id, retry=item.retry, comment=item.comment
    )


class _StoppedEarly(Exception):
    """The server has begun to stop before the head was sent."""


class _Events:
    """Sends the messages of a stream, and knows whether it is between two events.

    What the iterator gives as text or bytes may end anywhere, and what else is sent there would
    become a part of the event.

    Args:
        send: The ASGI send callable.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._last = b"\n\n"
        self.has_begun = False
        self.has_ended = False

    async def send(self, message: Message) -> None:
        """Sends a message."""
        await self._send(message)
        self.has_begun = True
        if message["type"] == "http.response.body":
            self.has_ended = not message.get("more_body")
            # Two line ends are four bytes at most.
            self._last = (self._last + bytes(message["body"][-4:]))[-4:]

    @property
    def is_between(self) -> bool:
        """Whether an event is neither begun nor waits for its blank line."""
        return self._last.replace(b"\r\n", b"\n").replace(b"\r", b"\n").endswith(b"\n\n")


def _to_json_text(value: Any) -> str:
    return to_json(value, by_alias=True).decode("utf-8")


class EventSourceResponse(StreamingResponse):
    """A stream of server-sent events, with a comment now and then while it is quiet.

    It can be returned with an iterator, or be the `response_class` of a handler that yields.

    Args:
        content: An iterator of events: `ServerSentEvent`s, values that become the data of one,
            or text and bytes in the format of the wire.
        status_code: The status.
        headers: Headers. `Cache-Control: no-cache` and `X-Accel-Buffering: no` are the default.
        media_type: The content type.
        background: What runs after the last event, also when the client has left.
        ping_interval: Quiet seconds before a comment is sent; None for never.

    Raises:
        ValueError: A header is invalid.

    Example:
        >>> @app.get("/ticks")
        ... async def ticks():
        ...     async def events():
        ...         for number in itertools.count():
        ...             yield ServerSentEvent(data=number, event="tick", id=str(number))
        ...             await asyncio.sleep(1)
        ...     return EventSourceResponse(events())
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        content: ContentStream,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
        background: Callable[[], Awaitable[None]] | None = None,
        *,
        ping_interval: float | None = PING_INTERVAL_SECONDS,
    ) -> None:
        super().__init__(content, status_code, headers, media_type, background)
        self.headers.setdefault("cache-control", "no-cache")
        # Asks nginx to pass each event on at once.
        self.headers.setdefault("x-accel-buffering", "no")
        self.ping_interval = ping_interval

    def encode_chunk(self, chunk: Any) -> bytes | memoryview:
        """Makes an event of an item of the iterator."""
        return encode_event(chunk, _to_json_text)

    async def stream_response(self, send: Send) -> None:
        """Sends head, events and comments, without listening for the client to leave.

        A server of ours that stops ends the stream: the iterator is cancelled and closed, as if
        the client had left, and the answer is completed, with a last comment
        unless an event is half sent: clients drop that one.

        Args:
            send: The ASGI send callable.

        Raises:
            BaseException: Whatever the iterator raised.
        """
        task = asyncio.current_task()
        num_cancellations = 0 if task is None else task.cancelling()
        events = _Events(send)
        is_stopping = is_cancelled = False

        def stop() -> None:
            nonlocal is_stopping, is_cancelled
            is_stopping = True
            # Without a head there would be no answer.
            if task is not None and events.has_begun:
                is_cancelled = True
                task.cancel()

        async def send_noted(message: Message) -> None:
            await events.send(message)
            if is_stopping and not is_cancelled and not events.has_ended:
                raise _StoppedEarly

        with when_stopping(stop):
            try:
                await self._stream(send_noted, events)
            except _StoppedEarly:
                pass
            except asyncio.CancelledError:
                if not is_cancelled or task is None or task.uncancel() > num_cancellations:
                    raise
            except BaseException:
                if is_cancelled and task is not None:
                    task.uncancel()
                raise
            else:
                # The iterator has swallowed it.
                if is_cancelled and task is not None:
                    task.uncancel()
        if not events.has_ended:
            await self.aclose()
            await send(_LAST_MESSAGE if events.is_between else _END_MESSAGE)

    async def _stream(self, send: Send, events: _Events) -> None:
        if self.ping_interval is None:
            await super().stream_response(send)
            return
        interval = self.ping_interval
        loop = asyncio.get_running_loop()
        last_sent = loop.time()
        stream_task = asyncio.current_task()
        num_cancellations = 0 if stream_task is None else stream_task.cancelling()
        turn = asyncio.Lock()
        has_ended = False
        ping_error: BaseException | None = None

        async def send_in_turn(message: Message) -> None:
            nonlocal last_sent, has_ended
            async with turn:
                await send(message)
                last_sent = loop.time()
                has_ended = not message.get("more_body", True)

        async def ping() -> None:
            nonlocal last_sent, ping_error
            while not has_ended:
                await asyncio.sleep(max(last_sent + interval - loop.time(), 0.001))
                async with turn:
                    if has_ended or loop.time() - last_sent < interval:
                        continue
                    if not events.is_between:
                        last_sent = loop.time()
                        continue
                    try:
                        await send(_KEEPALIVE_MESSAGE)
                    except Exception as error:
                        # The iterator may be quiet for long; it need not wait for its own turn
                        # to learn that nobody listens.
                        ping_error = error
                        if stream_task is not None:
                            stream_task.cancel()
                        return
                    last_sent = loop.time()

        await send(self._start_message())
        pinger = loop.create_task(ping())
        try:
            async for chunk in self.body_iterator:
                await send_in_turn(
                    {
                        "type": "http.response.body",
                        "body": self.encode_chunk(chunk),
                        "more_body": True,
                    }
                )
            await send_in_turn({"type": "http.response.body", "body": b"", "more_body": False})
        except asyncio.CancelledError:
            if (
                ping_error is None
                or stream_task is None
                or stream_task.uncancel() > num_cancellations
            ):
                raise
            raise ping_error from None
        finally:
            pinger.cancel()
