"""One recorded session as a picture: both tracks on one clock, turns, gaps, overlaps, what was missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from voicebench.events import Samples
from voicebench.recording import Recording
from voicebench.reports.svg import picture, short, tag

WIDTH, LEFT, RIGHT, HEIGHT = 900.0, 62.0, 12.0, 236.0
USER_Y, GAP_Y, AGENT_Y, HALF = 66.0, 116.0, 166.0, 28.0
COLUMNS = 360
QUIET = 0.03
"""A track is drawn against its loudest sample, or this share of full scale: noise is not blown up to speech."""
NARROW = 44.0
"""A gap has to be so wide for its label to stand inside."""


def session_picture(recording: Recording, session: Mapping[str, Any], key: str) -> Markup:
    """Both tracks of a session.

    Args:
        session: As the report lists it.
        key: Unlike that of any other picture.
    """
    drawing = _Drawing(max(recording.duration_s, 0.1))
    turns = [turn for turn in session["turns"] if turn["start_s"] is not None]
    drawn = [
        *drawing.clock(), *drawing.overlaps(session), *drawing.missed(turns, session),
        *drawing.track(recording.user, session["user_segments"], USER_Y, "user"),
        *drawing.track(recording.agent, session["agent_segments"], AGENT_Y, "agent"),
        *drawing.starts(turns), *drawing.answers(turns), *drawing.stops(turns), *drawing.names(),
    ]  # fmt: skip
    return picture(WIDTH, HEIGHT, f"Both tracks of {session['session_id']}", in_words(session), *drawn, key=key)


def in_words(session: Mapping[str, Any]) -> str:
    """What happened in each turn."""
    return " ".join(f"{turn['id']}: {what_came(turn)}." for turn in session["turns"]) or "No turn was played."


def what_came(turn: Mapping[str, Any]) -> str:
    """What the agent did in one turn, in few words."""
    if turn["status"] in ("not_played", "unfinished"):
        return str(turn["status"]).replace("_", " ")
    if turn["status"] == "missed":
        return "missed"
    if turn["expect"] == "respond":
        return f"answered after {turn['response_latency_ms']:,.0f} ms"
    if turn["expect"] == "stop":
        if turn["stop_ms"] is None:
            return "nothing to stop" if turn["stopped"] is None else "never stopped"
        return f"stopped after {turn['stop_ms']:,.0f} ms"
    noticed = [word for key, word in (("false_barge_in", "stopped"), ("spurious_response", "answered")) if turn[key]]
    return " and ".join(noticed) or "ignored"


class _Drawing:
    def __init__(self, duration_s: float) -> None:
        self._duration_s = duration_s

    def x(self, t_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(t_s, self._duration_s) / self._duration_s

    def clock(self) -> list[Markup]:
        step_s = next((each for each in (1, 2, 5, 10, 20, 30, 60, 120, 300) if self._duration_s / each <= 12), 600)
        times = range(0, int(self._duration_s) + 1, step_s)
        return [
            tag("text", f"{t_s} s", x=self.x(t_s), y=14.0, text_anchor="start" if t_s == 0 else "middle")
            for t_s in times
        ]

    def names(self) -> list[Markup]:
        rows = ((USER_Y, "User", "sent"), (AGENT_Y, "Agent", "heard"))
        drawn = [tag("text", "gap ms", x=LEFT - 8, y=GAP_Y + 4, text_anchor="end")]
        for y, name, what in rows:
            drawn.append(tag("text", name, x=LEFT - 8, y=y - 2, text_anchor="end", class_=f"name {name.lower()}"))
            drawn.append(tag("text", what, x=LEFT - 8, y=y + 13, text_anchor="end"))
        return drawn

    def track(self, samples: Samples, segments: Sequence[Sequence[float]], y: float, kind: str) -> list[Markup]:
        drawn = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid")]
        for start_s, end_s in segments:
            width = max(2.0, self.x(end_s) - self.x(start_s))
            drawn.append(
                tag("rect", x=self.x(start_s), y=y - HALF, width=width, height=2 * HALF, rx=4, class_=f"speech {kind}")
            )
        drawn.append(tag("path", d=self._wave(samples, y), class_=f"wave {kind}"))
        return drawn

    def _wave(self, samples: Samples, y: float) -> str:
        heights = envelope(samples, COLUMNS)
        step = (WIDTH - LEFT - RIGHT) / max(1, len(heights))
        return "".join(
            f"M{short(LEFT + (index + 0.5) * step)} {short(y - height * HALF)}V{short(y + height * HALF)}"
            for index, height in enumerate(heights)
            if height > 0.01
        )

    def starts(self, turns: Sequence[Mapping[str, Any]]) -> list[Markup]:
        drawn = []
        free_from = 0.0
        for turn in turns:
            x = self.x(turn["start_s"])
            drawn.append(tag("line", x1=x, x2=x, y1=22.0, y2=HEIGHT - 34, class_="turn"))
            name = turn["id"] if len(turn["id"]) <= 24 else turn["id"][:23] + "…"
            if x + 4 >= free_from:
                drawn.append(tag("text", name, x=x + 4, y=30.0, class_="id"))
                free_from = x + 10 + 6.5 * len(name)
        return drawn

    def overlaps(self, session: Mapping[str, Any]) -> list[Markup]:
        drawn = []
        for user in session["user_segments"]:
            for agent in session["agent_segments"]:
                start_s, end_s = max(user[0], agent[0]), min(user[1], agent[1])
                if end_s > start_s:
                    x, width = self.x(start_s), max(1.0, self.x(end_s) - self.x(start_s))
                    top, height = USER_Y - HALF - 6, AGENT_Y - USER_Y + 2 * HALF + 12
                    drawn.append(tag("rect", x=x, y=top, width=width, height=height, class_="overlap"))
        return drawn

    def missed(self, turns: Sequence[Mapping[str, Any]], session: Mapping[str, Any]) -> list[Markup]:
        drawn = []
        for index, turn in enumerate(turns):
            if turn["status"] != "missed" or turn["expect"] != "respond":
                continue
            start_s = turn["user_offset_s"] or turn["end_s"] or turn["start_s"]
            end_s = turns[index + 1]["start_s"] if index + 1 < len(turns) else session["duration_s"]
            x, width = self.x(start_s), max(2.0, self.x(end_s) - self.x(start_s))
            drawn.append(tag("rect", x=x, y=AGENT_Y - HALF, width=width, height=2 * HALF, class_="missed"))
            drawn.append(tag("text", "no answer", x=x + width / 2, y=AGENT_Y + 4, text_anchor="middle", class_="bad"))
        return drawn

    def answers(self, turns: Sequence[Mapping[str, Any]]) -> list[Markup]:
        drawn: list[Markup] = []
        for turn in turns:
            latency_ms, from_s = turn["response_latency_ms"], turn["user_offset_s"]
            if latency_ms is None or from_s is None:
                continue
            first, last = sorted((from_s, from_s + latency_ms / 1000))
            kind = "good" if turn["passed"] else "bad"
            drawn += self._span(first, last, GAP_Y, f"{latency_ms:,.0f}", kind)
        return drawn

    def stops(self, turns: Sequence[Mapping[str, Any]]) -> list[Markup]:
        drawn: list[Markup] = []
        for turn in turns:
            if turn["expect"] == "stop" and turn["stop_ms"] is not None and turn["user_onset_s"] is not None:
                end_s = turn["user_onset_s"] + turn["stop_ms"] / 1000
                kind = "good" if turn["passed"] else "bad"
                words = f"stopped after {turn['stop_ms']:,.0f} ms"
                drawn += self._span(turn["user_onset_s"], end_s, AGENT_Y + HALF + 14, words, kind)
        return drawn

    def _span(self, from_s: float, to_s: float, y: float, words: str, kind: str) -> list[Markup]:
        left, right = self.x(from_s), self.x(to_s)
        path = f"M{short(left)} {short(y - 5)}v10m0 -5H{short(right)}m0 -5v10"
        inside = right - left > NARROW + 6 * len(words)
        near_edge = right + 8 * len(words) > WIDTH - RIGHT
        x, anchor = (
            ((left + right) / 2, "middle") if inside else (left - 5, "end") if near_edge else (right + 5, "start")
        )
        return [
            tag("path", d=path, class_=f"span {kind}"),
            tag("text", words, x=x, y=y - 7 if inside else y + 4, text_anchor=anchor, class_=f"gap {kind}"),
        ]


def envelope(samples: Samples, columns: int) -> list[float]:
    """The loudest sample of each of so many equal parts, from 0 to 1.

    >>> envelope(np.array([0, 100, -32768, 5], dtype=np.int16), 2)
    [0.0030517578125, 1.0]
    """
    if not len(samples):
        return []
    columns = min(columns, len(samples))
    edges = np.linspace(0, len(samples), columns, endpoint=False).astype(int)
    peaks = np.maximum.reduceat(np.abs(samples.astype(np.int32)), edges) / 32768
    return [float(peak) for peak in peaks / max(float(peaks.max()), QUIET)]
