"""What the kernel says of a worker: its memory, descriptors, threads and time on the processor."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Reading:
    """What a process held at one moment."""

    num_requests: int
    rss_kib: int
    num_files: int
    num_threads: int


def read(pid: int, num_requests: int = 0) -> Reading:
    """Looks at a process after it has had so many requests."""
    folder = Path(f"/proc/{pid}")
    lines = (folder / "status").read_text().splitlines()
    status = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    return Reading(
        num_requests,
        int(status["VmRSS"][0]),
        len(os.listdir(folder / "fd")),  # noqa: PTH208
        int(status["Threads"][0]),
    )


def num_threads_named(pid: int, name: str) -> int:
    """Counts the threads of a process that have this name; one that ends meanwhile is none."""
    count = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            count += (task / "comm").read_text().strip() == name
    return count


def processor_seconds(pid: int) -> float:
    """Time that a process has had on the processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def slope(readings: list[Reading]) -> float:
    """Bytes by which the memory grows with each request: the median of the slopes of all pairs."""
    slopes = sorted(
        (late.rss_kib - early.rss_kib) * 1024 / (late.num_requests - early.num_requests)
        for index, early in enumerate(readings)
        for late in readings[index + 1 :]
    )
    middle = len(slopes) // 2
    return slopes[middle] if len(slopes) % 2 else (slopes[middle - 1] + slopes[middle]) / 2
