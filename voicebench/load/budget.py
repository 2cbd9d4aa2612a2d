"""The budget in minutes of conversation: how many more sessions can be afforded."""

from __future__ import annotations

import math


class AudioBudget:
    """Of a whole run, seconds. A session that goes on, or may be started, counts as long as the longest so far.

    >>> budget = AudioBudget(max_s=100.0, shortest_s=10.0)
    >>> budget.affordable(going_on=2)
    8
    >>> budget.spend(30.0)
    >>> budget.affordable(going_on=1)
    1
    """

    def __init__(self, max_s: float, shortest_s: float) -> None:
        """
        Args:
            max_s: All sessions together.
            shortest_s: What a session takes at least: until one has ended, nothing else is known.
        """
        self._max_s = max_s
        self._spent_s = 0.0
        self._longest_s = shortest_s

    def spend(self, session_s: float) -> None:
        """A session has ended."""
        self._spent_s += session_s
        self._longest_s = max(self._longest_s, session_s)

    def affordable(self, going_on: int) -> int:
        """How many sessions more, beside those that go on or were already granted."""
        left_s = self._max_s - self._spent_s - going_on * self._longest_s
        return max(0, math.floor(left_s / self._longest_s + 1e-9))
