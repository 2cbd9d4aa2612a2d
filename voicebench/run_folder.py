"""A run's folder: its name, and that it is new."""

from __future__ import annotations

import contextlib
import re
import tempfile
from datetime import datetime
from pathlib import Path

from voicebench.clock import realtime_s
from voicebench.errors import UsageError

RESULTS = Path("voicebench-results")
LONGEST_ID = 150
"""Sessions' names add a number to it, and are names of folders."""


def new_run_id(name: str) -> str:
    """A name for the run that sorts by time and can be a folder."""
    slug = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-").lower()[:40] or "run"
    return f"{slug}-{datetime.fromtimestamp(realtime_s()).strftime('%Y%m%d-%H%M%S')}"


def run_id_of(folder: Path) -> str:
    """The name of a run whose folder was chosen, without what session names can't hold.

    >>> run_id_of(Path("results/first try")), run_id_of(Path(".."))
    ('first-try', 'run')
    """
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.name).strip("-.")[:LONGEST_ID] or "run"


def fresh_directory(wanted: Path) -> Path:
    """A folder for a new run: never one that holds something.

    Raises:
        UsageError: It exists and is not empty, or can't be made or written to.
    """
    try:
        if wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
            raise UsageError(f"{wanted}: exists and is not an empty folder; results are never overwritten")
        wanted.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=wanted):
            pass
    except OSError as error:
        raise UsageError(f"{wanted}: cannot be made or written to: {error.strerror}") from None
    return wanted


def discard(directory: Path | None) -> None:
    """Remove the folder of a run that never began, if it is empty, and so the one above if it was made for it."""
    if directory is None:
        return
    with contextlib.suppress(OSError):
        directory.rmdir()
        if directory.parent.name == RESULTS.name:
            directory.parent.rmdir()
