"""One recorded session as a picture: both tracks on one clock, turns, gaps, overlaps, what was missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from voicebench.events import Samples
from voicebench.recording import Recording
from voicebench.reports.foreign import shown
from voicebench.reports.incidents import what_came
from voicebench.reports.svg import picture, short, tag

WIDTH, LEFT, RIGHT, HEIGHT = 1160.0, 62.0, 12.0, 222.0
USER_Y, GAP_Y, AGENT_Y, HALF = 70.0, 120.0, 170.0, 30.0
COLUMNS = 400
QUIET = 0.03
"""A track is drawn against its loudest sample, or this share of full scale: noise is not blown up to speech."""
LETTER = 6.8
"""Width of one, about."""
LONGEST_NAME = 22
TURNS_NAMED = 40
"""In the description for those who don't see the picture."""

Session = Mapping[str, Any]
Turn = Mapping[str, Any]


def session_picture(recording: Recording, session: Session, key: str) -> Markup:
    """Both tracks of a session.

    Args:
        session: As the report lists it.
        key: Unlike that of any other picture.
    """
    drawing = _Drawing(max(recording.duration_s, 0.1), key)
    turns = [turn for turn in session["turns"] if turn["start_s"] is not None]
    waits = _waits_in_vain(recording, turns)
    drawn = [
        *drawing.ground(), *drawing.clock(), *drawing.overlaps(session), *drawing.missed(waits),
        *drawing.track(recording.user, session["user_segments"], USER_Y, "user"),
        *drawing.track(recording.agent, session["agent_segments"], AGENT_Y, "agent"),
        *drawing.starts(turns), *drawing.answers(turns), *drawing.stops(turns), *drawing.missed_words(waits),
        *drawing.names(),
    ]  # fmt: skip
    return picture(WIDTH, HEIGHT, f"Both tracks of {session['session_id']}", in_words(session), *drawn, key=key)


def in_words(session: Session) -> str:
    """What happened in each turn."""
    turns = session["turns"]
    told = [f"{shown(turn['id'], LONGEST_NAME)}: {what_came(turn)}." for turn in turns[:TURNS_NAMED]]
    if len(turns) > TURNS_NAMED:
        told.append(f"And {len(turns) - TURNS_NAMED:,} more turns.")
    return " ".join(told) or "No turn was played."


def _waits_in_vain(recording: Recording, turns: Sequence[Turn]) -> list[tuple[float, float]]:
    """From the end of each turn that was missed until nobody waited for an answer any longer."""
    longest_ms = {turn.id: turn.response_timeout_ms for turn in recording.scenario.turns}
    found = []
    for turn in turns:
        if turn["status"] == "missed":
            start_s = next(turn[key] for key in ("user_offset_s", "end_s", "start_s") if turn[key] is not None)
            found.append((start_s, min(start_s + longest_ms.get(turn["id"], 0.0) / 1000, recording.duration_s)))
    return [(start_s, end_s) for start_s, end_s in found if end_s > start_s]


class _Labels:
    """A row of words over time: what would cover the one before it is left out, as its mark stays."""

    def __init__(self, y: float) -> None:
        self._y = y
        self._free_from = LEFT

    def put(self, words: str, x: float, anchor: str, kind: str) -> list[Markup]:
        width = LETTER * len(words)
        left = x if anchor == "start" else x - width if anchor == "end" else x - width / 2
        if left < self._free_from or left + width > WIDTH:
            return []
        self._free_from = left + width + 6
        return [tag("text", words, x=x, y=self._y, text_anchor=anchor, class_=kind)]


