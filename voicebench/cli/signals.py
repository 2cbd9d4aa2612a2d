"""Ctrl-C and its kin: the first lets sessions finish, the next cuts them."""

from __future__ import annotations

import signal
from collections.abc import Callable

import gevent

WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Calls `first` once and `again` from then on, with the signal's name. The exit code remembers the first."""

    def __init__(self, first: Callable[[str], None], again: Callable[[str], None]) -> None:
        self.exit_code: int | None = None
        self._first = first
        self._again = again
        self._watchers = [gevent.signal_handler(number, self._on_signal, number) for number in WATCHED]

    def close(self) -> None:
        """Signals mean again what they mean to any program."""
        for watcher in self._watchers:
            watcher.cancel()

    def count(self, name: str) -> None:
        """Somebody wants what Ctrl-C does, by another way."""
        self._take(name, signal.SIGINT)

    def remember(self) -> None:
        """The run ends as if by Ctrl-C."""
        self.exit_code = self.exit_code or 128 + signal.SIGINT

    def _on_signal(self, number: int) -> None:
        self._take(signal.Signals(number).name, number)

    def _take(self, name: str, number: int) -> None:
        if self.exit_code is not None:
            self._again(name)
            return
        # A closed terminal ends a run as a polite kill does.
        self.exit_code = 128 + int(signal.SIGTERM if number == signal.SIGHUP else number)
        self._first(name)
