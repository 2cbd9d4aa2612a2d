"""How long silence may last before it means something."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Liveness:
    """Seconds. A worker's lease ends before the master gives the worker up, so that no session is placed twice."""

    beat_s: float = 0.25
    late_s: float = 1.0
    lease_s: float = 3.0
    """From the send time of the last beat that was answered; then the worker places nothing until it is answered."""
    lost_s: float = 5.0
    final_s: float = 60.0
    """How long after its sessions must be over a worker that still beats may take to deliver its last results."""

    def __post_init__(self) -> None:
        if not 0 < self.beat_s < self.late_s < self.lease_s < self.lost_s:
            raise ValueError(f"beat, late, lease and lost must ascend, got {self}")

    def scaled(self, factor: float) -> Liveness:
        """All times multiplied: tests run at a tenth."""
        return Liveness(
            self.beat_s * factor, self.late_s * factor, self.lease_s * factor, self.lost_s * factor, self.final_s
        )


DEFAULT = Liveness()


class ClockOffset:
    """How far the master's monotonic clock is ahead of ours, by the exchange that took the least time.

    >>> offset = ClockOffset()
    >>> offset.add(sent_s=10.0, received_s=110.0, answered_s=110.5, got_s=10.75)
    >>> offset.ahead_s
    99.875
    """

    KEPT = 64

    def __init__(self) -> None:
        self._seen: list[tuple[float, float]] = []

    def add(self, *, sent_s: float, received_s: float, answered_s: float, got_s: float) -> None:
        """One exchange: sent and got by our clock, received and answered by the master's."""
        round_trip_s = (got_s - sent_s) - (answered_s - received_s)
        ahead_s = ((received_s - sent_s) + (answered_s - got_s)) / 2
        self._seen = [*self._seen[-(self.KEPT - 1) :], (round_trip_s, ahead_s)]

    @property
    def ahead_s(self) -> float | None:
        """None until there was an exchange. Wrong by half the round trip at most."""
        return min(self._seen)[1] if self._seen else None

    @property
    def round_trip_s(self) -> float | None:
        return min(self._seen)[0] if self._seen else None
