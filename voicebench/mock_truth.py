"""What the mock server really did and when, one JSON object a line, to hold the tester's numbers against."""

from __future__ import annotations

import json
from typing import IO

from voicebench.protocols.text import clean_text

MAX_NAME_CHARS = 200


class TruthLog:
    """Lines of `{"t": ..., "event": ..., "connection": ..., "session": ..., ...}`.

    `t` is CLOCK_MONOTONIC, seconds, of the event and not of the line: `user_speech_end` stands behind what
    happened while the agent made sure that the user was silent.
    """

    def __init__(self, file: IO[str] | None) -> None:
        """`file` is line-buffered, so that a killed server has written what it knew; None: nothing is kept."""
        self._file = file

    @property
    def kept(self) -> bool:
        """Whether anybody reads it: if not, finding out may be skipped too."""
        return self._file is not None

    def note(self, event: str, *, t_s: float, connection: int, session: str | None, **more: object) -> None:
        """Write one event."""
        if self._file is None:
            return
        named = {} if session is None else {"session": clean_text(session, MAX_NAME_CHARS)}
        line = {"t": round(t_s, 6), "event": event, "connection": connection, **named, **more}
        self._file.write(json.dumps(line) + "\n")
