"""The two places where the clerk (`clerk.py`) works: a sibling process, and this loop where there can be none.

The loop never waits for the process: a non-blocking socket, written in small parts when it takes something.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import gevent
import gevent.monkey
from gevent.event import Event
from gevent.hub import get_hub

from voicebench.errors import TesterError
from voicebench.worker.adapters.base import describe
from voicebench.worker.clerk import Clerk
from voicebench.worker.clerk_wire import Frames, FromClerk, ToClerk

SEND_BYTES = 64 << 10
"""At a time: 20 us."""
CLERK_DESCRIPTOR = 3
BREATH_S = 0.001


class Workplace(Protocol):
    """Where frames go in, and from where `hear` is told the answers in their order."""

    pid: int
    """Of the process; 0: there is none."""

    def say(self, frame: bytes) -> None: ...

    def close(self) -> None: ...


class ClerkProcess:
    """A clerk in a process of its own."""

    def __init__(self, hear: Callable[[FromClerk], None], died: Callable[[str], None]) -> None:
        """
        Args:
            hear, died: Are told each answer, and once why there will be no more; both in the hub.

        Raises:
            OSError: The system starts no more processes, or has no more descriptors.
        """
        self._hear = hear
        self._told_death = died
        self._unsent: deque[memoryview] = deque()
        self._frames = Frames(FromClerk)
        self._closed = False
        self._socket, theirs = socket.socketpair()
        try:
            self.pid = _spawn(theirs.fileno())
        except OSError:
            self._socket.close()
            raise
        finally:
            theirs.close()
        self._socket.setblocking(False)
        loop = get_hub().loop
        self._readable, self._writable = loop.io(self._socket.fileno(), 1), loop.io(self._socket.fileno(), 2)
        self._readable.start(self._guarded, self._read)

    def say(self, frame: bytes) -> None:
        if not self._unsent:
            self._writable.start(self._guarded, self._write)
        self._unsent.append(memoryview(frame))

    def close(self) -> None:
        """Kill it. Who started it reaps it (`is_reaped`)."""
        if self._closed:
            return
        self._closed = True
        for watcher in (self._readable, self._writable):
            watcher.stop()
            watcher.close()
        self._socket.close()
        self._unsent.clear()
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)

    def _guarded(self, work: Callable[[], None]) -> None:
        """In the hub, which would swallow what is raised."""
        try:
            work()
        except (BlockingIOError, InterruptedError):
            pass
        except Exception as error:  # noqa: BLE001
            self.close()
            self._told_death(describe(error))

    def _write(self) -> None:
        part = self._unsent[0]
        n_sent = self._socket.send(part[:SEND_BYTES])
        if n_sent < len(part):
            self._unsent[0] = part[n_sent:]
            return
        self._unsent.popleft()
        if not self._unsent:
            self._writable.stop()

    def _read(self) -> None:
        data = self._socket.recv(SEND_BYTES)
        if not data:
            raise TesterError("it closed its socket")
        for message in self._frames.push(data):
            self._hear(message)


class ClerkHere:
    """A clerk in this loop: one message after the other, and live sessions have their turn in between."""

    def __init__(self, hear: Callable[[FromClerk], None], died: Callable[[str], None]) -> None:
        """As `ClerkProcess`."""
        self.pid = 0
        self._hear = hear
        self._unsent: deque[bytes] = deque()
        self._wanted = Event()
        self._loop: gevent.Greenlet[Any] = gevent.spawn(self._work)
        self._loop.link_exception(lambda loop: died(describe(loop.exception)))

    def say(self, frame: bytes) -> None:
        self._unsent.append(frame)
        self._wanted.set()

    def close(self) -> None:
        self._loop.kill(block=False)

    def _work(self) -> None:
        clerk, frames = Clerk(), Frames(ToClerk)
        while True:
            self._wanted.wait()
            if not self._unsent:
                for answer in clerk.owed():
                    self._hear(answer)
                self._wanted.clear()
                continue
            for message in frames.push(self._unsent.popleft()):
                for answer in clerk.take(message):
                    self._hear(answer)
                clerk.clean_up(message)
            gevent.sleep(BREATH_S)


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


def is_reaped(pid: int) -> bool:
    """Whether a process that was killed is gone; where it is, its number is free again."""
    try:
        return bool(gevent.monkey.get_original("os", "waitpid")(pid, os.WNOHANG)[0])
    except ChildProcessError:
        return True  # by gevent
