"""What a session hears from the agent, whatever the transport and the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from voicebench.errors import FailureReason

Samples: TypeAlias = npt.NDArray[np.int16]
"""Mono audio, int16, shape (samples,), full scale 32768."""


@dataclass(frozen=True, slots=True)
class AgentAudio:
    """A packet of agent audio at the session's sample rate, when it arrived."""

    samples: Samples
    time_s: float


@dataclass(frozen=True, slots=True)
class AgentClear:
    """The agent wants dropped what has arrived and has not been played."""

    time_s: float


@dataclass(frozen=True, slots=True)
class AgentTranscript:
    """Text the agent reports: what it heard (`user`) or said (`agent`)."""

    role: Literal["user", "agent"]
    text: str
    time_s: float
    final: bool = True


@dataclass(frozen=True, slots=True)
class AgentClosed:
    """The agent's side of the line is gone. `code` is the WebSocket close code, None for a bare reset; `reason` is set
    by a transport that knows more than the code tells (bytes that broke the protocol); `text` is then its sentence."""

    time_s: float
    code: int | None = None
    text: str = ""
    reason: FailureReason | None = None


AgentEvent: TypeAlias = AgentAudio | AgentClear | AgentTranscript | AgentClosed
