"""How a worker fares, once a second: what the machine did to the thread that holds the sessions, and how late that was.

CPU alone does not tell: a thread that waits for a core which others have, or that its container's limit keeps off it,
uses little of it and is late. Five small files of fixed names, read in a thread that is not the one measured; never a
walk through `/proc`, which takes milliseconds.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from voicebench.clock import cpu_s
from voicebench.wire.messages import Health
from voicebench.worker.kernel_files import (
    CGROUP,
    STAT,
    THREAD_SCHEDSTAT,
    MachineTimes,
    ThreadTimes,
    cpu_stat_paths,
    machine_times,
    thread_times,
    throttled_ms,
)
from voicebench.worker.lag import LagMeter

LONGEST_FILE_BYTES = 65536
"""`/proc/stat` of a machine with a hundred cores; what is wanted stands in its first line."""


@dataclass(frozen=True, slots=True)
class _Totals:
    """Since each began; None: not known."""

    at_s: float
    calls: int
    process_cpu_s: float
    thread: ThreadTimes | None
    machine: MachineTimes | None
    throttled_ms: float | None


class HealthReader:
    """Rates between two readings. Used by one thread, of another than its own."""

    def __init__(
        self, thread: int, lags: LagMeter, *, root: Path = Path("/"), process_cpu_s: Callable[[], float] = cpu_s
    ) -> None:
        """
        Args:
            thread: Whose times are read: its id by the kernel.
            lags: Told by whoever paces sessions.
            root: Where `proc` and `sys` are.
        """
        self._lags = lags
        self._process_cpu_s = process_cpu_s
        self._schedstat = _KernelFile(root / THREAD_SCHEDSTAT.format(thread=thread))
        self._stat = _KernelFile(root / STAT)
        self._root = root
        self._cpu_stat: _KernelFile | None = None
        self._n = 0
        self._before: _Totals | None = None
        self.unknown: tuple[str, ...] = ()
        """What this machine does not tell, as of the last reading."""

    def read(self, now_s: float, calls: int) -> Health | None:
        """How it fared since the last reading; None at the first.

        Args:
            now_s: Monotonic.
            calls: Sessions going on.
        """
        if self._before is None:
            self._cpu_stat = _own_cpu_stat(self._root)
        before, now = self._before, self._totals(now_s, calls)
        self._before = now
        gap_s, late_s = self._lags.take()
        if before is None or now_s <= before.at_s:
            return None
        self._n += 1
        over_s = now_s - before.at_s
        loop_cpu, waited = _thread_shares(before.thread, now.thread, over_s)
        return Health(
            n=self._n,
            over_s=over_s,
            calls=calls if before.calls else 0,
            loop_cpu=loop_cpu,
            process_cpu=max(0.0, now.process_cpu_s - before.process_cpu_s) / over_s,
            waited=waited,
            throttled_ms=_grown(before.throttled_ms, now.throttled_ms),
            steal=_stolen(before.machine, now.machine),
            widest_gap_ms=1000.0 * gap_s if gap_s else None,
            worst_late_ms=1000.0 * late_s if late_s else None,
        )

    def close(self) -> None:
        for each in (self._schedstat, self._stat, self._cpu_stat):
            if each is not None:
                each.close()

    def _totals(self, now_s: float, calls: int) -> _Totals:
        schedstat, stat = self._schedstat.read(), self._stat.read()
        cpu_stat = None if self._cpu_stat is None else self._cpu_stat.read()
        thread = None if schedstat is None else thread_times(schedstat)
        machine = None if stat is None else machine_times(stat)
        unknown = [("the CPU time of its loop and how long that waited for a CPU", thread), ("steal time", machine)]
        self.unknown = tuple(what for what, times in unknown if times is None)
        throttled = None if cpu_stat is None else throttled_ms(cpu_stat)
        return _Totals(now_s, calls, self._process_cpu_s(), thread, machine, throttled)


class _KernelFile:
    """A file that is written anew whenever it is read: opened once, a system call a reading."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    def read(self) -> str | None:
        """None where there is none, or it can't be read."""
        with contextlib.suppress(OSError):
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._fd, LONGEST_FILE_BYTES, 0).decode("ascii", "replace")
        return None

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _own_cpu_stat(root: Path) -> _KernelFile | None:
    """Of the control group of this process; None: it has none whose CPU may be limited."""
    cgroup = _KernelFile(root / CGROUP)
    groups = cgroup.read() or ""
    cgroup.close()
    for path in cpu_stat_paths(groups):
        found = _KernelFile(root / path)
        if throttled_ms(found.read() or "") is not None:
            return found
        found.close()
    return None


def _thread_shares(
    before: ThreadTimes | None, now: ThreadTimes | None, over_s: float
) -> tuple[float, float] | tuple[None, None]:
    if before is None or now is None:
        return None, None
    return max(0.0, now.cpu_s - before.cpu_s) / over_s, max(0.0, now.waited_s - before.waited_s) / over_s


def _grown(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else max(0.0, now - before)


def _stolen(before: MachineTimes | None, now: MachineTimes | None) -> float | None:
    """A share: the kernel's ticks are those of all CPUs."""
    if before is None or now is None or now.total <= before.total:
        return None
    return min(1.0, max(0.0, (now.stolen - before.stolen) / (now.total - before.total)))
