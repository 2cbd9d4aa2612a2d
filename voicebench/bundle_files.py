"""Bundles on disk: a directory is whole, or it is not there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from voicebench import bundle
from voicebench.errors import BundleError
from voicebench.recording import Recording

_NAMES = (bundle.SESSION_FILE, *(name + suffix for name in bundle.TRACK_NAMES for suffix in bundle.TRACK_SUFFIXES))
MAX_FILE_BYTES = 1 << 30


def read_bundle(directory: Path) -> Recording:
    """Read a recorded session.

    Raises:
        BundleError, AudioError, ScenarioError: It is not there, not whole, or not what it says it is.
    """
    source = "".join(character if character.isprintable() else "?" for character in str(directory))
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise BundleError(f"{source}: {what}; give the folder that holds {bundle.SESSION_FILE}")
    files = {name: _read(directory / name) for name in _NAMES if (directory / name).exists()}
    return bundle.decode(files, source=source)


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise BundleError(f"{path}: not a regular file")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BundleError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB, which no session is")
        return path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None


def write_files(directory: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder's files under a temporary name, then rename it, so that it is whole whenever it can be seen.

    Raises:
        OSError: The disk is full or the folder cannot be written; nothing is left behind.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        for name, content in files.items():
            (temporary / name).write_bytes(content)
        temporary.chmod(0o755)
        os.rename(temporary, directory)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_file(path: Path, content: bytes) -> None:
    """Write one file under a temporary name, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
