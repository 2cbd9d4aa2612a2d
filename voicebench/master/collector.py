"""Takes scored sessions in and keeps the run-wide numbers: in total, by scenario and by turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from voicebench.assertions import AssertionResult, check
from voicebench.distribution import Distribution
from voicebench.records import OUTCOME_STATES, SessionRecord
from voicebench.score_document import session_document
from voicebench.summary import Tally

SESSIONS_LISTED = 1000
"""A report lists all sessions up to here; beyond it only those whose recordings were kept."""
OVERLOADED_TURN_RATE = 0.01
"""With more unreliable turns than this the generator itself was overloaded and the run can't be trusted."""


@dataclass(slots=True)
class Sums:
    """The same sessions twice: all turns, and the reliable ones."""

    all: Tally = field(default_factory=Tally)
    reliable: Tally = field(default_factory=Tally)

    def add(self, session: SessionRecord) -> None:
        self.all.add_session(session)
        self.reliable.add_session(session, reliable_only=True)

    def check(self, limits: Mapping[str, float], scenario: str | None = None) -> list[AssertionResult]:
        return check(limits, self.all, self.reliable, scenario=scenario)


@dataclass(frozen=True, slots=True)
class Taken:
    """One session as the report lists it."""

    record: SessionRecord
    worker: str
    started_s: float
    warmup: bool
    bundle: str | None

    def as_dict(self) -> dict[str, Any]:
        return {
            **session_document(self.record),
            "worker": self.worker,
            "started_s": round(self.started_s, 3),
            "warmup": self.warmup,
            "bundle": self.bundle,
        }


class Collector:
    """Sessions in, numbers out. Sessions of the warm-up are accounted for and in no other number."""

    def __init__(self) -> None:
        self.total = Sums()
        self.by_scenario: dict[str, Sums] = {}
        self.by_turn: dict[str, dict[str, Tally]] = {}
        self.outcomes: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.warmup_sessions = 0
        self.with_frames = 0
        self.lateness_ms = Distribution()
        self.listed: list[Taken] = []
        self.n_taken = 0

    def take(
        self,
        record: SessionRecord,
        *,
        worker: str,
        started_s: float,
        warmup: bool,
        bundle: str | None,
        frames_sent: int,
        lateness_ms: Distribution,
    ) -> None:
        """Take one session in, once."""
        self.n_taken += 1
        self.outcomes[record.outcome.state] += 1
        if record.outcome.reason is not None:
            self.reasons[record.outcome.reason] += 1
        self.with_frames += frames_sent > 0
        self.lateness_ms.update(lateness_ms)
        if bundle is not None or len(self.listed) < SESSIONS_LISTED:
            self.listed.append(Taken(record, worker, started_s, warmup, bundle))
        if warmup:
            self.warmup_sessions += 1
        else:
            self._count(record)

    def _count(self, record: SessionRecord) -> None:
        self.total.add(record)
        self.by_scenario.setdefault(record.scenario, Sums()).add(record)
        turns = self.by_turn.setdefault(record.scenario, {})
        for turn in record.turns:
            turns.setdefault(turn.id, Tally()).add_turn(turn)

    @property
    def generator_overloaded(self) -> bool:
        rate = self.total.all.unreliable_turn_rate
        return rate is not None and rate > OVERLOADED_TURN_RATE

    def accounting(self, started: int) -> dict[str, Any]:
        """started = finished + failed + cut + lost, with why sessions failed."""
        return {
            "started": started,
            **{state: self.outcomes[state] for state in OUTCOME_STATES},
            "warmup": self.warmup_sessions,
            "reasons": dict(sorted(self.reasons.items())),
        }

    def sessions(self) -> list[dict[str, Any]]:
        """The sessions that the report lists, in order of their start."""
        listed = self.listed
        if self.n_taken > SESSIONS_LISTED:
            listed = [taken for taken in listed if taken.bundle is not None]
        return [taken.as_dict() for taken in sorted(listed, key=lambda taken: taken.started_s)]
