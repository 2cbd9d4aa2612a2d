"""Distributions that merge exactly.

A measured time is rounded once, to a tick of 0.1 ms, when its turn is scored. A distribution is then a count per
integer tick: merging is addition, so neither the number of workers nor the order of arrival changes a bit, and memory
grows with the number of different values.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate

TICKS_PER_MS = 10
NOISE_DIGITS = 9
"""A millionth of a microsecond: far below what any interpolation of ticks can mean, far above a double's last bit."""
FEW_FOR_P95 = 20
FEW_FOR_P99 = 100


def to_ticks(value_ms: float) -> int:
    """The nearest tick of 0.1 ms, half to even.

    >>> to_ticks(748.04), to_ticks(-150.0)
    (7480, -1500)
    """
    return round(value_ms * TICKS_PER_MS)


def round_ms(value_ms: float) -> float:
    """Milliseconds rounded to 0.1, as every record carries them.

    >>> round_ms(33.333333)
    33.3
    """
    return to_ticks(value_ms) / TICKS_PER_MS


class Distribution:
    """Counts per tick of 0.1 ms.

    >>> latencies = Distribution([760.0, 700.0, 660.0])
    >>> latencies.percentile(90)
    748.0
    >>> latencies.merge(Distribution([660.0])).count
    4
    """

    __slots__ = ("_counts", "_ranks")

    def __init__(self, values_ms: Iterable[float] = ()) -> None:
        self._counts: Counter[int] = Counter(map(to_ticks, values_ms))
        self._ranks: tuple[list[int], list[int]] | None = None
        """The ticks in order, and how many values there are up to each; None: to be made again."""

    @classmethod
    def from_counts(cls, counts: Mapping[int, int]) -> Distribution:
        """From ticks to how often each occurred.

        Raises:
            ValueError: A count is below 1, so something was subtracted that never came.
        """
        if any(count < 1 for count in counts.values()):
            raise ValueError("every count of a distribution is at least 1")
        made = cls()
        made._counts.update(counts)
        return made

    @property
    def counts(self) -> dict[int, int]:
        """Ticks to how often each occurred, ascending."""
        return dict(sorted(self._counts.items()))

    def add(self, value_ms: float) -> None:
        """Count one value, in ms."""
        self._ranks = None
        self._counts[to_ticks(value_ms)] += 1

    def merge(self, other: Distribution) -> Distribution:
        """Both together, as a new distribution; merging has no order."""
        merged = Distribution()
        merged._counts = self._counts + other._counts
        return merged

    def update(self, other: Distribution) -> None:
        """Take the other's values in."""
        self._ranks = None
        self._counts.update(other._counts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Distribution) and self._counts == other._counts

    __hash__ = None  # type: ignore[assignment]

    @property
    def count(self) -> int:
        """How many values."""
        return self._counts.total()

    @property
    def min(self) -> float | None:
        """The smallest value, ms."""
        return min(self._counts) / TICKS_PER_MS if self._counts else None

    @property
    def max(self) -> float | None:
        """The largest value, ms."""
        return max(self._counts) / TICKS_PER_MS if self._counts else None

    @property
    def mean(self) -> float | None:
        """The mean, ms: an exact integer sum, divided once."""
        if not self._counts:
            return None
        return sum(tick * count for tick, count in self._counts.items()) / (TICKS_PER_MS * self.count)

    def percentile(self, percent: float) -> float | None:
        """The percentile by linear interpolation between closest ranks.

        Args:
            percent: 0 to 100.

        Returns:
            Milliseconds, equal to the last bit to `numpy.percentile` of all the values. One value is every
            percentile; None when there is none.

        Raises:
            ValueError: `percent` is outside 0 to 100.
        """
        if not 0.0 <= percent <= 100.0:
            raise ValueError(f"percent must be between 0 and 100, got {percent}")
        if not self._counts:
            return None
        if self._ranks is None:
            ticks = sorted(self._counts)
            self._ranks = ticks, list(accumulate(self._counts[tick] for tick in ticks))
        ticks, upto = self._ranks
        rank = (upto[-1] - 1) * (percent / 100.0)
        below = math.floor(rank)
        low = _at_rank(ticks, upto, below)
        high = _at_rank(ticks, upto, min(below + 1, upto[-1] - 1))
        return _interpolate(low, high, rank - below)

    def as_dict(self) -> dict[str, float | int | None]:
        """What reports carry; what doesn't exist is None."""
        return {
            "count": self.count,
            "min": self.min,
            **{f"p{percent}": without_noise(self.percentile(percent)) for percent in (50, 90, 95, 99)},
            "max": self.max,
            "mean": without_noise(self.mean),
        }


def without_noise(value: float | None) -> float | None:
    """A computed number as a decimal, without the last bits' float noise: what is shown, and held against limits.

    >>> without_noise(704.3700000000001)
    704.37
    """
    return None if value is None else round(value, NOISE_DIGITS)


def _at_rank(ticks: list[int], upto: list[int], rank: int) -> float:
    return ticks[bisect_right(upto, rank)] / TICKS_PER_MS


def _interpolate(low: float, high: float, share: float) -> float:
    # From the nearer end: that is how numpy does it, and a naive a + (b - a) * t differs in the last bit.
    step = high - low
    return high - step * (1.0 - share) if share >= 0.5 else low + step * share
