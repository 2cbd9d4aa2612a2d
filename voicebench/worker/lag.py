"""How late the loop was since somebody asked last: written by the loop, taken by the thread that watches it."""

from __future__ import annotations


class Lag:
    """The worst so far, seconds. Whoever paces sessions compares and sets; 0: nothing was paced."""

    __slots__ = ("gap_s", "late_s")

    def __init__(self) -> None:
        self.gap_s = 0.0
        """Between two looks at the agents."""
        self.late_s = 0.0
        """Of a frame behind its due time."""


class LagMeter:
    """`now` is what the loop writes to. Taking it needs no lock: what is written while it is taken counts next time."""

    def __init__(self) -> None:
        self.now = Lag()
        self._former = Lag()
        self._former_gap_s = self._former_late_s = 0.0

    def look(self, gap_s: float) -> None:
        if gap_s > self.now.gap_s:
            self.now.gap_s = gap_s

    def sent(self, late_s: float) -> None:
        if late_s > self.now.late_s:
            self.now.late_s = late_s

    def take(self) -> tuple[float, float]:
        """The widest gap and the worst lateness since the last call, seconds. From one thread."""
        taken, self.now = self.now, Lag()
        gap_s, late_s = taken.gap_s, taken.late_s
        former, former_gap_s, former_late_s = self._former, self._former_gap_s, self._former_late_s
        self._former, self._former_gap_s, self._former_late_s = taken, gap_s, late_s
        if former.gap_s > former_gap_s:
            gap_s = max(gap_s, former.gap_s)
        if former.late_s > former_late_s:
            late_s = max(late_s, former.late_s)
        return gap_s, late_s
