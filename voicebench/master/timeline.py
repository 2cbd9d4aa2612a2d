"""How a run went: its turns in windows of time, merged exactly, so that a wider window's percentile is never an average
of averages.

What comes out depends on what was taken in alone, and not on the order: the run's own timeline and the one made again
from `run.db` are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from voicebench.distribution import FEW_FOR_P95, FEW_FOR_P99, Distribution, without_noise
from voicebench.records import TurnRecord
from voicebench.wire.messages import SessionResult

WINDOW_S = 5.0
MAX_WINDOWS = 1000
"""Beyond that, two and two become one of twice the length."""
WIDEST = 12
"""So many windows a percentile may look back for values."""
OVER_TIME = 24
"""So many values of a turn's p95 there are at most."""
LONGEST_RUN_S = 366 * 86_400.0
"""What says that it happened later is wrong; a window for it would make all others useless."""
RATE_DIGITS = 4

COLUMNS = (
    "live", "starts_per_s", "n", "p50_ms", "p90_ms", "p95_ms", "p99_ms", "ttfa_p95_ms", "stop_p50_ms", "respond_turns",
    "missed", "barge_in_turns", "barge_in_failed", "false_barge_ins", "spurious_responses", "failed", "missed_rate",
    "barge_in_success_rate",
)  # fmt: skip
TurnKey = tuple[str, str]
"""Scenario and turn id."""


@dataclass(slots=True)
class _Window:
    """What happened in it. All of it adds up."""

    counts: Counter[str] = field(default_factory=Counter)
    latency_ms: Distribution = field(default_factory=Distribution)
    ttfa_ms: Distribution = field(default_factory=Distribution)
    stop_ms: Distribution = field(default_factory=Distribution)
    by_turn: dict[TurnKey, Distribution] = field(default_factory=dict)
    sampled_s: float = -1.0
    """When the calls were last counted; several workers are counted at the same instant."""
    live: int = 0
    started: int = 0
    """In all, since the run's start."""

    def update(self, later: _Window) -> None:
        """Take in the window that follows."""
        self.counts.update(later.counts)
        for mine, other in (
            (self.latency_ms, later.latency_ms), (self.ttfa_ms, later.ttfa_ms), (self.stop_ms, later.stop_ms),
        ):  # fmt: skip
            mine.update(other)
        for key, values in later.by_turn.items():
            self.by_turn.setdefault(key, Distribution()).update(values)
        if later.sampled_s >= 0.0:
            self.sampled_s, self.live, self.started = later.sampled_s, later.live, later.started


