"""Audio that came from masters, kept between runs: under its SHA-256, checked whenever it is read.

Only audio: what else a scenario holds (an address, a key that someone wrote in plainly) stays in memory.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from voicebench.scenario.shipping import MAX_ASSET_BYTES, sha_of

KEPT_BYTES = 1 << 30


class AssetCache:
    """A folder of audio. Should it be of no use (read-only, full), nothing is kept, and nothing fails."""

    def __init__(self, folder: Path | None, *, kept_bytes: int = KEPT_BYTES) -> None:
        """
        Args:
            folder: Where; None: nowhere.
            kept_bytes: Beyond this what was used least recently goes.
        """
        self._folder = folder
        self._kept_bytes = kept_bytes
        self.trouble = ""
        """Why audio could not be kept, a sentence; empty: nothing stood in the way, or nobody wanted to keep any."""

    def get(self, name: str) -> bytes | None:
        """The audio of this name; None when it is not here, or is damaged."""
        if self._folder is None:
            return None
        path = self._folder / name
        try:
            if path.stat().st_size > MAX_ASSET_BYTES:  # none of ours: let it not fill the memory
                path.unlink()
                return None
            data = path.read_bytes()
            if sha_of(data) != name:
                path.unlink()
                return None
            os.utime(path)
        except OSError:
            return None
        return data

    def put(self, name: str, data: bytes) -> None:
        """Keep it: whole under its name, or not at all."""
        if self._folder is None:
            return
        try:
            self._write(self._folder, name, data)
        except OSError as error:
            why = error.strerror or str(error)
            self.trouble = f"audio is not kept between runs: {self._folder} can't be written to ({why})"
            return
        with contextlib.suppress(OSError):  # another worker may be doing the same
            self._make_room(self._folder)

    def _write(self, folder: Path, name: str, data: bytes) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=".", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            os.replace(temporary, folder / name)
        except OSError:
            Path(temporary).unlink(missing_ok=True)
            raise

    def _make_room(self, folder: Path) -> None:
        files = []
        for entry in os.scandir(folder):
            with contextlib.suppress(FileNotFoundError):  # gone since
                if entry.is_file(follow_symlinks=False):
                    files.append((entry.stat(follow_symlinks=False), Path(entry.path)))
        files.sort(key=lambda each: each[0].st_mtime)
        total = sum(status.st_size for status, _ in files)
        for status, path in files:
            if total <= self._kept_bytes:
                return
            path.unlink(missing_ok=True)
            total -= status.st_size


def cache_folder(environment: Mapping[str, str]) -> Path | None:
    """Where such things are kept on this system, as the XDG base directories have it; None: there is no such place."""
    base = environment.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = environment.get("HOME", "")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".cache")
    return Path(base) / "voicebench" / "assets"
