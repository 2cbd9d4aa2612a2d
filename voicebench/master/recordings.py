"""Recordings, fetched from the workers in pieces, each asked for by offset, straight to where they belong on disk.

A recording is whole under its name or not there at all. What can't be had (its worker is gone, a disk is full) is given
up with a reason; the numbers never wait for it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from voicebench.wire.messages import PIECE_BYTES, Fetched, FileName, FilePiece, SessionResult, WantFile

IN_FLIGHT = 4
"""Recordings of one worker that are fetched side by side, a piece of each at a time."""
ASK_AGAIN_S = 2.0
TRIES = 5
FOLDER = "bundles"


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
    waiting: deque[_Pull] = field(default_factory=deque)
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

    def offer(self, epoch: int, session: SessionResult) -> None:
        """A worker has this session's recording."""
        assert session.files
        files = sorted(session.files.items())
        pull = _Pull(session.number, session.record.session_id, files)
        self._workers.setdefault(epoch, _Worker()).waiting.append(pull)

    def pending(self, epoch: int) -> bool:
        """Whether recordings of a worker are still to come."""
        worker = self._workers.get(epoch)
        return worker is not None and bool(worker.waiting or worker.fetching)

    def gone(self, epoch: int) -> None:
        """A worker went away with what it had."""
        worker = self._workers.pop(epoch, None)
        if worker is not None:
            for pull in (*worker.fetching.values(), *worker.waiting):
                self._give_up(pull, "their worker went away")

    @property
    def trouble(self) -> tuple[str, ...]:
        """What could not be fetched, and why."""
        return tuple(f"{n} recordings are missing ({why}); the numbers are whole" for why, n in self._lost.items())

    def sends(self, now_s: float) -> Iterator[tuple[int, WantFile | Fetched]]:
        """What to ask for, or to say, now: to which worker (its epoch), what."""
        for epoch, worker in self._workers.items():
            while worker.waiting and len(worker.fetching) < IN_FLIGHT:
                pull = worker.waiting.popleft()
                worker.fetching[pull.session_id] = pull
            for pull in list(worker.fetching.values()):
                if pull.asked_s is not None and now_s - pull.asked_s < ASK_AGAIN_S:
                    continue
                pull.tries += 1
                if pull.tries > TRIES:
                    del worker.fetching[pull.session_id]
                    self._give_up(pull, "their worker did not send them")
                    continue
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
            self.gone(epoch)

    def _write(self, pull: _Pull, data: bytes) -> bool:
        """Put a piece where it belongs; True when the recording is whole."""
        name, size = pull.left[0]
        if len(data) != min(PIECE_BYTES, size - pull.offset):
            raise _UnusableError("their worker sent another length than it had said")
        if pull.folder is None:
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

    def _give_up(self, pull: _Pull, why: str) -> None:
        self._lost[why] += 1
        if pull.folder is not None:
            shutil.rmtree(pull.folder, ignore_errors=True)


class _UnusableError(Exception):
    """What came is not what was promised."""
