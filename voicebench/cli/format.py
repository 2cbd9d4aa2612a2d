"""What a stream can show of our marks."""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from typing import TextIO

_IN_ASCII = str.maketrans({"–": "-", "✓": "+", "✗": "x", "…": "."})
"""Each as wide as what it stands for, so that columns stay columns."""
_LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")


def fit(text: str, stream: TextIO) -> str:
    """Our own marks as this stream can show them; what users named stays as it is."""
    return text.translate(_IN_ASCII) if wants_ascii(stream, os.environ) else text


def wants_ascii(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Whether our marks would be garbage: another encoding than UTF-8, or the locale C, asked for by name.

    Python itself writes UTF-8 under the locale C, and sets LC_CTYPE to say so; who set LANG=C may see otherwise. No
    locale at all is no wish: containers have none, and their logs are read as UTF-8.
    """
    if codecs.lookup(stream.encoding or "utf-8").name != "utf-8":
        return True
    wishes = [environment[name] for name in _LOCALE if environment.get(name, "C.UTF-8") != "C.UTF-8"]
    return bool(wishes) and wishes[0] in ("C", "POSIX")
