"""What went wrong in single sessions, as far as the report lists them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import Any

from voicebench.words import NOTHING, ms

Document = Mapping[str, Any]
SLOWEST_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that went wrong in one session."""

    session_id: str
    turn: str
    what: str
    when: str
    worker: str
    scenario: str
    reliable: bool


def failed_sessions(report: Document) -> list[Incident]:
    """Sessions that failed or were lost."""
    return [
        _incident(session, "", ending(session["outcome"]), reliable=True)
        for session in report["sessions"]
        if session["outcome"]["state"] in ("failed", "lost")
    ]


def ending(outcome: Document) -> str:
    """How a session ended."""
    detail = f": {outcome['detail']}" if outcome["detail"] else ""
    return f"{outcome['reason'] or outcome['state']}{detail}"


def broken_turns(report: Document) -> list[Incident]:
    """Turns that were judged and did not pass."""
    return [
        _incident(session, turn["id"], what_came(turn), reliable=turn["reliable"])
        for session, turn in _turns(report)
        if is_broken(turn)
    ]


def is_broken(turn: Document) -> bool:
    """Whether the agent did not do what was expected; what was never played or not finished says nothing."""
    return not turn["passed"] and turn["status"] in ("measured", "missed")


def slowest_turns(report: Document) -> list[Incident]:
    """The answers that took longest."""
    answered = [
        (turn["response_latency_ms"], session, turn)
        for session, turn in _turns(report)
        if turn["expect"] == "respond" and turn["response_latency_ms"] is not None
    ]
    worst = nlargest(SLOWEST_SHOWN, answered, key=lambda each: each[0])
    return [
        _incident(session, turn["id"], ms(latency_ms), reliable=turn["reliable"]) for latency_ms, session, turn in worst
    ]


def what_came(turn: Document) -> str:
    """What the agent did in one turn, in few words."""
    if turn["status"] in ("not_played", "unfinished"):
        return str(turn["status"]).replace("_", " ")
    if turn["status"] == "missed":
        return "no answer"
    if turn["expect"] == "respond":
        latency_ms = turn["response_latency_ms"]
        talked_over = latency_ms is not None and latency_ms < 0
        return f"began {ms(-latency_ms)} too early" if talked_over else f"answered after {ms(latency_ms)}"
    if turn["expect"] == "stop":
        if turn["stop_ms"] is None:
            return "nothing to stop" if turn["stopped"] is None else "went on talking"
        return f"stopped after {ms(turn['stop_ms'])}"
    noticed = [word for key, word in (("false_barge_in", "stopped"), ("spurious_response", "answered")) if turn[key]]
    return " and ".join(noticed) or "ignored"


def _turns(report: Document) -> Iterator[tuple[Document, Document]]:
    return ((session, turn) for session in report["sessions"] for turn in session["turns"])


def _incident(session: Document, turn: str, what: str, *, reliable: bool) -> Incident:
    started_s = session.get("started_s")
    return Incident(
        session_id=session["session_id"],
        turn=turn,
        what=what,
        when=NOTHING if started_s is None else f"{started_s:,.1f} s",
        worker=session.get("worker") or NOTHING,
        scenario=session["scenario"],
        reliable=reliable,
    )
