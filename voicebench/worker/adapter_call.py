"""A live session through an adapter of the user's own: a greenlet that sends, one that listens.

It costs two greenlets and a wake-up for every frame, where the pacer wakes once for all; reports say which of the two a
run used.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gevent
import numpy as np

from voicebench.clock import MonotonicClock, monotonic_s
from voicebench.errors import AdapterError, AgentError
from voicebench.events import AgentAudio, AgentClosed, AgentEvent, AgentTranscript
from voicebench.protocols.text import clean_text
from voicebench.recording import Lateness, lateness_of
from voicebench.records import Outcome
from voicebench.script import Script
from voicebench.session import Session, Step
from voicebench.worker.adapters.base import Adapter, describe, stamped
from voicebench.worker.lag import LagMeter
from voicebench.worker.pacer import WidestGap
from voicebench.worker.ticker import give_way, open_ticker

RECEIVE_S = 0.1
WATCH_S = 0.002
RETRY_S = 0.001
"""An adapter that returns nothing at once, instead of waiting, is asked again after this."""
GENERATOR_LATE_S = 1.0
GRACE_S = 0.5
"""An adapter that minds the time-out it is given says itself, and better, what it waited for."""
SEND_S = 1.0
"""A frame that an adapter has not sent by then is one that the agent does not take."""
CLOSE_S = 2.0


class LoopWatch:
    """How long the event loop kept everybody waiting: an adapter's greenlet hears of its agent that much later."""

    def __init__(self, on_error: Callable[[BaseException], None] | None = None, lags: LagMeter | None = None) -> None:
        """
        Args:
            on_error: Hears of a failure of the watch itself: without it nobody would know how late sessions are.
            lags: Is told how late they were.
        """
        self._on_error = on_error
        self._lags = lags or LagMeter()
        self._gaps = WidestGap()
        self._users = 0

    def __enter__(self) -> LoopWatch:
        self._users += 1
        if self._users == 1:
            gevent.spawn(self._watch).link_exception(self._failed)
        return self

    def __exit__(self, *_: object) -> None:
        self._users -= 1

    def widest_ms(self, window_s: float) -> float:
        """The widest gap in the last while, at least so long."""
        self._gaps.window_s = max(self._gaps.window_s, window_s)
        return self._gaps.widest_ms

    def sent(self, late_s: float) -> None:
        """A frame went out, so long after it was due."""
        self._lags.sent(late_s)

    def _failed(self, watch: gevent.Greenlet[Any]) -> None:
        if self._on_error is not None and watch.exception is not None:
            self._on_error(watch.exception)

    def _watch(self) -> None:
        ticker = open_ticker(WATCH_S)
        looked_s = monotonic_s()
        while self._users:
            ticker.wait()
            now_s = monotonic_s()
            self._gaps.add(now_s, now_s - looked_s)
            self._lags.look(now_s - looked_s)
            looked_s = now_s
        self._gaps.forget()
        ticker.close()


