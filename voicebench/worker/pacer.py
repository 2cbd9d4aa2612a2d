"""One loop, all live sessions: reads what came, ticks the machines, sends the frames that are due.

Due times are absolute, so an oversleep is not carried on; how late each frame went out is kept with its session. The
loop wakes when frames are due; each wake-up drains the sockets once, then decides, then sends. Sessions are staggered
over the frame, so that no tick is a spike.
"""

from __future__ import annotations

import contextlib
import select
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import gevent
import gevent.monkey
from gevent.event import Event

from voicebench.clock import monotonic_s
from voicebench.errors import TesterError
from voicebench.records import Outcome
from voicebench.worker.adapters.base import describe
from voicebench.worker.call import GENERATOR_LATE_S, QUEUE_TICKS, Call
from voicebench.worker.lag import LagMeter
from voicebench.worker.stamps import realtime_ahead_s
from voicebench.worker.ticker import Alarm, open_alarm
from voicebench.worker.wheel import SLOTS, Wheel

LOOK_EVERY_S = 0.002
"""The sockets are looked at so often, whether a frame is due or not: what the agent says may start the next turn."""
FRAMES_PER_WAKE = 2
"""At most so many frames of a session that is behind go out together."""
NATIVE_EPOLL = gevent.monkey.get_original("select", "epoll")
"""Monkey-patching, which adapters of the user's own need, takes it away."""


class WidestGap:
    """The widest gap between two looks over a sliding window, at a constant cost for each look."""

    def __init__(self) -> None:
        self.window_s = 0.0
        self._falling: deque[tuple[float, float]] = deque()

    def add(self, now_s: float, gap_s: float) -> None:
        """A look at `now_s`, `gap_s` after the one before."""
        while self._falling and self._falling[-1][1] <= gap_s:
            self._falling.pop()
        self._falling.append((now_s, gap_s))
        while now_s - self._falling[0][0] > self.window_s:
            self._falling.popleft()

    @property
    def widest_ms(self) -> float:
        """Over the window up to the last look, which it always includes."""
        return 1000.0 * self._falling[0][1] if self._falling else 0.0

    def forget(self) -> None:
        """Nobody was waiting: what comes now is no gap."""
        self._falling.clear()


