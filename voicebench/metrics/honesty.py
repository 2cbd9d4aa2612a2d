"""Our own error bar: how late the tester was around a turn."""

from __future__ import annotations

import numpy.typing as npt

from voicebench.distribution import round_ms
from voicebench.recording import Lateness

RELIABLE_MS = 10.0
"""Up to this error a turn is reliable. Source: half a frame of 20 ms, the grid's own resolution."""


def turn_error_ms(lateness: Lateness, frame_ns: int, onset_ns: int, offset_ns: int, decided_ns: int) -> float:
    """The largest error that our own lateness can have put into a turn's numbers.

    Args:
        lateness: Of every frame of the session, arrays of shape (frames,), ms.
        frame_ns: Length of the session's frame.
        onset_ns, offset_ns: The user's speech in the turn.
        decided_ns: When the reply began, the agent stopped, or the turn's time-out passed.

    Returns:
        Milliseconds, rounded to 0.1: the largest of the worst send lateness from the onset to the decision, the
        lateness of the frame that holds the offset, and the widest gap between two looks at the agent's socket around
        onset and decision.

    Definition: docs/metrics.md, "Reliable turns".
    """
    onset, offset, decided = (instant_ns // frame_ns for instant_ns in (onset_ns, offset_ns, decided_ns))
    parts = (
        _worst(lateness.send_ms, onset, decided),
        _worst(lateness.send_ms, offset - 1, offset),
        _worst(lateness.drain_gap_ms, onset, onset + 1),
        _worst(lateness.drain_gap_ms, decided, decided + 1),
    )
    return round_ms(max(parts))


def _worst(values_ms: npt.NDArray, first: int, last: int) -> float:  # type: ignore[type-arg]
    part = values_ms[max(first, 0) : max(last, 0) + 1]
    return float(part.max()) if len(part) else 0.0
