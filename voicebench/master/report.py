"""The run's report as one JSON document (docs/report.md has its keys)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from voicebench import __version__
from voicebench.assertions import AssertionResult
from voicebench.distribution import Distribution
from voicebench.master.collector import Account, Collector
from voicebench.master.verdict import RunVerdict
from voicebench.scenario.model import Plan
from voicebench.scenario.prepared import PreparedScenario
from voicebench.scenario.secrets import redact_document

SCHEMA = "voicebench-report/1"


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """The worst of a worker's seconds with calls, each by itself; throttling of all of them. None: not known."""

    loop_cpu_share: float | None = None
    process_cpu_share: float | None = None
    waited_share: float | None = None
    throttled_ms: float | None = None
    steal_share: float | None = None
    widest_gap_ms: float | None = None
    worst_late_ms: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """One worker, beside its numbers. The times are run times."""

    name: str
    host: str
    voicebench: str
    python: str
    platform: str
    cpus: int
    state: Literal["here", "done", "left", "lost", "unable"]
    why: str = ""
    """What is known of why it went away."""
    joined_s: float = 0.0
    left_s: float | None = None
    cpu_s: float = 0.0
    started: int = 0
    maybe_started: int = 0
    """Sessions it may have started without anybody hearing of it, at most."""
    health: HealthFacts | None = None


@dataclass(frozen=True, slots=True)
class RunHead:
    """What a run is, known when it begins."""

    id: str
    name: str
    started_at: str
    plan: Mapping[str, Any]
    """The whole document with secrets redacted."""
    seed: int
    clock: Literal["virtual", "real"]
    adapters: tuple[str, ...]
    limits: Mapping[str, float]
    """Of the whole run."""
    scenario_limits: Mapping[str, Mapping[str, float]]
    """Of each scenario's own sessions, in the order of the plan."""
    insecure: bool = False
    """Workers could reach the master over a network without authentication."""


def run_head(
    run_id: str,
    plan: Plan,
    scenarios: Sequence[PreparedScenario],
    *,
    seed: int,
    clock: Literal["virtual", "real"],
    insecure: bool = False,
) -> RunHead:
    """What a run is, from its plan. `started_at` is to be filled in when it starts."""
    return RunHead(
        id=run_id,
        name=plan.name,
        started_at="",
        plan={
            "plan": redact_document(plan.document),
            "scenarios": [redact_document(prepared.scenario.document) for prepared in scenarios],
        },
        seed=seed,
        clock=clock,
        adapters=tuple(prepared.scenario.adapter.type for prepared in scenarios),
        limits=dict(plan.limits),
        scenario_limits={prepared.scenario.name: dict(prepared.scenario.limits) for prepared in scenarios},
        insecure=insecure,
    )


@dataclass(frozen=True, slots=True)
class RunTail:
    """What is known when it has ended."""

    duration_s: float
    workers: tuple[WorkerFacts, ...]
    notes: tuple[str, ...]
    events: tuple[tuple[float, str, str], ...]
    """Run time, what, and the particulars."""
    signal_exit: int | None = None
    aborted: str | None = None
    trouble: tuple[str, ...] = ()
    not_placed: int = 0
    """Sessions of the plan that nobody placed, since a worker may have, and was lost."""
    going_on: bool = False
    """It has not ended: this is how it stands."""


def report_document(
    head: RunHead,
    tail: RunTail,
    collector: Collector,
    assertions: Sequence[AssertionResult],
    verdict: RunVerdict,
) -> dict[str, Any]:
    """The report. What doesn't exist is null."""
    started = sum(worker.started for worker in tail.workers)
    sessions = collector.sessions()
    return {
        "schema": SCHEMA,
        "voicebench": __version__,
        "run": {
            "id": head.id,
            "name": head.name,
            "started_at": head.started_at,
            "duration_s": round(tail.duration_s, 3),
            "plan": head.plan,
            "seed": head.seed,
            "clock": head.clock,
            "insecure": head.insecure,
            "complete": verdict.complete,
            "verdict": verdict.verdict,
            "exit_code": verdict.exit_code,
            "reasons": list(verdict.reasons),
            "notes": [*(_insecure_note(head)), *tail.notes],
        },
        "accounting": {
            **collector.account.as_dict(started),
            "maybe_started": sum(worker.maybe_started for worker in tail.workers),
            "by_worker": {
                worker.name: {
                    **_account(collector, worker).as_dict(worker.started),
                    "maybe_started": worker.maybe_started,
                }
                for worker in tail.workers
            },
        },
        "summary": collector.total.all.as_dict(),
        "summary_reliable": collector.total.reliable.as_dict(),
        "assertions": [result.as_dict() for result in assertions],
        "by_scenario": {
            name: {
                "summary": sums.all.as_dict(),
                "summary_reliable": sums.reliable.as_dict(),
                "by_turn": {turn: tally.as_dict() for turn, tally in collector.by_turn[name].items()},
            }
            for name, sums in _in_order(head, collector)
        },
        # Sessions on the virtual clock are computed one after the other: they have no time in common.
        "timeline": collector.timeline.as_dict() if head.clock == "real" else None,
        "workers": [_worker(head, collector, worker) for worker in tail.workers],
        "events": [
            {"t_s": round(t_s, 3), "event": event, "detail": detail}
            for t_s, event, detail in sorted(tail.events, key=lambda each: each[0])
        ],
        "sessions_listed": "all" if len(sessions) == collector.n_known else "kept",
        "sessions": sessions,
    }


def _insecure_note(head: RunHead) -> list[str]:
    if not head.insecure:
        return []
    return ["insecure: the master listened beyond this machine without authentication, so results may be forged"]


def _in_order(head: RunHead, collector: Collector) -> list[tuple[str, Any]]:
    """By scenario in the order of the plan, whichever session came first; turns of each in the order of its script."""
    return [(name, collector.by_scenario[name]) for name in head.scenario_limits if name in collector.by_scenario]


def _account(collector: Collector, worker: WorkerFacts) -> Account:
    return collector.by_worker.get(worker.name, Account())


def _worker(head: RunHead, collector: Collector, worker: WorkerFacts) -> dict[str, Any]:
    return {
        "id": worker.name,
        "host": worker.host,
        "state": worker.state,
        "why": worker.why or None,
        "voicebench": worker.voicebench,
        "python": worker.python,
        "platform": worker.platform,
        "cpus": worker.cpus,
        "adapters": list(head.adapters),
        "joined_s": round(worker.joined_s, 3),
        "left_s": None if worker.left_s is None else round(worker.left_s, 3),
        "sessions": worker.started,
        "cpu_s": round(worker.cpu_s, 3),
        "health": None if worker.health is None else _rounded(worker.health),
        "judged_turns": _account(collector, worker).judged_turns,
        "unreliable_turns": _account(collector, worker).unreliable_turns,
        "frame_lateness_ms": lateness_document(_account(collector, worker).lateness_ms),
    }


def _rounded(health: HealthFacts) -> dict[str, float | None]:
    values = asdict(health)
    return {key: None if value is None else round(value, 4) for key, value in values.items()}


def lateness_document(late: Distribution) -> dict[str, float | int | None]:
    """How late frames were sent."""
    shown = late.as_dict()
    return {key: shown[key] for key in ("count", "p50", "p99", "max")}
