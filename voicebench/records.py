"""What a scored session is made of. These travel, are stored and are merged; they hold no audio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Expectation = Literal["respond", "stop", "ignore"]
Trigger = Literal["anchor", "timeout", "not_played"]
TurnStatus = Literal["measured", "missed", "not_played", "unfinished"]
OutcomeState = Literal["finished", "failed", "cut", "lost"]
OUTCOME_STATES: tuple[OutcomeState, ...] = ("finished", "failed", "cut", "lost")


@dataclass(frozen=True, slots=True)
class Segment:
    """Speech from onset to offset, seconds since session start; the end is exclusive."""

    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session ended. `reason` is one of `errors.FAILURE_REASONS` when it failed; `detail` a sentence."""

    state: OutcomeState
    reason: str | None = None
    detail: str | None = None


FINISHED = Outcome("finished")


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One scripted turn as measured. Times in ms are rounded to 0.1, rates to 4 digits; None: does not exist."""

    id: str
    expect: Expectation
    trigger: Trigger
    status: TurnStatus
    start_s: float | None = None
    end_s: float | None = None
    user_onset_s: float | None = None
    user_offset_s: float | None = None
    responded: bool | None = None
    response_latency_ms: float | None = None
    ttfa_ms: float | None = None
    talk_over: bool | None = None
    stopped: bool | None = None
    stop_ms: float | None = None
    false_barge_in: bool | None = None
    spurious_response: bool | None = None
    transcript: str | None = None
    wer: float | None = None
    wer_substitutions: int | None = None
    wer_deletions: int | None = None
    wer_insertions: int | None = None
    wer_words: int | None = None
    passed: bool = False
    error_ms: float | None = None
    """Our own error bar: how late the tester was around this turn. None on the virtual clock and without data."""
    reliable: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One session as measured: its turns in script order and its totals."""

    session_id: str
    scenario: str
    outcome: Outcome
    duration_s: float
    user_speech_ms: float
    agent_speech_ms: float
    overlap_ms: float
    talk_over_ms: float
    truncated: bool
    user_segments: tuple[Segment, ...]
    agent_segments: tuple[Segment, ...]
    turns: tuple[TurnRecord, ...]

    @property
    def reliable(self) -> bool:
        """A session is reliable when all its turns are."""
        return all(turn.reliable for turn in self.turns)
