"""Recordings, fetched from the workers in pieces, each asked for by offset, straight to where they belong on disk.

A recording is whole under its name or not there at all. What can't be had (its worker is gone, a disk is full) is given
up with a reason; the numbers never wait for it.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

from voicebench.wire.messages import PIECE_BYTES, Fetched, FileName, FilePiece, SessionResult, WantFile

IN_FLIGHT = 4
"""Recordings of one worker that are fetched side by side, a piece of each at a time."""
IN_FLIGHT_IN_ALL = 64
ASK_AGAIN_S = 2.0
TRIES = 5
PATIENCE_S = 30.0
"""A worker that has sent no piece for so long sends none any more: the end of a run waits for its recordings."""
STALL_S = 1.0
"""Longer than this between two looks, it was the master that stood still: nobody else's silence."""
FOLDER = "bundles"
FILES = frozenset(get_args(FileName))
REASONS_TOLD = 10
REASON_CHARACTERS = 200
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,199}")
"""Of a session, and so of a folder: none that is hidden or leads elsewhere."""


@dataclass(slots=True)
class _Pull:
    """One recording on its way."""

    number: int
    session_id: str
    left: list[tuple[FileName, int]]
    """Files to come, with their sizes; the first is the one that is being fetched."""
    offset: int = 0
    asked_s: float | None = None
    tries: int = 0
    folder: Path | None = None


@dataclass(slots=True)
class _Worker:
    quiet_since_s: float | None = None
    """Since when it has been asked and has sent nothing; None: it has just sent something, or nothing is asked."""
    waiting: dict[str, _Pull] = field(default_factory=dict)
    fetching: dict[str, _Pull] = field(default_factory=dict)


