"""Sessions settled by a sibling process (`clerk.py`), so that nothing computes beside the pacer.

What was handed over is kept until it is answered, and handed to the next process when one dies; where there can be
none, to a clerk in this loop. Nothing is given up: whoever has more than fits waits, live sessions with their sound.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import gevent
from gevent.event import AsyncResult

from voicebench.errors import TesterError, VoicebenchError
from voicebench.events import Samples
from voicebench.recording import Recording
from voicebench.scenario.prepared import PreparedScenario
from voicebench.scenario.shipping import pack
from voicebench.script import Script
from voicebench.session import Keeper, Session
from voicebench.worker.clerk_process import ClerkHere, ClerkProcess, Workplace, is_reaped
from voicebench.worker.clerk_wire import Answered, Asset, FromClerk, HandedIn, Open, Piece, Ready, frame_of
from voicebench.worker.desk import Answer
from voicebench.worker.settling import Case, Keep, Settled, loses_its_recording, unscored
from voicebench.worker.ticker import give_way

MAX_SETTLING = 200
"""More sessions than this in line, some seconds of work, and no new ones are placed until it is shorter."""
MAX_WAITING_BYTES = 64 << 20
"""The same for what they weigh; and who has more sound to hand over waits."""
BLOCKS_AT_ONCE = 4
"""Of a session's sound, 64 KB each, before live sessions have their turn."""
FULL_S = 0.01
DEATHS_OF_A_SESSION = 3
"""A session at which the process died this often is not handed to it again."""
DEATHS_IN_A_ROW = 10
"""So many deaths without one answer in between, or `NEVER_READY` before it was ready: it is not started again."""
NEVER_READY = 3
SILENT_S = 60
"""A process that has work and answers nothing for so long, while this one runs, hangs: it is killed."""
CLOSE_S, REAP_S = 5.0, 0.01


class _Handed:
    """What was handed over and is not answered."""

    __slots__ = ("answer", "case", "deaths", "frame", "seq", "session_id")

    def __init__(self, seq: int, frame: bytes, session_id: str, case: Case | None) -> None:
        self.seq = seq
        self.frame = frame
        self.session_id = session_id
        self.case = case
        self.answer: AsyncResult[Settled] | None = None if case is None else AsyncResult()
        self.deaths = 0


