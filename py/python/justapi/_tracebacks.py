"""Shows exceptions of an application as its author wants them: from their own code on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import traceback
from pathlib import Path
from types import TracebackType

__all__ = ["format_from_user", "users_frames"]

_OWN = f"{Path(__file__).parent}{os.sep}"
_CONTEXTLIB = contextlib.__file__
_ASYNCIO = f"{Path(asyncio.__file__).parent}{os.sep}"


def _is_on_the_way(filename: str) -> bool:
    """Whether a file only leads to the application: ours, asyncio's, the import system's."""
    return (
        filename.startswith((_OWN, _ASYNCIO, "<frozen importlib"))
        or filename == _CONTEXTLIB
        or "/importlib/" in filename
    )


def users_frames(error: BaseException) -> TracebackType | None:
    """Returns the traceback of an exception from the first frame of the application on.

    Args:
        error: What loading or starting the application raised. If no frame is the
            application's, its traceback stays whole.
    """
    frames = error.__traceback__
    while frames is not None:
        if not _is_on_the_way(frames.tb_frame.f_code.co_filename):
            return frames
        frames = frames.tb_next
    # A file that does not parse has no frames, but says itself where it is wrong.
    return None if isinstance(error, SyntaxError) else error.__traceback__


def format_from_user(error: BaseException) -> str:
    """Renders an exception with the frames that `users_frames` leaves."""
    return "".join(traceback.format_exception(type(error), error, users_frames(error)))