class _Drawing:
    def __init__(self, duration_s: float, key: str) -> None:
        self._duration_s = duration_s
        self._hatch = f"{key}-hatch"

    def x(self, t_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(t_s, 0.0), self._duration_s) / self._duration_s

    def ground(self) -> list[Markup]:
        stripe = tag("rect", width=3, height=7, class_="stripe")
        pattern = tag("pattern", stripe, id=self._hatch, width=7, height=7, patternUnits="userSpaceOnUse",
                      patternTransform="rotate(45)")  # fmt: skip
        width = WIDTH - LEFT - RIGHT
        rows = [
            tag("rect", x=LEFT, y=y - HALF - 6, width=width, height=2 * HALF + 12, class_="row")
            for y in (USER_Y, AGENT_Y)
        ]
        return [pattern, *rows]

    def clock(self) -> list[Markup]:
        step_s = next((each for each in (1, 2, 5, 10, 20, 30, 60, 120, 300) if self._duration_s / each <= 12), 600)
        step_s *= max(1, round(self._duration_s / step_s / 12))
        return [
            tag("text", f"{t_s // 60}:{t_s % 60:02}", x=self.x(t_s), y=12.0,
                text_anchor="start" if t_s == 0 else "end" if self.x(t_s) > WIDTH - RIGHT - 14 else "middle")
            for t_s in range(0, int(self._duration_s) + 1, step_s)
        ]  # fmt: skip

    def names(self) -> list[Markup]:
        drawn = [tag("text", "gap, ms", x=LEFT - 8, y=GAP_Y + 4, text_anchor="end")]
        for y, name, what in ((USER_Y, "User", "sent"), (AGENT_Y, "Agent", "heard")):
            drawn.append(tag("text", name, x=LEFT - 8, y=y - 2, text_anchor="end", class_=f"name {name.lower()}"))
            drawn.append(tag("text", what, x=LEFT - 8, y=y + 13, text_anchor="end"))
        return drawn

    def track(self, samples: Samples, segments: Sequence[Sequence[float]], y: float, kind: str) -> list[Markup]:
        drawn = [tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="axis")]
        for start_s, end_s in segments:
            width = max(2.0, self.x(end_s) - self.x(start_s))
            drawn.append(
                tag("rect", x=self.x(start_s), y=y - HALF, width=width, height=2 * HALF, rx=4, class_=f"speech {kind}")
            )
        drawn.append(tag("path", d=self._wave(samples, y), class_=f"wave {kind}"))
        return drawn

    def _wave(self, samples: Samples, y: float) -> str:
        columns = envelope(samples, COLUMNS)
        step = (WIDTH - LEFT - RIGHT) / max(1, len(columns))
        return "".join(
            f"M{short(LEFT + (place + 0.5) * step)} {short(y - high * HALF)}V{short(y - low * HALF)}"
            for place, (low, high) in enumerate(columns)
            if high - low > 0.02
        )

    def starts(self, turns: Sequence[Turn]) -> list[Markup]:
        drawn = []
        labels = _Labels(28.0)
        for turn in turns:
            x = self.x(turn["start_s"])
            drawn.append(tag("line", x1=x, x2=x, y1=20.0, y2=AGENT_Y + HALF + 6, class_="turn"))
            drawn += labels.put(shown(turn["id"], LONGEST_NAME), x + 4, "start", "id")
        return drawn

    def overlaps(self, session: Session) -> list[Markup]:
        drawn = []
        top, height = USER_Y - HALF - 6, AGENT_Y - USER_Y + 2 * HALF + 12
        for user in session["user_segments"]:
            for agent in session["agent_segments"]:
                start_s, end_s = max(user[0], agent[0]), min(user[1], agent[1])
                if end_s > start_s:
                    x, width = self.x(start_s), max(1.0, self.x(end_s) - self.x(start_s))
                    drawn.append(tag("rect", x=x, y=top, width=width, height=height, class_="overlap"))
        return drawn

    def missed(self, waits: Sequence[tuple[float, float]]) -> list[Markup]:
        return [
            tag("rect", x=self.x(start_s), y=AGENT_Y - HALF, width=max(2.0, self.x(end_s) - self.x(start_s)),
                height=2 * HALF, fill=f"url(#{self._hatch})")
            for start_s, end_s in waits
        ]  # fmt: skip

    def missed_words(self, waits: Sequence[tuple[float, float]]) -> list[Markup]:
        """Last, so that no wave lies over them."""
        drawn = []
        labels = _Labels(AGENT_Y + 4)
        for start_s, end_s in waits:
            words = f"no answer, {end_s - start_s:.1f} s"
            wide = self.x(end_s) - self.x(start_s)
            for each in (words, "no answer", "\N{BALLOT X}"):
                if wide > LETTER * len(each):
                    drawn += labels.put(each, (self.x(start_s) + self.x(end_s)) / 2, "middle", "halo bad")
                    break
        return drawn

    def answers(self, turns: Sequence[Turn]) -> list[Markup]:
        """How long each answer took; of a noise, what came of it."""
        drawn: list[Markup] = []
        labels = _Labels(GAP_Y - 8), _Labels(GAP_Y + 4)
        for turn in turns:
            kind = "good" if turn["passed"] else "bad"
            latency_ms, from_s = turn["response_latency_ms"], turn["user_offset_s"]
            if turn["expect"] == "ignore" and turn["status"] == "measured":
                mark = "\N{CHECK MARK}" if turn["passed"] else "\N{BALLOT X}"
                drawn += labels[1].put(f"{mark} {what_came(turn)}", self.x(turn["start_s"]) + 4, "start", kind)
            elif latency_ms is not None and from_s is not None:
                first, last = sorted((from_s, from_s + latency_ms / 1000))
                drawn += self._span(first, last, GAP_Y, f"{latency_ms:,.0f}", kind, labels)
        return drawn

    def stops(self, turns: Sequence[Turn]) -> list[Markup]:
        drawn: list[Markup] = []
        y = AGENT_Y + HALF + 14
        labels = _Labels(y - 8), _Labels(y + 4)
        for turn in turns:
            if turn["expect"] == "stop" and turn["stop_ms"] is not None and turn["user_onset_s"] is not None:
                end_s = turn["user_onset_s"] + turn["stop_ms"] / 1000
                what = "silent after" if turn["passed"] else "talked on for"
                words = f"{what} {turn['stop_ms']:,.0f} ms"
                kind = "good" if turn["passed"] else "bad"
                drawn += self._span(turn["user_onset_s"], end_s, y, words, kind, labels, inside=False)
        return drawn

    def _span(
        self, from_s: float, to_s: float, y: float, words: str, kind: str, labels: tuple[_Labels, _Labels], *,
        inside: bool = True,
    ) -> list[Markup]:  # fmt: skip
        """A bracket over a stretch of time; its words above it where it is wide enough, beside it elsewhere."""
        left, right = self.x(from_s), self.x(to_s)
        drawn = [tag("path", d=f"M{short(left)} {short(y - 5)}v10m0-5H{short(right)}m0-5v10", class_=f"span {kind}")]
        width = LETTER * len(words)
        if inside and right - left > width + 4:
            return drawn + labels[0].put(words, (left + right) / 2, "middle", f"gap {kind}")
        if right + 6 + width > WIDTH - RIGHT:
            return drawn + labels[1].put(words, left - 6, "end", f"gap {kind}")
        return drawn + labels[1].put(words, right + 6, "start", f"gap {kind}")


def envelope(samples: Samples, columns: int) -> list[tuple[float, float]]:
    """The lowest and the highest sample of each of so many equal parts, against the loudest of all.

    >>> envelope(np.array([0, 16384, -32768, 5], dtype=np.int16), 2)
    [(0.0, 0.5), (-1.0, 0.000152587890625)]
    """
    if not len(samples):
        return []
    columns = min(columns, len(samples))
    edges = np.linspace(0, len(samples), columns, endpoint=False).astype(int)
    lows, highs = (each.reduceat(samples, edges) / 32768 for each in (np.minimum, np.maximum))
    loudest = max(float(np.max(np.abs([lows.min(), highs.max()]))), QUIET)
    return list(zip((lows / loudest).tolist(), (highs / loudest).tolist(), strict=True))
