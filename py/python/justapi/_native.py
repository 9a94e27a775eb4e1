"""Routes that are answered in Rust: what they are, and why a route cannot be one.

A native route never runs Python for a request. Whatever would need it is an error when the route
is registered; nothing falls back silently. Where another server, or an application around this
one, hands a request over in Python, the same Rust code answers it, and that is said once.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from justapi import _core
from justapi._callables import is_async_callable, is_async_generator, is_generator
from justapi._paths import core_pattern
from justapi._plan import NativePlan, Plan
from justapi.concurrency import open_in_threadpool, run_in_threadpool
from justapi.encoders import encode_json
from justapi.responses import FileResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from justapi._api_route import APIRoute, RouteOptions
    from justapi._asgi import AsgiExchange
    from justapi.types import Send

__all__ = ["NativeAnswer", "answer_over_asgi", "json_schema_of", "make_native_plan"]

logger = logging.getLogger("justapi")

MAX_BODY_BYTES = 2 * 1024 * 1024
"""Limit of a body where the route has none of its own: the server's default."""
_CHUNK_BYTES = 64 * 1024

NativeAnswer: TypeAlias = Response | dict[str, Any] | list[Any] | str | bytes


def json_schema_of(schema: Any) -> str:
    """Returns a JSON Schema as JSON text.

    Args:
        schema: A mapping, JSON text, or a type that pydantic or msgspec can describe.

    Raises:
        ValueError: It is none of these.
    """
    if isinstance(schema, Mapping):
        return json.dumps(schema)
    if isinstance(schema, bool):
        return json.dumps(schema)
    if isinstance(schema, str):
        try:
            json.loads(schema)
        except ValueError as error:
            raise ValueError(f"schema= is not JSON: {error}") from error
        return schema
    if hasattr(schema, "__struct_fields__"):
        import msgspec

        return json.dumps(msgspec.json.schema(schema))
    own = getattr(schema, "json_schema", None)
    if callable(own):
        return json.dumps(own())
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return json.dumps(TypeAdapter(schema).json_schema(mode="validation"))
    except PydanticUserError as error:
        raise ValueError(f"schema={schema!r} has no JSON Schema: {error}") from error


def make_native_plan(route: APIRoute, given: RouteOptions) -> NativePlan | None:
    """Plans a native route.

    A handler without parameters is called once, now, and its result is the answer. One with a
    parameter stands for the document that was validated: it is never called, the answer is that
    document.

    Raises:
        ValueError: The route has something that needs Python, or nothing to validate by.
    """
    native = given.get("native", False)
    schema = given.get("schema")
    query_schema = given.get("query_schema")
    if native is False or native is None:
        if schema is not None or query_schema is not None:
            raise ValueError(f"{_where(route)}: schema= and query_schema= belong to native=True")
        return None
    if native is not True:
        return _constant(route, native)
    if schema is None and query_schema is None:
        raise ValueError(f"{_where(route)}: native=True needs schema= or query_schema=")
    _refuse_python(route)
    status = 200 if route.status_code is None else route.status_code
    answer: Response | None = None
    if not route.dependant.parameter_names:
        if is_async_callable(route.endpoint):
            raise ValueError(
                f"{_where(route)}: the handler of a native route without parameters is called at "
                "registration and cannot be async"
            )
        result = route.endpoint()
        answer = result if isinstance(result, Response) else None
        body = b"" if answer is not None else encode_json(result)
    else:
        body = b""
    plan = NativePlan(
        "body" if schema is not None else "query",
        schema=None if schema is None else json_schema_of(schema),
        query_schema=None if query_schema is None else json_schema_of(query_schema),
        status_code=status if answer is None else answer.status_code,
        raw_headers=[(b"content-type", b"application/json")]
        if answer is None
        else list(answer.raw_headers),
        body=body if answer is None else bytes(answer.body),
    )
    try:
        # Servers refuse a bad schema when they start; behind another one there is only now.
        _core.NativeRoute(plan)
    except ValueError as error:
        raise ValueError(f"{_where(route)}: {error}") from None
    return plan


def _where(route: APIRoute) -> str:
    return f"{'|'.join(route.methods)} {route.path}"


