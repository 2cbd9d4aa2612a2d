"""A scenario with its audio: everything its sessions need."""

from __future__ import annotations

from dataclasses import dataclass

from voicebench.events import Samples
from voicebench.scenario.model import Scenario


@dataclass(frozen=True, slots=True)
class PreparedScenario:
    """A scenario ready to be played. `clips` has each turn's audio, read-only int16 at the scenario's rate."""

    scenario: Scenario
    clips: tuple[Samples, ...]
    file: str
    """Its path as the user would type it; `<stdin>` for standard input."""
