"""The application of the measurements on Granian's own interface, with orjson."""

import asyncio
from typing import Any

import orjson

HEADERS = [("content-type", "application/json")]


async def app(scope: Any, protocol: Any) -> None:
    match scope.path:
        case "/hello":
            answer = {"message": "hello"}
        case "/suspend":
            await asyncio.sleep(0)
            answer = {"message": "hello"}
        case "/echo":
            answer = orjson.loads(await protocol())
        case _:
            protocol.response_empty(404, [])
            return
    protocol.response_bytes(200, HEADERS, orjson.dumps(answer))
