"""A bare ASGI application, the same on every server."""

from collections.abc import Awaitable, Callable
from typing import Any

BODY = b'{"message":"hello"}'
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", b"%d" % len(BODY)),
]


async def app(
    scope: dict[str, Any],
    receive: Callable[[], Awaitable[dict[str, Any]]],
    send: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})
