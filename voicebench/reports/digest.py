"""What a report says of the run as a whole, in rows and sentences: the same for HTML and Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from voicebench.master.collector import OVERLOADED_TURN_RATE
from voicebench.words import NOTHING, count, duration, number

Document = Mapping[str, Any]
APOSTROPHE = "\N{RIGHT SINGLE QUOTATION MARK}"
VERDICTS = {
    "pass": "Passed",
    "fail": "Failed",
    "cant_tell": f"Can{APOSTROPHE}t tell",
    "untrusted": f"Can{APOSTROPHE}t be trusted",
    "incomplete": "Incomplete",
    "unreachable": "Agent not reached",
    "interrupted": "Interrupted",
}
LIMIT_WORDS = {"pass": "pass", "fail": "FAIL", "cant_tell": f"can{APOSTROPHE}t tell"}
STATES = ("finished", "failed", "cut", "lost")


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One assertion as judged."""

    verdict: str
    word: str
    name: str
    scenario: str
    limit: str
    actual: str
    reliable: str
    """What it would be without unreliable turns; empty where that is the same."""


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """Who placed sessions, what became of them, and how far its numbers can be believed."""

    name: str
    host: str
    state: str
    why: str
    is_bad: bool
    started: str
    finished: str
    failed: str
    cut: str
    lost: str
    reasons: str
    unreliable: str
    late_p50: str
    late_p99: str
    late_max: str
    cpu: str
    stay: str
    system: str


def verdict_word(report: Document) -> str:
    """The verdict as a heading."""
    verdict = str(report["run"]["verdict"])
    return VERDICTS.get(verdict, verdict)


def headline(report: Document) -> str:
    """What ran, and for how long, in one line."""
    run, account = report["run"], report["accounting"]
    clock = ", on the virtual clock" if run["clock"] == "virtual" else ""
    took = duration(run["duration_s"]) if run["duration_s"] >= 1 else "less than a second"
    workers = "" if run["clock"] == "virtual" else f" on {count(len(report['workers']), 'worker')}"
    return f"{count(account['started'], 'session')} in {took}{workers}{clock}"


def account_line(account: Document) -> str:
    """The sum that has to hold."""
    return f"{account['started']:,} started = {' + '.join(f'{account[state]:,} {state}' for state in STATES)}"


def account_notes(account: Document) -> list[str]:
    """What the sum doesn't say."""
    notes = []
    accounted = sum(account[state] for state in STATES)
    if accounted != account["started"]:
        notes.append(f"The sum does not hold: {count(account['started'] - accounted, 'session')} not accounted for.")
    if account["maybe_started"]:
        more = count(account["maybe_started"], "session")
        notes.append(f"At most {more} more may have been started by workers that were lost.")
    if account["warmup"]:
        notes.append(f"{count(account['warmup'], 'session')} of the warm-up: accounted for here, in no other number.")
    return notes


def reason_rows(account: Document, details: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Why sessions failed, how many did, and what the first of them had to say."""
    return [(reason, f"{times:,}", details.get(reason) or NOTHING) for reason, times in account["reasons"].items()]


def warnings(report: Document) -> list[str]:
    """What has to be known before any number is believed."""
    run = report["run"]
    found = []
    if not run["complete"]:
        found.append("This run is incomplete: everything below speaks of the part that was measured.")
    if run["verdict"] in ("untrusted", "cant_tell") or was_late(report):
        found.append(f"The load generator itself was late: numbers below may be its doing, not the agent{APOSTROPHE}s.")
    if run["insecure"]:
        found.append("The master listened beyond its machine without authentication: results may have been forged.")
    return found


def was_late(report: Document) -> bool:
    """Whether the load generator made so many turns unreliable that the run can't be trusted."""
    rate = report["summary"]["unreliable_turn_rate"]
    return rate is not None and rate > OVERLOADED_TURN_RATE


def reasons(report: Document) -> list[str]:
    """What led to the verdict; of a run that passed, what that means."""
    if report["run"]["reasons"]:
        return list(report["run"]["reasons"])
    if report["assertions"]:
        return ["All assertions hold, and the numbers can be trusted."]
    return ["The plan has no assertions. The run is complete, and its numbers can be trusted."]


def limit_rows(report: Document) -> list[LimitRow]:
    """The assertions: those that hold come last."""
    order = ("fail", "cant_tell", "pass")
    return [_limit_row(each) for each in sorted(report["assertions"], key=lambda each: order.index(each["verdict"]))]


def _limit_row(each: Document) -> LimitRow:
    same = each["actual"] == each["actual_reliable"]
    return LimitRow(
        verdict=each["verdict"],
        word=LIMIT_WORDS[each["verdict"]],
        name=each["name"],
        scenario=each["scenario"] or "",
        limit=f"{relation(each['name'])} {_of_limit(each, 'limit')}",
        actual="nothing was measured" if each["actual"] is None else _of_limit(each, "actual"),
        reliable="" if same else _of_limit(each, "actual_reliable"),
    )


def _of_limit(assertion: Document, key: str) -> str:
    """As exact as it is held against the limit."""
    value = assertion[key]
    if value is None:
        return NOTHING
    return f"{value:,.10g} ms" if assertion["name"].endswith("_ms") else number(value)


def relation(name: str) -> str:
    """What a limit says of the value."""
    return "\N{GREATER-THAN OR EQUAL TO}" if name.startswith("min_") else "\N{LESS-THAN OR EQUAL TO}"


def worker_rows(report: Document) -> list[WorkerRow]:
    """The workers: those first that did not stay to the end, then those that were late."""
    ranked = sorted(
        report["workers"], key=lambda each: (each["state"] == "done", -(each["frame_lateness_ms"]["p99"] or 0.0))
    )
    return [_worker_row(each, report["accounting"]["by_worker"].get(each["id"], {})) for each in ranked]


def _worker_row(worker: Document, account: Document) -> WorkerRow:
    late = worker["frame_lateness_ms"]
    judged, unreliable = worker.get("judged_turns"), worker.get("unreliable_turns")
    left = NOTHING if worker["left_s"] is None else f"{worker['left_s']:,.1f} s"
    return WorkerRow(
        name=worker["id"],
        host=worker["host"],
        state=worker["state"],
        why=worker["why"] or "",
        is_bad=worker["state"] in ("lost", "unable"),
        started=f"{worker['sessions']:,}",
        **{state: f"{account[state]:,}" if account else NOTHING for state in STATES},
        reasons=", ".join(f"{times:,} {reason}" for reason, times in account.get("reasons", {}).items()),
        unreliable=NOTHING if not judged or unreliable is None else f"{unreliable:,} of {judged:,}",
        late_p50=tenths(late["p50"]),
        late_p99=tenths(late["p99"]),
        late_max=tenths(late["max"]),
        cpu=NOTHING if worker["cpu_s"] is None else f"{worker['cpu_s']:,.1f} s",
        stay=f"{worker['joined_s']:,.1f} s to {left}",
        system=f"voicebench {worker['voicebench']}, Python {worker['python']}, {worker['platform']}, "
        f"{count(worker['cpus'], 'core')}",
    )


def tenths(value_ms: float | None) -> str:
    """A short time.

    >>> tenths(0.25), tenths(None)
    ('0.2 ms', '–')
    """
    return NOTHING if value_ms is None else f"{value_ms:,.1f} ms"