class AdapterCall:
    """Holds one session from connect to close; `run` returns when it has ended."""

    def __init__(
        self, script: Script, adapter: Adapter, *, connect_timeout_s: float, watch: LoopWatch | None = None
    ) -> None:
        self.session = Session(script)
        self.ending: Outcome | None = None
        """Set from outside (cut): the session ends at its next tick."""
        self.zero_s = 0.0
        self._adapter = adapter
        self._connect_timeout_s = connect_timeout_s
        self._clock = MonotonicClock(gevent.sleep)
        self._silence = np.zeros(script.frame_samples, dtype=np.int16)
        self._watch = watch or LoopWatch()
        self._send_ms = array("d")
        self._drain_gap_ms = array("d")
        self._trouble: Outcome | None = None

    def run(self, opened: Callable[[AdapterCall], None]) -> None:
        """Connect, talk, close; `opened` is called in between.

        Raises:
            AgentError: It could not connect.
        """
        try:
            self._connect()
            opened(self)
            self.zero_s = self._clock.now_s()
            ear = gevent.spawn(self._listen)
            try:
                with self._watch:
                    self._talk(ear)
            finally:
                ear.kill(timeout=CLOSE_S)
        finally:
            self._close()

    def knock(self) -> None:
        """Connect and close. Raises AgentError when nobody is there."""
        try:
            self._connect()
        finally:
            self._close()

    def lateness(self) -> Lateness:
        """How late frames were, and how long the loop kept the listener waiting: one value for each frame sent."""
        return lateness_of(self._send_ms, self._drain_gap_ms)

    def _connect(self) -> None:
        limit = TimeoutError(f"connect() took more than {self._connect_timeout_s:g} s")
        try:
            with gevent.Timeout(self._connect_timeout_s + GRACE_S, limit):
                self._adapter.connect(self._connect_timeout_s)
        except (AgentError, AdapterError):
            raise
        except TimeoutError as error:
            raise AgentError("timeout", f"the adapter did not connect in time: {_words(error)}") from error
        except Exception as error:
            raise AgentError("refused", f"the adapter could not connect: {_words(error)}") from error

    def _listen(self) -> None:
        try:
            while not self.session.over:
                asked_s = monotonic_s()
                said = self._adapter.receive(RECEIVE_S)
                if said is None:
                    # Also one that took its time may have waited without letting anybody else have a turn.
                    if monotonic_s() - asked_s < RETRY_S:
                        gevent.sleep(RETRY_S)
                    else:
                        give_way()
                    continue
                self.session.hear(_cleaned(stamped(said, self._clock.now_s() - self.zero_s)))
                give_way()  # an adapter with a full queue returns without ever waiting
        except AgentError as error:
            self._trouble = Outcome("failed", error.reason, clean_text(str(error)))
        except Exception as error:  # noqa: BLE001
            self._trouble = Outcome("failed", "dropped", f"the adapter's receive() failed: {_words(error)}")

    def _talk(self, ear: gevent.Greenlet) -> None:
        script, tick = self.session.script, 0
        while True:
            due_s = self.zero_s + tick * script.frame_s
            self._clock.sleep_until_s(due_s)
            late_s = self._clock.now_s() - due_s
            ending = self.ending or self._trouble
            if ending is None and late_s > GENERATOR_LATE_S:
                self._watch.sent(late_s)
                ending = Outcome("failed", "generator", f"this load generator was {1000 * late_s:.0f} ms late")
            if ending is not None:
                self.session.end(ending, tick)
            step = self.session.step(tick)  # every tick: the ear may have heard something
            if step.ended or not self._send(step, tick, ear):
                return
            late_s = max(0.0, self._clock.now_s() - due_s)
            self._watch.sent(late_s)
            self._send_ms.append(1000.0 * late_s)
            self._drain_gap_ms.append(self._watch.widest_ms(script.frame_s + WATCH_S))
            tick += 1

    def _send(self, step: Step, tick: int, ear: gevent.Greenlet) -> bool:
        script = self.session.script
        try:
            with gevent.Timeout(SEND_S, _TookTooLong()):
                self._adapter.send(self._silence if step.clip is None else script.frame(step.clip, step.at))
        except _TookTooLong:
            why = f"the adapter's send() took more than {SEND_S:g} s for one frame: the agent does not read"
            self.session.end(Outcome("failed", "protocol", why), tick)
        except AgentError as error:
            self._not_sent(Outcome("failed", error.reason, clean_text(str(error))), tick, ear)
        except Exception as error:  # noqa: BLE001
            self._not_sent(Outcome("failed", "dropped", f"the adapter's send() failed: {_words(error)}"), tick, ear)
        return not self.session.ended

    def _not_sent(self, outcome: Outcome, tick: int, ear: gevent.Greenlet) -> None:
        # An agent that hung up in good order has said so, and the ear may just not have heard it yet.
        ear.join(timeout=RECEIVE_S)
        self.session.step(tick)
        self.session.end(outcome, tick)

    def _close(self) -> None:
        try:
            with gevent.Timeout(CLOSE_S, TimeoutError(f"it took more than {CLOSE_S:g} s")):
                self._adapter.close()
        except Exception as error:  # noqa: BLE001 - the session is over and measured; its end is told, not lost
            outcome = self.session.outcome
            if outcome is not None and outcome.detail is None:
                self.session.outcome = replace(outcome, detail=f"close() failed: {_words(error)}")


class _TookTooLong(Exception):  # noqa: N818
    pass


def _words(error: BaseException) -> str:
    return clean_text(describe(error))


def _cleaned(event: AgentEvent) -> AgentEvent:
    """What an adapter returned, with text that can be stored: it is as hostile as any other text of an agent.

    Raises:
        AdapterError: It is not what `adapters.base` says: a session would end in the middle, or hear silence.
    """
    if isinstance(event, AgentAudio):
        samples = event.samples
        if not isinstance(samples, np.ndarray) or samples.dtype != np.int16 or samples.ndim != 1:
            found = getattr(samples, "dtype", type(samples).__name__)
            raise AdapterError(f"Audio needs samples as an int16 array of shape (samples,), not {found}")
    if isinstance(event, AgentTranscript):
        if not isinstance(event.text, str) or event.role not in ("user", "agent"):
            raise AdapterError(
                f"a Transcript needs the role user or agent and a text, not {event.role!r} {event.text!r}"
            )
        return replace(event, text=clean_text(event.text), final=bool(event.final))
    if isinstance(event, AgentClosed):
        if not isinstance(event.code, int | None) or not isinstance(event.text, str):
            raise AdapterError(f"a HangUp needs a code or None and a text, not {event.code!r} {event.text!r}")
        return replace(event, text=clean_text(event.text))
    return event
