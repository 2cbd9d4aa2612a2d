"""Recordings put into a worker's spool as the clerk puts them there."""

from __future__ import annotations

from collections.abc import Mapping

from voicebench.worker.clerk import Shelf
from voicebench.worker.spool import Spool


def shelve(spool: Spool, session_id: str, files: Mapping[str, bytes]) -> dict[str, int]:
    """Write and enter a recording; the sizes of its files. Raises OSError."""
    sizes = Shelf(spool.folder, spool.kept_bytes, ()).keep(session_id, dict(files))
    spool.enter(session_id, sizes)
    return sizes
