"""What a user would hear: packets and clears -> the agent's track. No jitter buffer (the "edge model").

A packet is heard from its arrival on, or behind what is still queued. A clear drops what has arrived and has not been
played. What has been listened to (the horizon) never changes afterwards, so that the detector that listens during the
session and the one that scores it hear the same; and that whoever keeps the sound elsewhere may `let_go` of it here.
"""

from __future__ import annotations

import numpy as np

from voicebench.events import Samples

_FIRST_S = 2


class Playout:
    """The agent's track as it grows. Positions are samples since session start."""

    def __init__(self, sample_rate_hz: int, *, longest: int | None = None) -> None:
        """`longest`: where the session ends at the latest; nobody hears what would be played after it, so it is not
        kept, whatever the agent sends."""
        self._rate_hz = sample_rate_hz
        self._longest = longest
        self._track: Samples = np.zeros(_FIRST_S * sample_rate_hz, dtype=np.int16)
        self.base = 0
        """Where what is kept begins."""
        self.queued_until = 0
        """Where the next packet is heard at the earliest: the end of all audio placed and not dropped."""

    def place(self, samples: Samples, time_s: float, *, horizon: int) -> int:
        """Queue a packet that arrived at `time_s`, and return the position it is heard from.

        A packet stamped before the horizon was read late: it is placed there.
        """
        start = max(round(time_s * self._rate_hz), self.queued_until, horizon)
        self.queued_until = start + len(samples)
        if self._longest is not None and self.queued_until > self._longest:
            samples = samples[: max(0, self._longest - start)]
            if not len(samples):
                return start
        end = start + len(samples) - self.base
        if end > len(self._track):
            self._grow(end)
        self._track[start - self.base : end] = samples
        return start

    def clear(self, time_s: float, *, horizon: int) -> int:
        """Drop what is queued after `time_s`, and return how many samples that was."""
        cut = max(round(time_s * self._rate_hz), horizon)
        if cut >= self.queued_until:
            return 0
        dropped = self.queued_until - cut
        self._track[cut - self.base : self.queued_until - self.base] = 0
        self.queued_until = cut
        return dropped

    def heard(self, start: int, end: int) -> Samples:
        """The track from `start` to `end`, a view: silence where nothing was placed. `start` is at `base` at least."""
        if end - self.base > len(self._track):
            self._grow(end - self.base)
        return self._track[start - self.base : end - self.base]

    def track(self, n_samples: int) -> Samples:
        """The first `n_samples` of the track, a copy.

        Raises:
            RuntimeError: Some of it was let go of.
        """
        if self.base:
            raise RuntimeError(f"the first {self.base} samples of the track are kept elsewhere")
        return self.heard(0, n_samples).copy()

    def let_go(self, until: int) -> None:
        """Keep nothing before this place, which has been listened to."""
        used = max(0, self.queued_until - self.base)
        moved = self._track[until - self.base : max(used, until - self.base)]
        kept, first = len(moved), _FIRST_S * self._rate_hz
        if len(self._track) > first and kept <= first // 2:
            self._track = np.zeros(first, dtype=np.int16)
            self._track[:kept] = moved
        else:
            self._track[:kept] = moved
            self._track[kept:used] = 0
        self.base = until

    def _grow(self, length: int) -> None:
        # Doubling, zero-filled: an agent that sends an hour of audio at once costs an hour of memory, no more.
        track = np.zeros(max(length, 2 * len(self._track)), dtype=np.int16)
        track[: len(self._track)] = self._track
        self._track = track
