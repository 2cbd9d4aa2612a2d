"""The run's report as one JSON document (docs/report.md has its keys)."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from voicebench import __version__
from voicebench.assertions import AssertionResult
from voicebench.distribution import Distribution
from voicebench.master.collector import Collector
from voicebench.master.verdict import RunVerdict

SCHEMA = "voicebench-report/1"


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run was, beside its numbers."""

    id: str
    name: str
    started_at: str
    duration_s: float
    plan: Mapping[str, Any]
    """The whole document with secrets redacted."""
    seed: int
    clock: str
    cpu_s: float
    worker: str
    adapters: tuple[str, ...]
    notes: tuple[str, ...]
    events: tuple[Mapping[str, Any], ...]


def report_document(
    facts: RunFacts, collector: Collector, started: int, assertions: Sequence[AssertionResult], verdict: RunVerdict
) -> dict[str, Any]:
    """The report. What doesn't exist is null."""
    accounting = collector.accounting(started)
    return {
        "schema": SCHEMA,
        "voicebench": __version__,
        "run": {
            "id": facts.id,
            "name": facts.name,
            "started_at": facts.started_at,
            "duration_s": round(facts.duration_s, 3),
            "plan": facts.plan,
            "seed": facts.seed,
            "clock": facts.clock,
            "complete": verdict.complete,
            "verdict": verdict.verdict,
            "reasons": list(verdict.reasons),
            "notes": list(facts.notes),
        },
        "accounting": {**accounting, "by_worker": {facts.worker: accounting}},
        "summary": collector.total.all.as_dict(),
        "summary_reliable": collector.total.reliable.as_dict(),
        "assertions": [result.as_dict() for result in assertions],
        "by_scenario": {
            name: {
                "summary": sums.all.as_dict(),
                "summary_reliable": sums.reliable.as_dict(),
                "by_turn": {turn: tally.as_dict() for turn, tally in collector.by_turn[name].items()},
            }
            for name, sums in collector.by_scenario.items()
        },
        "workers": [_worker(facts, collector, started)],
        "events": list(facts.events),
        "sessions_listed": "all" if len(collector.sessions()) == collector.n_taken else "kept",
        "sessions": collector.sessions(),
    }


def _worker(facts: RunFacts, collector: Collector, started: int) -> dict[str, Any]:
    late = collector.lateness_ms
    return {
        "id": facts.worker,
        "voicebench": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "adapters": list(facts.adapters),
        "sessions": started,
        "cpu_s": round(facts.cpu_s, 3),
        "frame_lateness_ms": _lateness(late),
    }


def _lateness(late: Distribution) -> dict[str, float | int | None]:
    shown = late.as_dict()
    return {key: shown[key] for key in ("count", "p50", "p99", "max")}
