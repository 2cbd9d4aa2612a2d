"""Records as the JSON that `score --json` prints and reports carry. What doesn't exist is null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from voicebench.assertions import AssertionResult, check
from voicebench.records import Segment, SessionRecord, TurnRecord
from voicebench.summary import Tally

_TURN_KEYS = tuple(field.name for field in fields(TurnRecord))


@dataclass(frozen=True, slots=True)
class Scored:
    """What sessions add up to: tallies over all and over reliable turns, and the limits judged on both."""

    tally: Tally
    reliable: Tally
    assertions: tuple[AssertionResult, ...]

    @property
    def all_hold(self) -> bool:
        return all(result.passed for result in self.assertions)

    @property
    def cant_tell(self) -> bool:
        return any(result.verdict == "cant_tell" for result in self.assertions)

    @property
    def exit_code(self) -> int:
        """0 all hold, 4 one depends on turns that can't be trusted, 1 one fails."""
        return 0 if self.all_hold else 4 if self.cant_tell else 1


def add_up(sessions: Sequence[SessionRecord], limits: Mapping[str, float]) -> Scored:
    """Summarize sessions and judge one set of limits on all of them."""
    tally, reliable = Tally.of(sessions), Tally.of(sessions, reliable_only=True)
    return Scored(tally, reliable, tuple(check(limits, tally, reliable)))


def add_up_by_scenario(sessions: Sequence[SessionRecord], limits: Sequence[Mapping[str, float]]) -> Scored:
    """Summarize sessions of several scenarios; each scenario's limits speak of its own sessions.

    Args:
        sessions: All of them.
        limits: Each session's scenario's limits, in the same order. Recordings of one scenario that was given other
            limits in between are judged apart, so that no limit is lost.
    """
    groups: dict[tuple[str, tuple[tuple[str, float], ...]], list[SessionRecord]] = {}
    for session, own in zip(sessions, limits, strict=True):
        groups.setdefault((session.scenario, tuple(own.items())), []).append(session)
    results = [
        result
        for (name, own_limits), members in groups.items()
        for result in check(
            dict(own_limits),
            Tally.of(members),
            Tally.of(members, reliable_only=True),
            scenario=name if len(groups) > 1 else None,
        )
    ]
    return Scored(Tally.of(sessions), Tally.of(sessions, reliable_only=True), tuple(results))


def session_document(session: SessionRecord) -> dict[str, Any]:
    """One session, JSON-able."""
    return {
        "session_id": session.session_id,
        "scenario": session.scenario,
        "outcome": {
            "state": session.outcome.state,
            "reason": session.outcome.reason,
            "detail": session.outcome.detail,
        },
        "reliable": session.reliable,
        "duration_s": session.duration_s,
        "user_speech_ms": session.user_speech_ms,
        "agent_speech_ms": session.agent_speech_ms,
        "overlap_ms": session.overlap_ms,
        "talk_over_ms": session.talk_over_ms,
        "truncated": session.truncated,
        "user_segments": _pairs(session.user_segments),
        "agent_segments": _pairs(session.agent_segments),
        "turns": [turn_document(turn) for turn in session.turns],
    }


def turn_document(turn: TurnRecord) -> dict[str, Any]:
    """One turn, JSON-able, keys in the order of the record."""
    document = {key: getattr(turn, key) for key in _TURN_KEYS}
    document["notes"] = list(turn.notes)
    return document


def score_document(sessions: Sequence[SessionRecord], scored: Scored) -> dict[str, Any]:
    """What `voicebench score --json` prints."""
    return {
        "sessions": [session_document(session) for session in sessions],
        "summary": scored.tally.as_dict(),
        "summary_reliable": scored.reliable.as_dict(),
        "assertions": [result.as_dict() for result in scored.assertions],
    }


def _pairs(segments: tuple[Segment, ...]) -> list[list[float]]:
    return [[segment.start_s, segment.end_s] for segment in segments]
