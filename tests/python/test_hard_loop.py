"""Handlers that do unusual things with the event loop that serves them."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import threading
from typing import Any

import anyio
import pytest
import sniffio

from justapi import Depends, JustAPI, Request, _core
from justapi.responses import StreamingResponse
from lanes import Running, on_lane
from peers import until

SILENCE = 5.0
"""Seconds after which an answer that comes from the loop's own timers is late."""


async def ask_alone(port: int, path: str = "/") -> bytes:
    """Asks from another thread, so that nothing but the handler moves the loop."""

    def ask() -> bytes:
        with socket.create_connection(("127.0.0.1", port), timeout=SILENCE) as client:
            client.sendall(f"GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n".encode())
            received = b""
            while piece := client.recv(65536):
                received += piece
            return received

    return await asyncio.get_running_loop().run_in_executor(None, ask)


def test_timers_work_after_the_loop_has_swept_the_cancelled_ones() -> None:
    app = JustAPI()

    @app.get("/")
    async def sleepy() -> str:
        await asyncio.sleep(0.05)
        return "slept"

    async def use(running: Running) -> None:
        loop = asyncio.get_running_loop()
        handles = [loop.call_later(3600, print) for _ in range(500)]
        for handle in handles:
            handle.cancel()
        await asyncio.sleep(0.01)
        assert (await ask_alone(running.port)).endswith(b'"slept"')

    on_lane(app, use)


def test_a_task_factory_of_the_users_is_used() -> None:
    app = JustAPI()
    made: list[Any] = []

    def factory(loop: Any, coroutine: Any, **options: Any) -> Any:
        task = asyncio.Task(coroutine, loop=loop, **options)
        made.append(task)
        return task

    @app.get("/")
    async def who() -> bool:
        return asyncio.current_task() in made

    @app.get("/waits")
    async def waits() -> bool:
        await asyncio.sleep(0)
        return asyncio.current_task() in made

    async def use(running: Running) -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        assert (await ask_alone(running.port)).endswith(b"true")
        assert (await ask_alone(running.port, "/waits")).endswith(b"true")
        asyncio.get_running_loop().set_task_factory(None)
        assert (await ask_alone(running.port)).endswith(b"false")

    on_lane(app, use)


def test_the_eager_task_factory() -> None:
    app = JustAPI()

    @app.get("/")
    async def plain() -> bool:
        child = asyncio.get_running_loop().create_task(asyncio.sleep(0, True))
        return await child

    async def use(running: Running) -> None:
        # Python 3.11 has none, and takes None for the usual way.
        asyncio.get_running_loop().set_task_factory(getattr(asyncio, "eager_task_factory", None))
        assert (await ask_alone(running.port)).endswith(b"true")

    on_lane(app, use)


def test_a_finaliser_that_uses_the_loop_while_a_task_is_made() -> None:
    app = JustAPI()

    @app.get("/")
    async def waits() -> str:
        future = asyncio.get_running_loop().create_future()

        class Resolves:
            def __init__(self) -> None:
                self.itself = self

            def __del__(self) -> None:
                future.set_result("resolved")

        Resolves()
        gc.disable()
        threshold = gc.get_threshold()
        gc.set_threshold(1)
        gc.enable()
        try:
            for _ in range(50):
                child = asyncio.get_running_loop().create_task(asyncio.sleep(0))
                await child
            gc.collect()
            return await asyncio.wait_for(future, 2)
        finally:
            gc.set_threshold(*threshold)

    async def use(running: Running) -> None:
        assert (await ask_alone(running.port)).endswith(b'"resolved"')

    on_lane(app, use)


def test_debug_mode() -> None:
    app = JustAPI()

    @app.get("/sync")
    def sync() -> str:
        asyncio.get_running_loop().call_later(0.001, lambda: None)
        return "sync"

    @app.get("/async")
    async def coroutine() -> str:
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(0.001))
        return "async"

    @app.post("/body")
    async def body(request: Request) -> int:
        return len(await request.body())

    async def use(running: Running) -> None:
        asyncio.get_running_loop().set_debug(True)
        for _ in range(3):
            assert (await running.client.get("/sync")).json() == "sync"
            assert (await running.client.get("/async")).json() == "async"
        assert (await running.client.post("/body", content=b"x" * 300_000)).json() == 300_000

    on_lane(app, use)


