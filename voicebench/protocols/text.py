"""Text from an agent is hostile input: it travels through msgpack, SQLite, JSON, XML and a browser."""

from __future__ import annotations

import re

MAX_TRANSCRIPT_CHARS = 10_000
"""About ten minutes of speech in one transcript; a longer one is cut there."""

# What some later station cannot carry: lone surrogates (msgpack, SQLite, files) and control characters (XML).
_UNCARRIABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def clean_text(text: str, max_chars: int = MAX_TRANSCRIPT_CHARS) -> str:
    """The text with everything replaced that could not be stored or sent on, and cut at `max_chars`.

    >>> clean_text("a" + chr(0xD800) + chr(0) + "b") == "a" + 2 * chr(0xFFFD) + "b"
    True
    """
    return _UNCARRIABLE.sub("�", text[:max_chars])
