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

from voicebench.cli.output import say
from voicebench.cli.progress import line_of
from voicebench.local_run import LocalRun

LINE_EVERY_S = 10.0
BLOCK_EVERY_S = 0.5
LAST_PICTURE_S = 2.0
"""So long the painter may take to wipe its block off; then it goes by force."""

Snapshot = Callable[[], Mapping[str, Any]]


class View(Protocol):
    def start(self) -> None: ...

    def note(self, text: str) -> None:
        """A sentence that stays, whatever is drawn."""

    def stop(self) -> None: ...


class QuietView:
    """Shows notes alone."""

    def start(self) -> None:
        pass

    def note(self, text: str) -> None:
        say(text)

    def stop(self) -> None:
        pass


class LineView:
    """One line every ten seconds, for logs: no carriage returns."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._loop: Any = None

    def start(self) -> None:
        self._loop = gevent.spawn(self._run)

    def note(self, text: str) -> None:
        say(text)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.kill()

    def _run(self) -> None:
        while True:
            gevent.sleep(LINE_EVERY_S)
            say(line_of(self._snapshot()))


class BlockView:
    """A live block, drawn by a sibling process. Should that die, lines take its place."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._loop: Any = None
        self._painter: subprocess.Popen[bytes] | None = None
        self._instead: LineView | None = None

    def start(self) -> None:
        # A session of its own: Ctrl-C is for the run.
        self._painter = subprocess.Popen(
            [sys.executable, "-m", "voicebench.cli.painter"], stdin=subprocess.PIPE, start_new_session=True
        )
        assert self._painter.stdin is not None
        os.set_blocking(self._painter.stdin.fileno(), False)
        self._loop = gevent.spawn(self._run)

    def note(self, text: str) -> None:
        if self._instead is not None or not self._tell({"note": text}):
            say(text)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.kill()
        if self._instead is not None:
            self._instead.stop()
        elif self._painter is not None:
            self._tell(self._snapshot())
            self._dismiss()

    def _run(self) -> None:
        while self._painter is not None and self._painter.poll() is None:
            self._tell(self._snapshot())
            gevent.sleep(BLOCK_EVERY_S)
        self._dismiss()
        self._instead = LineView(self._snapshot)
        self._instead.start()

    def _tell(self, document: Mapping[str, Any]) -> bool:
        assert self._painter is not None
        assert self._painter.stdin is not None
        try:
            # A painter that is behind misses a picture; one that died takes nothing with it.
            return os.write(self._painter.stdin.fileno(), msgspec.json.encode(document) + b"\n") > 0
        except OSError:
            return False

    def _dismiss(self) -> None:
        assert self._painter is not None
        assert self._painter.stdin is not None
        with contextlib.suppress(OSError):
            self._painter.stdin.close()
        try:
            exit_code = self._painter.wait(timeout=LAST_PICTURE_S)
        except subprocess.TimeoutExpired:
            self._painter.kill()
            exit_code = self._painter.wait()
        if exit_code:
            say("\033[?25h")  # it died over its picture: below that, and with the cursor it had hidden


def choose_view(snapshot: Snapshot, *, quiet: bool) -> View:
    """The view that fits where stderr goes."""
    if quiet:
        return QuietView()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        return BlockView(snapshot)
    return LineView(snapshot)


class Progress:
    """What a view shows of a run, as plain data."""

    def __init__(self, run: LocalRun) -> None:
        self._run = run
        self._drained_s: float | None = None

    def __call__(self) -> dict[str, Any]:
        engine, collector, load = self._run.engine, self._run.collector, self._run.engine.load
        tally = collector.total.all
        latency = tally.response_latency_ms
        return {
            "elapsed_s": engine.elapsed_s,
            "left_s": self._left_s(),
            "state": "draining" if engine.draining else "running",
            "to_place": load.sessions,
            "live": engine.live,
            "started": engine.counts["started"],
            "finished": collector.account.outcomes["finished"],
            "failed": collector.account.outcomes["failed"],
            "cut": collector.account.outcomes["cut"],
            "reasons": dict(collector.account.reasons),
            "turns": tally.counts["judged_turns"],
            "missed": tally.counts["missed_responses"],
            "unreliable": tally.counts["unreliable_turns"],
            "p50_ms": latency.percentile(50),
            "p95_ms": latency.percentile(95),
            "max_ms": latency.max,
            "late_p99_ms": collector.account.lateness_ms.percentile(99),
        }

    def drained_s(self) -> float:
        """When sessions stopped being placed, since the run's start; the first call after that takes its time."""
        if self._drained_s is None:
            run_time_s, elapsed_s = self._run.engine.load.run_time_s, self._run.engine.elapsed_s
            self._drained_s = elapsed_s if run_time_s is None else min(elapsed_s, run_time_s)
        return self._drained_s

    def _left_s(self) -> float | None:
        """To the end of the run time; once sessions are only let finish, to their being cut."""
        engine, load = self._run.engine, self._run.engine.load
        if engine.draining:
            return max(0.0, self.drained_s() + load.stop_timeout_s - engine.elapsed_s)
        return None if load.run_time_s is None else max(0.0, load.run_time_s - engine.elapsed_s)
