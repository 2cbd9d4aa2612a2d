"""What the page needs of the run that it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Protocol

from voicebench.master.picture import Picture

How = Literal["drain", "cut"]


class Source(Protocol):
    """One run. Everything is called in the main thread and may wait, as greenlets do."""

    @property
    def picture(self) -> Picture | None:
        """The latest; None: nothing can be said yet."""

    def history(self) -> bytes:
        """What `/api/run` gives.

        Raises:
            NotNowError: It can't be had.
        """

    def start(self) -> None:
        """Begin.

        Raises:
            NotNowError: Not here, or not yet.
        """

    def stop(self, how: How) -> None:
        """End.

        Raises:
            NotNowError: There is nothing to end.
        """

    def file(self, name: str) -> Path | None:
        """A report of the run that is there to be read; None: there is none of that name."""


class NotNowError(Exception):
    """What was asked for can't be done now. The sentence is for whoever asked."""
