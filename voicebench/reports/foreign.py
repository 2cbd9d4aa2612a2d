"""Words of agents, files and workers: bounded, and without characters that hide or turn the text around them."""

from __future__ import annotations

import unicodedata

LONGEST = 600
_JOINERS = "\u200c\u200d"
"""Scripts and emoji need these; they are invisible and do no harm."""
_REPLACED = "\N{REPLACEMENT CHARACTER}"


def shown(text: object, longest: int = LONGEST) -> str:
    """Somebody's words on one line.

    >>> shown("a\\nb\\u202ec"), shown("words that go on", 7), shown(None)
    ('a b\ufffdc', 'words …', '')
    """
    return _cleaned("" if text is None else str(text), longest, lines=False)


def shown_lines(text: str, longest: int) -> str:
    """The same of a text whose lines stay lines."""
    return _cleaned(text, longest, lines=True)


def _cleaned(text: str, longest: int, *, lines: bool) -> str:
    if len(text) > longest:  # first, so that a megabyte costs no more than a line
        text = text[: longest - 1] + "…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if each.isprintable() or (lines and each == "\n") else _instead(each) for each in text)


def _instead(character: str) -> str:
    if character in _JOINERS:
        return character
    return " " if character.isspace() or unicodedata.category(character).startswith("Z") else _REPLACED
