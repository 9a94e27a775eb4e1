"""Runs plans over ASGI, for when the request does not come through `_core`'s lane.

This is the path of apps with Python middleware, of mounted apps and of other servers. Its
answers are those of the lane.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from justapi._disconnect import TrackedReceive
from justapi._incoming import Incoming, is_json_type
from justapi._plan import Coercion, Exchange, Kind, Plan, Source
from justapi._respond import is_response
from justapi.concurrency import run_in_threadpool
from justapi.datastructures import Headers
from justapi.encoders import encode_json
from justapi.exceptions import HTTPException
from justapi.params import ParamTypes
from justapi.requests import ClientDisconnect, Request
from justapi.responses import Response
from justapi.types import Message, Receive, Scope, Send

__all__ = ["AsgiExchange", "answer", "run_plan"]


class AsgiExchange:
    """One request of an ASGI server, as the Python layer wants it.

    Args:
        scope: The ASGI scope, with `path_params`, `route` and `endpoint`.
        receive: The ASGI receive callable.
        send: The ASGI send callable.

    Attributes:
        receive: Receives messages; a body that was collected comes once more, in one piece.
        context: Free for the Python layer.
        is_outside: Whether no middleware has to do with the answer.
    """

    __slots__ = ("context", "is_outside", "receive", "scope", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = TrackedReceive(receive)
        self.send = send
        self.context: Any = None
        self.is_outside = False

    def limit_body(self, limit: int) -> None:
        """Lets `receive` raise when more of the body comes than a limit allows."""
        receive = self.receive
        size = 0

        async def receive_limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > limit:
                raise HTTPException(413)
            return message

        self.receive = TrackedReceive(receive_limited)

    async def collect_body(self, limit: int | None) -> bytes:
        """Reads the whole body.

        Raises:
            ClientDisconnect: The client left before the end.
            HTTPException: 413: the body is larger than the limit.
        """
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            chunk = message.get("body", b"")
            size += len(chunk)
            if limit is not None and size > limit:
                raise HTTPException(413)
            chunks.append(chunk)
            if not message.get("more_body", False):
                break
        body = b"".join(chunks)
        # Whoever reads the request later finds the body there.
        self.receive.replay(body)
        return body


class RequestExchange(AsgiExchange):
    """A request that somebody else made, perhaps of a class of their own.

    Args:
        request: The request; its body is read through its own methods.
    """

    __slots__ = ("_request",)

    def __init__(self, request: Request[Any]) -> None:
        super().__init__(request.scope, request.receive, request._send)
        self._request = self.context = request

    async def collect_body(self, limit: int | None) -> bytes:
        """Reads the whole body."""
        body = await self._request.body()
        if limit is not None and len(body) > limit:
            raise HTTPException(413)
        return body


async def answer(response: Any, scope: Scope, receive: Receive, send: Send) -> None:
    """Sends a response and runs what has to run after it."""
    try:
        await response(scope, receive, send)
    finally:
        after: Callable[[], Awaitable[None]] | None = getattr(response, "_after", None)
        if after is not None:
            await after()


async def _arguments(plan: Plan, exchange: AsgiExchange) -> Any:
    """Returns the arguments of the target."""
    body = b""
    has_body = plan.json_body
    if has_body and not plan.streams_body:
        body = await exchange.collect_body(plan.max_body_bytes)
    elif plan.max_body_bytes is not None:
        exchange.limit_body(plan.max_body_bytes)
    if not plan.always_bind:
        try:
            return _fast_arguments(plan, exchange, body)
        except Exception:
            # Whatever it was, the slow path says it in the right words.
            pass
    bound = plan.bind(exchange, body)
    return await bound if plan.bind_is_async else bound


class _NeedsSlowPath(Exception):
    """The fast path does not decide this request."""


def _fast_arguments(plan: Plan, exchange: Exchange, body: bytes) -> list[Any]:
    """Fills the inputs without help of the slow path."""
    if not plan.inputs:
        return []
    scope = exchange.scope
    incoming = Incoming(scope)
    arguments: list[Any] = []
    for one in plan.inputs:
        value: Any
        if one.source is Source.EXCHANGE:
            assert one.convert is not None
            arguments.append(one.convert(exchange))
            continue
        if one.source is Source.BODY:
            value = body or None
            content_type = Headers(raw=scope["headers"]).get("content-type")
            if value is not None and (content_type is None or not is_json_type(content_type)):
                raise _NeedsSlowPath
        elif one.source is Source.PATH:
            value = incoming.place(ParamTypes.path).get(one.name)
        elif one.source is Source.QUERY:
            value = incoming.place(ParamTypes.query).get(one.name)
        elif one.source is Source.HEADER:
            value = incoming.place(ParamTypes.header).get(one.name)
        elif one.source is Source.COOKIE:
            value = incoming.place(ParamTypes.cookie).get(one.name)
        else:
            where = ParamTypes.query if one.source is Source.QUERY_LIST else ParamTypes.header
            found: Any = incoming.place(where)
            value = found.getlist(one.name) or None
        if value is None:
            if one.required:
                raise _NeedsSlowPath
            arguments.append(one.default)
        elif one.coercion is Coercion.STR and isinstance(value, str):
            arguments.append(value)
        else:
            assert one.convert is not None
            arguments.append(one.convert(value))
    return arguments


async def run_plan(plan: Plan, exchange: AsgiExchange) -> Any:
    """Answers one request: binds, calls and makes the response.

    Raises:
        Exception: Whatever dependencies or the handler raised.
    """
    arguments = await _arguments(plan, exchange)
    target = plan.target
    if plan.kind is Kind.THREAD or (plan.kind is Kind.INLINE and plan.blocking is None):
        result = await run_in_threadpool(target, *arguments)
    else:
        result = target(*arguments)
        if plan.kind is Kind.ASYNC:
            result = await result
    if is_response(result):
        return result
    body = plan.encode(result) if plan.encode is not None else encode_json(result)
    return Response(body, status_code=plan.status_code, media_type=plan.media_type)