def test_anyio_and_subprocesses_and_readers_in_handlers() -> None:
    app = JustAPI()

    @app.get("/anyio")
    async def with_anyio() -> list[Any]:
        seen = []

        async def child(number: int) -> None:
            await anyio.sleep(0.001 * number)
            seen.append(number)

        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                for number in (3, 1, 2):
                    group.start_soon(child, number)
            seen.append(await anyio.to_thread.run_sync(lambda: anyio.from_thread.run(_four)))
        return seen

    async def _four() -> int:
        return 4

    @app.get("/subprocess")
    async def with_subprocess() -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "print('hello')", stdout=subprocess.PIPE
        )
        output, _ = await process.communicate()
        return f"{output.decode().strip()} {process.returncode}"

    @app.get("/reader")
    async def with_reader() -> str:
        loop = asyncio.get_running_loop()
        here, there = socket.socketpair()
        future = loop.create_future()
        loop.add_reader(here, lambda: future.done() or future.set_result(here.recv(10)))
        threading.Timer(0.01, there.send, [b"data"]).start()
        try:
            return (await future).decode()
        finally:
            loop.remove_reader(here)
            here.close()
            there.close()

    @app.get("/threadsafe")
    async def with_threadsafe() -> str:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        threading.Timer(0.01, loop.call_soon_threadsafe, [future.set_result, "from far"]).start()
        return await future

    @app.get("/own-loop")
    def with_a_loop_of_its_own() -> str:
        made: list[str] = []

        async def inner() -> str:
            await asyncio.sleep(0.001)
            return "inner"

        thread = threading.Thread(target=lambda: made.append(asyncio.run(inner())))
        thread.start()
        thread.join()
        return made[0]

    @app.get("/own-loop-in-pool", blocking=True)
    def with_a_loop_in_the_pool() -> str:
        async def inner() -> str:
            await asyncio.sleep(0.001)
            return "pooled"

        return asyncio.run(inner())

    async def use(running: Running) -> None:
        for path, expected in (
            ("/anyio", b"[1,2,3,4]"),
            ("/subprocess", b'"hello 0"'),
            ("/reader", b'"data"'),
            ("/threadsafe", b'"from far"'),
            ("/own-loop", b'"inner"'),
            ("/own-loop-in-pool", b'"pooled"'),
        ):
            answer = await ask_alone(running.port, path)
            assert answer.endswith(expected), (path, answer)

    on_lane(app, use)


def test_the_lane_is_not_asked_again_while_it_serves() -> None:
    app = JustAPI()
    lanes: list[Any] = []

    @app.get("/")
    def again() -> str:
        try:
            lanes[0].select(0.0)
        except RuntimeError:
            return "refused"
        return "served"

    async def use(running: Running) -> None:
        lanes.append(running.lane)
        assert (await ask_alone(running.port)).endswith(b'"refused"')

    on_lane(app, use)
    lanes.clear()


def test_what_a_handler_raised_keeps_no_lane() -> None:
    app = JustAPI()
    raised: list[BaseException] = []
    left: list[Any] = []

    @app.get("/")
    def handler() -> None:
        try:
            raise LookupError
        except LookupError as error:
            raised.append(error)
            raise

    async def use(running: Running) -> None:
        await ask_alone(running.port)
        left.append(sys.getrefcount(running.lane))
        del raised[:]
        left.append(sys.getrefcount(running.lane))

    on_lane(app, use)
    assert left[0] == left[1]


def test_jobs_that_come_at_once_have_a_thread_each() -> None:
    app = JustAPI()
    together = threading.Barrier(20)

    @app.get("/one", blocking=True)
    def one() -> str:
        return "one"

    @app.get("/", blocking=True)
    def meet() -> str:
        together.wait(SILENCE)
        return "met"

    async def use(running: Running) -> None:
        await running.client.get("/one")
        clients = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(20)]
        try:
            await until("the first thread is idle", lambda: not _core.Lane.num_busy_threads())
            for client in clients:
                client.sendall(b"GET / HTTP/1.1\r\nHost: t\r\n\r\n")
            loop = asyncio.get_running_loop()
            for client in clients:
                client.setblocking(False)
                assert (await loop.sock_recv(client, 65536)).endswith(b'"met"')
        finally:
            for client in clients:
                client.close()

    on_lane(app, use)


