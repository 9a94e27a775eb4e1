"""`justapi serve` when workers are killed, cannot be started, or are replaced under load."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import socket
import threading
import time
from textwrap import dedent
from typing import TYPE_CHECKING

import httpx
import pytest

from load import HANDLER, Load, children, descriptors
from serving import Server, eventually, is_alive, run

if TYPE_CHECKING:
    from pathlib import Path


def text_of(server: Server) -> str:
    """What it has said on standard error."""
    return "".join(server.errors)


def pid_of(server: Server) -> int:
    """The worker that answers a connection of its own."""
    return int(httpx.get(f"{server.url}/tasks/0", timeout=30, verify=False).text)


def test_killed_workers_take_along_only_what_they_had(tmp_path: Path) -> None:
    with Server(tmp_path, HANDLER, "--workers", "2") as server:
        supervisor = server.process.pid
        num_descriptors = descriptors(supervisor)
        killed: set[int] = set()
        with Load(server.url, tmp_path, kept=4, fresh=4, seconds=0.01) as load:

            def alive() -> set[int]:
                # So many that even one with few connections is among them.
                return load.workers(400) - killed

            for _ in range(4):
                eventually("both answer", lambda: len(alive()) == 2)
                victim = min(alive())
                killed.add(victim)
                os.kill(victim, signal.SIGKILL)
            eventually("both answer again", lambda: len(alive()) == 2)
        begun = load.begun()
        assert load.refused == []
        assert load.other == []
        # One request of each connection at most, and only of those that it had.
        assert len(load.failures) <= 8 * len(killed)
        for failure in load.failures:
            known = {failure.pid, begun.get(failure.number)} - {None}
            assert known <= killed, failure
        said = text_of(server)
        assert all(f"(pid {pid}) ended: killed by SIGKILL" in said for pid in killed)
        # Nothing is left of them.
        assert sorted(children(supervisor)) == sorted(alive())
        assert "Z" not in children(supervisor).values()
        eventually("descriptors", lambda: descriptors(supervisor) == num_descriptors)
        assert server.stop() == 0


def test_a_worker_is_missed_although_a_process_of_its_own_lives_on(tmp_path: Path) -> None:
    source = (
        HANDLER
        + """
    @app.get("/fork")
    def fork():
        child = os.fork()
        if child == 0:
            import time
            time.sleep(600)
        return child
"""
    )
    with Server(tmp_path, source) as server:
        child = server.client.get("/fork").json()
        try:
            os.kill(server.workers[0], signal.SIGKILL)
            eventually("it is missed", lambda: "killed by SIGKILL" in text_of(server))
            eventually("another has its place", lambda: len(children(server.process.pid)) == 1)
        finally:
            os.kill(child, signal.SIGKILL)


def test_workers_that_end_as_fast_as_they_start_end_the_server(tmp_path: Path) -> None:
    source = (
        """
    import pathlib, time
    with open("starts", "a") as starts:
        starts.write(f"{time.monotonic()}\\n")
    if pathlib.Path("broken").exists():
        raise RuntimeError("broken here")
