"""What the report says in rows and sentences: the same for HTML and Markdown. Nothing here is computed but shares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from voicebench.distribution import FEW_FOR_P95, FEW_FOR_P99
from voicebench.words import NOTHING, count, duration, ms, number, share

Document = Mapping[str, Any]
FEW = "*"
VERDICTS = {
    "pass": "Passed",
    "fail": "Failed",
    "cant_tell": "Can\N{RIGHT SINGLE QUOTATION MARK}t tell",
    "untrusted": "Can\N{RIGHT SINGLE QUOTATION MARK}t be trusted",
    "incomplete": "Incomplete",
    "unreachable": "Agent not reached",
    "interrupted": "Interrupted",
}
LIMIT_WORDS = {"pass": "pass", "fail": "FAIL", "cant_tell": "can\N{RIGHT SINGLE QUOTATION MARK}t tell"}
DISTRIBUTIONS = (
    ("Response latency", "response_latency_ms"),
    ("Time to first audio", "ttfa_ms"),
    ("Barge-in stop time", "barge_in_stop_ms"),
)
FAILURES_SHOWN = 50
SLOWEST_SHOWN = 20


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
class TurnRow:
    """One turn over all sessions of its scenario."""

    id: str
    expect: str
    judged: str
    good: str
    is_bad: bool
    p50: str
    p95: str
    p99: str
    longest: str
    first_audio: str
    wer: str


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that went wrong in one session."""

    session_id: str
    where: str
    what: str
    when: str
    worker: str
    anchor: str
    """Where its picture is; empty: it has none."""


def headline(report: Document) -> str:
    """What ran, and for how long, in one line."""
    run, account = report["run"], report["accounting"]
    clock = ", on the virtual clock" if run["clock"] == "virtual" else ""
    took = duration(run["duration_s"]) if run["duration_s"] >= 1 else "less than a second"
    workers = "" if run["clock"] == "virtual" else f" on {count(len(report['workers']), 'worker')}"
    return f"{count(account['started'], 'session')} in {took}{workers}{clock}"


def account_line(account: Document) -> str:
    """The sum that has to hold."""
    states = [f"{account[state]:,} {state}" for state in ("finished", "failed", "cut", "lost")]
    return f"{account['started']:,} started = {' + '.join(states)}"


def warnings(report: Document) -> list[str]:
    """What has to be known before any number is believed."""
    run = report["run"]
    found = []
    if not run["complete"]:
        found.append("This run is incomplete: what is said below is of the part that was measured.")
    if run["verdict"] == "untrusted":
        found.append(
            "The load generator itself was late: numbers below may be its doing, not the agent"
            "\N{RIGHT SINGLE QUOTATION MARK}s."
        )
    if run["insecure"]:
        found.append("The master listened beyond its machine without authentication: results may have been forged.")
    return found


def limit_rows(report: Document) -> list[LimitRow]:
    return [
        LimitRow(
            each["verdict"],
            LIMIT_WORDS[each["verdict"]],
            each["name"],
            each["scenario"] or "",
            f"{_relation(each['name'])} {_of_limit(each, 'limit')}",
            "nothing was measured" if each["actual"] is None else _of_limit(each, "actual"),
            "" if each["actual"] == each["actual_reliable"] else _of_limit(each, "actual_reliable"),
        )
        for each in report["assertions"]
    ]


def _of_limit(assertion: Document, key: str) -> str:
    """As exact as it is held against the limit."""
    value = assertion[key]
    if value is None:
        return NOTHING
    return f"{value:,.10g} ms" if assertion["name"].endswith("_ms") else number(value)


def _relation(name: str) -> str:
    return "\N{GREATER-THAN OR EQUAL TO}" if name.startswith("min_") else "\N{LESS-THAN OR EQUAL TO}"


def percentile(values: Document, name: str) -> str:
    """A value of a distribution, marked where it is a percentile of few.

    >>> percentile({"count": 1, "p95": 100.0}, "p95")
    '100 ms*'
    """
    enough = FEW_FOR_P99 if name == "p99" else FEW_FOR_P95 if name == "p95" else 0
    return ms(values[name]) + (FEW if 0 < values["count"] < enough else "")


def distribution_rows(summary: Document) -> list[tuple[str, ...]]:
    """Name, n, p50, p90, p95, p99, max of what was measured at all."""
    shown = ("p50", "p90", "p95", "p99", "max")
    return [
        (label, f"{summary[key]['count']:,}", *(percentile(summary[key], name) for name in shown))
        for label, key in DISTRIBUTIONS
        if summary[key]["count"]
    ]


def has_few(rows: Sequence[Sequence[str]]) -> bool:
    """Whether anything in them is marked."""
    return any(cell.endswith(FEW) for row in rows for cell in row)


def rate_rows(summary: Document) -> list[tuple[str, str, str]]:
    """Name, share, counts. What there was none of has no row."""
    return list(_rates(summary))


