"""Recordings that wait at the worker until the master has fetched them: in a private folder, up to a size."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import IO

from voicebench.wire.messages import PIECE_BYTES

KEPT_BYTES = 2 << 30
FULL = "the recordings that wait to be fetched fill their space"
_PREFIX = "voicebench-spool-"
_LOCK = ".lock"


class Spool:
    """A folder that the clerk writes to (`clerk.Shelf`). A session is entered in one thread, once it is written whole,
    and read and dropped in another."""

    def __init__(self, *, kept_bytes: int = KEPT_BYTES, parent: str | None = None) -> None:
        """
        Raises:
            OSError: There is no room for temporary files.
        """
        self.kept_bytes = kept_bytes
        self._sessions: dict[str, dict[str, int]] = {}
        self.folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent or tempfile.gettempdir()))
        # Locked before it has its name: a sweep that came in between would take the folder for a dead worker's.
        unnamed = self.folder / f"{_LOCK}-"
        self._lock: IO[str] = open(unnamed, "w")  # noqa: SIM115 - held as long as the folder is ours
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.rename(unnamed, self.folder / _LOCK)

    def enter(self, session_id: str, sizes: dict[str, int]) -> None:
        """A recording is in its place."""
        self._sessions[session_id] = sizes

    def read(self, session_id: str, file: str, offset: int) -> bytes:
        """A piece of a recording.

        Raises:
            KeyError: There is no such recording, or no such file in it.
            OSError: It can't be read.
            ValueError: There is nothing at this place.
        """
        size = self._sessions[session_id][file]
        if offset >= size:
            raise ValueError(f"the file has {size} bytes")
        with open(self.folder / session_id / file, "rb") as opened:
            opened.seek(offset)
            return opened.read(PIECE_BYTES)

    def drop(self, session_id: str) -> None:
        """It has been fetched."""
        if self._sessions.pop(session_id, None) is not None:
            shutil.rmtree(self.folder / session_id, ignore_errors=True)

    @property
    def waiting(self) -> int:
        """How many recordings have not been fetched."""
        return len(self._sessions)

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()


def sweep(parent: str) -> None:
    """Remove the folders of workers that were killed: nobody holds their lock any more."""
    for folder in Path(parent).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
