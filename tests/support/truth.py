"""Setting a run's numbers beside the mock server's truth log.

The server stamps each event on the machine's monotonic clock: when the last user frame with speech in it arrived, and
when it sent the first sample of its reply. The difference of the two is what a perfect tester would have measured, but
for the frame itself: a frame is sent when its first sample is due, so the speech in it ends up to one frame later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TurnTruth:
    """One reply as the server saw it, ms."""

    session: str
    latency_ms: float


def read_truth(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Events by session, in order of their time."""
    sessions: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        event = json.loads(line)
        if "session" in event:
            sessions.setdefault(event["session"], []).append(event)
    return {name: sorted(events, key=lambda event: event["t"]) for name, events in sessions.items()}


def replies_ms(events: Iterable[Mapping[str, Any]], frame_ms: float) -> list[float]:
    """For each reply: from the end of the user's speech, as it arrived, to the first sample sent."""
    found, ended_s = [], None
    for event in events:
        if event["event"] == "user_speech_end":
            ended_s = event["t"]
        elif event["event"] == "first_audio" and ended_s is not None:
            found.append(1000 * (event["t"] - ended_s) - frame_ms)
            ended_s = None
    return found


def errors_ms(
    report: Mapping[str, Any],
    truth: Mapping[str, list[dict[str, Any]]],
    frame_ms: float,
    *,
    reliable_only: bool = False,
) -> list[float]:
    """Measured minus true latency of every answered turn, or of those that the tester vouches for.

    Raises:
        ValueError: A session is not in the log, or answers and replies differ in number.
    """
    errors: list[float] = []
    for session in report["sessions"]:
        events = truth.get(session["session_id"])
        if events is None:
            raise ValueError(f"{session['session_id']} is not in the truth log")
        true_ms = replies_ms(events, frame_ms)
        answered = [turn for turn in session["turns"] if turn["response_latency_ms"] is not None]
        if len(true_ms) != len(answered):
            raise ValueError(f"{session['session_id']}: {len(answered)} answers, the agent gave {len(true_ms)}")
        errors += [
            turn["response_latency_ms"] - true
            for turn, true in zip(answered, true_ms, strict=True)
            if turn["reliable"] or not reliable_only
        ]
    return errors