"""
        + HANDLER
    )
    with Server(tmp_path, source) as server:
        (tmp_path / "broken").touch()
        os.kill(server.workers[0], signal.SIGKILL)
        assert server.wait() == 1
        said = text_of(server)
    assert said.count("RuntimeError: broken here") == 8
    assert "error[JA522]: workers end as fast as they start: exit status 4" in said
    starts = [float(line) for line in (tmp_path / "starts").read_text().split()][1:]
    pauses = [after - before for before, after in itertools.pairwise(starts)]
    # The first three were answered at once; the last pause is 3.2 s, each half of the next.
    for number, at_least in enumerate([0.2, 0.4, 0.8, 1.6, 3.2]):
        assert pauses[number + 2] >= at_least


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_worker_that_cannot_be_started_is_tried_again(tmp_path: Path, num_workers: int) -> None:
    with Server(tmp_path, HANDLER, "--workers", str(num_workers)) as server:
        supervisor = server.process.pid
        before = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (3, before[1]))
        victim, *others = server.workers
        os.kill(victim, signal.SIGKILL)
        eventually("it is said", lambda: "cannot be started" in text_of(server))
        # Those that are left go on.
        assert list(children(supervisor)) == others
        if others:
            assert {pid_of(server) for _ in range(20)} == set(others)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, before)
        eventually("all are there", lambda: len(children(supervisor)) == num_workers)
        eventually("a new one answers", lambda: pid_of(server) not in server.workers)
        said = text_of(server)
        assert said.count("cannot be started") == 1
        assert "Too many open files" in said
        assert "ulimit -n" in said
        assert server.stop() == 0


def test_a_refusal_does_not_forget_a_replacement(tmp_path: Path) -> None:
    with Server(tmp_path, HANDLER, "--workers", "2") as server:
        supervisor = server.process.pid
        before = resource.prlimit(supervisor, resource.RLIMIT_NOFILE)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, (3, before[1]))
        server.signal(signal.SIGHUP)
        eventually("it is said", lambda: "cannot be started" in text_of(server))
        assert set(children(supervisor)) == set(server.workers)
        resource.prlimit(supervisor, resource.RLIMIT_NOFILE, before)
        eventually("all were replaced", lambda: not any(is_alive(pid) for pid in server.workers))
        assert server.stop() == 0


def test_a_start_that_is_refused_names_the_limit(tmp_path: Path) -> None:
    with Server(tmp_path, HANDLER) as server:
        # Whatever the program needs before it comes to workers is fewer.
        needed = descriptors(server.process.pid)
    (tmp_path / "start.sh").write_text(f'ulimit -n {needed - 1}; exec "$@"')
    done = run(tmp_path, "serve", "app:app", "--port", "0", before=["sh", "start.sh"])
    assert done.returncode != 0
    assert "ulimit -n" in done.stderr


def test_a_roll_loses_nothing(tmp_path: Path) -> None:
    with Server(tmp_path, HANDLER, "--workers", "2") as server:
        with Load(server.url, tmp_path, kept=4, fresh=4, seconds=0.2) as load:
            eventually("it is under load", lambda: load.answered > 16)
            server.signal(signal.SIGHUP)
            eventually(
                "the first workers have ended",
                lambda: not any(is_alive(pid) for pid in server.workers),
            )
            eventually("others answer", lambda: load.workers().isdisjoint(server.workers))
        assert load.refused == []
        assert load.other == []
        assert load.lost() == []
        assert server.stop() == 0


def test_many_rolls_at_once_lose_nothing_and_end_with_the_same_number(tmp_path: Path) -> None:
    with Server(tmp_path, HANDLER, "--workers", "2") as server:
        supervisor = server.process.pid
        num_descriptors = descriptors(supervisor)

        def wait_for_change() -> None:
            there = set(children(supervisor))
            eventually("a process comes or goes", lambda: set(children(supervisor)) != there)

        with Load(server.url, tmp_path, kept=4, fresh=2, seconds=0.2) as load:
            eventually("it is under load", lambda: load.answered > 12)
            for number in range(20):
                if number % 5 == 4:
                    # Others come in the middle of the first.
                    wait_for_change()
                server.signal(signal.SIGHUP)
            eventually(
                "the first workers have ended",
                lambda: not any(is_alive(pid) for pid in server.workers),
            )

            def is_quiet() -> bool:
                return descriptors(supervisor) == num_descriptors and len(children(supervisor)) == 2

            eventually("it is over", is_quiet)
        assert load.refused == []
        assert load.other == []
        assert load.lost() == []
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("def f(:\n  pass", "SyntaxError"),
        (
            "import sys\nfrom justapi import JustAPI\n"
            "async def life(app):\n    raise ValueError('no database')\n    yield\n"
            "app = JustAPI(lifespan=life)",
            "ValueError: no database",
        ),
    ],
)
def test_what_does_not_start_replaces_nothing(tmp_path: Path, broken: str, says: str) -> None:
    with Server(tmp_path, HANDLER, "--workers", "2") as server:
        with Load(server.url, tmp_path, kept=2, fresh=2, seconds=0.05) as load:
            whole = (tmp_path / "app.py").read_text()
            (tmp_path / "app.py").write_text(broken)
            server.signal(signal.SIGHUP)
            eventually("it is said", lambda: "did not start" in text_of(server))
            (tmp_path / "app.py").write_text(whole)
            assert set(children(server.process.pid)) == set(server.workers)
            server.signal(signal.SIGHUP)
            eventually(
                "all were replaced", lambda: not any(is_alive(pid) for pid in server.workers)
            )
        assert load.refused == []
        assert load.other == []
        assert load.lost() == []
        said = text_of(server)
        assert says in said
        assert said.count("did not start") == 1
        assert server.stop() == 0


def test_a_worn_out_worker_is_replaced_once_its_successor_starts(tmp_path: Path) -> None:
    with Server(tmp_path, HANDLER, "--max-requests", "3") as server:
        whole = (tmp_path / "app.py").read_text()
        (tmp_path / "app.py").write_text("raise RuntimeError('broken here')")
        for _ in range(4):
            assert pid_of(server) == server.workers[0]
        eventually("it is said", lambda: "broken here" in text_of(server))
        assert pid_of(server) == server.workers[0]
        (tmp_path / "app.py").write_text(whole)
        eventually("another answers", lambda: pid_of(server) != server.workers[0])
        assert server.stop() == 0


def test_a_worker_whose_memory_is_above_the_limit_is_replaced(tmp_path: Path) -> None:
    source = (
        HANDLER
        + """
    kept = []

    @app.get("/grow")
    def grow():
        kept.append(b"x" * (256 << 20))
        return os.getpid()
