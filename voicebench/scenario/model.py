"""What to say, as frozen data. `parse.py` makes these from text; nothing here checks anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from voicebench.records import Expectation

Anchor = Literal["session_start", "previous_turn_end", "agent_speech_start", "agent_speech_end"]
SynthKind = Literal["speech", "tone", "noise", "silence"]


@dataclass(frozen=True, slots=True)
class VadSettings:
    """One track's detector. Meaning of each: docs/metrics.md, "Detecting speech"."""

    threshold_db: float = -45.0
    hysteresis_db: float = 6.0
    frame_ms: float = 10.0
    min_speech_ms: float = 50.0
    min_silence_ms: float = 250.0


@dataclass(frozen=True, slots=True)
class AudioSource:
    """Where a turn's audio comes from: exactly one of `file`, `clip` and `synth` is set."""

    file: str | None = None
    """Path as written, relative to the scenario's folder."""
    clip: str | None = None
    """Name of a spoken clip shipped in the package."""
    synth: SynthKind | None = None
    duration_ms: float = 1000.0
    level_db: float = -20.0
    freq_hz: float = 440.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class StartRule:
    """The turn starts `delay_ms` after the anchor, or `timeout_ms` after the previous turn's end without one."""

    after: Anchor
    delay_ms: float
    timeout_ms: float = 10000.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One scripted utterance and what is expected of the agent."""

    id: str
    audio: AudioSource
    start: StartRule
    expect: Expectation = "respond"
    text: str | None = None
    response_timeout_ms: float = 5000.0
    max_stop_ms: float = 1000.0


@dataclass(frozen=True, slots=True)
class AdapterSpec:
    """Which agent to call, and how. `${VAR}` in options is still unexpanded here."""

    type: str = "mock"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scenario:
    """The script of one conversation. `document` is the mapping it was read from, defaults not filled in."""

    name: str
    turns: tuple[Turn, ...]
    description: str = ""
    sample_rate: int = 16000
    frame_ms: float = 20.0
    tail_ms: float = 3000.0
    max_duration_ms: float = 120000.0
    vad_user: VadSettings = VadSettings()
    vad_agent: VadSettings = VadSettings()
    adapter: AdapterSpec = field(default_factory=AdapterSpec)
    limits: Mapping[str, float] = field(default_factory=dict)
    """The `assert` block: assertion name to limit, in the order written."""
    document: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class PlanScenario:
    """One line of a plan's mix. `scenario` is None until the file has been read."""

    file: str
    weight: float = 1.0
    scenario: Scenario | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """A piece of the load's shape: change over `ramp_s` to `to` (None: the plan's level), or stay for `hold_s`."""

    ramp_s: float | None = None
    hold_s: float | None = None
    to: float | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """How many sessions, when. Closed model: `callers`; open model: `arrivals_per_s`."""

    callers: int | None = None
    arrivals_per_s: float | None = None
    stages: tuple[Stage, ...] = ()
    pause_s: tuple[float, float] = (0.0, 0.0)
    spacing: Literal["even", "poisson"] = "even"
    max_concurrent: int | None = None
    sessions: int | None = None
    seed: int = 0
    given: frozenset[str] = frozenset()
    """The keys that were written, so that a command can name one it does not support yet."""


@dataclass(frozen=True, slots=True)
class RecordRule:
    """Which bundles to keep."""

    keep: Literal["all", "failed", "none"] = "failed"
    sample: float = 0.0
    worst: int = 0
    given: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class AbortRule:
    """Stop the run when a limit breaks over the last `window_s`, not before `after_s`."""

    limits: Mapping[str, float]
    after_s: float = 0.0
    window_s: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """A mix of scenarios and the load. A scenario file alone is a plan with one."""

    name: str
    scenarios: tuple[PlanScenario, ...]
    adapter: AdapterSpec | None = None
    """Overrides the scenarios': the same type merges its options, another type replaces them."""
    load: Load = Load()
    record: RecordRule = RecordRule()
    limits: Mapping[str, float] = field(default_factory=dict)
    abort_on: AbortRule | None = None
    document: Mapping[str, Any] = field(default_factory=dict, compare=False)
