"""Finding speech in a track by its energy: a streaming detector, and the same for a whole track at once.

Both take their decisions from `audio.level` and count in whole analysis frames, so they agree to the last frame; a
property test holds them to it. The definition, with a drawing: docs/metrics.md, "Detecting speech".
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from voicebench.audio.level import Energies, energy_limit, frame_energies
from voicebench.events import Samples
from voicebench.records import Segment
from voicebench.scenario.model import VadSettings


@dataclass(frozen=True, slots=True)
class VadEvent:
    """A confirmed boundary. `time_s` is backdated to the first active frame's start or the last one's end."""

    kind: Literal["onset", "offset"]
    time_s: float


@dataclass(frozen=True, slots=True)
class FrameRule:
    """A detector's settings in frames and energies, for one sample rate."""

    frame_samples: int
    open_energy: float
    hold_energy: float
    speech_frames: int
    silence_frames: int
    sample_rate_hz: int

    def time_s(self, frame: int) -> float:
        """When the frame starts."""
        return frame * self.frame_samples / self.sample_rate_hz


@lru_cache(maxsize=256)
def frame_rule(sample_rate_hz: int, settings: VadSettings) -> FrameRule:
    """Settings in ms and dB as whole frames and energies.

    An analysis frame is the nearest whole number of samples, at least one; durations between frames round up to whole
    (nominal) frames, and one frame is the least that can open or close a segment.
    """
    frame_samples = max(1, round(round(settings.frame_ms * sample_rate_hz / 1000.0, 9)))
    return FrameRule(
        frame_samples=frame_samples,
        open_energy=energy_limit(settings.threshold_db, frame_samples),
        hold_energy=energy_limit(settings.threshold_db - settings.hysteresis_db, frame_samples),
        speech_frames=_whole_frames(settings.min_speech_ms, settings.frame_ms),
        silence_frames=_whole_frames(settings.min_silence_ms, settings.frame_ms),
        sample_rate_hz=sample_rate_hz,
    )


def _whole_frames(duration_ms: float, frame_ms: float) -> int:
    # Decimal time: 0.3 / 0.1 is 3 frames, not 4.
    return max(1, math.ceil(round(duration_ms / frame_ms, 9)))


class StreamingVad:
    """The detector for audio as it comes. Blocks of any size give the events that one block would.

    SILENT -> (open_energy or more for speech_frames) -> SPEAKING -> (below hold_energy for silence_frames) -> SILENT
    """

    def __init__(self, sample_rate_hz: int, settings: VadSettings | None = None) -> None:
        self.rule = frame_rule(sample_rate_hz, settings or VadSettings())
        self._rest: Samples = np.zeros(0, dtype=np.int16)
        self._energies = array("d")
        self._frames = 0
        self._speaking = False
        self._run = 0
        """Frames in a row: loud enough to open while silent, too quiet to hold while speaking."""

    @property
    def speaking(self) -> bool:
        """Whether a confirmed segment is open."""
        return self._speaking

    @property
    def undecided(self) -> bool:
        """Whether a segment is open or may be opening, so that the track's end so far is not yet silence."""
        return self._speaking or self._run > 0

    @property
    def frames(self) -> int:
        """Whole analysis frames heard."""
        return self._frames

    @property
    def energies(self) -> Energies:
        """Of all whole analysis frames that were pushed as samples, float64 of shape (frames,), a copy."""
        return np.array(self._energies)

    def push(self, samples: Samples) -> list[VadEvent]:
        """Hear a block, int16 of shape (samples,), and return the boundaries it confirms.

        Raises:
            TypeError: The block is not int16; levels of anything else would differ from the recorded track's.
        """
        if samples.dtype != np.int16:
            raise TypeError(f"the detector hears int16 samples, got {samples.dtype}")
        if len(self._rest):
            samples = np.concatenate([self._rest, samples])
        n_whole = len(samples) // self.rule.frame_samples * self.rule.frame_samples
        self._rest = samples[n_whole:].copy()
        energies = frame_energies(samples, self.rule.frame_samples)
        self._energies.frombytes(energies.tobytes())
        return self.push_energies(energies.tolist())

    def push_energies(self, energies: Iterable[float]) -> list[VadEvent]:
        """As `push`, for whole frames whose energies are known."""
        events: list[VadEvent] = []
        rule = self.rule
        for energy in energies:
            self._frames += 1
            if self._speaking:
                self._run = 0 if energy >= rule.hold_energy else self._run + 1
                if self._run == rule.silence_frames:
                    events.append(self._turn_over("offset"))
            else:
                self._run = self._run + 1 if energy >= rule.open_energy else 0
                if self._run == rule.speech_frames:
                    events.append(self._turn_over("onset"))
        return events

    def flush(self) -> list[VadEvent]:
        """End of the track: an open segment ends at its last active frame."""
        return [self._turn_over("offset")] if self._speaking else []

    def _turn_over(self, kind: Literal["onset", "offset"]) -> VadEvent:
        event = VadEvent(kind, self.rule.time_s(self._frames - self._run))
        self._speaking = kind == "onset"
        self._run = 0
        return event


def detect_segments(track: Samples, sample_rate_hz: int, settings: VadSettings | None = None) -> tuple[Segment, ...]:
    """Find the speech in a whole track.

    Args:
        track: int16, shape (samples,), sample 0 at session start.
        sample_rate_hz: The track's rate.
        settings: The detector's settings, the defaults when None.

    Returns:
        Segments in order, seconds since session start, never touching.

    Error: one analysis frame at either end. Definition: specification, "Speech detection".

    >>> speech = np.full(8000, 3000, dtype=np.int16)
    >>> detect_segments(np.concatenate([np.zeros(8000, np.int16), speech, np.zeros(8000, np.int16)]), 16000)
    (Segment(start_s=0.5, end_s=1.0),)
    """
    rule = frame_rule(sample_rate_hz, settings or VadSettings())
    return segments_of(frame_energies(track, rule.frame_samples), rule)


def segments_of(energies: Energies, rule: FrameRule) -> tuple[Segment, ...]:
    """Segments from the energies of a whole track's analysis frames, shape (frames,)."""
    opens = [
        start + rule.speech_frames - 1
        for start, end in _runs(energies >= rule.open_energy)
        if end - start >= rule.speech_frames
    ]
    quiet = _runs(energies < rule.hold_energy)
    closes = [start + rule.silence_frames - 1 for start, end in quiet if end - start >= rule.silence_frames]
    n_frames = len(energies)
    silent_at_the_end = n_frames - quiet[-1][0] if quiet and quiet[-1][1] == n_frames else 0
    segments: list[Segment] = []
    frame = -1
    while (at := bisect_right(opens, frame)) < len(opens):
        opened = opens[at]
        close_at = bisect_right(closes, opened)
        closed = close_at < len(closes)
        frame = closes[close_at] if closed else n_frames - 1
        end = frame + 1 - (rule.silence_frames if closed else silent_at_the_end)
        segments.append(Segment(rule.time_s(opened + 1 - rule.speech_frames), rule.time_s(end)))
    return tuple(segments)


def _runs(flags: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where runs of set flags begin and end (exclusive), in order."""
    framed = np.zeros(len(flags) + 2, dtype=np.bool_)
    framed[1:-1] = flags
    edges = np.flatnonzero(framed[1:] != framed[:-1]).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))
