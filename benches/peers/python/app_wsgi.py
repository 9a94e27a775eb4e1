"""The greeting of the measurements as a WSGI application, for Granian."""

from collections.abc import Callable, Iterable
from typing import Any

import orjson


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    body = orjson.dumps({"message": "hello"})
    headers = [("content-type", "application/json"), ("content-length", str(len(body)))]
    start_response("200 OK", headers)
    return [body]
