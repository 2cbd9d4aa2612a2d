"""The two streams: results on stdout, as tables for people or JSON for programs; everything else on stderr."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Mapping
from typing import IO, Any, TextIO, cast

import msgspec
from rich.console import Console

from voicebench.cli.format import fit

DEFAULT_WIDTH = 100
"""Columns where nobody says how many there are."""


class _Results(Console):
    """Raises where rich would end the program with 1, which means a failed assertion here."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(32, "the reader has left")


class _Fitting:
    """A stream that shows our marks in ASCII where it can't show them as they are."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:
        return self._stream.encoding

    def write(self, text: str) -> int:
        return self._stream.write(fit(text, self._stream))

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()


def console() -> Console:
    """Stdout for people: colours only where they belong, as wide as the terminal it ends up in."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that can't show a letter still shows the rest
    return _Results(file=cast(IO[str], _Fitting(sys.stdout)), highlight=False, soft_wrap=True, width=_width())


def _width() -> int:
    """Of the terminal; behind a pipe of the one that errors go to, for `| less` and `| tee` end up there too."""
    if os.environ.get("COLUMNS", "").isdecimal():
        return max(20, int(os.environ["COLUMNS"]))
    for stream in (sys.stdout, sys.stderr):
        try:
            return max(20, os.get_terminal_size(stream.fileno()).columns)
        except (OSError, ValueError, AttributeError):
            continue
    return DEFAULT_WIDTH


def say(text: str) -> None:
    """A line on stderr; a full disk behind it is no reason to end a run."""
    with contextlib.suppress(OSError):
        print(fit(text, sys.stderr), file=sys.stderr, flush=True)


def json_bytes(document: Mapping[str, Any]) -> bytes:
    """A document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def emit_json(document: Mapping[str, Any]) -> None:
    """JSON to stdout; escaped where the terminal's encoding can't show every letter, so that it stays JSON."""
    text = json_bytes(document).decode()
    if codecs.lookup(sys.stdout.encoding or "utf-8").name != "utf-8":
        text = json.dumps(msgspec.json.decode(text), indent=1) + "\n"
    sys.stdout.write(text)
    sys.stdout.flush()
