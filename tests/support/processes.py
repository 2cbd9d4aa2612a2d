"""The real programs, started and stopped by tests."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

VOICEBENCH = (sys.executable, "-m", "voicebench")
NICE = os.environ.get("VOICEBENCH_BENCH_NICE", "0")
"""Benchmarks on a shared machine may run at a better priority; tests never do."""


@contextmanager
def mock_server(*flags: str, cpu: int | None = None) -> Iterator[str]:
    """`voicebench mock-server` on a free port; gives its URL."""
    process = subprocess.Popen(
        [*_pinned(cpu), *VOICEBENCH, "mock-server", "--port", "0", *flags], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("listening on "), first
        yield first.split()[-1]
    finally:
        process.terminate()
        process.wait(timeout=10)
        process.stdout.close()


def voicebench(
    *arguments: str | Path, cwd: Path, timeout_s: float = 120, cpu: int | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """One command to its end."""
    return subprocess.run(
        [*_pinned(cpu), *VOICEBENCH, *map(str, arguments)],
        cwd=cwd, capture_output=True, text=True, timeout=timeout_s, env=env, check=False,
    )  # fmt: skip


def start(*arguments: str | Path, cwd: Path) -> subprocess.Popen[str]:
    """One command, to be signalled."""
    return subprocess.Popen(
        [*VOICEBENCH, *map(str, arguments)], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def went_well(returncode: int | None, stderr: str, expected: int = 0) -> bool:
    """The expected exit code; or 4 on a machine so busy that the run itself says that it can't be trusted."""
    return returncode == expected or (returncode == 4 and "exit 4: generator overloaded" in stderr)


def children_of(pid: int, word: str) -> list[int]:
    """Processes that a process has started, with this word in their command."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_bytes().split(b"\0")
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid and word.encode() in command:
            found.append(int(path.name))
    return found


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """What the condition gives, once it gives something."""
    until_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < until_s, f"{what}: not within {timeout_s:g} s"
        time.sleep(0.02)
    return found


def started(run_folder: Path) -> int:
    """How many sessions a run that is going on has started, as its database knows: up to a second ago."""
    try:
        with contextlib.closing(sqlite3.connect(f"{(run_folder / 'run.db').as_uri()}?mode=ro", uri=True)) as db:
            return db.execute("SELECT coalesce(sum(started), 0) FROM workers").fetchone()[0]
    except sqlite3.OperationalError:  # not there yet
        return 0


def wait_until_started(run_folder: Path, n_sessions: int) -> None:
    wait_for(lambda: started(run_folder) >= n_sessions, f"{n_sessions} sessions started")


def _pinned(cpu: int | None) -> Sequence[str]:
    return () if cpu is None else ("nice", "-n", NICE, "taskset", "-c", str(cpu))
