"""The report's charts, from the columns of its timeline. Colours are classes: both schemes have their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from voicebench.reports.svg import picture, polyline, tag, ticks
from voicebench.words import NOTHING

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 900.0, 52.0, 62.0, 12.0, 26.0
LABEL_APART = 14.0
Column = Sequence[float | None]
WRONG = (
    ("missed", "missed response", "p99"),
    ("barge_in_failed", "barge-in failed", "both"),
    ("false_barge_ins", "false barge-in", "p90"),
    ("spurious_responses", "spurious response", "p95"),
    ("failed", "session failed", "bad"),
)
"""Column of the timeline, its words, its colour: from the bottom up."""


@dataclass(frozen=True, slots=True)
class Line:
    """One quantity over time."""

    label: str
    values: Column
    kind: str
    """CSS class: its colour and stroke."""


class _Frame:
    """Axes: run time to the right, values upwards."""

    def __init__(self, height: float, duration_s: float, least: float, most: float, about: int) -> None:
        self.height = height
        self.duration_s = max(duration_s, 1.0)
        self.marks = list(ticks(most, about))
        step = self.marks[1]
        while self.marks[0] > least:  # an agent that talks over the user answers before 0
            self.marks.insert(0, self.marks[0] - step)

    def x(self, t_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * t_s / self.duration_s

    def y(self, value: float) -> float:
        return TOP + (self.height - TOP - BOTTOM) * ((self.marks[-1] - value) / (self.marks[-1] - self.marks[0]))

    def grid(self) -> list[Markup]:
        right = WIDTH - RIGHT
        drawn = []
        for mark in self.marks:
            y = self.y(mark)
            drawn.append(tag("line", x1=LEFT, x2=right, y1=y, y2=y, class_="grid-line"))
            drawn.append(tag("text", f"{mark:,}", x=LEFT - 8, y=y + 4, text_anchor="end"))
        step_s = next(
            (each for each in _STEPS_S if self.duration_s / each <= 8), _STEPS_S[-1] * (1 + self.duration_s // 691_200)
        )
        t_s = 0.0
        while t_s <= self.duration_s:
            anchor = "start" if t_s == 0 else "middle"
            drawn.append(tag("text", run_time(t_s), x=self.x(t_s), y=self.height - 6, text_anchor=anchor))
            t_s += step_s
        return drawn


_STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 28_800, 86_400)


def latency_chart(timeline: Mapping[str, Any], limits: Mapping[str, float]) -> Markup | None:
    """Percentiles of response latency over time; None where no window had enough values.

    Args:
        limits: Of the whole run, by assertion.
    """
    lines = [Line(name, timeline[f"{name}_ms"], name) for name in ("p50", "p90", "p95", "p99")]
    if not any(value is not None for line in lines for value in line.values):
        return None
    names = {f"{line.label}_response_latency_ms": line.label for line in lines}
    drawn = {f"{names[name]} limit {limit:,g}": limit for name, limit in limits.items() if name in names}
    return line_chart(timeline, lines, "Response latency", "ms", key="latency", height=300.0, limits=drawn)


def calls_chart(timeline: Mapping[str, Any]) -> Markup | None:
    """Calls going on, and those that began; None where nobody counted them."""
    lines = [Line("calls", timeline["live"], "calls"), Line("starts/s", timeline["starts_per_s"], "p90")]
    if not any(value is not None for line in lines for value in line.values):
        return None
    return line_chart(timeline, lines, "Concurrent calls", "calls", key="calls", height=150.0, about=2)


def line_chart(
    timeline: Mapping[str, Any],
    lines: Sequence[Line],
    title: str,
    unit: str,
    *,
    key: str,
    height: float,
    about: int = 4,
    limits: Mapping[str, float] | None = None,
) -> Markup:
    """Lines over run time, labelled at their ends; a gap where there is no value."""
    limits = limits or {}
    ends_s = [t_s + timeline["window_s"] for t_s in timeline["t_s"]]
    values = [value for line in lines for value in line.values if value is not None] + list(limits.values())
    frame = _Frame(height, ends_s[-1] if ends_s else 0.0, min(values), max(values) * 1.05, about)
    drawn = frame.grid()
    for label, limit in limits.items():
        y = frame.y(limit)
        drawn.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="limit"))
        drawn.append(tag("text", label, x=LEFT + 8, y=y - 6, class_="limit"))
    for line in lines:
        points = [
            None if value is None else (frame.x(t_s), frame.y(value))
            for t_s, value in zip(ends_s, line.values, strict=True)
        ]
        drawn.append(tag("path", d=polyline(points), class_=f"line {line.kind}"))
    drawn += _end_labels(frame, lines)
    return picture(WIDTH, height, title, _in_words(lines, unit), *drawn, key=key)


def _end_labels(frame: _Frame, lines: Sequence[Line]) -> list[Markup]:
    last = [(line, [value for value in line.values if value is not None]) for line in lines]
    places = sorted(((frame.y(values[-1]), line) for line, values in last if values), key=lambda each: each[0])
    heights = _apart([y for y, _ in places], frame.height - BOTTOM)
    return [
        tag("text", line.label, x=WIDTH - RIGHT + 7, y=y + 4, class_=f"label {line.kind}")
        for y, (_, line) in zip(heights, places, strict=True)
    ]


def _apart(heights: Sequence[float], lowest: float) -> list[float]:
    """Heights of labels that do not cover each other, nor what stands below the chart.

    >>> _apart([10.0, 12.0, 99.0], 100.0), _apart([95.0, 99.0], 100.0)
    ([10.0, 24.0, 99.0], [86.0, 100.0])
    """
    placed: list[float] = []
    for height in heights:
        placed.append(max(height, placed[-1] + LABEL_APART) if placed else height)
    below = lowest
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], below)
        below = placed[index] - LABEL_APART
    return placed


def wrong_chart(timeline: Mapping[str, Any]) -> Markup | None:
    """What went wrong in each window, stacked; None where nothing did."""
    stacks = list(zip(*([n or 0 for n in timeline[name]] for name, _, _ in WRONG), strict=True))
    most = max((sum(stack) for stack in stacks), default=0)
    if not most:
        return None
    window_s = timeline["window_s"]
    frame = _Frame(150.0, len(stacks) * window_s, 0, most, 2)
    drawn = frame.grid()
    for index, stack in enumerate(stacks):
        left, right = frame.x(index * window_s), frame.x((index + 1) * window_s)
        below = 0
        for n, (_, _, kind) in zip(stack, WRONG, strict=True):
            if n:
                top = frame.y(below + n)
                width = max(1.0, right - left - 1)
                drawn.append(
                    tag("rect", x=left, y=top, width=width, height=frame.y(below) - top, class_=f"bar-part {kind}")
                )
            below += n
    totals = [sum(stack[place] for stack in stacks) for place in range(len(WRONG))]
    words = ", ".join(f"{total:,} {label}" for total, (_, label, _) in zip(totals, WRONG, strict=True))
    return picture(WIDTH, 150.0, "What went wrong", f"In all: {words}.", *drawn, key="wrong")


def run_time(t_s: float) -> str:
    """Run time as clocks show it.

    >>> run_time(75), run_time(3661)
    ('1:15', '1:01:01')
    """
    minutes, seconds = divmod(int(t_s), 60)
    return f"{minutes}:{seconds:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"


def _in_words(lines: Sequence[Line], unit: str) -> str:
    parts = []
    for line in lines:
        values = [value for value in line.values if value is not None]
        between = f"between {min(values):,.4g} and {max(values):,.4g}, last {values[-1]:,.4g}" if values else NOTHING
        parts.append(f"{line.label} {between}")
    return f"In {unit}: {'; '.join(parts)}."
