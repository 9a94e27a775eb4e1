"""Streams end with their client: whatever happens, `finally` runs."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading

import pytest

from asgi import Answer, call, make_scope
from justapi import JustAPI, _stopping
from justapi._disconnect import TrackedReceive
from justapi.concurrency import iterate_in_threadpool, run_in_threadpool
from justapi.requests import Request
from justapi.responses import EventSourceResponse, StreamingResponse
from justapi.sse import ServerSentEvent, format_sse_event


class Client:
    """A client that leaves when it has seen some chunks, or when it is told."""

    def __init__(self, leave_after: int | None = None, send_fails: bool = False) -> None:
        self.answer = Answer()
        self.left = asyncio.Event()
        self.leave_after = leave_after
        self.send_fails = send_fails
        self.body = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive(self):
        if self.body:
            return self.body.pop(0)
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message):
        if self.left.is_set() and self.send_fails:
            raise OSError("gone")
        self.answer.messages.append(message)
        if self.leave_after is not None and len(self.answer.messages) > self.leave_after:
            self.left.set()

    async def get(self, app, **scope):
        async with asyncio.timeout(10):
            await app(make_scope(**scope), self.receive, self.send)
        return self.answer


@pytest.mark.parametrize("send_fails", [False, True])
@pytest.mark.parametrize("waits", ["sleep", "event"])
def test_an_async_generator_is_cancelled_when_the_client_leaves(send_fails, waits):
    events = []

    async def numbers():
        try:
            for number in range(10**9):
                yield str(number)
                if waits == "event" and number == 2:
                    await asyncio.Event().wait()
                await asyncio.sleep(0)
        finally:
            await asyncio.sleep(0)
            events.append("closed")

    async def background():
        events.append("background")

    async def main():
        # A cancellation that was swallowed long ago is not one of now.
        asyncio.current_task().cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        client = Client(leave_after=3, send_fails=send_fails)
        await client.get(StreamingResponse(numbers(), background=background))
        assert asyncio.current_task().cancelling() == 1
        await asyncio.sleep(0)

    asyncio.run(main())
    assert events == ["closed", "background"]


def test_a_sync_generator_is_closed_when_the_client_leaves():
    closed = threading.Event()

    def numbers():
        try:
            while True:
                yield "x" * 100
        finally:
            closed.set()

    asyncio.run(Client(leave_after=5).get(StreamingResponse(numbers())))
    assert closed.is_set()


def test_a_thousand_clients_leave_and_every_finally_runs():
    closed = []

    async def numbers(index):
        try:
            while True:
                yield "x"
                await asyncio.sleep(0)
        finally:
            closed.append(index)

    async def main():
        clients = [
            Client(leave_after=index % 7).get(StreamingResponse(numbers(index)))
            for index in range(1000)
        ]
        await asyncio.gather(*clients)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())
    # Who leaves before the first chunk is asked for has started nothing.
    assert len(closed) >= 850


def test_a_stream_that_never_starts_is_closed():
    state = []

    class Source:
        def __aiter__(self):
            return self

        async def __anext__(self):
            raise AssertionError("must not be asked")

        async def aclose(self):
            state.append("closed")

    async def main():
        response = StreamingResponse(Source())
        await Client().get(response, method="HEAD")
        await StreamingResponse(Source()).aclose()

        def numbers():
            yield "x"

        generator = numbers()
        await StreamingResponse(generator).aclose()
        assert generator.gi_frame is None

    asyncio.run(main())
    assert state == ["closed", "closed"]


def test_an_error_in_the_stream_leaves_the_message_unfinished():
    async def numbers():
        yield "a"
        raise OSError("the disk, not the client")

    async def main():
        client = Client()
        with pytest.raises(OSError, match="the disk"):
            await client.get(StreamingResponse(numbers()))
        assert not client.answer.is_complete

    asyncio.run(main())


def test_a_cancellation_from_outside_is_passed_on():
    closed = []

    async def numbers():
        try:
            while True:
                yield "x"
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    async def main():
        client = Client()
        task = asyncio.create_task(client.get(StreamingResponse(numbers())))
        while len(client.answer.messages) < 3:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert closed == [True]


def test_the_request_can_be_streamed_back():
    async def app(scope, receive, send):
        receive = TrackedReceive(receive)
        request = Request(scope, receive, send)
        await StreamingResponse(request.stream())(scope, receive, send)

    async def main():
        chunks = [b"%d " % number for number in range(50)]
        for headers in ([], [("content-length", "5")]):
            answer = await call(app, make_scope(method="POST", headers=headers), chunks)
            assert answer.body == b"".join(chunks)

        async def plain(scope, receive, send):
            request = Request(scope, receive, send)
            await StreamingResponse(request.stream())(scope, receive, send)

        scope = make_scope(method="POST", headers=[("transfer-encoding", "chunked")])
        assert (await call(plain, scope, chunks)).body == b"".join(chunks)

    asyncio.run(main())


def test_the_handlers_context_is_seen_by_the_generator():
    variable = contextvars.ContextVar("variable", default=0)

    def numbers():
        for _ in range(3):
            variable.set(variable.get() + 1)
            yield str(variable.get())

    async def main():
        variable.set(10)
        answer = await Client().get(StreamingResponse(numbers()))
        assert answer.body == b"111213"

    asyncio.run(main())


def test_lists_need_no_thread():
    async def main():
        answer = await Client().get(StreamingResponse(["a", b"b", memoryview(b"c")]))
        assert answer.body == b"abc"

    before = threading.active_count()
    asyncio.run(main())
    assert threading.active_count() == before


def test_a_call_in_the_pool_is_waited_for_when_its_caller_is_cancelled():
    started, proceed, ended = threading.Event(), threading.Event(), []

    def work():
        started.set()
        proceed.wait(10)
        ended.append(True)

    async def main():
        task = asyncio.create_task(run_in_threadpool(work))
        while not started.is_set():
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        proceed.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True]

    asyncio.run(main())


def test_the_pool_passes_results_errors_and_stop_iteration():
    async def main():
        assert await run_in_threadpool(lambda a, *, b: a + b, 1, b=2) == 3
        with pytest.raises(ZeroDivisionError):
            await run_in_threadpool(lambda: 1 / 0)
        assert [item async for item in iterate_in_threadpool(iter([1, 2, 3]))] == [1, 2, 3]

    asyncio.run(main())


def test_events_on_the_wire():
    from fastapi.sse import format_sse_event as theirs

    for options in (
        {},
        {"data_str": "a\nb\r\nc\rd\u2028e"},
        {"data_str": ""},
        {"data_str": "x", "event": "e", "id": "1", "retry": 5, "comment": "c\nd"},
    ):
        assert format_sse_event(**options) == theirs(**options)


@pytest.mark.parametrize(
    "bad",
    [
        {"event": "a\nb"},
        {"id": "a\rb"},
        {"id": "a\0b"},
        {"retry": -1},
        {"data": 1, "raw_data": "x"},
    ],
)
def test_events_that_would_break_the_stream(bad):
    with pytest.raises(ValueError):
        ServerSentEvent(**bad)


def test_a_stream_of_events():
    async def events():
        yield ServerSentEvent(data={"a": "ü"}, id="1")
        yield {"plain": True}
        yield ServerSentEvent(raw_data="a\nb", event="raw")
        yield ServerSentEvent(comment="hi")
        yield "data: text\n\n"

    async def main():
        answer = await Client().get(EventSourceResponse(events()))
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.body.decode() == (
            "id: 1\n\n".join(['data: {"a":"ü"}\n', 'data: {"plain":true}\n\n'])
            + "event: raw\ndata: a\ndata: b\n\n: hi\n\ndata: text\n\n"
        )

    asyncio.run(main())


def test_quiet_streams_are_kept_alive():
    async def main():
        client = Client()

        async def events():
            while b": ping\n\n" * 3 not in client.answer.body:
                await asyncio.sleep(0.005)
            yield {"done": True}

        answer = await client.get(EventSourceResponse(events(), ping_interval=0.01))
        assert answer.body.endswith(b'data: {"done":true}\n\n')
        assert answer.is_complete
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r", "\n\r\n"])
def test_no_ping_comes_in_the_middle_of_an_event_that_is_passed_through(end):
    async def main():
        client = Client()

        async def events():
            for piece in ('data: {"choi', 'ces":[]}', end[:1]):
                yield piece
                # Long enough for several.
                await asyncio.sleep(0.05)
            yield end[1:].encode()
            while b": ping" not in client.answer.body:
                await asyncio.sleep(0.005)
            yield "data: [DONE]" + end

        answer = await client.get(EventSourceResponse(events(), ping_interval=0.01))
        first, pings, last = answer.body.partition(b": ping\n\n")
        assert first.decode() == 'data: {"choices":[]}' + end
        assert last.replace(pings, b"").decode() == "data: [DONE]" + end

    asyncio.run(main())


def test_a_stop_before_the_head_of_a_stream_of_events_is_answered():
    async def main():
        messages = []
        may_begin = asyncio.Event()

        async def send(message):
            if message["type"] == "http.response.start":
                await may_begin.wait()
            messages.append(message)

        async def events():
            await asyncio.Event().wait()
            yield "data: never"

        sending = asyncio.create_task(EventSourceResponse(events()).stream_response(send))
        await asyncio.sleep(0)
        _stopping.begin()
        await asyncio.sleep(0)
        may_begin.set()
        async with asyncio.timeout(10):
            await sending
        assert sending.cancelling() == 0
        assert [one["type"] for one in messages] == ["http.response.start", "http.response.body"]
        assert messages[-1]["body"] == b": the server stops\n\n"
        assert not messages[-1]["more_body"]

    asyncio.run(main())


def test_a_ping_that_cannot_be_sent_ends_a_quiet_stream():
    closed = []

    async def events():
        try:
            yield {"first": True}
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    async def main():
        client = Client(leave_after=1, send_fails=True)
        # With a body on the way nobody listens for the disconnect.
        scope = make_scope(method="POST", headers=[("content-length", "3")])
        response = EventSourceResponse(events(), ping_interval=0.01)
        await asyncio.wait_for(response(scope, client.receive, client.send), 10)
        assert asyncio.current_task().cancelling() == 0

    asyncio.run(main())
    assert closed == [True]


def test_a_stream_after_a_body_ends_with_its_client():
    closed = []

    app = JustAPI()

    @app.post("/")
    async def stream(body: dict[str, int], request: Request):
        assert await request.json() == body

        async def numbers():
            try:
                yield "x"
                await asyncio.Event().wait()
            finally:
                closed.append(True)

        return StreamingResponse(numbers())

    async def main():
        client = Client(leave_after=1)
        client.body = [{"type": "http.request", "body": b'{"a": 1}', "more_body": False}]
        headers = [("content-length", "8"), ("content-type", "application/json")]
        answer = await client.get(app, method="POST", headers=headers)
        assert answer.body == b"x"

    asyncio.run(main())
    assert closed == [True]
