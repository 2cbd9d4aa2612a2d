"""A mistake in a document before it has a place in a file, and the words all mistakes are told in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Keys and list positions from the root of a document."""

UNSEEN = "\0"
"""Begins a step of a path that people do not see: the inside of a repeated key. No key of a file begins so."""

SHOWN_CHARACTERS = 60
"""A value quoted in an error is cut here: it must not push the remedy off the screen."""

NAME_PATTERN = r"^[^\r\n]*\S[^\r\n]*$"
"""Text that names something: on one line, and not blank."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong at a path. `at_key`: the key itself is wrong, not its value."""

    path: Path
    message: str
    at_key: bool = False


def path_text(path: Path) -> str:
    """A path as people write it.

    >>> path_text(("turns", 2, "start", "delay_ms"))
    'turns[2].start.delay_ms'
    """
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif not step.startswith(UNSEEN):
            text += ("." if text else "") + (clip_text(step) or "''")
    return text


def clip_text(text: str) -> str:
    """Text on one line, shortened, without control characters: fit for a terminal and a log."""
    shown = text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in shown)


def shown(value: object, typed: str | None = None, *, secret: bool = False) -> str:
    """A value as the reader of an error finds it in the file.

    Args:
        value: What was read.
        typed: How a number or a truth value was written, if that is known.
        secret: Texts may be credentials: name the kind, never the content.

    >>> shown("stopp"), shown(True), shown([]), shown("hunter2", secret=True)
    ("'stopp'", 'true', 'an empty list', 'a text')
    """
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return "a text" if secret else f"'{clip_text(value)}'"
    if isinstance(value, bool):
        return typed or str(value).lower()
    if isinstance(value, int | float):
        return clip_text(typed or repr(value))
    kind = "mapping" if isinstance(value, Mapping) else "list" if isinstance(value, list | tuple) else "thing"
    return f"a {kind}" if kind == "thing" or value else f"an empty {kind}"


def nearest(word: str, words: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known word that was probably meant, alike by `cutoff` at least (0 to 1).

    >>> nearest("stopp", ["respond", "stop", "ignore"])
    'stop'
    """
    if len(word) > SHOWN_CHARACTERS:
        return None
    by_folded = {known.casefold(): known for known in words}
    near = difflib.get_close_matches(word.casefold(), by_folded, n=1, cutoff=cutoff)
    return by_folded[near[0]] if near else None


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """A sentence to append, or nothing.

    >>> did_you_mean("stopp", ["stop"])
    " Did you mean 'stop'?"
    """
    near = nearest(word, words)
    return f" Did you mean '{near}'?" if near else ""


def expectation(schema: Mapping[str, Any]) -> str:
    """What a JSON Schema node wants, in words.

    >>> expectation({"type": "number", "minimum": 5, "maximum": 1000})
    'a number from 5 to 1000'
    >>> expectation({"enum": ["all", "failed", "none"]})
    'one of all, failed, none'
    """
    if "enum" in schema:
        return "one of " + ", ".join(str(value) for value in schema["enum"])
    if "examples" in schema:
        return "a value such as " + " or ".join(str(example) for example in schema["examples"])
    kind = schema.get("type")
    if kind in ("number", "integer"):
        return ("a whole number" if kind == "integer" else "a number") + _range(schema)
    if kind == "string":
        return "a non-empty text on one line" if schema.get("pattern") == NAME_PATTERN else "a text"
    if kind == "array":
        return "a list with at least one entry" if schema.get("minItems") else "a list"
    return {"boolean": "true or false", "object": "a mapping (key: value)"}.get(str(kind), "what belongs here")


def _range(schema: Mapping[str, Any]) -> str:
    low, above, high = schema.get("minimum"), schema.get("exclusiveMinimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f" from {_number(low)} to {_number(high)}"
    if above is not None and high is not None:
        return f" above {_number(above)} and up to {_number(high)}"
    if low is not None:
        return f", {_number(low)} or more"
    if above is not None:
        return f" above {_number(above)}"
    return f", {_number(high)} or less" if high is not None else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
