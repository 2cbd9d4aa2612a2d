"""Records made by hand, for what sits above scoring."""

from __future__ import annotations

from voicebench import __version__
from voicebench.master.report import RunHead, WorkerFacts
from voicebench.records import FINISHED, Outcome, SessionRecord, TurnRecord
from voicebench.wire.messages import SessionResult


def respond(latency_ms: float | None = 500.0, *, turn_id: str = "ask", **rest) -> TurnRecord:
    """An answered (or, with None, missed) respond turn."""
    answered = latency_ms is not None
    values = {
        "status": "measured" if answered else "missed",
        "responded": answered,
        "response_latency_ms": latency_ms,
        "ttfa_ms": latency_ms if answered and latency_ms >= 0 else None,
        "talk_over": answered and latency_ms < 0,
        "passed": answered,
    }
    return TurnRecord(turn_id, "respond", "anchor", **{**values, **rest})


def stop(stop_ms: float | None = 300.0, *, turn_id: str = "barge-in", **rest) -> TurnRecord:
    values = {"status": "measured", "stop_ms": stop_ms, "stopped": stop_ms is not None, "passed": stop_ms is not None}
    return TurnRecord(turn_id, "stop", "anchor", **{**values, **rest})


def ignore(*, false_barge_in: bool = False, spurious: bool = False, turn_id: str = "cough", **rest) -> TurnRecord:
    values = {
        "status": "measured",
        "false_barge_in": false_barge_in,
        "spurious_response": spurious,
        "passed": not false_barge_in and not spurious,
    }
    return TurnRecord(turn_id, "ignore", "anchor", **{**values, **rest})


def not_played(turn_id: str = "later", expect="respond") -> TurnRecord:
    return TurnRecord(turn_id, expect, "not_played", "not_played")


def session(*turns: TurnRecord, outcome: Outcome = FINISHED, scenario: str = "made", session_id: str = "s", **rest):
    values = {
        "duration_s": 10.0,
        "user_speech_ms": 1000.0,
        "agent_speech_ms": 2000.0,
        "overlap_ms": 0.0,
        "talk_over_ms": 0.0,
        "truncated": False,
        "user_segments": (),
        "agent_segments": (),
    }
    return SessionRecord(session_id, scenario, outcome, turns=turns, **{**values, **rest})


def result(record: SessionRecord, *, number: int = 0, **rest) -> SessionResult:
    """What a worker sends of a session."""
    values = {"index": 0, "started_s": 0.0, "warmup": False, "frames_sent": 10, "lateness": {}, "files": None}
    return SessionResult(number=number, record=record, **{**values, **rest})


def a_worker(name: str = "w", **rest) -> WorkerFacts:
    values = {
        "state": "done",
        "host": "host",
        "voicebench": __version__,
        "python": "3.11",
        "platform": "Linux",
        "cpus": 2,
    }
    return WorkerFacts(name, **{**values, **rest})


def a_head(**rest) -> RunHead:
    values = {
        "id": "run", "name": "run", "started_at": "2026-01-01T00:00:00+00:00", "plan": {}, "seed": 0, "clock": "real",
        "adapters": ("websocket",), "limits": {}, "scenario_limits": {"made": {}},
    }  # fmt: skip
    return RunHead(**{**values, **rest})
