"""Where a worker of `justapi dev` is while its start or its end takes long.

A thread of its own looks at the others, so that it sees what blocks as well as what waits. It is no
thread of `threading`: what counts or rewrites those finds it neither.
"""

from __future__ import annotations

import _thread
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

__all__ = ["Observer"]

_SLOW_SECONDS = 0.5
"""What takes less is nothing to speak of."""
_PERIOD = 0.3
_DEEP = 200
"""Frames that are looked through."""
_LINKS = (("cr_frame", "cr_await"), ("ag_frame", "ag_await"), ("gi_frame", "gi_yieldfrom"))
"""Where coroutines and generators keep their call, and what it waits for."""


class Observer:
    """Says where the main thread is, while somebody may wait for it.

    Args:
        tell: Says something to the supervisor.
        is_own: Whether a file is of the application.
    """

    def __init__(self, tell: Callable[..., None], is_own: Callable[[str], bool]) -> None:
        self._tell = tell
        self._is_own = is_own
        self._main = _thread.get_ident()
        self._during = "import"
        self._task: Any = None
        self._is_over = _thread.allocate_lock()
        self._has_ended = _thread.allocate_lock()

    def begin(self, key: str, after: float = _SLOW_SECONDS) -> None:
        """Looks again and again from now on.

        Args:
            key: What it is said as.
            after: Seconds until the first look.
        """
        self._is_over.acquire()
        self._has_ended.acquire()
        try:
            _thread.start_new_thread(self._look, (key, after))
        except RuntimeError:
            # Without a thread to spare nobody looks.
            self._has_ended.release()

    def end(self) -> None:
        """Looks no more; nothing is said any longer once it returns."""
        if self._is_over.locked():
            self._is_over.release()
            with self._has_ended:
                pass

    def note(self, during: str, task: Any = None) -> None:
        """Notes what is waited for.

        Args:
            during: A word for it.
            task: The task that does it.
        """
        self._during, self._task = during, task

    def stopping(self, during: str, task: Any, after: float) -> None:
        """Says what the end waits for from now on, and later where that is.

        Args:
            during: A word for it.
            task: The task that does it.
            after: Seconds until it takes too long, from the first call on.
        """
        self.note(during, task)
        # The supervisor may be gone.
        with suppress(OSError):
            self._tell(dev={"stopping": {"during": during}})
        if not self._is_over.locked():
            self.begin("stopping", after)

    def _look(self, key: str, after: float) -> None:
        last: dict[str, Any] = {}
        pause = after
        try:
            while not self._is_over.acquire(True, pause):
                pause = _PERIOD
                place = {"during": self._during}
                # What is looked at goes on meanwhile.
                with suppress(Exception):
                    place |= self._place()
                if place != last:
                    self._tell(dev={key: place})
                    last = place
            self._is_over.release()
        except OSError:
            pass
        finally:
            self._has_ended.release()

    def _place(self) -> dict[str, Any]:
        """Returns the innermost line of the application, and the module that it waits for."""
        frames = list(_outwards(sys._current_frames().get(self._main)))
        place = self._own(frames)
        if place is None and self._task is not None:
            place = self._own(reversed(list(_awaited(self._task.get_coro()))))
        if place is None:
            return {}
        frame, line = place
        inner = next((one for one, _ in frames if one.f_code.co_name == "<module>"), frame)
        module = None if inner.f_code is frame.f_code else inner.f_globals.get("__name__")
        if module is not None and self._is_own(inner.f_code.co_filename):
            module = None
        file = str(Path(frame.f_code.co_filename).absolute())
        return {"file": file, "line": line, "module": module}

    def _own(self, frames: Any) -> tuple[FrameType, int] | None:
        for frame, line in frames:
            file = frame.f_code.co_filename
            if line is not None and not file.startswith("<") and self._is_own(file):
                return frame, line
        return None


def _outwards(frame: FrameType | None) -> Iterator[tuple[FrameType, int | None]]:
    """Yields the calls of a thread, the innermost first."""
    for _ in range(_DEEP):
        if frame is None:
            return
        yield frame, frame.f_lineno
        frame = frame.f_back


def _awaited(awaited: Any) -> Iterator[tuple[FrameType, int | None]]:
    """Yields the calls of what waits on a loop, the outermost first."""
    for _ in range(_DEEP):
        link = next((one for one in _LINKS if getattr(awaited, one[0], None) is not None), None)
        if link is None:
            return
        frame = getattr(awaited, link[0])
        yield frame, frame.f_lineno
        awaited = getattr(awaited, link[1])
        # A step of an asynchronous generator does not tell whose it is; its context manager does.
        if type(awaited).__name__ in ("anext_awaitable", "async_generator_asend"):
            awaited = getattr(frame.f_locals.get("self"), "gen", None)
