"""From everything that was taken in to the report and the verdict."""

from __future__ import annotations

from typing import Any

from voicebench.assertions import AssertionResult
from voicebench.master.collector import Collector, Sums
from voicebench.master.report import RunHead, RunTail, WorkerFacts, report_document
from voicebench.master.verdict import RunEnd, RunVerdict, judge


def conclude(head: RunHead, tail: RunTail, collector: Collector) -> tuple[dict[str, Any], RunVerdict]:
    """The report of a run and its verdict, also of one that was interrupted or is missing something."""
    assertions = check_limits(head, collector)
    verdict = judge(
        RunEnd(
            assertions=assertions,
            started=sum(worker.started for worker in tail.workers),
            accounted=collector.n_taken,
            with_frames=collector.with_frames,
            failed=collector.account.outcomes["failed"],
            lost=collector.account.outcomes["lost"],
            overloaded=collector.generator_overloaded,
            generator_failures=collector.account.reasons["generator"],
            signal_exit=tail.signal_exit,
            trouble=tail.trouble,
            aborted=tail.aborted,
            missing=tuple(_missing(tail)),
            going_on=tail.going_on,
        )
    )
    return report_document(head, tail, collector, assertions, verdict), verdict


def check_limits(head: RunHead, collector: Collector) -> list[AssertionResult]:
    """A plan's limits speak of the whole run, a scenario's of its own sessions."""
    assertions = collector.total.check(head.limits)
    several = len(head.scenario_limits) > 1
    for name, limits in head.scenario_limits.items():
        sums = collector.by_scenario.get(name, Sums())
        assertions += sums.check(limits, name if several else None)
    return assertions


def _missing(tail: RunTail) -> list[str]:
    """What went missing with whom."""
    sentences = [_loss(worker) for worker in tail.workers if worker.state == "lost"]
    if tail.not_placed:
        sentences.append(
            f"{tail.not_placed} sessions of the plan were not placed: a worker that was lost may have started them"
        )
    return sentences


def _loss(worker: WorkerFacts) -> str:
    why = f" ({worker.why})" if worker.why else ""
    may = f", and may have started {worker.maybe_started} more" if worker.maybe_started else ""
    return f"worker {worker.name} was lost{why}: it had started {worker.started} sessions{may}"
