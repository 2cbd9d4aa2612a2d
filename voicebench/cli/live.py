"""What a run shows while it goes on, on stderr: a live block on a terminal, a line now and then elsewhere.

Drawing takes milliseconds, and the loop that sends frames must not wait for it: the block is drawn by a process of its
own, which gets a snapshot as a line of JSON.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import gevent
import msgspec

from voicebench.cli.format import NOTHING, duration, ms

LINE_EVERY_S = 10.0
BLOCK_EVERY_S = 0.5

Snapshot = Callable[[], Mapping[str, Any]]


class View(Protocol):
    def start(self) -> None: ...

    def stop(self) -> None: ...


class QuietView:
    """Shows nothing."""

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass


class LineView:
    """One line every ten seconds, for logs: no carriage returns."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._loop: Any = None

    def start(self) -> None:
        self._loop = gevent.spawn(self._run)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.kill()

    def _run(self) -> None:
        while True:
            gevent.sleep(LINE_EVERY_S)
            print(line_of(self._snapshot()), file=sys.stderr, flush=True)


class BlockView:
    """A live block, drawn by a sibling process."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._loop: Any = None
        self._painter: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._painter = subprocess.Popen(
            [sys.executable, "-m", "voicebench.cli.painter"], stdin=subprocess.PIPE, start_new_session=True
        )
        assert self._painter.stdin is not None
        os.set_blocking(self._painter.stdin.fileno(), False)
        self._loop = gevent.spawn(self._run)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.kill()
        if self._painter is not None and self._painter.stdin is not None:
            self._show()
            with contextlib.suppress(OSError):
                self._painter.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._painter.wait(timeout=2.0)

    def _run(self) -> None:
        while True:
            self._show()
            gevent.sleep(BLOCK_EVERY_S)

    def _show(self) -> None:
        assert self._painter is not None
        assert self._painter.stdin is not None
        # A painter that is behind misses a picture; one that died takes nothing with it.
        with contextlib.suppress(OSError):
            os.write(self._painter.stdin.fileno(), msgspec.json.encode(self._snapshot()) + b"\n")


def choose_view(snapshot: Snapshot, *, quiet: bool) -> View:
    """The view that fits where stderr goes."""
    if quiet:
        return QuietView()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return BlockView(snapshot)
    return LineView(snapshot)


def line_of(state: Mapping[str, Any]) -> str:
    """A snapshot as one line.

    >>> line_of({"elapsed_s": 9.0, "left_s": None, "state": "running", "live": 3, "started": 3, "finished": 0,
    ...          "failed": 0, "cut": 0, "turns": 2, "missed": 1, "unreliable": 0, "p50_ms": 640.0, "p95_ms": None})
    '9 s running: 3 live, 3 started, 0 finished, 0 failed; response p50 640 ms, p95 –; 1 missed, 0 unreliable of 2 turns'
    """
    left = f" ({duration(state['left_s'])} left)" if state["left_s"] is not None else ""
    return (
        f"{duration(state['elapsed_s'])} {state['state']}{left}: {state['live']} live, {state['started']} started, "
        f"{state['finished']} finished, {state['failed']} failed; response p50 {ms(state['p50_ms'])}, "
        f"p95 {ms(state['p95_ms']) if state['p95_ms'] is not None else NOTHING}; "
        f"{state['missed']} missed, {state['unreliable']} unreliable of {state['turns']} turns"
    )
