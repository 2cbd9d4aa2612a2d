"""The shape of a scenario file: every key with its type, limits, default and meaning.

These models are what errors, the JSON Schema and the reference are made from. What takes more than one key to judge
is in `checks.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from voicebench.records import Expectation
from voicebench.scenario.mistakes import NAME_PATTERN, Path
from voicebench.scenario.model import Anchor, SynthKind

MAX_SAMPLE_RATE_HZ = 192_000
"""Beyond this no telephone, codec or sound card goes; it is a slip of the finger."""
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
MAX_LEVEL_DB = -3.0
"""RMS of the loudest sine there is, as in `audio.synth`."""
MAX_SEED = 2**32 - 1


class Shape(BaseModel):
    """No key that is not listed, and nothing taken for what it is not."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=False)


def _whole(value: object) -> object:
    """16000.0 and 1.6e4 are whole numbers too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE = BeforeValidator(_whole)
"""Stands behind a whole number's limits, so that these reach the JSON Schema as limits of the number."""
Seed: TypeAlias = Annotated[int, Field(ge=0, le=MAX_SEED), WHOLE]
SampleRate: TypeAlias = Annotated[int, Field(ge=8000, le=MAX_SAMPLE_RATE_HZ), WHOLE]
Name: TypeAlias = Annotated[str, Field(pattern=NAME_PATTERN, max_length=200)]
FileName: TypeAlias = Annotated[str, Field(pattern=NAME_PATTERN, max_length=4096)]
Timeout: TypeAlias = Annotated[float, Field(ge=0, le=HOUR_MS)]
Limits: TypeAlias = dict[str, float]


class VadShape(Shape):
    """One track's speech detector."""

    threshold_db: float = Field(default=-45.0, description="Level at which speech begins, dBFS (RMS of a frame).")
    hysteresis_db: float = Field(
        default=6.0, ge=0, description="How far below the threshold speech may fade without ending."
    )
    frame_ms: float = Field(
        default=10.0, gt=0, le=1000, description="Length of an analysis frame: the grid of all edges."
    )
    min_speech_ms: float = Field(default=50.0, ge=0, le=MINUTE_MS, description="Shorter sound is no speech (clicks).")
    min_silence_ms: float = Field(
        default=250.0, ge=0, le=MINUTE_MS, description="A shorter pause does not end an utterance."
    )


class VadsShape(Shape):
    """The detectors of both tracks."""

    user: VadShape | None = Field(default=None, description="Detector of the user's track.")
    agent: VadShape | None = Field(default=None, description="Detector of the agent's track.")


class AdapterShape(Shape):
    """Which agent to call, and how."""

    type: Name = Field(default="mock", description="mock, websocket, or module:Class of an adapter of your own.")
    options: dict[str, Any] | None = Field(
        default=None,
        description="The adapter's own options. ${VAR} and ${VAR:-default} come from the worker's environment.",
    )


class DefaultsShape(Shape):
    """For all turns that do not say otherwise."""

    response_timeout_ms: Timeout = Field(
        default=5000.0, description="How long after the user's speech a reply may come."
    )
    max_stop_ms: Timeout = Field(
        default=1000.0, description="How soon after the user's onset the agent must be silent."
    )


class AudioShape(Shape):
    """What the user says: exactly one of file, clip and synth."""

    file: FileName | None = Field(
        default=None, description="WAV, FLAC or OGG file, relative to the scenario; resampled and mixed to mono."
    )
    clip: Name | None = Field(default=None, description="Name of a spoken clip that comes with voicebench.")
    synth: SynthKind | None = Field(
        default=None, description="A synthetic signal: speech (speech-like), tone, noise, silence."
    )
    duration_ms: float = Field(default=1000.0, gt=0, le=10 * MINUTE_MS, description="Length of the synthetic signal.")
    level_db: float = Field(
        default=-20.0, ge=-120, le=MAX_LEVEL_DB, description="Its level, dBFS (RMS of the active part)."
    )
    freq_hz: float = Field(
        default=440.0, gt=0, le=MAX_SAMPLE_RATE_HZ / 2, description="Of a tone; below half the sample rate."
    )
    seed: Seed = Field(default=0, description="Of speech and noise: the same seed, the same sound.")


