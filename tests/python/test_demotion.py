"""Plain functions among coroutines leave the event loop's thread when they block it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Annotated, Any

import pytest

from justapi import Depends, JustAPIApp

on_loop: list[bool] = []


def note() -> None:
    on_loop.append(threading.current_thread() is threading.main_thread())


def waits() -> int:
    note()
    time.sleep(0.003)
    return 1


def works() -> int:
    note()
    end = time.thread_time() + 0.003
    while time.thread_time() < end:
        pass
    return 2


def quick() -> int:
    note()
    return 3


async def coroutine() -> None: ...


def run(endpoint: Any, num_calls: int = 8, **options: Any) -> list[bool]:
    app = JustAPIApp(openapi_url=None)
    app.get("/x", **options)(endpoint)
    [plan] = app.plans()
    on_loop.clear()

    async def call() -> None:
        for _ in range(num_calls):
            await plan.target()

    asyncio.run(call())
    return list(on_loop)


def test_a_dependency_that_waits_is_moved_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def handler(value: Annotated[int, Depends(waits)]):
        assert value == 1

    with caplog.at_level(logging.WARNING, "justapi"):
        places = run(handler)
    assert places[:3] == [True] * 3
    assert places[3:] == [False] * 5
    assert [record.message.split(" (")[0] for record in caplog.records] == [
        "waits blocks the event loop"
    ]


def test_a_handler_that_waits_is_moved() -> None:
    def handler(dependency: Annotated[None, Depends(coroutine)]):
        return waits()

    assert run(handler)[3:] == [False] * 5


@pytest.mark.parametrize("function", [works, quick])
def test_what_does_not_wait_stays(function: Any) -> None:
    async def handler(value: Annotated[int, Depends(function)]): ...

    assert run(handler) == [True] * 8


def test_the_user_decides() -> None:
    async def handler(value: Annotated[int, Depends(waits)]): ...

    assert run(handler, blocking=False) == [True] * 8
    assert run(handler, blocking=True) == [False] * 8
