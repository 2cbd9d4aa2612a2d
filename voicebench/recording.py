"""One session as it was recorded: both tracks and all that happened, before anything is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from voicebench.events import AgentTranscript, Samples
from voicebench.records import FINISHED, Outcome
from voicebench.scenario.model import Scenario


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """When a turn's audio played, seconds since session start, and what started it."""

    id: str
    trigger: Literal["anchor", "timeout"]
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Packets:
    """The agent's audio packets in order of arrival, as arrays of shape (packets,): no object per packet."""

    time_s: npt.NDArray[np.float64]
    level_db: npt.NDArray[np.float64]
    duration_s: npt.NDArray[np.float64]


def no_packets() -> Packets:
    """Packets of an agent that never said anything."""
    empty = np.zeros(0)
    return Packets(empty, empty, empty)


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late the tester itself was, one value a frame sent, ms, shape (frames,)."""

    send_ms: npt.NDArray[np.float64]
    """Actual send time of the frame minus its due time."""
    drain_gap_ms: npt.NDArray[np.float64]
    """Widest time between two looks at the agent's socket since the frame before."""


LATENESS_DIGITS = 3
"""A microsecond. Rounded where it enters, once: the live score and the one from the bundle must see the same number."""


def lateness_of(send_ms: npt.ArrayLike, drain_gap_ms: npt.ArrayLike) -> Lateness:
    """The lateness of a session's frames, one value a frame, ms."""
    return Lateness(*(np.array(column, dtype=np.float64).round(LATENESS_DIGITS) for column in (send_ms, drain_gap_ms)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """All that happened in a session but its sound: with the energies of both tracks, everything that scoring needs."""

    session_id: str
    scenario: Scenario
    duration_s: float
    turns: tuple[PlayedTurn, ...]
    packets: Packets
    clears_s: tuple[float, ...] = ()
    transcripts: tuple[AgentTranscript, ...] = ()
    truncated: bool = False
    clock: Literal["virtual", "real"] = "real"
    outcome: Outcome = FINISHED
    lateness: Lateness | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the bundle, kept as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording(Account):
    """A session with its sound. Tracks are int16 at the scenario's rate, sample 0 at session start."""

    user: Samples
    agent: Samples
