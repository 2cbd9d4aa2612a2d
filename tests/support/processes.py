"""The real programs, started and stopped by tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

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


def _pinned(cpu: int | None) -> Sequence[str]:
    return () if cpu is None else ("nice", "-n", NICE, "taskset", "-c", str(cpu))