def test_all_tasks_knows_the_tasks_of_requests() -> None:
    app = JustAPI()

    def names() -> list[str]:
        return sorted(task.get_name() for task in asyncio.all_tasks())

    @app.get("/first-step")
    async def first_step() -> bool:
        return asyncio.current_task() in asyncio.all_tasks()

    @app.get("/waits")
    async def waits() -> bool:
        await asyncio.sleep(0)
        return asyncio.current_task() in asyncio.all_tasks()

    @app.get("/among-others")
    async def among_others() -> bool:
        children = [asyncio.create_task(asyncio.sleep(0)) for _ in range(3)]
        known = asyncio.all_tasks()
        # Tasks end while somebody goes through the tasks.
        for task in asyncio.all_tasks():
            if task in children:
                await task
        return known.issuperset(children)

    async def use(running: Running) -> None:
        before = names()
        for path in ("/first-step", "/waits", "/among-others") * 20:
            answer = await ask_alone(running.port, path)
            assert answer.endswith(b"true"), path
        gc.collect()
        assert names() == before
        if sys.version_info < (3, 12):
            loop = asyncio.get_running_loop()
            registered = [task for task in asyncio.tasks._all_tasks if task.get_loop() is loop]
            assert sorted(task.get_name() for task in registered) == before

    on_lane(app, use)


def test_tasks_that_end_while_the_set_is_gone_through() -> None:
    async def use(_: Running) -> None:
        registered: Any = asyncio.all_tasks()
        if sys.version_info < (3, 12):
            # Later versions keep it in C.
            registered = asyncio.tasks._all_tasks
        tasks = [asyncio.create_task(asyncio.sleep(0)) for _ in range(5)]
        most = len(registered)
        await asyncio.gather(*tasks)
        going = iter(registered)
        first = next(going)
        tasks.clear()
        gc.collect()
        # What ended meanwhile is removed afterwards, not from under the loop.
        assert first is not None
        assert sum(1 for _ in going) < most
        another = asyncio.create_task(asyncio.sleep(0))
        assert another in asyncio.all_tasks()
        await another

    on_lane(JustAPI(), use)


@pytest.mark.parametrize("suspends", [False, True])
def test_code_of_a_request_is_in_a_task_wherever_it_runs(suspends: bool) -> None:
    app = JustAPI()
    log: list[str] = []

    async def look(where: str) -> None:
        """Uses what asks for the current task: libraries find out by it who runs them."""
        if suspends:
            await asyncio.sleep(0)
        assert sniffio.current_async_library() == "asyncio"
        task = asyncio.current_task()
        assert task is not None
        assert task in asyncio.all_tasks()
        async with asyncio.timeout(5), asyncio.TaskGroup() as group:
            child = group.create_task(asyncio.sleep(0, where))
        assert child.result() == where
        with anyio.fail_after(5):
            async with anyio.create_task_group() as scope:
                scope.start_soon(anyio.sleep, 0)
        assert asyncio.current_task() is task
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await asyncio.sleep(3600)
        log.append(where)

    async def plain() -> None:
        await look("dependency")

    async def session() -> Any:
        await look("before yield")
        yield
        await look("after yield")

    @app.get("/", dependencies=[Depends(plain), Depends(session)])
    async def handler() -> str:
        await look("handler")
        return "ok"

    @app.get("/stream", dependencies=[Depends(session)])
    async def stream() -> StreamingResponse:
        async def parts() -> Any:
            await look("generator")
            yield b"part"
            await look("generator later")

        return StreamingResponse(parts())

    async def use(running: Running) -> None:
        assert (await running.client.get("/")).json() == "ok"
        await until("the session has ended", lambda: "after yield" in log)
        assert log == ["dependency", "before yield", "handler", "after yield"]
        log.clear()
        assert (await running.client.get("/stream")).content == b"part"
        await until("the session has ended", lambda: "after yield" in log)
        assert log == ["before yield", "generator", "generator later", "after yield"]

    on_lane(app, use)
