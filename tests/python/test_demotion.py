"""Plain functions among coroutines leave the event loop's thread when they block it."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from typing import Annotated, Any

import pytest

from justapi import Depends, JustAPIApp
from justapi._demotion import MAX_MEASURED_CALLS
from lanes import Running, on_lane

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


def test_a_slow_call_is_not_held_against_a_function_for_ever() -> None:
    is_slow = True

    def mostly_quick() -> int:
        if is_slow:
            waits()
        return quick()

    async def handler(value: Annotated[int, Depends(mostly_quick)]): ...

    app = JustAPIApp(openapi_url=None)
    app.get("/x")(handler)
    [plan] = app.plans()
    [watch] = [value for name, value in plan.target.__globals__.items() if name.startswith("watch")]

    async def call() -> None:
        nonlocal is_slow
        for _ in range(3):
            # The second is seen to wait.
            is_slow = True
            await plan.target()
            await plan.target()
            is_slow = False
            assert watch.is_suspected
            # More than that only where the machine makes one of them slow.
            for _ in range(20 * MAX_MEASURED_CALLS):
                await plan.target()
                if not watch.is_suspected:
                    break
            assert not watch.is_suspected
        assert not watch.in_thread
        is_slow = True
        for _ in range(3):
            await plan.target()
        assert watch.in_thread

    asyncio.run(call())


def computes() -> str:
    end = time.thread_time() + 0.01
    while time.thread_time() < end:
        pass
    return "computed"


def test_a_handler_that_computes_on_a_busy_machine_stays_on_the_lane() -> None:
    app = JustAPIApp(openapi_url=None)
    app.get("/computes")(computes)
    slowest = 0.0

    async def use(running: Running) -> None:
        nonlocal slowest
        for _ in range(12):
            start = time.perf_counter()
            assert (await running.client.get("/computes")).json() == "computed"
            slowest = max(slowest, time.perf_counter() - start)
        assert running.counters["inline"] == 12
        assert running.counters["threaded"] == 0

    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    spin = [sys.executable, "-S", "-c", "while True: pass"]
    others = [subprocess.Popen(spin) for _ in range(8)]
    try:
        on_lane(app, use)
    finally:
        os.sched_setaffinity(0, cpus)
        for other in others:
            other.kill()
            other.wait()
    # Else nothing was shown.
    assert slowest > 0.03
