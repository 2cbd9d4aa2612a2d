"""How the mock agent's replies get onto the wire, on the clock of the audio it hears: early, or with gaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from voicebench.events import Samples


@dataclass(frozen=True, slots=True)
class Stutter:
    """A pause of `gap_ms` in each reply, after `at_ms` of its audio."""

    gap_ms: float
    at_ms: float


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What the mock server does to test the tester."""

    burst: float = 1.0
    """Agent audio is sent this many times faster than real time; 0: a whole reply at once."""
    capacity: int | None = None
    """Above this many sessions at once each further one makes every response `CAPACITY_STEP_MS` slower."""
    fail_rate: float = 0.0
    """Share of connections refused with HTTP 503, 0 to 1."""
    hangup_after_ms: float | None = None
    """Close with 1000 this long after the connection was accepted."""
    stutter: tuple[Stutter, ...] = ()


CAPACITY_STEP_MS = 50.0


def capacity_delay_ms(capacity: int | None, sessions: int) -> float:
    """The known knee: how much later than usual a response comes with this many sessions at once.

    >>> capacity_delay_ms(10, 10), capacity_delay_ms(10, 13), capacity_delay_ms(None, 500)
    (0.0, 150.0, 0.0)
    """
    return 0.0 if capacity is None else CAPACITY_STEP_MS * max(0, sessions - capacity)


class Delivery:
    """One reply on its way. With each frame heard, `advance` says which of its samples go out now.

    A stutter holds back what comes behind its place until the pause is over, then catches up, so that a caller who
    plays at arrival hears exactly that gap there, however fast the rest is sent. A gap that is no whole number of
    frames ends with the next frame.
    """

    def __init__(self, reply: Samples, frame_samples: int, rate_hz: int, options: ServerOptions) -> None:
        self._frame = frame_samples
        self._burst = options.burst
        ordered = sorted(options.stutter, key=lambda stutter: stutter.at_ms)
        self._gaps = [(_samples(stutter.at_ms, rate_hz), _samples(stutter.gap_ms, rate_hz)) for stutter in ordered]
        # Whole frames, the last one filled up with silence, as the agent itself says them.
        self._total = -(-len(reply) // frame_samples) * frame_samples
        self._reply = np.concatenate((reply, np.zeros(self._total - len(reply), dtype=np.int16)))
        self._elapsed = 0
        self.sent = 0

    @property
    def done(self) -> bool:
        """Whether the whole reply has gone out."""
        return self.sent >= self._total

    def advance(self, n_samples: int) -> list[Samples]:
        """Let `n_samples` of time pass and return the messages that are due, each of one frame at most."""
        start = self._elapsed
        self._elapsed += n_samples
        return self._up_to(self._due(start))

    def rest(self) -> list[Samples]:
        """All that has not gone out yet."""
        return self._up_to(self._total)

    def _due(self, start: int) -> int:
        due = min(self._total, int(self._elapsed * self._burst)) if self._burst else self._total
        passed = 0
        for at, gap in self._gaps:
            if start < at + passed + gap:
                return min(due, at)
            passed += gap
        return due

    def _up_to(self, due: int) -> list[Samples]:
        messages: list[Samples] = []
        while self.sent < due:
            stop = min(due, (self.sent // self._frame + 1) * self._frame)
            messages.append(self._reply[self.sent : stop])
            self.sent = stop
        return messages


def _samples(duration_ms: float, rate_hz: int) -> int:
    return round(duration_ms * rate_hz / 1000.0)
