"""Whether a series of figures drifts: a line through it that single bursts don't bend, and how sure its sign is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

SURE_Z = 2.0
"""Of Mann and Kendall's test. One series in forty without a trend passes it, and must then still have grown enough."""


@dataclass(frozen=True)
class Trend:
    """The median of the slopes between all pairs (Theil and Sen), and how many of them rise rather than fall."""

    first: float
    """Where the line begins."""
    growth: float
    """How far it has risen at its end."""
    z: float

    def drifts(self, floor: float) -> bool:
        """It rises, surely, and by more than `floor`: what sinks is nobody's leak."""
        return self.z > SURE_Z and self.growth > floor


def trend(times_s: Sequence[float], values: Sequence[float]) -> Trend:
    """The trend of a series of three values or more, at ascending times.

    >>> rising = trend([0, 1, 2, 3, 4, 5, 6, 7], [10, 11, 12, 90, 14, 15, 16, 17])
    >>> rising.growth, rising.drifts(5.0), rising.drifts(8.0)
    (7.0, True, False)
    >>> trend([0, 1, 2, 3, 4, 5, 6, 7], [12, 10, 13, 11, 12, 10, 13, 11]).drifts(0.0)
    False
    """
    n = len(values)
    if n < 3 or n != len(times_s):
        raise ValueError(f"a trend wants three values or more, each with its time: {len(times_s)} times, {n} values")
    points = list(zip(times_s, values, strict=True))
    rises = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in itertools.combinations(points, 2)]
    slope = median(rises)
    score = sum((each > 0) - (each < 0) for each in rises)
    spread = math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    first = median(value - slope * (at_s - times_s[0]) for at_s, value in points)
    return Trend(first, slope * (times_s[-1] - times_s[0]), (score - math.copysign(min(1, abs(score)), score)) / spread)
