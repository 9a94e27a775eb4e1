"""An application that raises in every place in which Python of a request runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from justapi import Depends, JustAPI

if TYPE_CHECKING:
    from collections.abc import Callable

PLACES = [
    "inline",
    "thread",
    "eager",
    "late",
    "dependency",
    "late-dependency",
    "thread-dependency",
]


def raising(fail: Callable[[str], None]) -> JustAPI:
    """Calls `fail` with the last part of the path, in the place that is the first.

    Args:
        fail: Raises what the text stands for.
    """
    app = JustAPI()

    @app.get("/inline/{kind}")
    def inline(kind: str) -> None:
        fail(kind)

    @app.get("/thread/{kind}", blocking=True)
    def thread(kind: str) -> None:
        fail(kind)

    @app.get("/eager/{kind}")
    async def eager(kind: str) -> None:
        fail(kind)

    @app.get("/late/{kind}")
    async def late(kind: str) -> None:
        await asyncio.sleep(0)
        fail(kind)

    def fails(kind: str) -> None:
        fail(kind)

    async def fails_late(kind: str) -> None:
        await asyncio.sleep(0)
        fail(kind)

    @app.get("/dependency/{kind}")
    def with_dependency(_: None = Depends(fails)) -> None: ...

    @app.get("/late-dependency/{kind}")
    async def with_late_dependency(_: None = Depends(fails_late)) -> None: ...

    @app.get("/thread-dependency/{kind}")
    async def with_thread_dependency(_: None = Depends(fails)) -> None: ...

    return app