class Timeline:
    """Sessions and samples in, columns out."""

    def __init__(self) -> None:
        self.window_s = WINDOW_S
        self._windows: list[_Window] = []
        self._columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        self._stale_from: int | None = None
        """The first window whose columns have to be made again."""
        self._changed_from: int | None = None
        self._thinned = False

    def __len__(self) -> int:
        return len(self._windows)

    # --- in ----------------------------------------------------------------------------------------------------------

    def take(self, result: SessionResult) -> None:
        """Take a session in that is in the run's numbers."""
        record, started_s = result.record, result.started_s
        for turn in record.turns:
            if turn.status in ("measured", "missed"):
                self._turn(record.scenario, turn, started_s + (turn.end_s or turn.start_s or 0.0))
        if record.outcome.state == "failed":
            self._window(started_s + record.duration_s).counts["failed"] += 1

    def sample(self, t_s: float, *, live: int, started: int) -> None:
        """Take in how many calls a worker held at an instant, and how many it had started by then. All workers are
        counted at the same instants, and these ascend."""
        window = self._window(t_s)
        if t_s > window.sampled_s:
            window.sampled_s, window.live, window.started = t_s, live, started
        elif t_s == window.sampled_s:
            window.live += live
            window.started += started

    def _turn(self, scenario: str, turn: TurnRecord, at_s: float) -> None:
        window = self._window(at_s)
        counts = window.counts
        time_ms = None
        if turn.expect == "respond":
            counts["respond_turns"] += 1
            counts["missed"] += turn.status == "missed"
            time_ms = turn.response_latency_ms
            if time_ms is not None:
                window.latency_ms.add(time_ms)
            if turn.ttfa_ms is not None:
                window.ttfa_ms.add(turn.ttfa_ms)
        elif turn.expect == "stop":
            counts["barge_in_turns"] += 1
            counts["barge_in_failed"] += not turn.passed
            time_ms = turn.stop_ms
            if time_ms is not None:
                window.stop_ms.add(time_ms)
        else:
            counts["false_barge_ins"] += bool(turn.false_barge_in)
            counts["spurious_responses"] += bool(turn.spurious_response)
        if time_ms is not None:
            window.by_turn.setdefault((scenario, turn.id), Distribution()).add(time_ms)

    def _window(self, at_s: float) -> _Window:
        at_s = min(max(0.0, at_s), LONGEST_RUN_S)
        while at_s >= MAX_WINDOWS * self.window_s:
            self._thin()
        index = int(at_s // self.window_s)
        stale = min(index, len(self._windows))
        self._stale_from = stale if self._stale_from is None else min(self._stale_from, stale)
        while len(self._windows) <= index:
            self._windows.append(_Window())
        return self._windows[index]

    def _thin(self) -> None:
        for earlier, later in zip(self._windows[::2], self._windows[1::2], strict=False):
            earlier.update(later)
        self._windows = self._windows[::2]
        self.window_s *= 2
        self._columns = {name: [] for name in COLUMNS}
        self._stale_from, self._thinned = 0, True

    # --- out ---------------------------------------------------------------------------------------------------------

    def as_dict(self) -> dict[str, Any]:
        """All of it: `timeline` of the report."""
        self._refresh()
        return {
            "window_s": self.window_s,
            "t_s": [index * self.window_s for index in range(len(self._windows))],
            **{name: list(column) for name, column in self._columns.items()},
        }

    def take_changed(self) -> tuple[int, bool]:
        """What has changed since the last call: the first window, and whether the windows have become wider."""
        self._refresh()
        first = len(self._windows) if self._changed_from is None else self._changed_from
        thinned = self._thinned
        self._changed_from, self._thinned = None, False
        return first, thinned

    def tail(self, first: int) -> dict[str, Any]:
        """The columns from a window on."""
        self._refresh()
        return {
            "from": first,
            "window_s": self.window_s,
            "t_s": [index * self.window_s for index in range(first, len(self._windows))],
            **{name: column[first:] for name, column in self._columns.items()},
        }

    def p95_over_time(self) -> dict[TurnKey, list[float | None]]:
        """Of each turn that has times: its p95 in equal parts of the run, null where there are too few."""
        per_part = max(1, -(-len(self._windows) // OVER_TIME))
        n_parts = -(-len(self._windows) // per_part)
        parts: dict[TurnKey, dict[int, Distribution]] = {}
        for index, window in enumerate(self._windows):
            for key, values in window.by_turn.items():
                parts.setdefault(key, {}).setdefault(index // per_part, Distribution()).update(values)
        return {key: [_p(found.get(part), 95, FEW_FOR_P95) for part in range(n_parts)] for key, found in parts.items()}

    def _refresh(self) -> None:
        first = self._stale_from
        if first is None:
            return
        self._stale_from = None
        self._changed_from = first if self._changed_from is None else min(self._changed_from, first)
        for column in self._columns.values():
            del column[first:]
        for index in range(first, len(self._windows)):
            for name, value in self._row(index).items():
                self._columns[name].append(value)

    def _row(self, index: int) -> Mapping[str, Any]:
        window = self._windows[index]
        counts = window.counts
        latency_ms = [self._widened(index, "latency_ms", few) for few in (FEW_FOR_P95, FEW_FOR_P99)]
        ttfa_ms, stop_ms = (self._widened(index, name, FEW_FOR_P95) for name in ("ttfa_ms", "stop_ms"))
        return {
            "live": window.live if window.sampled_s >= 0.0 else None,
            "starts_per_s": self._starts_per_s(index),
            "n": window.latency_ms.count,
            **{f"p{percent}_ms": _p(latency_ms[0], percent) for percent in (50, 90, 95)},
            "p99_ms": _p(latency_ms[1], 99),
            "ttfa_p95_ms": _p(ttfa_ms, 95),
            "stop_p50_ms": _p(stop_ms, 50),
            **{name: counts[name] for name in ("respond_turns", "missed", "barge_in_turns", "barge_in_failed")},
            **{name: counts[name] for name in ("false_barge_ins", "spurious_responses", "failed")},
            "missed_rate": _share(counts["missed"], counts["respond_turns"]),
            "barge_in_success_rate": _share(
                counts["barge_in_turns"] - counts["barge_in_failed"], counts["barge_in_turns"]
            ),
        }

    def _widened(self, index: int, name: str, enough: int) -> Distribution | None:
        """A window's values, with those of the windows before it as far as they are needed."""
        found: Distribution = getattr(self._windows[index], name)
        for earlier in range(index - 1, max(-1, index - WIDEST), -1):
            if found.count >= enough:
                break
            found = found.merge(getattr(self._windows[earlier], name))
        return found if found.count >= enough else None

    def _starts_per_s(self, index: int) -> float | None:
        window = self._windows[index]
        if window.sampled_s < 0.0:
            return None
        earlier = (self._windows[each] for each in range(index - 1, -1, -1))
        before = next((each for each in earlier if each.sampled_s >= 0.0), None)
        from_s, from_started = (before.sampled_s, before.started) if before is not None else (0.0, 0)
        took_s = window.sampled_s - from_s
        return round((window.started - from_started) / took_s, 2) if took_s > 0.0 else None


def _p(values: Distribution | None, percent: float, enough: int = 1) -> float | None:
    if values is None or values.count < enough:
        return None
    return without_noise(values.percentile(percent))


def _share(part: int, of: int) -> float | None:
    return round(part / of, RATE_DIGITS) if of else None
