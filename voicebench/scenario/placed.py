"""Data that remembers where it stands in its file, so that a mistake gets a line and a column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from voicebench.errors import Problem
from voicebench.scenario.mistakes import Mistake, Path, path_text

MAX_PROBLEMS = 500
"""A file with more mistakes than this is the wrong file; the rest are counted."""

Mark = tuple[int, int]
"""Line and column, both from 1."""


@dataclass(frozen=True, slots=True)
class Document:
    """What a file says and where it says it. Paths are from the root; a duplicate's inside is never in `value`."""

    value: Any
    source: str
    values_at: dict[Path, Mark] = field(default_factory=dict)
    keys_at: dict[Path, Mark] = field(default_factory=dict)
    typed: dict[Path, str] = field(default_factory=dict)
    """How a number, truth value or nothing was written."""
    mistakes: tuple[Mistake, ...] = ()
    unknown: frozenset[Path] = frozenset()
    """Values that could not be read (an alias, a tag): further mistakes there would only confuse."""
    prefix: str = ""
    """What stands before every path in messages: where this document sits in a larger one."""

    def problem(self, mistake: Mistake) -> Problem:
        """The mistake with its place: the key's, the value's, or the nearest enclosing one's."""
        line, column = self._place(mistake)
        path = path_text(mistake.path)
        joint = "." if self.prefix and path and not path.startswith("[") else ""
        return Problem(self.source, line, column, f"{self.prefix}{joint}{path}", mistake.message)

    def problems(self, mistakes: Iterable[Mistake]) -> list[Problem]:
        """All mistakes in the order of the file, repeated ones once; `MAX_PROBLEMS` and a count of the rest."""
        own = set(self.mistakes)
        known = [each for each in mistakes if each in own or not self._is_unknown(each.path)]
        problems = list(dict.fromkeys(self.problem(each) for each in known))
        problems.sort(key=lambda each: (each.line or 0, each.column or 0))
        more = len(problems) - MAX_PROBLEMS
        if more > 0:
            rest = Problem(self.source, None, None, "", f"{more} more mistakes in this file are not listed")
            return [*problems[:MAX_PROBLEMS], rest]
        return problems

    def with_text_at(self, patterns: tuple[tuple[str, ...], ...]) -> Document:
        """The document with numbers and truth values read as the text that was typed, where text is wanted.

        Args:
            patterns: Paths; `*` is any key or position.
        """
        return replace(self, value=self._texts(self.value, (), patterns))

    def _texts(self, value: Any, path: Path, patterns: tuple[tuple[str, ...], ...]) -> Any:
        here = len(path)
        if isinstance(value, dict):
            return {key: self._texts(inner, (*path, key), _follow(patterns, here, key)) for key, inner in value.items()}
        if isinstance(value, list):
            below = _follow(patterns, here, "*")
            return [self._texts(inner, (*path, index), below) for index, inner in enumerate(value)]
        if isinstance(value, bool | int | float) and any(len(pattern) == here for pattern in patterns):
            return self.typed.get(path) or (str(value).lower() if isinstance(value, bool) else str(value))
        return value

    def _place(self, mistake: Mistake) -> tuple[int | None, int | None]:
        if mistake.at_key and mistake.path in self.keys_at:
            return self.keys_at[mistake.path]
        for length in range(len(mistake.path), -1, -1):
            if mistake.path[:length] in self.values_at:
                return self.values_at[mistake.path[:length]]
        return None, None

    def _is_unknown(self, path: Path) -> bool:
        return bool(self.unknown) and any(path[:length] in self.unknown for length in range(len(path) + 1))


def _follow(patterns: tuple[tuple[str, ...], ...], depth: int, key: str) -> tuple[tuple[str, ...], ...]:
    return tuple(pattern for pattern in patterns if len(pattern) > depth and pattern[depth] in ("*", key))