def _rates(summary: Document) -> Iterator[tuple[str, str, str]]:
    respond = summary["response_latency_ms"]["count"] + summary["missed_responses"]
    judged = summary["turns"] - summary["not_played_turns"] - summary["unfinished_turns"]
    yield from _rate("Turns passed", summary["turns_passed"], summary["turns"])
    yield from _rate("Missed responses", summary["missed_responses"], respond)
    yield from _rate("Talk-overs", summary["talk_overs"], respond)
    barge_ins = summary["barge_in_turns"]
    if barge_ins:
        yield "Barge-in success", share(summary["barge_in_success_rate"]), f"of {barge_ins:,}"
    yield from _rate("False barge-ins", summary["false_barge_ins"], summary["noise_turns"])
    yield from _rate("Spurious responses", summary["spurious_responses"], summary["noise_turns"])
    if summary["mean_wer"] is not None:
        pooled = f"pooled {share(summary['pooled_wer'])}"
        yield "Word error rate", share(summary["mean_wer"]), pooled
    if summary["failed_session_rate"] is not None:
        yield "Failed sessions", share(summary["failed_session_rate"]), "of those that ended by themselves or were lost"
    yield from _rate("Unreliable turns", summary["unreliable_turns"], judged)
    for name, key in (("Turns not played", "not_played_turns"), ("Turns unfinished", "unfinished_turns")):
        if summary[key]:
            yield from _rate(name, summary[key], summary["turns"])


def _rate(name: str, part: int, of: int) -> Iterator[tuple[str, str, str]]:
    if of:
        yield name, share(part / of), f"{part:,} of {of:,}"


def turn_rows(by_turn: Mapping[str, Document]) -> list[TurnRow]:
    """A row for each turn of a scenario, in the order of its script."""
    return [_turn_row(name, summary) for name, summary in by_turn.items()]


def _turn_row(name: str, summary: Document) -> TurnRow:
    expect = "stop" if summary["barge_in_turns"] else "ignore" if summary["noise_turns"] else "respond"
    times = summary["barge_in_stop_ms"] if expect == "stop" else summary["response_latency_ms"]
    judged = summary["turns"] - summary["not_played_turns"] - summary["unfinished_turns"]
    return TurnRow(
        id=name,
        expect=expect,
        judged=f"{judged:,}",
        good=f"{summary['turns_passed']:,}",
        is_bad=summary["turns_passed"] < judged,
        p50=ms(times["p50"]),
        p95=percentile(times, "p95"),
        p99=percentile(times, "p99"),
        longest=ms(times["max"]),
        first_audio=percentile(summary["ttfa_ms"], "p95"),
        wer=share(summary["mean_wer"]),
    )


def failed_sessions(report: Document, anchors: Mapping[str, str]) -> list[Incident]:
    """Sessions that failed or were lost, as far as the report lists them."""
    return [
        _incident(session, "", _ending(session["outcome"]), anchors)
        for session in report["sessions"]
        if session["outcome"]["state"] in ("failed", "lost")
    ]


def _ending(outcome: Document) -> str:
    detail = f": {outcome['detail']}" if outcome["detail"] else ""
    return f"{outcome['reason'] or outcome['state']}{detail}"


def broken_turns(report: Document, anchors: Mapping[str, str]) -> list[Incident]:
    """Turns that were judged and did not pass."""
    return [
        _incident(session, turn["id"], _broken(turn), anchors)
        for session in report["sessions"]
        for turn in session["turns"]
        if not turn["passed"] and turn["status"] in ("measured", "missed")
    ]


def _broken(turn: Document) -> str:
    if turn["status"] == "missed":
        return "no answer"
    if turn["expect"] == "stop":
        return "went on talking" if turn["stop_ms"] is None else f"stopped after {ms(turn['stop_ms'])}"
    noticed = [word for key, word in (("false_barge_in", "stopped"), ("spurious_response", "answered")) if turn[key]]
    return " and ".join(noticed) or (f"answered after {ms(turn['response_latency_ms'])}")


def slowest_turns(report: Document, anchors: Mapping[str, str]) -> list[Incident]:
    """The answers that took longest."""
    answered = [
        (turn["response_latency_ms"], session, turn)
        for session in report["sessions"]
        for turn in session["turns"]
        if turn["expect"] == "respond" and turn["response_latency_ms"] is not None
    ]
    answered.sort(key=lambda each: -each[0])
    return [
        _incident(session, turn["id"], ms(latency_ms) + ("" if turn["reliable"] else " (unreliable)"), anchors)
        for latency_ms, session, turn in answered[:SLOWEST_SHOWN]
    ]


def _incident(session: Document, where: str, what: str, anchors: Mapping[str, str]) -> Incident:
    started_s = session.get("started_s")
    return Incident(
        session_id=session["session_id"],
        where=where,
        what=what,
        when=NOTHING if started_s is None else f"{started_s:,.1f} s",
        worker=session.get("worker") or NOTHING,
        anchor=anchors.get(session["session_id"], ""),
    )


def worker_rows(report: Document) -> list[dict[str, str]]:
    """Who placed the sessions, what became of them, and how late they were."""
    rows = []
    for worker in report["workers"]:
        account, late = report["accounting"]["by_worker"][worker["id"]], worker["frame_lateness_ms"]
        unreliable, judged = worker.get("unreliable_turns"), worker.get("judged_turns")
        rows.append(
            {
                "name": worker["id"],
                "host": worker["host"],
                "state": worker["state"],
                "why": worker["why"] or "",
                **{state: f"{account[state]:,}" for state in ("started", "finished", "failed", "cut", "lost")},
                "late_p50": _tenths(late["p50"]),
                "late_p99": _tenths(late["p99"]),
                "late_max": _tenths(late["max"]),
                "unreliable": NOTHING if judged is None else f"{unreliable:,} of {judged:,}",
                "cpu": f"{worker['cpu_s']:,.1f} s",
                "system": f"voicebench {worker['voicebench']}, Python {worker['python']}, {worker['platform']}, "
                f"{count(worker['cpus'], 'core')}",
            }
        )
    return rows


def _tenths(value_ms: float | None) -> str:
    return NOTHING if value_ms is None else f"{value_ms:,.1f} ms"
