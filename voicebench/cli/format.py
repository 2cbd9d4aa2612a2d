"""Values as people read them. What doesn't exist is a dash, never 0."""

from __future__ import annotations

import codecs
import os
from collections.abc import Mapping
from typing import TextIO

NOTHING = "–"
_IN_ASCII = str.maketrans({"–": "-", "✓": "+", "✗": "x", "…": "."})
"""Each as wide as what it stands for, so that columns stay columns."""
_LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")


def ms(value_ms: float | None) -> str:
    """A duration.

    >>> ms(748.04), ms(None)
    ('748 ms', '–')
    """
    return NOTHING if value_ms is None else f"{value_ms:,.0f} ms"


def share(value: float | None) -> str:
    """A share between 0 and 1, in percent.

    >>> share(0.975), share(None)
    ('97.5 %', '–')
    """
    return NOTHING if value is None else f"{100 * value:.4g} %"


def number(value: float | None) -> str:
    """A plain number.

    >>> number(3.0), number(0.25), number(None)
    ('3', '0.25', '–')
    """
    return NOTHING if value is None else f"{value:.10g}"


def count(n: int, word: str) -> str:
    """How many of something.

    >>> count(1, "session"), count(1200, "session")
    ('1 session', '1,200 sessions')
    """
    return f"{n:,} {word}" + ("" if n == 1 else "s")


def duration(value_s: float) -> str:
    """A length of time, coarse.

    >>> duration(9.4), duration(75), duration(7260)
    ('9 s', '1 min 15 s', '2 h 1 min')
    """
    seconds = max(0, round(value_s))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


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