class StartShape(Shape):
    """When the turn starts."""

    after: Anchor | None = Field(
        default=None, description="What is waited for. First turn: session_start, others: agent_speech_end."
    )
    delay_ms: float | None = Field(
        default=None, ge=-DAY_MS, le=DAY_MS, description="Wait after that. First turn: 500, others: 0."
    )
    timeout_ms: float = Field(
        default=10000.0,
        ge=0,
        le=DAY_MS,
        description="Start anyway when nothing came this long after the previous turn ended.",
    )


class TurnShape(Shape):
    """One scripted utterance and what is expected of the agent."""

    id: Name | None = Field(
        default=None, description="Name of the turn in reports, unique; left out: turn-1, turn-2, ..."
    )
    audio: AudioShape = Field(description="What the user says.")
    start: StartShape | None = Field(default=None, description="When the turn starts.")
    expect: Expectation = Field(
        default="respond",
        description="respond: answer; stop: fall silent (barge-in); ignore: not be disturbed (noise).",
    )
    text: str | None = Field(default=None, max_length=10_000, description="What is said; turns on the word error rate.")
    response_timeout_ms: Timeout | None = Field(default=None, description="Overrides defaults.response_timeout_ms.")
    max_stop_ms: Timeout | None = Field(default=None, description="Overrides defaults.max_stop_ms.")


class ScenarioShape(Shape):
    """The script of one conversation."""

    name: Name = Field(description="Name of the scenario in reports.")
    description: str | None = Field(default="", max_length=10_000, description="For readers.")
    sample_rate: SampleRate = Field(default=16000, description="Rate of both tracks, Hz.")
    frame_ms: float = Field(default=20.0, ge=5, le=1000, description="The session's frame grid: audio sent at a time.")
    tail_ms: float = Field(
        default=3000.0, ge=0, le=DAY_MS, description="Recorded after the last turn's audio, at least."
    )
    max_duration_ms: float = Field(default=120000.0, gt=0, le=DAY_MS, description="The session's hard end.")
    vad: VadsShape | None = Field(default=None, description="How speech is detected.")
    adapter: AdapterShape | None = Field(default=None, description="Which agent to call, and how.")
    defaults: DefaultsShape | None = Field(default=None, description="For all turns that do not say otherwise.")
    turns: list[TurnShape] = Field(min_length=1, description="The user's side of the conversation, in order.")
    limits: Limits | None = Field(
        default=None,
        alias="assert",
        description="Limits on the summary of this scenario's sessions: assertion name to limit.",
    )


ADAPTER_TEXT_AT: tuple[tuple[str, ...], ...] = (
    ("adapter", "type"),
    ("adapter", "options", "url"),
    ("adapter", "options", "headers", "*"),
    ("adapter", "options", "subprotocols", "*"),
    ("adapter", "options", "transcripts", "*"),
    ("adapter", "options", "ca_file"),
    ("adapter", "options", "client_cert_file"),
    ("adapter", "options", "client_key_file"),
)

SCENARIO_TEXT_AT: tuple[tuple[str, ...], ...] = (
    ("name",),
    ("description",),
    ("turns", "*", "id"),
    ("turns", "*", "text"),
    ("turns", "*", "audio", "file"),
    ("turns", "*", "audio", "clip"),
    *ADAPTER_TEXT_AT,
)
"""Where numbers and truth values are read as the text that was typed."""

_PLAN_KEYS = ("scenarios", "load", "record", "abort_on")


def scenario_hint(path: Path) -> str | None:
    """For an unknown key: what its author probably had in mind."""
    key = path[-1]
    if len(path) == 1 and key in _PLAN_KEYS:
        return f"'{key}' belongs in a plan, a file of its own that lists this one under `scenarios`"
    return adapter_hint(path) or _moved_hint(path)


def adapter_hint(path: Path) -> str | None:
    """For an unknown key of `adapter`."""
    if len(path) == 2 and path[0] == "adapter" and path[1] not in ("typ", "option"):
        return "unknown key; an adapter has type and options, and what belongs to the agent goes below options"
    return None


def _moved_hint(path: Path) -> str | None:
    if len(path) == 3 and path[0] == "turns" and path[2] in StartShape.model_fields:
        return f"unknown key: write start: {{{path[2]}: ...}}"
    if len(path) == 3 and path[0] == "turns" and path[2] in AudioShape.model_fields:
        return f"unknown key: write audio: {{{path[2]}: ...}}"
    if len(path) == 2 and path[0] == "vad" and path[1] in VadShape.model_fields:
        return f"unknown key: write it below user or agent, as in agent: {{{path[1]}: ...}}"
    return None
