"""Where sessions are settled after their end: here in the loop, or by a sibling process (`sibling_desk.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import gevent
from gevent.lock import BoundedSemaphore

from voicebench.proceedings import recording_of
from voicebench.recording import Recording
from voicebench.script import Script
from voicebench.session import Keeper, Session
from voicebench.worker.adapters.base import describe
from voicebench.worker.settling import Case, Settled, settled, unscored, unscored_proceedings

BREATH_S = 0.001
"""Sessions that end together are settled one after the other, and live ones have their turn in between."""

Answer = Callable[[], tuple[Settled, Recording | None]]
"""Waits until a session is settled. The recording is there only where it was made here."""


class Desk(Protocol):
    """Takes sessions in that have ended. Each is settled once, and none raises."""

    @property
    def settling(self) -> int:
        """Sessions that were handed in and are not settled."""

    @property
    def has_room(self) -> bool:
        """Whether more sessions should be placed: what waits to be settled is not too much."""

    @property
    def notes(self) -> list[str]:
        """What people should know of it at the end."""

    def keeper(self, session_id: str) -> Keeper | None:
        """What takes a live session's sound as it grows; None: it stays with the session."""

    def hand_in(self, case: Case, session: Session) -> Answer:
        """Take a session in. After the call its sound need not be held any more; the answer is waited for apart."""


class InlineDesk:
    """Settles in the loop, one session at a time."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self.notes: list[str] = []
        self.settling = 0
        self._scripts = scripts
        self._one = BoundedSemaphore(1)

    @property
    def has_room(self) -> bool:
        return True

    def keeper(self, session_id: str) -> Keeper | None:
        return None

    def hand_in(self, case: Case, session: Session) -> Answer:
        return lambda: self._settle(case, session)

    def _settle(self, case: Case, session: Session) -> tuple[Settled, Recording | None]:
        self.settling += 1
        script, of = self._scripts[case.index], case.proceedings
        breath_s = BREATH_S if of.clock == "real" else 0.0
        try:
            with self._one:
                recording = recording_of(script, of, session.agent_track())
                gevent.sleep(breath_s)
                made = settled(script, case)
                gevent.sleep(breath_s)
                return made, recording
        except Exception as error:  # noqa: BLE001 - one session's trouble must not take the others down
            why = describe(error)
            nothing = unscored_proceedings(of.session_id, why, clock=of.clock, extra=of.extra)
            return unscored(script, case, why), recording_of(script, nothing, session.agent_track()[:0])
        finally:
            self.settling -= 1
