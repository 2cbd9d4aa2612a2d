"""One snapshot a second to all open pages, each at its own pace.

A page that reads slowly misses snapshots; one that reads nothing at all is let go by the server's time-out. What waits
for it is bounded by its socket's buffer and one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import gevent
from gevent.event import Event

from voicebench.clock import monotonic_s
from voicebench.master.picture import TURNS_EVERY, Picture

LOOK_S = 0.05
MAX_STREAMS = 300
STILL_HERE_S = 10.0
"""Without anything new a comment goes out so often, which is how a page that has gone is noticed."""
RETRY_MS = 1000


class FullError(Exception):
    """There are as many streams as can be."""


class Feed:
    """Wakes all streams when the source has a new picture."""

    def __init__(self, picture: Callable[[], Picture | None]) -> None:
        self._picture = picture
        self._news = Event()
        self._behind: dict[int, int] = {}
        """By stream: the last picture that was handed to the server for it."""
        self._n_opened = 0
        self._pump = gevent.spawn(self._look)

    @property
    def n_streams(self) -> int:
        return len(self._behind)

    def close(self) -> None:
        self._pump.kill()

    def drained(self, timeout_s: float) -> bool:
        """Wait until every stream has been given the latest picture; False: some have not within the time."""
        latest = self._picture()
        until_s = monotonic_s() + timeout_s
        while latest is not None and any(seq != latest.seq for seq in self._behind.values()):
            if monotonic_s() > until_s:
                return False
            gevent.sleep(LOOK_S)
        gevent.sleep(LOOK_S)  # handed to the server, and one turn later to the socket
        return True

    def stream(self) -> Iterator[bytes]:
        """Server-sent events, beginning with the latest picture.

        Raises:
            FullError: There are too many streams.
        """
        if self.n_streams >= MAX_STREAMS:
            raise FullError
        self._n_opened += 1
        number = self._n_opened
        self._behind[number] = 0
        return self._events(number)

    def _events(self, number: int) -> Iterator[bytes]:
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            sent: Picture | None = None
            while True:
                news, latest = self._news, self._picture()
                if latest is None or latest is sent:
                    if not news.wait(STILL_HERE_S):
                        yield b": still here\n\n"
                    continue
                with_turns = sent is None or latest.seq % TURNS_EVERY == 0 or latest.seq - sent.seq >= TURNS_EVERY
                sent = latest
                self._behind[number] = latest.seq
                yield _event(latest, with_turns=with_turns)
        finally:
            self._behind.pop(number, None)

    def _look(self) -> None:
        seen: Picture | None = None
        while True:
            latest = self._picture()
            if latest is not seen:
                seen = latest
                news, self._news = self._news, Event()
                news.set()
            gevent.sleep(LOOK_S)


def _event(picture: Picture, *, with_turns: bool) -> bytes:
    event = b"id: %d\nevent: snapshot\ndata: %s\n\n" % (picture.seq, picture.snapshot)
    return event + (b"event: turns\ndata: %s\n\n" % picture.turns if with_turns else b"")
