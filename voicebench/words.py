"""Values as people read them. What doesn't exist is a dash, never 0."""

from __future__ import annotations

NOTHING = "–"


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


def shortened(text: str | None, longest: int = 300) -> str:
    """Somebody else's words, bounded.

    >>> shortened("words that go on", 7), shortened(None)
    ('words …', '')
    """
    if text is None or len(text) <= longest:
        return text or ""
    return text[: longest - 1] + "…"