class Recordings:
    """All recordings of a run. To be used in one thread."""

    def __init__(self, directory: Path) -> None:
        """
        Args:
            directory: The run's; recordings lie in `bundles/` there.
        """
        self._folder = directory / FOLDER
        self._workers: dict[int, _Worker] = {}
        self._fetched: deque[tuple[int, str]] = deque()
        self._lost: Counter[str] = Counter()
        self._swept = False
        self._sent_s: float | None = None

    def offer(self, epoch: int, session: SessionResult) -> None:
        """A worker has this session's recording."""
        assert session.files
        pull = _Pull(session.number, session.record.session_id, sorted(session.files.items()))
        worker = self._workers.setdefault(epoch, _Worker())
        is_new = pull.session_id not in worker.waiting and pull.session_id not in worker.fetching
        if session.files.keys() != FILES or not _NAME.fullmatch(pull.session_id) or not is_new:
            self._give_up(pull, "what their worker offered is no recording")
            return
        worker.waiting[pull.session_id] = pull

    def pending(self, epoch: int) -> bool:
        """Whether recordings of a worker are still to come."""
        worker = self._workers.get(epoch)
        return worker is not None and bool(worker.waiting or worker.fetching)

    def gone(self, epoch: int) -> None:
        """A worker went away with what it had."""
        self._forget(epoch, "their worker went away")

    @property
    def trouble(self) -> tuple[str, ...]:
        """What could not be fetched, and why."""
        return tuple(
            f"{n} {'recording is' if n == 1 else 'recordings are'} missing ({why}); the numbers are whole"
            for why, n in self._lost.items()
        )

    def sends(self, now_s: float) -> Iterator[tuple[int, WantFile | Fetched]]:
        """What to ask for, or to say, now: to which worker (its epoch), what."""
        stalled_s = max(0.0, now_s - self._sent_s - STALL_S) if self._sent_s is not None else 0.0
        self._sent_s = now_s
        for epoch, worker in list(self._workers.items()):
            if worker.quiet_since_s is not None:
                worker.quiet_since_s += stalled_s
            if worker.quiet_since_s is not None and now_s - worker.quiet_since_s > PATIENCE_S:
                self._forget(epoch, "their worker did not send them")
        self._begin_more()
        for epoch, worker in self._workers.items():
            if not worker.fetching:
                worker.quiet_since_s = None
            elif worker.quiet_since_s is None:
                worker.quiet_since_s = now_s
            for pull in list(worker.fetching.values()):
                if pull.asked_s is not None and now_s - pull.asked_s < ASK_AGAIN_S:
                    continue
                if pull.tries == TRIES:
                    del worker.fetching[pull.session_id]
                    self._give_up(pull, "their worker did not send them")
                    self._fetched.append((epoch, pull.session_id))
                    continue
                pull.tries += 1
                pull.asked_s = now_s
                yield epoch, WantFile(session_id=pull.session_id, file=pull.left[0][0], offset=pull.offset)
        while self._fetched:
            epoch, session_id = self._fetched.popleft()
            yield epoch, Fetched(session_id=session_id)

    def hear(self, piece: FilePiece) -> tuple[int, str] | None:
        """A piece has come. Returns the session's number and where its recording lies, once that is whole."""
        worker = self._workers.get(piece.epoch)
        pull = worker.fetching.get(piece.session_id) if worker is not None else None
        if worker is None or pull is None or (piece.file, piece.offset) != (pull.left[0][0], pull.offset):
            return None  # nobody asked for it, or it came twice
        worker.quiet_since_s = None
        whole = False
        try:
            if piece.why:
                raise _UnusableError(piece.why)
            whole = self._write(pull, piece.data)
        except (OSError, _UnusableError) as error:
            self._give_up(pull, getattr(error, "strerror", None) or str(error))
        else:
            if not whole:
                return None
        del worker.fetching[pull.session_id]
        self._fetched.append((piece.epoch, pull.session_id))
        return (pull.number, f"{FOLDER}/{pull.session_id}") if whole else None

    def close(self) -> None:
        """Give up what has not come."""
        for epoch in list(self._workers):
            self._forget(epoch, "the run ended before they had come")

    def _begin_more(self) -> None:
        """Let those that wait begin, first where the fewest are on their way."""
        left = IN_FLIGHT_IN_ALL - sum(len(worker.fetching) for worker in self._workers.values())
        for worker in sorted(self._workers.values(), key=lambda each: len(each.fetching)):
            while left > 0 and worker.waiting and len(worker.fetching) < IN_FLIGHT:
                pull = worker.waiting.pop(next(iter(worker.waiting)))
                worker.fetching[pull.session_id] = pull
                left -= 1

    def _write(self, pull: _Pull, data: bytes) -> bool:
        """Put a piece where it belongs; True when the recording is whole."""
        name, size = pull.left[0]
        if len(data) != min(PIECE_BYTES, size - pull.offset):
            raise _UnusableError("their worker sent another length than it had said")
        if pull.folder is None:
            if not self._swept:
                self._swept = True
                self._sweep()
            self._folder.mkdir(parents=True, exist_ok=True)
            pull.folder = Path(tempfile.mkdtemp(prefix=f".{pull.session_id}-", dir=self._folder))
        with open(pull.folder / name, "ab" if pull.offset else "wb") as file:
            file.write(data)
        pull.offset += len(data)
        pull.tries, pull.asked_s = 0, None
        if pull.offset < size:
            return False
        pull.left.pop(0)
        pull.offset = 0
        if pull.left:
            return False
        pull.folder.chmod(0o755)
        os.rename(pull.folder, self._folder / pull.session_id)
        pull.folder = None
        return True

    def _sweep(self) -> None:
        """Remove what a master that was killed in this folder had begun."""
        for left_over in self._folder.glob(".*-*"):
            shutil.rmtree(left_over, ignore_errors=True)

    def _forget(self, epoch: int, why: str) -> None:
        """Give up all that a worker has, and tell it so, should it still listen."""
        worker = self._workers.pop(epoch, None)
        if worker is not None:
            for pull in (*worker.fetching.values(), *worker.waiting.values()):
                self._give_up(pull, why)
                self._fetched.append((epoch, pull.session_id))

    def _give_up(self, pull: _Pull, why: str) -> None:
        why = "".join(each if each.isprintable() else "?" for each in why[:REASON_CHARACTERS])  # a worker's own words
        if why not in self._lost and len(self._lost) >= REASONS_TOLD:
            why = "for other reasons"
        self._lost[why] += 1
        if pull.folder is not None:
            shutil.rmtree(pull.folder, ignore_errors=True)


class _UnusableError(Exception):
    """What came is not what was promised."""
