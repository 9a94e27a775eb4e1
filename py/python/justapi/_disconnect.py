"""Ends work for a client that has left.

ASGI tells of a disconnect through `receive`, the same callable that carries the request's body.
Whoever listens there could take a piece of the body away from the handler. A `receive` that can
be waited on beside its reader says so with a coroutine method `wait_disconnect`; `TrackedReceive`
gives that to any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from justapi.types import Message, Receive, Scope

__all__ = ["TrackedReceive", "run_until_disconnect"]


class TrackedReceive:
    """An ASGI `receive` on which one task may read while another waits for the disconnect.

    Args:
        receive: The server's callable.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._replayed: Message | None = None
        self._kept: Message | None = None
        self._is_gone = False
        # Guards `receive`; made when somebody waits for the disconnect.
        self._turn: asyncio.Condition | None = None

    async def __call__(self) -> Message:
        """Returns the next message; after the disconnect, that again."""
        if self._replayed is not None:
            message, self._replayed = self._replayed, None
            return message
        if self._turn is None:
            return await self._next()
        async with self._turn:
            message = await self._next()
            self._turn.notify_all()
            return message

    async def _next(self) -> Message:
        message, self._kept = self._kept, None
        if message is None:
            message = {"type": "http.disconnect"} if self._is_gone else await self._receive()
        if message["type"] == "http.disconnect":
            self._is_gone = True
        return message

    def replay(self, body: bytes) -> None:
        """Lets a body that was read as a whole be read once more.

        Args:
            body: The body.
        """
        self._replayed = {"type": "http.request", "body": body, "more_body": False}

    async def wait_disconnect(self) -> None:
        """Returns when the client has left. What arrives meanwhile is kept for the reader."""
        wait_disconnect = getattr(self._receive, "wait_disconnect", None)
        if wait_disconnect is not None:
            await wait_disconnect()
            self._is_gone = True
            return
        if self._turn is None:
            self._turn = asyncio.Condition()
        while not self._is_gone:
            async with self._turn:
                await self._turn.wait_for(lambda: self._kept is None)
                if not self._is_gone:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        self._is_gone = True
                    else:
                        self._kept = message


def _has_body(scope: Scope) -> bool:
    for name, value in scope["headers"]:
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            return True
    return False


async def _wait(receive: Receive) -> None:
    wait_disconnect = getattr(receive, "wait_disconnect", None)
    if wait_disconnect is not None:
        await wait_disconnect()
        return
    while (await receive())["type"] != "http.disconnect":
        pass


async def run_until_disconnect(
    work: Coroutine[Any, Any, None], scope: Scope, receive: Receive
) -> bool:
    """Runs a coroutine in this task and cancels it when the client leaves.

    Where nobody can listen without taking the request's body, the work goes on until the server
    refuses what it sends.

    Args:
        work: What to run. It sees the cancellation as any other; its `finally` blocks run.
        scope: The ASGI scope of the request.
        receive: The ASGI receive callable.

    Returns:
        Whether the work came to its own end.

    Raises:
        asyncio.CancelledError: This task was cancelled by somebody else.
        BaseException: Whatever the work raised.
    """
    if not hasattr(receive, "wait_disconnect") and _has_body(scope):
        await work
        return True

    task = asyncio.current_task()
    if task is None:
        work.close()
        raise RuntimeError("a response has to be sent from within a task")
    has_left = False
    # Somebody may have swallowed a cancellation before; only new ones count.
    num_cancellations = task.cancelling()

    async def watch() -> None:
        nonlocal has_left
        await _wait(receive)
        has_left = True
        task.cancel()

    watcher = asyncio.get_running_loop().create_task(watch())
    try:
        await work
    except asyncio.CancelledError:
        # Ours alone, or somebody else's too?
        if not has_left or task.uncancel() > num_cancellations:
            raise
        return False
    except BaseException:
        if has_left:
            task.uncancel()
        raise
    finally:
        watcher.cancel()
    if has_left:
        # The work swallowed the cancellation.
        task.uncancel()
        return False
    return True
