"""What coroutines leave with the loop runs within `select()`, and as it would in the loop."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import socket
import sys
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from justapi import JustAPI, Request
from justapi._lane import LaneSelector, is_stock, new_event_loop
from lanes import Running, _serving, on_lane
from peers import until
from serving import Server

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def is_within_select() -> bool:
    """Whether the lane runs the caller, and not the loop itself."""
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code is LaneSelector.select.__code__:
            return True
        frame = frame.f_back
    return False


async def ask_from_thread(port: int, *paths: str) -> list[bytes]:
    """Asks from another thread, one after the other, so that only the server runs here."""

    def ask() -> list[bytes]:
        answers = []
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            reader = client.makefile("rb")
            for path in paths:
                client.sendall(f"GET {path} HTTP/1.1\r\nHost: t\r\n\r\n".encode())
                length = 0
                while (line := reader.readline()) not in (b"\r\n", b""):
                    name, _, value = line.partition(b":")
                    if name.lower() == b"content-length":
                        length = int(value)
                answers.append(reader.read(length))
        return answers

    return await asyncio.get_running_loop().run_in_executor(None, ask)


def check(app: JustAPI, expected: dict[str, bytes], *, debug: bool = False) -> None:
    async def use(running: Running) -> None:
        asyncio.get_running_loop().set_debug(debug)
        answers = await ask_from_thread(running.port, *expected)
        assert dict(zip(expected, answers, strict=True)) == expected

    on_lane(app, use)


@pytest.mark.parametrize("debug", [False, True])
def test_suspended_handlers_go_on_within_select_but_in_debug_mode(debug: bool) -> None:
    app = JustAPI()

    @app.get("/first")
    async def first() -> bool:
        return is_within_select()

    @app.get("/later")
    async def later() -> list[bool]:
        seen = []
        for _ in range(3):
            await asyncio.sleep(0)
            seen.append(is_within_select())
        return seen

    later_answer = b"[false,false,false]" if debug else b"[true,true,true]"
    check(app, {"/first": b"true", "/later": later_answer}, debug=debug)


def test_so_it_is_when_the_program_serves(tmp_path: Path) -> None:
    source = """
        import asyncio
        import sys

        from justapi import JustAPI
        from justapi._lane import LaneSelector, is_stock

        app = JustAPI()


        @app.get("/")
        async def handler() -> list[bool]:
            seen = [is_stock(asyncio.get_running_loop())]
            for _ in range(2):
                frame = sys._getframe()
                names = set()
                while frame is not None:
                    names.add(frame.f_code.co_name)
                    frame = frame.f_back
                seen += ["select" in names, "_run" in names]
                await asyncio.sleep(0)
            return seen
    """
    with Server(tmp_path, source) as server:
        for _ in range(3):
            assert server.client.get("/").json() == [True, True, False, True, False]


def test_callbacks_run_in_the_order_they_came_in_and_turn_by_turn() -> None:
    app = JustAPI()

    @app.get("/")
    async def handler() -> list[str]:
        log: list[str] = []
        loop = asyncio.get_running_loop()

        def note(name: str, times: int) -> None:
            log.append(name)
            if times > 1:
                loop.call_soon(note, name, times - 1)

        async def child(name: str) -> None:
            for _ in range(3):
                log.append(name)
                await asyncio.sleep(0)

        loop.call_soon(note, "a", 3)
        tasks = [loop.create_task(child("b"))]
        loop.call_soon(note, "c", 3)
        tasks.append(loop.create_task(child("d")))
        dropped = loop.call_soon(log.append, "never")
        dropped.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
            log.append("own")
        await asyncio.gather(*tasks)
        return log

    turn = '"a","b","c","d","own"'
    check(app, {"/": f"[{turn},{turn},{turn}]".encode()})


def test_every_callback_has_its_context_and_its_task() -> None:
    app = JustAPI()
    variable = contextvars.ContextVar("variable", default="unset")

    @app.get("/")
    async def handler() -> list[Any]:
        loop, seen = asyncio.get_running_loop(), []
        own = asyncio.current_task()
        variable.set("handler")
        context = contextvars.copy_context()
        context.run(variable.set, "other")

        def note() -> None:
            seen.append([variable.get(), asyncio.current_task() is None])
            variable.set("note")

        loop.call_soon(note)
        loop.call_soon(note, context=context)
        loop.call_soon(note, context=context)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [*seen, variable.get(), asyncio.current_task() is own]

    check(app, {"/": b'[["handler",true],["other",true],["note",true],"handler",true]'})


def test_call_soon_gives_the_handles_of_asyncio() -> None:
    app = JustAPI()

    @app.get("/")
    async def handler() -> list[Any]:
        loop, log = asyncio.get_running_loop(), []
        handle = loop.call_soon(log.append, 1)
        seen: list[Any] = [type(handle) is asyncio.Handle, repr(handle), handle.cancelled()]
        gc.collect()
        handle.cancel()
        seen += [handle.cancelled(), handle._source_traceback]
        for wrong in ((), (print, 1)):
            try:
                loop.call_soon(*wrong, **({"other": 2} if wrong else {}))
            except TypeError:
                seen.append("TypeError")
        await asyncio.sleep(0)
        return [*seen, log]

    async def use(running: Running) -> None:
        [answer] = await ask_from_thread(running.port, "/")
        own = asyncio.Handle([].append, (1,), asyncio.get_running_loop())
        shown = repr(own).encode().replace(b"[]", b"")
        assert answer.startswith(b'[true,"<Handle '), (answer, shown)
        assert answer.endswith(b'",false,true,null,"TypeError","TypeError",[]]')

    on_lane(app, use)


def test_a_closed_loop_takes_no_callbacks() -> None:
    loop, selector = new_event_loop()

    async def main() -> None:
        async with _serving(JustAPI(), selector, {}):
            assert loop.call_soon(print).cancel() is None

    loop.run_until_complete(main())
    loop.close()
    with pytest.raises(RuntimeError, match="Event loop is closed"):
        loop.call_soon(print)


def test_failures_of_callbacks_and_tasks_are_told_once() -> None:
    app = JustAPI()
    told: list[dict[str, Any]] = []

    @app.get("/")
    async def handler() -> str:
        loop = asyncio.get_running_loop()
        loop.call_soon(int, "no number")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "ok"

    @app.get("/fails")
    async def fails() -> str:
        await asyncio.sleep(0)
        raise LookupError

    @app.get("/cancels")
    async def cancels() -> str:
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        return "not cancelled"

    async def use(running: Running) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context))
        for path, status in (("/", 200), ("/fails", 500), ("/cancels", 500)):
            assert (await running.client.get(path)).status_code == status
        gc.collect()
        await asyncio.sleep(0)
        [context] = told
        assert "Exception in callback int('no number')" in context["message"]
        assert type(context["exception"]) is ValueError
        assert type(context["handle"]) is asyncio.Handle

    on_lane(app, use)


@pytest.mark.parametrize("exit_class", [SystemExit, KeyboardInterrupt])
def test_what_ends_the_loop_ends_it(exit_class: type[BaseException]) -> None:
    app = JustAPI()

    def leave() -> None:
        assert is_within_select()
        raise exit_class("leaves")

    @app.get("/")
    async def handler() -> str:
        asyncio.get_running_loop().call_soon(leave)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "goes on"

    loop, selector = new_event_loop()
    answers: list[bytes] = []

    async def main() -> None:
        async with _serving(app, selector, {}) as running:
            answers.extend(await ask_from_thread(running.port, "/"))

    serving = loop.create_task(main())
    with pytest.raises(exit_class, match="leaves"):
        loop.run_until_complete(serving)
    # Whoever runs the loop again finds everything where it was.
    loop.run_until_complete(serving)
    loop.close()
    assert answers == [b'"goes on"']


def test_stop_ends_the_turn_and_keeps_what_came_in_meanwhile() -> None:
    app = JustAPI()
    log: list[str] = []

    @app.get("/")
    async def handler() -> str:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)

        def later(name: str) -> None:
            log.append(name)
            loop.call_soon(log.append, f"after {name}")

        assert is_within_select()
        loop.call_soon(later, "one")
        loop.call_soon(loop.stop)
        loop.call_soon(later, "two")
        return "ok"

    loop, selector = new_event_loop()

    async def main() -> list[bytes]:
        async with _serving(app, selector, {}) as running:
            return await ask_from_thread(running.port, "/")

    serving = loop.create_task(main())
    loop.run_forever()
    assert log == ["one", "two"]
    loop.call_soon(log.append, "three")
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert log == ["one", "two", "after one", "after two", "three"]
    assert loop.run_until_complete(serving) == [b'"ok"']
    loop.close()


def test_what_came_in_meanwhile_runs_without_the_lane_as_well() -> None:
    app = JustAPI()
    log: list[str] = []

    @app.get("/")
    async def handler() -> str:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(0)
        assert is_within_select()
        loop.call_soon(lambda: loop.call_soon(log.append, "meanwhile"))
        loop.call_soon(loop.stop)
        return "ok"

    loop, selector = new_event_loop()

    async def main() -> list[bytes]:
        async with _serving(app, selector, {}) as running:
            return await ask_from_thread(running.port, "/")

    serving = loop.create_task(main())
    loop.run_forever()
    assert log == []
    lane = selector.lane
    assert lane is not None
    selector.remove(lane)
    loop.call_soon(log.append, "later")
    loop.call_soon(loop.stop)
    loop.run_forever()
    assert log == ["meanwhile", "later"]
    selector.add(lane)
    # A collector on another thread could not let it go.
    del lane
    assert loop.run_until_complete(serving) == [b'"ok"']
    loop.close()


def test_stop_by_the_first_step_of_a_handler() -> None:
    app = JustAPI()

    @app.get("/async")
    async def handler() -> str:
        asyncio.get_running_loop().stop()
        return "ok"

    @app.get("/sync")
    def handler_sync() -> str:
        asyncio.get_running_loop().stop()
        return "ok"

    loop, selector = new_event_loop()

    async def main() -> list[bytes]:
        async with _serving(app, selector, {}) as running:
            return await ask_from_thread(running.port, "/async", "/sync")

    serving = loop.create_task(main())
    loop.run_forever()
    assert not serving.done()
    loop.run_forever()
    assert loop.run_until_complete(serving) == [b'"ok"', b'"ok"']
    loop.close()


def test_a_task_that_never_rests_keeps_nobody_from_going_on() -> None:
    app = JustAPI()
    state: dict[str, bool] = {}

    async def spin(name: str) -> int:
        num_turns = 0
        state[f"before {name}"] = True
        while name not in state:
            await asyncio.sleep(0)
            num_turns += 1
        return num_turns

    @app.get("/spin/{name}")
    async def spins(name: str) -> bool:
        loop = asyncio.get_running_loop()
        if name == "timer":
            loop.call_later(0.02, state.__setitem__, name, True)
        elif name == "thread":
            arguments = [state.__setitem__, name, True]
            threading.Timer(0.02, loop.call_soon_threadsafe, arguments).start()
        elif name == "reader":
            here, there = socket.socketpair()

            def read() -> None:
                loop.remove_reader(here)
                here.close()
                there.close()
                state[name] = True

            loop.add_reader(here, read)
            threading.Timer(0.02, there.send, [b"x"]).start()
        return await spin(name) > 0

    @app.get("/tell")
    async def tell() -> bool:
        state["request"] = True
        return True

    async def use(running: Running) -> None:
        paths = [f"/spin/{name}" for name in ("timer", "thread", "reader")]
        assert await ask_from_thread(running.port, *paths) == [b"true"] * 3
        async with asyncio.timeout(30):
            spinning = asyncio.create_task(ask_from_thread(running.port, "/spin/request"))
            await until("it spins", lambda: "before request" in state)
            assert await ask_from_thread(running.port, "/tell") == [b"true"]
            assert await spinning == [b"true"]

    on_lane(app, use)


def test_slow_callbacks_are_logged_in_debug_mode(caplog: pytest.LogCaptureFixture) -> None:
    app = JustAPI()

    @app.get("/")
    async def handler() -> str:
        asyncio.get_running_loop().slow_callback_duration = 0.01
        await asyncio.sleep(0)
        time.sleep(0.03)
        return "ok"

    with caplog.at_level(logging.WARNING, "asyncio"):
        check(app, {"/": b'"ok"'}, debug=True)
    assert "Executing <Task" in caplog.text


def _counting(calls: list[str]) -> tuple[Any, LaneSelector]:
    class Counting(asyncio.SelectorEventLoop):
        def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
            calls.append(getattr(callback, "__name__", type(callback).__name__))
            return super().call_soon(callback, *args, context=context)

    selector = LaneSelector()
    return Counting(selector), selector


def _replaced(calls: list[str]) -> tuple[Any, LaneSelector]:
    loop, selector = new_event_loop()
    own: Callable[..., Any] = loop.call_soon

    def call_soon(callback: Any, *args: Any, context: Any = None) -> Any:
        calls.append(getattr(callback, "__name__", type(callback).__name__))
        return own(callback, *args, context=context)

    vars(loop)["call_soon"] = call_soon
    return loop, selector


@pytest.mark.parametrize("make", [_counting, _replaced])
def test_a_loop_of_the_users_own_is_asked_for_everything(make: Any) -> None:
    app = JustAPI()
    calls: list[str] = []

    @app.get("/")
    async def handler() -> list[bool]:
        loop = asyncio.get_running_loop()
        before = len(calls)
        await asyncio.sleep(0)
        called = len(calls) > before
        return [called, is_within_select(), is_stock(loop)]

    loop, selector = make(calls)

    async def main() -> list[bytes]:
        async with _serving(app, selector, {}) as running:
            return await ask_from_thread(running.port, "/")

    assert loop.run_until_complete(main()) == [b"[true,false,false]"]
    loop.close()


def test_what_is_put_around_call_soon_later_is_called() -> None:
    app = JustAPI()
    calls: list[Any] = []

    @app.get("/")
    async def handler(request: Request) -> list[bool]:
        loop: Any = asyncio.get_running_loop()
        own = loop.call_soon
        vars(loop)["call_soon"] = lambda *given, **options: (
            calls.append(given),
            own(*given, **options),
        )[1]
        await asyncio.sleep(0)
        vars(loop)["call_soon"] = own
        return [len(calls) == 1]

    check(app, {"/": b"[true]"})


def test_lanes_may_follow_each_other_in_one_loop() -> None:
    app = JustAPI()

    @app.get("/")
    async def handler() -> list[bool]:
        await asyncio.sleep(0)
        return [is_within_select(), is_stock(asyncio.get_running_loop())]

    loop, selector = new_event_loop()

    async def main() -> list[bytes]:
        async with _serving(app, selector, {}) as running:
            return await ask_from_thread(running.port, "/")

    for _ in range(3):
        assert loop.run_until_complete(main()) == [b"[true,true]"]
    assert type(vars(loop)["_ready"]) is deque
    loop.close()


def _use_a_loop() -> weakref.ref[Any]:
    loop, selector = new_event_loop()

    async def main() -> None:
        async with _serving(JustAPI(), selector, {}) as running:
            await ask_from_thread(running.port, "/")

    loop.run_until_complete(main())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    return weakref.ref(loop)


def test_a_loop_whose_lane_is_gone_can_be_collected() -> None:
    gone = _use_a_loop()
    gc.collect()
    assert gone() is None
