"""What processes use of this machine, read from /proc, and how a figure is set beside its budget."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path


def named() -> str:
    """The machine, for a line of figures."""
    model = "unknown CPU"
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"


class MissingError(Exception):
    """Something that a benchmark needs and this machine lacks, and how to get it."""


def cpu_s(pids: list[int]) -> float:
    """CPU that these processes have used so far, and those of their children that have ended."""
    used = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return used


def family(pid: int) -> list[int]:
    """A process and its children."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += family(int(child))
    return found


def rss_mb(pids: list[int]) -> float:
    """Memory they hold."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total / 1e6


def descriptors(pids: list[int]) -> int:
    """Files and sockets they have open."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += len(os.listdir(f"/proc/{pid}/fd"))
    return total


def threads(pids: list[int]) -> int:
    """How many threads they have."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += len(os.listdir(f"/proc/{pid}/task"))
    return total


def watch_windows(
    pids: Callable[[], list[int]], window_s: float, windows: int, sleep_s: Callable[[float], None] = time.sleep
) -> tuple[list[float], list[float]]:
    """The share of a core they use, and the memory they hold at its end, window by window.

    `pids` is asked anew each time, since children come and go.
    """
    used, held_mb = [], []
    for _ in range(windows):
        before_s, began_s = cpu_s(pids()), time.monotonic()
        sleep_s(window_s)
        used.append((cpu_s(pids()) - before_s) / (time.monotonic() - began_s))
        held_mb.append(rss_mb(pids()))
    return used, held_mb


def verdict(value: float, budget: float, *, at_most: bool) -> str:
    """The end of a line of figures: the budget and whether it is kept.

    >>> verdict(1.8, 2.0, at_most=True)
    'budget=2 ok'
    """
    kept = value <= budget if at_most else value >= budget
    return f"budget={budget:g} {'ok' if kept else 'OVER' if at_most else 'UNDER'}"