"""
    )
    with Server(tmp_path, source, "--worker-max-rss", "240MiB") as server:
        assert pid_of(server) == server.workers[0]
        assert server.client.get("/grow").json() == server.workers[0]
        eventually("it has ended", lambda: not is_alive(server.workers[0]))
        assert pid_of(server) != server.workers[0]
        # Graceful, and nothing to warn of.
        assert "ended" not in text_of(server)
        assert server.stop() == 0


SLOW_START = """
    import asyncio, pathlib
    from contextlib import asynccontextmanager
    from justapi import JustAPI

    @asynccontextmanager
    async def lifespan(app):
        open("starting", "w").close()
        while not pathlib.Path("go").exists():
            await asyncio.sleep(0.01)
        open("started", "w").close()
        yield

    app = JustAPI(lifespan=lifespan)
"""


def test_a_start_that_hangs_ends_after_its_time(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import time\ntime.sleep(600)")
    began = time.monotonic()
    done = run(tmp_path, "serve", "app:app", "--port", "0", "--start-timeout", "500ms")
    assert time.monotonic() - began < 30
    assert done.returncode == 4
    assert "did not start in time" in done.stderr
    assert "--start-timeout" in done.stderr


def test_a_replacement_that_hangs_as_it_starts_is_ended(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with Server(tmp_path, SLOW_START, "--start-timeout", "5s") as server:
        (tmp_path / "go").unlink()
        server.signal(signal.SIGHUP)
        eventually("it is given up", lambda: "did not start in time" in text_of(server))
        eventually("it has gone", lambda: list(children(server.process.pid)) == server.workers)
        assert server.client.get("/health").status_code == 200
        assert server.stop() == 0


STAYS = """
    import os, threading

    forever = threading.Event()
    {more}
    threading.Thread(target=forever.wait).start()
    raise RuntimeError("broken here")
"""
NO_EXIT = "os._exit = lambda code: forever.wait()"
"""Keeps the process even where it wants to end at once."""


@pytest.mark.parametrize("more", ["", NO_EXIT])
def test_a_start_that_fails_says_why_although_a_thread_keeps_the_process(
    tmp_path: Path, more: str
) -> None:
    (tmp_path / "app.py").write_text(dedent(STAYS.replace("{more}", more)))
    # Far longer than the run may take: what was reported is not to wait for it.
    done = run(tmp_path, "serve", "app:app", "--port", "0", "--start-timeout", "10m")
    assert done.returncode == 4
    assert "RuntimeError: broken here" in done.stderr
    assert "did not start in time" not in done.stderr


@pytest.mark.parametrize("more", ["", NO_EXIT])
def test_a_replacement_that_has_failed_is_ended_although_a_thread_keeps_it(
    tmp_path: Path, more: str
) -> None:
    with Server(tmp_path, HANDLER, "--start-timeout", "10m") as server:
        whole = (tmp_path / "app.py").read_text()
        (tmp_path / "app.py").write_text(dedent(STAYS.replace("{more}", more)))
        server.signal(signal.SIGHUP)
        eventually("it is said", lambda: "RuntimeError: broken here" in text_of(server))
        eventually("it has gone", lambda: list(children(server.process.pid)) == server.workers)
        assert pid_of(server) == server.workers[0]
        (tmp_path / "app.py").write_text(whole)
        server.signal(signal.SIGHUP)
        eventually("another has its place", lambda: not is_alive(server.workers[0]))
        assert server.stop() == 0


def test_a_worker_that_is_worn_out_while_others_start_is_replaced(tmp_path: Path) -> None:
    source = (
        """
    import os, pathlib, time

    try:
        os.close(os.open("first", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
    write = os.write

    def noted(descriptor, data):
        done = write(descriptor, data)
        if b"recycle" in data:
            pathlib.Path(f"worn-{os.getpid()}").touch()
        return done

    os.write = noted
"""
        + HANDLER
    )
    place = tmp_path / "s"

    def listens() -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(place)) == 0

    def wear_out() -> None:
        eventually("the first listens", listens)
        transport = httpx.HTTPTransport(uds=str(place))
        with httpx.Client(transport=transport, base_url="http://localhost") as client:
            for _ in range(3):
                assert client.get("/tasks/0").status_code == 200
        eventually("it is worn out", lambda: list(tmp_path.glob("worn-*")))
        (tmp_path / "go").touch()

    wearing = threading.Thread(target=wear_out)
    wearing.start()
    with Server(
        tmp_path, source, "--workers", "2", "--max-requests", "3", "--uds", str(place)
    ) as server:
        wearing.join()
        [worn] = [int(one.name.removeprefix("worn-")) for one in tmp_path.glob("worn-*")]
        assert worn in server.workers
        eventually("it has ended", lambda: not is_alive(worn))
        eventually("another is there", lambda: len(children(server.process.pid)) == 2)
        assert server.stop() == 0
