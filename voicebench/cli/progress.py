"""A run's progress in words: what a live view shows of a snapshot (`live.Progress`). Light: the painter needs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from voicebench.words import duration, ms


def title_of(state: Mapping[str, Any]) -> str:
    """How long it has gone on, and what there is to come.

    >>> title_of({"state": "running", "elapsed_s": 12.0, "left_s": None, "to_place": 40, "started": 8})
    'running 12 s, 32 more sessions to place'
    >>> title_of({"state": "draining", "elapsed_s": 61.0, "left_s": 29.0, "to_place": None, "started": 8})
    'letting sessions finish, 29 s until they are cut'
    """
    if state["state"] == "draining":
        return f"letting sessions finish, {duration(state['left_s'])} until they are cut"
    text = f"running {duration(state['elapsed_s'])}"
    if state["left_s"] is not None:
        text += f", {duration(state['left_s'])} left"
    if state["to_place"] is not None and state["to_place"] > state["started"]:
        text += f", {state['to_place'] - state['started']:,} more sessions to place"
    return text


def line_of(state: Mapping[str, Any]) -> str:
    """A snapshot as one line.

    >>> line_of({"elapsed_s": 9.0, "left_s": None, "to_place": None, "state": "running", "live": 3, "started": 3,
    ...          "finished": 0, "failed": 0, "cut": 0, "turns": 0})
    '9 s: running; 3 live, 3 started, 0 finished, 0 failed'
    >>> line_of({"elapsed_s": 60.0, "left_s": 50.0, "to_place": None, "state": "running", "live": 3, "started": 9,
    ...          "finished": 6, "failed": 0, "cut": 0, "turns": 12, "missed": 1, "unreliable": 0, "p50_ms": 640.0,
    ...          "p95_ms": 712.0})
    '1 min 0 s: running, 50 s left; 3 live, 9 started, 6 finished, 0 failed; 12 turns, 1 missed; p50 640 ms, p95 712 ms'
    """
    title = title_of(state).replace(f"running {duration(state['elapsed_s'])}", "running")
    parts = [
        f"{duration(state['elapsed_s'])}: {title}",
        f"{state['live']} live, {state['started']} started, {state['finished']} finished, {state['failed']} failed",
    ]
    if state["turns"]:
        unreliable = f", {state['unreliable']} unreliable" if state["unreliable"] else ""
        parts.append(f"{state['turns']} turns, {state['missed']} missed{unreliable}")
        parts.append(f"p50 {ms(state['p50_ms'])}, p95 {ms(state['p95_ms'])}")
    return "; ".join(parts)
