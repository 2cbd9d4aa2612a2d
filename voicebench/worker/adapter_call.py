"""A live session through an adapter of the user's own: a greenlet that sends, one that listens.

It costs some ten times what a call on a transport costs, so reports say which of the two a run used.
"""

from __future__ import annotations

from array import array

import gevent
import numpy as np

from voicebench.clock import MonotonicClock
from voicebench.errors import AdapterError, AgentError
from voicebench.recording import Lateness
from voicebench.records import Outcome
from voicebench.session import Script, Session, Step
from voicebench.worker.adapters.base import Adapter, describe, stamped

RECEIVE_S = 0.1
GENERATOR_LATE_S = 1.0


class AdapterCall:
    """Holds one session from connect to close; `run` returns when it has ended."""

    def __init__(self, script: Script, adapter: Adapter, *, connect_timeout_s: float) -> None:
        self.session = Session(script)
        self.ending: Outcome | None = None
        self.zero_s = 0.0
        self._adapter = adapter
        self._connect_timeout_s = connect_timeout_s
        self._clock = MonotonicClock(gevent.sleep)
        self._send_ms = array("d")
        self._trouble: Outcome | None = None

    def run(self) -> None:
        """Connect, talk, close.

        Raises:
            AgentError: It could not connect.
        """
        self._connect()
        self.zero_s = self._clock.now_s()
        ear = gevent.spawn(self._listen)
        try:
            self._talk()
        finally:
            ear.kill()
            self._close()

    def lateness(self) -> Lateness:
        """How late frames were. The listener waits inside the adapter, so there are no gaps to tell of."""
        return Lateness(np.array(self._send_ms), np.zeros(len(self._send_ms)))

    def _connect(self) -> None:
        try:
            self._adapter.connect(self._connect_timeout_s)
        except (AgentError, AdapterError):
            raise
        except TimeoutError as error:
            raise AgentError("timeout", f"the adapter did not connect in time: {describe(error)}") from error
        except Exception as error:
            raise AgentError("refused", f"the adapter could not connect: {describe(error)}") from error

    def _listen(self) -> None:
        try:
            while not self.session.ended:
                said = self._adapter.receive(RECEIVE_S)
                if said is not None:
                    self.session.hear(stamped(said, self._clock.now_s() - self.zero_s))
        except AgentError as error:
            self._trouble = Outcome("failed", error.reason, str(error))
        except Exception as error:  # noqa: BLE001
            self._trouble = Outcome("failed", "dropped", f"the adapter's receive() failed: {describe(error)}")

    def _talk(self) -> None:
        script, tick = self.session.script, 0
        while True:
            due_s = self.zero_s + tick * script.frame_s
            self._clock.sleep_until_s(due_s)
            late_s = self._clock.now_s() - due_s
            ending = self.ending or self._trouble
            if ending is None and late_s > GENERATOR_LATE_S:
                ending = Outcome("failed", "generator", f"this load generator was {1000 * late_s:.0f} ms late")
            if ending is not None:
                self.session.end(ending, tick)
            step = self.session.step(tick)  # every tick: the ear may have heard something
            if step.ended or not self._send(step, tick):
                return
            self._send_ms.append(max(0.0, 1000.0 * (self._clock.now_s() - due_s)))
            tick += 1

    def _send(self, step: Step, tick: int) -> bool:
        script = self.session.script
        silence = np.zeros(script.frame_samples, dtype=np.int16)
        try:
            self._adapter.send(silence if step.clip is None else script.frame(step.clip, step.at))
        except AgentError as error:
            self.session.end(Outcome("failed", error.reason, str(error)), tick)
        except Exception as error:  # noqa: BLE001
            self.session.end(Outcome("failed", "dropped", f"the adapter's send() failed: {describe(error)}"), tick)
        return not self.session.ended

    def _close(self) -> None:
        try:
            self._adapter.close()
        except Exception as error:  # noqa: BLE001 - the session is over and measured; its end is told, not lost
            outcome = self.session.outcome
            if outcome is not None and outcome.detail is None:
                self.session.outcome = Outcome(outcome.state, outcome.reason, f"close() failed: {describe(error)}")