def _refuse_python(route: APIRoute) -> None:
    if core_pattern(route.path) is None:
        raise ValueError(
            f"{_where(route)}: the path of a native route consists of whole segments: text, "
            "{name}, {name:int}, or {name:path} at the end"
        )
    dependant = route.dependant
    reasons = []
    if dependant.dependencies:
        reasons.append("dependencies")
    if is_generator(route.endpoint) or is_async_generator(route.endpoint):
        reasons.append("a generator as its handler")
    for name, value in (
        ("Request", dependant.request_param_name or dependant.http_connection_param_name),
        ("Response", dependant.response_param_name),
        ("BackgroundTasks", dependant.background_tasks_param_name),
    ):
        if value is not None:
            reasons.append(f"a {name} parameter")
    if route.response_class is not None:
        reasons.append("a response class")
    if reasons:
        raise ValueError(f"{_where(route)}: a native route cannot have {', '.join(reasons)}")


def _constant(route: APIRoute, answer: NativeAnswer) -> NativePlan:
    _refuse_python(route)
    if isinstance(answer, RedirectResponse):
        return NativePlan(
            "redirect", status_code=answer.status_code, raw_headers=list(answer.raw_headers)
        )
    if isinstance(answer, FileResponse):
        return NativePlan(
            "file",
            status_code=answer.status_code,
            raw_headers=list(answer.raw_headers),
            path=str(answer.path),
        )
    if isinstance(answer, Response):
        if answer.streaming or answer.background is not None:
            raise ValueError(
                f"{_where(route)}: a native route cannot stream or have background tasks"
            )
        return NativePlan(
            "constant",
            status_code=answer.status_code,
            raw_headers=list(answer.raw_headers),
            body=bytes(answer.body),
        )
    status = 200 if route.status_code is None else route.status_code
    if isinstance(answer, str | bytes):
        text = Response(answer, status_code=status, media_type="text/plain")
        return NativePlan(
            "constant",
            status_code=status,
            raw_headers=list(text.raw_headers),
            body=bytes(text.body),
        )
    if not isinstance(answer, dict | list):
        raise ValueError(f"{_where(route)}: native= takes True, a response, a dict, a list or text")
    document = Response(encode_json(answer), status_code=status, media_type="application/json")
    return NativePlan(
        "constant",
        status_code=status,
        raw_headers=list(document.raw_headers),
        body=bytes(document.body),
    )


def _core_of(plan: Plan) -> _core.NativeRoute:
    """Returns the Rust side of a native route; says, once, how the route is reached."""
    route: APIRoute = plan.route
    made = route.native_core
    if made is None:
        made = route.native_core = _core.NativeRoute(plan.native)
        logger.warning(
            "%s %s is native, and its requests come over ASGI: Rust answers them, Python hands "
            "them over; `justapi serve` does without",
            "|".join(plan.methods),
            plan.path,
        )
    return made


async def answer_over_asgi(plan: Plan, exchange: AsgiExchange) -> None:
    """Answers a request of a native route that comes over ASGI, as the server does.

    Args:
        plan: Plan of the route.
        exchange: The request.

    Raises:
        HTTPException: 413: the body is larger than the limit.
        ClientDisconnect: The client left before its body had come.
    """
    native = plan.native
    assert native is not None
    core = _core_of(plan)
    body = b""
    if native.schema is not None:
        limit = plan.max_body_bytes
        body = await exchange.collect_body(MAX_BODY_BYTES if limit is None else limit)
    scope = exchange.scope
    headers = [(name, value) for name, value in scope["headers"] if name == b"content-type"]
    status, lines, content = core.answer(
        scope["method"], scope.get("query_string", b""), headers, body
    )
    if content is None:
        assert native.path is not None
        await _send_file(exchange.send, status, lines, native.path)
        return
    lines.append((b"content-length", str(len(content)).encode()))
    await exchange.send({"type": "http.response.start", "status": status, "headers": lines})
    await exchange.send({"type": "http.response.body", "body": content})


async def _send_file(send: Send, status: int, lines: list[tuple[bytes, bytes]], path: str) -> None:
    file = await open_in_threadpool(path)
    try:
        length = await run_in_threadpool(file.seek, 0, 2)
        await run_in_threadpool(file.seek, 0)
        lines.append((b"content-length", str(length).encode()))
        await send({"type": "http.response.start", "status": status, "headers": lines})
        while length > 0:
            chunk = await run_in_threadpool(file.read, min(length, _CHUNK_BYTES))
            if not chunk:
                raise RuntimeError(f"{path} got shorter while it was sent")
            length -= len(chunk)
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body"})
    finally:
        file.close()
