"""Values as people read them. What doesn't exist is a dash, never 0."""

from __future__ import annotations

from voicebench.distribution import FEW_FOR_P95, FEW_FOR_P99, Distribution

NOTHING = "–"
FEW = "*"
"""Beside a p95 of fewer than 20 values or a p99 of fewer than 100; a footnote explains it."""


def ms(value_ms: float | None) -> str:
    """A duration.

    >>> ms(748.04), ms(None)
    ('748 ms', '–')
    """
    return NOTHING if value_ms is None else f"{value_ms:,.0f} ms"


def percentile(values: Distribution, percent: float) -> str:
    """A percentile, marked where it has few values.

    >>> percentile(Distribution([100.0]), 95)
    '100 ms*'
    """
    few = values.count < (FEW_FOR_P99 if percent >= 99 else FEW_FOR_P95 if percent >= 95 else 0)
    shown = ms(values.percentile(percent))
    return shown + FEW if few and values.count else shown


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
