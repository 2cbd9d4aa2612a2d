"""Workers as child processes of a run on one machine: started, reaped at once, and never left behind.

A child asks the kernel to be killed when its parent dies (`bind_to_parent`), however that comes about. It has a session
of its own, since Ctrl-C is for the parent, who lets the sessions end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from voicebench.clock import monotonic_s
from voicebench.errors import TesterError

_PR_SET_PDEATHSIG = 1
PREFIX, SOCKET = "voicebench-", "master"
GRACE_S = 5.0
"""What a child that was told to go may take before it is killed."""
TOLD_BYTES = 2000
"""So much of what a child said last is kept."""


@dataclass(slots=True)
class Child:
    """One worker process."""

    name: str
    process: subprocess.Popen[bytes]
    said: IO[bytes]
    """Its stderr, a file: nobody has to read it while it runs."""
    reaped: bool = False

    def last_words(self) -> str:
        """The last lines it wrote."""
        self.said.flush()
        size = self.said.seek(0, os.SEEK_END)
        self.said.seek(max(0, size - TOLD_BYTES))
        return self.said.read().decode(errors="replace").strip()


class Children:
    """All workers of a run. To be used in one thread; `folder` is where they find the master."""

    def __init__(self) -> None:
        self._children: list[Child] = []
        parent = _short_temporary_folder()
        _sweep(Path(parent))
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))

    @property
    def endpoint(self) -> str:
        """Where the master has to listen: a socket in a folder that is this user's alone."""
        return f"ipc://{self.folder}/{SOCKET}"

    def start(self, n_workers: int) -> None:
        """Start so many.

        Raises:
            TesterError: The system starts no more processes.
        """
        for number in range(1, n_workers + 1):
            name = f"local-{number}"
            said = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the child
            command = [
                sys.executable,
                "-m",
                "voicebench",
                "worker",
                "--master",
                self.endpoint,
                "--name",
                name,
                "--quiet",
            ]
            try:
                process = subprocess.Popen(
                    [*command, "--parent", str(os.getpid())],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise TesterError(f"a worker process can't be started: {error.strerror}") from None
            self._children.append(Child(name, process, said))

    def reap(self) -> list[tuple[str, str]]:
        """Workers that have ended since the last call, each with how."""
        ended = []
        for child in self._children:
            if not child.reaped and child.process.poll() is not None:
                child.reaped = True
                ended.append((child.name, _how(child)))
        return ended

    @property
    def alive(self) -> int:
        return sum(child.process.poll() is None for child in self._children)

    def close(self) -> None:
        """Wait for those that are going, make the others go, leave nothing behind."""
        until_s = monotonic_s() + GRACE_S
        for child in self._children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(timeout=max(0.0, until_s - monotonic_s()))
            if child.process.poll() is None:
                child.process.kill()
                child.process.wait()
            child.said.close()
        with contextlib.suppress(OSError):
            (self.folder / SOCKET).unlink(missing_ok=True)
            self.folder.rmdir()


def _how(child: Child) -> str:
    code = child.process.returncode
    words = child.last_words()
    how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return f"{how}: {words.splitlines()[-1]}" if words else how


def _short_temporary_folder() -> str:
    """The name of a socket holds 107 bytes, and some temporary folders are longer than that."""
    folder = tempfile.gettempdir()
    return "/tmp" if len(os.fsencode(folder)) > 60 and os.access("/tmp", os.W_OK) else folder


def _sweep(parent: Path) -> None:
    """Remove what runs that were killed have left: a socket where nobody listens."""
    for folder in parent.glob(f"{PREFIX}????????"):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as knocking:
            try:
                knocking.connect(str(folder / SOCKET))
            except ConnectionRefusedError:
                (folder / SOCKET).unlink()
                folder.rmdir()


def bind_to_parent(parent: int) -> None:
    """Die when the parent dies. To be called first thing in the child.

    Raises:
        TesterError: The parent is gone already.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise TesterError("the run that this worker belonged to is gone")


def default_workers(callers: int) -> int:
    """One for each core this process may use but one, at least one, and no more than there are callers."""
    return max(1, min(len(os.sched_getaffinity(0)) - 1, callers))
