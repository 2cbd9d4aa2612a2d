"""The sibling process of a worker: makes records, recordings and files of sessions that have ended, one by one.

    python -m voicebench.worker.clerk SOCKET PARENT

It has no gevent and waits on its socket alone. It dies with its worker, and may be killed at any moment: what it has
not answered is handed to the next one. Niceness and scheduling class let live sessions go first.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from voicebench import bundle
from voicebench.bundle_files import write_files
from voicebench.children import bind_to_parent
from voicebench.errors import TesterError, VoicebenchError
from voicebench.events import Samples
from voicebench.proceedings import recording_of
from voicebench.scenario.secrets import redact_document
from voicebench.scenario.shipping import unpack
from voicebench.script import Script, prepare
from voicebench.worker.clerk_wire import (
    Answered,
    Asset,
    Frames,
    FromClerk,
    HandedIn,
    Open,
    Piece,
    Ready,
    ToClerk,
    Took,
    frame_of,
)
from voicebench.worker.settling import Settled, is_wanted, settled, unscored
from voicebench.worker.spool import FULL, sweep

NICENESS = 10
READ_BYTES = 1 << 18
TOOK_EVERY, TOOK_AFTER_S = 16, 0.5
"""So many pieces are acknowledged at once, or those that are there once nothing has come for so long: the worker keeps
them meanwhile, a megabyte."""
SOUND_SUFFIX = ".agent"


class Shelf:
    """The folder in which recordings wait to be fetched, with the pieces of those that are not finished."""

    def __init__(self, folder: Path, kept_bytes: int, going_on: Sequence[str]) -> None:
        self._folder = folder
        self._kept_bytes = kept_bytes
        self._broken: dict[str, str] = {}
        """Sessions of whose pieces one could not be written, and why."""
        for left in folder.glob(f"*{SOUND_SUFFIX}"):
            if left.name.removesuffix(SOUND_SUFFIX) not in going_on:
                left.unlink()
        for left in folder.glob(".*-????????"):  # a bundle that was being written when the one before died
            shutil.rmtree(left, ignore_errors=True)
        self._used_bytes = self._count()

    def add(self, piece: Piece) -> None:
        """Write it where it belongs. What can't be written is told when the session ends."""
        try:
            self._make_room(len(piece.data))
            descriptor = os.open(self._sound(piece.session_id), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(descriptor, piece.data, piece.offset)
            finally:
                os.close(descriptor)
            self._used_bytes += len(piece.data)
        except OSError as error:
            self._broken.setdefault(piece.session_id, error.strerror or str(error))

    def track(self, session_id: str, n_samples: int) -> Samples:
        """What the agent was heard to say: its pieces, and silence.

        Raises:
            OSError: A piece could not be written, or nothing can be read.
        """
        if session_id in self._broken:
            raise OSError(errno.EIO, self._broken[session_id])
        track = np.zeros(n_samples, dtype="<i2")
        with contextlib.suppress(FileNotFoundError):  # it never said anything
            heard = np.fromfile(self._sound(session_id), dtype="<i2", count=n_samples)
            track[: len(heard)] = heard
        return track.astype(np.int16, copy=False)

    def keep(self, session_id: str, files: dict[str, bytes]) -> dict[str, int]:
        """Write a recording.

        Raises:
            OSError: There is no room, or the disk does not take it.
        """
        sizes = {name: len(content) for name, content in files.items()}
        self._make_room(sum(sizes.values()))
        shutil.rmtree(self._folder / session_id, ignore_errors=True)  # by one who died before he could say so
        write_files(self._folder / session_id, files)
        self._used_bytes += sum(sizes.values())
        return sizes

    def forget(self, session_id: str) -> None:
        """Its pieces are wanted no more."""
        self._broken.pop(session_id, None)
        with contextlib.suppress(OSError):
            sound = self._sound(session_id)
            size = sound.stat().st_size
            sound.unlink()
            self._used_bytes -= size

    def _make_room(self, n_bytes: int) -> None:
        if self._used_bytes + n_bytes > self._kept_bytes:
            self._used_bytes = self._count()  # the worker has dropped what was fetched
        if self._used_bytes + n_bytes > self._kept_bytes:
            raise OSError(errno.ENOSPC, FULL)

    def _count(self) -> int:
        total = 0
        for folder, _, names in os.walk(self._folder):
            for name in names:
                with contextlib.suppress(OSError):
                    total += os.stat(os.path.join(folder, name)).st_size
        return total

    def _sound(self, session_id: str) -> Path:
        return self._folder / f"{session_id}{SOUND_SUFFIX}"


class Clerk:
    """What is said to it goes in, what it answers comes out."""

    def __init__(self) -> None:
        self._assets: dict[str, bytes] = {}
        self._scripts: list[Script] = []
        self._open: Open | None = None
        self._shelf: Shelf | None = None
        self._n_owed = self._last_piece = 0
        """Pieces that were taken and not acknowledged, and the last of them."""

    def take(self, message: ToClerk) -> list[FromClerk]:
        """Do what is asked.

        Raises:
            TesterError: It was asked before it knew the scripts.
        """
        if isinstance(message, Asset):
            self._assets[message.name] = message.data
            return []
        if isinstance(message, Open):
            self._begin(message)
            return [Ready()]
        if self._open is None:
            raise TesterError("a session was handed in before its script")
        if isinstance(message, Piece):
            if self._shelf is not None:
                self._shelf.add(message)
            self._n_owed, self._last_piece = self._n_owed + 1, message.seq
            return self.owed() if self._n_owed == TOOK_EVERY else []
        self._n_owed = 0
        return [Answered(message.seq, self._settle(self._open, message))]

    def owed(self) -> list[FromClerk]:
        """Acknowledge what was not."""
        took: list[FromClerk] = [Took(self._last_piece)] if self._n_owed else []
        self._n_owed = 0
        return took

    def clean_up(self, message: ToClerk) -> None:
        """What can wait until the answer is sent: until then the pieces may be needed again."""
        if isinstance(message, HandedIn) and self._shelf is not None:
            self._shelf.forget(message.case.proceedings.session_id)

    def _begin(self, message: Open) -> None:
        prepared = [unpack(scenario, self._assets) for scenario in message.scenarios]
        self._scripts = [prepare(each.scenario, each.clips) for each in prepared]
        self._assets.clear()
        self._open = message
        if message.folder:
            sweep(str(Path(message.folder).parent))
            self._shelf = Shelf(Path(message.folder), message.kept_bytes, message.going_on)

    def _settle(self, opened: Open, message: HandedIn) -> Settled:
        case, script = message.case, self._scripts[message.case.index]
        try:
            made = settled(script, case)
        except Exception as error:  # noqa: BLE001 - one session's trouble must not take the others down
            made = unscored(script, case, f"{type(error).__name__}: {error}")
        if not is_wanted(opened.keep, made.record, case.sent_frames):
            return made
        try:
            if self._shelf is None:
                raise OSError(errno.EIO, opened.why_no_folder)
            of = case.proceedings
            recording = recording_of(script, of, self._shelf.track(of.session_id, of.n_samples(script)))
            files = bundle.encode(recording, redact_document(script.scenario.document))
            return msgspec.structs.replace(made, files=self._shelf.keep(of.session_id, files))
        except Exception as error:  # noqa: BLE001 - a recording is lost, which is no reason to lose the session
            why = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
            return msgspec.structs.replace(made, why_not_kept=why)


def serve(worker: socket.socket) -> None:
    """Until the worker closes the socket."""
    clerk, frames = Clerk(), Frames(ToClerk)
    worker.settimeout(TOOK_AFTER_S)
    while True:
        try:
            data = worker.recv(READ_BYTES)
        except TimeoutError:
            _answer(worker, clerk.owed())
            continue
        if not data:
            return
        for message in frames.push(data):
            _answer(worker, clerk.take(message))
            clerk.clean_up(message)


def _answer(worker: socket.socket, answers: Sequence[FromClerk]) -> None:
    worker.settimeout(None)  # the worker may stand still for as long as it likes
    for answer in answers:
        worker.sendall(frame_of(answer))
    worker.settimeout(TOOK_AFTER_S)


def main(arguments: Sequence[str]) -> int:
    descriptor, parent = (int(argument) for argument in arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        bind_to_parent(parent)
        os.nice(NICENESS)
        with contextlib.suppress(OSError):  # not every container lets us
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        with socket.socket(fileno=descriptor) as worker:
            serve(worker)
    except ConnectionError:
        return 0  # the worker is gone
    except VoicebenchError as error:
        print(f"the scoring process ended: {error}", file=sys.stderr)  # noqa: T201 - where its worker's errors go
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
