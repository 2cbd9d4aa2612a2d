"""Decimal time: instants and durations as whole nanoseconds, so that 0.7 s + 100 ms is 0.8 s and limits are inclusive.

Floats stay at the edges (files, arrays, the clock); everything that is compared is compared here.
"""

from __future__ import annotations

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


def s_to_ns(seconds: float) -> int:
    """The nearest whole nanosecond.

    >>> s_to_ns(0.7) + ms_to_ns(100) == s_to_ns(0.8)
    True
    """
    return round(seconds * NS_PER_S)


def ms_to_ns(milliseconds: float) -> int:
    """The nearest whole nanosecond."""
    return round(milliseconds * NS_PER_MS)


def ns_to_ms(nanoseconds: int) -> float:
    """Milliseconds, unrounded."""
    return nanoseconds / NS_PER_MS


def ns_to_s(nanoseconds: int) -> float:
    """Seconds, unrounded."""
    return nanoseconds / NS_PER_S


def samples_to_ns(samples: int, sample_rate_hz: int) -> int:
    """When a sample lies, counted from sample 0.

    >>> samples_to_ns(441, 44100)
    10000000
    """
    return (samples * NS_PER_S * 2 + sample_rate_hz) // (2 * sample_rate_hz)
