"""Calls an ASGI application without any client: messages in, messages out."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass
class Answer:
    """What an application sent for one request."""

    messages: list[dict[str, Any]] = field(default_factory=list)

    @property
    def status(self) -> int:
        return self.messages[0]["status"]

    @property
    def headers(self) -> dict[str, str]:
        return {k.decode("latin-1"): v.decode("latin-1") for k, v in self.raw_headers}

    @property
    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        return list(self.messages[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(bytes(message.get("body", b"")) for message in self.messages[1:])

    @property
    def is_complete(self) -> bool:
        last = self.messages[-1]
        return last["type"] == "http.response.pathsend" or not last.get("more_body", False)


def make_scope(
    path: str = "/",
    method: str = "GET",
    headers: Iterable[tuple[str, str]] = (),
    query: bytes = b"",
    **more: Any,
) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "headers": [(b"host", b"testserver")]
        + [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in headers],
        "client": ("127.0.0.1", 4000),
        "server": ("testserver", 80),
        "state": {},
        "extensions": {},
        **more,
    }


async def call(app: Any, scope: dict[str, Any], chunks: Iterable[bytes] = (b"",)) -> Answer:
    """Sends a whole request whose client stays until it is answered."""
    answer = Answer()
    pending = list(chunks)
    forever = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if pending:
            chunk = pending.pop(0)
            return {"type": "http.request", "body": chunk, "more_body": bool(pending)}
        await forever.wait()
        raise AssertionError("unreachable")

    async def send(message: dict[str, Any]) -> None:
        answer.messages.append(message)

    await asyncio.wait_for(app(scope, receive, send), 10)
    return answer


def respond(app: Any, **scope: Any) -> Answer:
    """Calls an application in a loop of its own."""
    return asyncio.run(call(app, make_scope(**scope)))
