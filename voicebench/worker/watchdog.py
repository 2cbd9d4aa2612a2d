"""Watches the loop that holds the sessions from outside: from the link's native thread, which goes on when it does not.

What blocks the loop is most often an adapter that waits for its agent without gevent's knowing of it. Nobody in the
loop can tell then, and logging would wait for it: what is to be said goes straight to stderr, and with the beat.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import gevent.monkey

from voicebench.wire.messages import Block
from voicebench.worker.health import HealthReader
from voicebench.worker.lag import LagMeter
from voicebench.worker.member import Vitals

ALARM_S = 1.0
"""A loop that has not turned for so long owes each session fifty frames: those are ended as our own failure."""
BLIND_S = 0.5
"""A watcher that did not run for so long itself, though it looks ten times a second, accuses nobody of that time."""
READ_EVERY_S = 1.0
FRAMES_TOLD = 12
STDERR = 2
PIPE_BYTES = 4096
"""So much a pipe takes at once when it takes anything: whoever reads stderr, and does not, must not stop the beats."""
_PLACES = (
    *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(__file__).parents[1]),
)
"""Whose code is not the user's own: Python's, installed packages', ours."""

What = Literal["loop", "pacer"]


@dataclass(frozen=True, slots=True)
class Began:
    what: What
    for_s: float


@dataclass(frozen=True, slots=True)
class Ended:
    what: What
    stood_s: float


@dataclass(frozen=True, slots=True)
class Away:
    """The whole process did not run, so nobody in it could tell."""

    for_s: float


Finding = Began | Ended | Away


class Guard:
    """Decides whether the loop stands still.

    TURNS -> BLOCKED -> TURNS. Without calls it never is: an idle pacer waits, and making ready may take its time.
    """

    def __init__(self) -> None:
        self._looked_s: float | None = None
        self._seen_from_s = float("-inf")
        """Before that the watcher was blind."""
        self._blocked: tuple[What, float] | None = None

    def blocked_for_s(self, now_s: float) -> tuple[What, float] | None:
        """What stands still and for how long; None: nothing does."""
        return None if self._blocked is None else (self._blocked[0], now_s - self._blocked[1])

    def look(self, now_s: float, *, turned_s: float, paced_s: float | None, calls: int) -> list[Finding]:
        """
        Args:
            now_s: Monotonic, as the others.
            turned_s: When the loop last turned.
            paced_s: When the pacer last looked at the sockets of its calls; None: it has none.
            calls: Sessions that the loop holds.

        Returns:
            What has changed.
        """
        found: list[Finding] = []
        away_s = 0.0 if self._looked_s is None else now_s - self._looked_s
        self._looked_s = now_s
        if away_s > BLIND_S:
            self._seen_from_s = now_s
            if away_s > ALARM_S and calls and self._blocked is None:
                found.append(Away(away_s))
        since: tuple[What, float] | None = None
        if calls and now_s - max(turned_s, self._seen_from_s) > ALARM_S:
            since = "loop", turned_s
        elif paced_s is not None and now_s - max(paced_s, self._seen_from_s) > ALARM_S:
            since = "pacer", paced_s
        if self._blocked is not None and (since is None or since[0] != self._blocked[0]):
            what, from_s = self._blocked
            still_s = turned_s if what == "loop" else paced_s
            if since is None and calls and still_s == from_s:
                return found  # blind meanwhile: that it goes on has not been seen
            self._blocked = None
            found.append(Ended(what, max(0.0, (still_s if still_s is not None else now_s) - from_s)))
        if since is not None and self._blocked is None:
            self._blocked = since
            found.append(Began(since[0], now_s - since[1]))
        return found


class Loop(Protocol):
    """What is watched. Read from the watching thread: plain values only."""

    @property
    def calls(self) -> int: ...

    @property
    def paced_s(self) -> float | None: ...


class Watchdog:
    """To be looked at ten times a second, from a native thread."""

    def __init__(
        self,
        loop: Loop,
        thread: int,
        vitals: Vitals,
        reader: HealthReader,
        lags: LagMeter,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """
        Args:
            thread: That of the loop, as Python knows it.
            vitals: What goes with the beats.
            lags: Where the loop says how late it was, which it can't while it stands still.
            say: Instead of stderr.
        """
        self._loop = loop
        self._thread = thread
        self._vitals = vitals
        self._reader = reader
        self._say = say or write_at_once
        self._guard = Guard()
        self._where = ""
        self._lags = lags
        self._read_due_s = float("-inf")
        self._has_had_calls = False

    @property
    def unknown(self) -> tuple[str, ...]:
        """What this machine does not tell of how the worker fares."""
        return self._reader.unknown

    def read_soon(self) -> None:
        """Take the last reading of a run: what came after the one before would be lost. From any thread."""
        self._read_due_s = float("-inf")

    def look(self, now_s: float) -> None:
        calls = self._loop.calls
        for found in self._guard.look(now_s, turned_s=self._vitals.turned_s, paced_s=self._loop.paced_s, calls=calls):
            self._tell(found, calls)
        blocked = self._guard.blocked_for_s(now_s)
        self._vitals.blocked = None if blocked is None else Block(what=blocked[0], for_s=blocked[1], where=self._where)
        if blocked is not None:
            self._lags.look(blocked[1])
        # Not before there are calls: a worker short of descriptors needs them to join first.
        self._has_had_calls = self._has_had_calls or calls > 0
        if self._has_had_calls and now_s >= self._read_due_s:
            self._read_due_s = now_s + READ_EVERY_S
            self._vitals.health = self._reader.read(now_s, calls) or self._vitals.health

    def close(self) -> None:
        self._reader.close()

    def _tell(self, found: Finding, calls: int) -> None:
        with_calls = f"with {calls} session{'' if calls == 1 else 's'}"
        if isinstance(found, Began):
            self._where, stack = whereabouts(self._thread)
            what = "loop stands still" if found.what == "loop" else "pacer looks at no socket, though its loop turns"
            self._say(f"error: this worker's {what}, since {found.for_s:.1f} s, {with_calls}: {self._where}\n{stack}")
        elif isinstance(found, Ended):
            what = "loop turns" if found.what == "loop" else "pacer looks at its sockets"
            self._say(f"this worker's {what} again, after {found.stood_s:.1f} s\n")
        else:
            why = "stopped, suspended, starved, or a library held the interpreter's lock"
            self._say(f"error: this worker did not run for {found.for_s:.1f} s, {with_calls}: {why}\n")


def whereabouts(thread: int) -> tuple[str, str]:
    """Where a thread is: in a sentence that goes into one line, and as a traceback."""
    try:
        frame = sys._current_frames().get(thread)
        if frame is None:
            return "its thread is gone", ""
        stack = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=100)
    except Exception as error:  # noqa: BLE001 - it is another thread's stack, and changes under our eyes
        return f"where it is can't be read: {type(error).__name__}", ""
    del frame
    own = next((each for each in stack if not each.filename.startswith(_PLACES)), stack[0])
    where = f"in {own.name}(), {own.filename}:{own.lineno}: {(own.line or '').strip() or '?'}"
    return where[:500], "".join(traceback.format_list(stack[:FRAMES_TOLD][::-1]))


def write_at_once(text: str) -> None:
    """To stderr, past all that buffers, locks and waits; what can't be written now is not."""
    data = text.encode(errors="backslashreplace")[:PIPE_BYTES]
    with contextlib.suppress(OSError):
        poll = gevent.monkey.get_original("select", "poll")()
        poll.register(STDERR, select.POLLOUT)
        if poll.poll(0):
            os.write(STDERR, data)