class SiblingDesk:
    """The desk of a worker. `start` before it is used, `close` at the end."""

    def __init__(
        self,
        prepared: Sequence[PreparedScenario],
        scripts: Sequence[Script],
        *,
        keep: Keep,
        folder: str = "",
        kept_bytes: int = 0,
        why_no_folder: str = "",
    ) -> None:
        """
        Args:
            prepared, scripts: The mix, in the order of its indices.
            keep: Whose recordings are kept.
            folder, kept_bytes: Where, and how much may lie there.
            why_no_folder: Where there is none.
        """
        self.settling = 0
        """Sessions that were handed in and are not settled."""
        self.waiting_bytes = 0
        """What was handed over and is not answered."""
        self._prepared = prepared
        self._scripts = scripts
        self._keep: Keep = keep
        self._folder = folder
        self._kept_bytes = kept_bytes
        self._why_no_folder = why_no_folder
        self._workplace: Workplace | None = None
        self._why_here = ""
        """Why there is no process, and will not be."""
        self._broken = ""
        """Why nothing is settled any more."""
        self._line: deque[_Handed] = deque()
        self._going_on: set[str] = set()
        """Sessions of whose sound something was handed over, and which are not settled."""
        self._seq = 0
        self._dead: list[int] = []
        """Killed, and not yet reaped: the loop waits for nobody."""
        self._ready = False
        self._never_ready = 0
        self._deaths = self._deaths_in_a_row = 0
        self._n_unscored = 0
        self._silent_s = 0
        self._watch: gevent.Greenlet[Any] | None = None

    # --- what the engine asks ----------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Of the process; 0: there is none."""
        return self._workplace.pid if self._workplace is not None else 0

    @property
    def has_room(self) -> bool:
        return self.settling < MAX_SETTLING and self.waiting_bytes < MAX_WAITING_BYTES

    @property
    def notes(self) -> list[str]:
        notes = []
        if self._deaths:
            times = "once" if self._deaths == 1 else f"{self._deaths} times"
            notes.append(f"the scoring process died {times}; what it had not done was done again")
        if self._n_unscored:
            notes.append(f"{self._n_unscored} sessions could not be scored: the scoring process died at them")
        if self._why_here:
            notes.append(f"sessions were scored beside the live ones, which may have made them late: {self._why_here}")
        return notes

    def keeper(self, session_id: str) -> Keeper | None:
        return _nobody_keeps if self._keep == "none" else partial(self._take_sound, session_id)

    def hand_in(self, case: Case, session: Session) -> Answer:
        if self._keep != "none" and case.sent_frames:
            self._take_the_rest(case.proceedings.session_id, session)
        self._seq += 1
        try:
            frame = frame_of(HandedIn(self._seq, case))
        except VoicebenchError as error:
            return self._given_up(case, str(error))
        if self._broken:
            return self._given_up(case, self._broken)
        handed = _Handed(self._seq, frame, case.proceedings.session_id, case)
        self.settling += 1
        self._queue(handed)
        return lambda: _wait_for(handed)

    def _given_up(self, case: Case, why: str) -> Answer:
        told = loses_its_recording(unscored(self._scripts[case.index], case, why), self._keep, case, why)
        return lambda: (told, None)

    def _take_the_rest(self, session_id: str, session: Session) -> None:
        for number, (start, block) in enumerate(session.agent_blocks(), 1):
            if number % BLOCKS_AT_ONCE == 0:
                give_way()
            while not self._take_sound(session_id, start, block):
                gevent.sleep(FULL_S)

    def _take_sound(self, session_id: str, start: int, samples: Samples) -> bool:
        if self.waiting_bytes > MAX_WAITING_BYTES:
            return False
        if samples.any():  # what is not there is silence
            self._going_on.add(session_id)
            self._seq += 1
            data = samples.astype("<i2", copy=False).tobytes()
            piece = Piece(self._seq, session_id, samples.itemsize * start, data)
            self._queue(_Handed(self._seq, frame_of(piece), session_id, None))
        return True

    def _queue(self, handed: _Handed) -> None:
        if self._broken:
            return
        self._line.append(handed)
        self.waiting_bytes += len(handed.frame)
        if self._workplace is not None:
            self._workplace.say(handed.frame)

    # --- the process -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process; where that is not possible, sessions are settled here, and a note says so."""
        self._watch = gevent.spawn(self._watch_silence)
        self._start()

    def _start(self) -> None:
        try:
            self._workplace = ClerkProcess(self._hear, self._died)
        except OSError as error:
            self._work_here(error.strerror or str(error))
            return
        self._ready, self._silent_s = False, 0
        self._say_all()

    def _work_here(self, why: str) -> None:
        self._why_here = f"there was no scoring process ({why})"
        self._workplace = ClerkHere(self._hear, self._breaks)
        self._say_all()

    def _say_all(self) -> None:
        """What every session shares, and whatever has not been answered."""
        assert self._workplace is not None
        scenarios, assets = pack(self._prepared)
        opened = Open(
            tuple(assets[name] for name in scenarios),
            self._keep,
            self._folder,
            self._kept_bytes,
            self._why_no_folder,
            tuple(self._going_on),
        )
        for name, data in assets.items():
            if name not in scenarios:
                self._workplace.say(frame_of(Asset(name, data)))
        self._workplace.say(frame_of(opened))
        for handed in self._line:
            self._workplace.say(handed.frame)

    def _hear(self, message: FromClerk) -> None:
        """
        Raises:
            TesterError: It left a session out.
        """
        self._silent_s = 0
        if isinstance(message, Ready):
            self._ready, self._never_ready = True, 0
            return
        self._deaths_in_a_row = 0
        while self._line and self._line[0].seq <= message.seq:
            handed = self._line[0]
            if handed.answer is None:
                self.waiting_bytes -= len(self._line.popleft().frame)
            elif isinstance(message, Answered) and handed.seq == message.seq:
                self._settle(handed, message.settled)
            else:
                raise TesterError("it left a session out")

    def _settle(self, handed: _Handed, made: Settled) -> None:
        self._line.remove(handed)
        self.waiting_bytes -= len(handed.frame)
        self.settling -= 1
        self._going_on.discard(handed.session_id)
        assert handed.answer is not None
        handed.answer.set(made)

    def _died(self, why: str) -> None:
        self._end_process()
        self._deaths += 1
        self._deaths_in_a_row += 1
        self._never_ready += not self._ready
        if self._never_ready >= NEVER_READY or self._deaths_in_a_row >= DEATHS_IN_A_ROW:
            self._work_here(f"it died {self._deaths_in_a_row} times in a row: {why}")
            return
        if self._ready:
            self._blame()
        self._start()

    def _blame(self) -> None:
        """The session it was at: it may be what killed it."""
        handed = next((each for each in self._line if each.case is not None), None)
        if handed is None:
            return
        handed.deaths += 1
        if handed.deaths >= DEATHS_OF_A_SESSION:
            self._n_unscored += 1
            self._give_up(handed, f"the scoring process died {handed.deaths} times at it")

    def _give_up(self, handed: _Handed, why: str) -> None:
        case = handed.case
        assert case is not None
        made = unscored(self._scripts[case.index], case, why)
        self._settle(handed, loses_its_recording(made, self._keep, case, why))

    def _breaks(self, why: str) -> None:
        """Not even here can anything be settled: nobody may wait for it."""
        self._broken = f"the scoring broke down: {why}"
        for handed in [each for each in self._line if each.case is not None]:
            self._give_up(handed, self._broken)
        self._line.clear()
        self.waiting_bytes = 0

    def _watch_silence(self) -> None:
        while True:
            gevent.sleep(1.0)  # counted, not measured: a worker that stood still blames nobody
            self._reap()
            is_waited_for = self.settling or self.waiting_bytes > MAX_WAITING_BYTES
            self._silent_s = self._silent_s + 1 if is_waited_for else 0
            if self._silent_s > SILENT_S and self.pid:
                self._died(f"it answered nothing for {SILENT_S} s")

    def _end_process(self) -> None:
        if self._workplace is not None:
            self._workplace.close()
            self._dead += [self.pid] if self.pid else []
        self._workplace = None

    def _reap(self) -> None:
        self._dead = [pid for pid in self._dead if not is_reaped(pid)]

    def close(self) -> None:
        """End the process. Nobody waits for anything any more."""
        if self._watch is not None:
            self._watch.kill()
        self._end_process()
        for _ in range(round(CLOSE_S / REAP_S)):
            self._reap()
            if not self._dead:
                return
            gevent.sleep(REAP_S)


def _nobody_keeps(start: int, samples: Samples) -> bool:
    return True


def _wait_for(handed: _Handed) -> tuple[Settled, Recording | None]:
    assert handed.answer is not None
    return handed.answer.get(), None