class Pacer:
    """Owns the sockets of all live calls. `add` from any greenlet; `Call.done` tells when a call is over."""

    def __init__(self, on_error: Callable[[BaseException], None], lags: LagMeter | None = None) -> None:
        """
        Args:
            on_error: Hears of a failure of the loop itself, which no session survives.
            lags: Is told how late it was.
        """
        self._on_error = on_error
        self._lags = lags or LagMeter()
        self._epoll = NATIVE_EPOLL()
        self._calls: dict[int, Call] = {}
        self._wheels: dict[float, Wheel[Call]] = {}
        """By the length of a frame, seconds."""
        self._looked_s = monotonic_s()
        """When it looked last. Read from outside as well (`paced_s`): a plain attribute."""
        self._gaps = WidestGap()
        self._wanted = Event()
        self._closing = False
        self._loop: gevent.Greenlet[Any] = gevent.spawn(self._run)

    @property
    def live(self) -> int:
        """How many calls are going on."""
        return len(self._calls)

    @property
    def paced_s(self) -> float | None:
        """When the live calls were last looked at, monotonic; None: there are none. From any thread."""
        return self._looked_s if self._calls else None

    def add(self, call: Call) -> None:
        """Take a call over: its first frame is due at the start of the least crowded slot.

        Raises:
            TesterError: It can't: the loop has stopped, or the system watches no more sockets.
        """
        if self._closing:
            raise TesterError("the pacer has stopped and takes no more calls")
        fd = call.live.sock.fileno()
        try:
            self._epoll.register(fd, select.EPOLLIN)
        except OSError as error:
            raise TesterError(f"this machine can't watch one more socket: {error.strerror}") from error
        now_s, frame_s = monotonic_s(), call.session.script.frame_s
        self._gaps.window_s = max(self._gaps.window_s, frame_s + LOOK_EVERY_S)
        wheel = self._wheels.get(frame_s)
        if wheel is None:
            wheel = self._wheels[frame_s] = Wheel(frame_s, now_s)
        call.start(wheel.join(call, now_s))
        if not self._calls:
            self._looked_s = now_s  # since nobody was there, nobody was kept waiting
        self._calls[fd] = call
        self._wanted.set()

    def close(self) -> None:
        """Stop the loop; live calls end as they are."""
        self._closing = True
        self._wanted.set()
        self._loop.join()
        self._epoll.close()

    def _run(self) -> None:
        try:
            alarm = open_alarm()
            try:
                self._pace(alarm)
            finally:
                alarm.close()
        except BaseException as error:  # noqa: BLE001 - a dead pacer must be heard of, whatever killed it
            self._on_error(error)
        finally:
            self._closing = True
            self._let_all_go()

    def _pace(self, alarm: Alarm) -> None:
        while not self._closing:
            if self._calls:
                alarm.wait_until(self._due_s())
                self._wake()
            else:
                self._wanted.clear()
                self._gaps.forget()
                self._wanted.wait()
                self._looked_s = monotonic_s()

    def _due_s(self) -> float:
        """When there is something to do: the next frame or the next look."""
        due_s = self._looked_s + LOOK_EVERY_S
        for wheel in self._wheels.values():
            if len(wheel) and (visit_s := wheel.due_s(wheel.n)) < due_s:
                due_s = visit_s
        return due_s

    def _let_all_go(self) -> None:
        for call in list(self._calls.values()):
            call.end(Outcome("failed", "generator", "the pacer stopped"))
            self._release(call)

    def _wake(self) -> None:
        now_s = monotonic_s()
        self._gaps.add(now_s, now_s - self._looked_s)
        self._lags.look(now_s - self._looked_s)
        looked_s, self._looked_s = self._looked_s, now_s
        ready = self._epoll.poll(0)
        if ready:
            ahead_s = realtime_ahead_s()
            for fd, _ in ready:
                call = self._calls[fd]
                try:
                    call.look(looked_s, ahead_s)
                except Exception as error:  # noqa: BLE001
                    _failed(call, error)
        self._send_due()

    def _send_due(self) -> None:
        gap_ms = self._gaps.widest_ms
        for wheel in self._wheels.values():
            for _ in range(FRAMES_PER_WAKE * SLOTS):
                now_s = monotonic_s()
                visit = wheel.next_visit(now_s)
                if visit is None:
                    break
                due_s, calls = visit
                if calls:
                    self._visit(calls, due_s, now_s, gap_ms)
                    self._lags.sent(monotonic_s() - due_s)
                    if wheel.n % (QUEUE_TICKS * SLOTS) < SLOTS:
                        self._check_backlogs(calls)

    def _visit(self, calls: Sequence[Call], due_s: float, now_s: float, gap_ms: float) -> None:
        """Send a slot's frames. Most calls have nothing to decide: they get here what `Call.due` would do."""
        in_time = now_s - due_s <= GENERATOR_LATE_S
        for call in calls:
            try:
                if in_time and call.tick < call.plain_until:
                    frame = next(call.frames)
                    try:
                        n_sent = call.send(frame)
                    except OSError as error:
                        call.not_taken(frame, error)
                    else:
                        if n_sent != len(frame):
                            call.not_taken(frame, n_sent=n_sent)
                    call.send_ms.append(1000.0 * (monotonic_s() - due_s))
                    call.drain_gap_ms.append(gap_ms)
                    call.tick += 1
                elif not call.due(monotonic_s(), gap_ms):
                    self._release(call)
            except Exception as error:  # noqa: BLE001
                _failed(call, error)
                self._release(call)

    def _check_backlogs(self, calls: Sequence[Call]) -> None:
        for call in calls:
            if not call.done.is_set():
                call.check_backlog()
                if call.session.ended:
                    self._release(call)

    def _release(self, call: Call) -> None:
        fd = call.live.sock.fileno()
        self._epoll.unregister(fd)
        del self._calls[fd]
        self._wheels[call.session.script.frame_s].leave(call)
        try:
            call.hang_up()
        except Exception as error:  # noqa: BLE001
            _failed(call, error)
        call.done.set()


def _failed(call: Call, error: Exception) -> None:
    """One session's trouble must not take the others down: it ends as our own failure, with what happened."""
    why = f"an error of the load generator: {describe(error)}"
    with contextlib.suppress(Exception):  # it has ended all the same: a machine that raises may do so once more
        call.end(Outcome("failed", "generator", why))
