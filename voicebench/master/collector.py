"""Takes scored sessions in, each once, and keeps the run-wide numbers: in total, by scenario, by turn and by worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from voicebench.assertions import AssertionResult, check
from voicebench.distribution import Distribution
from voicebench.master.timeline import Timeline
from voicebench.records import OUTCOME_STATES, Outcome, SessionRecord, TurnRecord
from voicebench.score_document import session_document
from voicebench.summary import Tally
from voicebench.wire.messages import SessionResult

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


@dataclass(slots=True)
class Account:
    """What became of the sessions: of all, or of one worker's."""

    outcomes: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    warmup: int = 0
    lateness_ms: Distribution = field(default_factory=Distribution)
    """Of all frames sent."""
    judged_turns: int = 0
    unreliable_turns: int = 0
    """Both without those of the warm-up."""

    def add(self, outcome: Outcome, *, warmup: bool, lateness_ms: Distribution, turns: Iterable[TurnRecord]) -> None:
        self.outcomes[outcome.state] += 1
        if outcome.reason is not None:
            self.reasons[outcome.reason] += 1
        self.warmup += warmup
        self.lateness_ms.update(lateness_ms)
        if not warmup:
            judged = [turn.reliable for turn in turns if turn.status in ("measured", "missed")]
            self.judged_turns += len(judged)
            self.unreliable_turns += judged.count(False)

    @property
    def total(self) -> int:
        return self.outcomes.total()

    def as_dict(self, started: int) -> dict[str, Any]:
        """started = finished + failed + cut + lost, with why sessions failed."""
        return {
            "started": started,
            **{state: self.outcomes[state] for state in OUTCOME_STATES},
            "warmup": self.warmup,
            "reasons": dict(sorted(self.reasons.items())),
        }


@dataclass(slots=True)
class Taken:
    """One session as the report lists it."""

    number: int
    record: SessionRecord
    worker: str
    started_s: float | None
    warmup: bool
    bundle: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            **session_document(self.record),
            "worker": self.worker,
            "started_s": None if self.started_s is None else round(self.started_s, 3),
            "warmup": self.warmup,
            "bundle": self.bundle,
        }


class Collector:
    """Sessions in, numbers out. Sessions of the warm-up are accounted for and in no other number."""

    def __init__(self) -> None:
        self.total = Sums()
        self.by_scenario: dict[str, Sums] = {}
        self.by_turn: dict[str, dict[str, Tally]] = {}
        self.timeline = Timeline()
        self.account = Account()
        self.by_worker: dict[str, Account] = {}
        self.with_frames = 0
        self._taken: set[int] = set()
        self._n_missing = 0
        self._listed: dict[int, Taken] = {}
        self._details: dict[str, tuple[int, str]] = {}

    def take(self, result: SessionResult, *, worker: str, bundle: str | None = None) -> bool:
        """Take one session in; False when it was taken in before, which changes nothing."""
        if result.number in self._taken:
            return False
        self._taken.add(result.number)
        record = result.record
        lateness_ms = Distribution.from_counts(result.lateness)
        for account in (self.account, self.by_worker.setdefault(worker, Account())):
            account.add(record.outcome, warmup=result.warmup, lateness_ms=lateness_ms, turns=record.turns)
        self._note_detail(result.number, record.outcome)
        self.with_frames += result.frames_sent > 0
        if result.files is not None or bundle is not None or len(self._listed) < SESSIONS_LISTED:
            self._listed[result.number] = Taken(result.number, record, worker, result.started_s, result.warmup, bundle)
        if not result.warmup:
            self._count(record)
            self.timeline.take(result)
        return True

    def take_lost(self, number: int, *, worker: str, session_id: str, scenario: str) -> bool:
        """Take in that a session started, and that no result of it will come; False when one has come."""
        if number in self._taken:
            return False
        self._taken.add(number)
        record = lost_record(session_id, scenario, worker)
        for account in (self.account, self.by_worker.setdefault(worker, Account())):
            account.add(record.outcome, warmup=False, lateness_ms=Distribution(), turns=())
        if len(self._listed) < SESSIONS_LISTED:
            self._listed[number] = Taken(number, record, worker, None, False)
        self._count(record)
        return True

    def take_missing(self, n_sessions: int, *, worker: str) -> None:
        """Take in that so many sessions of a worker started of which nothing is known, not even their numbers."""
        self._n_missing += n_sessions
        for account in (self.account, self.by_worker.setdefault(worker, Account())):
            account.outcomes["lost"] += n_sessions
        for tally in (self.total.all, self.total.reliable):
            tally.counts["sessions"] += n_sessions
            tally.counts["lost"] += n_sessions

    def kept(self, number: int, bundle: str) -> None:
        """The recording of a session is in the run's folder."""
        if number in self._listed:
            self._listed[number].bundle = bundle

    def _count(self, record: SessionRecord) -> None:
        self.total.add(record)
        self.by_scenario.setdefault(record.scenario, Sums()).add(record)
        turns = self.by_turn.setdefault(record.scenario, {})
        for turn in record.turns:
            turns.setdefault(turn.id, Tally()).add_turn(turn)

    def _note_detail(self, number: int, outcome: Outcome) -> None:
        if outcome.reason is not None and outcome.detail:
            found = self._details.get(outcome.reason)
            if found is None or number < found[0]:  # of the lowest number, whichever came first
                self._details[outcome.reason] = (number, outcome.detail)

    @property
    def n_taken(self) -> int:
        """Sessions taken in, lost and missing ones included."""
        return self.n_known + self._n_missing

    @property
    def n_known(self) -> int:
        """Sessions taken in whose numbers are known."""
        return len(self._taken)

    @property
    def generator_overloaded(self) -> bool:
        rate = self.total.all.unreliable_turn_rate
        return rate is not None and rate > OVERLOADED_TURN_RATE

    def details(self) -> dict[str, str]:
        """What the first session that failed for each reason had to say."""
        return {reason: detail for reason, (_, detail) in self._details.items()}

    def sessions(self) -> list[dict[str, Any]]:
        """The sessions that the report lists, in order of their numbers."""
        listed = [self._listed[number] for number in sorted(self._listed)]
        if self.n_known > SESSIONS_LISTED:
            listed = [taken for taken in listed if taken.bundle is not None]
        return [taken.as_dict() for taken in listed]


def lost_record(session_id: str, scenario: str, worker: str) -> SessionRecord:
    """What stands for a session that started and was never heard of again: nothing was measured."""
    return SessionRecord(
        session_id=session_id,
        scenario=scenario,
        outcome=Outcome("lost", None, f"its worker {worker} went away"),
        duration_s=0.0,
        user_speech_ms=0.0,
        agent_speech_ms=0.0,
        overlap_ms=0.0,
        talk_over_ms=0.0,
        truncated=True,
        user_segments=(),
        agent_segments=(),
        turns=(),
    )
