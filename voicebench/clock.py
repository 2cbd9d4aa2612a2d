"""The clocks. The only file that imports `time`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Seconds on a clock that never goes back; its zero means nothing."""

    def now_s(self) -> float: ...

    def sleep_until_s(self, due_s: float) -> None: ...


class MonotonicClock:
    """CLOCK_MONOTONIC. `sleep_s` is handed in, so that a gevent shell can yield instead of blocking."""

    def __init__(self, sleep_s: Callable[[float], None] = time.sleep) -> None:
        self._sleep_s = sleep_s

    def now_s(self) -> float:
        return time.monotonic()

    def sleep_until_s(self, due_s: float) -> None:
        delay_s = due_s - time.monotonic()
        if delay_s > 0:
            self._sleep_s(delay_s)


class VirtualClock:
    """Jumps to whatever is waited for: as fast as the CPU, and the same every time.

    >>> clock = VirtualClock()
    >>> clock.sleep_until_s(2.5)
    >>> clock.now_s()
    2.5
    """

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def sleep_until_s(self, due_s: float) -> None:
        self._now_s = max(self._now_s, due_s)


monotonic_s: Callable[[], float] = time.monotonic
"""Seconds of CLOCK_MONOTONIC: due times, lateness, arrivals. Itself, no wrapper: the pacer asks it for every frame and
every packet, and a call of Python's costs as much as the clock."""


realtime_s: Callable[[], float] = time.time
"""Seconds of CLOCK_REALTIME: only to translate the kernel's receive stamps and for dates shown to people."""


def cpu_s() -> float:
    """CPU seconds this process has used."""
    return time.process_time()


def thread_cpu_s() -> float:
    """CPU seconds the calling thread has used: what work took, whoever else had the core meanwhile."""
    return time.thread_time()
