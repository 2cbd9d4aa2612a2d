"""Turns over all sessions of their scenario, by what was expected of the agent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from voicebench.reports.figures import has_few, percentile
from voicebench.words import NOTHING, ms, share

Document = Mapping[str, Any]
EXPECTATIONS = {
    "respond": "response latency",
    "stop": "time until the agent falls silent",
    "ignore": "the agent must go on talking, or stay silent",
}


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One turn over all sessions of its scenario."""

    id: str
    expect: str
    judged: str
    passed: str
    rate: str
    missed: str
    """Answers that did not come, or interruptions that did not make it stop in time; of a noise what it did instead."""
    is_bad: bool
    times: tuple[str, ...]
    """p50, p90, p95, p99, max."""
    over: frozenset[int]
    """Which of these are over a limit of the plan."""
    first_audio: str
    wer: str
    unreliable: str

    @property
    def has_few(self) -> bool:
        return has_few((*self.times, self.first_audio))


@dataclass(frozen=True, slots=True)
class TurnTable:
    """The turns of a scenario."""

    scenario: str
    groups: tuple[tuple[str, str, tuple[TurnRow, ...]], ...]
    """Expectation, what its times are, rows in the order of the script."""

    @property
    def rows(self) -> list[TurnRow]:
        return [row for _, _, rows in self.groups for row in rows]

    @property
    def has_few(self) -> bool:
        return any(row.has_few for row in self.rows)

    @property
    def has_over(self) -> bool:
        return any(row.over for row in self.rows)


def turn_tables(report: Document) -> list[TurnTable]:
    """A table for each scenario in which a turn was played."""
    expected = _expected(report["run"]["plan"])
    return [
        TurnTable(name, tuple(_groups(name, document["by_turn"], expected, _limits(report, name))))
        for name, document in report["by_scenario"].items()
        if document["by_turn"]
    ]


def _limits(report: Document, scenario: str) -> dict[str, float]:
    return {each["name"]: each["limit"] for each in report["assertions"] if each["scenario"] in (None, scenario)}


def _groups(
    scenario: str, by_turn: Mapping[str, Document], expected: Mapping[tuple[str, str], str], limits: Mapping[str, float]
) -> Iterator[tuple[str, str, tuple[TurnRow, ...]]]:
    rows = [_row(name, summary, expected.get((scenario, name)), limits) for name, summary in by_turn.items()]
    for expect, words in EXPECTATIONS.items():
        found = tuple(row for row in rows if row.expect == expect)
        if found:
            yield expect, words, found


def _row(name: str, summary: Document, expect: str | None, limits: Mapping[str, float]) -> TurnRow:
    if expect is None:
        expect = "stop" if summary["barge_in_turns"] else "ignore" if summary["noise_turns"] else "respond"
    metric = "barge_in_stop_ms" if expect == "stop" else "response_latency_ms"
    shown = ("p50", "p90", "p95", "p99", "max")
    values = summary[metric]
    judged = summary["turns"] - summary["not_played_turns"] - summary["unfinished_turns"]
    allowed = [limits.get(f"{each}_{metric}") for each in shown]
    return TurnRow(
        id=name,
        expect=expect,
        judged=f"{judged:,}",
        passed=f"{summary['turns_passed']:,}",
        rate=share(round(summary["turns_passed"] / judged, 4)) if judged else NOTHING,
        missed=_missed(expect, summary, judged),
        is_bad=summary["turns_passed"] < judged,
        times=tuple(NOTHING if expect == "ignore" else percentile(values, each) for each in shown),
        over=frozenset(
            place
            for place, (each, limit) in enumerate(zip(shown, allowed, strict=True))
            if limit is not None and values[each] is not None and values[each] > limit
        ),
        first_audio=percentile(summary["ttfa_ms"], "p95") if expect == "respond" else ms(None),
        wer=share(summary["mean_wer"]),
        unreliable=f"{summary['unreliable_turns']:,}" if judged else NOTHING,
    )


def _missed(expect: str, summary: Document, judged: int) -> str:
    if not judged:
        return NOTHING
    if expect == "respond":
        return f"{summary['missed_responses']:,}"
    if expect == "stop":
        return f"{summary['barge_in_turns'] - summary['turns_passed']:,}"
    false, spurious = summary["false_barge_ins"], summary["spurious_responses"]
    words = [f"{n:,} {what}" for n, what in ((false, "stopped"), (spurious, "answered")) if n]
    return ", ".join(words) or "0"


def _expected(plan: Any) -> dict[tuple[str, str], str]:
    """What the plan expects of each turn, by scenario and turn id, as far as it says so."""
    found = {}
    documents = plan.get("scenarios") if isinstance(plan, Mapping) else None
    for document in documents if isinstance(documents, list) else ():
        turns = document.get("turns") if isinstance(document, Mapping) else None
        for turn in turns if isinstance(turns, list) else ():
            if isinstance(turn, Mapping) and turn.get("expect") in EXPECTATIONS:
                found[str(document.get("name")), str(turn.get("id"))] = str(turn["expect"])
    return found
