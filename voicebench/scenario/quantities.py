"""Durations and rates with their unit: `90s`, `5/s`, `1s..5s`. A bare number is refused, never guessed at."""

from __future__ import annotations

import re
from decimal import Decimal

NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
DURATION_PATTERN = rf"{NUMBER}(?:ms|s|m|h)"
RATE_PATTERN = rf"{NUMBER}/(?:s|m|h)"
RANGE_PATTERN = rf"{DURATION_PATTERN}(?:\.\.{DURATION_PATTERN})?"

MAX_DURATION_S = 30 * 86400.0
"""Thirty days: longer than any test, short enough that a slip of the finger is noticed."""
MAX_RATE_PER_S = 100_000.0

_UNIT_S = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600)}
_SHOWN = 40


def parse_duration_s(text: str) -> float:
    """A duration with its unit, as seconds.

    Args:
        text: `<number>(ms|s|m|h)`, nothing around it.

    Returns:
        Seconds, 0 or more, exact in decimal before it becomes a float.

    Raises:
        ValueError: No unit, another form, or more than 30 days; the text says what would be right.

    >>> parse_duration_s("90s"), parse_duration_s("250ms"), parse_duration_s("1.1m")
    (90.0, 0.25, 66.0)
    """
    match = re.fullmatch(rf"({NUMBER})(ms|s|m|h)", text)
    if match is None:
        if re.fullmatch(NUMBER, text):
            raise ValueError(f"'{_short(text)}' has no unit: write {text}s, {text}ms, {text}m or {text}h")
        raise ValueError(
            f"'{_short(text)}' is not a duration: write a number and its unit, such as 250ms, 90s, 5m or 1h"
        )
    seconds = float(Decimal(match[1]) * _UNIT_S[match[2]])
    if seconds > MAX_DURATION_S:
        raise ValueError(f"'{_short(text)}' is more than 30 days")
    return seconds


def parse_rate_per_s(text: str) -> float:
    """A rate with its unit of time, as events a second.

    Args:
        text: `<number>/(s|m|h)`, above 0.

    Raises:
        ValueError: No unit, another form, 0, or more than 100,000 a second; the text says what would be right.

    >>> parse_rate_per_s("5/s"), parse_rate_per_s("30/m")
    (5.0, 0.5)
    """
    match = re.fullmatch(rf"({NUMBER})/(s|m|h)", text)
    if match is None:
        if re.fullmatch(NUMBER, text):
            raise ValueError(f"'{_short(text)}' has no unit: write {text}/s, {text}/m or {text}/h")
        raise ValueError(f"'{_short(text)}' is not a rate: write a number and its unit of time, such as 5/s or 30/m")
    rate_per_s = float(Decimal(match[1]) / _UNIT_S[match[2]])
    if rate_per_s <= 0:
        raise ValueError(f"'{_short(text)}' is no rate: it must be above 0")
    if rate_per_s > MAX_RATE_PER_S:
        raise ValueError(f"'{_short(text)}' is more than {MAX_RATE_PER_S:.0f} a second")
    return rate_per_s


def parse_duration_range_s(text: str) -> tuple[float, float]:
    """A range of durations, or one duration for both ends.

    Returns:
        Shortest and longest, seconds.

    Raises:
        ValueError: As `parse_duration_s`, or the range runs backwards.

    >>> parse_duration_range_s("1s..5s"), parse_duration_range_s("500ms")
    ((1.0, 5.0), (0.5, 0.5))
    """
    low, dots, high = text.partition("..")
    shortest_s = parse_duration_s(low)
    longest_s = parse_duration_s(high) if dots else shortest_s
    if longest_s < shortest_s:
        raise ValueError(f"'{_short(text)}' runs backwards: write {high}..{low}")
    return shortest_s, longest_s


def _short(text: str) -> str:
    printable = "".join(character if character.isprintable() else "?" for character in text[:_SHOWN])
    return printable + ("..." if len(text) > _SHOWN else "")
