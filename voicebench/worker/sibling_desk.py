"""Sessions settled by a sibling process (`clerk.py`), so that nothing computes beside the pacer.

The loop never waits for it: a non-blocking socket, written in small parts when it takes something. What was handed over
is kept until it is answered, and handed to the next process when one dies.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import gevent
import gevent.monkey
from gevent.event import AsyncResult
from gevent.hub import get_hub

from voicebench.errors import TesterError, VoicebenchError
from voicebench.recording import Recording
from voicebench.scenario.prepared import PreparedScenario
from voicebench.scenario.shipping import pack
from voicebench.script import Script
from voicebench.session import Session
from voicebench.worker.adapters.base import describe
from voicebench.worker.clerk_wire import (
    Answered,
    Asset,
    Frames,
    FromClerk,
    HandedIn,
    Open,
    Piece,
    Ready,
    Took,
    frame_of,
)
from voicebench.worker.desk import Answer, InlineDesk
from voicebench.worker.settling import Case, Settled, settled, unscored
from voicebench.worker.ticker import give_way

MAX_SETTLING = 200
"""More sessions than this in line, some seconds of work, and no new ones are placed until it is shorter."""
MAX_WAITING_BYTES = 64 << 20
"""The same for what they weigh. Sound beyond twice this is given up, and with it its recording, never the record."""
SEND_BYTES = 64 << 10
"""At a time: 20 us."""
BLOCK_SAMPLES = 32 << 10
BLOCKS_AT_ONCE = 4
"""Of a session's sound, 64 KB each, before live sessions have their turn."""
DEATHS_OF_A_SESSION = 3
"""A session at which the process died this often is not handed to it again."""
DEATHS_IN_A_ROW = 10
"""So many deaths without one answer in between, or `NEVER_READY` before it was ready: it is not started again."""
NEVER_READY = 3
SILENT_S = 60
"""A process that has work and answers nothing for so long, while this one runs, hangs: it is killed."""
CLERK_DESCRIPTOR = 3
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
        keep: Literal["all", "failed", "none"],
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
        self.pid = 0
        """Of the process; 0: there is none."""
        self._prepared = prepared
        self._scripts = scripts
        self._keep = keep
        self._folder = folder
        self._kept_bytes = kept_bytes
        self._why_no_folder = why_no_folder
        self._inline: InlineDesk | None = None
        """Once there will be no process any more."""
        self._why_inline = ""
        self._line: deque[_Handed] = deque()
        self._unsent: deque[memoryview] = deque()
        self._going_on: set[str] = set()
        """Sessions of whose sound something was handed over, and which are not settled."""
        self._seq = 0
        self._settling = 0
        self._waiting_bytes = 0
        self._socket: socket.socket | None = None
        self._dead: list[int] = []
        """Killed, and not yet reaped: the loop waits for nobody."""
        self._watchers: list[Any] = []
        self._frames = Frames(FromClerk)
        self._ready = False
        self._never_ready = 0
        self._deaths = self._deaths_in_a_row = 0
        self._n_unscored = 0
        self._silent_s = 0
        self._watch: gevent.Greenlet[Any] | None = None

    # --- what the engine asks ----------------------------------------------------------------------------------------

    @property
    def settling(self) -> int:
        return self._settling + (self._inline.settling if self._inline is not None else 0)

    @property
    def waiting_bytes(self) -> int:
        """What was handed over and is not answered."""
        return self._waiting_bytes

    @property
    def has_room(self) -> bool:
        return self._settling < MAX_SETTLING and self._waiting_bytes < MAX_WAITING_BYTES

    @property
    def notes(self) -> list[str]:
        notes = []
        if self._deaths:
            again = "what it had not done was done again"
            notes.append(f"the scoring process died {self._deaths} times and was started again; {again}")
        if self._n_unscored:
            notes.append(f"{self._n_unscored} sessions could not be scored: the scoring process died at them")
        if self._why_inline:
            notes.append(f"sessions were scored beside the live ones: {self._why_inline}")
        return notes

    def hand_in(self, case: Case, session: Session) -> Answer:
        if self._inline is not None:
            return self._inline.hand_in(case, session)
        try:
            lost = self._hand_over_sound(case, session) if self._keep != "none" and case.sent_frames else ""
            self._seq += 1
            frame = frame_of(HandedIn(self._seq, case, lost))
        except VoicebenchError as error:
            told = unscored(self._scripts[case.index], case, str(error))
            return lambda: (told, None)
        if self._inline is not None:  # since we gave way
            return self._inline.hand_in(case, session)
        handed = _Handed(self._seq, frame, case.proceedings.session_id, case)
        self._settling += 1
        self._queue(handed)
        return lambda: _wait_for(handed)

    def _hand_over_sound(self, case: Case, session: Session) -> str:
        """Send what the agent was heard to say; why not all of it, empty: all."""
        for number, (start, block) in enumerate(session.agent_blocks(BLOCK_SAMPLES), 1):
            if number % BLOCKS_AT_ONCE == 0:
                give_way()
            why = self._piece(case.proceedings.session_id, 2 * start, block.astype("<i2", copy=False).tobytes())
            if why:
                return why
        return ""

    def _piece(self, session_id: str, offset: int, data: bytes) -> str:
        if self._waiting_bytes > 2 * MAX_WAITING_BYTES:
            return "the scoring process did not keep up"
        if self._inline is not None:
            return self._why_inline
        self._going_on.add(session_id)
        self._seq += 1
        self._queue(_Handed(self._seq, frame_of(Piece(self._seq, session_id, offset, data)), session_id, None))
        return ""

    def _queue(self, handed: _Handed) -> None:
        self._line.append(handed)
        self._waiting_bytes += len(handed.frame)
        self._say(handed.frame)

    # --- the process -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process; where that is not possible, sessions are settled here, and a note says so."""
        self._watch = gevent.spawn(self._watch_silence)
        self._start()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        try:
            self.pid = _spawn(theirs.fileno())
            opening = self._opening()
        except (OSError, VoicebenchError) as error:
            ours.close()
            self._end_process()
            self._do_without(getattr(error, "strerror", None) or str(error))
            return
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket, self._frames, self._ready, self._silent_s = ours, Frames(FromClerk), False, 0
        loop = get_hub().loop
        self._watchers = [loop.io(ours.fileno(), 1), loop.io(ours.fileno(), 2)]
        self._watchers[0].start(self._guarded, self._read)
        self._unsent.clear()
        for frame in (*opening, *(handed.frame for handed in self._line)):
            self._say(frame)

    def _opening(self) -> list[bytes]:
        scenarios, assets = pack(self._prepared)
        going_on = tuple(self._going_on)
        opened = Open(
            tuple(assets[name] for name in scenarios), self._keep, self._folder, self._kept_bytes,
            self._why_no_folder, going_on,
        )  # fmt: skip
        audio = [frame_of(Asset(name, data)) for name, data in assets.items() if name not in scenarios]
        return [*audio, frame_of(opened)]

    def _say(self, frame: bytes) -> None:
        if self._socket is None:
            return  # it is being started, or never will be: then everything in line is said again, or settled here
        if not self._unsent:
            self._watchers[1].start(self._guarded, self._write)
        self._unsent.append(memoryview(frame))

    def _guarded(self, work: Any) -> None:
        """In the hub, which would swallow what is raised."""
        try:
            work()
        except (BlockingIOError, InterruptedError):
            pass
        except Exception as error:  # noqa: BLE001
            self._died(describe(error))

    def _write(self) -> None:
        assert self._socket is not None
        part = self._unsent[0]
        n_sent = self._socket.send(part[:SEND_BYTES])
        if n_sent < len(part):
            self._unsent[0] = part[n_sent:]
            return
        self._unsent.popleft()
        if not self._unsent:
            self._watchers[1].stop()

    def _read(self) -> None:
        assert self._socket is not None
        data = self._socket.recv(SEND_BYTES)
        if not data:
            raise TesterError("it closed its socket")
        self._silent_s = 0
        for message in self._frames.push(data):
            if isinstance(message, Ready):
                self._ready, self._never_ready = True, 0
            else:
                self._answered(message)

    def _answered(self, message: Took | Answered) -> None:
        self._deaths_in_a_row = 0
        while self._line and self._line[0].seq <= message.seq:
            handed = self._line[0]
            if handed.answer is not None:
                if not isinstance(message, Answered) or handed.seq != message.seq:
                    raise TesterError("it left a session out")
                self._settle_here(handed, message.settled)
            else:
                self._waiting_bytes -= len(self._line.popleft().frame)

    def _died(self, why: str) -> None:
        self._end_process()
        self._deaths += 1
        self._deaths_in_a_row += 1
        self._never_ready += not self._ready
        if self._never_ready >= NEVER_READY or self._deaths_in_a_row >= DEATHS_IN_A_ROW:
            self._do_without(f"the scoring process died {self._deaths_in_a_row} times in a row ({why})")
            return
        if self._ready:
            self._blame()
        self._start()

    def _blame(self) -> None:
        """The session it was at: it may be what killed it."""
        handed = next((each for each in self._line if each.case is not None), None)
        if handed is None or handed.case is None:
            return
        handed.deaths += 1
        if handed.deaths >= DEATHS_OF_A_SESSION:
            self._n_unscored += 1
            why = f"the scoring process died {handed.deaths} times at it"
            self._settle_here(handed, unscored(self._scripts[handed.case.index], handed.case, why))

    def _settle_here(self, handed: _Handed, made: Settled) -> None:
        self._line.remove(handed)
        self._waiting_bytes -= len(handed.frame)
        self._settling -= 1
        self._going_on.discard(handed.session_id)
        assert handed.answer is not None
        handed.answer.set(made)

    def _do_without(self, why: str) -> None:
        self._why_inline = f"there was no scoring process ({why})"
        self._inline = InlineDesk(self._scripts)
        gevent.spawn(self._settle_what_waits)

    def _settle_what_waits(self) -> None:
        """Their records: the sound that was handed over is lost."""
        for handed in list(self._line):
            case = handed.case
            if case is None:
                self._line.remove(handed)
                self._waiting_bytes -= len(handed.frame)
                continue
            try:
                made = settled(self._scripts[case.index], case)
                lost = self._why_inline if self._keep == "all" and case.sent_frames else ""
                made = Settled(made.record, made.lateness, None, lost)
            except Exception as error:  # noqa: BLE001
                made = unscored(self._scripts[case.index], case, describe(error))
            self._settle_here(handed, made)
            gevent.sleep(0.001)

    def _watch_silence(self) -> None:
        while True:
            gevent.sleep(1.0)  # counted, not measured: a worker that stood still blames nobody
            self._reap()
            self._silent_s = self._silent_s + 1 if self._line else 0
            if self._silent_s > SILENT_S and self._socket is not None:
                self._died(f"it answered nothing for {SILENT_S} s")

    def _end_process(self) -> None:
        for watcher in self._watchers:
            watcher.stop()
            watcher.close()
        self._watchers = []
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._unsent.clear()
        if self.pid:
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
            self._dead.append(self.pid)
        self.pid = 0

    def _reap(self) -> None:
        self._dead = [pid for pid in self._dead if not _is_reaped(pid)]

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


def _spawn(descriptor: int) -> int:
    """Start the process on its end of the socket pair; its number.

    Not through gevent's `subprocess`, which forks: the pages of hundreds of sessions would have to be copied.

    Raises:
        OSError: The system starts no more processes.
    """
    arguments = [sys.executable, "-m", "voicebench.worker.clerk", str(CLERK_DESCRIPTOR), str(os.getpid())]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_DUP2, descriptor, CLERK_DESCRIPTOR),
    ]
    return os.posix_spawn(sys.executable, arguments, os.environ, file_actions=actions, setsid=True)


def _is_reaped(pid: int) -> bool:
    try:
        return bool(gevent.monkey.get_original("os", "waitpid")(pid, os.WNOHANG)[0])
    except ChildProcessError:
        return True  # by gevent


def _wait_for(handed: _Handed) -> tuple[Settled, Recording | None]:
    assert handed.answer is not None
    return handed.answer.get(), None
