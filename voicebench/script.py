"""What is said in a session: a scenario with its audio on the frame grid, which all its sessions share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from voicebench.audio.level import Energies, frame_energies
from voicebench.events import Samples
from voicebench.instants import NS_PER_S, s_to_ns, samples_to_ns
from voicebench.scenario.model import Scenario
from voicebench.scoring import session_frame_samples
from voicebench.vad import detect_segments, frame_rule


@dataclass(frozen=True, slots=True, eq=False)
class Script:
    """A scenario with its audio: what every session of it shares.

    Attributes:
        clips: int16, one a turn, at the scenario's rate.
        clip_frames: Frames that each clip takes on the session's grid; the last is filled up with silence.
        clip_energies: Of each clip's analysis frames (the user's), float64, shape (frames,), the last filled up too.
        speech_ns: First and last boundary of the speech in each clip, as the user's detector hears it; None when it
            hears nothing.
    """

    scenario: Scenario
    clips: tuple[Samples, ...]
    frame_samples: int
    clip_frames: tuple[int, ...]
    clip_energies: tuple[Energies, ...]
    speech_ns: tuple[tuple[int, int] | None, ...]

    def frame(self, clip: int, at: int) -> Samples:
        """One frame of a clip, filled up with silence."""
        part = self.clips[clip][at * self.frame_samples : (at + 1) * self.frame_samples]
        return part if len(part) == self.frame_samples else np.pad(part, (0, self.frame_samples - len(part)))

    def tick_ns(self, tick: int) -> int:
        """When the tick is due, nanoseconds since session start."""
        return samples_to_ns(tick * self.frame_samples, self.scenario.sample_rate)

    def tick_from(self, instant_ns: int) -> int:
        """The first tick at or after the instant."""
        grid = self.frame_samples * NS_PER_S
        tick = max(0, -(-instant_ns * self.scenario.sample_rate // grid))
        while tick > 0 and self.tick_ns(tick - 1) >= instant_ns:  # a tick's own instant was rounded up to whole ns
            tick -= 1
        return tick

    @property
    def frame_s(self) -> float:
        """The true period of the grid, seconds."""
        return self.frame_samples / self.scenario.sample_rate


def prepare(scenario: Scenario, clips: Sequence[Samples]) -> Script:
    """Lay the turns' audio on the session's frame grid.

    Raises:
        ValueError: Not one clip a turn.
    """
    if len(clips) != len(scenario.turns):
        raise ValueError(f"{len(scenario.turns)} turns need as many clips, got {len(clips)}")
    frame_samples = session_frame_samples(scenario.sample_rate, scenario.frame_ms)
    analysed_samples = frame_rule(scenario.sample_rate, scenario.vad_user).frame_samples
    return Script(
        scenario=scenario,
        clips=tuple(clips),
        frame_samples=frame_samples,
        clip_frames=tuple(-(-len(clip) // frame_samples) for clip in clips),
        clip_energies=tuple(_clip_energies(clip, analysed_samples) for clip in clips),
        speech_ns=tuple(_speech_ns(clip, scenario) for clip in clips),
    )


def shortest_session_s(script: Script) -> float:
    """What a session of this script lasts at least: its turns' audio and the tail, no answer waited for."""
    scenario = script.scenario
    spoken_s = sum(len(clip) for clip in script.clips) / scenario.sample_rate
    return min(spoken_s + scenario.tail_ms / 1000.0, scenario.max_duration_ms / 1000.0)


def _clip_energies(clip: Samples, frame_samples: int) -> Energies:
    return frame_energies(np.pad(clip, (0, -len(clip) % frame_samples)), frame_samples)


def _speech_ns(clip: Samples, scenario: Scenario) -> tuple[int, int] | None:
    segments = detect_segments(clip, scenario.sample_rate, scenario.vad_user)
    return (s_to_ns(segments[0].start_s), s_to_ns(segments[-1].end_s)) if segments else None
